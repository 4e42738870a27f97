/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Select in parts against select in one go, on every row: all outputs the same, however the walk is
 * divided; and what a caller relies on that sends candidates before the end: they stay where they
 * are until a prune, none is below the floor, what vanished was not selected, and the cut says of
 * every entry whether it was.
 */
#include "vectors.h"

/* How a walk is divided. */
enum parts { PARTS_ELEMENTS, PARTS_RANDOM, PARTS_COUNT };

/* What is carried into a step. */
enum carried { CARRIED_NONE, CARRIED_GOOD, CARRIED_HIGH, CARRIED_LOW, CARRIED_COUNT };

struct walk_case {
	enum kind kind;
	enum spr_nonfinite policy;
	uint64_t n, k;
	uint32_t threshold;
	enum parts parts;
	bool shadow;
};

/* One selection with memory of its own. */
struct own {
	float *shadow;
	uint64_t *index;
	float *value;
	struct spri_select s;
};

static void own_open(struct own *own, const struct walk_case *c, const float *g, const float *r)
{
	uint64_t capacity = spri_select_capacity(c->n, c->k);

	own->shadow = calloc(c->n + 1, sizeof(float));
	own->index = calloc(capacity + 1, sizeof(uint64_t));
	own->value = calloc(capacity + 1, sizeof(float));
	expect(own->shadow && own->index && own->value, "expected memory for a test");
	own->s = (struct spri_select){
		.gradient = g,
		.residual = r,
		.scale = 0.75f,
		.shadow = c->shadow ? own->shadow : NULL,
		.n = c->n,
		.base = FAR_BASE,
		.k = c->k,
		.policy = c->policy,
		.threshold = c->threshold,
		.index = own->index,
		.value = own->value,
		.capacity = capacity,
	};
}

static void own_close(struct own *own)
{
	free(own->shadow);
	free(own->index);
	free(own->value);
}

static bool passes(const struct spri_select *s, uint64_t index, float value)
{
	return size_of(value) > s->cut_key ||
	       (size_of(value) == s->cut_key && index <= s->cut_index);
}

static uint64_t next_part(const struct walk_case *c, uint64_t *state)
{
	switch (c->parts) {
	case PARTS_RANDOM:
		return next_random(state) % 100000 * (next_random(state) % 3);
	default:
		return 1; /* a block */
	}
}

/* What a sender saw: a copy of all candidates since the last prune, and those gone with prunes. */
struct seen {
	struct spri_list now, gone;
	uint32_t pruned;
};

static void seen_open(struct seen *seen, uint64_t n)
{
	memset(seen, 0, sizeof *seen);
	seen->now.index = calloc(n + 1, sizeof(uint64_t));
	seen->now.value = calloc(n + 1, sizeof(float));
	seen->gone.index = calloc(n + 1, sizeof(uint64_t));
	seen->gone.value = calloc(n + 1, sizeof(float));
	expect(seen->now.index && seen->now.value && seen->gone.index && seen->gone.value,
	       "expected memory for a test");
}

static void seen_close(struct seen *seen)
{
	free(seen->now.index);
	free(seen->now.value);
	free(seen->gone.index);
	free(seen->gone.value);
}

/* Entries of `now` that the pile no longer has go to `gone`. */
static void note_gone(struct seen *seen, const struct spri_list *found)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < seen->now.count; i++) {
		while (at < found->count && found->index[at] < seen->now.index[i])
			at++;
		if (at < found->count && found->index[at] == seen->now.index[i])
			continue;
		seen->gone.index[seen->gone.count] = seen->now.index[i];
		seen->gone.value[seen->gone.count++] = seen->now.value[i];
	}
}

static void look(const struct walk_case *c, struct seen *seen, const struct spri_select_walk *walk)
{
	const struct spri_list *found = &walk->found;

	if (walk->pruned == seen->pruned) {
		expect(found->count >= seen->now.count &&
			       memcmp(found->index, seen->now.index,
				      seen->now.count * sizeof *found->index) == 0 &&
			       memcmp(found->value, seen->now.value,
				      seen->now.count * sizeof *found->value) == 0,
		       "kind %d n %lu k %lu parts %d: expected candidates to stay where they are",
		       c->kind, c->n, c->k, c->parts);
	} else {
		note_gone(seen, found);
	}
	for (uint64_t i = 0; i < found->count; i++)
		expect(size_of(found->value[i]) >= walk->floor && size_of(found->value[i]) > 0 &&
			       found->index[i] < FAR_BASE + walk->scanned &&
			       (i == 0 || found->index[i] > found->index[i - 1]),
		       "kind %d n %lu: expected candidates above the floor, scanned, ascending",
		       c->kind, c->n);
	memcpy(seen->now.index, found->index, found->count * sizeof *found->index);
	memcpy(seen->now.value, found->value, found->count * sizeof *found->value);
	seen->now.count = found->count;
	seen->pruned = walk->pruned;
}

static void run_walk(const struct walk_case *c, struct spri_select *s, struct seen *seen)
{
	uint64_t state = c->n + c->k + 1;
	struct spri_select_walk walk;
	bool more;

	spri_select_begin(s, &walk);
	expect(c->k == 0 || walk.floor == (c->k >= c->n ? 1 : c->threshold),
	       "floor is %08x, expected the carried %08x", walk.floor, c->threshold);
	do {
		uint64_t n = next_part(c, &state), before = walk.scanned;

		more = spri_select_some(&walk, n);
		expect(walk.scanned >= before + n || walk.scanned == c->n,
		       "%lu scanned of %lu wanted", walk.scanned - before, n);
		expect(walk.scanned < before + n + 65536, "%lu scanned of %lu wanted",
		       walk.scanned - before, n);
		expect(more == (walk.scanned < c->n), "expected false when all are scanned");
		look(c, seen, &walk);
	} while (more);
	spri_select_end(&walk);
}

static void check_same(const struct walk_case *c, const struct spri_select *s,
		       const struct spri_select *want)
{
	expect(s->count == want->count && s->threshold == want->threshold &&
		       s->repaired == want->repaired && s->cut_key == want->cut_key &&
		       s->cut_index == want->cut_index &&
		       s->finite.bad_index == want->finite.bad_index &&
		       s->finite.dropped == want->finite.dropped,
	       "kind %d policy %d n %lu k %lu parts %d: count %lu threshold %08x repaired %d, "
	       "expected %lu %08x %d",
	       c->kind, c->policy, c->n, c->k, c->parts, s->count, s->threshold, s->repaired,
	       want->count, want->threshold, want->repaired);
	expect(memcmp(s->index, want->index, s->count * sizeof *s->index) == 0 &&
		       memcmp(s->value, want->value, s->count * sizeof *s->value) == 0 &&
		       (!c->shadow || memcmp(s->shadow, want->shadow, c->n * sizeof(float)) == 0),
	       "kind %d policy %d n %lu k %lu parts %d: expected the same entries and shadow",
	       c->kind, c->policy, c->n, c->k, c->parts);
}

/* The cut tells of every entry that was seen, and of every non-zero of the sums. */
static void check_cut(const struct walk_case *c, const struct spri_select *s,
		      const struct seen *seen)
{
	uint64_t next = 0;

	for (uint64_t i = 0; i < seen->now.count; i++) {
		bool selected;

		while (next < s->count && s->index[next] < seen->now.index[i])
			next++;
		selected = next < s->count && s->index[next] == seen->now.index[i];
		expect(passes(s, seen->now.index[i], seen->now.value[i]) == selected,
		       "kind %d n %lu k %lu: expected the cut to tell what was selected", c->kind,
		       c->n, c->k);
		expect(selected || !s->repaired,
		       "kind %d n %lu k %lu: expected all of the first walk to be selected",
		       c->kind, c->n, c->k);
	}
	for (uint64_t i = 0; i < seen->gone.count; i++)
		expect(!passes(s, seen->gone.index[i], seen->gone.value[i]),
		       "kind %d n %lu k %lu: expected what vanished not to be selected", c->kind,
		       c->n, c->k);
	for (uint64_t i = 0; i < s->count; i++)
		expect(passes(s, s->index[i], s->value[i]), "expected the selected to pass");
	for (uint64_t i = 0; c->shadow && i < c->n; i++)
		expect(size_of(s->shadow[i]) == 0 || !passes(s, FAR_BASE + i, s->shadow[i]),
		       "expected the rest not to pass");
}

static void check_walk(const struct walk_case *c, const float *g, const float *r)
{
	struct own own, whole;
	struct seen seen;

	own_open(&own, c, g, r);
	own_open(&whole, c, g, r);
	seen_open(&seen, c->n);
	spri_select(&whole.s);
	run_walk(c, &own.s, &seen);
	check_same(c, &own.s, &whole.s);
	check_cut(c, &own.s, &seen);
	seen_close(&seen);
	own_close(&own);
	own_close(&whole);
}

static uint32_t carry(const struct walk_case *c, enum carried carried, const float *g,
		      const float *r)
{
	struct walk_case first = *c;
	struct own own;

	if (carried == CARRIED_NONE || carried == CARRIED_LOW)
		return carried == CARRIED_LOW;
	if (carried == CARRIED_HIGH)
		return 0x7fffffff;
	own_open(&own, &first, g, r);
	spri_select(&own.s);
	own_close(&own);
	return own.s.threshold;
}

static void check_kind(enum kind kind, uint64_t n, const uint64_t *ks, unsigned n_ks)
{
	struct area g = area_make(n * sizeof(float), 4), r = area_make(n * sizeof(float), 12);
	struct walk_case c = {.kind = kind, .n = n};
	const struct spri_kernel_row *row;
	unsigned turn = 0;

	fill(g.data, n, kind, n + 1);
	fill(r.data, n, kind, n + 2);
	for (unsigned at = 0; (row = usable_row(at)); at++) {
		spri_isa_allow(row->isa);
		for (unsigned i = 0; i < n_ks * CARRIED_COUNT; i++, turn++) {
			c.k = ks[i / CARRIED_COUNT];
			c.policy = (enum spr_nonfinite)(turn % 3);
			c.shadow = turn % 5 != 0;
			c.threshold = 0;
			c.threshold = carry(&c, (enum carried)(i % CARRIED_COUNT), g.data, r.data);
			for (unsigned parts = 0; parts < PARTS_COUNT; parts++) {
				c.parts = (enum parts)parts;
				check_walk(&c, g.data, r.data);
			}
		}
	}
	spri_isa_allow(SPRI_ISA_COUNT - 1);
	expect(area_close(&g) && area_close(&r), "expected the inputs' ends untouched");
}

Test(select_walk, any_division_gives_the_same)
{
	const uint64_t n = 140017, ks[] = {300, 20000, 65000};
	const uint64_t few[] = {0, 1, 30, 999, 1000, 1001};

	for (int kind = 0; kind < KIND_COUNT; kind++) {
		check_kind((enum kind)kind, n, ks, sizeof ks / sizeof *ks);
		check_kind((enum kind)kind, 1000, few, sizeof few / sizeof *few);
		check_kind((enum kind)kind, 0, few, 2);
		check_kind((enum kind)kind, 1, few, 3);
	}
}

/* The worst order: each block is larger than all before it. */
Test(select_walk, a_caller_that_streams_learns_of_every_prune)
{
	const uint64_t n = 400000, k = 1000;
	struct walk_case c = {KIND_RISING, 0, n, k, 0, PARTS_ELEMENTS, true};
	struct area g = area_make(n * sizeof(float), 0);
	struct seen seen;
	struct own own;

	fill(g.data, n, KIND_RISING, 1);
	own_open(&own, &c, g.data, NULL);
	seen_open(&seen, n);
	run_walk(&c, &own.s, &seen);
	cr_assert_gt(seen.pruned, 0, "expected the pile to be pruned");
	cr_assert_gt(seen.gone.count, 0, "expected entries to have vanished");
	cr_assert_eq(own.s.cut_index, FAR_BASE + n - k,
		     "expected the cut at the k-th from the end");
	check_cut(&c, &own.s, &seen);
	seen_close(&seen);
	own_close(&own);
	cr_assert(area_close(&g), "expected the input's end untouched");
}
