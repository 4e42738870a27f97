/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Reduce, scale and axpby with AVX-512: four vectors a turn, then masked ones. */
#include <immintrin.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define LANES 16
#define TURN (4 * LANES)

static inline __m512 canonical(__m512 v)
{
	__mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

	return _mm512_castsi512_ps(_mm512_mask_mov_epi32(_mm512_castps_si512(v), nan,
							 _mm512_set1_epi32((int)SPRI_NAN_BITS)));
}

static inline __m512i key_of(__m512 v)
{
	return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

static inline __mmask16 rest(uint64_t n)
{
	return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1);
}

bool spri_reduce_avx512(float *out, const float *a, const float *b, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	__m512i top = _mm512_setzero_si512();
	uint64_t i = 0;

	for (; i + TURN <= n; i += TURN) {
		__m512 sum[4];

#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++) {
			sum[v] = canonical(_mm512_add_ps(_mm512_loadu_ps(a + i + v * LANES),
							 _mm512_loadu_ps(b + i + v * LANES)));
			top = _mm512_max_epu32(top, key_of(sum[v]));
		}
#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++)
			_mm512_storeu_ps(out + i + v * LANES, sum[v]);
	}
	for (; i < n; i += LANES) {
		__mmask16 lanes = rest(n - i);
		__m512 sum = canonical(_mm512_add_ps(_mm512_maskz_loadu_ps(lanes, a + i),
						     _mm512_maskz_loadu_ps(lanes, b + i)));

		top = _mm512_max_epu32(top, key_of(sum));
		_mm512_mask_storeu_ps(out + i, lanes, sum);
	}
	spri_fp_leave(env);
	return _mm512_reduce_max_epu32(top) >= SPRI_INF_KEY;
}

void spri_scale_avx512(float *out, const float *in, uint64_t n, float factor)
{
	struct spri_fpenv env = spri_fp_enter();
	__m512 f = _mm512_set1_ps(factor);
	uint64_t i = 0;

	for (; i + TURN <= n; i += TURN) {
#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++) {
			__m512 x = _mm512_loadu_ps(in + i + v * LANES);

			_mm512_storeu_ps(out + i + v * LANES, canonical(_mm512_mul_ps(x, f)));
		}
	}
	for (; i < n; i += LANES) {
		__mmask16 lanes = rest(n - i);
		__m512 x = _mm512_maskz_loadu_ps(lanes, in + i);

		_mm512_mask_storeu_ps(out + i, lanes, canonical(_mm512_mul_ps(x, f)));
	}
	spri_fp_leave(env);
}

bool spri_axpby_avx512(float *out, float a, const float *x, float b, const float *y, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	__m512 factor_x = _mm512_set1_ps(a), factor_y = _mm512_set1_ps(b);
	__m512i top = _mm512_setzero_si512();
	uint64_t i = 0;

	for (; i + TURN <= n; i += TURN) {
		__m512 sum[4];

#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++) {
			__m512 ax = _mm512_mul_ps(factor_x, _mm512_loadu_ps(x + i + v * LANES));
			__m512 by = _mm512_mul_ps(factor_y, _mm512_loadu_ps(y + i + v * LANES));

			sum[v] = canonical(_mm512_add_ps(ax, by));
			top = _mm512_max_epu32(top, key_of(sum[v]));
		}
#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++)
			_mm512_storeu_ps(out + i + v * LANES, sum[v]);
	}
	for (; i < n; i += LANES) {
		__mmask16 lanes = rest(n - i);
		/* Lanes that are off stay 0 whatever the factors. */
		__m512 ax =
			_mm512_maskz_mul_ps(lanes, factor_x, _mm512_maskz_loadu_ps(lanes, x + i));
		__m512 by =
			_mm512_maskz_mul_ps(lanes, factor_y, _mm512_maskz_loadu_ps(lanes, y + i));
		__m512 sum = canonical(_mm512_add_ps(ax, by));

		top = _mm512_max_epu32(top, key_of(sum));
		_mm512_mask_storeu_ps(out + i, lanes, sum);
	}
	spri_fp_leave(env);
	return _mm512_reduce_max_epu32(top) >= SPRI_INF_KEY;
}
