/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the options of an exchange add to a step: layers, momentum with factor masking, clipping,
 * weight decay, dense layers, 16-bit values, pipelining, the published rule for trimmed entries.
 * Oracles are written out here, element by element.
 */
#include "expect.h"

#include <check.h>
#include <internal/bits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct spr_layer three_layers[] = {{0, 100, 0}, {100, 7, 0}, {107, 893, 0}};
static const struct spr_layer dense_middle[] = {
	{0, 100, 0}, {100, 7, SPR_LAYER_DENSE}, {107, 893, 0}};

#define N 1000u

static const char *algo_of(unsigned i, int sparse)
{
	struct spr_algo_info info;

	for (unsigned a = 0; spr_algo_info(a, &info) == 0; a++)
		if (info.sparse == sparse && i-- == 0)
			return info.name;
	return NULL;
}

/* ---- options that cannot be ---- */

static struct spr_context *context;
static struct spr_comm *comm;

static void set_up(void)
{
	struct spr_context_options options = {.size = sizeof options};

	unsetenv("SPR_RANK");
	unsetenv("SPR_SIZE");
	unsetenv("SPR_ROOT");
	unsetenv("SPR_ROOT_FD");
	setenv("SPR_TCP_IF", "lo", 1);
	if (spr_context_open(&options, &context) || spr_comm_create(context, NULL, &comm))
		abort();
}

static void tear_down(void)
{
	spr_comm_destroy(comm);
	spr_context_close(context);
}

static void expect_refused(const struct spr_exchange_options *o, const char *part)
{
	struct spr_exchange *exchange = NULL;
	int r = spr_exchange_create(comm, o, &exchange);

	cr_assert(r == SPR_EARGUMENT && exchange == NULL, "'%s': got %s", part, spr_error_name(r));
	cr_assert(strstr(spr_context_error(context), part) != NULL, "expected '%s', got '%s'", part,
		  spr_context_error(context));
}

Test(step, options_that_cannot_be, .init = set_up, .fini = tear_down)
{
	static const struct spr_layer gap[] = {{0, 10, 0}, {11, 989, 0}}, empty[] = {{0, 0, 0}};
	static const struct spr_layer shorter[] = {{0, 10, 0}}, longer[] = {{0, 1001, 0}};
	static const struct spr_layer flags[] = {{0, N, 2}};
	struct spr_exchange_options base = {.size = sizeof base, .count = N}, o;

#define REFUSED(text, ...)                                                                         \
	do {                                                                                       \
		o = base;                                                                          \
		__VA_ARGS__;                                                                       \
		expect_refused(&o, text);                                                          \
	} while (0)
	REFUSED("layer 1 is elements 11 + 989, must begin at 10", o.layers = gap; o.n_layers = 2);
	REFUSED("layer 0 is elements 0 + 0", o.layers = empty; o.n_layers = 1);
	REFUSED("the layers end at element 10, must cover all 1000", o.layers = shorter;
		o.n_layers = 1);
	REFUSED("layer 0 is elements 0 + 1001", o.layers = longer; o.n_layers = 1);
	REFUSED("layer 0 has flags 0x2", o.layers = flags; o.n_layers = 1);
	REFUSED("momentum is 1, must be at least 0 and below 1", o.momentum = 1);
	REFUSED("momentum is nan", o.momentum = NAN);
	REFUSED("clip is -1", o.clip = -1);
	REFUSED("weight_decay is inf", o.weight_decay = INFINITY);
	REFUSED("broadcasters is 2, must be 1 to 1", o.broadcasters = 2);
	REFUSED("broadcasters is -1", o.broadcasters = -1);
	REFUSED("codec is 9", o.codec = (enum spr_codec)9);
	REFUSED("pipeline is 3", o.pipeline = (enum spr_pipeline)3);
	REFUSED("trimmed is SPR_TRIMMED_PUBLISHED, which needs wire SPR_F32", o.wire = SPR_F16;
		o.trimmed = SPR_TRIMMED_PUBLISHED);
#undef REFUSED
}

Test(step, layers_one_at_a_time, .init = set_up, .fini = tear_down)
{
	struct spr_exchange_options o = {.size = sizeof o,
					 .count = N,
					 .density = 0.1,
					 .layers = three_layers,
					 .n_layers = 3,
					 .per_layer = 1};
	struct spr_exchange *exchange = NULL;
	struct spr_request *request = NULL, *second = NULL;
	struct spr_layer_stats stats;
	static float g[N], update[N];

	for (unsigned i = 0; i < N; i++)
		g[i] = (float)(i + 1);
	cr_assert_eq(spr_exchange_create(comm, &o, &exchange), 0);
	cr_assert_eq(spr_exchange_ready(exchange, 0), SPR_EARGUMENT, "no step was begun");
	cr_assert_eq(spr_exchange_begin(exchange, g, update, &request), 0);
	cr_assert_eq(spr_exchange_begin(exchange, g, update, &second), SPR_EBUSY);
	cr_assert_eq(spr_exchange_start(exchange, g, update, &second), SPR_EBUSY);
	cr_assert_eq(spr_exchange_set_weights(exchange, g), SPR_EBUSY);
	cr_assert_eq(spr_exchange_ready(exchange, 3), SPR_EARGUMENT, "there are three");
	cr_assert_eq(spr_exchange_ready(exchange, 2), 0);
	cr_assert_eq(spr_exchange_ready(exchange, 2), SPR_EARGUMENT, "once only");
	cr_assert_eq(spr_request_wait(request), SPR_EBUSY, "layers are missing");
	cr_assert_eq(spr_exchange_ready(exchange, 0), 0);
	cr_assert_eq(spr_exchange_ready(exchange, 1), 0);
	cr_assert_eq(spr_request_wait(request), 0);
	spr_request_destroy(request);
	for (unsigned i = 0; i < N; i++) {
		/* the last tenth of each layer is the largest; one of the seven */
		bool in = i < 100 ? i >= 90 : i < 107 ? i >= 106 : i >= N - 89;

		cr_assert(update[i] == (in ? g[i] : 0), "element %u is %g", i, update[i]);
	}
	for (size_t l = 0; l < 3; l++) {
		static const uint64_t received[] = {10, 1, 89};

		cr_assert_eq(spr_exchange_layer_stats(exchange, l, &stats), 0);
		cr_assert(stats.count == three_layers[l].count && stats.received == received[l] &&
				  stats.density == (double)received[l] / (double)stats.count,
			  "layer %zu: %llu of %llu", l, (unsigned long long)stats.received,
			  (unsigned long long)stats.count);
	}
	cr_assert_eq(spr_exchange_layer_stats(exchange, 3, &stats), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_reset(exchange), 0);
	cr_assert_eq(spr_exchange_layer_stats(exchange, 0, &stats), SPR_EARGUMENT, "no step yet");
	spr_exchange_destroy(exchange);
}

Test(step, an_open_step_is_abandoned, .init = set_up, .fini = tear_down)
{
	for (int pipeline = SPR_PIPELINE_ON; pipeline <= SPR_PIPELINE_OFF; pipeline++)
		for (int how = 0; how < 2; how++) {
			struct spr_exchange_options o = {.size = sizeof o,
							 .count = N,
							 .density = 0.1,
							 .layers = three_layers,
							 .n_layers = 3,
							 .per_layer = 1,
							 .pipeline = (enum spr_pipeline)pipeline};
			struct spr_exchange *exchange = NULL;
			struct spr_request *request = NULL;
			static float g[N] = {1}, update[N];

			update[0] = -7;
			cr_assert_eq(spr_exchange_create(comm, &o, &exchange), 0);
			cr_assert_eq(spr_exchange_begin(exchange, g, update, &request), 0);
			cr_assert_eq(spr_exchange_ready(exchange, 1), 0);
			if (how == 0)
				spr_request_destroy(request);
			else
				spr_exchange_destroy(exchange);
			cr_assert(update[0] == -7, "the step did not happen");
			if (how == 0) {
				cr_assert(spr_exchange_residual(exchange)[0] == 0,
					  "nothing is kept");
				cr_assert_eq(spr_exchange_start(exchange, g, update, &request), 0,
					     "and the next one works");
				cr_assert_eq(spr_request_wait(request), 0);
				spr_request_destroy(request);
				spr_exchange_destroy(exchange);
			} else {
				cr_assert_eq(spr_request_wait(request), SPR_EARGUMENT);
				spr_request_destroy(request);
			}
		}
}

/* ---- runs on several ranks ---- */

static void tune_layers(const struct run *run, int rank, struct spr_exchange_options *o)
{
	(void)rank;
	o->layers = run->options.arg;
	o->n_layers = 3;
	o->per_layer = 1;
}

static void tune_rich(const struct run *run, int rank, struct spr_exchange_options *o)
{
	tune_layers(run, rank, o);
	o->momentum = 0.5;
	o->clip = 1e30; /* nothing is clipped, and the path is taken */
	o->weight_decay = 0.25;
	o->broadcasters = run->options.n_ranks > 1 ? 2 : 1;
	o->seed = 99;
}

static void tune_rich_off(const struct run *run, int rank, struct spr_exchange_options *o)
{
	tune_rich(run, rank, o);
	o->pipeline = SPR_PIPELINE_OFF;
}

static void tune_rich_packed(const struct run *run, int rank, struct spr_exchange_options *o)
{
	tune_rich(run, rank, o);
	o->codec = SPR_CODEC_PACKED;
}

static void tune_whole_with_dense(const struct run *run, int rank, struct spr_exchange_options *o)
{
	tune_layers(run, rank, o);
	o->per_layer = 0;
}

static void expect_all_well_of_step(const struct run *run)
{
	for (int rank = 0; rank < run->options.n_ranks; rank++)
		for (int step = 0; step < run->options.n_steps; step++) {
			const struct step_record *r = run_record(run, rank, step);

			cr_assert(run->statuses[rank] == 0 && r->status == 0,
				  "%s: rank %d, step %d: %s: %s", label(run), rank, step,
				  spr_error_name(r->status), r->text);
		}
}

/* expect_same() also for algorithms without a sparse result. */
static void expect_same_of_step(const struct run *run, const struct run *base, const char *what)
{
	expect_all_well_of_step(base);
	expect_all_well_of_step(run);
	for (int rank = 0; rank < base->options.n_ranks; rank++)
		for (int step = 0; step < base->options.n_steps; step++)
			cr_assert(record_digest(run, rank, step) == record_digest(base, rank, step),
				  "%s: rank %d, step %d: other bits with %s", label(base), rank,
				  step, what);
}

static const int few_ranks[] = {1, 2, 3, 5, 8, 0};

/* Handing over at once, layer by layer, without pipelining, packed: the same bits. */
Test(step, ways_to_the_same_bits, .timeout = 300)
{
	for (int kind = 0; kind <= 2; kind++)
		for (unsigned a = 0; algo_of(a, kind); a++)
			for (const int *p = few_ranks; *p; p++) {
				struct run_options o =
					RUN_OPTIONS(.n_ranks = *p, .algo = algo_of(a, kind), .n = N,
						    .density = 0.05, .n_steps = 3,
						    .gradient = gradient_floats, .tune = tune_rich,
						    .arg = dense_middle);
				struct run *base = run_steps(&o), *run;

				o.ready_layers = 3;
				run = run_steps(&o);
				expect_same_of_step(run, base, "layers handed over");
				run_free(run);
				o.tune = tune_rich_off;
				run = run_steps(&o);
				expect_same_of_step(run, base, "no pipelining");
				run_free(run);
				o.tune = tune_rich_packed;
				o.ready_layers = 0;
				run = run_steps(&o);
				expect_same_of_step(run, base, "packed indices");
				run_free(run);
				run_free(base);
			}
}

/* A run that is stopped and restored goes on bit for bit. */
Test(step, restored_runs_go_on, .timeout = 300)
{
	char directory[] = "/tmp/spr-step-XXXXXX", path[64];

	cr_assert(mkdtemp(directory) != NULL);
	snprintf(path, sizeof path, "%s/rank", directory);
	for (int kind = 0; kind <= 2; kind++)
		for (unsigned a = 0; algo_of(a, kind); a++)
			for (const int *p = few_ranks; *p; p++) {
				struct run_options o =
					RUN_OPTIONS(.n_ranks = *p, .algo = algo_of(a, kind), .n = N,
						    .density = 0.05, .n_steps = 6,
						    .gradient = gradient_floats, .tune = tune_rich,
						    .arg = dense_middle, .save_path = path);
				struct run *base = run_steps(&o), *run;

				o.restore_step = 3;
				run = run_steps(&o);
				expect_same_of_step(run, base, "a restart");
				run_free(run);
				run_free(base);
			}
	for (int i = 0; i < 8; i++) {
		char name[80];

		snprintf(name, sizeof name, "%s%d", path, i);
		unlink(name);
	}
	cr_assert_eq(rmdir(directory), 0, "nothing else was left");
}

/* Streams, on vectors that are long enough for them. */
static void tune_off(const struct run *run, int rank, struct spr_exchange_options *o)
{
	(void)run;
	(void)rank;
	o->pipeline = SPR_PIPELINE_OFF;
}

Test(step, streams_change_nothing, .timeout = 300)
{
	static const int ranks[] = {1, 2, 3, 4, 5, 8};

	for (size_t p = 0; p < spri_countof(ranks); p++)
		for (int rough = 0; rough <= 1; rough++) {
			struct run_options o =
				RUN_OPTIONS(.n_ranks = ranks[p], .algo = "gtopk", .n = 300000,
					    .density = rough ? 0.001 : 0.0001, .n_steps = 3,
					    .gradient =
						    rough ? gradient_floats : gradient_integers);
			struct run *base, *run = run_steps(&o);
			uint64_t excess = 0;

			for (int i = 0; i < ranks[p]; i++)
				excess += run_record(run, i, 1)->stats.excess +
					  run_record(run, i, 2)->stats.excess;
			o.tune = tune_off;
			base = run_steps(&o);
			expect_same(run, base, "streams");
			if (!rough)
				expect_mass(run);
			cr_assert(ranks[p] == 1 || !rough || excess > 0,
				  "%s: candidates went ahead of the cut", label(run));
			run_free(run);
			run_free(base);
		}
}

/* The cut falls by far: what a repair selects below the last threshold has not gone ahead. */
static void falling(const struct run *run, int rank, int step, float *g)
{
	gradient_floats(run, rank, step, g);
	for (uint64_t i = 0; step > 0 && i < run->options.n; i++)
		g[i] = 0;
}

/* Of all ranks but one it falls, and that one's rises in its first half. */
static void apart(const struct run *run, int rank, int step, float *g)
{
	uint64_t n = run->options.n;

	gradient_floats(run, rank, 0, g);
	for (uint64_t i = 0; step > 0 && i < n; i++)
		g[i] *= rank == run->options.n_ranks - 1 ? (i < n / 2 ? 64.0f : 8.0f) : 0.001f;
}

Test(step, streams_meet_cuts_that_move, .timeout = 300)
{
	static const int ranks[] = {2, 3, 5};

	for (size_t p = 0; p < spri_countof(ranks); p++)
		for (int shape = 0; shape < 4; shape++) {
			struct run_options o =
				RUN_OPTIONS(.n_ranks = ranks[p], .algo = "gtopk", .n = 300000,
					    .density = shape < 2 ? 0.001 : 0.04, .n_steps = 4,
					    /*
					 * little landing memory: senders wait for credits meanwhile
					 */
					    .landing_bytes =
						    shape < 2 ? 0 : 32768 * (uint64_t)ranks[p],
					    .gradient = shape % 2 ? apart : falling);
			struct run *base, *run = run_steps(&o);

			o.tune = tune_off;
			base = run_steps(&o);
			expect_same(run, base, "streams");
			run_free(run);
			run_free(base);
		}
}

/* A NaN that is found after entries have gone ahead. */
static void late_nan(const struct run *run, int rank, int step, float *g)
{
	gradient_floats(run, rank, step, g);
	if (rank == 1 && step == 1)
		g[run->options.n - 1] = NAN;
}

Test(step, a_nan_behind_a_stream, .timeout = 300)
{
	for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
		struct run_options o =
			RUN_OPTIONS(.n_ranks = n_ranks, .algo = "gtopk", .n = 300000,
				    .density = 0.001, .n_steps = 3, .gradient = late_nan);
		struct run *run = run_steps(&o);

		expect_none(run, 1, SPR_ENONFINITE, "rank 1");
		for (int i = 0; i < n_ranks; i++)
			cr_assert_eq(run_record(run, i, 2)->status, 0, "the next step works");
		run_free(run);
	}
}

/* ---- importance: thresholds outlive steps in which there is nothing ---- */

static void seldom(const struct run *run, int rank, int step, float *g)
{
	gradient_floats(run, rank, step, g);
	for (uint64_t i = step == 0 ? 200 : 0; step < 60 && i < run->options.n; i++)
		g[i] = 0;
}

Test(step, empty_steps_leave_the_threshold_alone)
{
	struct run_options o = RUN_OPTIONS(.n_ranks = 1, .algo = "iwp_ring", .n = 4000,
					   .density = 0.05, .n_steps = 66, .gradient = seldom);
	struct run *run = run_steps(&o);

	expect_all_well(run);
	cr_assert_eq(run_record(run, 0, 59)->sum_count, 0, "nothing is left");
	for (int s = 61; s < 66; s++) /* the first one may be dense */
		cr_assert(run_record(run, 0, s)->sum_count < 800, "step %d: %llu of 4000", s,
			  (unsigned long long)run_record(run, 0, s)->sum_count);
	run_free(run);
}

/* ---- momentum, clipping, weight decay, one rank, against formulas ---- */

static void tune_momentum(const struct run *run, int rank, struct spr_exchange_options *o)
{
	(void)run;
	(void)rank;
	o->momentum = 0.5;
	o->clip = 8;
	o->weight_decay = 0.125;
}

Test(step, momentum_clip_and_decay)
{
	enum { n = 64, k = 8 };
	struct run_options o =
		RUN_OPTIONS(.n_ranks = 1, .algo = "gtopk", .n = n, .density = 0.125, .n_steps = 5,
			    .gradient = gradient_integers, .tune = tune_momentum);
	struct run *run = run_steps(&o);
	float u[n] = {0}, v[n] = {0};

	expect_all_well_of_step(run);
	for (int s = 0; s < 5; s++) {
		const struct step_record *r = run_record(run, 0, s);
		double squares = 0;
		float scale;

		for (int i = 0; i < n; i++)
			squares += (double)r->gradient[i] * (double)r->gradient[i];
		scale = sqrt(squares) > 8 ? (float)(8 / sqrt(squares)) : 1;
		for (int i = 0; i < n; i++) {
			u[i] = 0.5f * u[i] + scale * r->gradient[i];
			v[i] = v[i] + u[i];
		}
		for (int i = 0; i < n; i++) {
			int larger = 0;
			float sent;

			for (int j = 0; j < n; j++)
				larger += fabsf(v[j]) > fabsf(v[i]) ||
					  (fabsf(v[j]) == fabsf(v[i]) && j < i);
			sent = larger < k ? v[i] : 0;
			cr_assert(fabsf(r->update[i] - (sent + 0.125f * run->weights[i])) <= 1e-5f,
				  "step %d, element %d: %g, expected %g", s, i, r->update[i],
				  sent + 0.125f * run->weights[i]);
			cr_assert(fabsf(r->after[i] - (larger < k ? 0 : v[i])) <= 1e-5f,
				  "step %d, element %d stays", s, i);
		}
		for (int i = 0; i < n; i++) {
			v[i] = r->after[i];
			if (r->update[i] != 0.125f * run->weights[i])
				u[i] = 0; /* factor masking */
		}
	}
	run_free(run);
}

/* ---- dense layers ---- */

Test(step, dense_layers_are_averaged)
{
	for (int per_layer = 0; per_layer <= 1; per_layer++)
		for (const int *p = few_ranks; *p; p++) {
			struct run_options o =
				RUN_OPTIONS(.n_ranks = *p, .algo = "gtopk", .n = N, .density = 0.01,
					    .n_steps = 2, .arg = dense_middle,
					    .tune = per_layer ? tune_layers
							      : tune_whole_with_dense);
			struct run *run = run_steps(&o);

			for (int s = 0; s < 2; s++)
				for (int i = 100; i < 107; i++) {
					const struct step_record *r = run_record(run, 0, s);
					float sum = 0, factor = 1.0f / (float)*p;

					for (int rank = 0; rank < *p; rank++)
						sum += run_record(run, rank, s)->gradient[i];
					cr_assert(r->update[i] == sum * factor,
						  "%s: dense element %d is %g, expected %g",
						  label(run), i, r->update[i], sum * factor);
					cr_assert(r->after[i] == 0, "nothing of it is kept");
				}
			run_free(run);
		}
}

/* ---- the published rule ---- */

static void tune_published(const struct run *run, int rank, struct spr_exchange_options *o)
{
	(void)run;
	(void)rank;
	o->trimmed = SPR_TRIMMED_PUBLISHED;
}

static double mass(const struct run *run, int step, bool after)
{
	double sum = 0;

	for (int rank = 0; rank < run->options.n_ranks; rank++) {
		const struct step_record *r = run_record(run, rank, step);

		for (uint64_t i = 0; i < run->options.n; i++)
			sum += after ? (double)r->after[i]
				     : (double)r->before[i] + (double)r->gradient[i];
	}
	for (uint64_t i = 0; after && i < run_record(run, 0, step)->sum_count; i++)
		sum += (double)run_record(run, 0, step)->sum_value[i];
	return sum;
}

Test(step, the_published_rule_loses_mass)
{
	struct run_options o = RUN_OPTIONS(.n_ranks = 8, .algo = "gtopk", .n = N, .density = 0.05,
					   .n_steps = 2, .tune = tune_published);
	struct run *run = run_steps(&o);

	expect_all_well(run);
	for (int rank = 0; rank < 8; rank++) {
		const struct step_record *r = run_record(run, rank, 0);

		/* what is not in the result is all there again; what is in it is gone */
		for (uint64_t i = 0, at = 0; i < N; i++) {
			bool in = at < r->sum_count && r->sum_index[at] == i;
			float a = r->before[i] + r->gradient[i];

			at += in;
			cr_assert(r->after[i] == a || (in && r->after[i] == 0),
				  "rank %d, element %llu: %g of %g", rank, (unsigned long long)i,
				  r->after[i], a);
			cr_assert(in || r->after[i] == a, "rank %d: element %llu is put back", rank,
				  (unsigned long long)i);
		}
	}
	cr_assert(mass(run, 0, false) != mass(run, 0, true), "the leak that adoption stops");
	run_free(run);
}
