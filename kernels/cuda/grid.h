/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What the host sides share: how large a grid is, and what lies where in scratch memory. */
#ifndef SPRI_GRID_H
#define SPRI_GRID_H

#include <internal/bits.h>

#include <cuda/launch.h>

#define SPRI_GPU_THREADS 256 /* of a block, where nothing asks for another number */
#define SPRI_GPU_WARP 32
#define SPRI_GPU_RESIDENT 2048 /* threads that a multiprocessor holds */

/*
 * Blocks of SPRI_GPU_THREADS for n threads' work: at least one, and no more than the device runs at
 * once, since all kernels go on with what is a grid further.
 */
static inline uint32_t spri_gpu_blocks(const struct spri_gpu_stream *stream, uint64_t n)
{
	uint64_t most =
		(uint64_t)spri_gpu_processors(stream) * (SPRI_GPU_RESIDENT / SPRI_GPU_THREADS);
	uint64_t wanted = (n + SPRI_GPU_THREADS - 1) / SPRI_GPU_THREADS;

	return (uint32_t)spri_max_u64(1, spri_min_u64(wanted, most));
}

/* For n elements in quads, and at most six beside them. */
static inline uint32_t spri_gpu_quad_blocks(const struct spri_gpu_stream *stream, uint64_t n)
{
	return spri_gpu_blocks(stream, n / 4 + 6);
}

/*
 * The next `bytes` of scratch memory behind the *used ones, at a multiple of 16. scratch NULL: only
 * counts, and returns NULL.
 */
static inline void *spri_gpu_take(void *scratch, size_t *used, size_t bytes)
{
	size_t at = *used;

	*used = spri_align_up(at + bytes, 16);
	return scratch ? (char *)scratch + at : NULL;
}

#endif
