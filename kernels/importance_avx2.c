/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Weigh and draw with AVX2. Weighing is bound by memory: 16 bytes per element. Drawing is bound by
 * the multiplications of Philox, five instructions per element: eight counters at a time, the even
 * ones and the odd ones apart, each word in the lower half of a 64-bit lane (the multiplier
 * ignores what stands in the upper).
 */
#include <immintrin.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define LANES 8
#define ROUNDS 10

/* ---- weigh ---- */

struct weigh_state {
	__m256 scale, floor;
	__m256i top; /* largest keys seen */
	__m256d sum[2], sum_squares[2], weight_squares[2];
};

static inline __m256 magnitude(__m256 v)
{
	return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

static inline __m256 canonical(__m256 v)
{
	__m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)SPRI_NAN_BITS));

	return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

/* Adds to the statistics; lanes that are off are 0. */
static inline __attribute__((always_inline)) void add_up(struct weigh_state *state,
							 __m256 importance, __m256 weight)
{
	__m256 inf = _mm256_castsi256_ps(_mm256_set1_epi32((int)SPRI_INF_KEY));

	importance = _mm256_and_ps(importance, _mm256_cmp_ps(importance, inf, _CMP_LT_OQ));
#pragma GCC unroll 2
	for (unsigned half = 0; half < 2; half++) {
		__m256d i = _mm256_cvtps_pd(half ? _mm256_extractf128_ps(importance, 1)
						 : _mm256_castps256_ps128(importance));
		__m256d w = _mm256_cvtps_pd(half ? _mm256_extractf128_ps(weight, 1)
						 : _mm256_castps256_ps128(weight));

		state->sum[half] = _mm256_add_pd(state->sum[half], i);
		state->sum_squares[half] =
			_mm256_add_pd(state->sum_squares[half], _mm256_mul_pd(i, i));
		state->weight_squares[half] =
			_mm256_add_pd(state->weight_squares[half], _mm256_mul_pd(w, w));
	}
}

/* The sums of eight elements and their importance; the shadow is the caller's. */
static inline __attribute__((always_inline)) __m256 weigh_eight(struct weigh_state *state,
								__m256 product, __m256 residual,
								__m256 weight, __m256 *importance)
{
	__m256 a = canonical(_mm256_add_ps(product, residual));
	__m256 size = magnitude(a);

	weight = magnitude(weight);
	/* A NaN makes max return its second operand: the floor. */
	*importance = _mm256_div_ps(size, _mm256_max_ps(weight, state->floor));
	state->top = _mm256_max_epu32(state->top, _mm256_castps_si256(size));
	add_up(state, *importance, weight);
	return a;
}

static inline __attribute__((always_inline)) void
weigh_whole(struct spri_weigh *s, struct weigh_state *state, const bool stream, const bool keep)
{
	struct weigh_state local = *state;

	for (uint64_t i = 0; i + LANES <= s->n; i += LANES) {
		__m256 product = _mm256_mul_ps(_mm256_loadu_ps(s->gradient + i), local.scale);
		__m256 importance;
		__m256 a = weigh_eight(&local, product, _mm256_loadu_ps(s->residual + i),
				       _mm256_loadu_ps(s->weight + i), &importance);

		if (stream)
			_mm256_stream_ps(s->shadow + i, a);
		else
			_mm256_storeu_ps(s->shadow + i, a);
		if (keep)
			_mm256_storeu_ps(s->importance + i, importance);
	}
	*state = local;
}

/* The last elements, fewer than eight. */
static void weigh_rest(struct spri_weigh *s, struct weigh_state *state)
{
	static const int32_t edge[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
	uint64_t i = s->n / LANES * LANES;
	__m256i lanes = _mm256_loadu_si256((const __m256i *)(edge + LANES - (s->n - i)));
	__m256 product = _mm256_mul_ps(_mm256_maskload_ps(s->gradient + i, lanes), state->scale);
	__m256 importance, a;

	/* Lanes that are off stay 0 whatever the scale. */
	product = _mm256_and_ps(product, _mm256_castsi256_ps(lanes));
	a = weigh_eight(state, product, _mm256_maskload_ps(s->residual + i, lanes),
			_mm256_maskload_ps(s->weight + i, lanes), &importance);
	_mm256_maskstore_ps(s->shadow + i, lanes, a);
	if (s->importance)
		_mm256_maskstore_ps(s->importance + i, lanes, importance);
}

static void load_lanes(__m256d half[2], const double *lane)
{
	half[0] = _mm256_loadu_pd(lane);
	half[1] = _mm256_loadu_pd(lane + 4);
}

static void store_lanes(double *lane, const __m256d half[2])
{
	_mm256_storeu_pd(lane, half[0]);
	_mm256_storeu_pd(lane + 4, half[1]);
}

void spri_weigh_avx2(struct spri_weigh *s)
{
	struct spri_fpenv env = spri_fp_enter();
	__m256i inf = _mm256_set1_epi32((int)SPRI_INF_KEY - 1);
	bool stream = s->stream && ((uintptr_t)s->shadow & 31) == 0;
	struct weigh_state state = {.scale = _mm256_set1_ps(s->scale),
				    .floor = _mm256_set1_ps(s->floor),
				    .top = _mm256_setzero_si256()};

	load_lanes(state.sum, s->sum);
	load_lanes(state.sum_squares, s->sum_squares);
	load_lanes(state.weight_squares, s->weight_squares);
	if (stream && s->importance)
		weigh_whole(s, &state, true, true);
	else if (stream)
		weigh_whole(s, &state, true, false);
	else if (s->importance)
		weigh_whole(s, &state, false, true);
	else
		weigh_whole(s, &state, false, false);
	if (s->n % LANES)
		weigh_rest(s, &state);
	store_lanes(s->sum, state.sum);
	store_lanes(s->sum_squares, state.sum_squares);
	store_lanes(s->weight_squares, state.weight_squares);
	s->nonfinite = _mm256_movemask_epi8(_mm256_cmpgt_epi32(state.top, inf)) != 0;
	spri_fp_leave(env);
}

/* ---- draw ---- */

struct philox {
	__m256i key0[ROUNDS], key1[ROUNDS]; /* of each round */
	__m256i step0, step1;
};

static void philox_init(struct philox *p, uint64_t key, uint64_t step)
{
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

	for (unsigned r = 0; r < ROUNDS; r++) {
		p->key0[r] = _mm256_set1_epi32((int)k0);
		p->key1[r] = _mm256_set1_epi32((int)k1);
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	p->step0 = _mm256_set1_epi32((int)(uint32_t)step);
	p->step1 = _mm256_set1_epi32((int)(uint32_t)(step >> 32));
}

/* The four words of counters counter, counter + 1, ... + 7 (a multiple of eight). */
static inline void philox_eight(const struct philox *p, uint64_t counter, __m256i word[4])
{
	const __m256i m0 = _mm256_set1_epi32((int)0xD2511F53u);
	const __m256i m1 = _mm256_set1_epi32((int)0xCD9E8D57u);
	__m256i even = _mm256_or_si256(_mm256_set1_epi64x((long long)counter),
				       _mm256_set_epi64x(6, 4, 2, 0));
	__m256i odd = _mm256_or_si256(even, _mm256_set1_epi64x(1));
	__m256i x[2][4] = {{even, _mm256_srli_epi64(even, 32), p->step0, p->step1},
			   {odd, _mm256_srli_epi64(odd, 32), p->step0, p->step1}};

#pragma GCC unroll 10
	for (unsigned r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 2
		for (unsigned h = 0; h < 2; h++) {
			__m256i p0 = _mm256_mul_epu32(x[h][0], m0);
			__m256i p1 = _mm256_mul_epu32(x[h][2], m1);
			__m256i y0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), x[h][1]);
			__m256i y2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), x[h][3]);

			x[h][0] = _mm256_xor_si256(y0, p->key0[r]);
			x[h][1] = p1;
			x[h][2] = _mm256_xor_si256(y2, p->key1[r]);
			x[h][3] = p0;
		}
	}
#pragma GCC unroll 4
	for (unsigned w = 0; w < 4; w++)
		word[w] = _mm256_blend_epi32(x[0][w], _mm256_slli_epi64(x[1][w], 32), 0xaa);
}

static inline bool any_above(const float *importance, __m256 least)
{
	__m256 above[4];

#pragma GCC unroll 4
	for (unsigned w = 0; w < 4; w++)
		above[w] =
			_mm256_cmp_ps(_mm256_load_ps(importance + w * LANES), least, _CMP_NLE_UQ);
	above[0] = _mm256_or_ps(above[0], above[1]);
	above[2] = _mm256_or_ps(above[2], above[3]);
	return _mm256_movemask_ps(_mm256_or_ps(above[0], above[2])) != 0;
}

void spri_draw_avx2(struct spri_draw *s)
{
	struct spri_fpenv env = spri_fp_enter();
	__m256 threshold = _mm256_set1_ps(s->threshold);
	__m256 unit = _mm256_set1_ps(0x1p-24f);
	__m256 least = _mm256_mul_ps(unit, threshold); /* what the smallest u asks for */
	struct philox philox;

	philox_init(&philox, s->key, s->step);
	for (uint64_t g = 0; g < s->n_groups; g++) {
		const float *importance = s->importance + g * SPRI_DRAW_GROUP;
		uint32_t chosen = 0;
		__m256i word[4];

		if (!any_above(importance, least))
			continue;
		philox_eight(&philox, (s->group + g) * 8, word);
#pragma GCC unroll 4
		for (unsigned w = 0; w < 4; w++) {
			__m256i k = _mm256_add_epi32(_mm256_srli_epi32(word[w], 8),
						     _mm256_set1_epi32(1));
			__m256 u = _mm256_mul_ps(_mm256_cvtepi32_ps(k), unit);
			__m256 met =
				_mm256_cmp_ps(_mm256_mul_ps(u, threshold),
					      _mm256_load_ps(importance + w * LANES), _CMP_NGE_UQ);

			chosen |= (uint32_t)_mm256_movemask_ps(met) << (w * LANES);
		}
		if (chosen)
			spri_draw_append(s, s->group + g, chosen);
	}
	spri_fp_leave(env);
}
