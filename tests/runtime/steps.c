/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Training steps on the simulator; see steps.h. */
#include "steps.h"

#include <fenv.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/philox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const int promise_ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 0};

const char *sparse_algo(unsigned i)
{
	struct spr_algo_info info;

	for (unsigned row = 0; spr_algo_info(row, &info) == 0; row++)
		if (info.sparse == 1 && i-- == 0)
			return info.name;
	return NULL;
}

const char *residual_algo(unsigned i)
{
	struct spr_algo_info info;

	for (unsigned row = 0; spr_algo_info(row, &info) == 0; row++)
		if (info.sparse && i-- == 0)
			return info.name;
	return NULL;
}

bool is_masked(const char *algo)
{
	struct spr_algo_info info;

	for (unsigned row = 0; spr_algo_info(row, &info) == 0; row++)
		if (!strcmp(info.name, algo))
			return info.sparse == 2;
	return false;
}

static void *need(size_t n, size_t bytes)
{
	void *p = calloc(n ? n : 1, bytes);

	if (!p) {
		perror("calloc");
		abort();
	}
	return p;
}

/* A rank at work. */
struct actor {
	struct run *run;
	int rank;
	struct spr_context *context;
	struct spr_comm *comm;
	struct spr_exchange *exchange;
	float *gradient, *update, *weights; /* n each, of run->options.memory */
};

static float *copy_floats(const struct actor *a, const float *v)
{
	uint64_t n = a->run->options.n;
	float *copy = need(n, sizeof *copy);

	if (spr_memory_copy(a->context, copy, v, n * sizeof *copy) < 0)
		abort();
	return copy;
}

struct step_record *run_record(const struct run *run, int rank, int step)
{
	return &run->records[rank * run->options.n_steps + step];
}

void gradient_integers(const struct run *run, int rank, int step, float *g)
{
	for (uint64_t i = 0; i < run->options.n; i++) {
		uint64_t h = spri_philox((uint64_t)rank << 32 | (uint64_t)step, i);
		/* Magnitudes spread over the powers of two, so that the largest stand out. */
		int range = 1 << (h >> 60 & 15) % 10;

		g[i] = (float)((int)(h % (2u * (unsigned)range + 1)) - range) / 1024.0f;
	}
}

void gradient_floats(const struct run *run, int rank, int step, float *g)
{
	for (uint64_t i = 0; i < run->options.n; i++) {
		uint64_t h = spri_philox(((uint64_t)rank << 32 | (uint64_t)step) + 77, i);
		/* Exponents from denormals to 2^20; most near 1. */
		uint32_t exponent =
			h % 7 == 0 ? (uint32_t)(h >> 32) % 147 : 115 + (uint32_t)(h >> 32) % 16;

		g[i] = spri_f32_from_bits((uint32_t)(h >> 8 & 1) << 31 | exponent << 23 |
					  ((uint32_t)(h >> 9) & 0x7fffffu));
	}
}

/* The rest of a record, once the step is over. */
static void look(const struct actor *a, struct step_record *record)
{
	const float *residual = spr_exchange_residual(a->exchange);
	struct spr_sparse sum;

	free(record->update);
	record->update = copy_floats(a, a->update);
	if (residual)
		record->after = copy_floats(a, residual);
	record->lost_rank = spr_comm_lost_rank(a->comm);
	(void)!spr_exchange_stats(a->exchange, &record->stats);
	record->result_status = spr_exchange_result(a->exchange, &sum);
	if (record->result_status == 0) {
		record->sum_count = sum.count;
		record->sum_index = need(sum.count, sizeof *record->sum_index);
		record->sum_value = need(sum.count, sizeof *record->sum_value);
		memcpy(record->sum_index, sum.index, sum.count * sizeof *sum.index);
		memcpy(record->sum_value, sum.value, sum.count * sizeof *sum.value);
	}
	record->finished = true;
}

static int start(const struct actor *a, const float *gradient, struct spr_request **request)
{
	size_t layers = a->run->options.ready_layers;
	int r = layers ? spr_exchange_begin(a->exchange, gradient, a->update, request)
		       : spr_exchange_start(a->exchange, gradient, a->update, request);

	for (size_t i = layers; i > 0 && r == 0; i--)
		r = spr_exchange_ready(a->exchange, i - 1);
	return r;
}

static void one_step(struct actor *a, int step)
{
	const struct run_options *o = &a->run->options;
	struct step_record *record = run_record(a->run, a->rank, step);
	const float *residual = spr_exchange_residual(a->exchange);
	bool poor = a->rank == o->poor_rank && step == o->poor_step;
	struct spr_request *request = NULL;

	record->gradient = need(o->n, sizeof(float));
	record->update = need(o->n, sizeof(float));
	for (uint64_t i = 0; i < o->n; i++)
		record->update[i] = -12345; /* what "untouched" looks like */
	(o->gradient ? o->gradient : gradient_integers)(a->run, a->rank, step, record->gradient);
	if (spr_memory_copy(a->context, a->gradient, record->gradient, o->n * sizeof(float)) < 0 ||
	    spr_memory_copy(a->context, a->update, record->update, o->n * sizeof(float)) < 0)
		abort();
	if (residual)
		record->before = copy_floats(a, residual);
	if (poor && !o->null_gradient)
		spri_heap_fail_after(o->poor_after);
	record->start_status = start(a, poor && o->null_gradient ? NULL : a->gradient, &request);
	spri_heap_fail_after(-1);
	record->status = record->start_status;
	if (record->start_status == 0) {
		record->status = spr_request_wait(request);
		snprintf(record->text, sizeof record->text, "%s", spr_request_error(request));
		spr_request_destroy(request);
	}
	look(a, record);
}

static int make_exchange(struct actor *a)
{
	const struct run_options *o = &a->run->options;
	struct spr_exchange_options options = {
		.size = sizeof options,
		.count = o->n,
		.algo = o->algo,
		.density = o->density,
		.nonfinite = o->policy,
		.memory = o->memory,
	};
	int r;

	if (o->tune)
		o->tune(a->run, a->rank, &options);
	r = spr_exchange_create(a->comm, &options, &a->exchange);
	return r == 0 ? spr_exchange_set_weights(a->exchange, a->weights) : r;
}

/* As if the process had been started again: another communicator, too. */
static int make_again(struct actor *a)
{
	char path[200];
	int r;

	snprintf(path, sizeof path, "%s%d", a->run->options.save_path, a->rank);
	r = spr_exchange_save(a->exchange, path);
	spr_exchange_destroy(a->exchange);
	a->exchange = NULL;
	spr_comm_destroy(a->comm);
	a->comm = NULL;
	if (r == 0)
		r = spr_comm_create(a->context, NULL, &a->comm);
	if (r == 0)
		r = make_exchange(a);
	return r == 0 ? spr_exchange_restore(a->exchange, path) : r;
}

/* The vectors that the caller of an exchange has. */
static int make_vectors(struct actor *a)
{
	const struct run_options *o = &a->run->options;
	float **all[] = {&a->gradient, &a->update, &a->weights};
	size_t bytes = o->n * sizeof(float);
	int r = 0;

	for (unsigned i = 0; i < spri_countof(all) && r == 0; i++) {
		void *p = NULL;

		r = spr_memory_alloc(a->context, o->memory, 0, bytes, &p);
		*all[i] = p;
	}
	return r == 0 ? spr_memory_copy(a->context, a->weights, a->run->weights, bytes) : r;
}

static int body(struct spr_sim *sim, int rank, void *arg)
{
	struct run *run = arg;
	const struct run_options *o = &run->options;
	struct spr_context_options context_options = {
		.size = sizeof context_options,
		.sim = sim,
		.sim_rank = rank,
		.landing_bytes = o->landing_bytes,
		.timeout_ns = o->timeout_ns ? o->timeout_ns : 10 * SPRI_NS_PER_S,
	};
	struct actor a = {.run = run, .rank = rank};
	size_t bytes = o->n * sizeof(float);
	int r = spr_context_open(&context_options, &a.context);

	if (o->rounding)
		fesetround(o->rounding);
	if (r == 0)
		r = make_vectors(&a);
	if (r == 0)
		r = spr_comm_create(a.context, NULL, &a.comm);
	if (r == 0)
		r = make_exchange(&a);
	if (r == 0)
		run->joined_ns = spr_sim_now_ns(sim);
	for (int step = 0; step < o->n_steps && r == 0; step++) {
		if (o->restore_step > 0 && step == o->restore_step)
			r = make_again(&a);
		if (r == 0)
			one_step(&a, step);
	}
	run->end_ns = spr_sim_now_ns(sim);
	spr_exchange_destroy(a.exchange);
	spr_comm_destroy(a.comm);
	spr_memory_free(a.context, a.gradient, bytes);
	spr_memory_free(a.context, a.update, bytes);
	spr_memory_free(a.context, a.weights, bytes);
	spr_context_close(a.context);
	return r;
}

struct run *run_steps(const struct run_options *options)
{
	struct spr_sim_options sim_options = {
		.size = sizeof sim_options,
		.n_ranks = options->n_ranks,
		.latency_ns = 1000,
		.bytes_per_s = 1e9,
		.jitter_ns = options->jitter_ns,
		.seed = options->seed,
	};
	struct run *run = need(1, sizeof *run);
	struct spr_sim *sim = NULL;
	int r;

	run->options = *options;
	run->statuses = need((size_t)options->n_ranks, sizeof *run->statuses);
	run->weights = need(options->n, sizeof *run->weights);
	for (uint64_t i = 0; i < options->n; i++)
		run->weights[i] = 0.0625f + (float)(spri_philox(4242, i) >> 40) * 0x1p-24f;
	run->records =
		need((size_t)options->n_ranks * (size_t)options->n_steps, sizeof *run->records);
	r = spr_sim_create(&sim_options, &sim);
	if (r == 0 && options->kill_ns)
		spr_sim_kill_at(sim, options->kill_rank, options->kill_ns);
	if (r == 0)
		r = spr_sim_run(sim, body, run, run->statuses);
	for (int i = 0; r < 0 && i < options->n_ranks; i++)
		run->statuses[i] = r;
	spr_sim_destroy(sim);
	return run;
}

void run_free(struct run *run)
{
	for (int i = 0; i < run->options.n_ranks * run->options.n_steps; i++) {
		struct step_record *record = &run->records[i];

		free(record->gradient);
		free(record->before);
		free(record->after);
		free(record->update);
		free(record->sum_index);
		free(record->sum_value);
	}
	free(run->records);
	free(run->weights);
	free(run->statuses);
	free(run);
}

static uint64_t mix(uint64_t h, const void *data, size_t words)
{
	const uint32_t *w = data;

	for (size_t i = 0; w && i < words; i++)
		h = spri_mix64(h ^ w[i]) + 0x9e3779b97f4a7c15u;
	return h;
}

uint64_t record_digest(const struct run *run, int rank, int step)
{
	const struct step_record *record = run_record(run, rank, step);
	uint64_t h = mix(17 + (uint64_t)record->status, record->update, run->options.n);

	h = mix(h, record->after, record->after ? run->options.n : 0);
	h = mix(h + record->sum_count, record->sum_index, 2 * record->sum_count);
	return mix(h, record->sum_value, record->sum_count);
}
