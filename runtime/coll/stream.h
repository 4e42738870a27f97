/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Entries that an operation sends while its caller still selects (algorithms whose row says
 * `streams`). The exact cut is known when selection ends, so what goes ahead are *candidates*: all
 * entries not below where the cut is expected, as far as the scan has come.
 *
 *   1. the operation is launched with an open stream; the caller appends candidates to `found`, in
 *      index order, under the lock
 *   2. selection is over: the caller appends the selected entries behind the last candidate, puts
 *      those of before it that are below that into `late`, names the cut, sets op->in_list
 *      and closes the stream
 *   3. the receiver drops what lies below the cut; it stays in the sender's residual
 *
 * The lists never have more than spri_stream_most(k) and k entries.
 */
#ifndef SPRI_STREAM_H
#define SPRI_STREAM_H

#include <internal/bits.h>
#include <kernel.h>

/* A list in memory that a NIC reads, and the host does not (a GPU's): raw32 of base 0. */
struct spri_near {
	struct spri_region *region; /* of both arrays; NULL: there is no such list */
	uint32_t *index;
	float *value;
};

struct spri_stream {
	struct spri_list found; /* lent by the caller */
	struct spri_near near;	/* the entries of found at the same places; lent */
	struct spri_list late;	/* lent by the caller; written before `open` ends */
	bool open;
	/* selected: key > cut_key, or equal and index ≤ cut_index */
	uint32_t cut_key;
	uint64_t cut_index;
};

struct spri_op;

/*
 * Move: sends what there is of op->stream, and its end when it is closed. Returns 0 when all is
 * posted, SPRI_AGAIN (more will come, or no credit), negative.
 */
int spri_stream_send(struct spri_op *op, uint32_t to, uint32_t round) SPRI_MUST;
/*
 * Move: takes the message of a rank that streams into two empty lists with room for
 * spri_stream_most(k) and k entries; at the end without what lies below the sender's cut. Returns
 * 0, SPRI_AGAIN, negative.
 */
int spri_stream_receive(struct spri_op *op, uint32_t from, uint32_t round, struct spri_list *found,
			struct spri_list *late) SPRI_MUST;

/* Candidates that may go ahead: so many, then nothing until the cut is known. */
static inline uint64_t spri_stream_ahead(uint64_t k)
{
	return k + k / 2;
}

static inline uint64_t spri_stream_most(uint64_t k)
{
	return spri_stream_ahead(k) + k;
}

/* Is an entry of the stream one of the selected? */
static inline bool spri_stream_keeps(uint32_t cut_key, uint64_t cut_index, uint64_t index,
				     float value)
{
	uint32_t key = spri_f32_key(value);

	return key > cut_key || (key == cut_key && index <= cut_index);
}

#endif
