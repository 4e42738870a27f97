/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Several threads of one rank wait at once: one sleeps in the transport, the others wait for its
 * word, and nobody's wake-up is lost. Two ranks in two threads over tcp on the loopback interface;
 * each has more threads that wait for requests of their own. And a simulation that runs twice.
 */
#include <check.h>
#include <pthread.h>
#include <sparring/sparring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WAITERS = 3, ROUNDS = 20, COUNT = 1000 };

/* How the two ranks meet: an allgather in memory. */
struct meeting {
	pthread_barrier_t barrier;
	unsigned char all[2][4096];
};

struct rank {
	struct meeting *meeting;
	int rank;
	bool progress_thread;
	struct spr_comm *comm;
	struct spr_context *context;
	atomic_int wrong;
	atomic_bool stop;
};

struct waiter {
	struct rank *rank;
	struct spr_request *request;
	float *out;
};

static int allgather(void *arg, const void *mine, void *all, size_t bytes)
{
	struct rank *rank = arg;

	if (bytes > sizeof rank->meeting->all[0])
		return -1;
	memcpy(rank->meeting->all[rank->rank], mine, bytes);
	pthread_barrier_wait(&rank->meeting->barrier);
	for (int i = 0; i < 2; i++)
		memcpy((char *)all + (size_t)i * bytes, rank->meeting->all[i], bytes);
	pthread_barrier_wait(&rank->meeting->barrier);
	return 0;
}

static void *wait_main(void *arg)
{
	struct waiter *w = arg;

	if (spr_request_wait(w->request) != 0 || w->out[COUNT - 1] != 3)
		atomic_fetch_add(&w->rank->wrong, 1);
	spr_request_destroy(w->request);
	return NULL;
}

/* A thread that only looks: it must not take a waiter's wake-up away. */
static void *look_main(void *arg)
{
	struct rank *rank = arg;

	while (!atomic_load(&rank->stop))
		if (spr_context_progress(rank->context) < 0)
			atomic_fetch_add(&rank->wrong, 1);
	return NULL;
}

/* One request for each waiter, started in the same order on both ranks. */
static void run_round(struct rank *rank)
{
	struct waiter waiters[WAITERS];
	pthread_t threads[WAITERS];
	float *data = calloc(2 * WAITERS, COUNT * sizeof *data);

	for (int i = 0; i < WAITERS; i++) {
		float *in = data + (size_t)(2 * i) * COUNT;
		struct spr_allreduce_args args = {
			.size = sizeof args, .in = in, .out = in + COUNT, .count = COUNT};

		for (int j = 0; j < COUNT; j++)
			in[j] = (float)(rank->rank + 1);
		waiters[i] = (struct waiter){.rank = rank, .out = in + COUNT};
		if (spr_allreduce(rank->comm, &args, &waiters[i].request) != 0)
			abort(); /* the test is broken */
	}
	for (int i = 0; i < WAITERS; i++)
		pthread_create(&threads[i], NULL, wait_main, &waiters[i]);
	for (int i = 0; i < WAITERS; i++)
		pthread_join(threads[i], NULL);
	free(data);
}

static void *rank_main(void *arg)
{
	struct rank *rank = arg;
	struct spr_context_options options = {.size = sizeof options,
					      .transport = "tcp",
					      .progress_thread = rank->progress_thread};
	struct spr_comm_options who = {.size = sizeof who,
				       .rank = rank->rank,
				       .n_ranks = 2,
				       .allgather = allgather,
				       .allgather_arg = rank};
	pthread_t looker;

	if (spr_context_open(&options, &rank->context) != 0 ||
	    spr_comm_create(rank->context, &who, &rank->comm) != 0)
		abort(); /* the test is broken */
	pthread_create(&looker, NULL, look_main, rank);
	for (int i = 0; i < ROUNDS; i++)
		run_round(rank);
	atomic_store(&rank->stop, true);
	pthread_join(looker, NULL);
	spr_comm_destroy(rank->comm);
	spr_context_close(rank->context);
	return NULL;
}

static void two_ranks(bool progress_thread)
{
	struct meeting meeting;
	struct rank ranks[2];
	pthread_t threads[2];

	setenv("SPR_TCP_IF", "lo", 1);
	pthread_barrier_init(&meeting.barrier, NULL, 2);
	for (int i = 0; i < 2; i++) {
		memset(&ranks[i], 0, sizeof ranks[i]);
		ranks[i].meeting = &meeting;
		ranks[i].rank = i;
		ranks[i].progress_thread = progress_thread;
		pthread_create(&threads[i], NULL, rank_main, &ranks[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&meeting.barrier);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(atomic_load(&ranks[i].wrong), 0);
}

/* A lost wake-up would end a request at its deadline, 30 s, with an error: no time is measured. */
Test(waiting, several_threads)
{
	two_ranks(false);
}

Test(waiting, beside_a_progress_thread)
{
	two_ranks(true);
}

static int nothing(struct spr_sim *sim, int rank, void *arg)
{
	(void)sim;
	(void)arg;
	return rank + 1;
}

Test(waiting, a_simulation_runs_again_after_a_kill)
{
	struct spr_sim_options options = {.size = sizeof options, .n_ranks = 3};
	struct spr_sim *sim;
	int statuses[3];

	cr_assert_eq(spr_sim_create(&options, &sim), 0);
	spr_sim_kill(sim, 1);
	spr_sim_kill(sim, 3); /* no such rank: ignored */
	for (int run = 0; run < 2; run++) {
		cr_assert_eq(spr_sim_run(sim, nothing, NULL, statuses), 0);
		cr_assert(statuses[0] == 1 && statuses[1] == SPR_ELOST && statuses[2] == 3,
			  "run %d: %d, %d, %d", run, statuses[0], statuses[1], statuses[2]);
	}
	spr_sim_destroy(sim);
}
