/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Dissemination; see dissemination.h.
 *
 *   In round i, with d = 2^i < P: send the blocks of the ranks r, r + 1, … (min(d, P − d) of them)
 *   to rank r − d, receive those of as many ranks r + d, r + d + 1, … from r + d
 *
 * Sending and receiving go on side by side; the round ends with both. Nobody waits in a circle: a
 * rank in the lowest round of all sends to one that receives in the same round, or has done so.
 *
 * Failures: an outcome travels as the blocks do, so it reaches every rank. When arguments differ,
 * each rank has a path from some rank that differs from it, and on the path one that saw it and
 * passed it on.
 */
#include <coll/dissemination.h>
#include <coll/schedule.h>

/* Number of the block that comes next, within the message. */
#define NEXT_BLOCK extra[0]

unsigned spri_dissemination_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out)
{
	unsigned n = 0;

	for (uint32_t d = 1; d < n_ranks; d *= 2) {
		out[n++] = spri_bruck_to(rank, n_ranks, d);
		out[n++] = spri_bruck_from(rank, n_ranks, d);
	}
	return n;
}

double spri_dissemination_rounds(uint32_t n_ranks)
{
	return spri_ceil_log2(n_ranks);
}

static int malformed(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk)
{
	spri_text_set(&op->text, "rank %u sent a chunk of block %u out of order", from,
		      chunk->block);
	return spri_trace(SPR_EPROTOCOL);
}

/* How many blocks belong to the n ranks from r on. */
static uint32_t blocks_of(const struct spri_op *op, const struct spri_dissemination *how,
			  uint32_t n)
{
	uint32_t low = 0, high = how->n_blocks, n_ranks = op->comm->n_ranks;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2, id = how->blocks[middle].id;

		if ((id + n_ranks - op->comm->rank) % n_ranks < n)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int take_chunk(struct spri_op *op, const struct spri_dissemination *how, uint32_t from,
		      uint32_t d, const struct spri_chunk *chunk)
{
	uint32_t first = blocks_of(op, how, d);
	uint32_t end = blocks_of(op, how, d + spri_bruck_blocks(op->comm->n_ranks, d));
	struct spri_block *block = &how->blocks[first + op->cursor.NEXT_BLOCK];
	bool last = chunk->flags & SPRI_CHUNK_LAST_OF_ROUND;
	int r;

	if (first == end) /* the ranks of this round have none */
		return last && chunk->count == 0 ? 0 : malformed(op, from, chunk);
	if (first + op->cursor.NEXT_BLOCK >= end || chunk->block != block->id)
		return malformed(op, from, chunk);
	r = how->take(op, from, block, chunk);
	if (r < 0)
		return r;
	if (chunk->flags & SPRI_CHUNK_LAST_OF_BLOCK)
		op->cursor.NEXT_BLOCK++;
	return last != (first + op->cursor.NEXT_BLOCK == end) ? malformed(op, from, chunk) : 0;
}

static int receive(struct spri_op *op, const struct spri_dissemination *how, uint32_t d)
{
	uint32_t from = spri_bruck_from(op->comm->rank, op->comm->n_ranks, d);
	struct spri_chunk chunk;
	int r;

	while (!op->cursor.receiving.done) {
		r = spri_transfer_receive(op, from, op->cursor.round, &chunk);
		if (r)
			return r;
		if (!spri_op_failed(op))
			r = take_chunk(op, how, from, d, &chunk);
		spri_transfer_release(op, from);
		if (r < 0)
			return r;
		op->cursor.receiving.done = chunk.flags & SPRI_CHUNK_LAST_OF_ROUND;
	}
	return 0;
}

int spri_dissemination_step(struct spri_op *op, const struct spri_dissemination *how)
{
	uint32_t n_ranks = op->comm->n_ranks;

	while (op->cursor.round < spri_ceil_log2(n_ranks)) {
		uint32_t d = 1u << op->cursor.round;
		int sent, received;

		sent = spri_transfer_send(op, spri_bruck_to(op->comm->rank, n_ranks, d),
					  op->cursor.round, how->codec, how->blocks,
					  blocks_of(op, how, spri_bruck_blocks(n_ranks, d)),
					  &op->cursor.sending);
		if (sent < 0)
			return sent;
		received = receive(op, how, d);
		if (sent || received)
			return received ? received : sent;
		op->stats.rounds++;
		op->cursor = (struct spri_cursor){.round = op->cursor.round + 1};
	}
	return 0;
}
