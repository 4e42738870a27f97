/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * 16-bit values; see half.h. Written on the bits and without branches, so that compilers turn the
 * loops into vector code with the same bits.
 *
 * Half: a normal result is the single's bits rounded at bit 13, with the exponent's bias changed
 * (112 less). A denormal one is the number of 2^-24 in |v|, rounded: that stands in the lowest bits
 * of |v| + 0.5, whose last place is 2^-24. bfloat16 is the single's upper half, rounded.
 */
#include <internal/bytes.h>

#include <fpenv.h>
#include <kernel.h>
#include <scalar.h>

#define SIGN 0x80000000u
#define F16_NORMAL 0x38800000u	/* 2^-14: from here on the result is normal */
#define F16_BEYOND 0x477ff000u	/* 65520: from here on the nearest would be infinity */
#define BF16_BEYOND 0x7f7f8000u /* likewise */
#define F16_BIAS (112u << 23)
#define HALF_BITS 0x3f000000u /* 0.5 */

static inline uint16_t narrow_f16(float v)
{
	uint32_t bits = spri_f32_bits(v), key = bits & ~SIGN, sign = bits >> 16 & 0x8000u;
	uint32_t normal = (key - F16_BIAS + 0xfffu + (key >> 13 & 1)) >> 13;
	uint32_t denormal = spri_f32_bits(spri_f32_from_bits(key) + 0.5f) - HALF_BITS;
	uint32_t out = key < F16_NORMAL ? denormal : normal;

	out = key >= F16_BEYOND ? 0x7bffu : out;
	out = key >= SPRI_INF_KEY ? 0x7c00u : out;
	return (uint16_t)(key > SPRI_INF_KEY ? 0x7e00u : sign | out);
}

static inline uint16_t narrow_bf16(float v)
{
	uint32_t bits = spri_f32_bits(v), key = bits & ~SIGN, sign = bits >> 16 & 0x8000u;
	uint32_t out = (key + 0x7fffu + (key >> 16 & 1)) >> 16;

	out = key >= BF16_BEYOND ? 0x7f7fu : out;
	out = key >= SPRI_INF_KEY ? 0x7f80u : out;
	return (uint16_t)(key > SPRI_INF_KEY ? 0x7fc0u : sign | out);
}

static inline float widen_f16(uint16_t v)
{
	uint32_t key = v & 0x7fffu, sign = (uint32_t)(v & 0x8000u) << 16;
	uint32_t denormal = spri_f32_bits((float)(int32_t)key * 0x1p-24f);
	uint32_t out = key < 0x400u ? denormal : (key << 13) + F16_BIAS;

	out = key >= 0x7c00u ? SPRI_INF_KEY : out;
	return spri_f32_from_bits(key > 0x7c00u ? SPRI_NAN_BITS : sign | out);
}

static inline float widen_bf16(uint16_t v)
{
	return spri_canonical(spri_f32_from_bits((uint32_t)v << 16));
}

static inline float rounded(float v, enum spr_dtype dtype)
{
	return dtype == SPR_F16 ? widen_f16(narrow_f16(v)) : widen_bf16(narrow_bf16(v));
}

uint16_t spri_narrow_one(float v, enum spr_dtype dtype)
{
	struct spri_fpenv env = spri_fp_enter();
	uint16_t out = dtype == SPR_F16 ? narrow_f16(v) : narrow_bf16(v);

	assert(dtype == SPR_F16 || dtype == SPR_BF16);
	spri_fp_leave(env);
	return out;
}

float spri_widen_one(uint16_t v, enum spr_dtype dtype)
{
	struct spri_fpenv env = spri_fp_enter();
	float out = dtype == SPR_F16 ? widen_f16(v) : widen_bf16(v);

	assert(dtype == SPR_F16 || dtype == SPR_BF16);
	spri_fp_leave(env);
	return out;
}

void spri_narrow(uint8_t *out, const float *in, uint64_t n, enum spr_dtype dtype)
{
	struct spri_fpenv env = spri_fp_enter();

	assert(dtype == SPR_F16 || dtype == SPR_BF16);
	if (dtype == SPR_F16)
		for (uint64_t i = 0; i < n; i++)
			spri_put_u16(out + 2 * i, narrow_f16(in[i]));
	else
		for (uint64_t i = 0; i < n; i++)
			spri_put_u16(out + 2 * i, narrow_bf16(in[i]));
	spri_fp_leave(env);
}

void spri_widen(float *out, const uint8_t *in, uint64_t n, enum spr_dtype dtype)
{
	struct spri_fpenv env = spri_fp_enter();

	assert(dtype == SPR_F16 || dtype == SPR_BF16);
	if (dtype == SPR_F16)
		for (uint64_t i = 0; i < n; i++)
			out[i] = widen_f16(spri_get_u16(in + 2 * i));
	else
		for (uint64_t i = 0; i < n; i++)
			out[i] = widen_bf16(spri_get_u16(in + 2 * i));
	spri_fp_leave(env);
}

/*
 * What rounding takes off v. Exact where v did not saturate: |v − r| is a multiple of v's last
 * place and not above |v|.
 */
static inline float error_of(float v, float r)
{
	return spri_f32_nonfinite(v) ? 0.0f : v - r;
}

void spri_round(struct spri_list *list, enum spr_dtype dtype, struct spri_list *errors)
{
	struct spri_fpenv env;
	uint64_t kept = 0, n_errors;

	if (dtype == SPR_F32)
		return;
	assert(errors->capacity - errors->count >= list->count);
	env = spri_fp_enter();
	n_errors = errors->count;
	for (uint64_t i = 0; i < list->count; i++) {
		uint64_t index = list->index[i];
		float v = list->value[i], r = rounded(v, dtype), error = error_of(v, r);

		errors->index[n_errors] = index;
		errors->value[n_errors] = error;
		n_errors += spri_f32_key(error) != 0;
		list->index[kept] = index;
		list->value[kept] = r;
		kept += spri_f32_key(r) != 0;
	}
	errors->count = n_errors;
	list->count = kept;
	spri_fp_leave(env);
}

void spri_round_dense(float *value, float *error, uint64_t n, enum spr_dtype dtype)
{
	struct spri_fpenv env = spri_fp_enter();

	for (uint64_t i = 0; i < n; i++) {
		float v = value[i], r = dtype == SPR_F32 ? v : rounded(v, dtype);

		error[i] = error_of(v, r);
		value[i] = r;
	}
	spri_fp_leave(env);
}
