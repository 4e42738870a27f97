/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* One element: the arithmetic that every kernel repeats, on one lane or on sixteen. */
#ifndef SPRI_SCALAR_H
#define SPRI_SCALAR_H

#include <internal/bits.h>
#include <internal/compiler.h>

#include <kernel.h>

#define SPRI_INF_KEY 0x7f800000u /* keys from here on are not finite */

/* v, with every NaN as the one NaN. */
static inline float spri_canonical(float v)
{
	return v != v ? spri_f32_from_bits(SPRI_NAN_BITS) : v;
}

static inline float spri_sum(float a, float b)
{
	return spri_canonical(a + b);
}

static inline float spri_product(float a, float b)
{
	return spri_canonical(a * b);
}

static inline float spri_finite_or_zero(float v)
{
	return spri_f32_nonfinite(v) ? 0.0f : v;
}

/* Notes that the element of this index was not finite. */
static inline void spri_finite_note(struct spri_finite *finite, uint64_t index)
{
	finite->bad_index = spri_min_u64(finite->bad_index, index);
}

/* a + b when non-finite values count as zero: as inputs, and where the sum becomes one. */
static inline float spri_sum_drop(float a, float b, uint64_t index, struct spri_finite *finite)
{
	if (spri_likely(!spri_f32_nonfinite(a + b)))
		return a + b; /* then a and b are finite too */
	spri_finite_note(finite, index);
	finite->dropped++;
	return spri_finite_or_zero(spri_finite_or_zero(a) + spri_finite_or_zero(b));
}

/* Notes the elements of a group whose bits are set as chosen. */
static inline void spri_draw_append(struct spri_draw *s, uint64_t group, uint32_t chosen)
{
	s->n_chosen += (unsigned)__builtin_popcount(chosen);
	for (; chosen && s->count < s->capacity; chosen &= chosen - 1)
		s->index[s->count++] = group * SPRI_DRAW_GROUP + (unsigned)__builtin_ctz(chosen);
}

#endif
