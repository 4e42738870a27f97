/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Order statistics of small samples. Pure functions; the sample is sorted in place by
 * perf_stats_sort.
 */
#ifndef PERF_STATS_H
#define PERF_STATS_H

#include <internal/compiler.h>

/* Sorts ascending; NaN last. */
void perf_stats_sort(double *values, size_t n);

/*
 * Of a sorted sample; NaN when it is empty. percentile: p from 0 to 100, linear between
 * neighbours.
 */
double perf_stats_percentile(const double *sorted, size_t n, double p);
double perf_stats_median(const double *sorted, size_t n);

/* Sorts and takes the median. */
double perf_stats_median_of(double *values, size_t n);

double perf_stats_mean(const double *values, size_t n);

#endif
