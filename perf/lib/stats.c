/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Order statistics; see stats.h. */
#include "stats.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	if (isnan(x) || isnan(y))
		return isnan(x) - isnan(y);
	return (x > y) - (x < y);
}

void perf_stats_sort(double *values, size_t n)
{
	if (n)
		qsort(values, n, sizeof *values, ascending);
}

double perf_stats_percentile(const double *sorted, size_t n, double p)
{
	double place, below;
	size_t i;

	assert(p >= 0 && p <= 100);
	if (n == 0)
		return NAN;
	place = p / 100 * (double)(n - 1);
	below = floor(place);
	i = (size_t)below;
	if (i + 1 >= n)
		return sorted[n - 1];
	return sorted[i] + (place - below) * (sorted[i + 1] - sorted[i]);
}

double perf_stats_median(const double *sorted, size_t n)
{
	return perf_stats_percentile(sorted, n, 50);
}

double perf_stats_median_of(double *values, size_t n)
{
	perf_stats_sort(values, n);
	return perf_stats_median(values, n);
}

double perf_stats_mean(const double *values, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += values[i];
	return n ? sum / (double)n : NAN;
}
