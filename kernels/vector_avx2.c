/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Reduce, scale and axpby with AVX2: four vectors a turn, then scalars. */
#include <immintrin.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define LANES 8
#define TURN (4 * LANES)

static inline __m256 canonical(__m256 v)
{
	__m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)SPRI_NAN_BITS));

	return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

static inline __m256i key_of(__m256 v)
{
	return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

static inline bool any_nonfinite(__m256i top)
{
	__m256i inf = _mm256_set1_epi32((int)SPRI_INF_KEY - 1);

	return _mm256_movemask_epi8(_mm256_cmpgt_epi32(top, inf)) != 0;
}

bool spri_reduce_avx2(float *out, const float *a, const float *b, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	__m256i top = _mm256_setzero_si256();
	uint32_t scalar_top = 0;
	uint64_t i = 0;

	for (; i + TURN <= n; i += TURN) {
		__m256 sum[4];

#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++) {
			sum[v] = canonical(_mm256_add_ps(_mm256_loadu_ps(a + i + v * LANES),
							 _mm256_loadu_ps(b + i + v * LANES)));
			top = _mm256_max_epu32(top, key_of(sum[v]));
		}
#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++)
			_mm256_storeu_ps(out + i + v * LANES, sum[v]);
	}
	for (; i < n; i++) {
		float sum = spri_sum(a[i], b[i]);

		out[i] = sum;
		if (spri_f32_key(sum) > scalar_top)
			scalar_top = spri_f32_key(sum);
	}
	spri_fp_leave(env);
	return scalar_top >= SPRI_INF_KEY || any_nonfinite(top);
}

void spri_scale_avx2(float *out, const float *in, uint64_t n, float factor)
{
	struct spri_fpenv env = spri_fp_enter();
	__m256 f = _mm256_set1_ps(factor);
	uint64_t i = 0;

	for (; i + TURN <= n; i += TURN) {
#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++) {
			__m256 x = _mm256_loadu_ps(in + i + v * LANES);

			_mm256_storeu_ps(out + i + v * LANES, canonical(_mm256_mul_ps(x, f)));
		}
	}
	for (; i < n; i++)
		out[i] = spri_product(in[i], factor);
	spri_fp_leave(env);
}

bool spri_axpby_avx2(float *out, float a, const float *x, float b, const float *y, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	__m256 factor_x = _mm256_set1_ps(a), factor_y = _mm256_set1_ps(b);
	__m256i top = _mm256_setzero_si256();
	uint32_t scalar_top = 0;
	uint64_t i = 0;

	for (; i + TURN <= n; i += TURN) {
		__m256 sum[4];

#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++) {
			__m256 ax = _mm256_mul_ps(factor_x, _mm256_loadu_ps(x + i + v * LANES));
			__m256 by = _mm256_mul_ps(factor_y, _mm256_loadu_ps(y + i + v * LANES));

			sum[v] = canonical(_mm256_add_ps(ax, by));
			top = _mm256_max_epu32(top, key_of(sum[v]));
		}
#pragma GCC unroll 4
		for (unsigned v = 0; v < 4; v++)
			_mm256_storeu_ps(out + i + v * LANES, sum[v]);
	}
	for (; i < n; i++) {
		float sum = spri_sum(a * x[i], b * y[i]);

		out[i] = sum;
		if (spri_f32_key(sum) > scalar_top)
			scalar_top = spri_f32_key(sum);
	}
	spri_fp_leave(env);
	return scalar_top >= SPRI_INF_KEY || any_nonfinite(top);
}
