/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The exchange behind include/sparring/exchange.h. Private to exchange/.
 *
 * States; the context's lock guards the transitions, and everything but what the state lends out:
 *
 *   IDLE ──start──► SELECTING ──launch──► IN_FLIGHT ──on_done──► IDLE
 *   IDLE ◄──────────────┘ (nothing could be launched)
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

enum exchange_state { EXCHANGE_IDLE, EXCHANGE_SELECTING, EXCHANGE_IN_FLIGHT, EXCHANGE_READING };

/* What a step under way would change; taken over when it ends well. */
struct exchange_step {
	float *update;	    /* the caller's, lent; NULL: not wanted */
	uint32_t threshold; /* for the next step */
	bool repaired;
	uint64_t dropped;
	uint64_t k, selected;
	double density;
	uint64_t select_ns;
};

struct spr_exchange {
	struct spr_comm *comm; /* outlives it */
	const struct spri_algo *algo;
	uint64_t n; /* parameters */
	enum spr_nonfinite policy;
	struct spr_density_point *schedule; /* n_schedule, owned */
	size_t n_schedule;

	enum exchange_state state;
	float *residual, *shadow;  /* n each, owned pages; NULL for dense algorithms */
	float *dense_sum;	   /* n, owned pages; NULL for sparse algorithms */
	struct spri_list selected; /* scratch of the selection, lent to the operation; owned */
	struct spri_list sum;	   /* of the last step that was committed; owned */
	bool has_sum;		   /* sum may be shown */
	uint32_t threshold;	   /* carried to the next selection; 0: none */
	uint64_t step;		   /* steps committed */
	struct exchange_step now;
	struct spr_exchange_stats stats; /* of the last finished step */
};

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
/* Makes the lists fit for a step with k entries. Nothing is in flight. Returns 0 or -ENOMEM. */
int spri_residual_reserve(struct spr_exchange *exchange, uint64_t k) SPRI_MUST;
/*
 * Accumulates and selects into exchange->selected and the shadow. No lock needed. Returns
 * 0, or SPR_ENONFINITE with *index.
 */
int spri_residual_select(struct spr_exchange *exchange, const float *gradient, uint64_t k,
			 uint64_t *index) SPRI_MUST;
/*
 * The step ended well: the shadow becomes the residual, adoptions are added, the update is
 * written.
 */
void spri_residual_commit(struct spr_exchange *exchange, const struct spri_op *op);

/* ---- exchange.c ---- */

/*
 * Marks an idle exchange as READING and releases the lock; returns SPR_EBUSY, with nothing
 * changed, when it is not idle.
 */
int spri_exchange_claim(struct spr_exchange *exchange) SPRI_MUST;
void spri_exchange_release(struct spr_exchange *exchange);

#endif
