/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Every rank's block to every rank in ⌈log2 P⌉ rounds (Bruck et al. 1997; schedule.h). What a block
 * is, the algorithm says: topk_allgather (lists) and allgather (bytes).
 */
#ifndef SPRI_DISSEMINATION_H
#define SPRI_DISSEMINATION_H

#include <coll/coll.h>

struct spri_dissemination {
	uint8_t codec;
	/*
	 * blocks[j] is the block of rank (r + j) mod P; blocks[0] is filled at the start. NULL when
	 * the start failed.
	 */
	struct spri_block *blocks;
	/*
	 * Takes a chunk of blocks[j] and adds to its count. Returns 0; SPR_EPROTOCOL with a text.
	 */
	int (*take)(struct spri_op *op, uint32_t from, struct spri_block *block,
		    const struct spri_chunk *chunk);
};

unsigned spri_dissemination_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out);
double spri_dissemination_rounds(uint32_t n_ranks);
/* Returns 0 when all rounds are over, SPRI_AGAIN, negative. */
int spri_dissemination_step(struct spri_op *op, const struct spri_dissemination *d) SPRI_MUST;

#endif
