/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the tests of the kernels share: numbers that depend on a seed alone, vectors of every
 * unpleasant kind, memory that starts off alignment and ends in a guard, and a naive total order.
 * Shares no code with the kernels.
 */
#ifndef SPR_TESTS_VECTORS_H
#define SPR_TESTS_VECTORS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include <kernel.h>

#define FAR_BASE ((UINT64_C(1) << 40) + 12345) /* indices beyond 32 bits */
#define CANONICAL_NAN 0x7fc00000u

static inline uint32_t bits_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof bits);
	return bits;
}

static inline float from_bits(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, sizeof v);
	return v;
}

/* |v| by its bits. */
static inline uint32_t size_of(float v)
{
	return bits_of(v) << 1 >> 1;
}

static inline bool is_bad(float v)
{
	return size_of(v) >= 0x7f800000u;
}

/* a + b as the contract wants it: one NaN. */
static inline float plain_sum(float a, float b)
{
	float sum = a + b;

	return size_of(sum) > 0x7f800000u ? from_bits(CANONICAL_NAN) : sum;
}

/* xorshift64*, never 0. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* In (-1, 1), crowded around 0 like a gradient. */
static inline float random_small(uint64_t *state)
{
	double u = (double)(next_random(state) >> 11) * 0x1p-53;

	return (float)(u * u * u * (next_random(state) & 1 ? 1 : -1));
}

enum kind {
	KIND_SMALL,  /* gradient-like */
	KIND_TIES,   /* few different sizes, both signs */
	KIND_EQUAL,  /* one value */
	KIND_ZERO,   /* +0 and -0 */
	KIND_FEW,    /* nearly all zero */
	KIND_RISING, /* the worst order for a running threshold */
	KIND_FALLING,
	KIND_LAYERS,   /* stretches of very different scale */
	KIND_DENORMAL, /* below the smallest normal */
	KIND_NAN,      /* some NaN, of several payloads and signs */
	KIND_INF,      /* some infinities of both signs */
	KIND_HUGE,     /* finite, but sums overflow */
	KIND_ALL_BITS, /* any pattern of 32 bits */
	KIND_COUNT
};

static inline float make_value(enum kind kind, uint64_t i, uint64_t n, uint64_t *state)
{
	uint64_t r = next_random(state);

	switch (kind) {
	case KIND_TIES:
		return (float)(int)(r % 9 - 4) * 0x1p-10f;
	case KIND_EQUAL:
		return 0.375f;
	case KIND_ZERO:
		return r & 1 ? 0.0f : -0.0f;
	case KIND_FEW:
		return r % 97 ? 0.0f : random_small(state);
	case KIND_RISING:
		return (float)(i + 1);
	case KIND_FALLING:
		return -(float)(n - i);
	case KIND_LAYERS:
		return random_small(state) * (float)(1 << (i * 13 / (n + 1)) % 13);
	case KIND_DENORMAL:
		return from_bits((uint32_t)(r % 0x7fffff) | (uint32_t)(r >> 63) << 31);
	case KIND_NAN:
		if (r % 23 == 0)
			return from_bits(0x7f800001u | (uint32_t)(r >> 32 & 0x807fffffu));
		break;
	case KIND_INF:
		if (r % 23 == 0)
			return r >> 63 ? INFINITY : -INFINITY;
		break;
	case KIND_HUGE:
		return r % 3 ? random_small(state) : (r >> 63 ? 3e38f : -3e38f);
	case KIND_ALL_BITS:
		return from_bits((uint32_t)(r >> 32));
	default:
		break;
	}
	return random_small(state);
}

/* For inner loops: Criterion reports every assertion that holds to another process. */
#define expect(condition, ...)                                                                     \
	do {                                                                                       \
		if (!(condition))                                                                  \
			cr_assert_fail(__VA_ARGS__);                                               \
	} while (0)

/* ---- memory: `skew` elements off a cache line, guarded behind the last element ---- */

#define GUARD_BYTES 64

struct area {
	unsigned char *start; /* malloc'ed */
	void *data;	      /* bytes of it */
	size_t bytes;
};

static inline struct area area_make(size_t bytes, size_t skew_bytes)
{
	struct area area = {.bytes = bytes};

	area.start = aligned_alloc(64, (bytes + skew_bytes + GUARD_BYTES + 63) / 64 * 64);
	expect(area.start, "expected memory for a test");
	area.data = area.start + skew_bytes;
	memset(area.start, 0xa5, bytes + skew_bytes + GUARD_BYTES);
	return area;
}

/* Frees it; false when something wrote behind its end. */
static inline bool area_close(struct area *area)
{
	const unsigned char *guard = (unsigned char *)area->data + area->bytes;
	bool whole = true;

	for (unsigned i = 0; i < GUARD_BYTES; i++)
		whole = whole && guard[i] == 0xa5;
	free(area->start);
	return whole;
}

static inline void fill(float *v, uint64_t n, enum kind kind, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint64_t i = 0; i < n; i++)
		v[i] = make_value(kind, i, n, &state);
}

/* ---- the total order, by qsort ---- */

struct entry {
	uint64_t index;
	float value;
};

/* Larger first, equals by index. */
static inline int by_rank(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (size_of(x->value) != size_of(y->value))
		return size_of(x->value) > size_of(y->value) ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static inline int by_index(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

/* The i-th row that this machine can run, NULL past the last. */
static inline const struct spri_kernel_row *usable_row(unsigned i)
{
	for (unsigned at = 0; spri_kernel_row(at); at++) {
		if (spri_kernel_row(at)->isa <= spri_cpu_isa() && i-- == 0)
			return spri_kernel_row(at);
	}
	return NULL;
}

#endif
