/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Ring reduce-scatter and allgather of plain values, chunk by chunk: what dense_ring does with a
 * vector and iwp_ring with the elements of a mask. Rank r receives from r − 1 and sends to r + 1
 * (mod P).
 */
#ifndef SPRI_RING_H
#define SPRI_RING_H

#include <coll/coll.h>

/* Without state (failed mode) all but first_round is zero. */
struct spri_ring {
	uint32_t first_round; /* rounds on the wire are this many more than here */
	uint64_t count;	      /* values */
	const float *first; /* count: this rank's values, of which round 0 sends some; may be out */
	float *out;	    /* count: the sums */
	float *received;    /* room for one decoded chunk */
	/*
	 * Puts this rank's values [base, base + n) to first, before they are sent. NULL: they are.
	 */
	void (*prepare)(struct spri_op *op, uint64_t base, uint32_t n);
	/* This rank's values [base, base + n), to be added to what was received. NULL: at first. */
	const float *(*own)(struct spri_op *op, uint64_t base, uint32_t n);
	/*
	 * The sums [base, base + n) stand in out, and will be sent on or are final. NULL: so be it.
	 */
	void (*settle)(struct spri_op *op, uint64_t base, uint32_t n);
	const uint64_t *index; /* count: what reports call the values; NULL: by their place */
};

/* Neighbours, and 2(P − 1) rounds: columns of the table. */
unsigned spri_ring_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out);
double spri_ring_rounds(uint32_t n_ranks);

/*
 * The cursor's round and receiving.entries are where we receive; sending.position in its own round
 * is where we send. For more than one rank. Returns 0 when all rounds are over, SPRI_AGAIN,
 * negative.
 */
int spri_ring_step(struct spri_op *op, const struct spri_ring *ring) SPRI_MUST;

#endif
