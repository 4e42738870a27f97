/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_step_perf: what pipelining gains in a training step. Two exchanges of the same options but
 * one, side by side in one run, take turns at the same gradients:
 *
 *   1. Draw a few gradients and the weights, from the seed.
 *   2. Each iteration: a barrier, a step without pipelining, a barrier, one with it. Residuals and
 *      thresholds go on from step to step, as in training; the results must be the same.
 *   3. Medians over the iterations of the slowest rank's times, and the bound
 *
 *        gtopk and the like   max(select, comm / rounds) + comm · (rounds − 1) / rounds
 *        by layers            max(select, comm)
 *
 *      where select and comm are those of the step without pipelining. The update is not asked
 *      for, but of dense_ring: scattering it is neither.
 *
 * A failure is one line on stderr with the rank, and exit status 3; results that differ, 1.
 */
#include "json.h"
#include "options.h"
#include "stats.h"

#include <sparring/sparring.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_GRADIENTS 4u
#define MAX_LAYERS 64u
#define EXIT_FAILED 3

enum { OFF, ON, N_WAYS };

struct config {
	const char *algo, *json;
	bool dense; /* dense_ring: the update is the result; else it is not asked for */
	uint64_t count, layers, iterations, warmups, seed;
	double density;
};

/* One rank. Owned. */
struct bench {
	struct config config;
	struct spr_context *context;
	struct spr_comm *comm;
	struct spr_exchange *exchange[N_WAYS];
	float *gradient[N_GRADIENTS], *weights, *update[N_WAYS];
	double *total[N_WAYS], *select, *comm_time; /* milliseconds, per iteration */
	uint64_t excess, wire_bytes[N_WAYS];	    /* of the last iteration */
	int rank, n_ranks;
};

static int fail(const struct bench *b, const char *what, int r)
{
	fprintf(stderr, "spr_step_perf: rank %d: %s: %s (%s)\n", b->rank, what, spr_strerror(r),
		b->context ? spr_context_error(b->context) : "");
	return r < 0 ? r : -1;
}

/* Laplace distributed, as gradients nearly are, from (seed, i). */
static float draw(uint64_t seed, uint64_t i)
{
	uint64_t h = (seed + 1) * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u;
	float u;

	h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
	h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
	h ^= h >> 32;
	u = ((float)(uint32_t)(h >> 40) + 0.5f) * 0x1p-24f;
	return logf(u) * (h & 1 ? 1.0f : -1.0f);
}

static int make_exchange(struct bench *b, int way)
{
	struct spr_layer layers[MAX_LAYERS];
	struct spr_exchange_options o = {.size = sizeof o,
					 .count = b->config.count,
					 .algo = b->config.algo,
					 .density = b->config.density,
					 .layers = layers,
					 .n_layers = b->config.layers,
					 .per_layer = b->config.layers > 1,
					 .pipeline = way == ON ? SPR_PIPELINE_ON : SPR_PIPELINE_OFF,
					 .seed = b->config.seed};
	uint64_t n = b->config.count, l = b->config.layers;
	int r;

	for (uint64_t i = 0; i < l; i++)
		layers[i] = (struct spr_layer){
			.offset = n / l * i,
			.count = i + 1 == l ? n - n / l * i : n / l,
		};
	r = spr_exchange_create(b->comm, &o, &b->exchange[way]);
	if (r == 0)
		r = spr_exchange_set_weights(b->exchange[way], b->weights);
	return r < 0 ? fail(b, "making an exchange", r) : 0;
}

static int allocate(struct bench *b)
{
	size_t n = b->config.count, steps = b->config.iterations;
	bool well = true;

	for (unsigned g = 0; g < N_GRADIENTS; g++)
		well &= (b->gradient[g] = malloc(n * sizeof(float))) != NULL;
	for (int way = 0; way < N_WAYS; way++) {
		well &= (b->update[way] = calloc(b->config.dense ? n : 1, sizeof(float))) != NULL;
		well &= (b->total[way] = calloc(steps, sizeof(double))) != NULL;
	}
	b->weights = malloc(n * sizeof(float));
	b->select = calloc(steps, sizeof(double));
	b->comm_time = calloc(steps, sizeof(double));
	if (!well || !b->weights || !b->select || !b->comm_time)
		return fail(b, "allocating", -12);
	for (unsigned g = 0; g < N_GRADIENTS; g++)
		for (size_t i = 0; i < n; i++)
			b->gradient[g][i] = draw(b->config.seed + 1000 * (uint64_t)b->rank + g, i);
	for (size_t i = 0; i < n; i++)
		b->weights[i] = draw(b->config.seed + 999999, i) + 0.25f;
	return 0;
}

static int barrier(struct bench *b)
{
	char *marks = malloc((size_t)b->n_ranks), mark = 0;
	int r = marks ? spr_comm_allgather(b->comm, &mark, marks, 1) : -12;

	free(marks);
	return r < 0 ? fail(b, "waiting for the others", r) : 0;
}

/* One step; *ms is this rank's time. */
static int one_step(struct bench *b, int way, const float *gradient, double *ms,
		    struct spr_exchange_stats *stats)
{
	struct spr_request *request = NULL;
	uint64_t start;
	int r = barrier(b);

	if (r < 0)
		return r;
	start = spr_context_now_ns(b->context);
	r = spr_exchange_start(b->exchange[way], gradient, b->config.dense ? b->update[way] : NULL,
			       &request);
	if (r == 0)
		r = spr_request_wait(request);
	*ms = (double)(spr_context_now_ns(b->context) - start) * 1e-6;
	if (r < 0)
		fail(b, spr_request_error(request), r);
	spr_request_destroy(request);
	if (r < 0)
		return r;
	r = spr_exchange_stats(b->exchange[way], stats);
	return r < 0 ? fail(b, "reading statistics", r) : 0;
}

/* The slowest rank's times of an iteration. */
static int gather(struct bench *b, double mine[4])
{
	double *all = malloc((size_t)b->n_ranks * 4 * sizeof(double));
	int r = all ? spr_comm_allgather(b->comm, mine, all, 4 * sizeof(double)) : -12;

	for (int i = 0; r == 0 && i < 4 * b->n_ranks; i++)
		mine[i % 4] = fmax(mine[i % 4], all[i]);
	free(all);
	return r < 0 ? fail(b, "gathering", r) : 0;
}

/* Of the last step of both exchanges. */
static bool same_result(struct bench *b)
{
	struct spr_sparse sum[N_WAYS];

	if (b->config.dense)
		return !memcmp(b->update[OFF], b->update[ON], b->config.count * sizeof(float));
	for (int way = 0; way < N_WAYS; way++)
		if (spr_exchange_result(b->exchange[way], &sum[way]) < 0)
			return false;
	return sum[OFF].count == sum[ON].count &&
	       !memcmp(sum[OFF].index, sum[ON].index, sum[ON].count * sizeof(uint64_t)) &&
	       !memcmp(sum[OFF].value, sum[ON].value, sum[ON].count * sizeof(float));
}

static int iterate(struct bench *b, uint64_t i)
{
	const float *gradient = b->gradient[i % N_GRADIENTS];
	struct spr_exchange_stats stats[N_WAYS];
	double times[4];
	int r = 0;

	for (int way = 0; way < N_WAYS && r == 0; way++)
		r = one_step(b, way, gradient, &times[way], &stats[way]);
	if (r < 0)
		return r;
	if (!same_result(b)) {
		fprintf(stderr,
			"spr_step_perf: rank %d: step %llu: pipelining changed the result\n",
			b->rank, (unsigned long long)i);
		return 1;
	}
	times[2] = (double)stats[OFF].select_ns * 1e-6;
	times[3] = (double)stats[OFF].comm_ns * 1e-6;
	r = gather(b, times);
	if (r < 0 || i < b->config.warmups)
		return r;
	i -= b->config.warmups;
	b->total[OFF][i] = times[OFF];
	b->total[ON][i] = times[ON];
	b->select[i] = times[2];
	b->comm_time[i] = times[3];
	b->excess = stats[ON].excess;
	b->wire_bytes[OFF] = stats[OFF].wire_bytes;
	b->wire_bytes[ON] = stats[ON].wire_bytes;
	return 0;
}

/* The median, and the bound that pipelining is held against. */
struct medians {
	double off, on, select, comm, bound;
};

static struct medians medians_of(const struct bench *b)
{
	size_t n = b->config.iterations;
	struct medians m = {.off = perf_stats_median_of(b->total[OFF], n),
			    .on = perf_stats_median_of(b->total[ON], n),
			    .select = perf_stats_median_of(b->select, n),
			    .comm = perf_stats_median_of(b->comm_time, n)};
	double rounds = 1, bytes;

	if (b->config.layers == 1)
		(void)!spr_algo_cost(b->config.algo, b->n_ranks, b->config.count, 1, &rounds,
				     &bytes);
	rounds = fmax(rounds, 1);
	m.bound = fmax(m.select, m.comm / rounds) + m.comm * (rounds - 1) / rounds;
	return m;
}

static int report(const struct bench *b)
{
	struct medians m = medians_of(b);
	const struct config *c = &b->config;
	struct perf_json *json;

	printf("# %s, %d ranks, %llu elements in %llu layers, density %g, %llu iterations; ms\n"
	       "#   select     comm      off    bound       on  on/bound  off/on     wireB off/on  "
	       "excess\n"
	       "  %8.3f %8.3f %8.3f %8.3f %8.3f  %8.2f  %6.2f  %llu / %llu  %llu\n",
	       c->algo, b->n_ranks, (unsigned long long)c->count, (unsigned long long)c->layers,
	       c->density, (unsigned long long)c->iterations, m.select, m.comm, m.off, m.bound,
	       m.on, m.on / m.bound, m.off / m.on, (unsigned long long)b->wire_bytes[OFF],
	       (unsigned long long)b->wire_bytes[ON], (unsigned long long)b->excess);
	if (!c->json)
		return 0;
	json = perf_json_create(c->json);
	perf_json_begin_object(json, NULL);
	perf_json_string(json, "schema", "sparring.step");
	perf_json_u64(json, "version", 1);
	perf_json_machine(json, "machine");
	perf_json_string(json, "algo", c->algo);
	perf_json_i64(json, "ranks", b->n_ranks);
	perf_json_u64(json, "count", c->count);
	perf_json_u64(json, "layers", c->layers);
	perf_json_double(json, "density", c->density);
	perf_json_u64(json, "iterations", c->iterations);
	perf_json_double(json, "select_ms", m.select);
	perf_json_double(json, "comm_ms", m.comm);
	perf_json_double(json, "off_ms", m.off);
	perf_json_double(json, "on_ms", m.on);
	perf_json_double(json, "bound_ms", m.bound);
	perf_json_u64(json, "wire_bytes_off", b->wire_bytes[OFF]);
	perf_json_u64(json, "wire_bytes_on", b->wire_bytes[ON]);
	perf_json_u64(json, "excess", b->excess);
	perf_json_end_object(json);
	return perf_json_commit(json);
}

static int run(struct bench *b)
{
	struct spr_context_options options = {.size = sizeof options};
	int r = spr_context_open(&options, &b->context);

	if (r < 0)
		return fail(b, "opening a context", r);
	r = spr_comm_create(b->context, NULL, &b->comm);
	if (r < 0)
		return fail(b, "meeting", r);
	b->rank = spr_comm_rank(b->comm);
	b->n_ranks = spr_comm_size(b->comm);
	r = allocate(b);
	for (int way = 0; way < N_WAYS && r == 0; way++)
		r = make_exchange(b, way);
	for (uint64_t i = 0; i < b->config.warmups + b->config.iterations && r == 0; i++)
		r = iterate(b, i);
	if (r == 0 && b->rank == 0) {
		r = report(b);
		if (r < 0)
			fail(b, "--json", r);
	}
	return r;
}

static void bench_fini(struct bench *b)
{
	for (int way = 0; way < N_WAYS; way++) {
		spr_exchange_destroy(b->exchange[way]);
		free(b->update[way]);
		free(b->total[way]);
	}
	spr_comm_destroy(b->comm);
	spr_context_close(b->context);
	for (unsigned g = 0; g < N_GRADIENTS; g++)
		free(b->gradient[g]);
	free(b->weights);
	free(b->select);
	free(b->comm_time);
}

static int parse(struct config *c, int argc, char **argv)
{
	const struct perf_option table[] = {
		{'a', "algo", PERF_OPT_STRING, "NAME", "a sparse or masked algorithm (gtopk)",
		 &c->algo, 0, 0},
		{'n', "iters", PERF_OPT_U64, "N", "timed iterations (20)", &c->iterations, 1, 1e6},
		{'w', "warmup_iters", PERF_OPT_U64, "N", "iterations before (10)", &c->warmups, 0,
		 1e6},
		{0, "count", PERF_OPT_SIZE, "N", "elements; K, M, G may follow (16M)", &c->count, 1,
		 (double)(1ull << 32)},
		{0, "layers", PERF_OPT_U64, "L", "equal layers, each selected from by itself (1)",
		 &c->layers, 1, MAX_LAYERS},
		{0, "density", PERF_OPT_DOUBLE, "D", "(0.001)", &c->density, 1e-9, 1},
		{0, "seed", PERF_OPT_U64, "N", "of the data (1)", &c->seed, 0, 0},
		{0, "json", PERF_OPT_STRING, "FILE", "write what was measured", &c->json, 0, 0},
	};
	static const char epilog[] =
		"select and comm are those of the step without pipelining; bound is what overlap "
		"could "
		"make of them.\n\n"
		"    spr_run -n 2 --netbed 100mbit -- spr_step_perf --count 16M\n"
		"    spr_run -n 2 --netbed 1gbit -- spr_step_perf -a iwp_ring --layers 8 --density "
		"0.015625\n";
	const struct perf_options options = {"spr_step_perf",
					     "Times training steps with and without pipelining.",
					     "[OPTIONS]",
					     epilog,
					     table,
					     spri_countof(table),
					     false};
	struct spr_algo_info info;
	int first, r = perf_options_parse(&options, argc, argv, &first);

	if (r)
		return r;
	if (c->layers > c->count)
		return perf_options_refuse(&options, "--layers is %llu, must be at most --count",
					   (unsigned long long)c->layers);
	for (unsigned i = 0; spr_algo_info(i, &info) == 0; i++) {
		c->dense = !info.sparse;
		if (!strcmp(info.name, c->algo))
			return 0;
	}
	return perf_options_refuse(&options, "--algo is '%s', must be one that spr_info lists",
				   c->algo);
}

int main(int argc, char **argv)
{
	struct bench b = {.config = {.algo = "gtopk",
				     .count = 16u << 20,
				     .layers = 1,
				     .iterations = 20,
				     .warmups = 10,
				     .density = 0.001,
				     .seed = 1}};
	int r = parse(&b.config, argc, argv);

	if (r)
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	r = run(&b);
	bench_fini(&b);
	return r < 0 ? EXIT_FAILED : r;
}
