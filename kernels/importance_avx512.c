/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Weigh and draw with AVX-512: the plan of importance_avx2.c. Sixteen elements are weighed at a
 * time, and added up as two times eight; eight counters fill the 64-bit lanes of one vector.
 *
 * Squares are added with fused multiply-add: the square of a single is exact in double, so nothing
 * is rounded that the definition would round twice.
 */
#include <immintrin.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define LANES 16
#define ROUNDS 10

/* ---- weigh ---- */

struct weigh_state {
	__m512 scale, floor;
	__m512i top; /* largest keys seen */
	__m512d sum, sum_squares, weight_squares;
};

static inline __m512 magnitude(__m512 v)
{
	return _mm512_castsi512_ps(
		_mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)));
}

static inline __m512 canonical(__m512 v)
{
	__mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

	return _mm512_castsi512_ps(_mm512_mask_mov_epi32(_mm512_castps_si512(v), nan,
							 _mm512_set1_epi32((int)SPRI_NAN_BITS)));
}

static inline __m512d half_of(__m512 v, const bool upper)
{
	return _mm512_cvtps_pd(upper ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v));
}

/* Adds to the statistics; lanes that are off are 0. */
static inline __attribute__((always_inline)) void add_up(struct weigh_state *state,
							 __m512 importance, __m512 weight)
{
	__m512 inf = _mm512_castsi512_ps(_mm512_set1_epi32((int)SPRI_INF_KEY));
	__mmask16 finite = _mm512_cmp_ps_mask(importance, inf, _CMP_LT_OQ);

	importance = _mm512_maskz_mov_ps(finite, importance);
#pragma GCC unroll 2
	for (unsigned half = 0; half < 2; half++) {
		__m512d i = half_of(importance, half);
		__m512d w = half_of(weight, half);

		state->sum = _mm512_add_pd(state->sum, i);
		state->sum_squares = _mm512_fmadd_pd(i, i, state->sum_squares);
		state->weight_squares = _mm512_fmadd_pd(w, w, state->weight_squares);
	}
}

/* The sums of sixteen elements and their importance; the shadow is the caller's. */
static inline __attribute__((always_inline)) __m512 weigh_sixteen(struct weigh_state *state,
								  __m512 product, __m512 residual,
								  __m512 weight, __m512 *importance)
{
	__m512 a = canonical(_mm512_add_ps(product, residual));
	__m512 size = magnitude(a);

	weight = magnitude(weight);
	/* A NaN makes max return its second operand: the floor. */
	*importance = _mm512_div_ps(size, _mm512_max_ps(weight, state->floor));
	state->top = _mm512_max_epu32(state->top, _mm512_castps_si512(size));
	add_up(state, *importance, weight);
	return a;
}

static inline __attribute__((always_inline)) void
weigh_whole(struct spri_weigh *s, struct weigh_state *state, const bool stream, const bool keep)
{
	struct weigh_state local = *state;

	for (uint64_t i = 0; i + LANES <= s->n; i += LANES) {
		__m512 product = _mm512_mul_ps(_mm512_loadu_ps(s->gradient + i), local.scale);
		__m512 importance;
		__m512 a = weigh_sixteen(&local, product, _mm512_loadu_ps(s->residual + i),
					 _mm512_loadu_ps(s->weight + i), &importance);

		if (stream)
			_mm512_stream_ps(s->shadow + i, a);
		else
			_mm512_storeu_ps(s->shadow + i, a);
		if (keep)
			_mm512_storeu_ps(s->importance + i, importance);
	}
	*state = local;
}

/* The last elements, fewer than sixteen. */
static void weigh_rest(struct spri_weigh *s, struct weigh_state *state)
{
	uint64_t i = s->n / LANES * LANES;
	__mmask16 lanes = (__mmask16)((1u << (s->n - i)) - 1);
	/* Lanes that are off stay 0 whatever the scale. */
	__m512 product = _mm512_maskz_mul_ps(lanes, _mm512_maskz_loadu_ps(lanes, s->gradient + i),
					     state->scale);
	__m512 importance;
	__m512 a = weigh_sixteen(state, product, _mm512_maskz_loadu_ps(lanes, s->residual + i),
				 _mm512_maskz_loadu_ps(lanes, s->weight + i), &importance);

	_mm512_mask_storeu_ps(s->shadow + i, lanes, a);
	if (s->importance)
		_mm512_mask_storeu_ps(s->importance + i, lanes, importance);
}

void spri_weigh_avx512(struct spri_weigh *s)
{
	struct spri_fpenv env = spri_fp_enter();
	bool stream = s->stream && ((uintptr_t)s->shadow & 63) == 0;
	struct weigh_state state = {.scale = _mm512_set1_ps(s->scale),
				    .floor = _mm512_set1_ps(s->floor),
				    .top = _mm512_setzero_si512(),
				    .sum = _mm512_loadu_pd(s->sum),
				    .sum_squares = _mm512_loadu_pd(s->sum_squares),
				    .weight_squares = _mm512_loadu_pd(s->weight_squares)};

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
	_mm512_storeu_pd(s->sum, state.sum);
	_mm512_storeu_pd(s->sum_squares, state.sum_squares);
	_mm512_storeu_pd(s->weight_squares, state.weight_squares);
	s->nonfinite = _mm512_reduce_max_epu32(state.top) >= SPRI_INF_KEY;
	spri_fp_leave(env);
}

/* ---- draw ---- */

struct philox {
	__m512i key0[ROUNDS], key1[ROUNDS]; /* of each round */
	__m512i step0, step1;
};

static void philox_init(struct philox *p, uint64_t key, uint64_t step)
{
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

	for (unsigned r = 0; r < ROUNDS; r++) {
		p->key0[r] = _mm512_set1_epi32((int)k0);
		p->key1[r] = _mm512_set1_epi32((int)k1);
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	p->step0 = _mm512_set1_epi32((int)(uint32_t)step);
	p->step1 = _mm512_set1_epi32((int)(uint32_t)(step >> 32));
}

static inline __m512i xor3(__m512i a, __m512i b, __m512i c)
{
	return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}

/*
 * The four words of counters counter, counter + 1, ... + 7 (a multiple of eight): the first two,
 * then the last two.
 */
static inline void philox_eight(const struct philox *p, uint64_t counter, __m512i pair[2])
{
	const __m512i m0 = _mm512_set1_epi32((int)0xD2511F53u);
	const __m512i m1 = _mm512_set1_epi32((int)0xCD9E8D57u);
	__m512i x0 = _mm512_or_si512(_mm512_set1_epi64((long long)counter),
				     _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
	__m512i x1 = _mm512_srli_epi64(x0, 32), x2 = p->step0, x3 = p->step1;

#pragma GCC unroll 10
	for (unsigned r = 0; r < ROUNDS; r++) {
		__m512i p0 = _mm512_mul_epu32(x0, m0);
		__m512i p1 = _mm512_mul_epu32(x2, m1);

		x0 = xor3(_mm512_srli_epi64(p1, 32), x1, p->key0[r]);
		x1 = p1;
		x2 = xor3(_mm512_srli_epi64(p0, 32), x3, p->key1[r]);
		x3 = p0;
	}
	pair[0] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(x0)),
				     _mm512_cvtepi64_epi32(x1), 1);
	pair[1] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(x2)),
				     _mm512_cvtepi64_epi32(x3), 1);
}

void spri_draw_avx512(struct spri_draw *s)
{
	struct spri_fpenv env = spri_fp_enter();
	__m512 threshold = _mm512_set1_ps(s->threshold);
	__m512 unit = _mm512_set1_ps(0x1p-24f);
	__m512 least = _mm512_mul_ps(unit, threshold); /* what the smallest u asks for */
	struct philox philox;

	philox_init(&philox, s->key, s->step);
	for (uint64_t g = 0; g < s->n_groups; g++) {
		const float *at = s->importance + g * SPRI_DRAW_GROUP;
		__m512 importance[2] = {_mm512_load_ps(at), _mm512_load_ps(at + LANES)};
		uint32_t chosen = 0;
		__m512i pair[2];

		if (!(_mm512_cmp_ps_mask(importance[0], least, _CMP_NLE_UQ) |
		      _mm512_cmp_ps_mask(importance[1], least, _CMP_NLE_UQ)))
			continue;
		philox_eight(&philox, (s->group + g) * 8, pair);
#pragma GCC unroll 2
		for (unsigned h = 0; h < 2; h++) {
			__m512i k = _mm512_add_epi32(_mm512_srli_epi32(pair[h], 8),
						     _mm512_set1_epi32(1));
			__m512 u = _mm512_mul_ps(_mm512_cvtepi32_ps(k), unit);
			__mmask16 met = _mm512_cmp_ps_mask(_mm512_mul_ps(u, threshold),
							   importance[h], _CMP_NGE_UQ);

			chosen |= (uint32_t)met << (h * LANES);
		}
		if (chosen)
			spri_draw_append(s, s->group + g, chosen);
	}
	spri_fp_leave(env);
}
