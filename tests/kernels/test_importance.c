/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Importance, on every row: both primitives and the operation, bit by bit, against what the
 * contract says, computed here one element at a time: all kinds of vectors, every tail, misaligned,
 * guarded, in place, every policy; random numbers against recorded ones; sums in the documented
 * order.
 */
#include <float.h>

#include <internal/philox.h>

#include "vectors.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define LANES 8
#define BLOCK 4096
#define GROUP 32

static bool same_double(double a, double b)
{
	return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static bool same_float(float a, float b)
{
	return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

static float plain_importance(float a, float w, float floor)
{
	float size = from_bits(size_of(w));

	return from_bits(size_of(a)) / (size > floor ? size : floor);
}

static bool plain_choice(uint64_t key, uint64_t step, uint64_t j, float threshold, float importance)
{
	uint32_t word[4];
	float u;

	spri_philox4(key, j / 32 * 8 + j % 8, step, word);
	u = (float)((word[j / 8 % 4] >> 8) + 1) * 0x1p-24f;
	return !(u * threshold >= importance);
}

/* ---- sums, in the documented order ---- */

struct plain_sums {
	double sum[LANES], sum_squares[LANES], weight_squares[LANES];
};

static void plain_add(struct plain_sums *s, uint64_t i, float importance, float w)
{
	double value = is_bad(importance) ? 0 : importance;

	s->sum[i % LANES] += value;
	s->sum_squares[i % LANES] += value * value;
	s->weight_squares[i % LANES] += (double)w * w;
}

static double plain_block(const double *lane)
{
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
	       ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* n blocks: the largest power of two of them, by halves, and then the rest. */
static double plain_tree(const double *block, uint64_t n)
{
	uint64_t left = 1;

	if (n < 2)
		return n ? block[0] : 0;
	while (left * 2 < n)
		left *= 2;
	return plain_tree(block, left) + plain_tree(block + left, n - left);
}

/* ---- weigh ---- */

struct weigh_case {
	const struct spri_kernel_row *row;
	enum kind kind;
	uint64_t n;
	float scale, floor;
	unsigned place; /* of the shadow: its own, the residual's, the gradient's */
	bool stream, keep;
};

static void check_weighed(const struct weigh_case *c, const struct spri_weigh *s, const float *g,
			  const float *r)
{
	struct plain_sums want;
	bool bad = false;

	for (unsigned j = 0; j < LANES; j++)
		want.sum[j] = want.sum_squares[j] = want.weight_squares[j] = 1e-3 * j;
	for (uint64_t i = 0; i < c->n; i++) {
		float a = plain_sum(g[i] * c->scale, r[i]);
		float importance = plain_importance(a, s->weight[i], c->floor);

		bad = bad || is_bad(a);
		plain_add(&want, i, importance, s->weight[i]);
		expect(bits_of(s->shadow[i]) == bits_of(a),
		       "%s kind %d n %lu: shadow[%lu] is %08x, expected %08x",
		       spri_isa_name(c->row->isa), c->kind, c->n, i, bits_of(s->shadow[i]),
		       bits_of(a));
		expect(!c->keep || same_float(s->importance[i], importance),
		       "%s kind %d n %lu: importance[%lu] is %a, expected %a",
		       spri_isa_name(c->row->isa), c->kind, c->n, i, (double)s->importance[i],
		       (double)importance);
	}
	expect(s->nonfinite == bad, "%s kind %d n %lu: nonfinite is %d, expected %d",
	       spri_isa_name(c->row->isa), c->kind, c->n, s->nonfinite, bad);
	for (unsigned j = 0; j < LANES; j++)
		expect(same_double(s->sum[j], want.sum[j]) &&
			       same_double(s->sum_squares[j], want.sum_squares[j]) &&
			       same_double(s->weight_squares[j], want.weight_squares[j]),
		       "%s kind %d n %lu lane %u: sums %a %a %a, expected %a %a %a",
		       spri_isa_name(c->row->isa), c->kind, c->n, j, s->sum[j], s->sum_squares[j],
		       s->weight_squares[j], want.sum[j], want.sum_squares[j],
		       want.weight_squares[j]);
}

static void check_weigh(const struct weigh_case *c)
{
	size_t bytes = c->n * sizeof(float);
	struct area g = area_make(bytes, 4), r = area_make(bytes, 12), w = area_make(bytes, 8);
	struct area own = area_make(bytes, c->stream ? 0 : 20), keep = area_make(bytes, 4);
	struct area first_g = area_make(bytes, 0), first_r = area_make(bytes, 0);
	struct spri_weigh s = {
		.gradient = g.data,
		.residual = r.data,
		.weight = w.data,
		.shadow = c->place == 0	  ? own.data
			  : c->place == 1 ? r.data
					  : g.data,
		.n = c->n,
		.scale = c->scale,
		.floor = c->floor,
		.stream = c->stream,
		.importance = c->keep ? keep.data : NULL,
	};

	for (unsigned j = 0; j < LANES; j++)
		s.sum[j] = s.sum_squares[j] = s.weight_squares[j] = 1e-3 * j;
	fill(g.data, c->n, c->kind, c->n + 1);
	fill(r.data, c->n, c->kind, c->n + 2);
	fill(w.data, c->n, c->n % 2 ? KIND_SMALL : c->kind, c->n + 3);
	memcpy(first_g.data, g.data, bytes);
	memcpy(first_r.data, r.data, bytes);
	c->row->weigh(&s);
	check_weighed(c, &s, first_g.data, first_r.data);
	expect(area_close(&g) && area_close(&r) && area_close(&w) && area_close(&own) &&
		       area_close(&keep) && area_close(&first_g) && area_close(&first_r),
	       "%s n %lu: expected nothing to be written past an end", spri_isa_name(c->row->isa),
	       c->n);
}

Test(importance, weigh)
{
	static const float scales[] = {1, 0.3f, -2, INFINITY, 0};
	static const float floors[] = {1e-3f, 0.25f, 1e-38f, 1e-42f};
	const struct spri_kernel_row *row;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (uint64_t n = 0; n <= SPRI_WEIGH_MOST; n += n < 70 ? 1 : 13 * 17) {
			for (unsigned kind = 0; kind < KIND_COUNT; kind++) {
				unsigned turn = (unsigned)n + kind;
				struct weigh_case c = {row,
						       (enum kind)kind,
						       n,
						       scales[turn % 5],
						       floors[turn % 4],
						       0,
						       false,
						       true};

				check_weigh(&c);
				c.stream = true;
				check_weigh(&c);
				c.keep = false;
				check_weigh(&c);
				c.stream = false;
				c.scale = 1;
				c.place = 1 + turn % 2;
				check_weigh(&c);
			}
		}
	}
}

/* ---- draw ---- */

struct draw_case {
	const struct spri_kernel_row *row;
	enum kind kind;
	uint64_t n_groups, group;
	float threshold;
	uint64_t key, step;
	uint64_t capacity;
};

static void check_draw(const struct draw_case *c)
{
	struct area importance = area_make(c->n_groups * GROUP * sizeof(float), 0);
	struct area index = area_make(c->capacity * sizeof(uint64_t), 8);
	float *value = importance.data;
	uint64_t chosen = 0, written = 0;
	struct spri_draw s = {
		.importance = value,
		.group = c->group,
		.n_groups = c->n_groups,
		.threshold = c->threshold,
		.key = c->key,
		.step = c->step,
		.index = index.data,
		.capacity = c->capacity,
		.n_chosen = 5, /* both are added to */
	};

	fill(value, c->n_groups * GROUP, c->kind, c->group + c->key);
	for (uint64_t i = 0; i < c->n_groups * GROUP; i++)
		value[i] = from_bits(size_of(value[i]));
	c->row->draw(&s);
	for (uint64_t i = 0; i < c->n_groups * GROUP; i++) {
		uint64_t j = c->group * GROUP + i;

		if (!plain_choice(c->key, c->step, j, c->threshold, value[i]))
			continue;
		chosen++;
		if (written == c->capacity)
			continue;
		expect(s.index[written] == j, "%s kind %d group %lu: chosen is %lu, expected %lu",
		       spri_isa_name(c->row->isa), c->kind, c->group, s.index[written], j);
		written++;
	}
	expect(s.n_chosen == chosen + 5 && s.count == written,
	       "%s kind %d group %lu threshold %a: %lu chosen, expected %lu",
	       spri_isa_name(c->row->isa), c->kind, c->group, (double)c->threshold, s.n_chosen - 5,
	       chosen);
	expect(area_close(&importance) && area_close(&index),
	       "expected nothing to be written past an end");
}

Test(importance, draw)
{
	static const float thresholds[] = {1, 0.125f, 0, 3e4f, 1e-40f, INFINITY, 1e30f};
	static const uint64_t groups[] = {0, 1, 3, (UINT64_C(1) << 29) - 2, FAR_BASE};
	const struct spri_kernel_row *row;
	uint64_t state = 7;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (unsigned turn = 0; turn < KIND_COUNT * 7 * 5; turn++) {
			struct draw_case c = {row, (enum kind)(turn % KIND_COUNT), turn % 19};

			c.group = groups[turn / KIND_COUNT % 5];
			c.threshold = thresholds[turn / KIND_COUNT / 5];
			c.key = next_random(&state);
			c.step = turn % 3 ? turn : next_random(&state);
			c.capacity = turn % 2 ? c.n_groups * GROUP : c.n_groups * 4;
			check_draw(&c);
		}
	}
}

/* Random123's known answers for Philox4x32-10: counter, key, words. */
static const struct {
	uint64_t counter, step, key;
	uint32_t word[4];
} recorded[] = {
	{0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	{UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
	{0x85a308d3243f6a88,
	 0x0370734413198a2e,
	 0x299f31d0a4093822,
	 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

/* With threshold 1, an importance of u is not chosen, and the next larger is. */
Test(importance, random_numbers_are_the_recorded_ones)
{
	SPRI_ALIGNED(64) float importance[GROUP];
	const struct spri_kernel_row *row;
	uint64_t index[GROUP];

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		for (unsigned at = 0; at < sizeof recorded / sizeof *recorded * 4; at++) {
			unsigned w = at % 4, lane = recorded[at / 4].counter % 8;
			float u = (float)((recorded[at / 4].word[w] >> 8) + 1) * 0x1p-24f;
			struct spri_draw s = {importance, recorded[at / 4].counter / 8, 1, 1};

			s.key = recorded[at / 4].key;
			s.step = recorded[at / 4].step;
			s.index = index;
			s.capacity = GROUP;
			memset(importance, 0, sizeof importance);
			importance[8 * w + lane] = u;
			row->draw(&s);
			expect(s.n_chosen == 0, "%s vector %u word %u: u is below %a",
			       spri_isa_name(row->isa), at / 4, w, (double)u);
			importance[8 * w + lane] = nextafterf(u, 2);
			row->draw(&s);
			expect(s.n_chosen == 1, "%s vector %u word %u: u is above %a",
			       spri_isa_name(row->isa), at / 4, w, (double)u);
		}
	}
}

/* ---- the operation ---- */

struct whole_case {
	enum kind kind;
	enum spr_nonfinite policy;
	uint64_t n, base;
	float scale, floor, threshold;
	bool in_place, choose;
	uint64_t capacity;
	unsigned skew;
};

struct whole {
	struct area g, r, w, own, index;
	float *first_residual;
	struct spri_importance s;
};

static void whole_open(struct whole *o, const struct whole_case *c)
{
	size_t bytes = c->n * sizeof(float);

	o->g = area_make(bytes, c->skew * 4);
	o->r = area_make(bytes, (c->skew + 3) % 16 * 4);
	o->w = area_make(bytes, (c->skew + 5) % 16 * 4);
	o->own = area_make(bytes, c->skew * 4);
	o->index = area_make(c->capacity * sizeof(uint64_t), 8);
	fill(o->g.data, c->n, c->kind, c->n + 1);
	fill(o->r.data, c->n, c->kind, c->n + 2);
	fill(o->w.data, c->n, c->kind % 2 ? KIND_SMALL : c->kind, c->n + 3);
	o->first_residual = malloc(bytes + 1);
	expect(o->first_residual, "expected memory for a test");
	memcpy(o->first_residual, o->r.data, bytes);
	o->s = (struct spri_importance){
		.gradient = o->g.data,
		.residual = o->r.data,
		.weight = o->w.data,
		.shadow = c->in_place ? o->r.data : o->own.data,
		.n = c->n,
		.base = c->base,
		.scale = c->scale,
		.floor = c->floor,
		.choose = c->choose,
		.threshold = c->threshold,
		.key = c->n * 77,
		.step = c->base + 3,
		.policy = c->policy,
		.index = o->index.data,
		.capacity = c->capacity,
	};
}

static void whole_close(struct whole *o)
{
	expect(area_close(&o->g) && area_close(&o->r) && area_close(&o->w) && area_close(&o->own) &&
		       area_close(&o->index),
	       "n %lu: expected nothing to be written past an end", o->s.n);
	free(o->first_residual);
}

static float plain_accumulate(const struct whole_case *c, const struct whole *o, uint64_t i,
			      struct spri_finite *finite)
{
	float g = o->s.gradient[i] * c->scale, r = o->first_residual[i], a = plain_sum(g, r);

	if (!is_bad(a))
		return a;
	if (finite->bad_index == SPRI_NO_INDEX)
		finite->bad_index = c->base + i;
	if (c->policy != SPR_NONFINITE_DROP)
		return a;
	finite->dropped++;
	a = (is_bad(g) ? 0.0f : g) + (is_bad(r) ? 0.0f : r);
	return is_bad(a) ? 0.0f : a;
}

static void check_sums(const struct whole_case *c, const struct spri_importance *s, double *block,
		       uint64_t n_blocks)
{
	double sum = plain_tree(block, n_blocks);
	double squares = plain_tree(block + n_blocks, n_blocks);
	double weights = plain_tree(block + 2 * n_blocks, n_blocks);

	expect(same_double(s->sum, sum) && same_double(s->sum_squares, squares) &&
		       same_double(s->weight_squares, weights),
	       "kind %d policy %d n %lu: sums %a %a %a, expected %a %a %a", c->kind, c->policy,
	       c->n, s->sum, s->sum_squares, s->weight_squares, sum, squares, weights);
}

/* Element by element; o->s has been run. */
static void check_whole(const struct whole_case *c, const struct whole *o)
{
	uint64_t n_blocks = (c->n + BLOCK - 1) / BLOCK, chosen = 0, written = 0;
	double *block = calloc(3 * n_blocks + 1, sizeof *block);
	struct spri_finite finite = {SPRI_NO_INDEX, 0};
	const struct spri_importance *s = &o->s;
	struct plain_sums lanes = {0};

	expect(block, "expected memory for a test");
	for (uint64_t i = 0; i < c->n; i++) {
		float a = plain_accumulate(c, o, i, &finite);
		float importance = plain_importance(a, s->weight[i], c->floor);

		expect(bits_of(s->shadow[i]) == bits_of(a),
		       "kind %d policy %d n %lu: shadow[%lu] is %08x, expected %08x", c->kind,
		       c->policy, c->n, i, bits_of(s->shadow[i]), bits_of(a));
		plain_add(&lanes, i, importance, s->weight[i]);
		if (i % BLOCK == BLOCK - 1 || i == c->n - 1) {
			block[i / BLOCK] = plain_block(lanes.sum);
			block[n_blocks + i / BLOCK] = plain_block(lanes.sum_squares);
			block[2 * n_blocks + i / BLOCK] = plain_block(lanes.weight_squares);
			memset(&lanes, 0, sizeof lanes);
		}
		if (!c->choose ||
		    !plain_choice(s->key, s->step, c->base + i, c->threshold, importance))
			continue;
		chosen++;
		if (written < c->capacity)
			expect(s->index[written++] == c->base + i,
			       "kind %d n %lu base %lu: chosen is %lu, expected %lu", c->kind, c->n,
			       c->base, s->index[written - 1], c->base + i);
	}
	expect(s->n_chosen == chosen && s->count == written, "kind %d n %lu: %lu chosen of %lu",
	       c->kind, c->n, s->n_chosen, chosen);
	expect(s->bad_index == finite.bad_index && s->dropped == finite.dropped,
	       "kind %d policy %d n %lu: finite is (%lu, %lu), expected (%lu, %lu)", c->kind,
	       c->policy, c->n, s->bad_index, s->dropped, finite.bad_index, finite.dropped);
	check_sums(c, s, block, n_blocks);
	free(block);
}

static void run_whole(const struct whole_case *c)
{
	const struct spri_kernel_row *row;
	struct whole o;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		spri_isa_allow(row->isa);
		whole_open(&o, c);
		spri_importance(&o.s);
		check_whole(c, &o);
		whole_close(&o);
	}
	spri_isa_allow(SPRI_ISA_COUNT - 1);
}

Test(importance, operation)
{
	static const uint64_t sizes[] = {127, 511, 512, 513, 4095, 4097, 16384, 31007, 70001};
	static const float scales[] = {1, 0.3f, -2};
	static const float thresholds[] = {1, 8, 0.1f, 1000};

	for (unsigned at = 0; at < 71 + sizeof sizes / sizeof *sizes; at++) {
		uint64_t n = at < 71 ? at : sizes[at - 71];

		for (unsigned turn = 0; turn < KIND_COUNT * 3; turn++) {
			struct whole_case c = {.kind = (enum kind)(turn % KIND_COUNT), .n = n};

			c.policy = (enum spr_nonfinite)(turn / KIND_COUNT);
			c.base = (at + turn) % 3 ? FAR_BASE + at * 5 : 0;
			c.scale = scales[(at + turn) % 3];
			c.floor = turn % 4 ? 1e-2f : 1e-40f;
			c.threshold = thresholds[(at + turn) % 4];
			c.in_place = (at + turn) % 5 > 2;
			c.choose = (at + turn) % 7 > 1;
			c.capacity = (at + turn) % 4 ? n : n / 9;
			c.skew = (at + turn) % 6 > 2 ? 0 : (unsigned)(at + turn) % 16;
			run_whole(&c);
		}
	}
}

/* Makes the whole a piece of it, `most` long at most. */
static void cut(struct spri_importance *part, uint64_t at, uint64_t n, uint64_t most)
{
	part->gradient += at;
	part->residual += at;
	part->weight += at;
	part->shadow += at;
	part->n = n - at < most ? n - at : most;
	part->base += at;
}

/* What is drawn depends on the index alone: any division of a vector chooses the same. */
Test(importance, a_divided_vector_chooses_the_same)
{
	const uint64_t n = 9001, base = 77;
	struct whole_case c = {KIND_SMALL, 0, n, base, 1, 1e-2f, 4, false, true, n, 1};
	struct whole all, parts;
	uint64_t count = 0;

	whole_open(&all, &c);
	whole_open(&parts, &c);
	spri_importance(&all.s);
	for (uint64_t at = 0; at < n; at += 1237) {
		struct spri_importance part = parts.s;

		cut(&part, at, n, 1237);
		part.index += count;
		spri_importance(&part);
		count += part.count;
	}
	cr_assert_eq(count, all.s.count, "%lu chosen in parts, expected %lu", count, all.s.count);
	cr_assert(memcmp(parts.s.index, all.s.index, count * sizeof *all.s.index) == 0);
	cr_assert(memcmp(parts.s.shadow, all.s.shadow, n * sizeof(float)) == 0);
	whole_close(&all);
	whole_close(&parts);
}

/* The sums of a vector divided at blocks are those of the whole, to the bit. */
Test(importance, a_divided_vector_has_the_same_sums)
{
	const uint64_t n = 23 * BLOCK + 17, most = 5 * BLOCK;
	struct whole_case c = {KIND_SMALL, 0, n, 0, 1, 1e-2f, 4, false, true, n, 1};
	struct spri_tree trees[3] = {{{0}}};
	struct spri_importance part;
	struct whole all, parts;

	whole_open(&all, &c);
	whole_open(&parts, &c);
	spri_importance(&all.s);
	for (uint64_t at = 0; at < n; at += most) {
		part = parts.s;
		cut(&part, at, n, most);
		part.trees = trees;
		spri_importance(&part);
	}
	cr_assert(part.sum == all.s.sum && part.sum_squares == all.s.sum_squares &&
			  part.weight_squares == all.s.weight_squares,
		  "expected the sums of the whole, got %a for %a", part.sum, all.s.sum);
	whole_close(&all);
	whole_close(&parts);
}

/* Many draws: as many are chosen as the probabilities add up to, within six deviations. */
Test(importance, chosen_in_proportion)
{
	const uint64_t n = 400000;
	struct whole_case c = {KIND_SMALL, 0, n, 0, 1, 0.05f, 200, false, true, n, 0};
	double expected = 0, variance = 0;
	struct whole o;

	whole_open(&o, &c);
	spri_importance(&o.s);
	for (uint64_t i = 0; i < n; i++) {
		double p = plain_importance(o.s.shadow[i], o.s.weight[i], c.floor) / 200.0;

		p = p < 1 ? p : 1;
		expected += p;
		variance += p * (1 - p);
	}
	cr_assert_gt(expected, 1000, "expected enough to judge by, got %g", expected);
	cr_assert_leq(fabs((double)o.s.n_chosen - expected), 6 * sqrt(variance),
		      "%lu chosen, expected about %g", o.s.n_chosen, expected);
	whole_close(&o);
}

Test(importance, control_register_does_not_matter)
{
#if defined(__x86_64__)
	const unsigned flush = 0xffc0; /* FTZ, DAZ, towards zero, traps masked */
	unsigned before = _mm_getcsr(), after;
	const struct spri_kernel_row *row;
	struct whole o;

	for (unsigned i = 0; (row = usable_row(i)); i++) {
		spri_isa_allow(row->isa);
		for (int kind = 0; kind < KIND_COUNT; kind++) {
			struct whole_case c = {(enum kind)kind, kind % 3, 5003, 9, 0.3f, 1e-40f, 1,
					       false,		true,	  5003, 1};

			whole_open(&o, &c);
			_mm_setcsr(flush);
			spri_importance(&o.s);
			after = _mm_getcsr();
			_mm_setcsr(before);
			expect((after & 0xffc0) == flush,
			       "the control register is %04x, expected %04x", after, flush);
			check_whole(&c, &o);
			whole_close(&o);
		}
	}
	spri_isa_allow(SPRI_ISA_COUNT - 1);
#else
	cr_skip("no MXCSR on this CPU");
#endif
}
