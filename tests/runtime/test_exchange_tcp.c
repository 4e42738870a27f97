/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Training steps over tcp on the loopback interface, one thread per rank, with and without progress
 * threads: the bits are those of the simulator.
 */
#include "steps.h"

#include <check.h>
#include <errno.h>
#include <internal/bits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TCP_RANKS 3
#define TCP_STEPS 3

/* What the threads share: a meeting, and what to compare with. */
struct tcp_world {
	const char *algo;
	int progress_thread;
	pthread_barrier_t barrier;
	uint8_t all[TCP_RANKS][4096];
	const struct run *base; /* the same steps on the simulator */
	int status[TCP_RANKS];
	int wrong[TCP_RANKS]; /* values that differ from the simulator's */
	char text[TCP_RANKS][256];
};

struct tcp_rank {
	struct tcp_world *world;
	int rank;
	pthread_t thread;
};

static int meet(void *arg, const void *mine, void *all, size_t bytes)
{
	struct tcp_rank *own = arg;

	if (bytes > sizeof own->world->all[0])
		return -EMSGSIZE;
	memcpy(own->world->all[own->rank], mine, bytes);
	pthread_barrier_wait(&own->world->barrier);
	for (int i = 0; i < TCP_RANKS; i++)
		memcpy((uint8_t *)all + (size_t)i * bytes, own->world->all[i], bytes);
	pthread_barrier_wait(&own->world->barrier);
	return 0;
}

static int tcp_steps(struct tcp_rank *own, struct spr_comm *ours)
{
	struct tcp_world *world = own->world;
	uint64_t n = world->base->options.n;
	struct spr_exchange_options options = {.size = sizeof options,
					       .count = n,
					       .algo = world->algo,
					       .density = world->base->options.density};
	struct spr_exchange *exchange = NULL;
	float *update = calloc(n, sizeof *update);
	int r = spr_exchange_create(ours, &options, &exchange);

	if (r == 0)
		r = spr_exchange_set_weights(exchange, world->base->weights);
	for (int s = 0; s < TCP_STEPS && r == 0; s++) {
		const struct step_record *expected = run_record(world->base, own->rank, s);
		struct spr_request *request = NULL;

		r = spr_exchange_start(exchange, expected->gradient, update, &request);
		if (r == 0)
			r = spr_request_wait(request);
		if (r < 0)
			snprintf(world->text[own->rank], sizeof world->text[0], "%.250s",
				 spr_request_error(request));
		spr_request_destroy(request);
		for (uint64_t i = 0; i < n && r == 0; i++) {
			world->wrong[own->rank] +=
				spri_f32_bits(update[i]) != spri_f32_bits(expected->update[i]);
			if (expected->after)
				world->wrong[own->rank] +=
					spri_f32_bits(spr_exchange_residual(exchange)[i]) !=
					spri_f32_bits(expected->after[i]);
		}
	}
	spr_exchange_destroy(exchange);
	free(update);
	return r;
}

static void *tcp_main(void *arg)
{
	struct tcp_rank *own = arg;
	struct tcp_world *world = own->world;
	struct spr_context_options options = {.size = sizeof options,
					      .transport = "tcp",
					      .progress_thread = world->progress_thread};
	struct spr_comm_options comm_options = {.size = sizeof comm_options,
						.rank = own->rank,
						.n_ranks = TCP_RANKS,
						.allgather = meet,
						.allgather_arg = own};
	struct spr_context *ctx = NULL;
	struct spr_comm *ours = NULL;
	int r = spr_context_open(&options, &ctx);

	if (r < 0) /* the others would wait at the barrier for ever */
		abort();
	r = spr_comm_create(ctx, &comm_options, &ours);
	if (r < 0)
		snprintf(world->text[own->rank], sizeof world->text[0], "%.250s",
			 spr_context_error(ctx));
	else
		r = tcp_steps(own, ours);
	world->status[own->rank] = r;
	spr_comm_destroy(ours);
	spr_context_close(ctx);
	return NULL;
}

/* The same steps on the simulator and over tcp. */
static void compare(const struct run_options *o, int threaded)
{
	struct tcp_world *world = calloc(1, sizeof *world);
	struct tcp_rank ranks[TCP_RANKS];

	world->algo = o->algo;
	world->progress_thread = threaded;
	world->base = run_steps(o);
	pthread_barrier_init(&world->barrier, NULL, TCP_RANKS);
	for (int i = 0; i < TCP_RANKS; i++) {
		ranks[i] = (struct tcp_rank){.world = world, .rank = i};
		cr_assert(pthread_create(&ranks[i].thread, NULL, tcp_main, &ranks[i]) == 0,
			  "a thread");
	}
	for (int i = 0; i < TCP_RANKS; i++)
		pthread_join(ranks[i].thread, NULL);
	for (int i = 0; i < TCP_RANKS; i++)
		cr_assert(world->status[i] == 0 && world->wrong[i] == 0,
			  "%s, progress thread %d, rank %d: %s, %d wrong: %s", o->algo, threaded, i,
			  spr_error_name(world->status[i]), world->wrong[i], world->text[i]);
	pthread_barrier_destroy(&world->barrier);
	run_free((struct run *)(uintptr_t)world->base);
	free(world);
}

Test(exchange_tcp, same_bits_as_loop, .timeout = 120)
{
	struct spr_algo_info info;

	setenv("SPR_TCP_IF", "lo", 1);
	for (unsigned a = 0; spr_algo_info(a, &info) == 0; a++)
		for (int threaded = 0; threaded <= 1; threaded++) {
			struct run_options o =
				RUN_OPTIONS(.n_ranks = TCP_RANKS, .algo = info.name, .n = 30000,
					    .density = 0.1, .n_steps = TCP_STEPS,
					    .gradient = gradient_floats);

			compare(&o, threaded);
		}
}

/* Long enough for entries to go ahead while others are still being selected. */
Test(exchange_tcp, streams, .timeout = 120)
{
	setenv("SPR_TCP_IF", "lo", 1);
	for (int threaded = 0; threaded <= 1; threaded++) {
		struct run_options o =
			RUN_OPTIONS(.n_ranks = TCP_RANKS, .algo = "gtopk", .n = 1000000,
				    .density = 0.01, .n_steps = TCP_STEPS,
				    .gradient = gradient_floats);

		compare(&o, threaded);
	}
}
