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

void pairs_tournament(struct pairs *out, const struct pairs *lists, unsigned n, uint64_t k)
{
	struct pairs *cur = need(calloc(n, sizeof *cur));
	unsigned playing = 1, extra, at = 0;

	while (2 * playing <= n)
		playing *= 2;
	extra = n - playing;
	for (unsigned i = 0; i < playing; i++) {
		const struct pairs *parts[2] = {&lists[at], &lists[at + 1 < n ? at + 1 : at]};

		pairs_sum(&cur[i], parts, i < extra ? 2 : 1);
		pairs_cut(&cur[i], k);
		at += i < extra ? 2 : 1;
	}
	for (; playing > 1; playing /= 2)
		for (unsigned i = 0; i < playing / 2; i++) {
			struct pairs merged = {0};
			const struct pairs *parts[2] = {&cur[2 * i], &cur[2 * i + 1]};

			pairs_sum(&merged, parts, 2);
			pairs_cut(&merged, k);
			pairs_fini(
				&cur[i]); /* when i is 0 this is a part of the merge, done by now */
			cur[i] = merged;
			if (2 * i != i)
				pairs_fini(&cur[2 * i]);
			pairs_fini(&cur[2 * i + 1]);
		}
	out->count = 0;
	for (uint64_t i = 0; i < cur[0].count; i++)
		pairs_add(out, cur[0].index[i], cur[0].value[i]);
	pairs_fini(&cur[0]);
	free(cur);
}

/* out = out + what list has in [begin, end). */
static void add_range(struct pairs *out, const struct pairs *list, uint64_t begin, uint64_t end)
{
	struct pairs part = {0}, before = *out;
	const struct pairs *parts[2] = {&before, &part};

	for (uint64_t i = 0; i < list->count; i++)
		if (list->index[i] >= begin && list->index[i] < end)
			pairs_add(&part, list->index[i], list->value[i]);
	*out = (struct pairs){0};
	pairs_sum(out, parts, 2);
	pairs_fini(&before);
	pairs_fini(&part);
}

void pairs_prune_ring(struct pairs *out, const struct pairs *lists, unsigned n, uint64_t k,
		      uint64_t length, uint64_t step)
{
	uint64_t begin = 0;

	out->count = 0;
	for (unsigned b = 0; b < n; b++) { /* blocks of which the first ones are longer by one */
		uint64_t end = begin + length / n + (b < length % n);
		uint64_t quota = k / n + ((b + step) % n < k % n);
		struct pairs block = {0};

		for (unsigned i = 0; i < n; i++) {
			add_range(&block, &lists[(b + i) % n], begin, end);
			if (k < length)
				pairs_cut(&block, quota);
		}
		for (uint64_t i = 0; i < block.count; i++)
			pairs_add(out, block.index[i], block.value[i]);
		pairs_fini(&block);
		begin = end;
	}
}

bool pairs_equal(const struct pairs *a, const struct pairs *b)
{
	return a->count == b->count &&
	       (a->count == 0 || (!memcmp(a->index, b->index, a->count * sizeof *a->index) &&
				  !memcmp(a->value, b->value, a->count * sizeof *a->value)));
}
