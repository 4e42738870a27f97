/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Merge with trim on a GPU against spri_merge and spri_trim. */
#include "remote.h"

/* How the indices of two lists lie. */
enum overlap {
	OVERLAP_SOME,
	OVERLAP_ALL,
	OVERLAP_NONE,	 /* every second index, in turn */
	OVERLAP_BEHIND,	 /* all of b behind all of a */
	OVERLAP_STRETCH, /* long runs of either, and of both */
	OVERLAP_COUNT
};

struct question {
	enum kind kind;
	enum overlap overlap;
	uint64_t na, nb, k;
	enum spr_nonfinite policy;
	bool opposite;	  /* b's values are a's with the other sign where both have an index */
	bool thrown_away; /* what is trimmed is not wanted */
	uint64_t seed;
};

struct pair {
	struct remote index, value;
};

static uint64_t step_of(enum overlap overlap, uint64_t i, bool is_b, uint64_t *state)
{
	switch (overlap) {
	case OVERLAP_SOME:
		return 1 + next_random(state) % 4;
	case OVERLAP_NONE:
		return 2;
	case OVERLAP_STRETCH:
		return i % 3000 == (is_b ? 1500 : 2999) ? 1700 : 1;
	default:
		return 1;
	}
}

static struct pair make_pair(struct remote_gpu *g, const struct question *q, bool is_b)
{
	uint64_t n = is_b ? q->nb : q->na, state = q->seed * 2 + is_b + 1;
	struct pair pair = {remote_make(g, n * sizeof(uint64_t), q->seed % 2 * 8),
			    remote_make(g, n * sizeof(float), (q->seed + is_b) % 4 * 4)};
	uint64_t *index = remote_here(&pair.index), at = FAR_BASE;

	if (is_b && q->overlap == OVERLAP_NONE)
		at++;
	if (is_b && q->overlap == OVERLAP_BEHIND)
		at += q->na;
	for (uint64_t i = 0; i < n; i++) {
		index[i] = at;
		at += step_of(q->overlap, i, is_b, &state);
	}
	fill(remote_here(&pair.value), n, q->kind, q->seed + is_b);
	return pair;
}

/* b's values such that sums vanish. */
static void make_opposite(const struct question *q, const struct pair *a, struct pair *b)
{
	const uint64_t *ai = remote_here(&a->index), *bi = remote_here(&b->index);
	const float *av = remote_here(&a->value);
	float *bv = remote_here(&b->value);

	for (uint64_t i = 0, j = 0; i < q->na && j < q->nb;) {
		if (ai[i] == bi[j] && i % 5)
			bv[j] = -av[i];
		if (ai[i] <= bi[j])
			i++;
		else
			j++;
	}
}

static struct spri_list make_list(uint64_t room)
{
	return (struct spri_list){.index = malloc(room * sizeof(uint64_t) + 1),
				  .value = malloc(room * sizeof(float) + 1),
				  .capacity = room};
}

static void expect_list(const struct question *q, struct pair *got, uint64_t count,
			const struct spri_list *want, const char *what)
{
	remote_fetch(&got->index);
	remote_fetch(&got->value);
	expect(count == want->count, "%s of %lu and %lu, k %lu, seed %lu: %lu, expected %lu", what,
	       q->na, q->nb, q->k, q->seed, count, want->count);
	expect(!memcmp(remote_here(&got->index), want->index, count * sizeof *want->index),
	       "%s of %lu and %lu, k %lu, seed %lu: indices", what, q->na, q->nb, q->k, q->seed);
	expect(first_difference(remote_here(&got->value), want->value, count) == count,
	       "%s of %lu and %lu, k %lu, seed %lu: values", what, q->na, q->nb, q->k, q->seed);
}

static void end_pair(struct pair *pair)
{
	expect(remote_end(&pair->index) && remote_end(&pair->value),
	       "merge writes where it should");
}

/* The same on the host. */
static void ask_host(const struct question *q, const struct pair *a, const struct pair *b,
		     struct spri_list want[2], struct spri_finite *finite)
{
	spri_merge(&want[0], remote_here(&a->index), remote_here(&a->value), q->na,
		   remote_here(&b->index), remote_here(&b->value), q->nb, q->policy, finite);
	spri_trim(&want[0], q->k, &want[1]);
}

static struct spri_gpu_list there(const struct pair *pair)
{
	return (struct spri_gpu_list){remote_there(&pair->index), remote_there(&pair->value)};
}

static void ask(struct remote_gpu *g, const struct question *q)
{
	uint64_t room = q->na + q->nb, counts[2] = {77, 77};
	struct spri_finite start = {.bad_index = FAR_BASE + 40, .dropped = 2}, expected = start;
	struct pair a = make_pair(g, q, false), b = make_pair(g, q, true), out[2];
	struct remote counted = remote_copy(g, counts, sizeof counts);
	struct remote finite = remote_copy(g, &start, sizeof start);
	struct spri_list want[2] = {make_list(room), make_list(room)};
	struct spri_gpu_merge s = {.na = q->na,
				   .nb = q->nb,
				   .k = q->k,
				   .policy = q->policy,
				   .counts = remote_there(&counted),
				   .finite = remote_there(&finite)};

	for (unsigned i = 0; i < 2; i++)
		out[i] = (struct pair){remote_make(g, room * sizeof(uint64_t), 8 * i),
				       remote_make(g, room * sizeof(float), 4 * i)};
	if (q->opposite)
		make_opposite(q, &a, &b);
	remote_send(&a.index);
	remote_send(&a.value);
	remote_send(&b.index);
	remote_send(&b.value);
	ask_host(q, &a, &b, want, &expected);
	s.a = there(&a);
	s.b = there(&b);
	s.out = there(&out[0]);
	if (!q->thrown_away)
		s.trimmed = there(&out[1]);
	remote_seed(q->seed);
	expect(spri_gpu_merge(g->stream, &s) == 0, "merge is queued");
	remote_fetch(&counted);
	remote_fetch(&finite);
	memcpy(counts, remote_here(&counted), sizeof counts);
	expect_list(q, &out[0], counts[0], &want[0], "the kept");
	expect(counts[1] == want[1].count, "%lu are trimmed, expected %lu", counts[1],
	       want[1].count);
	if (!q->thrown_away)
		expect_list(q, &out[1], counts[1], &want[1], "the trimmed");
	memcpy(&start, remote_here(&finite), sizeof start);
	expect(start.bad_index == expected.bad_index && start.dropped == expected.dropped,
	       "seed %lu: lowest %lu, dropped %lu; expected %lu, %lu", q->seed, start.bad_index,
	       start.dropped, expected.bad_index, expected.dropped);
	for (unsigned i = 0; i < 2; i++) {
		end_pair(&out[i]);
		free(want[i].index);
		free(want[i].value);
	}
	end_pair(&a);
	end_pair(&b);
	expect(remote_end(&counted) && remote_end(&finite), "merge reports where it should");
}

static const uint64_t lengths[][2] = {{0, 0},	  {1, 0},	{0, 1},	      {1, 1},	{2, 3},
				      {40, 0},	  {0, 33},	{31, 33},     {500, 3}, {512, 512},
				      {512, 513}, {1024, 1023}, {2000, 1500}, {3, 5000}};

static uint64_t k_of(unsigned choice, uint64_t n)
{
	const uint64_t all[] = {n / 3, n / 2, 0, 1, n, n + 5, UINT64_MAX, n ? n - 1 : 0};

	return all[choice % spri_countof(all)];
}

Test(gpu_merge, every_kind)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(lengths); i++) {
			uint64_t na = lengths[i][0], nb = lengths[i][1];
			struct question q = {.kind = kind,
					     .overlap = (kind + i) % OVERLAP_COUNT,
					     .na = na,
					     .nb = nb,
					     .k = k_of(kind + 3 * i, na + nb),
					     .policy = (enum spr_nonfinite)((kind + i / 2) % 3),
					     .opposite = i % 4 == 1,
					     .thrown_away = i % 5 == 2,
					     .seed = 100 * kind + i};

			ask(&g, &q);
		}
	remote_close(&g);
}

/* Every k of a small merge full of ties. */
Test(gpu_merge, every_k)
{
	struct remote_gpu g = remote_open();

	for (uint64_t k = 0; k <= 120; k++) {
		struct question q = {.kind = k % 2 ? KIND_TIES : KIND_EQUAL,
				     .overlap = OVERLAP_SOME,
				     .na = 70,
				     .nb = 45,
				     .k = k,
				     .seed = k};

		ask(&g, &q);
	}
	remote_close(&g);
}

/* All overlaps, with k in the middle, in several orders of threads and blocks. */
Test(gpu_merge, every_overlap_and_order)
{
	struct remote_gpu g = remote_open();

	for (unsigned overlap = 0; overlap < OVERLAP_COUNT; overlap++)
		for (uint64_t seed = 1; seed <= 4; seed++) {
			struct question q = {.kind = seed % 2 ? KIND_SMALL : KIND_TIES,
					     .overlap = overlap,
					     .na = 7000 + seed,
					     .nb = 9000,
					     .k = 5000,
					     .policy = SPR_NONFINITE_PROPAGATE,
					     .opposite = seed == 3,
					     .seed = seed};

			ask(&g, &q);
		}
	remote_close(&g);
}

Test(gpu_merge, more_than_a_grid_takes_at_once)
{
	struct remote_gpu g = remote_open();
	struct question q = {.kind = KIND_SMALL,
			     .overlap = OVERLAP_SOME,
			     .na = 60000,
			     .nb = 55000,
			     .k = 50000,
			     .seed = 3};

	ask(&g, &q);
	remote_close(&g);
}
