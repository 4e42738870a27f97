/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The simulator: many ranks in one thread of one process, in virtual time, over links with a
 * latency and a bandwidth. The library's real code runs; only bytes and time are simulated
 * (computing takes no virtual time). A run is repeatable from its seed.
 *
 * Each rank is a function on a stack of its own; when it would wait, another rank runs. Inside
 * it, open a context with .sim and .sim_rank set and use the library as in a process of its own.
 */
#ifndef SPARRING_SIM_H
#define SPARRING_SIM_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct spr_sim_options {
	size_t size;	     /* sizeof(struct spr_sim_options) */
	int n_ranks;	     /* 1 … 4096 */
	uint64_t latency_ns; /* α: of every message */
	double bytes_per_s;  /* 1/β: of every rank, each way; 0: infinite */
	/*
	 * up to this much more latency per message, drawn from the seed; order per link
	 * is kept
	 */
	uint64_t jitter_ns;
	uint64_t seed;	    /* of the jitter and of the order in which ranks run */
	size_t stack_bytes; /* per rank; 0: 256 KiB */
};

/* Ownership: *out is given: spr_sim_destroy. Returns: 0; SPR_EARGUMENT, negative errno. */
SPR_API int spr_sim_create(const struct spr_sim_options *options, struct spr_sim **out);
SPR_API void spr_sim_destroy(struct spr_sim *sim);

/* What a rank does. Its result is that rank's status. */
typedef int (*spr_sim_fn)(struct spr_sim *sim, int rank, void *arg);

/*
 * Runs body on every rank until all have returned or were killed. statuses (n_ranks, may be NULL)
 * receives the results; a killed rank's is SPR_ELOST. Blocks: until then; waits inside end at
 * their deadlines of virtual time.
 * Returns: 0; negative errno when it could not start.
 */
SPR_API int spr_sim_run(struct spr_sim *sim, spr_sim_fn body, void *arg, int *statuses);

/* Virtual time in nanoseconds. */
SPR_API uint64_t spr_sim_now_ns(const struct spr_sim *sim);

/*
 * Kills a rank, now or at a virtual time: it never runs again, its peers notice. Callable
 * before and during a run.
 */
SPR_API void spr_sim_kill(struct spr_sim *sim, int rank);
SPR_API void spr_sim_kill_at(struct spr_sim *sim, int rank, uint64_t at_ns);

/* Ranks outside 0 … n_ranks − 1 are ignored. Adds latency to one link, from one rank to another. */
SPR_API void spr_sim_delay(struct spr_sim *sim, int from, int to, uint64_t extra_ns);

#ifdef __cplusplus
}
#endif
#endif
