/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Meeting inside a simulation, in its virtual time. Happy path: rank and number of ranks
 * are the context's place; an allgather is spri_sim_allgather, which lets the other ranks
 * run. Failures: SPR_ELOST when a rank was killed that has not given its bytes,
 * SPR_ETIMEOUT when the deadline of virtual time passes.
 */
#include <bootstrap/bootstrap.h>
#include <context.h>
#include <sim.h>

static bool fits(const struct spr_context *context, const struct spr_comm_options *options)
{
	(void)options;
	return context->sim != NULL;
}

static int open_meeting(struct spri_meeting *meeting, struct spr_context *context,
			const struct spr_comm_options *options)
{
	(void)options;
	meeting->rank = context->sim_rank;
	meeting->n_ranks = spri_sim_ranks(context->sim);
	meeting->state = context->sim;
	return 0;
}

static int allgather(struct spri_meeting *meeting, const void *mine, void *all, size_t bytes)
{
	int r = spri_sim_allgather(meeting->state, meeting->rank, mine, all, bytes,
				   meeting->deadline_ns);

	if (r == 0)
		return 0;
	spri_text_set(&meeting->text, "rank %u of the simulation met the others in vain: %s",
		      meeting->rank, spr_strerror(r));
	return spri_trace(r);
}

static void close_meeting(struct spri_meeting *meeting)
{
	meeting->state = NULL;
}

const struct spri_bootstrap spri_bootstrap_sim = {
	"sim",	       "the simulation that the context lives in", fits, open_meeting, allgather,
	close_meeting,
};
