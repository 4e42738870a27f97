/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Select: the exact top-k of |scale · gradient + residual| in one walk over memory.
 *
 *   1. blocks are scanned, in order, against the carried threshold; candidates pile up
 *   2. when the next block might not find room, the pile is pruned to its k best and the threshold
 *      rises above the worst of them (an equal one further on has a larger index, and loses)
 *   3. exact cut among the candidates; the selected leave the shadow
 *   4. next threshold: where about 1.25 k would qualify
 *
 * No threshold is carried in the first step: the walk starts at the smallest key and prunes about
 * log2(n / k) times until its threshold is right. The worst case, values that grow with the index,
 * costs a prune per k elements, which is still O(n).
 *
 * The carried threshold was too high (fewer than k qualified): a second walk, over the sums that
 * the first left in the shadow (over the inputs when there is none), from the smallest key on.
 *
 * Between two blocks a caller may look at the pile and send what stands there: entries stay where
 * they are until a prune, and the blocks are the same however the walk is divided.
 *
 * Not finite: the scan of the block says so. ERROR and PROPAGATE: the outputs are right as they
 * are, the lowest index is looked for in that block. DROP: the block is made again in scalar code,
 * piece by piece.
 */
#include <string.h>

#include <cut.h>
#include <fpenv.h>
#include <scalar.h>

#define BLOCK (1u << 16) /* elements of a scan; large enough to stream */
#define PIECE 2048u	 /* elements of a piece under DROP; 8 KiB of stack */
#define SLACK 4096u	 /* candidates beyond 2 k that always find room */

uint64_t spri_select_capacity(uint64_t n, uint64_t k)
{
	return k >= n / 2 ? n : spri_min_u64(n, 2 * k + SLACK);
}

static void prune(struct spri_select_walk *w)
{
	uint64_t n_equal;
	uint32_t key;

	if (w->found.count <= w->select->k)
		return;
	spri_cut(w->found.value, w->found.count, w->select->k, &key, &n_equal);
	spri_cut_apply(&w->found, w->select->k, key, n_equal, NULL);
	w->threshold = key + 1;
	w->pruned++;
}

/* How many of the `left` elements to scan next. */
static uint64_t next_length(struct spri_select_walk *w, uint64_t left)
{
	uint64_t room = w->found.capacity - w->found.count;

	if (!w->crowded || room >= left)
		return spri_min_u64(BLOCK, left);
	if (room < SLACK) {
		prune(w);
		room = w->found.capacity - w->found.count;
	}
	return spri_min_u64(spri_min_u64(BLOCK, room), left);
}

static void scan_init(const struct spri_select_walk *w, struct spri_scan *scan, uint64_t at,
		      uint64_t length)
{
	*scan = (struct spri_scan){
		.gradient = w->gradient + at,
		.residual = w->residual ? w->residual + at : NULL,
		.scale = w->scale,
		.shadow = w->shadow ? w->shadow + at : NULL,
		.n = length,
		.base = w->select->base + at,
		.threshold = w->threshold,
		.index = w->found.index + w->found.count,
		.value = w->found.value + w->found.count,
		.capacity = w->found.capacity - w->found.count,
	};
}

/* The sums of a piece under DROP. */
static void drop_piece(const struct spri_select_walk *w, uint64_t at, uint64_t length, float *sum,
		       struct spri_finite *finite)
{
	for (uint64_t i = 0; i < length; i++) {
		float r = w->residual ? w->residual[at + i] : 0.0f;

		sum[i] = spri_sum_drop(w->gradient[at + i] * w->scale, r, w->select->base + at + i,
				       finite);
	}
}

/* A block with non-finite values under DROP: as its scan would have gone had they been zero. */
static __attribute__((noinline)) void scan_drop(struct spri_select_walk *w, struct spri_scan *block,
						uint64_t at, struct spri_finite *finite)
{
	float sum[PIECE];

	block->n_candidates = 0;
	block->n_qualified = 0;
	for (uint64_t done = 0; done < block->n; done += PIECE) {
		uint64_t length = spri_min_u64(PIECE, block->n - done);
		struct spri_scan scan;

		drop_piece(w, at + done, length, sum, finite);
		if (w->shadow)
			memcpy(w->shadow + at + done, sum, length * sizeof *sum);
		scan_init(w, &scan, at + done, length);
		scan.gradient = sum;
		scan.residual = NULL;
		scan.scale = 1.0f;
		scan.shadow = NULL;
		scan.index += block->n_candidates;
		scan.value += block->n_candidates;
		scan.capacity -= block->n_candidates;
		w->row->scan(&scan);
		block->n_candidates += scan.n_candidates;
		block->n_qualified += scan.n_qualified;
	}
}

/* Under ERROR and PROPAGATE: the lowest index of the walk; blocks come in order. */
static void note_lowest(const struct spri_select_walk *w, uint64_t at, uint64_t length,
			struct spri_finite *finite)
{
	for (uint64_t i = at; i < at + length; i++) {
		float r = w->residual ? w->residual[i] : 0.0f;

		if (spri_f32_nonfinite(w->gradient[i] * w->scale + r)) {
			spri_finite_note(finite, w->select->base + i);
			return;
		}
	}
}

/* Scans a block. False: more qualified than find room; nothing was taken, scan less. */
static bool scan_block(struct spri_select_walk *w, uint64_t at, uint64_t length)
{
	struct spri_finite finite = w->finite;
	struct spri_scan scan;

	scan_init(w, &scan, at, length);
	w->row->scan(&scan);
	if (spri_unlikely(scan.nonfinite)) {
		if (w->select->policy == SPR_NONFINITE_DROP)
			scan_drop(w, &scan, at, &finite);
		else if (finite.bad_index == SPRI_NO_INDEX)
			note_lowest(w, at, length, &finite);
	}
	if (scan.n_qualified > scan.n_candidates) {
		w->crowded = true;
		return false;
	}
	w->found.count += scan.n_candidates;
	w->finite = finite;
	/* Would a full block as dense as this one, twice over, still find room? */
	w->crowded = scan.n_qualified * 2 * BLOCK / length > w->found.capacity - w->found.count;
	return true;
}

/* Scans block after block, until `end` or a little beyond. */
static void walk_until(struct spri_select_walk *w, uint64_t end)
{
	while (w->scanned < end) {
		uint64_t length = next_length(w, w->select->n - w->scanned);

		if (scan_block(w, w->scanned, length))
			w->scanned += length;
	}
}

/* A second walk, after one that found too few: over the sums, from the smallest key on. */
static void walk_again(struct spri_select_walk *w)
{
	struct spri_finite finite = w->finite;

	if (w->shadow) {
		w->gradient = w->shadow;
		w->residual = NULL;
		w->scale = 1.0f;
		w->shadow = NULL;
	}
	w->found.count = 0;
	w->threshold = 1;
	w->scanned = 0;
	walk_until(w, w->select->n);
	w->finite = finite; /* that of the first walk, which saw the inputs */
}

/*
 * The key that about `want` entries of the same data reach. Among the candidates when there are
 * enough; else below the cut, by the distance in which the count last doubled.
 */
static uint32_t next_threshold(const struct spri_select_walk *w, uint32_t cut)
{
	uint64_t k = w->select->k, want = k + k / 4 + 16;
	uint32_t key, doubling = 1u << 20;
	uint64_t n_equal, distance;

	if (!w->pruned && w->found.count >= k + k / 8 && w->found.count <= k + k / 2 + 32)
		return w->threshold; /* good as it is */
	if (w->found.count >= want) {
		spri_cut(w->found.value, w->found.count, want, &key, &n_equal);
		if (key < w->threshold)
			key = w->threshold; /* below it the candidates are not complete */
		return key < cut ? key : cut;
	}
	if (k >= 32) {
		spri_cut(w->found.value, w->found.count, k / 2, &key, &n_equal);
		doubling = key - cut;
	}
	/*
	 * In sixteenths of a doubling; linear is near enough, and too low costs less than too high.
	 */
	distance = doubling / 16 * (spri_min_u64((want - k) * 5 / 4 + k / 16, 6 * k) * 16 / k);
	return distance < cut ? cut - (uint32_t)distance : 1;
}

/* Steps 3 and 4, for k > 0. */
static void finish(struct spri_select *s, struct spri_select_walk *w)
{
	uint64_t n_equal, i;

	s->threshold = 1; /* whatever there is */
	s->cut_key = 1;
	s->cut_index = UINT64_MAX;
	if (w->found.count >= s->k && s->k < s->n) {
		spri_cut(w->found.value, w->found.count, s->k, &s->cut_key, &n_equal);
		s->threshold = next_threshold(w, s->cut_key);
		spri_cut_apply(&w->found, s->k, s->cut_key, n_equal, NULL);
		for (i = s->k - 1; spri_f32_key(s->value[i]) != s->cut_key;)
			i--; /* ends: the worst of the k has this key */
		s->cut_index = s->index[i];
	}
	s->count = w->found.count;
	for (i = 0; s->shadow && i < s->count; i++)
		s->shadow[s->index[i] - s->base] = 0.0f;
}

void spri_select_begin(struct spri_select *s, struct spri_select_walk *w)
{
	assert(s->capacity >= spri_select_capacity(s->n, s->k));
	*w = (struct spri_select_walk){
		.select = s,
		.row = spri_kernels(),
		.gradient = s->gradient,
		.residual = s->residual,
		.scale = s->scale,
		.shadow = s->shadow,
		.floor = s->k >= s->n ? 1 : s->threshold,
		.found = {s->index, s->value, 0, s->capacity},
		.finite = SPRI_FINITE_NONE,
	};
	if (s->k == 0)
		w->floor = UINT32_MAX; /* nothing qualifies; the sums still go to the shadow */
	w->threshold = w->floor ? w->floor : 1;
	w->crowded = w->threshold == 1 && s->capacity < s->n;
	s->repaired = false;
	s->count = 0;
}

bool spri_select_some(struct spri_select_walk *w, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	uint64_t left = w->select->n - w->scanned;

	walk_until(w, w->scanned + spri_min_u64(n, left));
	spri_fp_leave(env);
	return w->scanned < w->select->n;
}

void spri_select_end(struct spri_select_walk *w)
{
	struct spri_fpenv env = spri_fp_enter();
	struct spri_select *s = w->select;

	assert(w->scanned == s->n);
	if (s->k == 0) {
		s->cut_key = UINT32_MAX;
		s->cut_index = 0;
	} else {
		if (w->found.count < s->k && !w->pruned && w->threshold > 1) {
			s->repaired = true;
			walk_again(w);
		}
		finish(s, w);
	}
	s->finite = w->finite;
	spri_fp_leave(env);
}

void spri_select(struct spri_select *s)
{
	struct spri_select_walk w;

	spri_select_begin(s, &w);
	spri_select_some(&w, s->n);
	spri_select_end(&w);
}
