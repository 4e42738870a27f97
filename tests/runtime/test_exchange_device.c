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
#include <errno.h>
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

/* An exchange alone, and its vectors. */
struct alone {
	struct spr_context *context;
	struct spr_comm *comm;
	struct spr_exchange *exchange;
	void *gradient, *update;
	size_t bytes;
};

/* Vectors of `is` (GPU `device`) for an exchange that was told `o`. */
static void alone_open(struct alone *a, const struct spr_exchange_options *o,
		       enum spr_memory_kind is, int device)
{
	struct spr_context_options co = {.size = sizeof co, .transport = "tcp", .log = listen};

	setenv("SPR_TCP_IF", "lo", 1);
	told[0] = '\0';
	a->bytes = o->count * sizeof(float);
	cr_assert_eq(spr_context_open(&co, &a->context), 0);
	cr_assert_eq(spr_comm_create(a->context, NULL, &a->comm), 0);
	cr_assert_eq(spr_exchange_create(a->comm, o, &a->exchange), 0);
	cr_assert_eq(spr_memory_alloc(a->context, is, device, a->bytes, &a->gradient), 0);
	cr_assert_eq(spr_memory_alloc(a->context, is, device, a->bytes, &a->update), 0);
	if (is == SPR_MEMORY_CUDA) { /* what is uninitialised may be anything */
		void *zeros = calloc(a->bytes, 1);

		cr_assert_eq(spr_memory_copy(a->context, a->gradient, zeros, a->bytes), 0);
		free(zeros);
	}
}

static int alone_step(struct alone *a)
{
	struct spr_request *request;
	int r;

	cr_assert_eq(spr_exchange_start(a->exchange, a->gradient, a->update, &request), 0);
	r = spr_request_wait(request);
	spr_request_destroy(request);
	return r;
}

static void alone_close(struct alone *a)
{
	spr_exchange_destroy(a->exchange);
	spr_memory_free(a->context, a->gradient, a->bytes);
	spr_memory_free(a->context, a->update, a->bytes);
	spr_comm_destroy(a->comm);
	spr_context_close(a->context);
}

/* A step that is refused, and a part of why. */
static void expect_refused(enum spr_memory_kind said, enum spr_memory_kind is, int device,
			   const char *algo, const char *part)
{
	struct spr_exchange_options o = {.size = sizeof o,
					 .count = N,
					 .algo = algo,
					 .memory = said,
					 .device = said == SPR_MEMORY_CUDA ? SPR_GPU(0) : 0};
	struct alone a;

	alone_open(&a, &o, is, device);
	cr_assert_eq(alone_step(&a), SPR_EARGUMENT);
	cr_assert(strstr(told, part), "expected '%s', got '%s'", part, told);
	alone_close(&a);
}

Test(exchange_device, vectors_that_are_elsewhere)
{
	expect_refused(SPR_MEMORY_CUDA, SPR_MEMORY_HOST, 0, "gtopk",
		       "gradient is host memory, options.memory says SPR_MEMORY_CUDA");
	expect_refused(SPR_MEMORY_HOST, SPR_MEMORY_CUDA, SPR_GPU(1), "gtopk",
		       "gradient is memory of GPU 1, options.memory says SPR_MEMORY_HOST");
	expect_refused(SPR_MEMORY_CUDA, SPR_MEMORY_CUDA, SPR_GPU(1), "gtopk",
		       "gradient is memory of GPU 1, the exchange's is another");
	expect_refused(SPR_MEMORY_HOST, SPR_MEMORY_HOST, 0, "iwp_ring",
		       "iwp_ring needs weights: spr_exchange_set_weights");
}

/* What cannot be had by a direct rung fails every step, not only the first. */
Test(exchange_device, gpudirect_is_required)
{
	struct spr_exchange_options o = {.size = sizeof o,
					 .count = 1u << 18,
					 .memory = SPR_MEMORY_CUDA,
					 .device = SPR_GPU(0)};
	struct alone a;

	setenv("SPR_GPUDIRECT", "require", 1);
	alone_open(&a, &o, SPR_MEMORY_CUDA, SPR_GPU(0));
	for (int step = 0; step < 3; step++)
		cr_assert_eq(alone_step(&a), SPR_EUNSUPPORTED, "step %d", step);
	cr_assert(strstr(told, "tcp"), "expected the reason, got '%s'", told);
	alone_close(&a);
}

/* Nothing is allocated once the other ranks have heard that the step ended well. */
Test(exchange_device, a_commit_needs_no_memory)
{
	struct spr_exchange_options o = {.size = sizeof o,
					 .count = 1u << 18,
					 .density = 0.5,
					 .pipeline = SPR_PIPELINE_OFF,
					 .memory = SPR_MEMORY_CUDA,
					 .device = SPR_GPU(0)};
	struct spr_exchange_stats stats;
	float *g = malloc(sizeof *g << 18);

	for (unsigned i = 0; i < 1u << 18; i++)
		g[i] = (float)i;
	for (int nth = 1; nth < 12; nth++) {
		struct alone a;
		char order[64];
		int r;

		alone_open(&a, &o, SPR_MEMORY_CUDA, SPR_GPU(0));
		cr_assert_eq(spr_memory_copy(a.context, a.gradient, g, a.bytes), 0);
		snprintf(order, sizeof order, "cuMemHostAlloc:%d:2", nth);
		setenv("EMU_CUDA_FAIL", order, 1);
		r = alone_step(&a);
		unsetenv("EMU_CUDA_FAIL");
		cr_assert(r == 0 || r == -ENOMEM, "%s", spr_error_name(r));
		cr_assert_eq(spr_exchange_stats(a.exchange, &stats), 0);
		cr_assert_eq(stats.step, r == 0, "a step that failed is not counted");
		alone_close(&a);
	}
	free(g);
}

/* Of a GPU that the context has not opened. */
Test(exchange_device, memory_of_any_gpu_is_freed)
{
	struct spr_context_options co = {.size = sizeof co, .transport = "tcp"};
	struct spr_context *one, *other;
	void *p;

	setenv("SPR_TCP_IF", "lo", 1);
	cr_assert_eq(spr_context_open(&co, &one), 0);
	cr_assert_eq(spr_context_open(&co, &other), 0);
	cr_assert_eq(spr_memory_alloc(one, SPR_MEMORY_CUDA, SPR_GPU(1), 4096, &p), 0);
	spr_memory_free(other, p, 4096);
	spr_context_close(other);
	spr_context_close(one);
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
