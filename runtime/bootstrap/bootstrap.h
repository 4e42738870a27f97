/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * How ranks meet before they are connected: one file, one row each (bootstrap.c), first that fits
 * is taken. A row opens a meeting: rank, number of ranks, and a blocking allgather with a
 * deadline.
 */
#ifndef SPRI_BOOTSTRAP_H
#define SPRI_BOOTSTRAP_H

#include <internal/compiler.h>
#include <internal/error.h>
#include <sparring/comm.h>

struct spri_meeting {
	const struct spri_bootstrap *ops;
	uint32_t rank, n_ranks;
	uint64_t deadline_ns;  /* of the whole meeting; real time except in a simulation */
	void *state;	       /* the row's own */
	struct spri_text text; /* why it failed */
};

struct spri_bootstrap {
	const char *name;
	const char *about;
	/* Does this way apply? options may be NULL. */
	bool (*fits)(const struct spr_context *context, const struct spr_comm_options *options);
	/*
	 * Sets rank, n_ranks, state. May block until the deadline. Returns 0; SPR_EARGUMENT,
	 * SPR_EENVIRONMENT, SPR_EBOOTSTRAP, SPR_ETIMEOUT, negative errno.
	 */
	int (*open)(struct spri_meeting *meeting, struct spr_context *context,
		    const struct spr_comm_options *options);
	/* As spr_allgather_fn, every rank the same bytes. Blocks until the deadline at most. */
	int (*allgather)(struct spri_meeting *meeting, const void *mine, void *all, size_t bytes);
	/* Frees state. */
	void (*close)(struct spri_meeting *meeting);
};

/*
 * Rows: callback (options->allgather), sim (context->sim), env (SPR_RANK …), alone (one rank).
 * NULL past the last.
 */
extern const struct spri_bootstrap spri_bootstrap_callback, spri_bootstrap_sim, spri_bootstrap_env,
	spri_bootstrap_alone;
const struct spri_bootstrap *spri_bootstrap_row(unsigned i);

#endif
