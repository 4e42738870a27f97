/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The oracle; the contract is in oracle.h.
 *
 * Path: draw one rank's vector, add it to the dense sum, keep its k largest (quickselect on (|v|,
 * index), then sort by index), next rank. The tournament merges these lists pair by pair.
 * Failures: memory, returned as -ENOMEM with nothing left behind.
 */
#include "oracle.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One candidate entry. */
struct entry {
	uint64_t index;
	float value;
};

void perf_list_fini(struct perf_list *list)
{
	free(list->index);
	free(list->value);
	*list = (struct perf_list){0};
}

static int list_init(struct perf_list *list, uint64_t capacity)
{
	size_t n = capacity ? (size_t)capacity : 1;

	list->count = 0;
	list->index = malloc(n * sizeof *list->index);
	list->value = malloc(n * sizeof *list->value);
	if (!list->index || !list->value) {
		perf_list_fini(list);
		return -ENOMEM;
	}
	return 0;
}

/* The total order: does a come before b? */
static bool before(const struct entry *a, const struct entry *b)
{
	float x = fabsf(a->value), y = fabsf(b->value);

	return x > y || (x == y && a->index < b->index);
}

/*
 * Moves the k entries that come first to the front, in no order. Hoare's selection; no two
 * entries are equal.
 */
static void select_first(struct entry *e, uint64_t n, uint64_t k)
{
	uint64_t low = 0, high = n; /* the border lies in [low, high] */

	while (k > low && k < high) {
		struct entry pivot = e[low + (high - low) / 2];
		uint64_t i = low, j = high - 1;

		for (;;) { /* [low, i) before or at the pivot, (j, high) at or after it */
			while (before(&e[i], &pivot))
				i++;
			while (before(&pivot, &e[j]))
				j--;
			if (i >= j)
				break;
			struct entry t = e[i];

			e[i++] = e[j];
			e[j--] = t;
		}
		/* e[low … i−1] come no later than the pivot, e[i … ] no earlier. */
		if (i == low)
			i++; /* the pivot itself stood first: it is placed */
		if (k < i)
			high = i;
		else
			low = i;
	}
}

static int by_index(const void *a, const void *b)
{
	uint64_t x = ((const struct entry *)a)->index, y = ((const struct entry *)b)->index;

	return (x > y) - (x < y);
}

/* The first k of n entries as a list. Reorders e. */
static int list_from(struct entry *e, uint64_t n, uint64_t k, struct perf_list *out)
{
	int r;

	if (k < n)
		select_first(e, n, k);
	else
		k = n;
	if (k)
		qsort(e, (size_t)k, sizeof *e, by_index);
	r = list_init(out, k);
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < k; i++) {
		out->index[i] = e[i].index;
		out->value[i] = e[i].value;
	}
	out->count = k;
	return 0;
}

int perf_list_topk(const float *values, uint64_t count, uint64_t k, struct perf_list *out)
{
	struct entry *e = malloc((size_t)(count ? count : 1) * sizeof *e);
	uint64_t n = 0;
	int r;

	if (!e)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++)
		if (values[i] != 0)
			e[n++] = (struct entry){i, values[i]};
	r = list_from(e, n, k, out);
	free(e);
	return r;
}

int perf_list_merge(const struct perf_list *a, const struct perf_list *b, uint64_t k,
		    struct perf_list *out)
{
	uint64_t i = 0, j = 0, n = 0, most = a->count + b->count;
	struct entry *e = malloc((size_t)(most ? most : 1) * sizeof *e);
	int r;

	if (!e)
		return -ENOMEM;
	while (i < a->count || j < b->count) {
		uint64_t at = i < a->count ? a->index[i] : UINT64_MAX;
		float sum = 0;

		if (j < b->count && b->index[j] < at)
			at = b->index[j];
		if (i < a->count && a->index[i] == at)
			sum += a->value[i++];
		if (j < b->count && b->index[j] == at)
			sum += b->value[j++];
		if (sum != 0)
			e[n++] = (struct entry){at, sum};
	}
	r = list_from(e, n, k, out);
	free(e);
	return r;
}

int perf_oracle_init(struct perf_oracle *oracle, uint64_t seed, int n_ranks, uint64_t count,
		     uint64_t k)
{
	float *one = malloc((size_t)(count ? count : 1) * sizeof *one);
	int r = -ENOMEM;

	assert(n_ranks >= 1 && n_ranks <= 4096);
	*oracle = (struct perf_oracle){.n_ranks = n_ranks, .count = count, .k = k};
	oracle->dense = calloc((size_t)(count ? count : 1), sizeof *oracle->dense);
	oracle->tops = calloc((size_t)n_ranks, sizeof *oracle->tops);
	if (one && oracle->dense && oracle->tops)
		r = 0;
	for (int rank = 0; rank < n_ranks && r == 0; rank++) {
		perf_input_exact(seed, rank, 0, count, one);
		for (uint64_t i = 0; i < count; i++)
			oracle->dense[i] += one[i];
		r = perf_list_topk(one, count, k, &oracle->tops[rank]);
	}
	free(one);
	if (r < 0)
		perf_oracle_fini(oracle);
	return r;
}

void perf_oracle_fini(struct perf_oracle *oracle)
{
	for (int rank = 0; oracle->tops && rank < oracle->n_ranks; rank++)
		perf_list_fini(&oracle->tops[rank]);
	free(oracle->tops);
	free(oracle->dense);
	*oracle = (struct perf_oracle){0};
}

int perf_oracle_topk_allgather(const struct perf_oracle *oracle, struct perf_list *out)
{
	float *sum = calloc((size_t)(oracle->count ? oracle->count : 1), sizeof *sum);
	uint64_t n = 0;
	int r = -ENOMEM;

	if (!sum)
		return r;
	for (int rank = 0; rank < oracle->n_ranks; rank++) {
		const struct perf_list *top = &oracle->tops[rank];

		for (uint64_t i = 0; i < top->count; i++)
			sum[top->index[i]] += top->value[i];
	}
	for (uint64_t i = 0; i < oracle->count; i++)
		n += sum[i] != 0;
	r = list_init(out, n);
	for (uint64_t i = 0; r == 0 && i < oracle->count; i++) {
		if (sum[i] == 0)
			continue;
		out->index[out->count] = i;
		out->value[out->count++] = sum[i];
	}
	free(sum);
	return r;
}

/* players[i] += players[j], cut to k; players[j] is emptied. */
static int play(struct perf_list *players, int i, int j, uint64_t k)
{
	struct perf_list merged = {0};
	int r = perf_list_merge(&players[i], &players[j], k, &merged);

	if (r < 0)
		return r;
	perf_list_fini(&players[i]);
	perf_list_fini(&players[j]);
	players[i] = merged;
	return 0;
}

int perf_oracle_gtopk(const struct perf_oracle *oracle, struct perf_list *out)
{
	static const struct perf_list nothing;
	int n = oracle->n_ranks, power = 1, folded, r = 0;
	struct perf_list *players = calloc((size_t)n, sizeof *players);

	if (!players)
		return -ENOMEM;
	while (2 * power <= n)
		power *= 2;
	folded = n - power;
	for (int rank = 0; rank < n && r == 0; rank++) /* copies: the lists stay as they are */
		r = perf_list_merge(&oracle->tops[rank], &nothing, oracle->k, &players[rank]);
	for (int j = 0; j < folded && r == 0; j++) {
		r = play(players, 2 * j, 2 * j + 1, oracle->k);
		if (r == 0 && j > 0) { /* number j plays from now on */
			players[j] = players[2 * j];
			players[2 * j] = (struct perf_list){0};
		}
	}
	for (int j = folded; j < power && folded > 0 && r == 0; j++) {
		players[j] = players[j + folded];
		players[j + folded] = (struct perf_list){0};
	}
	for (int distance = 1; distance < power && r == 0; distance *= 2)
		for (int j = 0; j + distance < power && r == 0; j += 2 * distance)
			r = play(players, j, j + distance, oracle->k);
	if (r == 0) {
		*out = players[0];
		players[0] = (struct perf_list){0};
	}
	for (int rank = 0; rank < n; rank++)
		perf_list_fini(&players[rank]);
	free(players);
	return r;
}

/* The entries of [begin, end), borrowed. */
static struct perf_list part_of(const struct perf_list *list, uint64_t begin, uint64_t end)
{
	uint64_t first = 0, last;

	while (first < list->count && list->index[first] < begin)
		first++;
	for (last = first; last < list->count && list->index[last] < end; last++)
		continue;
	return (struct perf_list){last - first, list->index + first, list->value + first};
}

/* The entries of block b, from `begin` to `end`, with all ranks' contributions. */
static int prune_block(const struct perf_oracle *oracle, int b, uint64_t begin, uint64_t end,
		       uint64_t quota, struct perf_list *block)
{
	int r = list_init(block, 0);

	for (int i = 0; i < oracle->n_ranks && r == 0; i++) {
		struct perf_list own, merged;

		own = part_of(&oracle->tops[(b + i) % oracle->n_ranks], begin, end);
		r = perf_list_merge(block, &own, quota, &merged);
		if (r < 0)
			break;
		perf_list_fini(block);
		*block = merged;
	}
	if (r < 0)
		perf_list_fini(block);
	return r;
}

int perf_oracle_prune_ring(const struct perf_oracle *oracle, uint64_t step, struct perf_list *out)
{
	uint64_t n = (uint64_t)oracle->n_ranks, k = oracle->k, begin = 0;
	int r = list_init(out, k < oracle->count ? k : oracle->count);

	for (uint64_t b = 0; b < n && r == 0; b++) {
		uint64_t end = begin + oracle->count / n + (b < oracle->count % n);
		uint64_t quota = k / n + ((b + step) % n < k % n);
		struct perf_list block;

		if (k >= oracle->count)
			quota = end - begin;
		r = prune_block(oracle, (int)b, begin, end, quota, &block);
		if (r < 0)
			break;
		for (uint64_t i = 0; i < block.count; i++) {
			out->index[out->count] = block.index[i];
			out->value[out->count++] = block.value[i];
		}
		perf_list_fini(&block);
		begin = end;
	}
	if (r < 0)
		perf_list_fini(out);
	return r;
}

int perf_oracle_masked(const struct perf_oracle *oracle, const int *ranks, int n,
		       struct perf_list *out)
{
	uint64_t count = oracle->count, chosen = 0;
	bool *mask = calloc((size_t)(count ? count : 1), sizeof *mask);
	int r;

	if (!mask)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		for (uint64_t j = 0; j < oracle->tops[ranks[i]].count; j++)
			mask[oracle->tops[ranks[i]].index[j]] = true;
	for (uint64_t i = 0; i < count; i++)
		chosen += mask[i];
	if (chosen > count / 2)
		chosen = count;
	r = list_init(out, chosen);
	for (uint64_t i = 0; i < count && r == 0; i++) {
		if (!mask[i] && chosen != count)
			continue;
		out->index[out->count] = i;
		out->value[out->count++] = oracle->dense[i];
	}
	free(mask);
	return r;
}

uint64_t perf_wrong_dense(const float *got, const float *want, uint64_t count)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < count; i++)
		wrong += memcmp(&got[i], &want[i], sizeof got[i]) != 0 &&
			 !(got[i] == 0 && want[i] == 0);
	return wrong;
}

uint64_t perf_wrong_sparse(const uint64_t *index, const float *value, uint64_t count,
			   const struct perf_list *want)
{
	uint64_t i = 0, j = 0, wrong = 0;

	while (i < count && j < want->count) {
		if (index[i] == want->index[j]) {
			wrong += memcmp(&value[i], &want->value[j], sizeof value[i]) != 0;
			i++;
			j++;
		} else if (index[i] < want->index[j]) {
			wrong++;
			i++;
		} else {
			wrong++;
			j++;
		}
		if (i && i < count && index[i] <= index[i - 1])
			wrong++; /* not ascending */
	}
	return wrong + (count - i) + (want->count - j);
}
