/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The end of a communicator: a rank that has finished does not take with it what its partners still
 * wait for, and does not wait for the dead. On virtual ranks.
 */
#include <check.h>
#include <internal/alloc.h>
#include <internal/clock.h>
#include <sparring/sparring.h>
#include <string.h>

#define LATE_NS (5 * SPRI_NS_PER_S) /* rank 0's bytes are so long on their way to rank 1 */
#define TIMEOUT_NS (20 * SPRI_NS_PER_S)
#define KILLED_NS (2 * SPRI_NS_PER_S)

enum { BYTES = 1000 };

/* What the ranks found. */
struct outcome {
	int status[2];		  /* of the allgather */
	char text[2][256];	  /* why it failed */
	uint64_t destroyed_ns[2]; /* when destroy returned */
};

static int body(struct spr_sim *sim, int rank, void *arg)
{
	struct spr_context_options options = {
		.size = sizeof options, .sim = sim, .sim_rank = rank, .timeout_ns = TIMEOUT_NS};
	struct outcome *outcome = arg;
	struct spr_context *context;
	struct spr_comm *comm;
	uint8_t mine[BYTES], all[2 * BYTES];
	int r = spr_context_open(&options, &context);

	if (r < 0)
		return r;
	r = spr_comm_create(context, NULL, &comm);
	if (r == 0) {
		spr_sim_delay(sim, 0, 1, LATE_NS);
		memset(mine, rank + 1, sizeof mine);
		outcome->status[rank] = spr_comm_allgather(comm, mine, all, sizeof mine);
		snprintf(outcome->text[rank], sizeof outcome->text[rank], "%s",
			 spr_comm_error(comm));
		if (outcome->status[rank] == 0 && all[0] + all[2 * BYTES - 1] != 3)
			r = -1;
		spr_comm_destroy(comm);
		outcome->destroyed_ns[rank] = spr_sim_now_ns(sim);
	}
	spr_context_close(context);
	return r;
}

static struct outcome run(uint64_t killed_ns)
{
	struct spr_sim_options options = {
		.size = sizeof options, .n_ranks = 2, .latency_ns = 1000, .bytes_per_s = 1e9};
	struct outcome outcome = {{0}, {""}, {0}};
	struct spr_sim *sim;
	int statuses[2];

	cr_assert_eq(spr_sim_create(&options, &sim), 0);
	if (killed_ns)
		spr_sim_kill_at(sim, 1, killed_ns);
	cr_assert_eq(spr_sim_run(sim, body, &outcome, statuses), 0);
	cr_assert_eq(statuses[0], 0);
	cr_assert_eq(statuses[1], killed_ns ? SPR_ELOST : 0);
	spr_sim_destroy(sim);
	return outcome;
}

Test(comm, destroy_waits_for_what_was_sent)
{
	struct outcome outcome = run(0);

	cr_assert_eq(outcome.status[0], 0, "rank 0: %s", outcome.text[0]);
	cr_assert_eq(outcome.status[1], 0, "rank 1: %s", outcome.text[1]);
}

/* Virtual time: it does not depend on the machine. */
Test(comm, destroy_does_not_wait_for_the_dead)
{
	struct outcome outcome = run(KILLED_NS);

	cr_assert_eq(outcome.status[0], 0, "rank 0: %s", outcome.text[0]);
	cr_assert_gt(outcome.destroyed_ns[0], 0, "destroy should return");
	cr_assert_leq(outcome.destroyed_ns[0], KILLED_NS + SPRI_NS_PER_S, "when rank 1 is dead");
}
