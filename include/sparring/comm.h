/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Communicators: who takes part. Collective calls on one communicator must be started in the same
 * order on every rank; several may be in flight.
 */
#ifndef SPARRING_COMM_H
#define SPARRING_COMM_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The caller's own way to meet: every rank calls with `bytes` bytes at `mine`; on return `all`
 * holds size × bytes, in rank order. Blocks until then; sparring calls it two or three times per
 * spr_comm_create, never later. Returns 0, or negative, which spr_comm_create passes on.
 */
typedef int (*spr_allgather_fn)(void *arg, const void *mine, void *all, size_t bytes);

struct spr_comm_options {
	size_t size; /* sizeof(struct spr_comm_options) */
	int rank;    /* with allgather: this rank, 0 … n_ranks − 1 */
	int n_ranks; /* with allgather: how many there are */
	spr_allgather_fn
		allgather;   /* NULL: meet by SPR_RANK, SPR_SIZE, SPR_ROOT (host:port of rank 0) */
	void *allgather_arg; /* handed to allgather */
};

/*
 * Makes a communicator; collective. `options` may be NULL: the environment, or the simulation of
 * the context, says who takes part; with neither, it is a communicator of one rank. Connects to
 * every partner that an algorithm needs and tells it where this rank's landing memory is.
 * Ownership: *out is given: spr_comm_destroy. Blocks: until all ranks are here, at most the
 * timeout.
 * Returns: 0; SPR_EARGUMENT, SPR_EENVIRONMENT, SPR_EBOOTSTRAP, SPR_EVERSION, SPR_EMISMATCH,
 * SPR_ETIMEOUT, SPR_ELOST, negative errno. On failure every rank fails; spr_context_error has the
 * text.
 */
SPR_API int spr_comm_create(struct spr_context *context, const struct spr_comm_options *options,
			    struct spr_comm **out);

/*
 * Ends a communicator; its requests must have been destroyed. Not collective. Accepts NULL.
 * Blocks: until partners have what was sent to them, at most the timeout; a second when the
 * communicator is broken. A process that exits without it may take with it what partners still
 * wait for.
 */
SPR_API void spr_comm_destroy(struct spr_comm *comm);

SPR_API int spr_comm_rank(const struct spr_comm *comm);
SPR_API int spr_comm_size(const struct spr_comm *comm);

/* The text of the failure that broke the communicator, "" while it is whole. */
SPR_API const char *spr_comm_error(const struct spr_comm *comm);

/* The rank whose loss broke the communicator, or −1. */
SPR_API int spr_comm_lost_rank(const struct spr_comm *comm);

/*
 * Every rank's `bytes` bytes at `mine` to every rank, in rank order at `all` (size × bytes);
 * collective. For small control data (at most 64 KiB per rank); it orders like a barrier.
 * Blocks: until done, at most the timeout. Returns: as spr_request_wait.
 */
SPR_API int spr_comm_allgather(struct spr_comm *comm, const void *mine, void *all, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
