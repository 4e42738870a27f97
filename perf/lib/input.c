/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The inputs of checks and benchmarks, and digests; see oracle.h. Four elements share one draw. */
#include "oracle.h"

#include <internal/bits.h>
#include <internal/philox.h>

#include <math.h>

#define SHARED_DRAW UINT64_MAX /* the stream that all ranks have in common */

/*
 * From a shared word (the same on every rank) and a word of this rank's own to a value. 13 bits
 * give a magnitude; one element in 64 is among the eight largest on every rank; one in 16 of the
 * others is zero.
 */
static float exact_value(uint32_t shared, uint32_t own)
{
	int magnitude = (int)(own & 0xfff); /* 0 … 4095 */

	if ((shared & 63) == 0)
		magnitude = 4088 + (int)(own & 7);
	else if ((own >> 12 & 15) == 0)
		magnitude = 0;
	return ldexpf((float)(own >> 31 ? -magnitude : magnitude), -10);
}

/* A float whose exponent spreads over 2^-12 … 2^-1, by exact arithmetic alone. */
static float random_value(uint32_t shared, uint32_t own)
{
	int exponent = -24 - 2 * (int)(shared & 3) - (int)(own & 3);

	if ((shared >> 8 & 127) == 0)
		exponent++;
	return ldexpf((float)((int32_t)own >> 8), exponent);
}

static void fill(uint64_t seed, int rank, uint64_t first, uint64_t n, float *out,
		 float (*value)(uint32_t, uint32_t))
{
	uint32_t shared[4] = {0}, own[4] = {0};
	uint64_t drawn = UINT64_MAX; /* the group of four that the words belong to */

	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = first + i;

		if (at / 4 != drawn) {
			drawn = at / 4;
			spri_philox4(seed, drawn, SHARED_DRAW, shared);
			spri_philox4(seed, drawn, (uint64_t)rank, own);
		}
		out[i] = value(shared[at % 4], own[at % 4]);
	}
}

void perf_input_exact(uint64_t seed, int rank, uint64_t first, uint64_t n, float *out)
{
	fill(seed, rank, first, n, out, exact_value);
}

void perf_input_random(uint64_t seed, int rank, uint64_t first, uint64_t n, float *out)
{
	fill(seed, rank, first, n, out, random_value);
}

uint64_t perf_mass(const uint64_t *index, const float *value, uint64_t count)
{
	uint64_t mass = 0;

	for (uint64_t i = 0; i < count; i++)
		mass += (uint64_t)(int64_t)ldexp((double)value[i], 24) *
			(spri_mix64(index[i] + 1) | 1);
	return mass;
}

#define DIGEST_BASIS 0xcbf29ce484222325u /* so that nothing at all has a digest other than 0 */

/* An order-dependent mix: multiply, add, rotate. Odd constant from the golden ratio. */
static uint64_t stir(uint64_t digest, uint64_t word)
{
	digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
	return digest << 29 | digest >> 35;
}

uint64_t perf_digest_dense(uint64_t digest, const float *values, uint64_t count)
{
	digest = stir(digest ^ DIGEST_BASIS, count);
	for (uint64_t i = 0; i < count; i++)
		digest = stir(digest, spri_f32_bits(values[i]));
	return spri_mix64(digest);
}

uint64_t perf_digest_sparse(uint64_t digest, const uint64_t *index, const float *value,
			    uint64_t count)
{
	digest = stir(digest ^ DIGEST_BASIS, count);
	for (uint64_t i = 0; i < count; i++)
		digest = stir(stir(digest, index[i]), spri_f32_bits(value[i]));
	return spri_mix64(digest);
}
