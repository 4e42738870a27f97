/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_write_lat: latency of one-sided writes with notification, in the manner of perftest's
 * ib_write_lat. The contract of endpoints forbids to poll data memory, so what is measured is
 * comparable with ib_send_lat.
 *
 * Path, per size: the client writes and waits for the notification of the server's answer, which
 * is a write of the same size; half of each round trip is a sample. The last ping says that it is
 * the last. Then both ends compare what they were sent last.
 * Failures: wrong bytes are counted, exit status 1; the rest as ptp.h says.
 */
#include "ptp.h"
#include "stats.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MOST (1u << 24) /* of one size; with -D later ones are not kept */

/* What the values of a report are. */
enum { WRONG };

/* The half round trips of one size. */
struct samples {
	double *us; /* owned */
	size_t n, room;
	uint64_t count; /* n, and those that were not kept */
};

static size_t area_bytes(const struct ptp_config *config)
{
	return (size_t)ptp_size_most(config);
}

static uint64_t seed_of(uint64_t size, bool client)
{
	return size << 32 ^ client;
}

static void prepare(struct ptp_link *link, uint64_t size)
{
	bool client = link->config->host != NULL;
	uint8_t *landing = ptp_landing(link);

	ptp_pattern_fill(ptp_source(link), size, seed_of(size, client));
	ptp_pattern_fill(landing, size, seed_of(size, !client));
	for (uint64_t i = 0; i < size; i++) /* every byte is wrong */
		landing[i] = (uint8_t)~landing[i];
}

/* ---- traffic ---- */

static int keep(struct samples *s, const struct ptp_config *config, double us)
{
	s->count++;
	if (s->n == SAMPLES_MOST)
		return 0;
	if (s->n == s->room) {
		size_t room = s->room ? 2 * s->room : 65536;
		double *grown = realloc(s->us, room * sizeof *grown);

		if (!grown)
			return ptp_fail(config, "out of memory for %zu samples", room);
		s->us = grown;
		s->room = room;
	}
	s->us[s->n++] = us;
	return 0;
}

/* Pings until the last is answered. Returns 0, -1. */
static int ping(struct ptp_link *link, uint64_t size, struct samples *s)
{
	const struct ptp_config *config = link->config;
	uint64_t *got = link->ends[0].got;
	uint64_t answers = got[PTP_DATA], before = ptp_now();
	uint64_t until = before + config->seconds * 1000000000;
	bool last = false;

	while (!last) {
		uint64_t now;

		last = config->seconds ? before >= until : s->count + 1 == config->iterations;
		if (ptp_send(link, 0, 0, size, last ? PTP_END : PTP_DATA, 0) < 0)
			return -1;
		answers++;
		if (ptp_await(link, 0, PTP_DATA, answers) < 0)
			return -1;
		now = ptp_now();
		if (keep(s, config, (double)(now - before) / 2e3) < 0)
			return -1;
		before = now;
	}
	return 0;
}

/*
 * Answers until the last ping; `answered` is the count of pings before this size (the first one may
 * have come together with READY). Returns 0, -1.
 */
static int pong(struct ptp_link *link, uint64_t size, uint64_t answered)
{
	uint64_t *got = link->ends[0].got;
	uint64_t last = link->rounds;

	for (;;) {
		while (got[PTP_DATA] + got[PTP_END] == answered) {
			int r = ptp_poll(link, 0);

			if (r == 0)
				r = ptp_idle(link, 0);
			if (r < 0)
				return -1;
		}
		answered++;
		if (ptp_send(link, 0, 0, size, PTP_DATA, 0) < 0)
			return -1;
		if (got[PTP_END] == last)
			return 0;
	}
}

/* ---- results ---- */

static void histogram(const struct samples *s)
{
	for (size_t i = 0; i < s->n; i++)
		printf("# %zu, %.3f\n", i + 1, s->us[i]);
}

static double deviation(const struct samples *s, double mean)
{
	double sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum += (s->us[i] - mean) * (s->us[i] - mean);
	return s->n > 1 ? sqrt(sum / (double)(s->n - 1)) : 0;
}

static void print(struct ptp_report *report, uint64_t size, struct samples *s, uint64_t wrong)
{
	static const char *const keys[] = {"t_min_us",	 "t_max_us", "t_typical_us", "t_avg_us",
					   "t_stdev_us", "t_p99_us", "t_p999_us"};
	double values[spri_countof(keys)];

	report->wrong += wrong;
	if (s->n == 0) { /* the server has none */
		if (report->json) {
			perf_json_begin_object(report->json, NULL);
			perf_json_u64(report->json, "size", size);
			perf_json_u64(report->json, "wrong", wrong);
			perf_json_end_object(report->json);
		}
		return;
	}
	perf_stats_sort(s->us, s->n);
	if (report->config->histogram)
		histogram(s);
	values[0] = s->us[0];
	values[1] = s->us[s->n - 1];
	values[2] = perf_stats_median(s->us, s->n);
	values[3] = perf_stats_mean(s->us, s->n);
	values[4] = deviation(s, values[3]);
	values[5] = perf_stats_percentile(s->us, s->n, 99);
	values[6] = perf_stats_percentile(s->us, s->n, 99.9);
	perf_table_cell(report->table, "%" PRIu64, size);
	perf_table_cell(report->table, "%" PRIu64, s->count);
	for (size_t i = 0; i < spri_countof(keys); i++)
		perf_table_cell(report->table, "%.2f", values[i]);
	if (!report->json)
		return;
	perf_json_begin_object(report->json, NULL);
	perf_json_u64(report->json, "size", size);
	perf_json_u64(report->json, "iterations", s->count);
	for (size_t i = 0; i < spri_countof(keys); i++)
		perf_json_double(report->json, keys[i], values[i]);
	if (report->config->histogram) {
		perf_json_begin_array(report->json, "samples_us");
		for (size_t i = 0; i < s->n; i++)
			perf_json_double(report->json, NULL, s->us[i]);
		perf_json_end_array(report->json);
	}
	perf_json_u64(report->json, "wrong", wrong);
	perf_json_end_object(report->json);
}

static int measure(struct ptp_link *link, struct ptp_report *report, uint64_t size,
		   struct samples *s)
{
	uint64_t mine[PTP_VALUES] = {0}, theirs[PTP_VALUES] = {0};
	const uint64_t *got = link->ends[0].got;
	uint64_t answered = got[PTP_DATA] + got[PTP_END];
	bool client = link->config->host != NULL;
	int r;

	prepare(link, size);
	r = ptp_link_ready(link);
	if (r == 0)
		r = client ? ping(link, size, s) : pong(link, size, answered);
	if (r < 0 || ptp_landed(link) < 0)
		return -1;
	mine[WRONG] = ptp_pattern_wrong(ptp_landing(link), size, seed_of(size, !client));
	if (ptp_link_report(link, mine, theirs) < 0)
		return -1;
	print(report, size, s, mine[WRONG] + theirs[WRONG]);
	return 0;
}

static int run(struct ptp_link *link, struct ptp_report *report)
{
	uint64_t size;
	int r = 0;

	for (unsigned at = 0; r == 0 && ptp_size(link->config, at, &size); at++) {
		struct samples s = {0};

		r = measure(link, report, size, &s);
		free(s.us);
	}
	return r;
}

int main(int argc, char **argv)
{
	static const struct perf_column columns[] = {{"bytes", NULL, 10},
						     {"#iterations", NULL, 12},
						     {"t_min[usec]", NULL, 12},
						     {"t_max[usec]", NULL, 12},
						     {"t_typical[usec]", NULL, 16},
						     {"t_avg[usec]", NULL, 12},
						     {"t_stdev[usec]", NULL, 14},
						     {"99% percentile[usec]", NULL, 21},
						     {"99.9% percentile[usec]", NULL, 23}};
	struct ptp_config config = {.tool = "spr_write_lat",
				    .about = "latency of one-sided writes with notification",
				    .kind = PTP_LAT};
	const struct ptp_tool tool = {columns, columns, spri_countof(columns), area_bytes, run};

	return ptp_main(&config, argc, argv, &tool);
}
