/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The Euclidean norm, with the bits of norm.c: tiles, then the tree of tiles. */
#include <cuda/tree.cuh>

#define BATCH 32 /* loads of a lane that are on their way together */

/* Lane `lane` of the tile that begins at `first`. What is behind the end adds +0: no change. */
static __device__ __forceinline__ double square_lane(const float *v, uint64_t n, uint64_t first,
						     unsigned lane)
{
	uint64_t end = min(n, first + SPRI_GPU_TILE);
	double sum = 0.0;

	for (uint64_t i = first + lane; i < end; i += BATCH * SPRI_TREE_LANES) {
		float x[BATCH];

#pragma unroll
		for (unsigned j = 0; j < BATCH; j++) {
			uint64_t at = i + j * SPRI_TREE_LANES;

			x[j] = at < end ? v[at] : 0.0f;
		}
#pragma unroll
		for (unsigned j = 0; j < BATCH; j++)
			sum = __dadd_rn(sum, __dmul_rn((double)x[j], (double)x[j]));
	}
	return sum;
}

extern "C" __global__ void spri_norm_tiles(struct spri_gpu_norm s)
{
	const uint64_t tiles = SPRI_GPU_TILES(s.n), stride = spri_threads() / SPRI_TREE_LANES;
	const unsigned lane = threadIdx.x % SPRI_TREE_LANES;

	/* The bound is the warp's, so that all its lanes meet in the sums. */
	for (uint64_t at = spri_thread() / SPRI_WARP * SPRI_TILES_PER_WARP; at < tiles;
	     at += stride) {
		uint64_t tile = at + threadIdx.x % SPRI_WARP / SPRI_TREE_LANES;
		double sum = square_lane(s.v, s.n, tile * SPRI_GPU_TILE, lane);

		sum = spri_lanes_sum(sum);
		if (lane == 0 && tile < tiles)
			s.sum[tile] = sum;
	}
}
SPRI_KERNEL(norm_tiles);

/* One block. */
extern "C" __global__ void spri_norm_total(struct spri_gpu_norm s)
{
	double total = spri_tiles_total(s.sum, SPRI_GPU_TILES(s.n));

	if (threadIdx.x == 0)
		*s.out = sqrt(total);
}
SPRI_KERNEL(norm_total);
