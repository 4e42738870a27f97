/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Timed iterations. Path: each iteration begins with a barrier, so that no rank measures how late
 * another one was; the samples of all ranks are then gathered, and an iteration took what its
 * slowest rank took.
 *
 * Selection and communication are timed apart. Within an exchange a rank that selected early
 * waits for the others, so its time from there on says more about their selection than about the
 * messages; the communication alone is therefore measured in iterations of its own: the same
 * entries, already selected, through spr_allreduce_sparse.
 * Failures: an error of the library ends the run on every rank; it is printed where it was seen.
 */
#include "allreduce.h"
#include "stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_BYTES_MAX (16u << 20)
#define PROBE_BYTES_MIN (256u << 10)

int ar_barrier(struct ar_bench *bench)
{
	char mark = 1;
	int r = spr_comm_allgather(bench->comm, &mark, bench->marks, 1);

	return r < 0 ? ar_fail(bench, "barrier", r, "") : 0;
}

/* Waits for the request; on failure prints with the request's own text. */
static int finish(struct ar_bench *bench, const char *what, struct spr_request *request)
{
	int r = spr_request_wait(request);

	return r < 0 ? ar_fail(bench, what, r, spr_request_error(request)) : 0;
}

static void take_stats(const struct spr_request *request, struct ar_sample *sample)
{
	struct spr_request_stats stats;

	spr_request_stats(request, &stats);
	sample->wire_bytes = stats.wire_bytes;
	sample->value_bytes = stats.value_bytes;
	sample->rounds = stats.rounds;
	sample->ns[AR_MERGE] = (double)stats.merge_ns;
}

static int run_dense(struct ar_bench *bench, const struct ar_case *what, bool digest,
		     struct ar_sample *sample)
{
	struct spr_allreduce_args args = {.size = sizeof args,
					  .algo = what->algo->name,
					  .in = bench->lib_in,
					  .out = bench->lib_out,
					  .count = what->count,
					  .memory = bench->memory,
					  .device = bench->config->device};
	struct spr_request *request;
	uint64_t begin = spr_context_now_ns(bench->context);
	int r = spr_allreduce(bench->comm, &args, &request);

	if (r < 0)
		return ar_fail(bench, what->algo->name, r, "");
	r = finish(bench, what->algo->name, request);
	sample->ns[AR_TIME] = (double)(spr_context_now_ns(bench->context) - begin);
	sample->ns[AR_COMM] = sample->ns[AR_TIME];
	if (r == 0) {
		take_stats(request, sample);
		sample->received = what->count;
		if (digest)
			r = ar_pull_out(bench, what->count);
		if (digest && r == 0)
			sample->digest = perf_digest_dense(0, bench->out, what->count);
	}
	spr_request_destroy(request);
	return r;
}

/* What this rank brought (its entries) less what it keeps and, once, what came out. */
static uint64_t mass_of(const struct ar_bench *bench, const struct perf_list *brought,
			const struct spr_sparse *adopted, const struct spr_sparse *sum)
{
	uint64_t mass;

	if (!bench->config->check || bench->config->random)
		return 0;
	mass = perf_mass(brought->index, brought->value, brought->count);
	mass -= perf_mass(adopted->index, adopted->value, adopted->count);
	if (bench->rank == 0)
		mass -= perf_mass(sum->index, sum->value, sum->count);
	return mass;
}

/* Keeps a copy of a result for the check, and digests it. */
static int keep_result(struct ar_bench *bench, const struct spr_sparse *sum,
		       struct ar_sample *sample)
{
	size_t n = sum->count ? (size_t)sum->count : 1;

	perf_list_fini(&bench->result);
	bench->result.index = malloc(n * sizeof *bench->result.index);
	bench->result.value = malloc(n * sizeof *bench->result.value);
	if (!bench->result.index || !bench->result.value)
		return ar_fail(bench, "copy of the result", -ENOMEM, "");
	if (sum->count) {
		memcpy(bench->result.index, sum->index, n * sizeof *bench->result.index);
		memcpy(bench->result.value, sum->value, n * sizeof *bench->result.value);
	}
	bench->result.count = sum->count;
	sample->digest = perf_digest_sparse(0, sum->index, sum->value, sum->count);
	return 0;
}

static int run_sparse(struct ar_bench *bench, const struct ar_case *what, bool digest,
		      struct ar_sample *sample)
{
	struct spr_allreduce_sparse_args args = {
		.size = sizeof args,
		.algo = what->algo->name,
		.in = {bench->own.count, bench->lib_own.index, bench->lib_own.value},
		.k = what->k,
		.length = what->count,
		.wire = bench->config->wire,
		.codec = bench->config->codec,
		.memory = bench->memory,
		.device = bench->config->device};
	struct spr_request *request;
	struct spr_sparse sum, adopted;
	uint64_t begin = spr_context_now_ns(bench->context);
	int r = spr_allreduce_sparse(bench->comm, &args, &request);

	if (r < 0)
		return ar_fail(bench, what->algo->name, r, "");
	r = finish(bench, what->algo->name, request);
	sample->ns[AR_TIME] = (double)(spr_context_now_ns(bench->context) - begin);
	sample->ns[AR_COMM] = sample->ns[AR_TIME];
	if (r == 0) {
		take_stats(request, sample);
		r = spr_allreduce_sparse_result(request, &sum, &adopted);
		if (r < 0)
			ar_fail(bench, "result", r, "");
	}
	if (r == 0) {
		sample->received = sum.count;
		if (digest) {
			sample->mass = mass_of(bench, &bench->own, &adopted, &sum);
			r = keep_result(bench, &sum, sample);
		}
	}
	spr_request_destroy(request);
	return r;
}

static bool proposes(const struct ar_bench *bench)
{
	for (uint64_t i = 0; i < bench->config->broadcasters; i++)
		if (bench->broadcasters[i] == bench->rank)
			return true;
	return false;
}

/* Keeps a masked result; what this rank brought is its vector at the mask. */
static int keep_masked(struct ar_bench *bench, const struct spr_request *request, bool digest,
		       struct ar_sample *sample)
{
	struct spr_sparse sum, adopted;
	struct perf_list brought = {0};
	int r = spr_allreduce_sparse_result(request, &sum, &adopted);

	if (r < 0)
		return ar_fail(bench, "result", r, "");
	sample->received = sum.count;
	if (!digest)
		return 0;
	brought.index = (uint64_t *)(uintptr_t)sum.index;
	brought.value = malloc((size_t)(sum.count + 1) * sizeof *brought.value);
	if (!brought.value)
		return ar_fail(bench, "copy of the result", -ENOMEM, "");
	for (; brought.count < sum.count; brought.count++)
		brought.value[brought.count] = bench->in[sum.index[brought.count]];
	sample->mass = mass_of(bench, &brought, &adopted, &sum);
	free(brought.value);
	return keep_result(bench, &sum, sample);
}

static int run_masked(struct ar_bench *bench, const struct ar_case *what, bool choose, bool digest,
		      struct ar_sample *sample)
{
	struct spr_allreduce_masked_args args = {.size = sizeof args,
						 .algo = what->algo->name,
						 .in = bench->lib_in,
						 .count = what->count,
						 .mask = bench->lib_own.index,
						 .n_mask = bench->own.count,
						 .broadcasters = (int)bench->config->broadcasters,
						 .seed = AR_MASK_SEED,
						 .wire = bench->config->wire,
						 .memory = bench->memory,
						 .device = bench->config->device};
	uint64_t begin = spr_context_now_ns(bench->context), chosen;
	struct perf_list mask = {0};
	struct spr_request *request;
	int r = 0;

	if (choose && proposes(bench)) {
		r = perf_list_topk(bench->in, what->count, what->k, &mask);
		args.mask = mask.index;
		args.n_mask = mask.count;
	}
	if (r == 0 && mask.count > 0 && bench->memory != SPR_MEMORY_HOST) {
		/* as many as own has: the mask takes its place */
		args.mask = bench->lib_own.index;
		r = ar_push(bench, bench->lib_own.index, mask.index,
			    mask.count * sizeof *mask.index);
	}
	chosen = spr_context_now_ns(bench->context);
	if (r == 0)
		r = spr_allreduce_masked(bench->comm, &args, &request);
	if (r < 0) {
		perf_list_fini(&mask);
		return ar_fail(bench, what->algo->name, r, "");
	}
	r = finish(bench, what->algo->name, request);
	sample->ns[AR_TIME] = (double)(spr_context_now_ns(bench->context) - begin);
	sample->ns[AR_SELECT] = (double)(chosen - begin);
	sample->ns[AR_COMM] = sample->ns[AR_TIME] - sample->ns[AR_SELECT];
	if (r == 0)
		take_stats(request, sample);
	if (r == 0)
		r = keep_masked(bench, request, digest, sample);
	spr_request_destroy(request);
	perf_list_fini(&mask);
	return r;
}

static int run_exchange(struct ar_bench *bench, const struct ar_case *what, bool digest,
			struct ar_sample *sample)
{
	struct spr_exchange_stats stats;
	struct spr_request *request;
	struct spr_sparse sum;
	uint64_t begin = spr_context_now_ns(bench->context);
	int r = spr_exchange_start(bench->exchange, bench->lib_in, bench->lib_out, &request);

	if (r < 0)
		return ar_fail(bench, "exchange", r, "");
	r = finish(bench, what->algo->name, request);
	sample->ns[AR_TIME] = (double)(spr_context_now_ns(bench->context) - begin);
	if (r == 0)
		take_stats(request, sample);
	spr_request_destroy(request);
	if (r < 0)
		return r;
	r = spr_exchange_stats(bench->exchange, &stats);
	if (r < 0)
		return ar_fail(bench, "exchange statistics", r, "");
	sample->ns[AR_SELECT] = (double)stats.select_ns;
	sample->ns[AR_WAIT] = (double)stats.comm_ns;
	sample->ns[AR_MERGE] = (double)stats.merge_ns;
	sample->ns[AR_COMMIT] = (double)stats.commit_ns;
	sample->wire_bytes = stats.wire_bytes;
	sample->value_bytes = stats.value_bytes;
	sample->direct_bytes = stats.direct_bytes;
	sample->received = stats.received;
	if (!digest)
		return 0;
	r = ar_pull_out(bench, what->count);
	if (r < 0)
		return r;
	r = spr_exchange_result(bench->exchange, &sum);
	if (r < 0)
		return ar_fail(bench, "exchange result", r, "");
	return keep_result(bench, &sum, sample);
}

/* One iteration, from equal start states. */
static int iterate(struct ar_bench *bench, const struct ar_case *what, enum ar_way way, bool digest,
		   struct ar_sample *sample)
{
	int r;

	if (way == AR_EXCHANGE) {
		r = spr_exchange_reset(bench->exchange);
		if (r < 0)
			return ar_fail(bench, "reset", r, "");
	}
	r = ar_barrier(bench);
	if (r < 0)
		return r;
	switch (way) {
	case AR_DENSE:
		return run_dense(bench, what, digest, sample);
	case AR_EXCHANGE:
		return run_exchange(bench, what, digest, sample);
	case AR_SPARSE:
		return run_sparse(bench, what, digest, sample);
	case AR_MASKED:
	case AR_MASKED_ALONE:
		return run_masked(bench, what, way == AR_MASKED, digest, sample);
	}
	return -EINVAL;
}

/* Puts what all ranks measured in an iteration into the series. */
static void record(const struct ar_bench *bench, struct ar_series *series)
{
	const struct ar_sample *first = &bench->samples[0];
	uint64_t mass = 0;

	series->wire_bytes = series->value_bytes = series->rounds = series->received = 0;
	series->direct_bytes = 0;
	for (int rank = 0; rank < bench->n_ranks; rank++) {
		const struct ar_sample *s = &bench->samples[rank];

		for (int m = 0; m < AR_METRICS; m++)
			if (rank == 0 || s->ns[m] > series->ns[m][series->n])
				series->ns[m][series->n] = s->ns[m];
		if (s->wire_bytes > series->wire_bytes)
			series->wire_bytes = s->wire_bytes;
		if (s->value_bytes > series->value_bytes)
			series->value_bytes = s->value_bytes;
		if (s->direct_bytes > series->direct_bytes)
			series->direct_bytes = s->direct_bytes;
		if (s->rounds > series->rounds)
			series->rounds = s->rounds;
		if (s->received > series->received)
			series->received = s->received;
		mass += s->mass;
		if (s->digest && !series->digest)
			series->digest = first->digest;
		series->deviations +=
			s->digest != first->digest || (s->digest && s->digest != series->digest);
	}
	series->astray += mass != 0;
	series->n++;
}

void ar_series_fini(struct ar_series *series)
{
	for (int m = 0; m < AR_METRICS; m++)
		free(series->ns[m]);
	*series = (struct ar_series){0};
}

int ar_time(struct ar_bench *bench, const struct ar_case *what, enum ar_way way, uint64_t warmups,
	    uint64_t iterations, struct ar_series *series)
{
	bool results = bench->config->check || bench->config->digest;

	*series = (struct ar_series){0};
	for (int m = 0; m < AR_METRICS; m++) {
		series->ns[m] = calloc((size_t)iterations, sizeof *series->ns[m]);
		if (!series->ns[m])
			return ar_fail(bench, "samples", -ENOMEM, "");
	}
	for (uint64_t i = 0; i < warmups + iterations; i++) {
		struct ar_sample sample = {0};
		bool digest = results && (i == warmups || i + 1 == warmups + iterations);
		int r = iterate(bench, what, way, digest, &sample);

		if (r < 0)
			return r;
		r = spr_comm_allgather(bench->comm, &sample, bench->samples, sizeof sample);
		if (r < 0)
			return ar_fail(bench, "gathering of times", r, "");
		if (i >= warmups)
			record(bench, series);
	}
	return 0;
}

/* Median time of one operation, and its rounds and bytes by the formula. */
static int probe(struct ar_bench *bench, const char *algo, bool sparse, uint64_t count,
		 uint64_t warmups, uint64_t iterations, double *ns, double *rounds, double *bytes)
{
	struct spr_algo_info info = {.name = algo, .sparse = sparse};
	struct ar_case what = {.count = count, .algo = &info, .k = 1};
	uint64_t index = 0;
	float one = 1;
	struct perf_list own = {1, &index, &one};
	struct ar_series series;
	int r = spr_algo_cost(algo, bench->n_ranks, count, 1, rounds, bytes);

	if (r < 0)
		return ar_fail(bench, algo, r, "");
	bench->lib_in = bench->in;
	bench->lib_out = bench->out;
	if (sparse)
		bench->own = bench->lib_own = own; /* nothing is selected yet */
	r = ar_time(bench, &what, sparse ? AR_SPARSE : AR_DENSE, warmups, iterations, &series);
	if (sparse)
		bench->own = bench->lib_own = (struct perf_list){0};
	if (r == 0)
		*ns = perf_stats_median_of(series.ns[AR_TIME], series.n);
	ar_series_fini(&series);
	return r;
}

/*
 * β from the times of a dense_ring of `count` elements and of a quarter of them: what both have in
 * common (rounds, waking up) drops out.
 */
static int probe_beta(struct ar_bench *bench, uint64_t count)
{
	double whole_ns, whole_bytes, quarter_ns, quarter_bytes, rounds;
	int r = probe(bench, "dense_ring", false, count, 1, 5, &whole_ns, &rounds, &whole_bytes);

	if (r == 0)
		r = probe(bench, "dense_ring", false, count / 4, 1, 5, &quarter_ns, &rounds,
			  &quarter_bytes);
	if (r < 0)
		return r;
	if (whole_ns > quarter_ns)
		bench->beta_ns = (whole_ns - quarter_ns) / (whole_bytes - quarter_bytes);
	return 0;
}

int ar_probe(struct ar_bench *bench)
{
	const struct ar_config *config = bench->config;
	uint64_t bytes_most = PROBE_BYTES_MIN;
	double ns, rounds, bytes;
	int r;

	if (config->n_sim_ranks) {
		bench->alpha_ns = (double)config->alpha_ns;
		bench->beta_ns = config->bytes_per_s > 0 ? 1e9 / config->bytes_per_s : 0;
		return 0;
	}
	if (bench->n_ranks == 1)
		return 0;
	for (size_t i = 0; i < config->n_counts; i++)
		if (config->counts[i] * sizeof(float) > bytes_most)
			bytes_most = config->counts[i] * sizeof(float);
	if (bytes_most > PROBE_BYTES_MAX)
		bytes_most = PROBE_BYTES_MAX;
	bench->in = calloc((size_t)bytes_most, 1);
	bench->out = calloc((size_t)bytes_most, 1);
	if (!bench->in || !bench->out) /* the bench frees them */
		return ar_fail(bench, "probe", -ENOMEM, "");
	r = probe(bench, "gtopk", true, 1, 10, 50, &ns, &rounds, &bytes);
	if (r == 0)
		bench->alpha_ns = ns / rounds;
	if (r == 0)
		r = probe_beta(bench, bytes_most / sizeof(float));
	free(bench->in);
	free(bench->out);
	bench->in = bench->out = NULL;
	return r;
}
