/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Importance: accumulate, weigh and choose in one walk over memory.
 *
 *   1. a piece is weighed: sums to the shadow, importance (when a mask is proposed) to an array
 *      that stays in the first cache, statistics to eight lanes
 *   2. the piece is drawn among, in groups of 32 that begin at multiples of 32 of the index: the
 *      array begins as many elements earlier, with zeros, which are never chosen
 *   3. at the end of a block the lanes go to the trees of the sums
 *
 * Not finite: weighing says so. ERROR and PROPAGATE: the outputs are right as they are, the lowest
 * index is looked for in that piece. DROP: the sums of the piece are made again in scalar code and
 * weighed as if they were the gradient; its residual is kept aside when the shadow takes its place.
 */
#include <string.h>

#include <fpenv.h>
#include <scalar.h>
#include <tree.h>

#define PIECE SPRI_WEIGH_MOST
#define GROUP SPRI_DRAW_GROUP
#define STREAM_FROM 16384 /* elements: 256 KiB of all four vectors */

struct walk {
	const struct spri_importance *s;
	const struct spri_kernel_row *row;
	struct spri_draw draw;
	struct spri_tree trees[3]; /* of I, I², w² */
	struct spri_finite finite;
	bool stream;
};

/* To add to any value without changing its bits. */
static const float minus_zeros[PIECE] = {[0 ... PIECE - 1] = -0.0f};

/* Under ERROR and PROPAGATE: the lowest index of the walk; pieces come in order. */
static void note_lowest(struct walk *w, const struct spri_weigh *piece, uint64_t base)
{
	uint64_t i = 0;

	while (!spri_f32_nonfinite(piece->shadow[i]))
		i++;
	spri_finite_note(&w->finite, base + i);
}

/* A piece with non-finite values under DROP: as it would have gone had they been zero. */
static __attribute__((noinline)) void weigh_drop(struct walk *w, struct spri_weigh *piece,
						 uint64_t base)
{
	float sum[PIECE];

	for (uint64_t i = 0; i < piece->n; i++)
		sum[i] = spri_sum_drop(piece->gradient[i] * piece->scale, piece->residual[i],
				       base + i, &w->finite);
	piece->gradient = sum;
	piece->residual = minus_zeros;
	piece->scale = 1.0f;
	w->row->weigh(piece);
}

static void weigh(struct walk *w, struct spri_weigh *piece, uint64_t base)
{
	w->row->weigh(piece);
	if (spri_unlikely(piece->nonfinite) && w->finite.bad_index == SPRI_NO_INDEX)
		note_lowest(w, piece, base);
}

/* The same under DROP, where it may have to be done again. */
static void weigh_or_drop(struct walk *w, struct spri_weigh *piece, uint64_t base)
{
	struct spri_weigh again = *piece;
	float kept[PIECE];

	if (piece->residual == piece->shadow) {
		memcpy(kept, piece->residual, piece->n * sizeof *kept);
		again.residual = kept;
	}
	w->row->weigh(piece);
	if (spri_unlikely(piece->nonfinite)) {
		weigh_drop(w, &again, base);
		memcpy(piece->sum, again.sum, sizeof again.sum);
		memcpy(piece->sum_squares, again.sum_squares, sizeof again.sum_squares);
		memcpy(piece->weight_squares, again.weight_squares, sizeof again.weight_squares);
	}
}

static void weigh_piece(struct walk *w, struct spri_weigh *piece, uint64_t base)
{
	if (w->s->policy == SPR_NONFINITE_DROP)
		weigh_or_drop(w, piece, base);
	else
		weigh(w, piece, base);
}

/* A piece of which a mask is proposed. */
static void weigh_and_draw(struct walk *w, struct spri_weigh *piece, uint64_t base)
{
	SPRI_ALIGNED(64) float importance[PIECE + 2 * GROUP];
	uint64_t before = base % GROUP, end = spri_align_up(before + piece->n, GROUP);

	for (uint64_t i = 0; i < before; i++)
		importance[i] = 0.0f;
	for (uint64_t i = before + piece->n; i < end; i++)
		importance[i] = 0.0f;
	piece->importance = importance + before;
	weigh_piece(w, piece, base);
	w->draw.importance = importance;
	w->draw.group = base / GROUP;
	w->draw.n_groups = end / GROUP;
	w->row->draw(&w->draw);
}

/* The block of n elements from `at` on. */
static void walk_block(struct walk *w, uint64_t at, uint64_t n)
{
	const struct spri_importance *s = w->s;
	struct spri_weigh piece = {.scale = s->scale, .floor = s->floor, .stream = w->stream};

	for (uint64_t end = at + n; at < end; at += PIECE) {
		piece.gradient = s->gradient + at;
		piece.residual = s->residual + at;
		piece.weight = s->weight + at;
		piece.shadow = s->shadow + at;
		piece.n = spri_min_u64(PIECE, end - at);
		if (s->choose)
			weigh_and_draw(w, &piece, s->base + at);
		else
			weigh_piece(w, &piece, s->base + at);
	}
	spri_tree_add(&w->trees[0], piece.sum);
	spri_tree_add(&w->trees[1], piece.sum_squares);
	spri_tree_add(&w->trees[2], piece.weight_squares);
}

void spri_importance(struct spri_importance *s)
{
	struct spri_fpenv env = spri_fp_enter();
	struct walk w = {
		.s = s,
		.row = spri_kernels(),
		.draw = {.threshold = s->threshold,
			 .key = s->key,
			 .step = s->step,
			 .index = s->index,
			 .capacity = s->capacity},
		.finite = SPRI_FINITE_NONE,
		.stream = s->n >= STREAM_FROM && s->shadow != s->residual,
	};

	assert(s->floor > 0);
	if (s->trees)
		memcpy(w.trees, s->trees, sizeof w.trees);
	for (uint64_t at = 0; at < s->n; at += SPRI_TREE_BLOCK)
		walk_block(&w, at, spri_min_u64(SPRI_TREE_BLOCK, s->n - at));
	if (w.stream)
		spri_stream_fence();
	s->count = w.draw.count;
	s->n_chosen = w.draw.n_chosen;
	s->sum = spri_tree_total(&w.trees[0]);
	s->sum_squares = spri_tree_total(&w.trees[1]);
	s->weight_squares = spri_tree_total(&w.trees[2]);
	if (s->trees)
		memcpy(s->trees, w.trees, sizeof w.trees);
	s->bad_index = w.finite.bad_index;
	s->dropped = w.finite.dropped;
	spri_fp_leave(env);
}
