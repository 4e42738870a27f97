/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The exchange behind include/sparring/exchange.h. Private to exchange/.
 *
 * The vector is cut into *parts* (parts.c); a part is one operation per step. All parts of a step
 * are committed together, when the last one is done, or none is.
 *
 * States; the context's lock guards the transitions, and everything but what the state lends out:
 *
 *   IDLE ──begin──► OPEN ──ready──► SELECTING ──► OPEN            parts are still missing
 *                    ▲                  │ └─────► IN_FLIGHT       the last one was launched
 *                    └──────────────────┘
 *   OPEN ──abandon, or launch of what was selected before──► IN_FLIGHT
 *   IN_FLIGHT, or SELECTING when the last part was done at once ──last part done──► IDLE
 *   IDLE ──save, restore, stats──► READING ──► IDLE
 *
 * SELECTING and READING work on the vectors without the lock, so that a progress thread
 * goes on meanwhile.
 */
#ifndef SPRI_EXCHANGE_H
#define SPRI_EXCHANGE_H

#include <coll/coll.h>
#include <kernel.h>
#include <sparring/exchange.h>

enum exchange_state {
	EXCHANGE_IDLE,
	EXCHANGE_OPEN,
	EXCHANGE_SELECTING,
	EXCHANGE_IN_FLIGHT,
	EXCHANGE_READING
};

/* What a rank that proposes says about a layer with its mask; the same octets on the wire. */
#define EXCHANGE_NOTE_BYTES 24u
struct exchange_note {
	double mean, variance; /* of I */
	double threshold;      /* that it used */
};

/*
 * The threshold of a part by importance: factor · ratio, where ratio follows variance / mean of I,
 * and factor follows the density of the masks' union. The same on all ranks.
 */
struct exchange_steering {
	double ratio;  /* 0: nothing is known yet */
	double factor; /* valid when ratio is not 0 */
	double rms;    /* of the weights in the step before; 0: not known */
};

/* What a step under way would change in a part; taken over when it ends well. */
struct part_step {
	uint64_t k;	    /* entries asked for */
	int failed;	    /* 0, or what selection found: launched in failed mode */
	uint64_t bad_index; /* where */
	uint32_t threshold; /* for the next step */
	uint32_t ahead_key; /* sparse: least key of what goes ahead of the cut; 0: nothing does */
	uint32_t cut_key;   /* sparse: what selection made of them */
	uint64_t cut_index;
	bool repaired;
	uint64_t dropped;
	double sent_squares; /* Euclidean norm of the selected entries, squared */
	double rms;	     /* of the weights, for the next step */
	uint64_t select_ns;
	uint64_t piece_ns; /* for the trace: when the piece of selection under way began */
};

struct exchange_part {
	uint64_t offset, count;
	const struct spri_algo *algo;
	uint32_t threshold; /* carried to the next selection; 0: none */
	/*
	 * Where the cut is expected, for streams: its key in the last step (0: not known) and how
	 * it rose of late. Candidates below are not worth sending ahead; the threshold is lower, so
	 * that selection need not repair. Not saved: no result hangs on it.
	 */
	uint32_t last_cut;
	int64_t rise;
	struct exchange_steering steering; /* masked */
	/* device: a list for NICs, owned, and what registered it; mostly none */
	struct spri_near near;
	struct spri_registration *near_registration;
	struct spri_list there;	   /* device: the arrays of `selected` as the device sees them */
	struct spri_list selected; /* scratch, lent to the operation; owned. masked: no values */
	struct spri_stream stream; /* its lists are owned; lent to the operation */
	uint8_t note[EXCHANGE_NOTE_BYTES]; /* lent to the operation */
	uint8_t *notes;			   /* masked: of all broadcasters; owned, lent */
	/* owned; of this step, and of the last one until it is reaped: then its algo is NULL */
	struct spri_op *op;
	struct part_step now;
};

struct exchange_place;
struct exchange_device;
struct spri_registration;

struct spr_exchange {
	struct spr_comm *comm; /* outlives it */
	const struct spri_algo *algo;
	const struct exchange_place *place;
	struct exchange_device *device; /* owned; NULL: vectors are in host memory */
	uint64_t n;			/* parameters */
	enum spr_nonfinite policy;
	struct spr_density_point *schedule; /* n_schedule, owned */
	size_t n_schedule;
	double momentum, clip, weight_decay;
	enum spr_dtype wire;
	enum spr_codec codec;
	bool pipeline;
	bool published; /* SPR_TRIMMED_PUBLISHED */
	uint32_t n_broadcasters;
	int *drawn; /* masked: n_broadcasters, owned: those of this step */
	uint64_t seed;
	double importance_floor;
	const float *weights; /* lent by the caller; NULL: none */

	struct spr_layer *layers; /* n_layers, owned */
	size_t n_layers;
	struct exchange_part *parts; /* n_parts, ascending by offset; owned */
	size_t n_parts;
	/* the first part selects from the whole model, when all layers are ready */
	bool whole_model;
	bool dense_copied; /* dense parts are sent from dense_sum, not from the gradient */

	enum exchange_state state;
	float *residual, *shadow;	   /* n each, of the place; NULL for dense algorithms */
	float *velocity, *velocity_shadow; /* n each, of the place; NULL without momentum */
	float *corrected;     /* n, of the place: gradient without dense layers; mostly NULL */
	float *dense_sum;     /* n, owned pages; NULL when no part is dense */
	struct spri_list sum; /* of the last step that was committed; owned */
	bool has_sum;	      /* sum may be shown */
	bool has_committed;   /* the last step of this object was */
	uint64_t step;	      /* steps committed */

	/* the step under way */
	struct spri_op *request; /* the caller's; NULL once it is destroyed */
	const float *gradient;	 /* the caller's */
	float *update;		 /* the caller's; NULL: not wanted */
	bool *handed;		 /* n_layers, owned: handed over */
	size_t n_ready;		 /* so many */
	size_t *order;		 /* n_parts, owned: parts in the order in which they became ready */
	size_t n_ordered;
	size_t n_launched, n_done;
	int status; /* what begin found: every part is launched in failed mode */
	double density;
	bool proposes; /* masked: this rank is one of the drawn */
	/* of the last step: Euclidean norm of what left the residual, squared */
	double sent_squares;
	uint64_t launched_ns;		 /* the last part was launched */
	struct spr_exchange_stats stats; /* of the last finished step */
};

/* ---- parts.c ---- */

/* Copies and checks the layer table, makes the parts. Returns 0; SPR_EARGUMENT, -ENOMEM. */
int spri_parts_init(struct spr_exchange *exchange, const struct spr_exchange_options *options,
		    struct spri_text *text) SPRI_MUST;
void spri_parts_fini(struct spr_exchange *exchange);
/* The part of a layer that has one of its own; n_parts: none, it is in the first. */
size_t spri_part_of_layer(const struct spr_exchange *exchange, size_t layer);
/*
 * The parts that become ready when `layer` is handed over as the last of n_ready: their numbers
 * (two at most) to parts, in the order in which they are launched. Returns how many.
 */
size_t spri_parts_of_layer(const struct spr_exchange *exchange, size_t layer, size_t *parts);

/* ---- density.c ---- */

/* Copies and checks options' density or schedule. Returns 0; SPR_EARGUMENT with a text, -ENOMEM. */
int spri_density_init(struct spr_exchange *exchange, const struct spr_exchange_options *options,
		      struct spri_text *text) SPRI_MUST;
/* The density of a step. */
double spri_density_at(const struct spr_exchange *exchange, uint64_t step);
/* max(floor(density · n), 1), at most n. */
uint64_t spri_density_k(double density, uint64_t n);

/* ---- residual.c ---- */

/* Allocates the vectors. Returns 0 or -ENOMEM; fini accepts both. */
int spri_residual_init(struct spr_exchange *exchange) SPRI_MUST;
void spri_residual_fini(struct spr_exchange *exchange);
/*
 * Makes the lists of all parts fit for a step with their now.k. Nothing is in flight. Returns 0 or
 * -ENOMEM.
 */
int spri_residual_reserve(struct spr_exchange *exchange) SPRI_MUST;
/*
 * The step's vectors are where the options say, and there are weights where they are needed; told
 * to the log. Returns 0 or SPR_EARGUMENT. Lock held.
 */
int spri_residual_check(const struct spr_exchange *exchange) SPRI_MUST;
/* place->select, after what has to be checked of the step's arguments. */
int spri_residual_select(struct spr_exchange *exchange, struct exchange_part *part,
			 uint64_t *index) SPRI_MUST;
/*
 * The step ended well: the shadows become the state, adoptions are added, the update is written.
 * Returns 0, or SPR_EDEVICE: the state is that of after the step, the update is not to be trusted.
 */
int spri_residual_commit(struct spr_exchange *exchange) SPRI_MUST;
/* What a kernel found, as a status; *index is where. */
int spri_residual_finite(const struct spr_exchange *exchange, uint64_t bad_index, uint64_t *index);
/* Whole-model selection beside dense layers: they are left out of what is selected from. */
bool spri_residual_leaves_out(const struct spr_exchange *exchange,
			      const struct exchange_part *part);
/* The bound of a clipped norm, as a factor; 1: not clipped. */
float spri_residual_clip(const struct spr_exchange *exchange, double norm);
/* A list of owned memory: room for n entries, as place->fit. */
int spri_list_fit(struct spri_list *list, uint64_t n) SPRI_MUST;
void spri_list_free(struct spri_list *list);

/* ---- device.c ---- */

/*
 * Makes options' GPU the exchange's place. Returns 0; SPR_EUNSUPPORTED, -ENOMEM, SPR_EDEVICE; the
 * context has the text. close accepts all.
 */
int spri_device_open(struct spr_exchange *exchange,
		     const struct spr_exchange_options *options) SPRI_MUST;
/* The exchange is on this GPU. */
bool spri_device_is(const struct spr_exchange *exchange, unsigned number);
/* Waits for what uses vectors and lists; accepts an exchange in host memory. */
void spri_device_stop(struct spr_exchange *exchange);
/* After the vectors and lists are gone; accepts an exchange in host memory. */
void spri_device_close(struct spr_exchange *exchange);

/* ---- importance.c ---- */

/*
 * Accumulates a part and, on a rank that proposes in this step, chooses its mask. `gradient` is
 * that of the part, times scale. Returns as spri_residual_select.
 */
int spri_importance_select(struct spr_exchange *exchange, struct exchange_part *part,
			   const float *gradient, float scale, uint64_t *index) SPRI_MUST;
/* The step ended well: what the notes and the union's density say about the next threshold. */
void spri_importance_steer(struct spr_exchange *exchange, struct exchange_part *part);

/* ---- exchange.c ---- */

/*
 * Marks an idle exchange as READING and releases the lock; returns SPR_EBUSY, with nothing
 * changed, when it is not idle.
 */
int spri_exchange_claim(struct spr_exchange *exchange) SPRI_MUST;
void spri_exchange_release(struct spr_exchange *exchange);
/* Waits for a step in flight; one that still misses layers is failed on every rank. */
void spri_exchange_await_idle(struct spr_exchange *exchange);

/* ---- step.c ---- */

/*
 * While a part is selected from, when steps are pipelined: hands the candidates found so far (NULL:
 * there is nothing to hand on yet) to the part's stream, if it has one, and makes progress. Lock
 * not held.
 */
void spri_exchange_progress(struct spr_exchange *exchange, struct exchange_part *part,
			    const struct spri_list *candidates);
/* Entries of this part are sent while they are selected. The same on all ranks. */
bool spri_part_streams(const struct spr_exchange *exchange, const struct exchange_part *part);

/* Frees the operations of the last step, which is over. Lock held. */
void spri_step_reap(struct spr_exchange *exchange);
/* Launches what is missing of an open step in failed mode. Lock held. */
void spri_step_abandon(struct spr_exchange *exchange);

#include "place.h"

#endif
