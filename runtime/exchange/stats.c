/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Statistics of an exchange, and its reset. The norm is computed here, when it is asked
 * for, without the lock.
 */
#include <coll/sparse.h>
#include <context.h>
#include <internal/bits.h>
#include <math.h>
#include <string.h>

#include "exchange.h"

/* What is left over what as many entries drawn at random leave: a share 1 − s/n of the squares. */
static double error_ratio(const struct spr_exchange *exchange,
			  const struct spr_exchange_stats *stats)
{
	double left = stats->residual_norm * stats->residual_norm;
	double share = 1 - (double)stats->selected / (double)exchange->n;
	double random = share * (left + exchange->sent_squares);

	return random > 0 ? sqrt(left / random) : 0;
}

int spr_exchange_stats(struct spr_exchange *exchange, struct spr_exchange_stats *stats)
{
	int r;

	if (!exchange || !stats)
		return SPR_EARGUMENT;
	r = spri_exchange_claim(exchange);
	if (r < 0)
		return r;
	*stats = exchange->stats;
	if (exchange->residual) {
		r = exchange->place->norm(exchange, exchange->residual, exchange->n,
					  &stats->residual_norm);
		stats->error_ratio = error_ratio(exchange, stats);
	}
	spri_exchange_release(exchange);
	return spri_trace(r);
}

/* How many of the sum's entries are below an index. */
static uint64_t entries_below(const struct spri_list *sum, uint64_t index)
{
	return index > 0 ? spri_sparse_reach(sum->index, sum->count, index - 1) : 0;
}

static void fill_layer(const struct spr_exchange *exchange, size_t number,
		       struct spr_layer_stats *stats)
{
	const struct spr_layer *layer = &exchange->layers[number];
	size_t own = spri_part_of_layer(exchange, number);
	const struct exchange_part *part = &exchange->parts[own < exchange->n_parts ? own : 0];

	*stats = (struct spr_layer_stats){.count = layer->count};
	if (part->algo->kind == SPRI_ALGO_DENSE) {
		stats->received = layer->count;
	} else {
		stats->received = entries_below(&exchange->sum, layer->offset + layer->count) -
				  entries_below(&exchange->sum, layer->offset);
		stats->threshold = part->algo->kind == SPRI_ALGO_MASKED
					   ? part->steering.factor * part->steering.ratio
					   : (double)spri_f32_from_bits(part->threshold);
	}
	stats->density = (double)stats->received / (double)layer->count;
}

int spr_exchange_layer_stats(const struct spr_exchange *exchange, size_t layer,
			     struct spr_layer_stats *stats)
{
	const struct spri_log *before;
	int r = 0;

	if (!exchange || !stats || layer >= exchange->n_layers)
		return SPR_EARGUMENT;
	before = spri_context_enter(exchange->comm->context);
	if (exchange->state != EXCHANGE_IDLE && exchange->state != EXCHANGE_READING)
		r = SPR_EBUSY;
	else if (!exchange->has_committed)
		r = SPR_EARGUMENT;
	else
		fill_layer(exchange, layer, stats);
	spri_context_leave(exchange->comm->context, before);
	return spri_trace(r);
}

int spr_exchange_reset(struct spr_exchange *exchange)
{
	int r;

	if (!exchange)
		return SPR_EARGUMENT;
	r = spri_exchange_claim(exchange);
	if (r < 0)
		return r;
	if (exchange->residual)
		r = exchange->place->clear(exchange, exchange->residual, exchange->n);
	if (r == 0 && exchange->velocity)
		r = exchange->place->clear(exchange, exchange->velocity, exchange->n);
	if (r < 0) {
		spri_exchange_release(exchange);
		return spri_trace(r);
	}
	for (size_t i = 0; i < exchange->n_parts; i++) {
		exchange->parts[i].threshold = 0;
		exchange->parts[i].last_cut = 0;
		exchange->parts[i].rise = 0;
		exchange->parts[i].steering = (struct exchange_steering){0};
	}
	exchange->step = 0;
	exchange->sent_squares = 0;
	exchange->has_sum = false;
	exchange->has_committed = false;
	memset(&exchange->stats, 0, sizeof exchange->stats);
	spri_exchange_release(exchange);
	return spri_trace(r);
}
