/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Queues what half.cu does. */
#include <cuda/grid.h>

int spri_gpu_narrow(struct spri_gpu_stream *stream, uint16_t *out, const float *in, uint64_t n,
		    enum spr_dtype dtype)
{
	void *params[] = {&out, &in, &n, &dtype};

	assert(dtype == SPR_F16 || dtype == SPR_BF16);
	if (n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_narrow16, spri_gpu_quad_blocks(stream, n),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_widen(struct spri_gpu_stream *stream, float *out, const uint16_t *in, uint64_t n,
		   enum spr_dtype dtype)
{
	void *params[] = {&out, &in, &n, &dtype};

	assert(dtype == SPR_F16 || dtype == SPR_BF16);
	if (n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_widen16, spri_gpu_quad_blocks(stream, n),
			       SPRI_GPU_THREADS, 0, params);
}
