/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_train: a real training job over Sparring's public API. Every rank trains on its share of the
 * samples; the gradients meet in an exchange (train_job.c).
 *
 *   1. Read the command line and the data; draw the weights.
 *   2. Be one rank of a job (the SPR_* variables that spr_run sets; without them the only one), or
 *      simulate --ranks of them in this process over the loop transport.
 *   3. Each rank: meet the others, make the exchange, train, report (train_setup.c).
 *
 * A failure on a rank is one line on stderr with that rank's number, and exit status 1 (2 for a
 * wrong command line). The others notice that the rank is gone and end in the same way.
 */
#include "train_job.h"

#include <cblas.h>
#include <options.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* OpenBLAS keeps small matrices on the stack of its caller. */
#define SIM_STACK_BYTES ((size_t)1 << 20)

int train_fail(const struct train_job *job, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "spr_train: rank %d: %s\n", job->rank, text);
	return -1;
}

static int simulated_rank(struct spr_sim *sim, int rank, void *arg)
{
	struct train_job job = {.shared = arg, .sim = sim, .rank = rank};

	return train_job_life(&job);
}

/* Runs all ranks. Returns: 0; negative after a message. */
static int simulate(struct train_shared *shared)
{
	int n = (int)shared->config.n_sim_ranks, r;
	struct spr_sim_options options = {.size = sizeof(options),
					  .n_ranks = n,
					  .latency_ns = 1000,
					  .seed = shared->config.seed,
					  .stack_bytes = SIM_STACK_BYTES};
	int *statuses = calloc((size_t)n, sizeof(*statuses));
	struct spr_sim *sim = NULL;

	r = statuses ? spr_sim_create(&options, &sim) : -1;
	if (r == 0)
		r = spr_sim_run(sim, simulated_rank, shared, statuses);
	if (r < 0)
		fprintf(stderr, "spr_train: cannot simulate %d ranks: %s\n", n, spr_strerror(r));
	for (int i = 0; i < n && r == 0; i++)
		r = statuses[i];
	spr_sim_destroy(sim);
	free(statuses);
	return r;
}

int main(int argc, char **argv)
{
	struct train_shared shared = {
		.config = {.algo = "gtopk",
			   .decay = "linear",
			   .density = 0.01,
			   .lr = 0.2,
			   .momentum = 0.5,
			   .batch = 64,
			   .epochs = 5,
			   .length = 48,
			   .warmup_steps = UINT64_MAX,
			   .broadcasters = 1,
			   .seed = 1},
	};
	const char *rank = getenv("SPR_RANK");
	struct train_job job = {.shared = &shared, .rank = rank ? atoi(rank) : 0};
	int r = train_options_parse(&shared.config, argc, argv);

	if (r)
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	openblas_set_num_threads(1); /* the ranks share the cores */
	r = train_shared_init(&shared);
	if (r == 0)
		r = shared.config.n_sim_ranks ? simulate(&shared) : train_job_life(&job);
	train_shared_fini(&shared);
	return r < 0 ? 1 : 0;
}
