/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Select against a naive oracle (sums one by one, qsort, the first k), on every row, with every
 * policy: all kinds of vectors, no threshold, a good one, one too high, one too low, tails, ties at
 * the cut, a control register that flushes denormals.
 */
#include <float.h>

#include "vectors.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- oracle ---- */

struct oracle {
	uint64_t n;
	float *sum;	      /* n: what the shadow would be with nothing selected */
	struct entry *ranked; /* the non-zeros, best first */
	uint64_t n_ranked;
	struct spri_finite finite;
};

static float oracle_sum(struct oracle *o, uint64_t i, float g, float r, enum spr_nonfinite policy)
{
	float sum = plain_sum(g, r);

	if (!is_bad(sum))
		return sum;
	if (o->finite.bad_index == SPRI_NO_INDEX)
		o->finite.bad_index = FAR_BASE + i;
	if (policy != SPR_NONFINITE_DROP)
		return sum;
	o->finite.dropped++;
	sum = (is_bad(g) ? 0.0f : g) + (is_bad(r) ? 0.0f : r);
	return is_bad(sum) ? 0.0f : sum;
}

static struct oracle oracle_make(const struct spri_select *s)
{
	struct oracle o = {.n = s->n, .finite = {SPRI_NO_INDEX, 0}};
	const float *r = s->residual;

	o.sum = malloc((s->n + 1) * sizeof *o.sum);
	o.ranked = malloc((s->n + 1) * sizeof *o.ranked);
	expect(o.sum && o.ranked, "expected memory for a test");
	for (uint64_t i = 0; i < s->n; i++) {
		o.sum[i] = oracle_sum(&o, i, s->gradient[i] * s->scale, r ? r[i] : 0.0f, s->policy);
		if (size_of(o.sum[i]))
			o.ranked[o.n_ranked++] = (struct entry){i, o.sum[i]};
	}
	qsort(o.ranked, o.n_ranked, sizeof *o.ranked, by_rank);
	return o;
}

static void oracle_free(struct oracle *o)
{
	free(o->sum);
	free(o->ranked);
}

static uint64_t at_or_above(const struct oracle *o, uint32_t key)
{
	uint64_t count = 0;

	while (count < o->n_ranked && size_of(o->ranked[count].value) >= key)
		count++;
	return count;
}

/* ---- one selection ---- */

struct select_case {
	const struct spri_kernel_row *row;
	enum kind kind;
	enum spr_nonfinite policy;
	uint64_t n, k;
	bool residual, shadow;
	unsigned skew; /* floats off alignment */
	float scale;   /* on the gradient; 0: none, that is 1 */
};

/* Inputs and outputs of a case. */
struct bench {
	struct area g, r, shadow, index, value;
	struct spri_select s;
};

static void bench_open(struct bench *b, const struct select_case *c)
{
	uint64_t capacity = spri_select_capacity(c->n, c->k);

	b->g = area_make(c->n * sizeof(float), c->skew * sizeof(float));
	b->r = area_make(c->n * sizeof(float), (c->skew + 2) % 16 * sizeof(float));
	b->shadow = area_make(c->n * sizeof(float), (c->skew + 5) % 16 * sizeof(float));
	b->index = area_make(capacity * sizeof(uint64_t), 8);
	b->value = area_make(capacity * sizeof(float), 4);
	fill(b->g.data, c->n, c->kind, c->n + 1);
	fill(b->r.data, c->n, c->kind, c->n + 1000);
	b->s = (struct spri_select){
		.gradient = b->g.data,
		.residual = c->residual ? b->r.data : NULL,
		.scale = c->scale != 0 ? c->scale : 1,
		.shadow = c->shadow ? b->shadow.data : NULL,
		.n = c->n,
		.base = FAR_BASE,
		.k = c->k,
		.policy = c->policy,
		.index = b->index.data,
		.value = b->value.data,
		.capacity = capacity,
	};
}

static void bench_close(struct bench *b)
{
	expect(area_close(&b->g) && area_close(&b->r) && area_close(&b->shadow) &&
		       area_close(&b->index) && area_close(&b->value),
	       "n %lu k %lu: expected nothing to be written past an end", b->s.n, b->s.k);
}

static void check_shadow(const struct select_case *c, const struct spri_select *s,
			 const struct oracle *o)
{
	uint64_t next = 0;

	for (uint64_t i = 0; i < c->n; i++) {
		bool selected = next < s->count && s->index[next] == FAR_BASE + i;
		uint32_t want = selected ? 0 : bits_of(o->sum[i]);

		next += selected;
		expect(bits_of(s->shadow[i]) == want,
		       "%s kind %d policy %d n %lu k %lu: shadow[%lu] is %08x, expected %08x",
		       spri_isa_name(c->row->isa), c->kind, c->policy, c->n, c->k, i,
		       bits_of(s->shadow[i]), want);
	}
}

static void check_result(const struct select_case *c, const struct spri_select *s,
			 const struct oracle *o)
{
	uint64_t count = c->k < o->n_ranked ? c->k : o->n_ranked;
	struct entry *want = malloc((count + 1) * sizeof *want);

	expect(want, "expected memory for a test");
	memcpy(want, o->ranked, count * sizeof *want);
	qsort(want, count, sizeof *want, by_index);
	expect(s->count == count, "%s kind %d policy %d n %lu k %lu: selected %lu, expected %lu",
	       spri_isa_name(c->row->isa), c->kind, c->policy, c->n, c->k, s->count, count);
	for (uint64_t i = 0; i < count; i++)
		expect(s->index[i] == FAR_BASE + want[i].index &&
			       bits_of(s->value[i]) == bits_of(want[i].value),
		       "%s kind %d policy %d n %lu k %lu: entry %lu is (%lu, %08x), expected "
		       "(%lu, %08x)",
		       spri_isa_name(c->row->isa), c->kind, c->policy, c->n, c->k, i,
		       s->index[i] - FAR_BASE, bits_of(s->value[i]), want[i].index,
		       bits_of(want[i].value));
	expect(s->finite.bad_index == o->finite.bad_index && s->finite.dropped == o->finite.dropped,
	       "kind %d policy %d n %lu: finite is (%lu, %lu), expected (%lu, %lu)", c->kind,
	       c->policy, c->n, s->finite.bad_index, s->finite.dropped, o->finite.bad_index,
	       o->finite.dropped);
	if (c->shadow)
		check_shadow(c, s, o);
	free(want);
}

/* From no threshold, then the carried one, then one too high, then one too low. */
static void check_select(const struct select_case *c, const struct oracle *o)
{
	struct bench b;
	uint32_t carried;

	bench_open(&b, c);
	spri_select(&b.s);
	check_result(c, &b.s, o);
	expect(!b.s.repaired, "kind %d n %lu k %lu: expected one pass without a threshold", c->kind,
	       c->n, c->k);
	carried = b.s.threshold;
	spri_select(&b.s);
	check_result(c, &b.s, o);
	expect(!b.s.repaired || c->k > o->n_ranked,
	       "kind %d n %lu k %lu: expected one pass with the carried threshold %08x", c->kind,
	       c->n, c->k, carried);
	b.s.threshold = 0x7fffffff;
	spri_select(&b.s);
	check_result(c, &b.s, o);
	expect(b.s.repaired == (c->k > 0 && c->k < c->n && c->n > 0),
	       "kind %d n %lu k %lu: repaired is %d after a threshold that nothing reaches",
	       c->kind, c->n, c->k, b.s.repaired);
	b.s.threshold = o->n_ranked ? size_of(o->ranked[o->n_ranked - 1].value) : 1;
	spri_select(&b.s);
	check_result(c, &b.s, o);
	expect(!b.s.repaired || c->k > o->n_ranked,
	       "kind %d n %lu k %lu: expected a threshold too low to cost no pass", c->kind, c->n,
	       c->k);
	bench_close(&b);
}

static void check_counts(struct select_case c, const uint64_t *ks, unsigned n_ks)
{
	struct select_case probe = c;
	struct oracle o;
	struct bench b;

	probe.k = 0;
	bench_open(&b, &probe);
	o = oracle_make(&b.s);
	bench_close(&b);
	for (unsigned row = 0; (c.row = usable_row(row)); row++) {
		spri_isa_allow(c.row->isa);
		for (unsigned i = 0; i < n_ks; i++) {
			c.k = ks[i];
			c.skew = (unsigned)(c.n + i) % 16;
			c.shadow = (i + row) % 4 != 3;
			check_select(&c, &o);
		}
	}
	spri_isa_allow(SPRI_ISA_COUNT - 1);
	oracle_free(&o);
}

static void check_size(uint64_t n, enum spr_nonfinite policy)
{
	static const float scales[] = {1, 0.3f, -2, 1e-3f};
	const uint64_t ks[] = {0, 1, 2, n / 1000 + 1, n / 10, n / 2, n > 0 ? n - 1 : 0, n, n + 5};

	for (int kind = 0; kind < KIND_COUNT; kind++) {
		for (int residual = 0; residual < 2; residual++) {
			struct select_case c = {.kind = (enum kind)kind, .policy = policy, .n = n};

			c.residual = residual;
			c.scale = scales[(n + (unsigned)kind) % 4];
			check_counts(c, ks, sizeof ks / sizeof *ks);
		}
	}
}

static void check_policy(enum spr_nonfinite policy)
{
	static const uint64_t sizes[] = {127, 4999, 9001};

	for (uint64_t n = 0; n <= 70; n++)
		check_size(n, policy);
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
		check_size(sizes[i], policy);
}

Test(select, policy_error)
{
	check_policy(SPR_NONFINITE_ERROR);
}
Test(select, policy_propagate)
{
	check_policy(SPR_NONFINITE_PROPAGATE);
}
Test(select, policy_drop)
{
	check_policy(SPR_NONFINITE_DROP);
}

/* Several blocks, streaming stores, a pile that has to be pruned again and again. */
Test(select, large)
{
	const uint64_t ks[] = {1, 200, 20000, 120000};

	for (int kind = 0; kind < KIND_COUNT; kind++) {
		struct select_case c = {.kind = (enum kind)kind, .n = 263017, .residual = true};

		c.policy = (enum spr_nonfinite)(kind % 3);
		c.scale = kind & 1 ? 0.7f : 1.0f;
		check_counts(c, ks, sizeof ks / sizeof *ks);
	}
}

/* ---- the threshold ---- */

Test(select, next_threshold_lets_a_quarter_more_qualify)
{
	static const uint64_t ks[] = {100, 1000, 20000};

	for (unsigned i = 0; i < sizeof ks / sizeof *ks; i++) {
		struct select_case c = {usable_row(0), KIND_SMALL, 0, 300000, ks[i],
					true,	       true,	   0, 1};
		struct oracle o;
		struct bench b;

		bench_open(&b, &c);
		o = oracle_make(&b.s);
		for (unsigned step = 0; step < 4; step++) {
			uint64_t qualified;

			spri_select(&b.s);
			qualified = at_or_above(&o, b.s.threshold);
			cr_assert(qualified >= c.k + c.k / 10 && qualified <= c.k * 2,
				  "k %lu step %u: %lu qualify next, expected about %lu", c.k, step,
				  qualified, c.k + c.k / 4);
			cr_assert(!b.s.repaired, "k %lu step %u: expected one pass", c.k, step);
		}
		oracle_free(&o);
		bench_close(&b);
	}
}

Test(select, a_shrinking_gradient_is_repaired_exactly)
{
	struct select_case c = {usable_row(0), KIND_SMALL, 0, 100000, 1000, true, true, 0, 1};
	struct oracle o;
	struct bench b;

	bench_open(&b, &c);
	spri_select(&b.s);
	for (uint64_t i = 0; i < c.n; i++) {
		((float *)b.g.data)[i] *= 0x1p-3f;
		((float *)b.r.data)[i] *= 0x1p-3f;
	}
	o = oracle_make(&b.s);
	spri_select(&b.s);
	cr_assert(b.s.repaired, "expected a second pass after the values shrank to an eighth");
	check_result(&c, &b.s, &o);
	spri_select(&b.s);
	cr_assert(!b.s.repaired, "expected one pass with the repaired threshold");
	check_result(&c, &b.s, &o);
	oracle_free(&o);
	bench_close(&b);
}

Test(select, capacity_is_bounded)
{
	cr_assert_eq(spri_select_capacity(0, 7), 0, "expected no candidates of nothing");
	cr_assert_eq(spri_select_capacity(10, 20), 10, "expected no more candidates than elements");
	cr_assert_leq(spri_select_capacity(UINT64_C(1) << 48, 1000), 16384,
		      "expected a capacity that depends on k, not on n");
	cr_assert_geq(spri_select_capacity(UINT64_C(1) << 48, UINT64_C(1) << 47), UINT64_C(1) << 47,
		      "expected no overflow");
}

/* ---- the control register ---- */

Test(select, denormals_and_rounding_do_not_depend_on_the_caller)
{
#if defined(__x86_64__)
	const unsigned flush = 0xffc0; /* FTZ, DAZ, towards zero, traps masked */
	struct select_case c = {usable_row(0), KIND_DENORMAL, 0, 5000, 300, true, true, 1, 0.5f};
	unsigned before = _mm_getcsr(), after;
	struct oracle o;
	struct bench b;

	for (unsigned row = 0; (c.row = usable_row(row)); row++) {
		spri_isa_allow(c.row->isa);
		for (int kind = KIND_SMALL; kind < KIND_COUNT; kind++) {
			c.kind = (enum kind)kind;
			bench_open(&b, &c);
			o = oracle_make(&b.s);
			_mm_setcsr(flush);
			spri_select(&b.s);
			after = _mm_getcsr();
			_mm_setcsr(before);
			expect((after & 0xffc0) == flush,
			       "the control register is %04x, expected it put back to %04x", after,
			       flush);
			check_result(&c, &b.s, &o);
			oracle_free(&o);
			bench_close(&b);
		}
	}
#else
	cr_skip("no MXCSR on this CPU");
#endif
}
