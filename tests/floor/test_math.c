/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Small arithmetic, the counter-based generator, the clock. */
#include <check.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/philox.h>
#include <math.h>

static void check_philox(uint64_t key, uint64_t lo, uint64_t hi, const uint32_t expected[4])
{
	uint32_t out[4];

	spri_philox4(key, lo, hi, out);
	cr_assert_arr_eq(out, expected, sizeof out,
			 "expected %08x %08x %08x %08x, got %08x %08x %08x %08x", expected[0],
			 expected[1], expected[2], expected[3], out[0], out[1], out[2], out[3]);
}

/* The known-answer vectors that the authors published with Philox4x32-10. */
Test(philox, known_answers)
{
	check_philox(0, 0, 0, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
	check_philox(~0ull, ~0ull, ~0ull,
		     (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
	check_philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e,
		     (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

Test(philox, short_form_is_the_first_half)
{
	uint32_t out[4];

	spri_philox4(7, 9, 0, out);
	cr_assert_eq(spri_philox(7, 9), (uint64_t)out[1] << 32 | out[0]);
	cr_assert_neq(spri_philox(7, 9), spri_philox(7, 10), "expected the counter to matter");
	cr_assert_neq(spri_philox(7, 9), spri_philox(8, 9), "expected the key to matter");
}

Test(bits, logarithms)
{
	cr_assert_eq(spri_floor_log2(1), 0u);
	cr_assert_eq(spri_ceil_log2(1), 0u);
	for (unsigned i = 1; i < 64; i++) {
		uint64_t x = 1ull << i;

		cr_assert_eq(spri_floor_log2(x), i, "expected floor log2 2^%u = %u", i, i);
		cr_assert_eq(spri_ceil_log2(x), i, "expected ceil log2 2^%u = %u", i, i);
		cr_assert_eq(spri_floor_log2(x + 1), i, "expected floor log2 (2^%u + 1) = %u", i,
			     i);
		cr_assert_eq(spri_ceil_log2(x + 1), i + 1, "expected ceil log2 (2^%u + 1) = %u", i,
			     i + 1);
		cr_assert_eq(spri_ceil_log2(x - 1),
			     i == 1   ? 0
			     : i == 2 ? 2
				      : i,
			     "expected ceil log2 (2^%u - 1)", i);
	}
	cr_assert_eq(spri_floor_log2(UINT64_MAX), 63u);
	cr_assert_eq(spri_ceil_log2(UINT64_MAX), 64u);
}

Test(bits, minimum_maximum_alignment)
{
	cr_assert_eq(spri_min_u64(0, UINT64_MAX), 0u);
	cr_assert_eq(spri_max_u64(0, UINT64_MAX), UINT64_MAX);
	cr_assert_eq(spri_align_up(0, 64), 0u);
	cr_assert_eq(spri_align_up(1, 64), 64u);
	cr_assert_eq(spri_align_up(64, 64), 64u);
	cr_assert_eq(spri_align_up((1ull << 40) + 1, 4096), (1ull << 40) + 4096);
}

/* The finaliser's published first outputs: splitmix64 from the seed 0. */
Test(bits, mix64)
{
	cr_assert_eq(spri_mix64(0), 0u);
	cr_assert_eq(spri_mix64(0x9e3779b97f4a7c15u), 0xe220a8397b1dcdafu);
	cr_assert_eq(spri_mix64(2 * 0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
}

/* The total order of values: by magnitude, the sign ignored, NaN last. */
Test(bits, order_of_singles)
{
	static const float ascending[] = {0.0f, 1e-45f,	       1.17549435e-38f, 0.5f,
					  1.0f, 3.4028235e38f, INFINITY};

	for (size_t i = 0; i < spri_countof(ascending); i++) {
		float v = ascending[i];

		cr_assert_eq(spri_f32_key(v), spri_f32_key(-v),
			     "expected the sign not to count in %g", (double)v);
		cr_assert_eq(spri_f32_bits(spri_f32_from_bits(spri_f32_bits(v))), spri_f32_bits(v));
		cr_assert_eq(spri_f32_nonfinite(v), isinf(v) != 0,
			     "expected isfinite to be right of %g", (double)v);
		if (i > 0)
			cr_assert_lt(spri_f32_key(ascending[i - 1]), spri_f32_key(v),
				     "expected %g below %g", (double)ascending[i - 1], (double)v);
	}
	cr_assert_gt(spri_f32_key(spri_f32_from_bits(SPRI_NAN_BITS)), spri_f32_key(INFINITY));
	cr_assert(spri_f32_nonfinite(spri_f32_from_bits(SPRI_NAN_BITS)),
		  "expected NaN to be non-finite");
	cr_assert(spri_f32_nonfinite(-INFINITY), "expected -infinity to be non-finite");
}

Test(clock, does_not_go_back)
{
	uint64_t before = spri_now_ns();

	for (int i = 0; i < 1000; i++) {
		uint64_t now = spri_now_ns();

		cr_assert_geq(now, before, "expected a monotonic clock");
		before = now;
	}
	cr_assert_gt(before, 0u);
}
