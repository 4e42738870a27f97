/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Meeting through the caller's own allgather (MPI, a store, pipes). Happy path: rank and
 * number of ranks come from the options, each allgather is one call of the function.
 * Failures: a rank out of range is SPR_EARGUMENT; what the function returns below zero is
 * passed on unchanged, a positive result is SPR_EBOOTSTRAP. The deadline is the caller's
 * business: nothing here can end its function.
 */
#include <bootstrap/bootstrap.h>

static bool fits(const struct spr_context *context, const struct spr_comm_options *options)
{
	(void)context;
	return options && options->allgather;
}

static int open_meeting(struct spri_meeting *meeting, struct spr_context *context,
			const struct spr_comm_options *options)
{
	(void)context;
	if (options->n_ranks < 1 || options->n_ranks > SPR_MAX_RANKS) {
		spri_text_set(&meeting->text, "options.n_ranks is %d, must be 1 to %d",
			      options->n_ranks, SPR_MAX_RANKS);
		return spri_trace(SPR_EARGUMENT);
	}
	if (options->rank < 0 || options->rank >= options->n_ranks) {
		spri_text_set(&meeting->text, "options.rank is %d, must be 0 to %d (n_ranks - 1)",
			      options->rank, options->n_ranks - 1);
		return spri_trace(SPR_EARGUMENT);
	}
	meeting->rank = (uint32_t)options->rank;
	meeting->n_ranks = (uint32_t)options->n_ranks;
	/* Borrowed: a meeting lives inside spr_comm_create, which borrows the options. */
	meeting->state = (void *)(uintptr_t)options;
	return 0;
}

static int allgather(struct spri_meeting *meeting, const void *mine, void *all, size_t bytes)
{
	const struct spr_comm_options *options = meeting->state;
	int r = options->allgather(options->allgather_arg, mine, all, bytes);

	if (r == 0)
		return 0;
	spri_text_set(&meeting->text, "the caller's allgather of %zu bytes returned %d%s%s%s",
		      bytes, r, r < 0 ? " (" : "", r < 0 ? spr_strerror(r) : "",
		      r < 0 ? ")" : ", must be 0 or negative");
	return spri_trace(r < 0 ? r : SPR_EBOOTSTRAP);
}

static void close_meeting(struct spri_meeting *meeting)
{
	meeting->state = NULL;
}

const struct spri_bootstrap spri_bootstrap_callback = {
	"callback", "the caller's allgather function", fits, open_meeting, allgather, close_meeting,
};
