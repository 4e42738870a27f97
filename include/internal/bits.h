/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Small arithmetic that several layers share. Pure functions, no state. */
#ifndef SPRI_BITS_H
#define SPRI_BITS_H

#include <internal/compiler.h>

static inline uint64_t spri_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
static inline uint64_t spri_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Smallest multiple of `unit` (a power of two) that is not below x. */
static inline uint64_t spri_align_up(uint64_t x, uint64_t unit)
{
	return (x + unit - 1) & ~(unit - 1);
}

/* floor(log2 x), x > 0. */
static inline unsigned spri_floor_log2(uint64_t x)
{
	assert(x > 0);
	return 63u - (unsigned)__builtin_clzll(x);
}

/* ceil(log2 x), x > 0: the number of doublings that reach x from 1. */
static inline unsigned spri_ceil_log2(uint64_t x)
{
	assert(x > 0);
	return x == 1 ? 0 : spri_floor_log2(x - 1) + 1;
}

/* A full-avalanche mix of 64 bits (the finaliser of splitmix64, Steele et al. 2014). */
static inline uint64_t spri_mix64(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* The bits of an IEEE single, and back. */
static inline uint32_t spri_f32_bits(float v)
{
	uint32_t bits;
	__builtin_memcpy(&bits, &v, sizeof bits);
	return bits;
}

static inline float spri_f32_from_bits(uint32_t bits)
{
	float v;
	__builtin_memcpy(&v, &bits, sizeof v);
	return v;
}

/* The key of the total order: |v| by its bits. NaN > infinity > finite > 0. */
static inline uint32_t spri_f32_key(float v)
{
	return spri_f32_bits(v) & 0x7fffffffu;
}

/* True for infinity and NaN. */
static inline bool spri_f32_nonfinite(float v)
{
	return spri_f32_key(v) >= 0x7f800000u;
}

#define SPRI_NAN_BITS 0x7fc00000u /* the one NaN that leaves a kernel */

#endif
