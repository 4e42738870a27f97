/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Accumulate, weigh and draw in one pass, with the bits of importance.c.
 *
 *   1. weigh: eight neighbouring threads are the eight lanes of a tile of 4096 elements (tree.cuh).
 *      In a group of 32 elements a lane has the four that share its Philox counter, one per word;
 *      ballots make the group's 32 bits of them. A tile leaves sums, bits, and how many are chosen
 *   2. weigh_totals: a block per sum adds up the tree; a fourth makes of the tiles' counts the
 *      places where their indices begin
 *   3. mask_write (mask.cu) turns bits into indices, in order
 *   4. weigh_finish tells the caller
 */
#include <cuda/tree.cuh>

#define GROUP SPRI_DRAW_GROUP
#define LANES SPRI_TREE_LANES
#define WORDS (GROUP / LANES) /* elements of a group that a lane has */
#define TILE_GROUPS (SPRI_GPU_TILE / GROUP)

/* What a lane collects over a tile. */
struct lane {
	double sum, sum_squares, weight_squares;
	struct spri_found found;
};

/* A lane's four elements of a group, beginning at `first`. */
struct four {
	float gradient[WORDS], residual[WORDS], weight[WORDS];
};

/* All loads before the first store, since the compiler must not swap them: the shadow may alias. */
static __device__ __forceinline__ struct four load_four(const struct spri_gpu_importance *s,
							uint64_t first)
{
	struct four four;

	for (unsigned w = 0; w < WORDS; w++) {
		uint64_t i = first + w * LANES;
		bool there = i < s->n;

		four.gradient[w] = there ? s->gradient[i] : 0.0f;
		four.residual[w] = there ? s->residual[i] : 0.0f;
		four.weight[w] = there ? s->weight[i] : 0.0f;
	}
	return four;
}

/* Of the element i, word w of four; its importance. */
static __device__ __forceinline__ float weigh_one(const struct spri_gpu_importance *s,
						  const struct four *four, unsigned w, uint64_t i,
						  struct lane *lane)
{
	float weight = fabsf(four->weight[w]), product = __fmul_rn(four->gradient[w], s->scale);
	float a = spri_sum_by(s->policy, product, four->residual[w], i, &lane->found);
	float importance = __fdiv_rn(fabsf(a), weight > s->floor ? weight : s->floor);
	double finite = (double)spri_finite_or_zero(importance);

	s->shadow[i] = a;
	lane->sum = __dadd_rn(lane->sum, finite);
	lane->sum_squares = __dadd_rn(lane->sum_squares, __dmul_rn(finite, finite));
	lane->weight_squares =
		__dadd_rn(lane->weight_squares, __dmul_rn((double)weight, (double)weight));
	return importance;
}

/* Which of a lane's four elements of a group are chosen, a bit each; 0 for importance 0. */
static __device__ __forceinline__ uint32_t draw(const struct spri_gpu_importance *s, uint64_t group,
						unsigned lane, const float importance[WORDS])
{
	float least = __fmul_rn(0x1p-24f, s->threshold); /* what the smallest u asks for */
	uint32_t word[4], chosen = 0;
	bool none = true;

	for (unsigned w = 0; w < WORDS; w++)
		none = none && importance[w] <= least;
	if (none)
		return 0;
	spri_philox4(s->key, group * LANES + lane, s->step, word);
	for (unsigned w = 0; w < WORDS; w++) {
		float u = __fmul_rn((float)((word[w] >> 8) + 1), 0x1p-24f);

		if (!(__fmul_rn(u, s->threshold) >= importance[w]))
			chosen |= 1u << w;
	}
	return chosen;
}

/* The 32 bits of a group, from the four of each of its lanes. All lanes of the warp. */
static __device__ __forceinline__ uint32_t group_bits(uint32_t own)
{
	uint32_t bits = 0;

	for (unsigned w = 0; w < WORDS; w++) {
		uint32_t all = __ballot_sync(SPRI_ALL_LANES, own >> w & 1);

		bits |= (all >> (threadIdx.x % SPRI_WARP / LANES * LANES) & 0xffu) << w * LANES;
	}
	return bits;
}

/* A lane's part of the tile; all lanes of the warp, for as many groups as its first tile has. */
static __device__ __forceinline__ unsigned weigh_tile(const struct spri_gpu_weigh *w, uint64_t tile,
						      uint64_t groups, struct lane *lane)
{
	const struct spri_gpu_importance *s = &w->s;
	unsigned j = threadIdx.x % LANES, chosen = 0;

	for (uint64_t group = tile * TILE_GROUPS; groups > 0; group++, groups--) {
		struct four four = load_four(s, group * GROUP + j);
		float importance[WORDS];
		uint32_t bits;

		for (unsigned word = 0; word < WORDS; word++) {
			uint64_t i = group * GROUP + word * LANES + j;

			importance[word] = i < s->n ? weigh_one(s, &four, word, i, lane) : 0.0f;
		}
		if (!s->choose)
			continue;
		bits = group_bits(draw(s, group, j, importance));
		chosen += (unsigned)__popc(bits);
		if (j == 0 && group * GROUP < s->n)
			w->map[group] = bits;
	}
	return chosen;
}

static __device__ __forceinline__ void leave_tile(const struct spri_gpu_weigh *w, uint64_t tile,
						  struct lane lane, unsigned chosen)
{
	double sum = spri_lanes_sum(lane.sum), squares = spri_lanes_sum(lane.sum_squares);
	double weights = spri_lanes_sum(lane.weight_squares);

	if (threadIdx.x % LANES != 0 || tile >= SPRI_GPU_TILES(w->s.n))
		return;
	w->sum[0][tile] = sum;
	w->sum[1][tile] = squares;
	w->sum[2][tile] = weights;
	if (w->s.choose)
		w->chosen[tile] = chosen;
}

extern "C" __global__ void spri_weigh(struct spri_gpu_weigh w)
{
	const uint64_t tiles = SPRI_GPU_TILES(w.s.n), stride = spri_threads() / LANES;
	struct spri_found found = spri_found_none();

	for (uint64_t at = spri_thread() / SPRI_WARP * SPRI_TILES_PER_WARP; at < tiles;
	     at += stride) {
		uint64_t tile = at + threadIdx.x % SPRI_WARP / LANES;
		uint64_t n = min((uint64_t)SPRI_GPU_TILE, w.s.n - at * SPRI_GPU_TILE);
		struct lane lane = {0.0, 0.0, 0.0, found};
		unsigned chosen = weigh_tile(&w, tile, (n + GROUP - 1) / GROUP, &lane);

		leave_tile(&w, tile, lane, chosen);
		found = lane.found;
	}
	if (found.bad_index == SPRI_NO_INDEX)
		return;
	spri_atomic_max(&w.state->bad_mirror, UINT64_MAX - found.bad_index);
	spri_atomic_add(&w.state->dropped, found.dropped);
}
SPRI_KERNEL(weigh);

/* Three blocks; a fourth when there was a choice. */
extern "C" __global__ void spri_weigh_totals(struct spri_gpu_weigh w)
{
	const uint64_t tiles = SPRI_GPU_TILES(w.s.n);

	if (blockIdx.x < 3) {
		double total = spri_tiles_total(w.sum[blockIdx.x], tiles);

		if (threadIdx.x == 0)
			w.state->sum[blockIdx.x] = total;
	} else {
		uint64_t n_chosen = spri_block_scan(w.chosen, tiles);

		if (threadIdx.x == 0)
			w.state->n_chosen = n_chosen;
	}
}
SPRI_KERNEL(weigh_totals);

/* One thread. */
extern "C" __global__ void spri_weigh_finish(struct spri_gpu_weigh w)
{
	struct spri_gpu_weighed *result = w.s.result;

	result->n_chosen = w.state->n_chosen;
	result->count = min(w.state->n_chosen, w.s.capacity);
	result->sum = w.state->sum[0];
	result->sum_squares = w.state->sum[1];
	result->weight_squares = w.state->sum[2];
	result->bad_index = UINT64_MAX - w.state->bad_mirror;
	result->dropped = w.state->dropped;
	spri_store_release_system(&result->done, w.s.sequence);
}
SPRI_KERNEL(weigh_finish);
