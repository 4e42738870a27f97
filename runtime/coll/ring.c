/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The ring of plain values; see ring.h. The values are cut into P blocks (spri_ring_offset).
 *
 *   1. round s = 0 … P − 2: receive block r − s − 1, out = received + own
 *   2. round s = P − 1 … 2P − 3: receive block r − s − 1, out = received
 *   3. round 0 sends block r of own, round s + 1 the block that round s received: each chunk as
 *      soon as it has been worked on
 *
 * Additions: block b begins as rank b's values; then b + 1, b + 2, … (mod P) add theirs on the
 * right. Receiving never waits for sending: a chunk goes into out and its buffer is given back at
 * once; otherwise the ring could stand still with all windows full. In place (in = out) works
 * because what overwrites a chunk, in the second half, has been made out of what this rank sent of
 * it.
 *
 * Non-finite values: a received one in round 0 is the previous rank's own, later ones were reported
 * by who saw them first and then no longer sent; all others are own inputs or sums made here.
 * Reports of the first half need P − 1 rounds to reach all ranks, which is what the second half
 * has. The end of the message of round s + 1 goes out after the end of that of round s was taken,
 * so it carries what was found there.
 */
#include <coll/ring.h>
#include <coll/schedule.h>

/*
 * The cursor: round and receiving.entries are where we receive; sending.position in round
 * SENDING_ROUND is where we send. Values before PREPARED of round 0's block are prepared.
 */
#define SENDING_ROUND extra[0]
#define PREPARED extra[1]

unsigned spri_ring_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out)
{
	if (n_ranks == 1)
		return 0;
	out[0] = spri_ring_previous(rank, n_ranks);
	out[1] = spri_ring_next(rank, n_ranks);
	return 2;
}

double spri_ring_rounds(uint32_t n_ranks)
{
	return 2.0 * (n_ranks - 1);
}

/* The block that is sent in round s, which round s − 1 received. */
static struct spri_block block_of_round(const struct spri_op *op, const struct spri_ring *ring,
					uint32_t s)
{
	uint32_t n_ranks = op->comm->n_ranks;
	uint32_t b = (op->comm->rank + 2 * n_ranks - s) % n_ranks;
	uint64_t base = spri_ring_offset(ring->count, n_ranks, b);
	const float *values = s == 0 ? ring->first : ring->out;

	return (struct spri_block){
		.id = b,
		.value = values ? values + base : NULL,
		.count = spri_ring_offset(ring->count, n_ranks, b + 1) - base,
		.base = base,
	};
}

/* out = received + own, for the values of a chunk. */
static int add_chunk(struct spri_op *op, const struct spri_ring *ring,
		     const struct spri_chunk *chunk)
{
	struct spri_finite finite = SPRI_FINITE_NONE;
	const float *own =
		ring->own ? ring->own(op, chunk->base, chunk->count) : ring->first + chunk->base;
	uint32_t who = op->comm->rank;
	int r = spri_codec_find(SPRI_CODEC_DENSE)
			->decode(chunk, NULL, ring->received, 0, ring->count);

	if (r < 0)
		return r;
	spri_reduce(ring->out + chunk->base, ring->received, own, chunk->count, chunk->base,
		    op->policy, &finite);
	if (finite.bad_index != SPRI_NO_INDEX) {
		if (spri_f32_nonfinite(ring->received[finite.bad_index - chunk->base]))
			who = spri_ring_previous(who, op->comm->n_ranks);
		if (ring->index)
			finite.bad_index = ring->index[finite.bad_index];
	}
	spri_op_report_finite(op, &finite, who);
	if (ring->settle)
		ring->settle(op, chunk->base, chunk->count);
	return 0;
}

static int take_chunk(struct spri_op *op, const struct spri_ring *ring, uint32_t from,
		      const struct spri_chunk *chunk)
{
	struct spri_block block = block_of_round(op, ring, op->cursor.round + 1);
	uint64_t position = op->cursor.receiving.entries, left = block.count - position;
	bool last = chunk->flags & SPRI_CHUNK_LAST_OF_ROUND;
	uint64_t start_ns;
	int r;

	if (chunk->codec != SPRI_CODEC_DENSE || chunk->base != block.base + position ||
	    chunk->count != spri_min_u64(left, spri_transfer_room(op, SPRI_CODEC_DENSE)) ||
	    last != (chunk->count == left)) {
		spri_text_set(&op->text, "rank %u sent elements %llu + %u, expected %llu + %llu",
			      from, (unsigned long long)chunk->base, chunk->count,
			      (unsigned long long)(block.base + position),
			      (unsigned long long)left);
		return spri_trace(SPR_EPROTOCOL);
	}
	if (chunk->count == 0)
		return 0;
	start_ns = spri_op_now(op);
	if (op->cursor.round < op->comm->n_ranks - 1)
		r = add_chunk(op, ring, chunk);
	else
		r = spri_codec_find(SPRI_CODEC_DENSE)
			    ->decode(chunk, NULL, ring->out + chunk->base, 0, ring->count);
	spri_op_merged(op, start_ns);
	op->cursor.receiving.entries += chunk->count;
	return r;
}

/* What the next chunk is to be added to. */
static bool own_is_there(struct spri_op *op, const struct spri_ring *ring)
{
	struct spri_block block;
	uint64_t position = op->cursor.receiving.entries, n;

	if (!op->there || spri_op_failed(op) || op->cursor.round >= op->comm->n_ranks - 1)
		return true;
	block = block_of_round(op, ring, op->cursor.round + 1);
	n = spri_min_u64(block.count - position, spri_transfer_room(op, SPRI_CODEC_DENSE));
	return op->there(op, block.base + position, n);
}

/* One chunk. Returns 0: one was taken, or there are no more; SPRI_AGAIN; negative. */
static int receive_one(struct spri_op *op, const struct spri_ring *ring, uint32_t n_rounds)
{
	uint32_t from = spri_ring_previous(op->comm->rank, op->comm->n_ranks);
	struct spri_chunk chunk;
	int r;

	if (!own_is_there(op, ring))
		return SPRI_AGAIN;
	r = spri_transfer_receive(op, from, ring->first_round + op->cursor.round, &chunk);
	if (r)
		return r;
	if (!spri_op_failed(op))
		r = take_chunk(op, ring, from, &chunk);
	spri_transfer_release(op, from);
	if (chunk.flags & SPRI_CHUNK_LAST_OF_ROUND) {
		op->cursor.round++;
		op->cursor.receiving =
			(struct spri_receiving){.done = op->cursor.round == n_rounds};
	}
	return r;
}

/*
 * The next chunk of the round being sent, when it is ready: received and worked on. Returns 0;
 * SPRI_AGAIN: not ready, or no credit; negative.
 */
static int send_one(struct spri_op *op, const struct spri_ring *ring)
{
	uint32_t s = (uint32_t)op->cursor.SENDING_ROUND;
	struct spri_block block = block_of_round(op, ring, s);
	uint64_t position = op->cursor.sending.position, left = block.count - position;
	uint32_t n = (uint32_t)spri_min_u64(left, spri_transfer_room(op, SPRI_CODEC_DENSE));
	bool last = n == left, whole = op->cursor.round >= s; /* round s − 1 is received */
	int r;

	if (spri_op_failed(op)) {
		n = 0;
		last = true;
	}
	if (!whole && (last || position + n > op->cursor.receiving.entries))
		return SPRI_AGAIN;
	if (s == 0 && op->there && n > 0 && !op->there(op, block.base + position, n))
		return SPRI_AGAIN;
	if (s == 0 && ring->prepare && op->cursor.PREPARED < position + n) {
		ring->prepare(op, block.base + position, n);
		op->cursor.PREPARED = position + n;
	}
	r = spri_transfer_send_part(op, spri_ring_next(op->comm->rank, op->comm->n_ranks),
				    ring->first_round + s, SPRI_CODEC_DENSE, &block, position, n,
				    last);
	if (r)
		return r;
	op->cursor.sending.position += n;
	if (last) {
		op->cursor.SENDING_ROUND++;
		op->cursor.sending = (struct spri_sending){0};
		op->stats.rounds++;
	}
	return 0;
}

int spri_ring_step(struct spri_op *op, const struct spri_ring *ring)
{
	uint32_t n_rounds = 2 * (op->comm->n_ranks - 1);
	int received = 0, sent = 0;

	do {
		if (!op->cursor.receiving.done)
			received = receive_one(op, ring, n_rounds);
		if (received < 0)
			return received;
		while (sent == 0 && op->cursor.SENDING_ROUND < n_rounds)
			sent = send_one(op, ring);
		if (sent < 0)
			return sent;
		sent = 0;
	} while (received == 0 && !op->cursor.receiving.done);
	if (received == SPRI_AGAIN && !op->cursor.receiving.done)
		op->waiting_for = spri_ring_previous(op->comm->rank, op->comm->n_ranks);
	return op->cursor.receiving.done && op->cursor.SENDING_ROUND == n_rounds ? 0 : SPRI_AGAIN;
}
