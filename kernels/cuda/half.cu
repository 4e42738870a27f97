/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* 16-bit values, with the bits of half.c; how they come about is explained there. */
#include <cuda/walk.cuh>

#define SIGN 0x80000000u
#define F16_NORMAL 0x38800000u	/* 2^-14: from here on the result is normal */
#define F16_BEYOND 0x477ff000u	/* 65520: from here on the nearest would be infinity */
#define BF16_BEYOND 0x7f7f8000u /* likewise */
#define F16_BIAS (112u << 23)
#define HALF_BITS 0x3f000000u /* 0.5 */

static __device__ __forceinline__ uint32_t narrow_f16(float v)
{
	uint32_t bits = __float_as_uint(v), key = bits & ~SIGN, sign = bits >> 16 & 0x8000u;
	uint32_t normal = (key - F16_BIAS + 0xfffu + (key >> 13 & 1)) >> 13;
	uint32_t denormal = __float_as_uint(__fadd_rn(__uint_as_float(key), 0.5f)) - HALF_BITS;
	uint32_t out = key < F16_NORMAL ? denormal : normal;

	out = key >= F16_BEYOND ? 0x7bffu : out;
	out = key >= SPRI_INF_KEY ? 0x7c00u : out;
	return key > SPRI_INF_KEY ? 0x7e00u : sign | out;
}

static __device__ __forceinline__ uint32_t narrow_bf16(float v)
{
	uint32_t bits = __float_as_uint(v), key = bits & ~SIGN, sign = bits >> 16 & 0x8000u;
	uint32_t out = (key + 0x7fffu + (key >> 16 & 1)) >> 16;

	out = key >= BF16_BEYOND ? 0x7f7fu : out;
	out = key >= SPRI_INF_KEY ? 0x7f80u : out;
	return key > SPRI_INF_KEY ? 0x7fc0u : sign | out;
}

static __device__ __forceinline__ float widen_f16(uint32_t v)
{
	uint32_t key = v & 0x7fffu, sign = (v & 0x8000u) << 16;
	uint32_t denormal = __float_as_uint(__fmul_rn((float)key, 0x1p-24f));
	uint32_t out = key < 0x400u ? denormal : (key << 13) + F16_BIAS;

	out = key >= 0x7c00u ? SPRI_INF_KEY : out;
	return __uint_as_float(key > 0x7c00u ? 0x7fc00000u : sign | out);
}

static __device__ __forceinline__ float widen_bf16(uint32_t v)
{
	return spri_canonical(__uint_as_float(v << 16));
}

static __device__ __forceinline__ uint32_t narrow(float v, enum spr_dtype dtype)
{
	return dtype == SPR_F16 ? narrow_f16(v) : narrow_bf16(v);
}

static __device__ __forceinline__ float widen(uint32_t v, enum spr_dtype dtype)
{
	return dtype == SPR_F16 ? widen_f16(v) : widen_bf16(v);
}

extern "C" __global__ void spri_narrow16(uint16_t *out, const float *in, uint64_t n,
					 enum spr_dtype dtype)
{
	struct spri_quads quads = spri_quads_of(out, sizeof *out, n);

	for (uint64_t q = spri_thread(); q < quads.count; q += spri_threads()) {
		uint64_t i = quads.first + 4 * q;
		struct spri_four v = spri_load4(in + i);

		*(uint2 *)(out + i) =
			make_uint2(narrow(v.v[0], dtype) | narrow(v.v[1], dtype) << 16,
				   narrow(v.v[2], dtype) | narrow(v.v[3], dtype) << 16);
	}
	if (spri_thread() < quads.others) {
		uint64_t i = spri_quads_other(&quads, spri_thread());

		out[i] = (uint16_t)narrow(in[i], dtype);
	}
}
SPRI_KERNEL(narrow16);

extern "C" __global__ void spri_widen16(float *out, const uint16_t *in, uint64_t n,
					enum spr_dtype dtype)
{
	struct spri_quads quads = spri_quads_of(in, sizeof *in, n);

	for (uint64_t q = spri_thread(); q < quads.count; q += spri_threads()) {
		uint64_t i = quads.first + 4 * q;
		uint2 v = *(const uint2 *)(in + i);
		struct spri_four wide = {{widen(v.x & 0xffffu, dtype), widen(v.x >> 16, dtype),
					  widen(v.y & 0xffffu, dtype), widen(v.y >> 16, dtype)}};

		spri_store4(out + i, wide);
	}
	if (spri_thread() < quads.others) {
		uint64_t i = spri_quads_other(&quads, spri_thread());

		out[i] = widen(in[i], dtype);
	}
}
SPRI_KERNEL(widen16);
