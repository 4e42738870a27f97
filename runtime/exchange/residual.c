/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The vectors of an exchange: residual and shadow (sparse algorithms) or the sum (dense),
 * and the lists of a step.
 *
 * Happy path of a step: select reads gradient and residual, writes the rest to the shadow
 * and the k largest to a list; when the operation has ended well, commit exchanges residual
 * and shadow, adds what was trimmed and fell to this rank, and scatters the sum, divided by
 * the number of ranks, over a zeroed update.
 *
 * Failures: no memory is found by reserve, before anything is sent; a NaN by select.
 * Neither has touched the residual.
 *
 * The division is a multiplication with 1/P rounded to single: exact for P a power of two, else
 * one rounding more than a division, the same on every rank.
 */
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <string.h>

#include "exchange.h"

#define ADOPT_BLOCK 256u

int spri_residual_init(struct spr_exchange *exchange)
{
	size_t bytes = exchange->n * sizeof(float);

	if (exchange->algo->kind == SPRI_ALGO_DENSE) {
		exchange->dense_sum = spri_alloc_pages(bytes);
		return exchange->dense_sum ? 0 : -ENOMEM;
	}
	exchange->residual = spri_alloc_pages(bytes);
	exchange->shadow = spri_alloc_pages(bytes);
	return exchange->residual && exchange->shadow ? 0 : -ENOMEM;
}

static void free_list(struct spri_list *list)
{
	spri_free(list->index);
	spri_free(list->value);
	*list = (struct spri_list){0};
}

void spri_residual_fini(struct spr_exchange *exchange)
{
	size_t bytes = exchange->n * sizeof(float);

	spri_free_pages(exchange->dense_sum, bytes);
	spri_free_pages(exchange->residual, bytes);
	spri_free_pages(exchange->shadow, bytes);
	free_list(&exchange->selected);
	free_list(&exchange->sum);
}

/*
 * Room for n entries; a list that is four times too long (the density came down) is given
 * back. Contents are lost when it moves.
 */
static int fit_list(struct spri_list *list, uint64_t n)
{
	if (list->capacity >= n && list->capacity / 4 <= n)
		return 0;
	free_list(list);
	list->index = spri_calloc(n, sizeof *list->index);
	list->value = spri_calloc(n, sizeof *list->value);
	if (!list->index || !list->value) {
		free_list(list);
		return -ENOMEM;
	}
	list->capacity = n;
	return 0;
}

int spri_residual_reserve(struct spr_exchange *exchange, uint64_t k)
{
	uint64_t most;
	int r;

	assert(exchange->algo->kind == SPRI_ALGO_SPARSE);
	/* topk_allgather keeps every rank's k; the others no more than k. */
	most = exchange->algo == &spri_algo_topk_allgather ? k * exchange->comm->n_ranks : k;
	r = fit_list(&exchange->selected, spri_select_capacity(exchange->n, k));
	if (r == 0)
		r = fit_list(&exchange->sum, spri_min_u64(most, exchange->n));
	return r;
}

int spri_residual_select(struct spr_exchange *exchange, const float *gradient, uint64_t k,
			 uint64_t *index)
{
	struct spri_select s = {
		.gradient = gradient,
		.residual = exchange->residual,
		.scale = 1,
		.shadow = exchange->shadow,
		.n = exchange->n,
		.k = k,
		.policy = exchange->policy,
		.threshold = exchange->threshold,
		.index = exchange->selected.index,
		.value = exchange->selected.value,
		.capacity = exchange->selected.capacity,
	};

	spri_select(&s);
	exchange->selected.count = s.count;
	exchange->now.threshold = s.threshold;
	exchange->now.repaired = s.repaired;
	exchange->now.dropped = s.finite.dropped;
	exchange->now.selected = s.count;
	*index = s.finite.bad_index;
	return exchange->policy == SPR_NONFINITE_ERROR && s.finite.bad_index != SPRI_NO_INDEX
		       ? SPR_ENONFINITE
		       : 0;
}

/*
 * residual[index] += value for what was trimmed and fell to this rank, block by block
 * through the kernel: its floating-point environment and the policy hold here too.
 */
static void adopt(struct spr_exchange *exchange, const struct spri_list *adopted)
{
	float *residual = exchange->residual;
	float block[ADOPT_BLOCK];
	struct spri_finite ignored =
		SPRI_FINITE_NONE; /* an overflow is found by the next selection */

	for (uint64_t first = 0; first < adopted->count; first += ADOPT_BLOCK) {
		uint64_t n = spri_min_u64(adopted->count - first, ADOPT_BLOCK);
		const uint64_t *index = adopted->index + first;

		for (uint64_t i = 0; i < n; i++)
			block[i] = residual[index[i]];
		spri_reduce(block, block, adopted->value + first, n, 0, exchange->policy, &ignored);
		for (uint64_t i = 0; i < n; i++)
			residual[index[i]] = block[i];
	}
}

void spri_residual_commit(struct spr_exchange *exchange, const struct spri_op *op)
{
	float factor = 1.0f / (float)exchange->comm->n_ranks;
	float *update = exchange->now.update, *spare = exchange->residual;

	if (exchange->algo->kind == SPRI_ALGO_DENSE) {
		spri_kernels()->scale(update, exchange->dense_sum, exchange->n, factor);
		return;
	}
	exchange->residual = exchange->shadow;
	exchange->shadow = spare;
	adopt(exchange, &op->adopted);
	assert(op->sum.count <= exchange->sum.capacity);
	if (op->sum.count) {
		memcpy(exchange->sum.index, op->sum.index, op->sum.count * sizeof *op->sum.index);
		memcpy(exchange->sum.value, op->sum.value, op->sum.count * sizeof *op->sum.value);
	}
	exchange->sum.count = op->sum.count;
	if (!update)
		return;
	memset(update, 0, exchange->n * sizeof *update);
	spri_kernels()->scatter(update, 0, op->sum.index, op->sum.value, op->sum.count, factor);
}
