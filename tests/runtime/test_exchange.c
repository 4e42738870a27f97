/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The exchange object: options, the states it goes through, results, statistics, the dense
 * algorithm, ranks that disagree. test_promises.c has the promises.
 */
#include "steps.h"

#include <check.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/philox.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- one rank, real time ---- */

static struct spr_context *context;
static struct spr_comm *comm;

static void set_up_with(int progress_thread)
{
	struct spr_context_options options = {.size = sizeof options,
					      .progress_thread = progress_thread};

	unsetenv("SPR_RANK");
	unsetenv("SPR_SIZE");
	unsetenv("SPR_ROOT");
	unsetenv("SPR_ROOT_FD");
	setenv("SPR_TCP_IF", "lo", 1);
	if (spr_context_open(&options, &context) || spr_comm_create(context, NULL, &comm))
		abort();
}

static void set_up(void)
{
	set_up_with(0);
}

static void set_up_threaded(void)
{
	set_up_with(1);
}

static void tear_down(void)
{
	spr_comm_destroy(comm);
	spr_context_close(context);
}

Test(exchange, options_are_checked, .init = set_up, .fini = tear_down)
{
	static const struct {
		struct spr_exchange_options options;
		const char *part;
	} cases[] = {
		{{.count = 0}, "count is 0, must be 1 to 2^48"},
		{{.count = SPR_MAX_COUNT + 1}, "must be 1 to 2^48"},
		{{.count = 5, .algo = "best"}, "algorithm 'best' is unknown"},
		{{.count = 5, .algo = "allgather"}, "algorithm 'allgather' is unknown"},
		{{.count = 5, .density = 2}, "density from step 0 on is 2"},
		{{.count = 5, .nonfinite = (enum spr_nonfinite)3}, "nonfinite is 3"},
	};
	struct spr_exchange_options options;
	struct spr_exchange *exchange = NULL;

	for (size_t i = 0; i < spri_countof(cases); i++) {
		options = cases[i].options;
		options.size = sizeof options;
		cr_assert_eq(spr_exchange_create(comm, &options, &exchange), SPR_EARGUMENT);
		cr_assert(strstr(spr_context_error(context), cases[i].part) != NULL,
			  "expected '%s', got '%s'", cases[i].part, spr_context_error(context));
		cr_assert_null(exchange);
	}
	options = (struct spr_exchange_options){.size = sizeof options + 8, .count = 5};
	cr_assert_eq(spr_exchange_create(comm, &options, &exchange), SPR_EARGUMENT);
	options.size = sizeof options;
	cr_assert_eq(spr_exchange_create(NULL, &options, &exchange), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_create(comm, NULL, &exchange), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_create(comm, &options, NULL), SPR_EARGUMENT);
	cr_assert_null(exchange);
	spr_exchange_destroy(NULL);
}

Test(exchange, create_without_memory, .init = set_up, .fini = tear_down)
{
	static const char *const algos[] = {"gtopk", "dense_ring"};

	for (size_t a = 0; a < spri_countof(algos); a++) {
		struct spr_exchange_options options = {
			.size = sizeof options, .count = 100, .algo = algos[a]};
		struct spr_exchange *exchange = NULL;
		long live = spri_heap_live();
		int r = -ENOMEM;

		for (long n = 0; r < 0; n++) {
			spri_heap_fail_after(n);
			r = spr_exchange_create(comm, &options, &exchange);
			spri_heap_fail_after(-1);
			cr_assert(r == 0 || (r == -ENOMEM && !exchange && spri_heap_live() == live),
				  "%s, allocation %ld: %s", algos[a], n, spr_error_name(r));
			cr_assert(r == 0 || !strcmp(spr_context_error(context),
						    "exchange: Cannot allocate memory"),
				  "got '%s'", spr_context_error(context));
			cr_assert(r < 0 || n >= 3, "an exchange has at least three allocations");
		}
		spr_exchange_destroy(exchange);
		cr_assert_eq(spri_heap_live(), live);
	}
}

static struct spr_exchange *make(const struct spr_exchange_options *more)
{
	struct spr_exchange_options options = *more;
	struct spr_exchange *exchange = NULL;

	options.size = sizeof options;
	cr_assert(spr_exchange_create(comm, &options, &exchange) == 0, "an exchange: %s",
		  spr_context_error(context));
	return exchange;
}

static void step(struct spr_exchange *exchange, const float *gradient, float *update)
{
	struct spr_request *request = NULL;
	int r = spr_exchange_start(exchange, gradient, update, &request);

	cr_assert(r == 0, "start: %s", spr_error_name(r));
	r = spr_request_wait(request);
	cr_assert(r == 0, "wait: %s: %s", spr_error_name(r), spr_request_error(request));
	spr_request_destroy(request);
}

/* By hand: n = 6, k = 2, three steps. */
static void by_hand(void)
{
	static const float g[3][6] = {{1, -5, 3, 0, 2, 2}, {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}};
	static const float updates[3][6] = {
		{0, -5, 3, 0, 0, 0}, {0, 0, 0, 0, 3, 3}, {2, 1, 0, 0, 0, 0}};
	static const float residuals[3][6] = {
		{1, 0, 0, 0, 2, 2}, {2, 1, 1, 1, 0, 0}, {0, 0, 1, 1, 0, 0}};
	struct spr_exchange *exchange =
		make(&(struct spr_exchange_options){.count = 6, .density = 0.4});
	struct spr_exchange_stats stats;
	struct spr_sparse sum;
	float update[6];

	cr_assert_eq(spr_exchange_result(exchange, &sum), SPR_EARGUMENT, "before the first step");
	for (int s = 0; s < 3; s++) {
		step(exchange, g[s], s == 2 ? NULL : update);
		if (s < 2)
			cr_assert_arr_eq(update, updates[s], sizeof update);
		cr_assert_arr_eq(spr_exchange_residual(exchange), residuals[s], sizeof update);
		cr_assert_eq(spr_exchange_result(exchange, &sum), 0);
		cr_assert_eq(sum.count, 2);
		for (int i = 0; i < 2; i++)
			cr_assert(sum.value[i] == updates[s][sum.index[i]], "entry %d of step %d",
				  i, s);
		cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
		cr_assert(stats.step == (uint64_t)s + 1 && stats.k == 2 && stats.selected == 2 &&
				  stats.received == 2 && stats.adopted == 0 && stats.dropped == 0 &&
				  stats.density == 0.4,
			  "statistics of step %d", s);
	}
	cr_assert(fabs(stats.residual_norm - sqrt(2)) < 1e-12, "expected sqrt 2, got %.17g",
		  stats.residual_norm);
	cr_assert_eq(spr_exchange_reset(exchange), 0);
	cr_assert_eq(spr_exchange_result(exchange, &sum), SPR_EARGUMENT, "after a reset");
	cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
	cr_assert(stats.step == 0 && stats.residual_norm == 0, "a reset forgets");
	step(exchange, g[0], update);
	cr_assert_arr_eq(update, updates[0], sizeof update);
	spr_exchange_destroy(exchange);
}

Test(exchange, three_steps_by_hand, .init = set_up, .fini = tear_down)
{
	by_hand();
}

Test(exchange, three_steps_with_a_progress_thread, .init = set_up_threaded, .fini = tear_down)
{
	by_hand();
}

Test(exchange, the_schedule_changes_k, .init = set_up, .fini = tear_down)
{
	static const struct spr_density_point points[] = {{0, 0.5}, {2, 0.01}, {3, 1}};
	static const uint64_t ks[] = {50, 50, 1, 100, 100};
	struct spr_exchange *exchange = make(&(struct spr_exchange_options){
		.count = 100, .schedule = points, .n_schedule = spri_countof(points)});
	struct spr_exchange_stats stats;
	float gradient[100], update[100];

	for (size_t s = 0; s < spri_countof(ks); s++) {
		for (int i = 0; i < 100; i++)
			gradient[i] = (float)(i + 1);
		step(exchange, gradient, update);
		cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
		cr_assert(stats.k == ks[s] && stats.received == ks[s],
			  "step %zu: expected k %llu, got %llu and %llu", s,
			  (unsigned long long)ks[s], (unsigned long long)stats.k,
			  (unsigned long long)stats.received);
	}
	cr_assert(stats.residual_norm == 0, "all was sent");
	spr_exchange_destroy(exchange);
}

/* The threshold of one step serves the next: few selections need a second pass. */
Test(exchange, the_threshold_is_carried, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *exchange =
		make(&(struct spr_exchange_options){.count = 20000, .density = 0.01});
	float *gradient = malloc(20000 * sizeof *gradient);
	struct spr_exchange_stats stats;
	uint64_t early;

	for (int s = 0; s < 40; s++) {
		for (uint64_t i = 0; i < 20000; i++)
			gradient[i] = (float)(int32_t)spri_philox((uint64_t)s, i) * 0x1p-31f;
		step(exchange, gradient, NULL);
		if (s == 19)
			cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
	}
	early = stats.repairs;
	cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
	cr_assert(stats.repairs - early <= 5,
		  "expected at most 5 second passes in 20 steps, got %llu",
		  (unsigned long long)(stats.repairs - early));
	free(gradient);
	spr_exchange_destroy(exchange);
}

Test(exchange, gradient_and_update_may_be_one, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *exchange =
		make(&(struct spr_exchange_options){.count = 4, .density = 0.25});
	float v[4] = {1, 2, -3, 0};
	static const float expected[4] = {0, 0, -3, 0};

	step(exchange, v, v);
	cr_assert_arr_eq(v, expected, sizeof v);
	spr_exchange_destroy(exchange);
}

Test(exchange, arguments_of_calls, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *exchange = make(&(struct spr_exchange_options){.count = 4});
	struct spr_exchange *dense =
		make(&(struct spr_exchange_options){.count = 4, .algo = "dense_ring"});
	struct spr_request *request = NULL;
	struct spr_sparse sum;
	struct spr_exchange_stats stats;
	float v[4] = {0};

	cr_assert_eq(spr_exchange_start(NULL, v, v, &request), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_start(exchange, v, v, NULL), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_result(NULL, &sum), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_result(exchange, NULL), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_result(dense, &sum), SPR_EUNSUPPORTED);
	cr_assert_eq(spr_exchange_stats(exchange, NULL), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_stats(NULL, &stats), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_reset(NULL), SPR_EARGUMENT);
	cr_assert_null(spr_exchange_residual(dense));
	cr_assert_null(spr_exchange_residual(NULL));
	/* Launched, so that other ranks would hear of it. */
	cr_assert_eq(spr_exchange_start(dense, v, NULL, &request), 0);
	cr_assert_eq(spr_request_wait(request), SPR_EARGUMENT);
	spr_request_destroy(request);
	spr_exchange_destroy(exchange);
	spr_exchange_destroy(dense);
}

/* ---- several ranks, virtual time ---- */

#define N 40

/* What the ranks of a simulation found; the first thing that was not right. */
struct world {
	const char *algo;
	int variant;
	char wrong[256];
};

static void __attribute__((format(printf, 3, 4)))
expect(struct world *world, bool right, const char *format, ...)
{
	va_list args;

	if (right || world->wrong[0])
		return;
	va_start(args, format);
	vsnprintf(world->wrong, sizeof world->wrong, format, args);
	va_end(args);
}

/* A rank of the world: context and communicator around fn. */
static int (*rank_fn)(struct world *world, struct spr_comm *comm, int rank);

static int body(struct spr_sim *sim, int rank, void *arg)
{
	struct spr_context_options options = {.size = sizeof options, .sim = sim, .sim_rank = rank};
	struct spr_context *own = NULL;
	struct spr_comm *ours = NULL;
	int r = spr_context_open(&options, &own);

	if (r == 0)
		r = spr_comm_create(own, NULL, &ours);
	if (r == 0)
		r = rank_fn(arg, ours, rank);
	spr_comm_destroy(ours);
	spr_context_close(own);
	return r;
}

static void run_world(int n_ranks, struct world *world,
		      int (*fn)(struct world *world, struct spr_comm *comm, int rank))
{
	struct spr_sim_options options = {
		.size = sizeof options, .n_ranks = n_ranks, .latency_ns = 1000};
	int statuses[64] = {0};
	struct spr_sim *sim;

	rank_fn = fn;
	cr_assert_eq(spr_sim_create(&options, &sim), 0);
	cr_assert_eq(spr_sim_run(sim, body, world, statuses), 0);
	spr_sim_destroy(sim);
	cr_assert(!world->wrong[0], "%s, %d ranks: %s", world->algo, n_ranks, world->wrong);
	for (int i = 0; i < n_ranks; i++)
		cr_assert(statuses[i] == 0, "%s: rank %d: %s", world->algo, i,
			  spr_error_name(statuses[i]));
}

/* The weights of every rank, for algorithms that want some. */
static const float weights[N] = {[0] = 1, [N - 1] = -2};

/* While a step is in flight everything else is refused. */
static int busy_rank(struct world *world, struct spr_comm *ours, int rank)
{
	struct spr_exchange_options options = {
		.size = sizeof options, .count = N, .algo = world->algo, .density = 0.1};
	struct spr_exchange *exchange = NULL;
	struct spr_request *request = NULL, *second = NULL;
	struct spr_exchange_stats stats;
	struct spr_sparse sum;
	float gradient[N], update[N];
	int r = spr_exchange_create(ours, &options, &exchange);

	if (r == 0)
		r = spr_exchange_set_weights(exchange, weights);
	for (int i = 0; i < N; i++)
		gradient[i] = (float)(i + rank);
	if (r == 0)
		r = spr_exchange_start(exchange, gradient, update, &request);
	if (r < 0)
		return r;
	expect(world, spr_request_test(request) == 0,
	       "rank %d: a step of three ranks is not done at once", rank);
	expect(world,
	       spr_exchange_start(exchange, gradient, update, &second) == SPR_EBUSY && !second,
	       "start is busy");
	expect(world, spr_exchange_stats(exchange, &stats) == SPR_EBUSY, "stats is busy");
	expect(world, spr_exchange_reset(exchange) == SPR_EBUSY, "reset is busy");
	expect(world, spr_exchange_save(exchange, "/tmp/spr-never") == SPR_EBUSY, "save is busy");
	expect(world, spr_exchange_restore(exchange, "/tmp/spr-never") == SPR_EBUSY,
	       "restore is busy");
	r = spr_exchange_result(exchange, &sum);
	expect(world, r == (strcmp(world->algo, "dense_ring") ? SPR_EBUSY : SPR_EUNSUPPORTED),
	       "result is busy: %d", r);
	r = spr_request_wait(request);
	expect(world, r == 0, "rank %d: %s", rank, spr_request_error(request));
	/* The request need not be destroyed before the next step. */
	r = spr_exchange_start(exchange, gradient, update, &second);
	if (r == 0)
		r = spr_request_wait(second);
	expect(world, r == 0, "rank %d: the next step: %s", rank, spr_error_name(r));
	spr_request_destroy(second);
	spr_request_destroy(request);
	spr_exchange_destroy(exchange);
	return r;
}

Test(exchange, busy_while_in_flight)
{
	struct spr_algo_info info;

	for (unsigned a = 0; spr_algo_info(a, &info) == 0; a++)
		run_world(3, &(struct world){.algo = info.name}, busy_rank);
}

/* One rank's options differ: all ranks fail alike, and nothing has changed. */
static int other_rank(struct world *world, struct spr_comm *ours, int rank)
{
	bool odd = rank == 1;
	struct spr_exchange_options options = {
		.size = sizeof options,
		.count = odd && world->variant == 0 ? N - 1 : N,
		.algo = world->algo,
		.density = odd && world->variant == 1 ? 0.2 : 0.1,
		.nonfinite = odd && world->variant == 2 ? SPR_NONFINITE_DROP : SPR_NONFINITE_ERROR,
	};
	struct spr_exchange *exchange = NULL;
	struct spr_request *request = NULL;
	struct spr_exchange_stats stats;
	float gradient[N], update[N];
	int r = spr_exchange_create(ours, &options, &exchange);

	if (r == 0)
		r = spr_exchange_set_weights(exchange, weights);
	for (int i = 0; i < N; i++)
		gradient[i] = (float)(i + rank), update[i] = -7;
	if (r == 0)
		r = spr_exchange_start(exchange, gradient, update, &request);
	if (r < 0)
		return r;
	r = spr_request_wait(request);
	expect(world, r == SPR_EMISMATCH, "rank %d: variant %d: expected SPR_EMISMATCH, got %s: %s",
	       rank, world->variant, spr_error_name(r), spr_request_error(request));
	for (int i = 0; i < N; i++)
		expect(world, update[i] == -7, "rank %d: the update is untouched", rank);
	expect(world,
	       spr_exchange_stats(exchange, &stats) == 0 && stats.step == 0 &&
		       stats.residual_norm == 0,
	       "rank %d: the residual is as before", rank);
	spr_request_destroy(request);
	spr_exchange_destroy(exchange);
	/* The communicator is whole. */
	return spr_comm_allgather(ours, &rank, update, sizeof rank);
}

Test(exchange, ranks_that_disagree)
{
	struct spr_algo_info info;

	for (unsigned a = 0; spr_algo_info(a, &info) == 0; a++)
		for (int variant = 0; variant < 3; variant++) {
			if (!info.sparse && variant == 1)
				continue; /* a density is nothing to a dense exchange */
			for (int n = 2; n <= 7; n++)
				run_world(n, &(struct world){.algo = info.name, .variant = variant},
					  other_rank);
		}
}

/* Two exchanges on one communicator, both in flight. */
static int twin_rank(struct world *world, struct spr_comm *ours, int rank)
{
	struct spr_exchange_options options = {
		.size = sizeof options, .count = N, .algo = world->algo, .density = 0.1};
	struct spr_exchange *exchange[2] = {NULL, NULL};
	struct spr_request *request[2] = {NULL, NULL};
	float gradient[2][N], update[2][N], expected[2] = {0, 0};
	int r = 0, n = spr_comm_size(ours);

	for (int e = 0; e < 2 && r == 0; e++) {
		r = spr_exchange_create(ours, &options, &exchange[e]);
		if (r == 0)
			r = spr_exchange_set_weights(exchange[e], weights);
	}
	for (int s = 0; s < 4 && r == 0; s++) {
		for (int e = 0; e < 2 && r == 0; e++) {
			for (int i = 0; i < N; i++)
				gradient[e][i] = i == 5 + e ? (float)(100 * (e + 1)) : 0;
			expected[e] = (float)(100 * (e + 1) * n) * (float)(1.0 / n);
			r = spr_exchange_start(exchange[e], gradient[e], update[e], &request[e]);
		}
		for (int e = 1; e >= 0 && r == 0; e--) {
			r = spr_request_wait(request[e]);
			expect(world, r == 0, "rank %d: %s", rank, spr_request_error(request[e]));
			for (int i = 0; i < N; i++)
				expect(world, update[e][i] == (i == 5 + e ? expected[e] : 0),
				       "rank %d: update[%d] of %d is %g", rank, i, e,
				       (double)update[e][i]);
			spr_request_destroy(request[e]);
		}
	}
	spr_exchange_destroy(exchange[0]);
	spr_exchange_destroy(exchange[1]);
	return r;
}

Test(exchange, two_in_flight)
{
	struct spr_algo_info info;

	for (unsigned a = 0; spr_algo_info(a, &info) == 0; a++)
		for (int n = 1; n <= 6; n++)
			run_world(n, &(struct world){.algo = info.name}, twin_rank);
}

/* The dense algorithm averages: exact with integers, P a power of two or not. */
Test(exchange, dense_average)
{
	for (const int *p = promise_ranks; *p; p++) {
		struct run_options o = RUN_OPTIONS(.n_ranks = *p, .algo = "dense_ring", .n = 777,
						   .density = 1, .n_steps = 2);
		struct run *run = run_steps(&o);

		for (int s = 0; s < 2; s++)
			for (int rank = 0; rank < *p; rank++) {
				const struct step_record *r = run_record(run, rank, s);

				cr_assert(r->status == 0, "%d ranks, rank %d: %s", *p, rank,
					  r->text);
				cr_assert(r->stats.received == 777 &&
						  (*p == 1 || r->stats.wire_bytes > 0),
					  "%d ranks: statistics", *p);
				for (int i = 0; i < 777; i++) {
					double sum = 0;

					for (int from = 0; from < *p; from++)
						sum += (double)run_record(run, from, s)
							       ->gradient[i];
					cr_assert(
						r->update[i] == (float)sum * (float)(1.0 / *p),
						"%d ranks, rank %d: update[%d] is %a, expected %a",
						*p, rank, i, r->update[i],
						(float)sum * (float)(1.0 / *p));
				}
			}
		run_free(run);
	}
}

/* Bytes are counted: values are 4 bytes each, and all bytes are more than these. */
Test(exchange, bytes_are_counted)
{
	for (unsigned a = 0; sparse_algo(a); a++) {
		struct run_options o = RUN_OPTIONS(.n_ranks = 4, .algo = sparse_algo(a), .n = 1000,
						   .density = 0.05, .n_steps = 1);
		struct run *run = run_steps(&o);
		uint64_t values = 0, wire = 0;

		for (int rank = 0; rank < 4; rank++) {
			const struct spr_exchange_stats *stats = &run_record(run, rank, 0)->stats;

			cr_assert(stats->k == 50 && stats->selected <= 50, "k is 50");
			values += stats->value_bytes;
			wire += stats->wire_bytes;
		}
		/*
		 * Some list of up to 50 entries goes over at least three links; each entry
		 * is 8 bytes, each message 64.
		 */
		cr_assert(values >= 3 * 4 * 25 && values % 4 == 0, "%s: %llu bytes of values",
			  o.algo, (unsigned long long)values);
		cr_assert(wire >= 2 * values + 3 * 64, "%s: %llu bytes in all, %llu of values",
			  o.algo, (unsigned long long)wire, (unsigned long long)values);
		run_free(run);
	}
}
