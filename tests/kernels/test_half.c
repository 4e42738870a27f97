/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * 16-bit values against their definition: every one of the 65,536, every boundary at which rounding
 * turns, and what rounding a list takes off.
 */
#include "vectors.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

struct type {
	const char *name;
	enum spr_dtype dtype;
	uint16_t infinity, nan;
	unsigned mantissa; /* bits of it */
	int bias;
};

static const struct type types[] = {
	{"f16", SPR_F16, 0x7c00, 0x7e00, 10, 15},
	{"bf16", SPR_BF16, 0x7f80, 0x7fc0, 7, 127},
};
enum { N_TYPES = 2 };

/* What a pattern without sign stands for, infinity as the number that would follow. */
static double meaning(const struct type *t, uint32_t bits)
{
	int exponent = (int)(bits >> t->mantissa);
	double fraction = bits & ((1u << t->mantissa) - 1);

	if (exponent == 0)
		return ldexp(fraction, 1 - t->bias - (int)t->mantissa);
	return ldexp(fraction + (1 << t->mantissa), exponent - t->bias - (int)t->mantissa);
}

Test(half, every_pattern_means_what_it_should)
{
	for (int i = 0; i < N_TYPES; i++)
		for (uint32_t bits = 0; bits < 65536; bits++) {
			const struct type *t = &types[i];
			uint32_t key = bits & 0x7fff;
			float wide = spri_widen_one((uint16_t)bits, t->dtype);
			uint32_t back = spri_narrow_one(wide, t->dtype);

			if (key > t->infinity) {
				expect(bits_of(wide) == CANONICAL_NAN, "%s %04x: expected NaN",
				       t->name, bits);
				expect(back == t->nan, "%s %04x: expected the one NaN, got %04x",
				       t->name, bits, back);
				continue;
			}
			expect(key == t->infinity ? isinf(wide)
						  : fabs((double)wide) == meaning(t, key),
			       "%s %04x: got %a", t->name, bits, (double)wide);
			expect(!signbit(wide) == !(bits & 0x8000), "%s %04x: its sign", t->name,
			       bits);
			expect(back == bits, "%s %04x: expected it back, got %04x", t->name, bits,
			       back);
		}
}

static void check_narrow(const struct type *t, float v, uint32_t want, const char *what)
{
	uint32_t got = spri_narrow_one(v, t->dtype), opposite = spri_narrow_one(-v, t->dtype);

	expect(got == want, "%s, %s: %a is %04x, expected %04x", t->name, what, (double)v, got,
	       want);
	expect(opposite == (want | 0x8000), "%s, %s: %a is %04x, expected the opposite", t->name,
	       what, (double)-v, opposite);
}

/* Between two neighbours the middle goes to the even one, and what is beside it to the nearer. */
Test(half, every_boundary)
{
	for (int i = 0; i < N_TYPES; i++)
		for (uint32_t bits = 0; bits + 1 < types[i].infinity; bits++) {
			const struct type *t = &types[i];
			double low = meaning(t, bits), high = meaning(t, bits + 1);
			float middle = (float)((low + high) / 2);

			expect((double)middle == (low + high) / 2, "%s %04x: the middle is exact",
			       t->name, bits);
			check_narrow(t, middle, bits + (bits & 1), "middle");
			check_narrow(t, nextafterf(middle, 0), bits, "below the middle");
			check_narrow(t, nextafterf(middle, INFINITY), bits + 1, "above the middle");
			check_narrow(t, nextafterf((float)low, INFINITY), bits, "above the lower");
			check_narrow(t, nextafterf((float)high, 0), bits + 1, "below the upper");
		}
}

Test(half, what_is_too_large_becomes_the_largest)
{
	for (int i = 0; i < N_TYPES; i++) {
		const struct type *t = &types[i];
		uint32_t largest = t->infinity - 1u;
		double beyond = (meaning(t, largest) + meaning(t, t->infinity)) / 2;

		check_narrow(t, (float)meaning(t, largest), largest, "the largest");
		check_narrow(t, nextafterf((float)beyond, 0), largest, "nearer to the largest");
		check_narrow(t, (float)beyond, largest, "half a step beyond");
		check_narrow(t, 3.4028235e38f, largest, "the largest single");
		check_narrow(t, INFINITY, t->infinity, "infinity");
		check_narrow(t, 0.0f, 0, "zero");
		check_narrow(t, from_bits(1), 0, "the smallest single");
		for (uint32_t nan = 0x7f800001; nan < 0x80000000; nan += 0x7ff3)
			for (uint32_t sign = 0; sign < 2; sign++)
				expect(spri_narrow_one(from_bits(nan | sign << 31), t->dtype) ==
					       t->nan,
				       "%s: NaN %08x", t->name, nan);
	}
}

/* Arrays of every length and alignment, as single values. */
Test(half, arrays)
{
	for (int i = 0; i < N_TYPES; i++)
		for (uint64_t n = 0; n < 140; n++) {
			const struct type *t = &types[i];
			struct area in = area_make(n * 4, n % 3 * 4), octets = area_make(2 * n, n);
			struct area out = area_make(n * 4, n % 5 * 4);
			float *v = in.data, *back = out.data;
			const uint8_t *o = octets.data;

			fill(v, n, n % 2 ? KIND_ALL_BITS : KIND_SMALL, n);
			spri_narrow(octets.data, v, n, t->dtype);
			spri_widen(back, octets.data, n, t->dtype);
			for (uint64_t j = 0; j < n; j++) {
				uint16_t want = spri_narrow_one(v[j], t->dtype);

				expect(o[2 * j] == (want & 0xff) && o[2 * j + 1] == want >> 8,
				       "%s: %lu of %lu is little-endian", t->name, j, n);
				expect(bits_of(back[j]) == bits_of(spri_widen_one(want, t->dtype)),
				       "%s: %lu of %lu comes back", t->name, j, n);
			}
			expect(area_close(&in) && area_close(&octets) && area_close(&out),
			       "%s: nothing written behind %lu values", t->name, n);
		}
}

static void check_rounded(const struct type *t, float v, float rounded, float error)
{
	float want = spri_widen_one(spri_narrow_one(v, t->dtype), t->dtype);

	expect(bits_of(rounded) == bits_of(want), "%s: %a rounds to %a, expected %a", t->name,
	       (double)v, (double)rounded, (double)want);
	if (is_bad(v))
		expect(size_of(error) == 0, "%s: %a has no error, got %a", t->name, (double)v,
		       (double)error);
	else if (fabsf(v) <= 65504)
		expect((double)rounded + (double)error == (double)v, "%s: %a is not %a + %a",
		       t->name, (double)v, (double)rounded, (double)error);
	else
		expect(error == v - rounded, "%s: %a: the error of saturation, got %a", t->name,
		       (double)v, (double)error);
}

/* What stays and what was taken off make up the list that was. */
Test(half, lists)
{
	for (int i = 0; i < N_TYPES; i++)
		for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
			enum { N = 2000, BEFORE = 3 };
			const struct type *t = &types[i];
			uint64_t index[N], error_index[BEFORE + N], at = 0, error_at = BEFORE;
			float value[N], before[N], error_value[BEFORE + N];
			struct spri_list list = {index, value, N, N};
			struct spri_list errors = {error_index, error_value, BEFORE, BEFORE + N};

			fill(before, N, kind, kind + 1);
			memcpy(value, before, sizeof value);
			for (uint64_t j = 0; j < N; j++)
				index[j] = FAR_BASE + 3 * j;
			spri_round(&list, t->dtype, &errors);
			for (uint64_t j = 0; j < N; j++) {
				uint64_t here = FAR_BASE + 3 * j;
				float rounded = 0, error = 0;

				if (at < list.count && index[at] == here)
					rounded = value[at++];
				else
					rounded = copysignf(0.0f, before[j]);
				if (error_at < errors.count && error_index[error_at] == here) {
					error = error_value[error_at++];
					expect(error != 0, "%s, kind %u: no zero errors", t->name,
					       kind);
				}
				check_rounded(t, before[j], rounded, error);
			}
			expect(at == list.count && error_at == errors.count,
			       "%s, kind %u: nothing but these entries, in order", t->name, kind);
			for (uint64_t j = 0; j < list.count; j++)
				expect(size_of(value[j]) != 0, "%s, kind %u: no zero entries",
				       t->name, kind);
		}
}

Test(half, singles_need_no_rounding)
{
	uint64_t index[] = {1, 2}, other_index[2];
	float value[] = {1.0f + 0x1p-23f, 0x1p-149f}, other[2];
	struct spri_list list = {index, value, 2, 2}, errors = {other_index, other, 0, 2};

	spri_round(&list, SPR_F32, &errors);
	cr_assert(list.count == 2 && errors.count == 0 && value[1] == 0x1p-149f,
		  "a list of singles stays as it is");
	spri_round_dense(value, other, 2, SPR_F32);
	cr_assert(value[0] == 1.0f + 0x1p-23f && other[0] == 0.0f && other[1] == 0.0f,
		  "values, too");
}

Test(half, values_without_indices)
{
	for (int i = 0; i < N_TYPES; i++)
		for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
			enum { N = 777 };
			float before[N], value[N], error[N];

			fill(before, N, kind, kind + 9);
			memcpy(value, before, sizeof value);
			spri_round_dense(value, error, N, types[i].dtype);
			for (uint64_t j = 0; j < N; j++)
				check_rounded(&types[i], before[j], value[j], error[j]);
		}
}

Test(half, the_control_register_does_not_matter_and_is_put_back)
{
#if defined(__x86_64__)
	const unsigned flush = 0xffc0; /* FTZ, DAZ, towards zero, traps masked */
	unsigned before = _mm_getcsr(), after;
	float value[] = {3 * 0x1p-25f, from_bits(0x8001), 1.0f + 3 * 0x1p-11f}, got[3], error[3];
	uint8_t octets[6];

	_mm_setcsr(flush);
	spri_narrow(octets, value, 3, SPR_F16);
	spri_round_dense(value, error, 2, SPR_BF16);
	spri_widen(got, octets, 3, SPR_F16);
	after = _mm_getcsr();
	_mm_setcsr(before);
	cr_assert_eq(after & 0xffc0, flush, "the caller's register stays");
	cr_assert_eq(octets[0], 2, "1.5 of the smallest halves go to the even 2");
	cr_assert_eq(octets[4], 2, "1.5 steps go to the even 2");
	cr_assert(got[0] == 0x1p-23f && got[2] == 1.0f + 0x1p-9f, "and come back");
	cr_assert_eq(bits_of(value[1]), 0x10000, "a denormal single rounds to a denormal one");
	cr_assert_eq(bits_of(error[1]), 0x80007fff, "with a denormal error");
#else
	cr_skip("no MXCSR on this CPU");
#endif
}
