/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The vectors of an exchange: residual, velocity (momentum) and their shadows, the sum of dense
 * parts, and the lists of a step. Where they live, and who computes on them, is the place's:
 * host.c, device.c.
 *
 * Happy path of a step: select reads gradient, velocity and residual, writes the rest to the
 * shadows and the chosen entries to a list; when all operations have ended well, commit exchanges
 * the vectors and their shadows, adds what was trimmed or rounded off and fell to this rank, and
 * writes the sums, divided by the number of ranks, to the update.
 *
 * Failures: no memory is found by reserve, before anything is sent; a NaN by select.
 * Neither has touched the state.
 *
 * The division is a multiplication with 1/P rounded to single: exact for P a power of two, else
 * one rounding more than a division, the same on every rank.
 */
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/log.h>
#include <math.h>
#include <string.h>

#include "exchange.h"

/* ---- memory ---- */

static bool has_dense_parts(const struct spr_exchange *exchange)
{
	for (size_t i = 0; i < exchange->n_parts; i++)
		if (exchange->parts[i].algo->kind == SPRI_ALGO_DENSE)
			return true;
	return false;
}

/* Lists whose length is known when the masks are there; room for all. */
static int make_sum(struct spr_exchange *exchange)
{
	struct spri_list *sum = &exchange->sum;

	/* pages are taken when they are first written: room that is never used costs nothing */
	sum->index = spri_alloc_pages(exchange->n * sizeof *sum->index);
	sum->value = spri_alloc_pages(exchange->n * sizeof *sum->value);
	sum->capacity = exchange->n;
	return sum->index && sum->value ? 0 : -ENOMEM;
}

int spri_residual_init(struct spr_exchange *exchange)
{
	bool dense = has_dense_parts(exchange), sparse = exchange->algo->kind != SPRI_ALGO_DENSE;
	const struct exchange_place *place = exchange->place;
	size_t bytes = exchange->n * sizeof(float);
	int r = 0;

	exchange->dense_copied |= exchange->clip > 0;
	if (dense)
		r = place->alloc_host(exchange, bytes, &exchange->dense_sum);
	if (r == 0 && sparse)
		r = place->alloc(exchange, bytes, &exchange->residual);
	if (r == 0 && sparse)
		r = place->alloc(exchange, bytes, &exchange->shadow);
	if (r == 0 && exchange->momentum > 0)
		r = place->alloc(exchange, bytes, &exchange->velocity);
	if (r == 0 && exchange->momentum > 0)
		r = place->alloc(exchange, bytes, &exchange->velocity_shadow);
	if (r == 0 && exchange->whole_model && dense && exchange->momentum == 0)
		r = place->alloc(exchange, bytes, &exchange->corrected);
	if (r == 0 && exchange->algo->kind == SPRI_ALGO_MASKED)
		r = make_sum(exchange);
	for (size_t i = 0; i < exchange->n_parts && r == 0; i++)
		if (exchange->parts[i].algo->kind == SPRI_ALGO_MASKED)
			r = place->fit(exchange, &exchange->parts[i], exchange->parts[i].count);
	return r;
}

void spri_list_free(struct spri_list *list)
{
	spri_free(list->index);
	spri_free(list->value);
	*list = (struct spri_list){0};
}

void spri_residual_fini(struct spr_exchange *exchange)
{
	const struct exchange_place *place = exchange->place;
	size_t bytes = exchange->n * sizeof(float);

	place->free_host(exchange, exchange->dense_sum, bytes);
	place->free(exchange, exchange->residual, bytes);
	place->free(exchange, exchange->shadow, bytes);
	place->free(exchange, exchange->velocity, bytes);
	place->free(exchange, exchange->velocity_shadow, bytes);
	place->free(exchange, exchange->corrected, bytes);
	for (size_t i = 0; i < exchange->n_parts; i++) {
		struct exchange_part *part = &exchange->parts[i];

		place->unfit(exchange, part);
		spri_list_free(&part->stream.found);
		spri_list_free(&part->stream.late);
	}
	if (exchange->algo->kind == SPRI_ALGO_MASKED) {
		spri_free_pages(exchange->sum.index, exchange->n * sizeof *exchange->sum.index);
		spri_free_pages(exchange->sum.value, bytes);
	} else {
		spri_list_free(&exchange->sum);
	}
}

/*
 * Room for n entries; a list that is four times too long (the density came down) is given
 * back. Contents are lost when it moves.
 */
int spri_list_fit(struct spri_list *list, uint64_t n)
{
	if (list->capacity >= n && list->capacity / 4 <= n)
		return 0;
	spri_list_free(list);
	list->index = spri_calloc(n, sizeof *list->index);
	list->value = spri_calloc(n, sizeof *list->value);
	if (!list->index || !list->value) {
		spri_list_free(list);
		return -ENOMEM;
	}
	list->capacity = n;
	return 0;
}

/* Most entries of a sparse part's result: topk_allgather keeps every rank's, the others k. */
static uint64_t most_entries(const struct spr_exchange *exchange, const struct exchange_part *part)
{
	uint64_t k = part->now.k;

	if (part->algo == &spri_algo_topk_allgather)
		k *= exchange->comm->n_ranks;
	return spri_min_u64(k, part->count);
}

int spri_residual_reserve(struct spr_exchange *exchange)
{
	uint64_t most = 0;
	int r = exchange->place->begin ? exchange->place->begin(exchange) : 0;

	for (size_t i = 0; i < exchange->n_parts && r == 0; i++) {
		struct exchange_part *part = &exchange->parts[i];

		if (part->algo->kind != SPRI_ALGO_SPARSE)
			continue;
		most += most_entries(exchange, part);
		r = exchange->place->fit(exchange, part, part->now.k);
		if (r == 0 && spri_part_streams(exchange, part))
			r = spri_list_fit(&part->stream.found, spri_stream_most(part->now.k));
		if (r == 0 && spri_part_streams(exchange, part))
			r = spri_list_fit(&part->stream.late, part->now.k);
	}
	return r == 0 && most > 0 ? spri_list_fit(&exchange->sum, most) : r;
}

/* A vector of the caller's is where the options say. */
static int check_place(const struct spr_exchange *exchange, const char *name, const float *v)
{
	struct spri_gpu_pointer at;

	if (!v)
		return 0;
	spri_gpu_pointer(v, &at);
	if (at.on_gpu ? spri_device_is(exchange, at.device) : !exchange->device)
		return 0;
	if (at.on_gpu && exchange->device)
		spri_logf(SPR_LOG_ERROR,
			  "exchange: %s is memory of GPU %u, the exchange's is another", name,
			  at.device);
	else if (at.on_gpu)
		spri_logf(SPR_LOG_ERROR,
			  "exchange: %s is memory of GPU %u, options.memory says SPR_MEMORY_HOST",
			  name, at.device);
	else
		spri_logf(SPR_LOG_ERROR,
			  "exchange: %s is host memory, options.memory says SPR_MEMORY_CUDA", name);
	return spri_trace(SPR_EARGUMENT);
}

int spri_residual_check(const struct spr_exchange *exchange)
{
	int r = exchange->comm->failed;

	if (r < 0) /* nothing is to be begun that a NIC may still be reading of */
		return r;
	r = check_place(exchange, "gradient", exchange->gradient);

	if (r == 0)
		r = check_place(exchange, "update", exchange->update);
	if (r == 0)
		r = check_place(exchange, "the weights", exchange->weights);
	if (exchange->weights ||
	    (exchange->weight_decay == 0 && exchange->algo->kind != SPRI_ALGO_MASKED))
		return r;
	spri_logf(SPR_LOG_ERROR, "exchange: %s needs weights: spr_exchange_set_weights",
		  exchange->weight_decay > 0 ? "weight_decay" : exchange->algo->name);
	return spri_trace(SPR_EARGUMENT);
}

/* ---- selection ---- */

float spri_residual_clip(const struct spr_exchange *exchange, double norm)
{
	double bound = exchange->clip / sqrt((double)exchange->comm->n_ranks);

	/* what is not finite is left to selection */
	return norm > bound && isfinite(norm) ? (float)(bound / norm) : 1;
}

bool spri_residual_leaves_out(const struct spr_exchange *exchange, const struct exchange_part *part)
{
	return part->algo->kind == SPRI_ALGO_SPARSE && exchange->whole_model &&
	       exchange->n_parts > 1;
}

int spri_residual_finite(const struct spr_exchange *exchange, uint64_t bad_index, uint64_t *index)
{
	*index = bad_index;
	return exchange->policy == SPR_NONFINITE_ERROR && bad_index != SPRI_NO_INDEX
		       ? SPR_ENONFINITE
		       : 0;
}

int spri_residual_select(struct spr_exchange *exchange, struct exchange_part *part, uint64_t *index)
{
	if (!exchange->update && exchange->dense_sum)
		return SPR_EARGUMENT;
	return exchange->place->select(exchange, part, index);
}

/* ---- commit ---- */

/* ---- commit ---- */

/* The sum of one part, behind those of the parts before it. */
static void append_sum(struct spr_exchange *exchange, const struct exchange_part *part)
{
	const struct spri_list *from = &part->op->sum;
	struct spri_list *sum = &exchange->sum;

	assert(from->count <= sum->capacity - sum->count);
	for (uint64_t i = 0; i < from->count; i++)
		sum->index[sum->count + i] = part->offset + from->index[i];
	if (from->count)
		memcpy(sum->value + sum->count, from->value, from->count * sizeof *sum->value);
	sum->count += from->count;
}

/*
 * Residuals that grow raise the cut from step to step, and a rotation of data makes it swing: the
 * rise is followed by a quarter of what is new.
 */
static void expect_cut(struct exchange_part *part)
{
	int64_t cut = part->now.cut_key;

	if (part->last_cut > 0)
		part->rise += (cut - (int64_t)part->last_cut - part->rise) / 4;
	part->last_cut = part->now.cut_key;
}

/* The published rule: of what this rank sent, what the result does not name is put back. */
static void keep_unnamed(struct spri_list *sent, const struct spri_list *sum)
{
	uint64_t j = 0, n = 0;

	for (uint64_t i = 0; i < sent->count; i++) {
		while (j < sum->count && sum->index[j] < sent->index[i])
			j++;
		if (j < sum->count && sum->index[j] == sent->index[i])
			continue;
		sent->index[n] = sent->index[i];
		sent->value[n++] = sent->value[i];
	}
	sent->count = n;
}

static void commit_sparse(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct exchange_place *place = exchange->place;

	part->threshold = part->now.threshold;
	expect_cut(part);
	if (part->algo->kind == SPRI_ALGO_MASKED) {
		place->take_out(exchange, part);
		spri_importance_steer(exchange, part);
	}
	if (exchange->published) {
		keep_unnamed(&part->selected, &part->op->sum);
		place->put_back(exchange, part);
	} else {
		place->adopt(exchange, part);
	}
	exchange->sent_squares += part->now.sent_squares;
	append_sum(exchange, part);
}

static void swap_vectors(float **a, float **b)
{
	float *t = *a;

	*a = *b;
	*b = t;
}

int spri_residual_commit(struct spr_exchange *exchange)
{
	swap_vectors(&exchange->residual, &exchange->shadow);
	swap_vectors(&exchange->velocity, &exchange->velocity_shadow);
	exchange->sum.count = 0;
	exchange->sent_squares = 0;
	for (size_t i = 0; i < exchange->n_parts; i++)
		if (exchange->parts[i].algo->kind != SPRI_ALGO_DENSE)
			commit_sparse(exchange, &exchange->parts[i]);
	return exchange->place->update(exchange, 1.0f / (float)exchange->comm->n_ranks);
}
