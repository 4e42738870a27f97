/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Queues what norm.cu does. */
#include <cuda/args.h>
#include <cuda/grid.h>

int spri_gpu_norm2(struct spri_gpu_stream *stream, const float *v, uint64_t n, double *out)
{
	uint64_t tiles = SPRI_GPU_TILES(n);
	struct spri_gpu_norm s = {.v = v, .n = n, .out = out};
	void *params[] = {&s}, *scratch;
	int r = spri_gpu_scratch(stream, tiles * sizeof *s.sum, &scratch);

	if (r < 0)
		return spri_trace(r);
	s.sum = scratch;
	r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_norm_tiles,
			    spri_gpu_blocks(stream, tiles * SPRI_TREE_LANES), SPRI_GPU_THREADS, 0,
			    params);
	if (r < 0)
		return spri_trace(r);
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_norm_total, 1, SPRI_GPU_SCAN_THREADS, 0,
			       params);
}
