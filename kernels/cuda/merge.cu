/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Merge with trim, as spri_merge and spri_trim.
 *
 *   1. unite: the union of both lists in tiles. Where a tile begins in either list is searched for
 *      along a diagonal; within a tile every entry searches its place in the other list's part. An
 *      index that both have takes two places: the sum at a's, 0 at b's. Keys' first digits are
 *      counted on the way
 *   2. cut_digit, twice: the other digits of the key at which the k best end
 *   3. cut_count: per tile, the entries above the cut, at it, and all; the last block adds up
 *   4. cut_write: every entry knows its place from them; sums of 0 have none
 *
 * In 1 and 2 the last block finds the digit. All fit into k, or k = 0: the key is known after 1.
 */
#include <cuda/args.h>
#include <cuda/walk.cuh>

#define DIGIT_BITS 10
#define DIGIT_BINS (1u << DIGIT_BITS)
#define ABOVE_ALL_KEYS 0x80000000u

/* ---- digits ---- */

/* The last block: the bin of this digit that holds the need-th entry from the top. */
static __device__ inline void find_bin(struct spri_gpu_cut_state *state, unsigned digit, uint64_t k)
{
	__shared__ uint64_t before[SPRI_GPU_SCAN_THREADS];
	const volatile uint64_t *bins = state->bins[digit];
	const unsigned n_bins = digit == 0 ? SPRI_GPU_BINS : DIGIT_BINS;
	const unsigned share = n_bins / blockDim.x, top = n_bins - 1 - threadIdx.x * share;
	uint64_t need = digit == 0 ? k : state->need, own = 0, total;

	for (unsigned i = 0; i < share; i++)
		own += bins[top - i];
	before[threadIdx.x] = own;
	total = spri_block_scan(before, blockDim.x);
	if (digit == 0 && (total <= k || k == 0)) {
		if (threadIdx.x == 0) {
			state->prefix = k == 0 ? ABOVE_ALL_KEYS : 0;
			state->settled = 1;
		}
	} else if (before[threadIdx.x] < need && need <= before[threadIdx.x] + own) {
		unsigned bin = top;

		for (need -= before[threadIdx.x]; bins[bin] < need; bin--)
			need -= bins[bin];
		state->prefix = state->prefix << DIGIT_BITS | bin;
		state->need = need;
	}
}

static __device__ __forceinline__ void clear_bins(uint32_t *bins, unsigned n)
{
	for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
		bins[i] = 0;
	__syncthreads();
}

/* Adds this block's bins to those of all; the last block goes on with find_bin. */
static __device__ inline void leave_bins(const struct spri_gpu_cut *c, unsigned digit,
					 const uint32_t *bins, unsigned n)
{
	__syncthreads();
	for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
		if (bins[i])
			spri_atomic_add(&c->state->bins[digit][i], bins[i]);
	if (spri_last_block(&c->state->arrived[digit]))
		find_bin(c->state, digit, c->s.k);
}

/* ---- unite ---- */

/* [from, to) of the union: entries [i, i + na) of a and [j, j + nb) of b. */
struct tile {
	uint64_t i, j;
	unsigned na, nb;
};

/* How many of the first d entries of the union (a's before b's of the same index) are a's. */
static __device__ inline uint64_t diagonal(const struct spri_gpu_merge *s, uint64_t d)
{
	uint64_t low = d > s->nb ? d - s->nb : 0, high = min(d, s->na);

	while (low < high) {
		uint64_t i = low + (high - low) / 2;

		if (s->a.index[i] <= s->b.index[d - i - 1])
			low = i + 1;
		else
			high = i;
	}
	return low;
}

/* How many of n ascending indices are below x; with `or_equal`, also x itself. */
static __device__ __forceinline__ unsigned rank_among(const uint64_t *index, unsigned n, uint64_t x,
						      bool or_equal)
{
	unsigned low = 0;

	while (low < n) {
		unsigned middle = low + (n - low) / 2;

		if (index[middle] < x || (or_equal && index[middle] == x))
			low = middle + 1;
		else
			n = middle;
	}
	return low;
}

/* The value at the place of a's entry t of the tile; *place: in the tile. */
static __device__ __forceinline__ float value_of_a(const struct spri_gpu_merge *s,
						   const struct tile *tile, const uint64_t *index,
						   unsigned t, struct spri_found *found,
						   unsigned *place)
{
	uint64_t own = index[t], i = tile->i + t;
	unsigned rank = rank_among(index + tile->na, tile->nb, own, false);
	uint64_t j = tile->j + rank; /* perhaps the first behind the tile */
	uint64_t other = rank < tile->nb ? index[tile->na + rank]
			 : j < s->nb	 ? s->b.index[j]
					 : ~own;
	float b = other == own ? s->b.value[j] : 0.0f;

	*place = t + rank;
	return spri_sum_by(s->policy, s->a.value[i], b, own, found);
}

/* Likewise of b's entry t. */
static __device__ __forceinline__ float value_of_b(const struct spri_gpu_merge *s,
						   const struct tile *tile, const uint64_t *index,
						   unsigned t, struct spri_found *found,
						   unsigned *place)
{
	uint64_t own = index[tile->na + t];
	unsigned rank = rank_among(index, tile->na, own, true);
	uint64_t i = tile->i + rank; /* the one before it is a's last that is not above own */
	uint64_t other = rank > 0 ? index[rank - 1] : i > 0 ? s->a.index[i - 1] : ~own;

	*place = t + rank;
	if (other == own)
		return 0.0f; /* it is in a's sum */
	return spri_sum_by(s->policy, s->b.value[tile->j + t], 0.0f, own, found);
}

/*
 * All threads: where the tile [from, to) begins in either list, and its indices, a's first. The
 * first barrier also waits for whoever still uses the indices of the tile before.
 */
static __device__ inline struct tile load_tile(const struct spri_gpu_merge *s, uint64_t from,
					       uint64_t to, uint64_t *index)
{
	__shared__ uint64_t split[2];
	struct tile tile;

	if (threadIdx.x % SPRI_WARP == 0 && threadIdx.x / SPRI_WARP < 2)
		split[threadIdx.x / SPRI_WARP] = diagonal(s, threadIdx.x ? to : from);
	__syncthreads();
	tile.i = split[0];
	tile.j = from - split[0];
	tile.na = (unsigned)(split[1] - split[0]);
	tile.nb = (unsigned)(to - from) - tile.na;
	for (unsigned t = threadIdx.x; t < tile.na + tile.nb; t += blockDim.x)
		index[t] = t < tile.na ? s->a.index[tile.i + t] : s->b.index[tile.j + t - tile.na];
	__syncthreads();
	return tile;
}

extern "C" __global__ void spri_unite(struct spri_gpu_cut c)
{
	__shared__ uint64_t index[SPRI_GPU_MERGE_TILE];
	__shared__ uint32_t bins[SPRI_GPU_BINS];
	const uint64_t n = c.s.na + c.s.nb, step = (uint64_t)gridDim.x * SPRI_GPU_MERGE_TILE;
	struct spri_found found = spri_found_none();

	clear_bins(bins, SPRI_GPU_BINS);
	for (uint64_t from = (uint64_t)blockIdx.x * SPRI_GPU_MERGE_TILE; from < n; from += step) {
		uint64_t to = min(n, from + SPRI_GPU_MERGE_TILE);
		struct tile tile = load_tile(&c.s, from, to, index);

		for (unsigned t = threadIdx.x; t < tile.na + tile.nb; t += blockDim.x) {
			unsigned place;
			float v = t < tile.na ? value_of_a(&c.s, &tile, index, t, &found, &place)
					      : value_of_b(&c.s, &tile, index, t - tile.na, &found,
							   &place);

			c.index[from + place] = index[t];
			c.value[from + place] = v;
			if (spri_key(v))
				atomicAdd(&bins[spri_key(v) >> 2 * DIGIT_BITS], 1u);
		}
	}
	spri_found_report(&found, (struct spri_finite *)c.s.finite);
	leave_bins(&c, 0, bins, SPRI_GPU_BINS);
}
SPRI_KERNEL(unite);

/* ---- cut ---- */

/* digit 1 or 2. */
extern "C" __global__ void spri_cut_digit(struct spri_gpu_cut c, unsigned digit)
{
	__shared__ uint32_t bins[DIGIT_BINS];
	const unsigned shift = (SPRI_GPU_DIGITS - 1 - digit) * DIGIT_BITS;
	const uint32_t prefix = c.state->prefix;

	if (c.state->settled)
		return;
	clear_bins(bins, DIGIT_BINS);
	for (uint64_t i = spri_thread(); i < c.s.na + c.s.nb; i += spri_threads()) {
		uint32_t key = spri_key(c.value[i]);

		if (key && key >> shift >> DIGIT_BITS == prefix)
			atomicAdd(&bins[key >> shift & (DIGIT_BINS - 1)], 1u);
	}
	leave_bins(&c, digit, bins, DIGIT_BINS);
}
SPRI_KERNEL(cut_digit);

/* What an entry is, for those who count. */
struct fate {
	bool above, equal, entry;
};

static __device__ __forceinline__ struct fate fate_of(const struct spri_gpu_cut *c, uint64_t i,
						      uint64_t end)
{
	uint32_t key = i < end ? spri_key(c->value[i]) : 0, cut = c->state->prefix;
	struct fate fate = {key > cut, key == cut, key != 0};

	return fate;
}

static __device__ __forceinline__ unsigned count_lanes(bool predicate)
{
	return (unsigned)__popc(__ballot_sync(SPRI_ALL_LANES, predicate));
}

extern "C" __global__ void spri_cut_count(struct spri_gpu_cut c)
{
	const uint64_t n = c.s.na + c.s.nb, tiles = SPRI_GPU_CUT_TILES(n);
	uint64_t above, equal, entries, kept;

	for (uint64_t tile = spri_thread() / SPRI_WARP; tile < tiles;
	     tile += spri_threads() / SPRI_WARP) {
		uint64_t first = tile * SPRI_GPU_CUT_TILE + threadIdx.x % SPRI_WARP;

		above = equal = entries = 0;
		for (unsigned t = 0; t < SPRI_GPU_CUT_TILE; t += SPRI_WARP) {
			struct fate fate = fate_of(&c, first + t, n);

			above += count_lanes(fate.above);
			equal += count_lanes(fate.equal);
			entries += count_lanes(fate.entry);
		}
		if (threadIdx.x % SPRI_WARP == 0) {
			c.above[tile] = above;
			c.equal[tile] = equal;
			c.entries[tile] = entries;
		}
	}
	if (!spri_last_block(&c.state->arrived[SPRI_GPU_DIGITS]))
		return;
	above = spri_block_scan(c.above, tiles);
	equal = spri_block_scan(c.equal, tiles);
	entries = spri_block_scan(c.entries, tiles);
	kept = above + min(equal, c.state->need);
	if (threadIdx.x == 0) {
		c.s.counts[0] = kept;
		c.s.counts[1] = entries - kept;
	}
}
SPRI_KERNEL(cut_count);

/*
 * The place of this lane's entry among those of the warp that hold the predicate, when *before hold
 * it in all before the warp; *before goes on.
 */
static __device__ __forceinline__ uint64_t place_among(bool predicate, uint64_t *before)
{
	uint32_t lanes = __ballot_sync(SPRI_ALL_LANES, predicate);
	uint64_t place = *before + (unsigned)__popc(lanes & ((1u << threadIdx.x % SPRI_WARP) - 1));

	*before += (unsigned)__popc(lanes);
	return place;
}

extern "C" __global__ void spri_cut_write(struct spri_gpu_cut c)
{
	const uint64_t n = c.s.na + c.s.nb, need = c.state->need;
	const uint64_t stride = spri_threads() / SPRI_WARP;

	for (uint64_t tile = spri_thread() / SPRI_WARP; tile < SPRI_GPU_CUT_TILES(n);
	     tile += stride) {
		uint64_t above = c.above[tile], equal = c.equal[tile], entries = c.entries[tile];
		uint64_t first = tile * SPRI_GPU_CUT_TILE + threadIdx.x % SPRI_WARP;

		for (unsigned t = 0; t < SPRI_GPU_CUT_TILE; t += SPRI_WARP) {
			struct fate fate = fate_of(&c, first + t, n);
			uint64_t a = place_among(fate.above, &above);
			uint64_t e = place_among(fate.equal, &equal);
			uint64_t all = place_among(fate.entry, &entries);
			uint64_t kept = a + min(e, need);
			bool keep = fate.above || (fate.equal && e < need);
			struct spri_gpu_list to = keep ? c.s.out : c.s.trimmed;

			if (!fate.entry || !to.index)
				continue;
			to.index[keep ? kept : all - kept] = c.index[first + t];
			to.value[keep ? kept : all - kept] = c.value[first + t];
		}
	}
}
SPRI_KERNEL(cut_write);
