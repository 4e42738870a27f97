/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Pairs, and the oracle of sparse sums; see coll_world.h. */
#include "coll_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void pairs_add(struct pairs *p, uint64_t index, float value)
{
	if (p->count == p->capacity) {
		p->capacity = p->capacity ? 2 * p->capacity : 16;
		p->index = need(realloc(p->index, p->capacity * sizeof *p->index));
		p->value = need(realloc(p->value, p->capacity * sizeof *p->value));
	}
	p->index[p->count] = index;
	p->value[p->count++] = value;
}

void pairs_fini(struct pairs *p)
{
	free(p->index);
	free(p->value);
	*p = (struct pairs){0};
}

struct entry {
	uint64_t index;
	float value;
};

static int by_index(const void *a, const void *b)
{
	uint64_t x = ((const struct entry *)a)->index, y = ((const struct entry *)b)->index;

	return (x > y) - (x < y);
}

static int by_size(const void *a, const void *b)
{
	float x = fabsf(((const struct entry *)a)->value),
	      y = fabsf(((const struct entry *)b)->value);

	return x != y ? (x < y) - (x > y) : by_index(a, b);
}

void pairs_sum(struct pairs *out, const struct pairs *const *parts, unsigned n)
{
	struct entry *all;
	uint64_t total = 0, at = 0;

	for (unsigned i = 0; i < n; i++)
		total += parts[i]->count;
	all = need(malloc((total + 1) * sizeof *all));
	for (unsigned i = 0; i < n; i++)
		for (uint64_t j = 0; j < parts[i]->count; j++)
			all[at++] = (struct entry){parts[i]->index[j], parts[i]->value[j]};
	qsort(all, total, sizeof *all, by_index);
	out->count = 0;
	for (uint64_t i = 0; i < total;) {
		uint64_t index = all[i].index;
		double sum = 0;

		for (; i < total && all[i].index == index; i++)
			sum += (double)all[i].value;
		if (sum != 0)
			pairs_add(out, index, (float)sum);
	}
	free(all);
}

void pairs_cut(struct pairs *p, uint64_t k)
{
	struct entry *all = need(malloc((p->count + 1) * sizeof *all));
	uint64_t n = p->count < k ? p->count : k;

	for (uint64_t i = 0; i < p->count; i++)
		all[i] = (struct entry){p->index[i], p->value[i]};
	qsort(all, p->count, sizeof *all, by_size);
	qsort(all, n, sizeof *all, by_index);
	p->count = 0;
	for (uint64_t i = 0; i < n; i++)
		pairs_add(p, all[i].index, all[i].value);
	free(all);
}

/* To nearest, ties to even, among the values of so many bits from 2^least on; at most `largest`. */
static float round_one(float v, int bits, int least, double largest)
{
	double unit, r;
	int exponent;

	if (v == 0 || !isfinite(v))
		return v;
	frexp((double)v, &exponent);
	exponent = exponent - bits > least ? exponent - bits : least;
	unit = ldexp(1, exponent);
	r = nearbyint((double)v / unit) * unit;
	return (float)(fabs(r) > largest ? copysign(largest, r) : r);
}

void pairs_round(struct pairs *p, enum spr_dtype wire)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < p->count; i++) {
		float v = p->value[i];

		if (wire == SPR_F16)
			v = round_one(v, 11, -24, 65504);
		else if (wire == SPR_BF16)
			v = round_one(v, 8, -133, 0x1.fep127);
		p->index[kept] = p->index[i];
		p->value[kept] = v;
		kept += v != 0;
	}
	p->count = kept;
}

/* a = a + b, cut to the k largest, as they go on the wire. */
static void merge(struct pairs *a, const struct pairs *b, uint64_t k, enum spr_dtype wire)
{
	struct pairs before = *a;
	const struct pairs *parts[2] = {&before, b};

	*a = (struct pairs){0};
	pairs_sum(a, parts, 2);
	pairs_cut(a, k);
	pairs_round(a, wire);
	pairs_fini(&before);
}

/* The winner ends as the first of n lists. */
static void tournament(struct pairs *lists, unsigned n, uint64_t k, enum spr_dtype wire)
{
	unsigned playing = 1, extra, at = 0;

	while (2 * playing <= n)
		playing *= 2;
	extra = n - playing;
	for (unsigned i = 0; i < playing; i++) {
		struct pairs swap;

		if (i < extra)
			merge(&lists[at], &lists[at + 1], k, wire);
		swap = lists[i];
		lists[i] = lists[at];
		lists[at] = swap;
		at += i < extra ? 2 : 1;
	}
	for (unsigned d = 1; d < playing; d *= 2)
		for (unsigned i = 0; i < playing; i += 2 * d)
			merge(&lists[i], &lists[i + d], k, wire);
}

/* What list has in [begin, end). */
static struct pairs range(const struct pairs *list, uint64_t begin, uint64_t end)
{
	struct pairs part = {0};

	for (uint64_t i = 0; i < list->count; i++)
		if (list->index[i] >= begin && list->index[i] < end)
			pairs_add(&part, list->index[i], list->value[i]);
	return part;
}

static void prune_ring(const struct call *c, struct pairs *out)
{
	unsigned n = (unsigned)c->n_ranks;
	uint64_t begin = 0;

	for (unsigned b = 0; b < n; b++) { /* blocks of which the first ones are longer by one */
		uint64_t end = begin + c->count / n + (b < c->count % n);
		uint64_t quota = c->k / n + ((b + c->ranks[0].step) % n < c->k % n);
		struct pairs block = {0};

		for (unsigned i = 0; i < n; i++) {
			struct pairs part = range(&c->ranks[(b + i) % n].in, begin, end);

			merge(&block, &part, c->k < c->count ? quota : end - begin, c->wire);
			pairs_fini(&part);
		}
		for (uint64_t i = 0; i < block.count; i++)
			pairs_add(out, block.index[i], block.value[i]);
		pairs_fini(&block);
		begin = end;
	}
}

void call_sparse_sum(const struct call *c, struct pairs *out)
{
	unsigned n = (unsigned)c->n_ranks;
	struct pairs *lists = need(calloc(n, sizeof *lists));
	const struct pairs **all = need(calloc(n, sizeof *all));

	out->count = 0;
	for (unsigned r = 0; r < n; r++) {
		lists[r] = range(&c->ranks[r].in, 0, c->count);
		pairs_round(&lists[r], c->wire); /* before a list is sent */
		all[r] = &lists[r];
	}
	if (!strcmp(c->algo, "prune_ring")) {
		prune_ring(c, out);
	} else if (!strcmp(c->algo, "topk_allgather")) {
		pairs_sum(out, all, n);
	} else {
		tournament(lists, n, c->k, c->wire);
		pairs_sum(out, all, 1);
	}
	for (unsigned r = 0; r < n; r++)
		pairs_fini(&lists[r]);
	free(lists);
	free(all);
}

bool pairs_equal(const struct pairs *a, const struct pairs *b)
{
	return a->count == b->count &&
	       (a->count == 0 || (!memcmp(a->index, b->index, a->count * sizeof *a->index) &&
				  !memcmp(a->value, b->value, a->count * sizeof *a->value)));
}
