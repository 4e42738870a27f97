/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the algorithms on sparse vectors share: memory for lists, the caller's list, arriving lists.
 */
#ifndef SPRI_SPARSE_H
#define SPRI_SPARSE_H

#include <coll/coll.h>
#include <internal/bits.h>

/* Most entries of one rank's list, and of a list that was trimmed. */
static inline uint64_t spri_sparse_keep(const struct spri_op *op)
{
	return spri_min_u64(op->k, op->length);
}

static inline void spri_sparse_swap(struct spri_list *a, struct spri_list *b)
{
	struct spri_list t = *a;

	*a = *b;
	*b = t;
}

/*
 * One allocation: `head_bytes` of zeroes for the algorithm's state, then n lists of the given
 * capacities, which are written to lists (empty).
 * Ownership: given: spri_free. Returns NULL when there is no memory, or when the size overflows.
 */
void *spri_sparse_alloc(size_t head_bytes, const uint64_t *capacities, unsigned n,
			struct spri_list *lists) SPRI_MUST;

/*
 * Copies the caller's list (op->in_list) to an empty one. Zeroes are left out; non-finite values
 * follow the policy: reported with this rank (the lowest index), made canonical, or left out.
 */
void spri_sparse_input(struct spri_op *op, struct spri_list *into);

/*
 * Decodes a chunk of a list behind into->count. `capacity` bounds the list as a whole, as the
 * sender has to. Returns 0; SPR_EPROTOCOL with a text.
 */
int spri_sparse_take(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk,
		     struct spri_list *into) SPRI_MUST;

/*
 * As the above into an array of the caller's with room for the chunk; after: last index before.
 * Refused as well: a codec or value type that is not the operation's.
 */
int spri_sparse_decode(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk,
		       uint64_t *index, float *value, uint64_t after) SPRI_MUST;

/*
 * How many of the n ascending indices are not above `last`. Gallops: chunks reach about as far as
 * they are long.
 */
uint64_t spri_sparse_reach(const uint64_t *index, uint64_t n, uint64_t last);

#endif
