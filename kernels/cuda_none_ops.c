/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The operations of gpu.h in builds without nvcc; see cuda_none.c. */
#include <gpu.h>

int spri_gpu_select(struct spri_gpu_stream *stream, const struct spri_gpu_select *s)
{
	(void)s;
	return spri_gpu_sync(stream);
}

int spri_gpu_importance(struct spri_gpu_stream *stream, const struct spri_gpu_importance *s)
{
	(void)s;
	return spri_gpu_sync(stream);
}

int spri_gpu_axpby(struct spri_gpu_stream *stream, const struct spri_gpu_axpby *s)
{
	(void)s;
	return spri_gpu_sync(stream);
}

int spri_gpu_reduce(struct spri_gpu_stream *stream, const struct spri_gpu_reduce *s)
{
	(void)s;
	return spri_gpu_sync(stream);
}

int spri_gpu_drop_velocity(struct spri_gpu_stream *stream, const struct spri_gpu_drop *s)
{
	(void)s;
	return spri_gpu_sync(stream);
}

int spri_gpu_merge(struct spri_gpu_stream *stream, const struct spri_gpu_merge *s)
{
	(void)s;
	return spri_gpu_sync(stream);
}

int spri_gpu_scale(struct spri_gpu_stream *stream, float *out, const float *in, uint64_t n,
		   float factor)
{
	(void)factor;
	return spri_gpu_copy(stream, out, in, n);
}

int spri_gpu_scatter(struct spri_gpu_stream *stream, float *out, const uint64_t *index,
		     const float *value, uint64_t n, float factor)
{
	(void)index;
	return spri_gpu_scale(stream, out, value, n, factor);
}

int spri_gpu_gather(struct spri_gpu_stream *stream, float *out, const float *in,
		    const uint64_t *index, uint64_t n)
{
	(void)index;
	return spri_gpu_copy(stream, out, in, n);
}

int spri_gpu_adopt(struct spri_gpu_stream *stream, float *inout, const uint64_t *index,
		   const float *value, uint64_t n, enum spr_nonfinite policy)
{
	(void)policy;
	return spri_gpu_gather(stream, inout, value, index, n);
}

int spri_gpu_norm2(struct spri_gpu_stream *stream, const float *v, uint64_t n, double *out)
{
	return spri_gpu_copy(stream, out, v, n);
}

int spri_gpu_mask_pack(struct spri_gpu_stream *stream, uint32_t *map, uint64_t n,
		       const uint64_t *index, uint64_t count)
{
	(void)count;
	return spri_gpu_copy(stream, map, index, n);
}

int spri_gpu_mask_unpack(struct spri_gpu_stream *stream, uint64_t *index, uint64_t *count,
			 const uint32_t *map, uint64_t n)
{
	(void)index;
	return spri_gpu_copy(stream, count, map, n);
}

int spri_gpu_narrow(struct spri_gpu_stream *stream, uint16_t *out, const float *in, uint64_t n,
		    enum spr_dtype dtype)
{
	(void)dtype;
	return spri_gpu_copy(stream, out, in, n);
}

int spri_gpu_widen(struct spri_gpu_stream *stream, float *out, const uint16_t *in, uint64_t n,
		   enum spr_dtype dtype)
{
	(void)dtype;
	return spri_gpu_copy(stream, out, in, n);
}
