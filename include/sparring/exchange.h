/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The training step. An exchange object owns what one rank keeps between steps: the residual (error
 * feedback: what was not sent yet), the density schedule, the step count. One step is
 *
 *     A = gradient + residual                 accumulate
 *     V = the k largest |A|                   exact selection, k = max(floor(density · n), 1)
 *     residual = A without V                  written to a shadow copy
 *     sum = all-reduce of V                   algo
 *     residual += what was trimmed and fell to this rank
 *     update = sum · (1/P)                      with 1/P rounded to single
 *
 * and it is all or nothing: when it fails by its data or arguments, it does so on every rank and
 * every residual is as it was; when a rank is lost, each survivor's state is that before or after
 * the step. Source: Shi et al. 2019, with the adoption of trimmed partial sums that makes Σ
 * residual + sum = Σ (residual + gradient) exact up to rounding.
 */
#ifndef SPARRING_EXCHANGE_H
#define SPARRING_EXCHANGE_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From `step` on the density is `density`. */
struct spr_density_point {
	uint64_t step;
	double density; /* 0 < density ≤ 1 */
};

struct spr_exchange_options {
	size_t size;	  /* sizeof(struct spr_exchange_options) */
	uint64_t count;	  /* parameters, ≥ 1 */
	const char *algo; /* NULL: "gtopk"; "dense_ring" keeps no residual */
	double density;	  /* of every step, when schedule is NULL; 0: 0.001 */
	const struct spr_density_point *schedule; /* ascending by step, first at step 0; copied */
	size_t n_schedule;
	enum spr_nonfinite nonfinite;
};

/*
 * Makes an exchange; collective only in that every rank must pass the same options.
 * Ownership: *out is given: spr_exchange_destroy, before its communicator's. Memory: 8 bytes per
 * parameter, and lists of k entries. Blocks: no. Returns: 0; SPR_EARGUMENT, negative errno.
 */
SPR_API int spr_exchange_create(struct spr_comm *comm, const struct spr_exchange_options *options,
				struct spr_exchange **out);

/* Accepts NULL. A step that is still in flight is waited for first. */
SPR_API void spr_exchange_destroy(struct spr_exchange *exchange);

/*
 * Starts one step; collective. Selection runs before it returns; the messages then need progress.
 * gradient: count values, borrowed. update: count values, lent until the request is done, or NULL
 * when only spr_exchange_result is wanted; receives the averaged update (zeros included),
 * untouched when the step fails. (For dense_ring gradient too is lent, and update must not be
 * NULL.)
 * Ownership: *out_request is given; it must be waited for before the next step starts. Blocks: no.
 * Returns: 0 (outcomes come with the request); SPR_EARGUMENT, SPR_EBUSY (a step is in flight),
 * negative errno.
 */
SPR_API int spr_exchange_start(struct spr_exchange *exchange, const float *gradient, float *update,
			       struct spr_request **out_request);

/*
 * The undivided sum of the last finished step as a sparse vector, the same on every rank;
 * borrowed until the next start. Returns: 0; SPR_EUNSUPPORTED for dense_ring; SPR_EBUSY while a
 * step is in flight; SPR_EARGUMENT before the first step and after one that failed.
 */
SPR_API int spr_exchange_result(const struct spr_exchange *exchange, struct spr_sparse *sum);

/* The residual: count values, borrowed until the next start. NULL for dense_ring. */
SPR_API const float *spr_exchange_residual(const struct spr_exchange *exchange);

/* Sets the residual to zero and the step to 0. Returns: 0; SPR_EBUSY. */
SPR_API int spr_exchange_reset(struct spr_exchange *exchange);

/* Of the last finished step; times in nanoseconds. */
struct spr_exchange_stats {
	uint64_t step;	      /* steps committed so far */
	double density;	      /* asked for in the last step */
	uint64_t k;	      /* entries asked for */
	uint64_t selected;    /* entries this rank sent into the all-reduce */
	uint64_t received;    /* entries of the result */
	uint64_t adopted;     /* trimmed entries that this rank took back */
	uint64_t select_ns;   /* accumulate and select */
	uint64_t comm_ns;     /* from the end of selection to the end of the last round */
	uint64_t merge_ns;    /* of comm_ns, in merging and trimming */
	uint64_t commit_ns;   /* residual swap, adoption, scatter of the update */
	uint64_t wire_bytes;  /* sent by this rank, all of them */
	uint64_t value_bytes; /* of these, values alone */
	uint64_t repairs; /* steps so far whose carried threshold missed and needed another pass */
	/* non-finite values counted as zero in the last step (SPR_NONFINITE_DROP) */
	uint64_t dropped;
	/* Euclidean norm of the residual after the last step; computed by spr_exchange_stats */
	double residual_norm;
};

/* Reads the residual once, for its norm. Returns: 0; SPR_EBUSY while a step is in flight. */
SPR_API int spr_exchange_stats(struct spr_exchange *exchange, struct spr_exchange_stats *stats);

/*
 * Writes the state of this rank to a file (format: docs/wire.md, "Saved exchange"): beside it
 * first, then renamed over it, so that the file is whole or as before. Returns: 0; SPR_EBUSY,
 * negative errno.
 */
SPR_API int spr_exchange_save(const struct spr_exchange *exchange, const char *path);

/*
 * Restores what spr_exchange_save wrote, into an exchange made with the same options and rank.
 * Steps then go on bit for bit. Nothing changes on failure.
 * Returns: 0; SPR_EFORMAT (not such a file, cut, damaged, another version), SPR_EMISMATCH
 * (another count, algorithm, rank or number of ranks), SPR_EBUSY, negative errno;
 * spr_context_error names what was found and what was expected.
 */
SPR_API int spr_exchange_restore(struct spr_exchange *exchange, const char *path);

#ifdef __cplusplus
}
#endif
#endif
