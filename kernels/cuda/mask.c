/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Queues what mask.cu does. */
#include <cuda/args.h>
#include <cuda/grid.h>

int spri_gpu_mask_pack(struct spri_gpu_stream *stream, uint32_t *map, uint64_t n,
		       const uint64_t *index, uint64_t count)
{
	void *params[] = {&map, &index, &count};
	int r;

	if (n == 0)
		return 0;
	r = spri_gpu_zero(stream, map, (n + 31) / 32 * sizeof *map);
	if (r < 0 || count == 0)
		return spri_trace(r);
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_mask_set, spri_gpu_blocks(stream, count),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_mask_unpack(struct spri_gpu_stream *stream, uint64_t *index, uint64_t *count,
			 const uint32_t *map, uint64_t n)
{
	uint64_t tiles = SPRI_GPU_TILES(n);
	uint32_t blocks = spri_gpu_blocks(stream, tiles * SPRI_GPU_WARP);
	struct spri_gpu_bits s = {
		.map = map, .n = n, .index = index, .capacity = n, .count = count};
	void *params[] = {&s}, *scratch;
	int r = spri_gpu_scratch(stream, tiles * sizeof *s.before, &scratch);

	if (r < 0)
		return spri_trace(r);
	s.before = scratch;
	r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_mask_count, blocks, SPRI_GPU_THREADS, 0,
			    params);
	if (r < 0)
		return spri_trace(r);
	r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_mask_scan, 1, SPRI_GPU_SCAN_THREADS, 0, params);
	if (r < 0)
		return spri_trace(r);
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_mask_write, blocks, SPRI_GPU_THREADS, 0,
			       params);
}
