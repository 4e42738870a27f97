/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The vectors of an exchange: residual, velocity (momentum) and their shadows, the sum of dense
 * parts, and the lists of a step.
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
#include <math.h>
#include <string.h>

#include "exchange.h"

#define ADOPT_BLOCK 256u
#define SEGMENT ((uint64_t)1 << 17) /* elements between two looks at the network */

/* ---- memory ---- */

static bool has_dense_parts(const struct spr_exchange *exchange)
{
	for (size_t i = 0; i < exchange->n_parts; i++)
		if (exchange->parts[i].algo->kind == SPRI_ALGO_DENSE)
			return true;
	return false;
}

/* Pages are taken when they are first written, so room that is never used costs nothing. */
static int make_pages(float **out, uint64_t n)
{
	*out = spri_alloc_pages(n * sizeof(float));
	return *out ? 0 : -ENOMEM;
}

/* Lists whose length is known when the masks are there; room for all. */
static int make_sum(struct spr_exchange *exchange)
{
	exchange->sum.index = spri_alloc_pages(exchange->n * sizeof *exchange->sum.index);
	exchange->sum.capacity = exchange->n;
	return exchange->sum.index ? make_pages(&exchange->sum.value, exchange->n) : -ENOMEM;
}

static int make_mask(struct exchange_part *part)
{
	part->selected.index = spri_alloc_pages(part->count * sizeof *part->selected.index);
	part->selected.capacity = part->count;
	return part->selected.index ? 0 : -ENOMEM;
}

int spri_residual_init(struct spr_exchange *exchange)
{
	bool dense = has_dense_parts(exchange), sparse = exchange->algo->kind != SPRI_ALGO_DENSE;
	uint64_t n = exchange->n;
	int r = 0;

	if (dense)
		r = make_pages(&exchange->dense_sum, n);
	if (r == 0 && sparse)
		r = make_pages(&exchange->residual, n);
	if (r == 0 && sparse)
		r = make_pages(&exchange->shadow, n);
	if (r == 0 && exchange->momentum > 0)
		r = make_pages(&exchange->velocity, n);
	if (r == 0 && exchange->momentum > 0)
		r = make_pages(&exchange->velocity_shadow, n);
	if (r == 0 && exchange->whole_model && dense && exchange->momentum == 0)
		r = make_pages(&exchange->corrected, n);
	if (r == 0 && exchange->algo->kind == SPRI_ALGO_MASKED)
		r = make_sum(exchange);
	for (size_t i = 0; i < exchange->n_parts && r == 0; i++)
		if (exchange->parts[i].algo->kind == SPRI_ALGO_MASKED)
			r = make_mask(&exchange->parts[i]);
	return r;
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
	spri_free_pages(exchange->velocity, bytes);
	spri_free_pages(exchange->velocity_shadow, bytes);
	spri_free_pages(exchange->corrected, bytes);
	for (size_t i = 0; i < exchange->n_parts; i++) {
		struct exchange_part *part = &exchange->parts[i];

		if (part->algo->kind == SPRI_ALGO_MASKED)
			spri_free_pages(part->selected.index,
					part->count * sizeof *part->selected.index);
		else
			free_list(&part->selected);
		free_list(&part->stream.found);
		free_list(&part->stream.late);
	}
	if (exchange->algo->kind == SPRI_ALGO_MASKED) {
		spri_free_pages(exchange->sum.index, exchange->n * sizeof *exchange->sum.index);
		spri_free_pages(exchange->sum.value, bytes);
	} else {
		free_list(&exchange->sum);
	}
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
	int r = 0;

	for (size_t i = 0; i < exchange->n_parts && r == 0; i++) {
		struct exchange_part *part = &exchange->parts[i];

		if (part->algo->kind != SPRI_ALGO_SPARSE)
			continue;
		most += most_entries(exchange, part);
		r = fit_list(&part->selected, spri_select_capacity(part->count, part->now.k));
		if (r == 0 && spri_part_streams(exchange, part))
			r = fit_list(&part->stream.found, spri_stream_most(part->now.k));
		if (r == 0 && spri_part_streams(exchange, part))
			r = fit_list(&part->stream.late, part->now.k);
	}
	return r == 0 && most > 0 ? fit_list(&exchange->sum, most) : r;
}

/* ---- selection ---- */

/* The factor that clips a part's gradient. */
static float clip_scale(const struct spr_exchange *exchange, const struct exchange_part *part)
{
	double bound, norm;

	if (exchange->clip == 0)
		return 1;
	bound = exchange->clip / sqrt((double)exchange->comm->n_ranks);
	norm = spri_norm2(exchange->gradient + part->offset, part->count);
	/* what is not finite is left to selection */
	return norm > bound && isfinite(norm) ? (float)(bound / norm) : 1;
}

/* Under DROP a gradient that is not finite counts as zero, so that momentum outlives it. */
static void drop_velocity(float *shadow, const float *velocity, float momentum, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (spri_f32_nonfinite(shadow[i]))
			shadow[i] = spri_f32_nonfinite(momentum * velocity[i])
					    ? 0
					    : momentum * velocity[i];
}

/*
 * The part's momentum-corrected gradient, in the shadow of the velocity. Dropped values are
 * counted here.
 */
static const float *correct(struct spr_exchange *exchange, struct exchange_part *part, float scale)
{
	const float *velocity = exchange->velocity + part->offset;
	const float *gradient = exchange->gradient + part->offset;
	float *shadow = exchange->velocity_shadow + part->offset, m = (float)exchange->momentum;

	if (spri_kernels()->axpby(shadow, m, velocity, scale, gradient, part->count) &&
	    exchange->policy == SPR_NONFINITE_DROP) {
		for (uint64_t i = 0; i < part->count; i++)
			part->now.dropped += spri_f32_nonfinite(shadow[i]);
		drop_velocity(shadow, velocity, m, part->count);
	}
	return shadow;
}

/* What the whole model is selected from has zeros where dense layers are. */
static void leave_out_dense(struct spr_exchange *exchange, float *from)
{
	for (size_t i = 1; i < exchange->n_parts; i++)
		memset(from + exchange->parts[i].offset, 0,
		       exchange->parts[i].count * sizeof *from);
}

static int finite_status(const struct spr_exchange *exchange, const struct spri_finite *finite,
			 uint64_t *index)
{
	*index = finite->bad_index;
	return exchange->policy == SPR_NONFINITE_ERROR && finite->bad_index != SPRI_NO_INDEX
		       ? SPR_ENONFINITE
		       : 0;
}

static int select_sparse(struct spr_exchange *exchange, struct exchange_part *part,
			 const float *gradient, float scale, uint64_t *index)
{
	struct spri_select s = {
		.gradient = gradient,
		.scale = scale,
		.residual = exchange->residual + part->offset,
		.shadow = exchange->shadow + part->offset,
		.n = part->count,
		.k = part->now.k,
		.policy = exchange->policy,
		.threshold = part->threshold,
		.index = part->selected.index,
		.value = part->selected.value,
		.capacity = part->selected.capacity,
	};
	struct spri_select_walk walk;
	double norm;

	spri_select_begin(&s, &walk);
	while (spri_select_some(&walk, SEGMENT))
		spri_exchange_progress(exchange, part, part->now.ahead_key ? &walk.found : NULL);
	spri_select_end(&walk);
	part->now.cut_key = s.cut_key;
	part->now.cut_index = s.cut_index;
	norm = spri_norm2(s.value, s.count);
	part->selected.count = s.count;
	part->now.threshold = s.threshold;
	part->now.repaired = s.repaired;
	part->now.dropped += s.finite.dropped;
	part->now.sent_squares = norm * norm;
	if (exchange->velocity) /* factor masking */
		for (uint64_t i = 0; i < s.count; i++)
			exchange->velocity_shadow[part->offset + s.index[i]] = 0;
	return finite_status(exchange, &s.finite, index);
}

int spri_residual_select(struct spr_exchange *exchange, struct exchange_part *part, uint64_t *index)
{
	const float *gradient = exchange->gradient + part->offset;
	bool leave_out = part->algo->kind == SPRI_ALGO_SPARSE && exchange->whole_model &&
			 exchange->n_parts > 1;
	float scale = clip_scale(exchange, part);

	if (!exchange->update && exchange->dense_sum)
		return SPR_EARGUMENT;
	if (!exchange->weights &&
	    (exchange->weight_decay > 0 || part->algo->kind == SPRI_ALGO_MASKED))
		return SPR_EARGUMENT;
	if (part->algo->kind == SPRI_ALGO_DENSE) {
		if (exchange->clip > 0)
			spri_kernels()->scale(exchange->dense_sum + part->offset, gradient,
					      part->count, scale);
		return 0;
	}
	if (exchange->velocity) {
		gradient = correct(exchange, part, scale);
		scale = 1;
		if (leave_out)
			leave_out_dense(exchange, exchange->velocity_shadow);
	} else if (leave_out) {
		memcpy(exchange->corrected, gradient, part->count * sizeof *gradient);
		leave_out_dense(exchange, exchange->corrected);
		gradient = exchange->corrected;
	}
	return part->algo->kind == SPRI_ALGO_MASKED
		       ? spri_importance_select(exchange, part, gradient, scale, index)
		       : select_sparse(exchange, part, gradient, scale, index);
}

/* ---- commit ---- */

/*
 * residual[index] += value for what fell to this rank, block by block
 * through the kernel: its floating-point environment and the policy hold here too.
 */
static void adopt(const struct spr_exchange *exchange, float *residual,
		  const struct spri_list *adopted)
{
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

/* The published rule: what this rank sent and the result does not name is put back. */
static void put_back(float *residual, const struct spri_list *sent, const struct spri_list *sum)
{
	uint64_t j = 0;

	for (uint64_t i = 0; i < sent->count; i++) {
		while (j < sum->count && sum->index[j] < sent->index[i])
			j++;
		if (j == sum->count || sum->index[j] != sent->index[i])
			residual[sent->index[i]] = sent->value[i]; /* selection left zero there */
	}
}

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

static void commit_sparse(struct spr_exchange *exchange, struct exchange_part *part)
{
	float *residual = exchange->residual + part->offset;
	const struct spri_op *op = part->op;

	part->threshold = part->now.threshold;
	expect_cut(part);
	if (part->algo->kind == SPRI_ALGO_MASKED) {
		for (uint64_t i = 0; i < op->sum.count; i++) {
			float *a = &residual[op->sum.index[i]];

			part->now.sent_squares += (double)*a * (double)*a;
			*a = 0;
		}
		if (exchange->velocity) /* factor masking */
			for (uint64_t i = 0; i < op->sum.count; i++)
				exchange->velocity[part->offset + op->sum.index[i]] = 0;
		spri_importance_steer(exchange, part);
	}
	if (exchange->published)
		put_back(residual, &part->selected, &op->sum);
	else
		adopt(exchange, residual, &op->adopted);
	exchange->sent_squares += part->now.sent_squares;
	append_sum(exchange, part);
}

/* The average of a dense part, with momentum, straight to the update. */
static void commit_dense(struct spr_exchange *exchange, const struct exchange_part *part,
			 float factor)
{
	float *update = exchange->update + part->offset, *velocity;

	spri_kernels()->scale(update, exchange->dense_sum + part->offset, part->count, factor);
	if (!exchange->velocity)
		return;
	velocity = exchange->velocity + part->offset;
	/* the shadow is that of before the step now */
	(void)spri_kernels()->axpby(velocity, (float)exchange->momentum,
				    exchange->velocity_shadow + part->offset, 1, update,
				    part->count);
	memcpy(update, velocity, part->count * sizeof *update);
}

static void swap_vectors(float **a, float **b)
{
	float *t = *a;

	*a = *b;
	*b = t;
}

void spri_residual_commit(struct spr_exchange *exchange)
{
	float factor = 1.0f / (float)exchange->comm->n_ranks, *update = exchange->update;

	swap_vectors(&exchange->residual, &exchange->shadow);
	swap_vectors(&exchange->velocity, &exchange->velocity_shadow);
	exchange->sum.count = 0;
	exchange->sent_squares = 0;
	for (size_t i = 0; i < exchange->n_parts; i++)
		if (exchange->parts[i].algo->kind != SPRI_ALGO_DENSE)
			commit_sparse(exchange, &exchange->parts[i]);
	if (!update)
		return;
	if (exchange->algo->kind != SPRI_ALGO_DENSE) {
		memset(update, 0, exchange->n * sizeof *update);
		spri_kernels()->scatter(update, 0, exchange->sum.index, exchange->sum.value,
					exchange->sum.count, factor);
	}
	for (size_t i = 0; i < exchange->n_parts; i++)
		if (exchange->parts[i].algo->kind == SPRI_ALGO_DENSE)
			commit_dense(exchange, &exchange->parts[i], factor);
	if (exchange->weight_decay > 0)
		(void)spri_kernels()->axpby(update, 1, update, (float)exchange->weight_decay,
					    exchange->weights, exchange->n);
}
