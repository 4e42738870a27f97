/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Queues what vector.cu and scatter.cu do. n = 0: nothing. */
#include <cuda/grid.h>

int spri_gpu_axpby(struct spri_gpu_stream *stream, const struct spri_gpu_axpby *s)
{
	struct spri_gpu_axpby copy = *s;
	void *params[] = {&copy};

	if (s->n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_axpby, spri_gpu_quad_blocks(stream, s->n),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_scale(struct spri_gpu_stream *stream, float *out, const float *in, uint64_t n,
		   float factor)
{
	void *params[] = {&out, &in, &n, &factor};

	if (n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_scale, spri_gpu_quad_blocks(stream, n),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_reduce(struct spri_gpu_stream *stream, const struct spri_gpu_reduce *s)
{
	struct spri_gpu_reduce copy = *s;
	void *params[] = {&copy};

	if (s->n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_add, spri_gpu_quad_blocks(stream, s->n),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_drop_velocity(struct spri_gpu_stream *stream, const struct spri_gpu_drop *s)
{
	struct spri_gpu_drop copy = *s;
	void *params[] = {&copy};

	if (s->n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_drop, spri_gpu_blocks(stream, s->n),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_scatter(struct spri_gpu_stream *stream, float *out, const uint64_t *index,
		     const float *value, uint64_t n, float factor)
{
	void *params[] = {&out, &index, &value, &n, &factor};

	if (n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_scatter, spri_gpu_blocks(stream, n),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_gather(struct spri_gpu_stream *stream, float *out, const float *in,
		    const uint64_t *index, uint64_t n)
{
	void *params[] = {&out, &in, &index, &n};

	if (n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_gather, spri_gpu_blocks(stream, n),
			       SPRI_GPU_THREADS, 0, params);
}

int spri_gpu_adopt(struct spri_gpu_stream *stream, float *inout, const uint64_t *index,
		   const float *value, uint64_t n, enum spr_nonfinite policy)
{
	void *params[] = {&inout, &index, &value, &n, &policy};

	if (n == 0)
		return 0;
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_adopt, spri_gpu_blocks(stream, n),
			       SPRI_GPU_THREADS, 0, params);
}
