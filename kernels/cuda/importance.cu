/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Accumulate, weigh and draw in one pass, with the bits of importance.c.
 *
 *   1. weigh: a block takes a tile of 4096 elements. Eight neighbouring threads have a group of 32,
 *      each the four that share a Philox counter, one per word; ballots make the group's 32 bits of
 *      them. Then a warp adds up: eight lanes per sum, an addition waits for the one before it, so
 *      that other blocks have to fill the time. A tile leaves sums, bits, how many are chosen
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

/* A tile in shared memory, for the sums: importance where it is finite, and |weight|. */
struct tile {
	float importance[SPRI_GPU_TILE], weight[SPRI_GPU_TILE];
	uint32_t chosen;
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
						  struct spri_found *found)
{
	float weight = fabsf(four->weight[w]), product = __fmul_rn(four->gradient[w], s->scale);
	float a = spri_sum_by(s->policy, product, four->residual[w], i, found);

	s->shadow[i] = a;
	return __fdiv_rn(fabsf(a), weight > s->floor ? weight : s->floor);
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

/* Group `at` of the tile, by eight lanes; all lanes of the warp. What is behind the end is 0. */
static __device__ __forceinline__ void weigh_group(const struct spri_gpu_weigh *w, uint64_t number,
						   unsigned at, struct tile *tile,
						   struct spri_found *found)
{
	const struct spri_gpu_importance *s = &w->s;
	unsigned j = threadIdx.x % LANES;
	uint64_t group = number * TILE_GROUPS + at, first = group * GROUP + j;
	struct four four = load_four(s, first);
	float importance[WORDS];
	uint32_t bits;

	for (unsigned word = 0; word < WORDS; word++) {
		uint64_t i = first + word * LANES;
		unsigned place = at * GROUP + word * LANES + j;

		importance[word] = i < s->n ? weigh_one(s, &four, word, i, found) : 0.0f;
		tile->importance[place] = spri_finite_or_zero(importance[word]);
		tile->weight[place] = fabsf(four.weight[word]);
	}
	if (!s->choose)
		return;
	bits = group_bits(draw(s, group, j, importance));
	if (j == 0 && group * GROUP < s->n) {
		w->map[group] = bits;
		atomicAdd(&tile->chosen, (unsigned)__popc(bits));
	}
}

/* The three sums of the tile, eight lanes of a warp each; +0 changes none. */
static __device__ __forceinline__ void leave_sums(const struct spri_gpu_weigh *w, uint64_t number,
						  const struct tile *tile)
{
	unsigned which = threadIdx.x / LANES, j = threadIdx.x % LANES;
	const float *from = which < 2 ? tile->importance : tile->weight;
	double sum = 0.0;

#pragma unroll 16
	for (unsigned i = j; i < SPRI_GPU_TILE; i += LANES) {
		double v = (double)from[i];

		sum = __dadd_rn(sum, which == 0 ? v : __dmul_rn(v, v));
	}
	sum = spri_lanes_sum(sum);
	if (j == 0 && which < 3)
		w->sum[which * SPRI_GPU_TILES(w->s.n) + number] = sum;
}

extern "C" __global__ void spri_weigh(struct spri_gpu_weigh w)
{
	__shared__ struct tile tile;
	const uint64_t tiles = SPRI_GPU_TILES(w.s.n);
	struct spri_found found = spri_found_none();

	for (uint64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
		if (threadIdx.x == 0)
			tile.chosen = 0;
		__syncthreads(); /* and the sums of the tile before are done */
		for (unsigned at = threadIdx.x / LANES; at < TILE_GROUPS; at += blockDim.x / LANES)
			weigh_group(&w, number, at, &tile, &found);
		__syncthreads();
		if (threadIdx.x < SPRI_WARP)
			leave_sums(&w, number, &tile);
		if (threadIdx.x == 0 && w.s.choose)
			w.chosen[number] = tile.chosen;
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
		double total = spri_tiles_total(w.sum + blockIdx.x * tiles, tiles);

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
