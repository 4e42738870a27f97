/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_comm_allgather on virtual ranks: every byte in its place, for any number of ranks and bytes.
 */
#include <check.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <sparring/sparring.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 65536 };

/* Byte i of a rank. */
static uint8_t byte_of(int rank, size_t bytes, size_t i)
{
	return (uint8_t)spri_mix64((uint64_t)rank * 1000003 + bytes * 7 + i);
}

struct run {
	int n_ranks;
	size_t landing;
	const size_t *sizes; /* of the calls, one after the other */
	unsigned n_sizes;
	int odd;	  /* −1, or the rank that misbehaves in the second call */
	bool no_memory;	  /* by having none, else by another size */
	int statuses[64]; /* of the second call */
	unsigned told;	  /* bits: a line names the odd rank; a line of its own has its size */
};

/* Lines about a mismatch: the odd rank's partners name it, it says what it called with. */
static void on_log(void *arg, enum spr_log_level level, const char *text)
{
	struct run *run = arg;
	char theirs[64], own[64];

	(void)level;
	if (run->odd < 0 || run->no_memory)
		return;
	snprintf(theirs, sizeof theirs, ": rank %d called with other arguments", run->odd);
	snprintf(own, sizeof own, "here: count %zu,", run->sizes[1] + 1);
	if (strstr(text, theirs))
		run->told |= 1;
	if (strstr(text, own))
		run->told |= 2;
}

/*
 * Returns 0, or 1 when a byte is wrong. In place when the rank is odd: its own bytes stand in
 * `all`.
 */
static int one_call(struct spr_comm *comm, int rank, int n_ranks, size_t bytes, bool starve,
		    int *status)
{
	uint8_t *all = malloc((size_t)n_ranks * bytes + 1), *mine = malloc(bytes + 1);
	uint8_t *from = rank % 2 ? all + (size_t)rank * bytes : mine;
	int wrong = 0;

	for (size_t i = 0; i < bytes; i++)
		from[i] = byte_of(rank, bytes, i);
	all[(size_t)n_ranks * bytes] = 0xa5;
	if (starve)
		spri_heap_fail_after(0);
	*status = spr_comm_allgather(comm, from, all, bytes);
	spri_heap_fail_after(-1);
	for (int r = 0; *status == 0 && r < n_ranks; r++)
		for (size_t i = 0; i < bytes; i++)
			wrong |= all[(size_t)r * bytes + i] != byte_of(r, bytes, i);
	wrong |= all[(size_t)n_ranks * bytes] != 0xa5;
	free(all);
	free(mine);
	return wrong;
}

static int body(struct spr_sim *sim, int rank, void *arg)
{
	struct run *run = arg;
	struct spr_context_options options = {.size = sizeof options,
					      .sim = sim,
					      .sim_rank = rank,
					      .landing_bytes = run->landing,
					      .log = on_log,
					      .log_arg = run};
	struct spr_context *context;
	struct spr_comm *comm = NULL;
	int r = spr_context_open(&options, &context), wrong = 0;

	if (r < 0)
		return r;
	r = spr_comm_create(context, NULL, &comm);
	for (unsigned i = 0; r == 0 && i < run->n_sizes; i++) {
		bool odd = i == 1 && rank == run->odd;
		size_t bytes = run->sizes[i] + (odd && !run->no_memory);
		int status;

		wrong |= one_call(comm, rank, run->n_ranks, bytes, odd && run->no_memory, &status);
		if (i == 1 && rank < 64)
			run->statuses[rank] = status;
		else
			r = status;
	}
	spr_comm_destroy(comm);
	spr_context_close(context);
	return r < 0 ? r : wrong;
}

static void run_all(struct run *run)
{
	struct spr_sim_options options = {.size = sizeof options,
					  .n_ranks = run->n_ranks,
					  .latency_ns = 1000,
					  .jitter_ns = 3000,
					  .seed = 5};
	int statuses[128];
	struct spr_sim *sim;

	cr_assert_eq(spr_sim_create(&options, &sim), 0, "the simulation is made");
	cr_assert_eq(spr_sim_run(sim, body, run, statuses), 0, "the simulation runs");
	spr_sim_destroy(sim);
	for (int r = 0; r < run->n_ranks; r++)
		cr_assert_eq(statuses[r], 0,
			     "P = %d, rank %d: expected every byte right, got %d (%s)",
			     run->n_ranks, r, statuses[r], spr_error_name(statuses[r]));
}

static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 96};

Test(allgather, every_byte_is_in_its_place)
{
	static const size_t sizes[] = {1, 0, 8, 3, 959, 960, 961, 5000};

	for (unsigned p = 0; p < sizeof ranks / sizeof ranks[0]; p++) {
		struct run run = {.n_ranks = ranks[p],
				  .sizes = sizes,
				  .n_sizes = 8,
				  .odd = -1,
				  .landing = 1 << 20};

		run_all(&run);
	}
}

Test(allgather, largest_size)
{
	static const size_t sizes[] = {MOST, MOST - 1};

	for (int p = 1; p <= 9; p += 2) {
		struct run run = {
			.n_ranks = p, .sizes = sizes, .n_sizes = 2, .odd = -1, .landing = 1 << 17};

		run_all(&run);
	}
}

Test(allgather, failures_are_shared_and_the_next_call_works)
{
	static const size_t sizes[] = {10, 2000, 30};

	for (int p = 2; p <= 17; p++)
		for (int odd = 0; odd < p; odd++)
			for (int why = 0; why < 2; why++) {
				struct run run = {.n_ranks = p,
						  .sizes = sizes,
						  .n_sizes = 3,
						  .odd = odd,
						  .no_memory = why,
						  .landing = 1 << 18};

				run_all(&run);
				cr_assert_eq(run.told, why ? 0 : 3,
					     "P = %d: the log should name rank %d and its size", p,
					     odd);
				for (int r = 0; r < p; r++)
					cr_assert(why ? run.statuses[r] == -ENOMEM
						      : run.statuses[r] == SPR_EMISMATCH,
						  "P = %d, rank %d: expected rank %d's failure, "
						  "got %s",
						  p, r, odd, spr_error_name(run.statuses[r]));
			}
}
