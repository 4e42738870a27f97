/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Every row of the table, bit by bit, against what the contract says, computed here one element
 * at a time: all kinds of vectors, every tail, misaligned, guarded. Where a row cannot run, it is
 * left out and the last test says so.
 */
#include "vectors.h"

#define MAX_TAIL 70

/* Sizes: every tail, then long enough for streaming stores. */
static uint64_t size_at(unsigned i)
{
	static const uint64_t large[] = {127, 1000, 21845, 21846, 22003, 70001};

	if (i <= MAX_TAIL)
		return i;
	i -= MAX_TAIL + 1;
	return i < sizeof large / sizeof *large ? large[i] : UINT64_MAX;
}

/* ---- scan ---- */

struct scan_case {
	const struct spri_kernel_row *row;
	enum kind kind;
	uint64_t n;
	uint32_t threshold;
	uint64_t capacity;
	bool residual, shadow;
	unsigned skew; /* floats off alignment */
	float scale;
};

static void check_candidates(const struct scan_case *c, const struct spri_scan *s)
{
	uint32_t least = c->threshold ? c->threshold : 1;
	uint64_t qualified = 0, written = 0;
	bool bad = false;

	for (uint64_t i = 0; i < c->n; i++) {
		float a = plain_sum(s->gradient[i] * c->scale, c->residual ? s->residual[i] : 0.0f);

		bad = bad || is_bad(a);
		if (c->shadow)
			expect(bits_of(s->shadow[i]) == bits_of(a),
			       "%s kind %d n %lu: shadow[%lu] is %08x, expected %08x",
			       spri_isa_name(c->row->isa), c->kind, c->n, i, bits_of(s->shadow[i]),
			       bits_of(a));
		if (size_of(a) < least)
			continue;
		qualified++;
		if (written == c->capacity)
			continue;
		expect(s->index[written] == FAR_BASE + i &&
			       bits_of(s->value[written]) == bits_of(a),
		       "%s kind %d n %lu: candidate %lu is (%lu, %08x), expected (%lu, %08x)",
		       spri_isa_name(c->row->isa), c->kind, c->n, written, s->index[written],
		       bits_of(s->value[written]), FAR_BASE + i, bits_of(a));
		written++;
	}
	expect(s->n_qualified == qualified, "%s n %lu: %lu qualified, expected %lu",
	       spri_isa_name(c->row->isa), c->n, s->n_qualified, qualified);
	expect(s->n_candidates == written, "%lu candidates, expected %lu", s->n_candidates,
	       written);
	expect(s->nonfinite == bad, "%s kind %d n %lu: nonfinite is %d, expected %d",
	       spri_isa_name(c->row->isa), c->kind, c->n, s->nonfinite, bad);
}

static void check_scan(const struct scan_case *c)
{
	struct area g = area_make(c->n * sizeof(float), c->skew * sizeof(float));
	struct area r = area_make(c->n * sizeof(float), (c->skew + 2) % 16 * sizeof(float));
	struct area shadow = area_make(c->n * sizeof(float), (c->skew + 5) % 16 * sizeof(float));
	struct area index = area_make(c->capacity * sizeof(uint64_t), 8);
	struct area value = area_make(c->capacity * sizeof(float), 4);
	struct spri_scan s = {
		.gradient = g.data,
		.residual = c->residual ? r.data : NULL,
		.scale = c->scale,
		.shadow = c->shadow ? shadow.data : NULL,
		.n = c->n,
		.base = FAR_BASE,
		.threshold = c->threshold,
		.index = index.data,
		.value = value.data,
		.capacity = c->capacity,
	};

	fill(g.data, c->n, c->kind, c->n + 1);
	fill(r.data, c->n, c->kind, c->n + 1000);
	c->row->scan(&s);
	check_candidates(c, &s);
	expect(area_close(&g) && area_close(&r) && area_close(&shadow) && area_close(&index) &&
		       area_close(&value),
	       "%s n %lu: expected nothing to be written past an end", spri_isa_name(c->row->isa),
	       c->n);
}

/* A threshold that the middle of this kind meets. */
static uint32_t middling(enum kind kind)
{
	static const uint32_t threshold[KIND_COUNT] = {
		[KIND_SMALL] = 0x3dcccccd,    [KIND_TIES] = 0x3b400000,
		[KIND_EQUAL] = 0x3f400000,    [KIND_ZERO] = 1,
		[KIND_FEW] = 0x3d000000,      [KIND_RISING] = 0x42000000,
		[KIND_FALLING] = 0x42000000,  [KIND_LAYERS] = 0x3f800000,
		[KIND_DENORMAL] = 0x300000,   [KIND_NAN] = 0x7fc00000,
		[KIND_INF] = 0x7f800000,      [KIND_HUGE] = 0x7e000000,
		[KIND_ALL_BITS] = 0x40000000,
	};

	return threshold[kind];
}

static void scan_all(enum kind kind)
{
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (unsigned at = 0; size_at(at) != UINT64_MAX; at++) {
			uint64_t n = size_at(at);
			const struct scan_case cases[] = {
				{row, kind, n, 1, n, true, true, 0, 1},
				{row, kind, n, middling(kind), n, true, true, 1, 1},
				{row, kind, n, middling(kind), n / 2, true, false, 3, 0.7f},
				{row, kind, n, middling(kind), n / 3, false, true, 7, 1},
				{row, kind, n, middling(kind), 0, false, false, 9, -3},
				{row, kind, n, 0, n / 2 + 1, true, true, 11, 1e-30f},
				{row, kind, n, 0x7fffffff, 3, true, true, 13, 1},
				{row, kind, n, UINT32_MAX, 3, true, true, 15, INFINITY},
			};

			for (unsigned c = 0; c < sizeof cases / sizeof *cases; c++)
				check_scan(&cases[c]);
		}
	}
}

Test(primitives, scan)
{
	for (int kind = 0; kind < KIND_COUNT; kind++)
		scan_all((enum kind)kind);
}

/* ---- reduce, scale and axpby ---- */

static void check_reduce(const struct spri_kernel_row *row, enum kind kind, uint64_t n,
			 unsigned in_place)
{
	struct area a = area_make(n * sizeof(float), 4), b = area_make(n * sizeof(float), 12);
	struct area want = area_make(n * sizeof(float), 0), own = area_make(n * sizeof(float), 20);
	float *out = in_place == 0 ? own.data : in_place == 1 ? a.data : b.data;
	bool bad = false, said;

	fill(a.data, n, kind, n + 1);
	fill(b.data, n, kind, n + 2);
	for (uint64_t i = 0; i < n; i++) {
		((float *)want.data)[i] = plain_sum(((float *)a.data)[i], ((float *)b.data)[i]);
		bad = bad || is_bad(((float *)want.data)[i]);
	}
	said = row->reduce(out, a.data, b.data, n);
	expect(said == bad, "%s kind %d n %lu: reduce said %d, expected %d",
	       spri_isa_name(row->isa), kind, n, said, bad);
	expect(memcmp(out, want.data, n * sizeof(float)) == 0,
	       "%s kind %d n %lu in place %u: expected the sums' bits", spri_isa_name(row->isa),
	       kind, n, in_place);
	expect(area_close(&a) && area_close(&b) && area_close(&want) && area_close(&own),
	       "%s n %lu: expected nothing to be written past an end", spri_isa_name(row->isa), n);
}

static void check_scale(const struct spri_kernel_row *row, enum kind kind, uint64_t n, float factor)
{
	struct area in = area_make(n * sizeof(float), 4), out = area_make(n * sizeof(float), 12);
	struct area want = area_make(n * sizeof(float), 0);

	fill(in.data, n, kind, n + 1);
	for (uint64_t i = 0; i < n; i++) {
		float product = ((float *)in.data)[i] * factor;

		((float *)want.data)[i] =
			size_of(product) > 0x7f800000u ? from_bits(CANONICAL_NAN) : product;
	}
	row->scale(out.data, in.data, n, factor);
	expect(memcmp(out.data, want.data, n * sizeof(float)) == 0,
	       "%s kind %d n %lu factor %a: expected the products' bits", spri_isa_name(row->isa),
	       kind, n, (double)factor);
	row->scale(in.data, in.data, n, factor);
	expect(memcmp(in.data, want.data, n * sizeof(float)) == 0,
	       "%s kind %d n %lu factor %a: expected the same bits in place",
	       spri_isa_name(row->isa), kind, n, (double)factor);
	expect(area_close(&in) && area_close(&out) && area_close(&want),
	       "%s n %lu: expected nothing to be written past an end", spri_isa_name(row->isa), n);
}

Test(primitives, reduce_and_scale)
{
	static const float factors[] = {0.25f, -3.0f, 0.0f, INFINITY, 1e-30f};
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (unsigned at = 0; size_at(at) != UINT64_MAX; at++) {
			for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
				check_reduce(row, kind, size_at(at), kind % 3);
				check_reduce(row, kind, size_at(at), (kind + 1) % 3);
				check_scale(row, kind, size_at(at), factors[kind % 5]);
				check_scale(row, kind, size_at(at), factors[(kind + at) % 5]);
			}
		}
	}
}

static void check_axpby(const struct spri_kernel_row *row, enum kind kind, uint64_t n, float a,
			float b)
{
	struct area x = area_make(n * sizeof(float), 4), y = area_make(n * sizeof(float), 12);
	struct area want = area_make(n * sizeof(float), 0), own = area_make(n * sizeof(float), 20);
	float *outs[] = {own.data, x.data, y.data};
	bool bad = false;

	for (unsigned i = 0; i < 3; i++) {
		fill(x.data, n, kind, n + 1);
		fill(y.data, n, kind, n + 2);
		for (uint64_t j = 0; i == 0 && j < n; j++) {
			float ax = a * ((float *)x.data)[j], by = b * ((float *)y.data)[j];

			((float *)want.data)[j] = plain_sum(ax, by);
			bad = bad || is_bad(((float *)want.data)[j]);
		}
		expect(row->axpby(outs[i], a, x.data, b, y.data, n) == bad,
		       "%s kind %d n %lu factors %a %a: expected axpby to say %d",
		       spri_isa_name(row->isa), kind, n, (double)a, (double)b, bad);
		expect(memcmp(outs[i], want.data, n * sizeof(float)) == 0,
		       "%s kind %d n %lu factors %a %a in place %u: expected the bits of the sums",
		       spri_isa_name(row->isa), kind, n, (double)a, (double)b, i);
	}
	expect(area_close(&x) && area_close(&y) && area_close(&want) && area_close(&own),
	       "%s n %lu: expected nothing to be written past an end", spri_isa_name(row->isa), n);
}

Test(primitives, axpby)
{
	static const float factors[][2] = {{1, 1},	     {0.9f, 0.1f},	{-3, 0.7f},
					   {1, 0},	     {INFINITY, 1e-3f}, {1e-30f, 1e30f},
					   {0.333f, -0.333f}};
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (unsigned at = 0; size_at(at) != UINT64_MAX; at++) {
			for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
				const float *factor = factors[(kind + at) % 7];

				check_axpby(row, kind, size_at(at), factor[0], factor[1]);
			}
		}
	}
}

/* ---- histogram and scatter ---- */

static void check_histogram(const struct spri_kernel_row *row, enum kind kind, uint64_t n,
			    unsigned shift)
{
	uint64_t n_bins = (0x7fffffffu >> shift) + 1;
	struct area bins = area_make(n_bins * 8, 8), want = area_make(n_bins * 8, 0);
	struct area v = area_make(n * sizeof(float), 4);
	uint64_t *count = want.data;

	fill(v.data, n, kind, n + 3);
	for (uint64_t i = 0; i < n_bins; i++)
		((uint64_t *)bins.data)[i] = count[i] = i * 3; /* it adds to what is there */
	for (uint64_t i = 0; i < n; i++) {
		uint32_t size = size_of(((float *)v.data)[i]);

		if (size)
			count[size >> shift]++;
	}
	row->histogram(v.data, n, shift, bins.data);
	expect(memcmp(bins.data, want.data, n_bins * 8) == 0,
	       "%s kind %d n %lu shift %u: expected the counts of the bins",
	       spri_isa_name(row->isa), kind, n, shift);
	expect(area_close(&bins) && area_close(&want) && area_close(&v),
	       "expected nothing to be written past an end");
}

Test(primitives, histogram)
{
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
			for (uint64_t n = 0; n <= MAX_TAIL; n++)
				check_histogram(row, kind, n, 20);
			check_histogram(row, kind, 9001, 20);
			check_histogram(row, kind, 300001, 20);
			check_histogram(row, kind, 300001, 23);
			check_histogram(row, kind, 9001, 17);
			check_histogram(row, kind, 20000, 30);
		}
	}
}

static void check_scatter(const struct spri_kernel_row *row, enum kind kind, uint64_t n)
{
	struct area index = area_make(n * 8, 8), value = area_make(n * sizeof(float), 4);
	struct area out = area_make(3 * n * sizeof(float), 4), want = area_make(3 * n * 4, 0);

	fill(value.data, n, kind, n + 4);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t place = 3 * i + i % 3;
		float product = ((float *)value.data)[i] * 0.125f;

		((uint64_t *)index.data)[i] = FAR_BASE + place;
		((float *)want.data)[place] =
			size_of(product) > 0x7f800000u ? from_bits(CANONICAL_NAN) : product;
	}
	row->scatter(out.data, FAR_BASE, index.data, value.data, n, 0.125f);
	expect(memcmp(out.data, want.data, 3 * n * 4) == 0,
	       "%s kind %d n %lu: expected the products at their indices and nothing else",
	       spri_isa_name(row->isa), kind, n);
	expect(area_close(&index) && area_close(&value) && area_close(&out) && area_close(&want),
	       "expected nothing to be written past an end");
}

Test(primitives, scatter)
{
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
			for (uint64_t n = 0; n <= MAX_TAIL; n++)
				check_scatter(row, kind, n);
			check_scatter(row, kind, 5003);
		}
	}
}

/* ---- table and mask ---- */

Test(primitives, table_is_ordered_and_complete)
{
	unsigned i = 0;

	for (; spri_kernel_row(i); i++) {
		const struct spri_kernel_row *row = spri_kernel_row(i);

		cr_assert(row->scan && row->reduce && row->histogram && row->scatter &&
				  row->scale && row->axpby && row->weigh && row->draw,
			  "row %u: expected no empty slot", i);
		cr_assert(i == 0 || row->isa < spri_kernel_row(i - 1)->isa,
			  "row %u: expected best first", i);
	}
	cr_assert(i > 0 && spri_kernel_row(i - 1)->isa == SPRI_ISA_C, "expected C as the last row");
	cr_assert_null(spri_kernel_row(i + 7), "expected NULL past the last row");
}

Test(primitives, mask_allows_less_never_more)
{
	for (int isa = 0; isa < SPRI_ISA_COUNT; isa++) {
		enum spri_isa want =
			(enum spri_isa)isa < spri_cpu_isa() ? (enum spri_isa)isa : spri_cpu_isa();

		spri_isa_allow((enum spri_isa)isa);
		cr_assert_eq(spri_isa_used(), want, "allowing %s: expected %s, got %s",
			     spri_isa_name((enum spri_isa)isa), spri_isa_name(want),
			     spri_isa_name(spri_isa_used()));
		cr_assert_leq((int)spri_kernels()->isa, (int)want,
			      "expected a row that the mask allows");
	}
	spri_isa_allow(SPRI_ISA_COUNT - 1);
	cr_assert_str_eq(spri_isa_name(SPRI_ISA_AVX2), "avx2", "expected the name of the mask");
}

Test(primitives, every_row_was_run)
{
	for (unsigned i = 0; spri_kernel_row(i); i++) {
		if (spri_kernel_row(i)->isa > spri_cpu_isa())
			cr_skip("this CPU has no %s: its row was not tested",
				spri_isa_name(spri_kernel_row(i)->isa));
	}
}
