/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The density schedule. Happy path: options are copied as a list of points, of which the
 * last one not after a step says its density. One density is a list of one point. Failures:
 * a schedule that does not begin at step 0, does not ascend, or has a density outside (0,
 * 1] is SPR_EARGUMENT.
 */
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <string.h>

#include "exchange.h"

#define DEFAULT_DENSITY 0.001

static bool is_density(double density)
{
	return density > 0 && density <= 1; /* false for NaN */
}

int spri_density_init(struct spr_exchange *exchange, const struct spr_exchange_options *options,
		      struct spri_text *text)
{
	struct spr_density_point one = {.density = options->density != 0 ? options->density
									 : DEFAULT_DENSITY};
	const struct spr_density_point *from = options->schedule ? options->schedule : &one;
	size_t n = options->schedule ? options->n_schedule : 1;

	if (n == 0) {
		spri_text_set(
			text,
			"the density schedule has no points, at least the one of step 0 is needed");
		return SPR_EARGUMENT;
	}
	for (size_t i = 0; i < n; i++) {
		if (!is_density(from[i].density)) {
			spri_text_set(text,
				      "the density from step %llu on is %g, must be above 0 and at "
				      "most 1",
				      (unsigned long long)from[i].step, from[i].density);
			return SPR_EARGUMENT;
		}
		if (i == 0 ? from[i].step != 0 : from[i].step <= from[i - 1].step) {
			spri_text_set(
				text,
				"point %zu of the density schedule is at step %llu, must be %s", i,
				(unsigned long long)from[i].step,
				i == 0 ? "0" : "after the one before");
			return SPR_EARGUMENT;
		}
	}
	exchange->schedule = spri_calloc(n, sizeof *exchange->schedule);
	if (!exchange->schedule)
		return -ENOMEM;
	memcpy(exchange->schedule, from, n * sizeof *from);
	exchange->n_schedule = n;
	return 0;
}

double spri_density_at(const struct spr_exchange *exchange, uint64_t step)
{
	size_t low = 0, high = exchange->n_schedule; /* the point looked for is in [low, high) */

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (exchange->schedule[middle].step <= step)
			low = middle;
		else
			high = middle;
	}
	return exchange->schedule[low].density;
}

uint64_t spri_density_k(double density, uint64_t n)
{
	uint64_t k = (uint64_t)(density * (double)n); /* exact enough: n ≤ 2^48 */

	return spri_min_u64(spri_max_u64(k, 1), n);
}
