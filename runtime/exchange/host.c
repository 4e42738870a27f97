/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The vectors of an exchange in host memory, by the kernels of this machine's instruction set.
 * Contracts: struct exchange_place. Nothing here fails but for memory and what selection finds.
 */
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <string.h>

#include "exchange.h"

#define ADOPT_BLOCK 256u
/* Elements between two looks at the network: whole blocks of the tree of sums. */
#define SEGMENT ((uint64_t)1 << 17)

/* ---- memory ---- */

static int host_alloc(struct spr_exchange *exchange, size_t bytes, float **out)
{
	(void)exchange;
	/* pages are taken when they are first written, so room that is never used costs nothing */
	*out = spri_alloc_pages(bytes);
	return *out ? 0 : -ENOMEM;
}

static void host_free(struct spr_exchange *exchange, float *v, size_t bytes)
{
	(void)exchange;
	spri_free_pages(v, bytes);
}

/* A mask's length is known when it is there: room for all. */
static int fit_mask(struct exchange_part *part, uint64_t n)
{
	if (part->selected.index)
		return 0;
	part->selected.index = spri_alloc_pages(n * sizeof *part->selected.index);
	part->selected.capacity = n;
	return part->selected.index ? 0 : -ENOMEM;
}

static int host_fit(struct spr_exchange *exchange, struct exchange_part *part, uint64_t n)
{
	(void)exchange;
	return part->algo->kind == SPRI_ALGO_MASKED
		       ? fit_mask(part, n)
		       : spri_list_fit(&part->selected, spri_select_capacity(part->count, n));
}

static void host_unfit(struct spr_exchange *exchange, struct exchange_part *part)
{
	(void)exchange;
	if (part->algo->kind == SPRI_ALGO_MASKED)
		spri_free_pages(part->selected.index, part->count * sizeof *part->selected.index);
	else
		spri_list_free(&part->selected);
}

/* ---- selection ---- */

/* The factor that clips a part's gradient. */
static float clip_scale(const struct spr_exchange *exchange, const struct exchange_part *part)
{
	return exchange->clip == 0
		       ? 1
		       : spri_residual_clip(exchange, spri_norm2(exchange->gradient + part->offset,
								 part->count));
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
	return spri_residual_finite(exchange, s.finite.bad_index, index);
}

/* spri_importance, with a look at the network now and then. */
static int host_weigh(struct spr_exchange *exchange, struct exchange_part *part,
		      struct spri_importance *s)
{
	const struct spri_importance all = *s;
	struct spri_tree trees[3] = {{{0}}};
	uint64_t bad_index = SPRI_NO_INDEX, dropped = 0;

	s->trees = trees;
	part->selected.count = 0;
	for (uint64_t at = 0; at < all.n; at += SEGMENT) {
		s->gradient = all.gradient + at;
		s->residual = all.residual + at;
		s->weight = all.weight + at;
		s->shadow = all.shadow + at;
		s->n = spri_min_u64(SEGMENT, all.n - at);
		s->base = at;
		s->index = part->selected.index + part->selected.count;
		s->capacity = part->selected.capacity - part->selected.count;
		spri_importance(s);
		part->selected.count += s->count;
		bad_index = spri_min_u64(bad_index, s->bad_index);
		dropped += s->dropped;
		spri_exchange_progress(exchange, part, NULL);
	}
	s->gradient = all.gradient;
	s->residual = all.residual;
	s->weight = all.weight;
	s->shadow = all.shadow;
	s->n = all.n;
	s->bad_index = bad_index;
	s->dropped = dropped;
	return 0;
}

static int host_select(struct spr_exchange *exchange, struct exchange_part *part, uint64_t *index)
{
	const float *gradient = exchange->gradient + part->offset;
	bool leave_out = spri_residual_leaves_out(exchange, part);
	float scale = clip_scale(exchange, part);

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

static void host_take_out(struct spr_exchange *exchange, struct exchange_part *part)
{
	float *residual = exchange->residual + part->offset;
	const struct spri_list *sum = &part->op->sum;

	for (uint64_t i = 0; i < sum->count; i++) {
		float *a = &residual[sum->index[i]];

		part->now.sent_squares += (double)*a * (double)*a;
		*a = 0;
	}
	for (uint64_t i = 0; exchange->velocity && i < sum->count; i++) /* factor masking */
		exchange->velocity[part->offset + sum->index[i]] = 0;
}

/*
 * residual[index] += value for what fell to this rank, block by block
 * through the kernel: its floating-point environment and the policy hold here too.
 */
static void host_adopt(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct spri_list *adopted = &part->op->adopted;
	float *residual = exchange->residual + part->offset;
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

/* Selection left zeros there. */
static void host_put_back(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct spri_list *back = &part->selected;

	spri_kernels()->scatter(exchange->residual + part->offset, 0, back->index, back->value,
				back->count, 1);
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

static int host_update(struct spr_exchange *exchange, float factor)
{
	float *update = exchange->update;

	if (!update)
		return 0;
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
	return 0;
}

/* ---- looking at it ---- */

static int host_norm(struct spr_exchange *exchange, const float *v, uint64_t n, double *out)
{
	(void)exchange;
	*out = spri_norm2(v, n);
	return 0;
}

static int host_clear(struct spr_exchange *exchange, float *v, uint64_t n)
{
	(void)exchange;
	memset(v, 0, n * sizeof *v);
	return 0;
}

static int host_copy(const struct spr_exchange *exchange, float *to, const float *from, uint64_t n)
{
	(void)exchange;
	memcpy(to, from, n * sizeof *to);
	return 0;
}

const struct exchange_place spri_place_host = {
	NULL,	     host_alloc,  host_free,  host_alloc,    host_free,	    host_fit,
	host_unfit,  host_select, host_weigh, host_take_out, host_put_back, host_adopt,
	host_update, NULL,	  host_norm,  host_clear,    host_copy,
};
