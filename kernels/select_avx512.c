/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Scan with AVX-512. Bound by memory: 12 bytes per element when the shadow is written past the
 * caches. So:
 *
 *   1. up to the first cache line of the shadow: one masked vector
 *   2. four vectors a turn, streaming stores when the vector is long, and one branch that asks
 *      whether any of the 64 qualifies
 *   3. candidates leave by compress in registers and full stores (compress to memory is slow on
 *      some CPUs) while there is room for a full vector, one by one at the end of the room
 *   4. the rest: masked vectors
 *
 * Not finite: the largest key seen tells it at the end.
 */
#include <immintrin.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define LANES 16
#define TURN (4 * LANES)
#define STREAM_FROM 21846 /* elements: 256 KiB of gradient, residual and shadow */

enum store { STORE_NONE, STORE_PLAIN, STORE_STREAM };

struct scan_state {
	__m512i threshold;
	__m512i top; /* largest keys seen */
	__m512 scale;
};

static void append_slowly(struct spri_scan *s, uint64_t at, __m512 a, __mmask16 mask)
{
	float lane[LANES];

	_mm512_storeu_ps(lane, a);
	for (unsigned m = mask; m && s->n_candidates < s->capacity; m &= m - 1) {
		unsigned j = (unsigned)__builtin_ctz(m);

		s->index[s->n_candidates] = s->base + at + j;
		s->value[s->n_candidates] = lane[j];
		s->n_candidates++;
	}
}

/* Candidates: the lanes in mask of the sums of elements at, at + 1, ... */
static inline void append(struct spri_scan *s, uint64_t at, __m512 a, __mmask16 mask)
{
	const __m512i iota = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
	unsigned found = (unsigned)__builtin_popcount(mask);
	unsigned low = (unsigned)__builtin_popcount(mask & 0xff);
	uint64_t count = s->n_candidates;
	__m512i index;

	s->n_qualified += found;
	if (spri_unlikely(s->capacity - count < LANES)) {
		append_slowly(s, at, a, mask);
		return;
	}
	_mm512_storeu_ps(s->value + count, _mm512_maskz_compress_ps(mask, a));
	index = _mm512_add_epi64(_mm512_set1_epi64((long long)(s->base + at)), iota);
	_mm512_storeu_si512(s->index + count, _mm512_maskz_compress_epi64((__mmask8)mask, index));
	index = _mm512_add_epi64(index, _mm512_set1_epi64(8));
	_mm512_storeu_si512(s->index + count + low,
			    _mm512_maskz_compress_epi64((__mmask8)(mask >> 8), index));
	s->n_candidates = count + found;
}

/* The canonical sum, and its key. */
static inline __m512 add(__m512 g, __m512 r, __m512i *key)
{
	__m512 a = _mm512_add_ps(g, r);
	__mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
	__m512i bits = _mm512_mask_mov_epi32(_mm512_castps_si512(a), nan,
					     _mm512_set1_epi32((int)SPRI_NAN_BITS));

	*key = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
	return _mm512_castsi512_ps(bits);
}

/* At most LANES elements. */
static inline void scan_masked(struct spri_scan *s, struct scan_state *state, uint64_t at,
			       unsigned n)
{
	__mmask16 lanes = (__mmask16)((1u << n) - 1);
	__m512 g = _mm512_maskz_loadu_ps(lanes, s->gradient + at);
	__m512 r =
		s->residual ? _mm512_maskz_loadu_ps(lanes, s->residual + at) : _mm512_setzero_ps();
	__m512i key;
	/* Lanes that are off stay 0 whatever the scale. */
	__m512 a = add(_mm512_maskz_mul_ps(lanes, g, state->scale), r, &key);
	__mmask16 mask = _mm512_cmpge_epu32_mask(key, state->threshold);

	if (s->shadow)
		_mm512_mask_storeu_ps(s->shadow + at, lanes, a);
	state->top = _mm512_max_epu32(state->top, key);
	if (mask)
		append(s, at, a, mask);
}

static inline __attribute__((always_inline)) void scan_turn(struct spri_scan *s,
							    struct scan_state *state, uint64_t at,
							    const bool residual,
							    const enum store store)
{
	__m512 a[4];
	__mmask16 mask[4];

#pragma GCC unroll 4
	for (unsigned v = 0; v < 4; v++) {
		uint64_t i = at + v * LANES;
		__m512 r = residual ? _mm512_loadu_ps(s->residual + i) : _mm512_setzero_ps();
		__m512 g = _mm512_mul_ps(_mm512_loadu_ps(s->gradient + i), state->scale);
		__m512i key;

		a[v] = add(g, r, &key);
		mask[v] = _mm512_cmpge_epu32_mask(key, state->threshold);
		state->top = _mm512_max_epu32(state->top, key);
		if (store == STORE_STREAM)
			_mm512_stream_ps(s->shadow + i, a[v]);
		else if (store == STORE_PLAIN)
			_mm512_storeu_ps(s->shadow + i, a[v]);
	}
	if (!(mask[0] | mask[1] | mask[2] | mask[3]))
		return;
#pragma GCC unroll 4
	for (unsigned v = 0; v < 4; v++) {
		if (mask[v])
			append(s, at + v * LANES, a[v], mask[v]);
	}
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

void spri_scan_avx512(struct spri_scan *s)
{
	struct spri_fpenv env = spri_fp_enter();
	uint32_t threshold = s->threshold ? s->threshold : 1;
	struct scan_state state = {_mm512_set1_epi32((int)threshold), _mm512_setzero_si512(),
				   _mm512_set1_ps(s->scale)};
	enum store store = STORE_NONE;
	uint64_t at = 0;

	s->n_candidates = 0;
	s->n_qualified = 0;
	if (s->shadow)
		store = s->n >= STREAM_FROM ? STORE_STREAM : STORE_PLAIN;
	if (store == STORE_STREAM) {
		at = (-(uintptr_t)s->shadow & 63) / sizeof(float);
		if (at)
			scan_masked(s, &state, 0, (unsigned)at);
	}
	at = scan_body(s, &state, at, store);
	for (; at < s->n; at += LANES)
		scan_masked(s, &state, at, (unsigned)spri_min_u64(LANES, s->n - at));
	if (store == STORE_STREAM)
		_mm_sfence();
	s->nonfinite = _mm512_reduce_max_epu32(state.top) >= SPRI_INF_KEY;
	spri_fp_leave(env);
}
