/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One rank of the benchmark.
 *
 * Path: open, meet, probe for α and β; then for each size: draw this rank's vector, select its k
 * largest, let rank 0 compute the oracle; then each algorithm: dense ones are timed as they are,
 * sparse ones as a whole exchange and as the communication alone. Rank 0 compares both results
 * with the oracle, and every rank's digest with its own.
 * Failures: printed where they are seen; the rank leaves, and its peers notice.
 */
#include "allreduce.h"
#include "stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ar_fail(const struct ar_bench *bench, const char *what, int r, const char *text)
{
	if (!*text && bench->comm)
		text = spr_comm_error(bench->comm);
	if (!*text && bench->context)
		text = spr_context_error(bench->context);
	fprintf(stderr, "%s: rank %d: %s: %s%s%s\n", AR_TOOL, bench->rank, what, spr_strerror(r),
		*text ? ": " : "", text);
	return r;
}

static void log_line(void *arg, enum spr_log_level level, const char *text)
{
	const struct ar_bench *bench = arg;

	(void)level; /* SPR_LOG says what comes here */
	fprintf(stderr, "%s: rank %d: %s\n", AR_TOOL, bench->rank, text);
}

static int meet(struct ar_bench *bench)
{
	const struct ar_config *config = bench->config;
	struct spr_context_options options = {.size = sizeof options,
					      .transport = config->transport,
					      .timeout_ns = (uint64_t)(config->timeout_s * 1e9),
					      .log = log_line,
					      .log_arg = bench,
					      .sim = bench->sim,
					      .sim_rank = bench->rank};
	int r = spr_context_open(&options, &bench->context);

	if (r < 0)
		return ar_fail(bench, "open", r, "");
	r = spr_comm_create(bench->context, NULL, &bench->comm);
	if (r < 0)
		return ar_fail(bench, "meeting the other ranks", r, "");
	bench->rank = spr_comm_rank(bench->comm);
	bench->n_ranks = spr_comm_size(bench->comm);
	bench->samples = calloc((size_t)bench->n_ranks, sizeof *bench->samples);
	bench->marks = calloc((size_t)bench->n_ranks, 1);
	bench->broadcasters = calloc((size_t)config->broadcasters, sizeof *bench->broadcasters);
	if (!bench->samples || !bench->marks || !bench->broadcasters)
		return ar_fail(bench, "samples", -ENOMEM, "");
	r = spr_mask_broadcasters(bench->n_ranks, (int)config->broadcasters, AR_MASK_SEED, 0,
				  bench->broadcasters);
	if (r < 0)
		return ar_fail(bench, "--broadcasters", r, "there are not so many ranks");
	return 0;
}

/*
 * How many entries an algorithm is asked for, and the density with which an exchange asks for as
 * many.
 */
static void choose_k(const struct ar_config *config, struct ar_case *what)
{
	double count = (double)what->count;

	what->k = config->k;
	what->density = config->density;
	if (!config->k) {
		what->k = (uint64_t)(config->density * count);
		what->k = what->k ? what->k : 1;
	} else if (config->k >= what->count) {
		what->density = 1;
	} else {
		what->density = ((double)config->k + 0.5) /
				count; /* the half keeps rounding away from the floor */
	}
}

/* Wrong elements and entries of the last result, on rank 0. */
static int check(struct ar_bench *bench, const struct ar_case *what, uint64_t *wrong)
{
	struct perf_list want = {0};
	int r;

	if (bench->rank != 0 || !bench->config->check || bench->config->random)
		return 0;
	if (!what->algo->sparse) {
		*wrong += perf_wrong_dense(bench->out, bench->oracle.dense, what->count);
		return 0;
	}
	if (bench->config->wire != SPR_F32)
		return 0; /* sums are rounded: their mass is what is checked */
	if (what->algo->sparse == 2)
		r = perf_oracle_masked(&bench->oracle, bench->broadcasters,
				       (int)bench->config->broadcasters, &want);
	else if (!strcmp(what->algo->name, "topk_allgather"))
		r = perf_oracle_topk_allgather(&bench->oracle, &want);
	else if (!strcmp(what->algo->name, "prune_ring"))
		r = perf_oracle_prune_ring(&bench->oracle, 0, &want);
	else
		r = perf_oracle_gtopk(&bench->oracle, &want);
	if (r < 0)
		return ar_fail(bench, "oracle", r, "");
	*wrong += perf_wrong_sparse(bench->result.index, bench->result.value, bench->result.count,
				    &want);
	perf_list_fini(&want);
	return 0;
}

/* The update that the exchange wrote: the sum times 1/P (rounded once) at entries, else zero. */
static uint64_t check_update(const struct ar_bench *bench, const struct ar_case *what)
{
	float inverse = 1.0f / (float)bench->n_ranks;
	uint64_t wrong = 0, at = 0;

	for (uint64_t i = 0; i < what->count; i++) {
		float want = 0;

		if (at < bench->result.count && bench->result.index[at] == i)
			want = bench->result.value[at++] * inverse;
		wrong += !(bench->out[i] == want);
	}
	return wrong;
}

static double median_us(const struct ar_series *series, enum ar_metric metric)
{
	return perf_stats_median_of(series->ns[metric], series->n) / 1e3;
}

/* From the series to the line's times; the arrays are sorted by now. */
static void fill_line(const struct ar_bench *bench, const struct ar_series *whole,
		      const struct ar_series *alone, struct ar_line *line)
{
	const struct ar_case *what = line->what;
	double rounds = 0, bytes = 0, size = (double)what->count * sizeof(float);
	uint64_t k = what->k < what->count ? what->k : what->count;
	size_t last = whole->n - 1;

	line->time_us = median_us(whole, AR_TIME);
	line->time_min_us = whole->ns[AR_TIME][0] / 1e3;
	line->time_max_us = whole->ns[AR_TIME][last] / 1e3;
	line->select_us = median_us(whole, AR_SELECT);
	line->wait_us = median_us(whole, AR_WAIT);
	line->merge_us = median_us(whole, AR_MERGE);
	line->commit_us = median_us(whole, AR_COMMIT);
	line->comm_us = median_us(alone, AR_COMM);
	line->comm_min_us = alone->ns[AR_COMM][0] / 1e3;
	line->comm_max_us = alone->ns[AR_COMM][last] / 1e3;
	line->wire_bytes = whole->wire_bytes;
	line->value_bytes = whole->value_bytes;
	line->direct_bytes = whole->direct_bytes;
	line->rounds = whole->rounds;
	line->received = whole->received;
	line->digest = whole->digest;
	if (spr_algo_cost(what->algo->name, bench->n_ranks, what->count, k, &rounds, &bytes) == 0)
		line->floor_us = (rounds * bench->alpha_ns + bytes * bench->beta_ns) / 1e3;
	if (line->time_us > 0) {
		line->algbw = size / line->time_us / 1e3;
		line->busbw = line->algbw * 2 * (bench->n_ranks - 1) / bench->n_ranks;
	}
}

/* A sparse algorithm: the exchange (from count 1 on), then the communication alone. */
static int time_sparse(struct ar_bench *bench, const struct ar_case *what, struct ar_series *whole,
		       struct ar_series *alone, uint64_t *wrong)
{
	const struct ar_config *config = bench->config;
	struct spr_exchange_options options = {.size = sizeof options,
					       .count = what->count,
					       .algo = what->algo->name,
					       .density = what->density,
					       .memory = config->memory,
					       .device = config->device};
	int r;

	r = ar_time(bench, what, AR_SPARSE, config->warmups, config->iterations, alone);
	if (r == 0)
		r = check(bench, what, wrong);
	if (r < 0)
		return r;
	if (what->count == 0 || config->wire != SPR_F32 || config->codec != SPR_CODEC_AUTO)
		/* nothing to train, or what an exchange does not do */
		return ar_time(bench, what, AR_SPARSE, 0, config->iterations, whole);
	r = spr_exchange_create(bench->comm, &options, &bench->exchange);
	if (r < 0)
		return ar_fail(bench, "exchange", r, "");
	r = ar_time(bench, what, AR_EXCHANGE, config->warmups, config->iterations, whole);
	if (r == 0)
		r = check(bench, what, wrong);
	if (r == 0 && bench->rank == 0 && config->check)
		*wrong += check_update(bench, what);
	spr_exchange_destroy(bench->exchange);
	bench->exchange = NULL;
	return r;
}

/* A masked algorithm: choosing the mask and summing, then the sum alone. */
static int time_masked(struct ar_bench *bench, const struct ar_case *what, struct ar_series *whole,
		       struct ar_series *alone, uint64_t *wrong)
{
	const struct ar_config *config = bench->config;
	int r;

	r = ar_time(bench, what, AR_MASKED_ALONE, config->warmups, config->iterations, alone);
	if (r == 0)
		r = check(bench, what, wrong);
	if (r == 0)
		r = ar_time(bench, what, AR_MASKED, config->warmups, config->iterations, whole);
	if (r == 0)
		r = check(bench, what, wrong);
	return r;
}

static int run_case(struct ar_bench *bench, uint64_t count, const struct spr_algo_info *algo)
{
	const struct ar_config *config = bench->config;
	struct ar_case what = {.count = count, .algo = algo};
	struct ar_line line = {.what = &what};
	struct ar_series whole = {0}, alone = {0};
	uint64_t wrong = 0;
	int r;

	choose_k(config, &what);
	if (algo->sparse) {
		r = algo->sparse == 2 ? time_masked(bench, &what, &whole, &alone, &wrong)
				      : time_sparse(bench, &what, &whole, &alone, &wrong);
		wrong += alone.astray + whole.astray;
		wrong += alone.deviations + (alone.digest != whole.digest);
	} else {
		r = ar_time(bench, &what, AR_DENSE, config->warmups, config->iterations, &whole);
		if (r == 0)
			r = check(bench, &what, &wrong);
	}
	wrong += whole.deviations;
	if (r == 0 && bench->rank == 0) {
		fill_line(bench, &whole, algo->sparse ? &alone : &whole, &line);
		line.wrong = wrong;
		bench->wrong += wrong;
		ar_report_line(bench->report, bench, &line);
	}
	ar_series_fini(&whole);
	ar_series_fini(&alone);
	return r;
}

static void free_size(struct ar_bench *bench, uint64_t count)
{
	ar_take_back(bench, count);
	free(bench->in);
	free(bench->out);
	bench->in = bench->out = NULL;
	perf_list_fini(&bench->own);
	perf_oracle_fini(&bench->oracle);
}

/* The vectors of one size. */
static int prepare_size(struct ar_bench *bench, uint64_t count)
{
	const struct ar_config *config = bench->config;
	struct ar_case what = {.count = count};
	size_t n = count ? (size_t)count : 1;
	int r;

	choose_k(config, &what);
	bench->in = malloc(n * sizeof *bench->in);
	bench->out = malloc(n * sizeof *bench->out);
	if (!bench->in || !bench->out)
		return ar_fail(bench, "vectors", -ENOMEM, "");
	if (config->random)
		perf_input_random(config->seed, bench->rank, 0, count, bench->in);
	else
		perf_input_exact(config->seed, bench->rank, 0, count, bench->in);
	r = perf_list_topk(bench->in, count, what.k, &bench->own);
	if (r == 0 && bench->rank == 0 && config->check && !config->random)
		r = perf_oracle_init(&bench->oracle, config->seed, bench->n_ranks, count, what.k);
	return r < 0 ? ar_fail(bench, "oracle", r, "") : ar_lend(bench, count);
}

static int run_sizes(struct ar_bench *bench)
{
	const struct ar_config *config = bench->config;
	int r = 0;

	for (size_t i = 0; i < config->n_counts && r == 0; i++) {
		r = prepare_size(bench, config->counts[i]);
		for (size_t a = 0; a < config->n_algos && r == 0; a++)
			r = run_case(bench, config->counts[i], &config->algos[a]);
		free_size(bench, config->counts[i]);
	}
	return r;
}

int ar_bench_run(struct ar_bench *bench)
{
	int r = meet(bench);

	if (r == 0)
		r = ar_probe(bench);
	if (r == 0 && bench->rank == 0)
		ar_report_begin(bench->report, bench);
	if (r == 0)
		r = run_sizes(bench);
	if (r == 0)
		r = ar_barrier(bench); /* nobody leaves while another is still reading */
	perf_list_fini(&bench->result);
	spr_comm_destroy(bench->comm);
	spr_context_close(bench->context);
	free(bench->samples);
	free(bench->marks);
	free(bench->broadcasters);
	bench->comm = NULL;
	bench->context = NULL;
	return r;
}
