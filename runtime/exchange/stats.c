/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Statistics of an exchange, and its reset. The norm is computed here, when it is asked
 * for, without the lock.
 */
#include <context.h>
#include <string.h>

#include "exchange.h"

int spr_exchange_stats(struct spr_exchange *exchange, struct spr_exchange_stats *stats)
{
	int r;

	if (!exchange || !stats)
		return SPR_EARGUMENT;
	r = spri_exchange_claim(exchange);
	if (r < 0)
		return r;
	*stats = exchange->stats;
	stats->residual_norm = exchange->residual ? spri_norm2(exchange->residual, exchange->n) : 0;
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
	exchange->threshold = 0;
	exchange->step = 0;
	exchange->has_sum = false;
	memset(&exchange->stats, 0, sizeof exchange->stats);
	spri_exchange_release(exchange);
	return 0;
}
