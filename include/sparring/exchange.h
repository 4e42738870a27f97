/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The training step. An exchange object owns what one rank keeps between steps: the residual (error
 * feedback: what was not sent yet), momentum, thresholds, the density schedule, the step count. One
 * step is
 *
 *     G = gradient · min(1, clip / (√P · ‖gradient‖))  local clipping, when asked for
 *     U = momentum · U + G                    momentum correction, when asked for; else U = G
 *     A = U + residual                        accumulate
 *     V = entries of A                        selection, by the algorithm; see below
 *     residual = A without V, U = U without V written to shadow copies
 *     sum = all-reduce of V                   algo
 *     residual += what was trimmed or rounded off and fell to this rank
 *     update = sum · (1/P)                    with 1/P rounded to single
 *     update += weight_decay · weights        when asked for: outside the compressed path
 *
 * and it is all or nothing: when it fails by its data or arguments, it does so on every rank and
 * every residual is as it was; when a rank is lost, each survivor's state is that before or after
 * the step.
 *
 * Selection. gtopk, gtopk_tree, topk_allgather, prune_ring: the k largest |A|, k =
 * max(floor(density · n), 1), exact, of the whole model or of each layer. iwp_ring: per layer, on r
 * ranks drawn for the step, by importance I = |A| / max(|w|, floor · rms(w)): all of I above the
 * layer's threshold, others with probability I / threshold; what any of the r ranks chose is summed
 * exactly. Layers marked SPR_LAYER_DENSE, and dense_ring, send everything; momentum is then applied
 * after the sum.
 *
 * Sources: Shi et al. 2019 (gTop-k), with the adoption of trimmed partial sums that makes Σ
 * residual + sum = Σ (residual + gradient) exact up to rounding; Lin et al. 2018 (momentum
 * correction, factor masking, clipping at threshold/√P, warm-up); Cheng & Xu 2019 (importance).
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

/* A layer: elements [offset, offset + count) of the gradient. */
struct spr_layer {
	uint64_t offset, count;
	unsigned flags; /* SPR_LAYER_* */
};

enum {
	SPR_LAYER_DENSE = 1 /* sent whole by dense_ring (biases, norms), whatever the algorithm */
};

/* Whether work on one part overlaps the transmission of another. Same results. */
enum spr_pipeline {
	SPR_PIPELINE_AUTO = 0, /* on */
	SPR_PIPELINE_ON = 1,   /* entries are sent while the next are selected */
	SPR_PIPELINE_OFF = 2   /* everything is selected first */
};

/* What becomes of contributions that the tournament trimmed. */
enum spr_trimmed {
	SPR_TRIMMED_ADOPT = 0, /* exactly one rank adds each to its residual: nothing is lost */
	/*
	 * As published by Shi et al.: a rank puts back what it sent when the index is not in the
	 * result, and a contribution trimmed on the way is lost when it is. For comparisons.
	 */
	SPR_TRIMMED_PUBLISHED = 1
};

struct spr_exchange_options {
	size_t size;	  /* sizeof(struct spr_exchange_options) */
	uint64_t count;	  /* parameters, ≥ 1 */
	const char *algo; /* NULL: "gtopk"; "dense_ring" keeps no residual */
	double density;	  /* of every step, when schedule is NULL; 0: 0.001 */
	const struct spr_density_point *schedule; /* ascending by step, first at step 0; copied */
	size_t n_schedule;
	enum spr_nonfinite nonfinite;
	/* NULL: one layer. Ascending, without gaps, counts ≥ 1, together `count`; copied. */
	const struct spr_layer *layers;
	size_t n_layers;
	int per_layer;	     /* 1: k of each layer; 0: k of all (iwp_ring: always per layer) */
	double momentum;     /* 0 ≤ momentum < 1; then the trainer must not apply its own */
	double clip;	     /* 0: none; of the whole model, or of each layer by itself */
	double weight_decay; /* ≥ 0; needs weights */
	enum spr_dtype wire; /* of values of sparse and masked algorithms */
	enum spr_codec codec;
	enum spr_pipeline pipeline;
	enum spr_trimmed trimmed;
	int broadcasters;	 /* iwp_ring: ranks that draw a mask, 1 to P; 0: 1 */
	uint64_t seed;		 /* iwp_ring: of the draws */
	double importance_floor; /* iwp_ring: c of the lowest denominator c · rms(w); 0: 0.1 */
	/*
	 * Of gradient, update and weights, and of the residual. SPR_MEMORY_CUDA: selection runs on
	 * that GPU. What the caller's `stream` (a CUstream or cudaStream_t; NULL: the
	 * default stream) was given before a call is waited for, and what it is given after
	 * the request is done finds the update. Results have the bits of host memory's. Calls that
	 * select then block until the stream has come so far and selection is done, at most for
	 * the timeout (SPR_ETIMEOUT, on every rank).
	 */
	enum spr_memory_kind memory;
	int device;   /* SPR_GPU(number); 0: this rank's, docs/affinity.md */
	void *stream; /* lent until the exchange is destroyed */
};

/*
 * Makes an exchange; collective only in that every rank must pass the same options.
 * Ownership: *out is given: spr_exchange_destroy, before its communicator's. Memory: 8 bytes per
 * parameter (16 with momentum), lists of k entries, and 4 more where layers are dense; for iwp_ring
 * the lists have room for the whole model, of which only what masks fill is ever touched. Blocks:
 * no. Returns: 0; SPR_EARGUMENT, SPR_EUNSUPPORTED (no such GPU), SPR_EDEVICE, negative errno.
 */
SPR_API int spr_exchange_create(struct spr_comm *comm, const struct spr_exchange_options *options,
				struct spr_exchange **out);

/* Accepts NULL. A step that is still in flight is waited for first. */
SPR_API void spr_exchange_destroy(struct spr_exchange *exchange);

/*
 * The weights that the gradients belong to: count values, the same on all ranks; lent until the
 * exchange is destroyed or other ones are set. Needed by iwp_ring and weight_decay. They are read
 * during a step, from its begin to the end of its request. Returns: 0; SPR_EARGUMENT, SPR_EBUSY.
 */
SPR_API int spr_exchange_set_weights(struct spr_exchange *exchange, const float *weights);

/*
 * Starts one step; collective: begins it and hands over all layers, the last one first. Selection
 * runs before it returns; the messages then need progress.
 * gradient: count values, borrowed. update: count values, lent until the request is done, or NULL
 * when only spr_exchange_result is wanted; receives the averaged update (zeros included),
 * untouched when the step fails on all ranks. (With dense_ring or dense layers gradient too is
 * lent, and update must not be NULL.)
 * Ownership: *out_request is given; it must be waited for before the next step starts. Blocks: no
 * (GPU: above).
 * Returns: 0 (outcomes come with the request); SPR_EARGUMENT, SPR_EBUSY (a step is in flight),
 * negative errno.
 */
SPR_API int spr_exchange_start(struct spr_exchange *exchange, const float *gradient, float *update,
			       struct spr_request **out_request);

/*
 * Begins a step whose layers are handed over one at a time by spr_exchange_ready, as
 * backpropagation finishes them. gradient and update as above, but gradient is lent until the
 * request is done. spr_request_wait answers SPR_EBUSY while layers are missing; destroying the
 * request then fails the step on every rank, provided that the others hand over what is missing
 * the last layer first. Returns: as spr_exchange_start.
 */
SPR_API int spr_exchange_begin(struct spr_exchange *exchange, const float *gradient, float *update,
			       struct spr_request **out_request);

/*
 * Hands over the gradient of a layer of the table (0 is the first), each once per step, in the same
 * order on all ranks. With per_layer and iwp_ring it is selected from and sent at once, while the
 * next layer is computed; with whole-model selection this happens when the last layer is ready.
 * Makes progress meanwhile. Blocks: no (GPU: until it is selected from).
 * Returns: 0 (outcomes come with the request); SPR_EARGUMENT (no such layer, handed over before,
 * no step begun), SPR_EBUSY, negative errno.
 */
SPR_API int spr_exchange_ready(struct spr_exchange *exchange, size_t layer);

/*
 * The undivided sum of the last finished step as a sparse vector, the same on every rank, without
 * the dense layers (iwp_ring: zeros of the mask included); borrowed until the next start. Returns:
 * 0; SPR_EUNSUPPORTED for dense_ring; SPR_EBUSY while a step is in flight; SPR_EARGUMENT before the
 * first step and after one that failed.
 */
SPR_API int spr_exchange_result(const struct spr_exchange *exchange, struct spr_sparse *sum);

/*
 * The residual: count values, where options.memory says, borrowed until the next start. NULL for
 * dense_ring.
 */
SPR_API const float *spr_exchange_residual(const struct spr_exchange *exchange);

/*
 * Sets residual, momentum and thresholds to zero and the step to 0. Returns: 0; SPR_EBUSY;
 * SPR_EDEVICE: the vectors may have been cleared.
 */
SPR_API int spr_exchange_reset(struct spr_exchange *exchange);

/* Of the last finished step; times in nanoseconds. */
struct spr_exchange_stats {
	uint64_t step;	/* steps committed so far */
	double density; /* asked for in the last step */
	uint64_t k;	/* entries asked for */
	/* entries this rank sent into the all-reduce; iwp_ring: that the masks have */
	uint64_t selected;
	uint64_t received;    /* entries of the result */
	uint64_t adopted;     /* trimmed entries that this rank took back */
	uint64_t select_ns;   /* accumulate and select */
	uint64_t comm_ns;     /* from the end of selection to the end of the last round */
	uint64_t merge_ns;    /* of comm_ns, in merging and trimming */
	uint64_t commit_ns;   /* residual swap, adoption, scatter of the update */
	uint64_t wire_bytes;  /* sent by this rank, all of them */
	uint64_t value_bytes; /* of these, values alone */
	/* of wire_bytes, read by a NIC from a GPU's memory (docs/gpu.md); the rest was staged */
	uint64_t direct_bytes;
	uint64_t repairs; /* steps so far whose carried threshold missed and needed another pass */
	/* non-finite values counted as zero in the last step (SPR_NONFINITE_DROP) */
	uint64_t dropped;
	/* Euclidean norm of the residual after the last step; computed by spr_exchange_stats */
	double residual_norm;
	/*
	 * residual_norm over what the same number of entries drawn at random would have left, of
	 * this rank's A: below 1, and the smaller the better; 0 for dense algorithms
	 */
	double error_ratio;
	uint64_t excess; /* entries sent ahead of the cut that lay below it (pipelining) */
};

/*
 * Reads the residual once, for its norm. Returns: 0; SPR_EBUSY while a step is in flight;
 * SPR_EDEVICE: the norm is not known.
 */
SPR_API int spr_exchange_stats(struct spr_exchange *exchange, struct spr_exchange_stats *stats);

/* Of one layer of the table, in the last step that was committed; the same on all ranks. */
struct spr_layer_stats {
	uint64_t count;	   /* elements */
	uint64_t received; /* of these, in the result; dense layers: all */
	double density;	   /* received / count */
	/* what entries were held against for the next step: |A|, or importance; 0: nothing yet */
	double threshold;
};

/*
 * Returns: 0; SPR_EARGUMENT (no such layer, no step committed since the exchange was made, reset or
 * restored, or the last one failed), SPR_EBUSY.
 */
SPR_API int spr_exchange_layer_stats(const struct spr_exchange *exchange, size_t layer,
				     struct spr_layer_stats *stats);

/*
 * Writes the state of this rank to a file (format: docs/wire.md, "Saved exchange"): beside it
 * first, then renamed over it, so that the file is whole or as before. Returns: 0; SPR_EBUSY,
 * SPR_EDEVICE, negative errno.
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
