/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * prune_ring: ring reduce-scatter of sparse blocks, each pruned back to its share of k before every
 * hop, then ring allgather. The index range is cut into P blocks (spri_ring_offset); rank r
 * receives from r − 1 and sends to r + 1 (mod P).
 *
 *   rounds 2(P − 1), bytes per rank 2(P − 1)/P · k · 8
 *
 *   1. this rank's entries of block r, pruned to the block's quota, are what round 0 sends
 *   2. round s = 0 … P − 2: receive block r − s − 1, merge this rank's entries of it, prune to the
 *      quota; round s + 1 sends the result
 *   3. round s = P − 1 … 2P − 3: receive the final block r − s − 1; round s + 1 sends it on
 *   4. the final blocks, one behind the other, are the sum: at most k entries
 *
 * Quota: k / P, and one more for k mod P blocks, which go round with the step (schedule.h); with k
 * as large as the vector each block has room for all of it. What a rank prunes it adopts, and so it
 * does with what 16-bit values on the wire take off the rest: the inputs of all ranks are the sum
 * plus what all ranks adopted. A rank meets each block once: the adopted entries of each have a
 * place of their own, as the final blocks have, and are moved together at the end. Memory is
 * allocated once, at the start.
 *
 * Additions: block b begins as rank b's values; then b + 1, b + 2, … (mod P) add theirs on the
 * right.
 *
 * A round ends when its message is sent and the other one received. Nobody waits in a circle: a
 * rank in the lowest round of all sends to one that receives in the same round, or has done so.
 *
 * Failures: no memory at the start (failed mode); a list that is too long, or leaves its block, is
 * SPR_EPROTOCOL. A sum that is not finite is found by the one rank that makes it, in the first
 * half, and reported without a rank, because it is several ranks' doing; reports need P − 1 rounds
 * to reach all ranks, which is what the second half has.
 */
#include <coll/ring.h>
#include <coll/schedule.h>
#include <coll/sparse.h>
#include <errno.h>
#include <internal/alloc.h>
#include <string.h>

struct prune_ring {
	struct spri_list own;	  /* this rank's entries */
	uint64_t merged, end;	  /* of own, in the block in hand: next to be merged; the end */
	struct spri_list mine;	  /* the block that is sent, pruned */
	struct spri_list sum;	  /* the block in hand: what arrived of it, and our entries */
	struct spri_list chunk;	  /* one decoded chunk */
	struct spri_list trimmed; /* of the block in hand */
	struct spri_list errors;  /* likewise: of rounding */
	struct spri_list result;  /* the final blocks, each at its place */
	struct spri_list adopted; /* likewise */
	struct {
		uint64_t final, adopted; /* entries at the block's place */
	} blocks[];			 /* P */
};

enum { OWN, MINE, SUM, CHUNK, TRIMMED, ERRORS, RESULT, ADOPTED, N_LISTS };

static double prune_bytes(uint32_t n_ranks, double count, double k)
{
	(void)count;
	return spri_ring_rounds(n_ranks) / n_ranks * k * 8;
}

/* Index of the first element of block b. */
static uint64_t block_begin(const struct spri_op *op, uint32_t b)
{
	return spri_ring_offset(op->length, op->comm->n_ranks, b);
}

/* Place of block b in the result: the quotas of the blocks before it. */
static uint64_t result_place(const struct spri_op *op, uint32_t b)
{
	if (op->k >= op->length)
		return block_begin(op, b);
	return spri_ring_quota_offset(op->k, op->comm->n_ranks, op->step, b);
}

static uint64_t quota(const struct spri_op *op, uint32_t b)
{
	return result_place(op, b + 1) - result_place(op, b);
}

/* Where this rank's own entries of block b begin. */
static uint64_t own_place(const struct spri_op *op, uint32_t b)
{
	const struct prune_ring *t = op->state;
	uint64_t begin = block_begin(op, b);

	return begin == 0 ? 0 : spri_sparse_reach(t->own.index, t->own.count, begin - 1);
}

/*
 * Where what is adopted of block b begins: as many may be trimmed as there are own entries, and as
 * many rounded as stay.
 */
static uint64_t adopted_place(const struct spri_op *op, uint32_t b)
{
	return own_place(op, b) + (op->dtype == SPR_F32 ? 0 : result_place(op, b));
}

/* The block that is sent in round s, which round s − 1 received. */
static uint32_t block_of_round(const struct spri_op *op, uint32_t s)
{
	uint32_t n_ranks = op->comm->n_ranks;

	return (op->comm->rank + 2 * n_ranks - s) % n_ranks;
}

/* ---- the block in hand ---- */

static void begin_block(struct spri_op *op, uint32_t b)
{
	struct prune_ring *t = op->state;

	t->sum.count = 0;
	t->merged = own_place(op, b);
	t->end = own_place(op, b + 1);
}

/* sum += theirs and the next n of ours. */
static void merge_some(struct spri_op *op, const struct spri_list *theirs, uint64_t n)
{
	struct prune_ring *t = op->state;
	struct spri_finite finite = SPRI_FINITE_NONE;

	spri_merge(&t->sum, theirs->index, theirs->value, theirs->count, t->own.index + t->merged,
		   t->own.value + t->merged, n, op->policy, &finite);
	t->merged += n;
	spri_op_report_finite(op, &finite, SPRI_NO_RANK); /* inputs were checked at the start */
}

/* Merges the rest of ours, prunes and rounds; what is left becomes mine. */
static void end_block(struct spri_op *op, uint32_t b)
{
	static const struct spri_list nothing = {0};
	struct prune_ring *t = op->state;
	struct spri_finite ignored = SPRI_FINITE_NONE;
	uint64_t place = adopted_place(op, b);
	struct spri_list adopted = {t->adopted.index + place, t->adopted.value + place, 0,
				    adopted_place(op, b + 1) - place};

	merge_some(op, &nothing, t->end - t->merged);
	t->trimmed.count = 0;
	t->errors.count = 0;
	spri_trim(&t->sum, quota(op, b), &t->trimmed);
	spri_round(&t->sum, op->dtype, &t->errors);
	spri_merge(&adopted, t->trimmed.index, t->trimmed.value, t->trimmed.count, t->errors.index,
		   t->errors.value, t->errors.count, SPR_NONFINITE_PROPAGATE, &ignored);
	t->blocks[b].adopted = adopted.count;
	spri_sparse_swap(&t->mine, &t->sum);
}

/* The last block of the first half is final. */
static void keep_block(struct spri_op *op, uint32_t b)
{
	struct prune_ring *t = op->state;
	uint64_t place = result_place(op, b);

	if (t->mine.count > 0) {
		memcpy(t->result.index + place, t->mine.index, 8 * t->mine.count);
		memcpy(t->result.value + place, t->mine.value, 4 * t->mine.count);
	}
	t->blocks[b].final = t->mine.count;
}

/* ---- start ---- */

static int prune_start(struct spri_op *op)
{
	uint32_t n_ranks = op->comm->n_ranks, rank = op->comm->rank;
	uint64_t n = op->in_list.count, longest, most_own, most, rounded;
	uint64_t capacities[N_LISTS];
	struct spri_list lists[N_LISTS];
	struct prune_ring *t;

	if (spri_op_failed(op))
		return 0; /* nothing will be merged */
	longest = op->length / n_ranks + (op->length % n_ranks != 0);
	most = spri_min_u64(longest, op->k / n_ranks + 1); /* of a pruned block */
	if (op->k >= op->length)
		most = longest;
	rounded = op->dtype == SPR_F32 ? 0 : spri_sparse_keep(op);
	most_own = spri_min_u64(n, longest);
	capacities[OWN] = n;
	capacities[MINE] = capacities[SUM] = most_own + most;
	capacities[CHUNK] = spri_min_u64(most, spri_transfer_room(op, op->list_codec));
	capacities[TRIMMED] = most_own;
	capacities[ERRORS] = rounded > 0 ? most : 0;
	capacities[RESULT] = spri_sparse_keep(op);
	capacities[ADOPTED] = n + rounded;
	t = spri_sparse_alloc(sizeof *t + n_ranks * sizeof *t->blocks, capacities, N_LISTS, lists);
	if (!t)
		return spri_trace(-ENOMEM);
	op->state = t;
	t->own = lists[OWN];
	t->mine = lists[MINE];
	t->sum = lists[SUM];
	t->chunk = lists[CHUNK];
	t->trimmed = lists[TRIMMED];
	t->errors = lists[ERRORS];
	t->result = lists[RESULT];
	t->adopted = lists[ADOPTED];
	spri_sparse_input(op, &t->own);
	begin_block(op, rank);
	end_block(op, rank);
	if (n_ranks == 1)
		keep_block(op, 0);
	return 0;
}

/* ---- rounds ---- */

static int send(struct spri_op *op, uint32_t s)
{
	const struct prune_ring *t = op->state;
	uint32_t b = block_of_round(op, s), to = spri_ring_next(op->comm->rank, op->comm->n_ranks);
	const struct spri_list *list;
	struct spri_block block = {.id = b};
	uint64_t place;

	if (!t)
		return spri_transfer_send(op, to, s, op->list_codec, NULL, 0, &op->cursor.sending);
	if (s < op->comm->n_ranks - 1) {
		list = &t->mine;
		place = 0;
		block.count = list->count;
	} else {
		list = &t->result;
		place = result_place(op, b);
		block.count = t->blocks[b].final;
	}
	block.index = list->index + place;
	block.value = list->value + place;
	return spri_transfer_send(op, to, s, op->list_codec, &block, 1, &op->cursor.sending);
}

/*
 * The entries of a chunk of block b, to index/value, which have room for `room`. Returns 0;
 * SPR_EPROTOCOL with a text.
 */
static int decode(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk, uint32_t b,
		  struct spri_list *to)
{
	struct spri_receiving *receiving = &op->cursor.receiving;
	uint64_t after = block_begin(op, b) - 1; /* SPRI_NO_INDEX for block 0 */
	int r;

	if (chunk->block != b || chunk->count > to->capacity - to->count ||
	    chunk->count > quota(op, b) - receiving->entries) {
		spri_text_set(&op->text,
			      "rank %u sent %u entries of block %u, expected %llu of %u at most",
			      from, chunk->count, chunk->block,
			      (unsigned long long)(quota(op, b) - receiving->entries), b);
		return spri_trace(SPR_EPROTOCOL);
	}
	r = spri_sparse_decode(op, from, chunk, to->index + to->count, to->value + to->count,
			       receiving->any ? receiving->after : after);
	if (r < 0 || chunk->count == 0)
		return r;
	to->count += chunk->count;
	receiving->any = true;
	receiving->after = to->index[to->count - 1];
	receiving->entries += chunk->count;
	if (receiving->after < block_begin(op, b + 1))
		return 0;
	spri_text_set(&op->text, "rank %u sent index %llu in block %u, which ends at %llu", from,
		      (unsigned long long)receiving->after, b,
		      (unsigned long long)block_begin(op, b + 1));
	return spri_trace(SPR_EPROTOCOL);
}

/* First half: merges a chunk, and ours as far as it reaches; the last one ends the block. */
static int merge_chunk(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk,
		       uint32_t b)
{
	struct prune_ring *t = op->state;
	struct spri_receiving *receiving = &op->cursor.receiving;
	uint64_t start_ns = spri_op_now(op);
	int r;

	t->chunk.count = 0;
	if (receiving->entries == 0)
		begin_block(op, b);
	r = decode(op, from, chunk, b, &t->chunk);
	if (r < 0)
		return r;
	if (chunk->count > 0)
		merge_some(op, &t->chunk,
			   spri_sparse_reach(t->own.index + t->merged, t->end - t->merged,
					     receiving->after));
	spri_op_merged(op, start_ns);
	return 0;
}

/* Second half: a chunk of a final block, to its place. */
static int keep_chunk(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk, uint32_t b)
{
	struct prune_ring *t = op->state;
	uint64_t place = result_place(op, b);
	struct spri_list list = {t->result.index + place, t->result.value + place,
				 t->blocks[b].final, quota(op, b)};
	int r = decode(op, from, chunk, b, &list);

	t->blocks[b].final = list.count;
	return r;
}

static int receive(struct spri_op *op, uint32_t s)
{
	uint32_t from = spri_ring_previous(op->comm->rank, op->comm->n_ranks);
	uint32_t b = block_of_round(op, s + 1);
	bool first_half = s < op->comm->n_ranks - 1;
	struct spri_chunk chunk;
	int r;

	while (!op->cursor.receiving.done) {
		r = spri_transfer_receive(op, from, s, &chunk);
		if (r)
			return r;
		if (!spri_op_failed(op))
			r = first_half ? merge_chunk(op, from, &chunk, b)
				       : keep_chunk(op, from, &chunk, b);
		spri_transfer_release(op, from);
		if (r < 0)
			return r;
		op->cursor.receiving.done = chunk.flags & SPRI_CHUNK_LAST_OF_ROUND;
	}
	return 0;
}

/* Before round s: what round s − 1 received is pruned, or final. */
static void end_round(struct spri_op *op, uint32_t s)
{
	uint32_t n_ranks = op->comm->n_ranks, b = block_of_round(op, s);
	uint64_t start_ns = spri_op_now(op);

	op->stats.rounds++;
	op->cursor = (struct spri_cursor){.round = s};
	if (!op->state || spri_op_failed(op) || s >= n_ranks)
		return;
	end_block(op, b);
	if (s == n_ranks - 1)
		keep_block(op, b);
	spri_op_merged(op, start_ns);
}

/* Moves n entries down to the end of a list. */
static void append(struct spri_list *list, uint64_t place, uint64_t n)
{
	if (n > 0 && place != list->count) {
		memmove(list->index + list->count, list->index + place, 8 * n);
		memmove(list->value + list->count, list->value + place, 4 * n);
	}
	list->count += n;
}

static void finish_lists(struct spri_op *op)
{
	struct prune_ring *t = op->state;

	if (!t || spri_op_failed(op))
		return;
	for (uint32_t b = 0; b < op->comm->n_ranks; b++) {
		append(&t->result, result_place(op, b), t->blocks[b].final);
		append(&t->adopted, adopted_place(op, b), t->blocks[b].adopted);
	}
	op->sum = t->result;
	op->adopted = t->adopted;
}

static int prune_step(struct spri_op *op)
{
	uint32_t n_rounds = 2 * (op->comm->n_ranks - 1);

	while (op->cursor.round < n_rounds) {
		uint32_t s = op->cursor.round;
		int sent = send(op, s), received;

		if (sent < 0)
			return sent;
		received = receive(op, s);
		if (sent || received)
			return received ? received : sent;
		end_round(op, s + 1);
	}
	finish_lists(op);
	return 0;
}

static void prune_finish(struct spri_op *op)
{
	spri_free(op->state);
	op->state = NULL;
	op->sum = (struct spri_list){0};
	op->adopted = (struct spri_list){0};
}

const struct spri_algo spri_algo_prune_ring = {
	6,
	"prune_ring",
	"ring of sparse blocks, each pruned back to its share before every hop",
	SPRI_ALGO_SPARSE,
	spri_ring_partners,
	spri_ring_rounds,
	prune_bytes,
	prune_start,
	prune_step,
	prune_finish,
};
