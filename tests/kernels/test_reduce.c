/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Dense sums under each policy, in place and not, and the norm: on every row against naive loops.
 */
#include "vectors.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

struct reduce_case {
	enum kind kind;
	enum spr_nonfinite policy;
	uint64_t n;
	unsigned in_place; /* 0: no, 1: over a, 2: over b */
	bool check;	   /* spri_check: b is nothing */
};

static float naive_sum(float a, float b, uint64_t index, enum spr_nonfinite policy,
		       struct spri_finite *finite)
{
	float sum = plain_sum(a, b);

	if (!is_bad(sum))
		return sum;
	if (index < finite->bad_index)
		finite->bad_index = index;
	if (policy != SPR_NONFINITE_DROP)
		return sum;
	finite->dropped++;
	sum = (is_bad(a) ? 0.0f : a) + (is_bad(b) ? 0.0f : b);
	return is_bad(sum) ? 0.0f : sum;
}

static void check_reduce(const struct reduce_case *c)
{
	size_t bytes = c->n * sizeof(float);
	struct area a = area_make(bytes, 4), b = area_make(bytes, 12), own = area_make(bytes, 20);
	struct area want = area_make(bytes, 0);
	struct spri_finite finite = {SPRI_NO_INDEX, 5}, expected = {SPRI_NO_INDEX, 5};
	float *av = a.data, *bv = b.data, *out = own.data;

	fill(av, c->n, c->kind, c->n + 1);
	fill(bv, c->n, c->kind, c->n + 2);
	for (uint64_t i = 0; i < c->n; i++)
		((float *)want.data)[i] = naive_sum(av[i], c->check ? 0.0f : bv[i], FAR_BASE + i,
						    c->policy, &expected);
	if (c->in_place)
		out = c->in_place == 1 ? av : bv;
	if (c->check)
		spri_check(c->in_place ? av : out, av, c->n, FAR_BASE, c->policy, &finite);
	else
		spri_reduce(out, av, bv, c->n, FAR_BASE, c->policy, &finite);
	if (c->check && c->in_place)
		out = av;
	expect(memcmp(out, want.data, bytes) == 0,
	       "kind %d policy %d n %lu in place %u check %d: expected the bits of the naive sum",
	       c->kind, c->policy, c->n, c->in_place, c->check);
	expect(finite.bad_index == expected.bad_index && finite.dropped == expected.dropped,
	       "kind %d policy %d n %lu: finite is (%lu, %lu), expected (%lu, %lu)", c->kind,
	       c->policy, c->n, finite.bad_index, finite.dropped, expected.bad_index,
	       expected.dropped);
	expect(area_close(&a) && area_close(&b) && area_close(&own) && area_close(&want),
	       "n %lu: expected nothing to be written past an end", c->n);
}

static void check_size(uint64_t n)
{
	for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
		for (unsigned i = 0; i < 18; i++)
			check_reduce(&(struct reduce_case){kind, (enum spr_nonfinite)(i % 3), n,
							   i / 3 % 3, i >= 9});
	}
}

Test(reduce, every_row_and_policy)
{
	static const uint64_t sizes[] = {2047, 2048, 2049, 10007};
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		spri_isa_allow(row->isa);
		for (uint64_t n = 0; n <= 70; n++)
			check_size(n);
		for (unsigned j = 0; j < sizeof sizes / sizeof *sizes; j++)
			check_size(sizes[j]);
	}
}

Test(reduce, norm_is_right_and_the_same_on_every_row)
{
	static const uint64_t sizes[] = {0, 1, 7, 8, 9, 100, 4095, 4096, 4097, 12289, 500009};
	const struct spri_kernel_row *row;

	for (unsigned j = 0; j < sizeof sizes / sizeof *sizes; j++) {
		struct area v = area_make(sizes[j] * sizeof(float), 4);
		double first = 0, got;
		long double naive = 0;

		fill(v.data, sizes[j], KIND_SMALL, j + 1);
		for (uint64_t i = 0; i < sizes[j]; i++)
			naive += (long double)((float *)v.data)[i] * ((float *)v.data)[i];
		naive = sqrtl(naive);
		for (unsigned i = 0; (row = usable_row(i)); i++) {
			spri_isa_allow(row->isa);
			got = spri_norm2(v.data, sizes[j]);
			if (i == 0)
				first = got;
			cr_assert_eq(got, first, "n %lu: expected %a on every row, got %a",
				     sizes[j], first, got);
			cr_assert_float_eq(got, (double)naive, (double)naive * 1e-13 + 1e-300,
					   "n %lu: expected %.17g, got %.17g", sizes[j],
					   (double)naive, got);
		}
		cr_assert(area_close(&v), "expected the input untouched");
	}
}

Test(reduce, norm_of_extremes)
{
	float huge[] = {3e38f, 3e38f, 3e38f, 3e38f}, tiny[] = {0x1p-149f, 0.0f, -0x1p-149f};
	float bad[] = {1.0f, NAN, 2.0f};

	cr_assert_float_eq(spri_norm2(huge, 4) / (2 * (double)3e38f), 1.0, 1e-12,
			   "expected no overflow");
	cr_assert_float_eq(spri_norm2(tiny, 3) / 0x1p-149, 1.4142135623730951, 1e-12,
			   "expected denormals to count");
	cr_assert(isnan(spri_norm2(bad, 3)), "expected NaN to be seen in the norm");
}

/* The one order of additions: 8 lanes in a block of 4096, blocks in a binary tree. */
Test(reduce, norm_has_fixed_bits)
{
	float *v = malloc(20000 * sizeof *v);
	double block[5], want;

	cr_assert_not_null(v, "expected memory for a test");
	fill(v, 20000, KIND_SMALL, 42);
	for (unsigned b = 0; b < 5; b++) {
		double lane[8] = {0};

		for (unsigned i = b * 4096; i < (b + 1) * 4096 && i < 20000; i++)
			lane[i % 8] += (double)v[i] * v[i];
		block[b] = ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
			   ((lane[1] + lane[5]) + (lane[3] + lane[7]));
	}
	want = sqrt(((block[0] + block[1]) + (block[2] + block[3])) + block[4]);
	cr_assert_eq(spri_norm2(v, 20000), want, "expected %a, got %a", want, spri_norm2(v, 20000));
	free(v);
}

Test(reduce, the_control_register_does_not_matter_and_is_put_back)
{
#if defined(__x86_64__)
	const unsigned flush = 0xffc0; /* FTZ, DAZ, towards zero, traps masked */
	const float a[] = {0x1p-149f, 1.0f, 0x1p-127f}, b[] = {0x1p-149f, 0x1.8p-24f, -0x1p-149f};
	const float want[] = {0x1p-148f, 0x1.000002p0f, 0x1.fffff8p-128f};
	unsigned before = _mm_getcsr();
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		float out[3] = {0}, twice[3] = {0}, half[3] = {0};
		uint64_t index[] = {0, 1, 2};
		unsigned after;

		_mm_setcsr(flush);
		row->reduce(out, a, b, 3);
		row->scale(twice, out, 3, 2.0f);
		row->scatter(half, 0, index, twice, 3, 0.5f);
		after = _mm_getcsr();
		_mm_setcsr(before);
		cr_assert_eq(after & 0xffc0, flush, "expected the control register put back");
		cr_assert(memcmp(out, want, sizeof want) == 0 &&
				  memcmp(half, want, sizeof want) == 0,
			  "%s: expected denormals kept and rounding to nearest",
			  spri_isa_name(row->isa));
	}
#else
	cr_skip("no MXCSR on this CPU");
#endif
}
