/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Every rank's blocks to every rank in ⌈log2 P⌉ rounds (Bruck et al. 1997; schedule.h). What a
 * block is, the algorithm says: topk_allgather (lists), allgather (bytes), iwp_ring (masks, of the
 * ranks that have one).
 */
#ifndef SPRI_DISSEMINATION_H
#define SPRI_DISSEMINATION_H

#include <coll/coll.h>

struct spri_dissemination {
	uint8_t codec; /* of blocks that name none, and of a message without blocks */
	/*
	 * Blocks of the ranks r, r + 1, … (mod P), whose numbers are their ids, in this order; any
	 * number of each, the same as on all ranks. Those of r are filled at the start. NULL when
	 * the start failed.
	 */
	struct spri_block *blocks;
	uint32_t n_blocks;
	/*
	 * Takes a chunk of a block, whatever its codec, and adds to the block's count. Returns 0;
	 * SPR_EPROTOCOL with a text.
	 */
	int (*take)(struct spri_op *op, uint32_t from, struct spri_block *block,
		    const struct spri_chunk *chunk);
};

unsigned spri_dissemination_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out);
double spri_dissemination_rounds(uint32_t n_ranks);
/* Returns 0 when all rounds are over, SPRI_AGAIN, negative. */
int spri_dissemination_step(struct spri_op *op, const struct spri_dissemination *d) SPRI_MUST;

#endif
