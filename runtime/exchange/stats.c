/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Statistics of an exchange, and its reset. The norm is computed here, when it is asked
 * for, without the lock.
 */
#include <context.h>
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
		stats->residual_norm = spri_norm2(exchange->residual, exchange->n);
		stats->error_ratio = error_ratio(exchange, stats);
	}
	spri_exchange_release(exchange);
	return 0;
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
		memset(exchange->residual, 0, exchange->n * sizeof *exchange->residual);
	if (exchange->velocity)
		memset(exchange->velocity, 0, exchange->n * sizeof *exchange->velocity);
	for (size_t i = 0; i < exchange->n_parts; i++) {
		exchange->parts[i].threshold = 0;
		exchange->parts[i].steering = (struct exchange_steering){0};
	}
	exchange->step = 0;
	exchange->sent_squares = 0;
	exchange->has_sum = false;
	memset(&exchange->stats, 0, sizeof exchange->stats);
	spri_exchange_release(exchange);
	return 0;
}
