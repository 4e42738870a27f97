/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Scan with AVX2: the plan of select_avx512.c with eight lanes. Head and tail are scalar, and
 * candidates leave one by one, found in the sign mask of the comparison.
 */
#include <immintrin.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define LANES 8
#define TURN (4 * LANES)
#define STREAM_FROM 21846 /* elements: 256 KiB of gradient, residual and shadow */

enum store { STORE_NONE, STORE_PLAIN, STORE_STREAM };

struct scan_state {
	__m256i below; /* threshold − 1: a key qualifies when it is greater, as signed numbers */
	__m256i top;   /* largest keys seen */
	__m256 scale;
	uint32_t threshold; /* 1 to 2^31 */
	uint32_t scalar_top;
};

/* The canonical sum, and its key. */
static inline __m256 add(__m256 g, __m256 r, __m256i *key)
{
	__m256 a = _mm256_add_ps(g, r);
	__m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);

	a = _mm256_blendv_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32((int)SPRI_NAN_BITS)), nan);
	*key = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
	return a;
}

static inline void append_one(struct spri_scan *s, uint64_t at, float a)
{
	s->n_qualified++;
	if (s->n_candidates == s->capacity)
		return;
	s->index[s->n_candidates] = s->base + at;
	s->value[s->n_candidates] = a;
	s->n_candidates++;
}

/* Candidates: the lanes in mask of the sums of elements at, at + 1, ... */
static inline void append(struct spri_scan *s, uint64_t at, __m256 a, unsigned mask)
{
	SPRI_ALIGNED(32) float lane[LANES];

	_mm256_store_ps(lane, a);
	for (; mask; mask &= mask - 1) {
		unsigned j = (unsigned)__builtin_ctz(mask);

		append_one(s, at + j, lane[j]);
	}
}

static void scan_scalar(struct spri_scan *s, struct scan_state *state, uint64_t at, uint64_t end)
{
	for (; at < end; at++) {
		float r = s->residual ? s->residual[at] : 0.0f;
		float a = spri_sum(s->gradient[at] * s->scale, r);
		uint32_t key = spri_f32_key(a);

		if (s->shadow)
			s->shadow[at] = a;
		if (key > state->scalar_top)
			state->scalar_top = key;
		if (key >= state->threshold)
			append_one(s, at, a);
	}
}

static inline __attribute__((always_inline)) void scan_turn(struct spri_scan *s,
							    struct scan_state *state, uint64_t at,
							    const bool residual,
							    const enum store store)
{
	__m256 a[4];
	__m256i above[4];
	__m256i any;

#pragma GCC unroll 4
	for (unsigned v = 0; v < 4; v++) {
		uint64_t i = at + v * LANES;
		__m256 r = residual ? _mm256_loadu_ps(s->residual + i) : _mm256_setzero_ps();
		__m256 g = _mm256_mul_ps(_mm256_loadu_ps(s->gradient + i), state->scale);
		__m256i key;

		a[v] = add(g, r, &key);
		above[v] = _mm256_cmpgt_epi32(key, state->below);
		state->top = _mm256_max_epu32(state->top, key);
		if (store == STORE_STREAM)
			_mm256_stream_ps(s->shadow + i, a[v]);
		else if (store == STORE_PLAIN)
			_mm256_storeu_ps(s->shadow + i, a[v]);
	}
	any = _mm256_or_si256(_mm256_or_si256(above[0], above[1]),
			      _mm256_or_si256(above[2], above[3]));
	if (_mm256_testz_si256(any, any))
		return;
#pragma GCC unroll 4
	for (unsigned v = 0; v < 4; v++)
		append(s, at + v * LANES, a[v],
		       (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(above[v])));
}

/* Whole turns from `at` on; returns where they end. */
static inline __attribute__((always_inline)) uint64_t scan_turns(struct spri_scan *s,
								 struct scan_state *state,
								 uint64_t at, const bool residual,
								 const enum store store)
{
	struct scan_state local = *state;
	uint64_t end = at + (s->n - at) / TURN * TURN;

	for (; at < end; at += TURN)
		scan_turn(s, &local, at, residual, store);
	*state = local;
	return end;
}

/* Picks the loop; each is a specialisation of scan_turns. */
static uint64_t scan_body(struct spri_scan *s, struct scan_state *state, uint64_t at,
			  enum store store)
{
	if (store == STORE_STREAM)
		return s->residual ? scan_turns(s, state, at, true, STORE_STREAM)
				   : scan_turns(s, state, at, false, STORE_STREAM);
	if (store == STORE_PLAIN)
		return s->residual ? scan_turns(s, state, at, true, STORE_PLAIN)
				   : scan_turns(s, state, at, false, STORE_PLAIN);
	return s->residual ? scan_turns(s, state, at, true, STORE_NONE)
			   : scan_turns(s, state, at, false, STORE_NONE);
}

static bool any_nonfinite(const struct scan_state *state)
{
	__m256i inf = _mm256_set1_epi32((int)SPRI_INF_KEY - 1);

	return state->scalar_top >= SPRI_INF_KEY ||
	       _mm256_movemask_epi8(_mm256_cmpgt_epi32(state->top, inf)) != 0;
}

void spri_scan_avx2(struct spri_scan *s)
{
	struct spri_fpenv env = spri_fp_enter();
	struct scan_state state = {.top = _mm256_setzero_si256(),
				   .scale = _mm256_set1_ps(s->scale)};
	enum store store = STORE_NONE;
	uint64_t at = 0;

	state.threshold = s->threshold ? s->threshold : 1;
	if (state.threshold > 0x80000000u)
		state.threshold = 0x80000000u; /* as unreachable as anything above it */
	state.below = _mm256_set1_epi32((int)(state.threshold - 1));
	s->n_candidates = 0;
	s->n_qualified = 0;
	if (s->shadow)
		store = s->n >= STREAM_FROM ? STORE_STREAM : STORE_PLAIN;
	if (store == STORE_STREAM) {
		at = (-(uintptr_t)s->shadow & 31) / sizeof(float);
		scan_scalar(s, &state, 0, at);
	}
	at = scan_body(s, &state, at, store);
	scan_scalar(s, &state, at, s->n);
	if (store == STORE_STREAM)
		_mm_sfence();
	s->nonfinite = any_nonfinite(&state);
	spri_fp_leave(env);
}
