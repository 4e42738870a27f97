/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Sums in double in the order of tree.h. Eight neighbouring threads are the eight lanes of a tile
 * (a block of the tree), so a warp has four tiles; one block then adds up the tiles.
 */
#ifndef SPRI_TREE_CUH
#define SPRI_TREE_CUH

#include <cuda/args.h>
#include <cuda/walk.cuh>

#define SPRI_TILES_PER_WARP (SPRI_WARP / SPRI_TREE_LANES)

/* The sum of eight lanes, in the first of them. All lanes of the warp. */
static __device__ __forceinline__ double spri_lanes_sum(double v)
{
	for (unsigned step = SPRI_TREE_LANES / 2; step > 0; step /= 2)
		v = __dadd_rn(v, __shfl_down_sync(SPRI_ALL_LANES, v, step));
	return v;
}

/*
 * The total of n tiles, by all threads of one block, in the first of them. Level by level a full
 * run of 2^l tiles keeps its sum in the place of its first tile; what is left of the tree in the
 * end are the runs that the bits of n name, the shortest last.
 */
static __device__ inline double spri_tiles_total(double *sum, uint64_t n)
{
	double total = 0.0;

	for (unsigned level = 0; n >> level > 1; level++) {
		uint64_t half = (uint64_t)1 << level;

		for (uint64_t i = threadIdx.x; i < n >> (level + 1); i += blockDim.x) {
			double *left = sum + (i << (level + 1));

			*left = __dadd_rn(left[0], left[half]);
		}
		__syncthreads();
	}
	for (unsigned level = 0; threadIdx.x == 0 && n >> level; level++)
		if (n >> level & 1)
			total = __dadd_rn(sum[n >> (level + 1) << (level + 1)], total);
	return total != total ? __longlong_as_double(0x7ff8000000000000ll) : total;
}

#endif
