/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The masks of an operation: a few ranks, the broadcasters, each have one, and at the end every
 * rank has all of them, their union and the broadcasters' notes.
 *
 * On the wire two blocks for each broadcaster: its head (u64 number of indices, then the note), and
 * its mask as gaps or as a bitmap, whichever is smaller for this mask (docs/wire.md).
 */
#ifndef SPRI_MASK_H
#define SPRI_MASK_H

#include <coll/coll.h>

struct spri_masks {
	uint32_t n;		   /* broadcasters */
	uint32_t head_bytes;	   /* of a head */
	struct spri_block *blocks; /* 2n: head and mask, of the ranks r, r + 1, … (mod P) */
	uint64_t **memory;	   /* n: of the masks, owned; NULL: the caller's, or empty */
	uint8_t *heads;		   /* n heads, in the order of blocks */
};

/*
 * Bytes that spri_masks_init wants, at any alignment for pointers. It fills `memory` and puts this
 * rank's own mask (lent) and head there, when it is a broadcaster.
 */
size_t spri_masks_bytes(const struct spri_op *op);
void spri_masks_init(struct spri_masks *masks, struct spri_op *op, void *memory);
void spri_masks_fini(struct spri_masks *masks);

/*
 * Sends and receives, in ⌈log2 P⌉ rounds; masks NULL: in failed mode. Memory for an arriving mask
 * is taken when its length is known; when there is none the operation fails. Returns 0 when all
 * rounds are over, SPRI_AGAIN, negative.
 */
int spri_masks_step(struct spri_op *op, struct spri_masks *masks) SPRI_MUST;

/*
 * After the last round: the union of all masks, ascending; all op->count indices when it has more
 * than half of them. Writes the notes to op->out_bytes, by ascending rank.
 * Ownership: *index is given: spri_free. Returns 0 or -ENOMEM.
 */
int spri_masks_unite(struct spri_op *op, struct spri_masks *masks, uint64_t **index,
		     uint64_t *count) SPRI_MUST;

#endif
