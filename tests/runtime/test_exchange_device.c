/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Exchanges and all-reduces on vectors in device memory, over the stand-in for the CUDA driver:
 * every step has the bits of the same step in host memory. The stand-in's device memory cannot be
 * touched by the host, so that whatever forgets to copy crashes.
 */
#include "expect.h"
#include "steps.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct spr_layer layers[] = {
	{0, 300, 0}, {300, 50, SPR_LAYER_DENSE}, {350, 4650, 0}, {5000, 1, SPR_LAYER_DENSE}};
#define N 5001u

/* Both runs: updates, sums, residuals, statuses of every rank and step. */
static void expect_alike(struct run_options o, const char *what)
{
	struct run *host = run_steps(&o), *device;

	o.memory = SPR_MEMORY_CUDA;
	device = run_steps(&o);
	for (int rank = 0; rank < o.n_ranks; rank++) {
		cr_assert_eq(device->statuses[rank], 0, "%s %s P=%d rank %d: %s", what, o.algo,
			     o.n_ranks, rank, spr_error_name(device->statuses[rank]));
		for (int step = 0; step < o.n_steps; step++) {
			const struct step_record *a = run_record(host, rank, step);
			const struct step_record *b = run_record(device, rank, step);

			cr_assert_eq(a->status, b->status, "%s %s P=%d rank %d step %d: %s and %s",
				     what, o.algo, o.n_ranks, rank, step, spr_error_name(a->status),
				     spr_error_name(b->status));
			cr_assert_str_eq(a->text, b->text);
			cr_assert(record_digest(host, rank, step) ==
					  record_digest(device, rank, step),
				  "%s %s P=%d rank %d step %d: expected the bits of host memory",
				  what, o.algo, o.n_ranks, rank, step);
			cr_assert_eq(a->stats.dropped, b->stats.dropped);
			cr_assert(memcmp(&a->stats.residual_norm, &b->stats.residual_norm,
					 sizeof a->stats.residual_norm) == 0,
				  "residual norms: %a and %a", a->stats.residual_norm,
				  b->stats.residual_norm);
		}
	}
	run_free(host);
	run_free(device);
}

static const char *algo_at(unsigned i)
{
	struct spr_algo_info info;

	return spr_algo_info(i, &info) == 0 ? info.name : NULL;
}

Test(exchange_device, the_bits_of_host_memory)
{
	for (unsigned i = 0; algo_at(i); i++)
		for (int p = 1; p <= 5; p++)
			expect_alike(RUN_OPTIONS(.n_ranks = p, .algo = algo_at(i), .n = N,
						 .density = 0.01, .n_steps = 4,
						 .gradient = gradient_floats),
				     "plain");
}

static void everything(const struct run *run, int rank, struct spr_exchange_options *options)
{
	(void)run;
	(void)rank;
	options->momentum = 0.9;
	options->clip = 2;
	options->weight_decay = 0.01;
	options->layers = layers;
	options->n_layers = 4;
	options->wire = SPR_BF16;
	options->codec = SPR_CODEC_PACKED;
}

static void layer_by_layer(const struct run *run, int rank, struct spr_exchange_options *options)
{
	everything(run, rank, options);
	options->per_layer = 1;
	options->momentum = 0;
	options->pipeline = SPR_PIPELINE_OFF;
}

static void whole_without_momentum(const struct run *run, int rank,
				   struct spr_exchange_options *options)
{
	everything(run, rank, options);
	options->momentum = 0;
	options->wire = SPR_F32;
}

static void published(const struct run *run, int rank, struct spr_exchange_options *options)
{
	(void)run;
	(void)rank;
	options->trimmed = SPR_TRIMMED_PUBLISHED;
}

Test(exchange_device, every_option)
{
	for (unsigned i = 0; algo_at(i); i++) {
		struct run_options o =
			RUN_OPTIONS(.n_ranks = 3, .algo = algo_at(i), .n = N, .density = 0.02,
				    .n_steps = 4, .gradient = gradient_floats, .tune = everything);

		expect_alike(o, "everything");
		o.ready_layers = 4;
		o.tune = layer_by_layer;
		expect_alike(o, "layer by layer");
		o.tune = whole_without_momentum;
		expect_alike(o, "whole model, dense layers");
	}
	for (unsigned i = 0; sparse_algo(i); i++)
		expect_alike(RUN_OPTIONS(.n_ranks = 4, .algo = sparse_algo(i), .n = N,
					 .density = 0.02, .n_steps = 4, .gradient = gradient_floats,
					 .tune = published),
			     "published");
}

/* Long enough to stream: chunks go out as the device announces them. */
Test(exchange_device, streams)
{
	for (int p = 2; p <= 3; p++)
		expect_alike(RUN_OPTIONS(.n_ranks = p, .algo = "gtopk", .n = (1u << 18) + 3,
					 .density = 0.05, .n_steps = 3,
					 .gradient = gradient_floats),
			     "streams");
}

/* A NaN on one rank in the second step, an infinity on another one in the third. */
static void spoilt(const struct run *run, int rank, int step, float *g)
{
	gradient_floats(run, rank, step, g);
	if (rank == 1 && step == 1)
		g[77] = __builtin_nanf("");
	if (rank == 0 && step == 2)
		g[4100] = __builtin_inff();
}

static void with_momentum(const struct run *run, int rank, struct spr_exchange_options *options)
{
	(void)run;
	(void)rank;
	options->momentum = 0.5;
}

Test(exchange_device, values_that_are_not_finite)
{
	static const enum spr_nonfinite policies[] = {SPR_NONFINITE_ERROR, SPR_NONFINITE_PROPAGATE,
						      SPR_NONFINITE_DROP};

	for (unsigned i = 0; algo_at(i); i++) {
		for (unsigned p = 0; p < spri_countof(policies); p++) {
			struct run_options o =
				RUN_OPTIONS(.n_ranks = 2, .algo = algo_at(i), .n = N,
					    .density = 0.01, .n_steps = 4, .policy = policies[p],
					    .gradient = spoilt);

			expect_alike(o, "spoilt");
			o.tune = with_momentum;
			expect_alike(o, "spoilt, with momentum");
		}
	}
}

static char told[4096];

static void listen(void *arg, enum spr_log_level level, const char *text)
{
	(void)arg;
	(void)level;
	snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", text);
}

/* A step of one rank with vectors of these kinds: its outcome. */
static int step_with(enum spr_memory_kind said, enum spr_memory_kind is, const char *algo)
{
	struct spr_context_options co = {.size = sizeof co, .transport = "tcp", .log = listen};
	struct spr_exchange_options o = {
		.size = sizeof o, .count = N, .algo = algo, .memory = said};
	struct spr_exchange *exchange;
	struct spr_request *request;
	struct spr_context *context;
	struct spr_comm *comm;
	void *gradient, *update;
	int r;

	setenv("SPR_TCP_IF", "lo", 1);
	told[0] = '\0';
	cr_assert_eq(spr_context_open(&co, &context), 0);
	cr_assert_eq(spr_comm_create(context, NULL, &comm), 0);
	cr_assert_eq(spr_exchange_create(comm, &o, &exchange), 0);
	cr_assert_eq(spr_memory_alloc(context, is, SPR_GPU(1), N * sizeof(float), &gradient), 0);
	cr_assert_eq(spr_memory_alloc(context, is, SPR_GPU(1), N * sizeof(float), &update), 0);
	cr_assert_eq(spr_exchange_start(exchange, gradient, update, &request), 0);
	r = spr_request_wait(request);
	spr_request_destroy(request);
	spr_exchange_destroy(exchange);
	spr_memory_free(context, gradient, N * sizeof(float));
	spr_memory_free(context, update, N * sizeof(float));
	spr_comm_destroy(comm);
	spr_context_close(context);
	return r;
}

Test(exchange_device, vectors_that_are_elsewhere)
{
	cr_assert_eq(step_with(SPR_MEMORY_CUDA, SPR_MEMORY_HOST, "gtopk"), SPR_EARGUMENT);
	cr_assert(strstr(told, "gradient is host memory, options.memory says SPR_MEMORY_CUDA"),
		  "got '%s'", told);
	cr_assert_eq(step_with(SPR_MEMORY_HOST, SPR_MEMORY_CUDA, "gtopk"), SPR_EARGUMENT);
	cr_assert(strstr(told, "gradient is memory of GPU 1, options.memory says SPR_MEMORY_HOST"),
		  "got '%s'", told);
	cr_assert_eq(step_with(SPR_MEMORY_HOST, SPR_MEMORY_HOST, "iwp_ring"), SPR_EARGUMENT);
	cr_assert(strstr(told, "iwp_ring needs weights: spr_exchange_set_weights"), "got '%s'",
		  told);
}

Test(exchange_device, saved_and_restored)
{
	char path[64];

	snprintf(path, sizeof path, "/tmp/spr_test_device_%d_", (int)getpid());
	for (unsigned i = 0; residual_algo(i); i++)
		expect_alike(RUN_OPTIONS(.n_ranks = 2, .algo = residual_algo(i), .n = N,
					 .density = 0.02, .n_steps = 4, .gradient = gradient_floats,
					 .tune = with_momentum, .restore_step = 2,
					 .save_path = path),
			     "restored");
	for (int rank = 0; rank < 2; rank++) {
		char file[80];

		snprintf(file, sizeof file, "%s%d", path, rank);
		unlink(file);
	}
}
