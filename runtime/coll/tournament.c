/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The moves of a tournament; see tournament.h. Memory is allocated once, at the start: lists are
 * never longer than 2k before a cut and k after it, at most k entries are cut off per round, and at
 * most k are rounded.
 *
 * Failures: no memory at the start (the operation runs in failed mode); a malformed or too long
 * list is SPR_EPROTOCOL; a sum that is not finite is reported without a rank, because all ranks
 * that make the same merge find it. Sums of what one rank adopted twice are the residual's
 * business: under ERROR an overflow there is left in the residual, where the next step finds it,
 * and nothing is lost unnoticed.
 */
#include <coll/tournament.h>
#include <errno.h>
#include <internal/alloc.h>

enum { MINE, SUM, CHUNK, TRIMMED, ERRORS, ADOPTED, ADOPTED_NEXT, FOUND, LATE, N_LISTS };

static void take_mine(struct spri_op *op)
{
	struct spri_tournament *t = op->state;

	spri_sparse_input(op, &t->mine);
	spri_round(&t->mine, op->dtype, &t->adopted);
	t->has_mine = true;
}

int spri_tournament_start(struct spri_op *op, uint32_t n_cuts)
{
	uint64_t keep = spri_sparse_keep(op);
	/* a vector of keep elements is never cut: no sum has more entries */
	uint64_t cut = n_cuts > 0 && keep < op->length ? keep : 0;
	uint64_t rounded = op->dtype == SPR_F32 ? 0 : keep;
	uint64_t adopted = spri_min_u64(rounded + n_cuts * (cut + rounded),
					op->length + spri_max_u64(cut, rounded));
	uint64_t sum = n_cuts > 0 ? 2 * keep : keep;
	uint64_t stream = op->streamed ? spri_stream_most(keep) : 0;
	const uint64_t capacities[N_LISTS] = {
		[MINE] = spri_max_u64(sum, stream), /* takes turns with sum, and that with found */
		[SUM] = spri_max_u64(sum, stream),
		[CHUNK] = spri_min_u64(keep, spri_transfer_room(op, op->list_codec)),
		[TRIMMED] = cut,
		[ERRORS] = rounded,
		[ADOPTED] = adopted,
		[ADOPTED_NEXT] = adopted,
		[FOUND] = stream,
		[LATE] = op->streamed ? keep : 0,
	};
	struct spri_list lists[N_LISTS];
	struct spri_tournament *t;

	if (spri_op_failed(op))
		return 0; /* nothing will be merged */
	t = spri_sparse_alloc(sizeof *t, capacities, N_LISTS, lists);
	if (!t)
		return spri_trace(-ENOMEM);
	op->state = t;
	t->keep = keep;
	t->mine = lists[MINE];
	t->sum = lists[SUM];
	t->chunk = lists[CHUNK];
	t->trimmed = lists[TRIMMED];
	t->errors = lists[ERRORS];
	t->adopted = lists[ADOPTED];
	t->adopted_next = lists[ADOPTED_NEXT];
	t->found = lists[FOUND];
	t->late = lists[LATE];
	if (!op->streamed)
		take_mine(op);
	return 0;
}

/* Mine, when it comes by way of a stream. Returns 0 or SPRI_AGAIN: it is still being selected. */
static int await_mine(struct spri_op *op)
{
	struct spri_tournament *t = op->state;

	if (!t || t->has_mine || spri_op_failed(op))
		return 0;
	if (op->stream->open) {
		op->waiting_for = op->comm->rank;
		return SPRI_AGAIN;
	}
	take_mine(op);
	return 0;
}

void spri_tournament_finish(struct spri_op *op)
{
	spri_free(op->state);
	op->state = NULL;
	op->sum = (struct spri_list){0};
	op->adopted = (struct spri_list){0};
}

int spri_tournament_send(struct spri_op *op, uint32_t to, uint32_t round)
{
	const struct spri_tournament *t = op->state;
	struct spri_block block = {.id = op->comm->rank};

	if (!t)
		return spri_transfer_send(op, to, round, op->list_codec, NULL, 0,
					  &op->cursor.sending);
	block.index = t->mine.index;
	block.value = t->mine.value;
	block.count = t->mine.count;
	return spri_transfer_send(op, to, round, op->list_codec, &block, 1, &op->cursor.sending);
}

/* sum += the next n entries of mine ⊤ theirs. */
static void merge_some(struct spri_op *op, uint64_t n, const struct spri_list *theirs,
		       bool ours_first)
{
	struct spri_tournament *t = op->state;
	const uint64_t *index = t->mine.index + t->merged;
	const float *value = t->mine.value + t->merged;
	struct spri_finite finite = SPRI_FINITE_NONE;

	if (ours_first)
		spri_merge(&t->sum, index, value, n, theirs->index, theirs->value, theirs->count,
			   op->policy, &finite);
	else
		spri_merge(&t->sum, theirs->index, theirs->value, theirs->count, index, value, n,
			   op->policy, &finite);
	t->merged += n;
	spri_op_report_finite(op, &finite, SPRI_NO_RANK);
}

/* One chunk of the partner's list, and what it reaches of ours. */
static int merge_chunk(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk,
		       bool ours_first)
{
	struct spri_tournament *t = op->state;
	struct spri_receiving *receiving = &op->cursor.receiving;
	uint64_t start_ns = spri_op_now(op);
	int r;

	if (chunk->count > t->chunk.capacity || chunk->count > t->keep - receiving->entries) {
		spri_text_set(&op->text, "rank %u sent a list of more than %llu entries", from,
			      (unsigned long long)t->keep);
		return spri_trace(SPR_EPROTOCOL);
	}
	r = spri_sparse_decode(op, from, chunk, t->chunk.index, t->chunk.value,
			       receiving->any ? receiving->after : SPRI_NO_INDEX);
	if (r < 0)
		return r;
	t->chunk.count = chunk->count;
	if (chunk->count > 0) {
		receiving->any = true;
		receiving->after = t->chunk.index[chunk->count - 1];
		receiving->entries += chunk->count;
		merge_some(op,
			   spri_sparse_reach(t->mine.index + t->merged, t->mine.count - t->merged,
					     receiving->after),
			   &t->chunk, ours_first);
	}
	if (chunk->flags & SPRI_CHUNK_LAST_OF_ROUND) {
		t->chunk.count = 0;
		merge_some(op, t->mine.count - t->merged, &t->chunk, ours_first);
	}
	spri_op_merged(op, start_ns);
	return 0;
}

int spri_tournament_merge(struct spri_op *op, uint32_t from, uint32_t round, bool ours_first)
{
	struct spri_chunk chunk;
	int r = await_mine(op);

	if (r)
		return r;
	while (!op->cursor.receiving.done) {
		r = spri_transfer_receive(op, from, round, &chunk);
		if (r)
			return r;
		if (!spri_op_failed(op))
			r = merge_chunk(op, from, &chunk, ours_first);
		spri_transfer_release(op, from);
		if (r < 0)
			return r;
		op->cursor.receiving.done = chunk.flags & SPRI_CHUNK_LAST_OF_ROUND;
	}
	return 0;
}

/* The lists of a stream as one, in found. */
static void join_late(struct spri_tournament *t)
{
	struct spri_finite ignored = SPRI_FINITE_NONE; /* no index is in both: nothing is added */

	if (t->late.count == 0)
		return;
	t->sum.count = 0;
	spri_merge(&t->sum, t->found.index, t->found.value, t->found.count, t->late.index,
		   t->late.value, t->late.count, SPR_NONFINITE_PROPAGATE, &ignored);
	spri_sparse_swap(&t->found, &t->sum);
}

int spri_tournament_merge_stream(struct spri_op *op, uint32_t from, uint32_t round, bool ours_first)
{
	struct spri_tournament *t = op->state;
	struct spri_list none = {0}, *found = t ? &t->found : &none, *late = t ? &t->late : &none;
	uint64_t start_ns;
	int r = spri_stream_receive(op, from, round, found, late);

	if (r == 0)
		r = await_mine(op);
	if (r || !t || t->joined || spri_op_failed(op))
		return r;
	start_ns = spri_op_now(op);
	join_late(t);
	t->sum.count = 0;
	merge_some(op, t->mine.count, &t->found, ours_first);
	t->joined = true; /* called again while this rank is still sending */
	spri_op_merged(op, start_ns);
	return 0;
}

int spri_tournament_take(struct spri_op *op, uint32_t from, uint32_t round)
{
	struct spri_tournament *t = op->state;
	struct spri_chunk chunk;
	int r;

	while (!op->cursor.receiving.done) {
		r = spri_transfer_receive(op, from, round, &chunk);
		if (r)
			return r;
		if (!spri_op_failed(op)) {
			struct spri_list result = t->sum; /* of k entries at most */

			result.capacity = t->keep;
			r = spri_sparse_take(op, from, &chunk, &result);
			t->sum.count = result.count;
		}
		spri_transfer_release(op, from);
		if (r < 0)
			return r;
		op->cursor.receiving.done = chunk.flags & SPRI_CHUNK_LAST_OF_ROUND;
	}
	if (t && !spri_op_failed(op)) {
		spri_sparse_swap(&t->mine, &t->sum);
		t->has_mine = true; /* and what this rank sent is not asked for any more */
	}
	return 0;
}

/* Keeps of what was taken off the entries that fall to this rank. */
static void choose(const struct spri_bracket *bracket, uint32_t d, struct spri_list *off)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < off->count; i++) {
		if (spri_bracket_adopter(bracket, d, off->index[i]) != bracket->rank)
			continue;
		off->index[kept] = off->index[i];
		off->value[kept++] = off->value[i];
	}
	off->count = kept;
}

static void adopt(struct spri_op *op, const struct spri_list *off)
{
	struct spri_tournament *t = op->state;
	struct spri_finite ignored = SPRI_FINITE_NONE;
	bool drop = op->policy == SPR_NONFINITE_DROP;

	if (off->count == 0)
		return;
	t->adopted_next.count = 0;
	spri_merge(&t->adopted_next, t->adopted.index, t->adopted.value, t->adopted.count,
		   off->index, off->value, off->count,
		   drop ? SPR_NONFINITE_DROP : SPR_NONFINITE_PROPAGATE, &ignored);
	spri_sparse_swap(&t->adopted, &t->adopted_next);
}

void spri_tournament_cut(struct spri_op *op, const struct spri_bracket *bracket, uint32_t d)
{
	struct spri_tournament *t = op->state;
	uint64_t start_ns;

	if (spri_op_failed(op))
		return;
	start_ns = spri_op_now(op);
	t->trimmed.count = 0;
	spri_trim(&t->sum, t->keep, &t->trimmed);
	t->errors.count = 0;
	spri_round(&t->sum, op->dtype, &t->errors);
	if (bracket)
		choose(bracket, d, &t->trimmed);
	if (bracket)
		choose(bracket, d, &t->errors);
	adopt(op, &t->trimmed);
	adopt(op, &t->errors);
	spri_sparse_swap(&t->mine, &t->sum);
	spri_op_merged(op, start_ns);
}

int spri_tournament_join(struct spri_op *op, uint32_t from, uint32_t round)
{
	int r = op->streamed ? spri_tournament_merge_stream(op, from, round, true)
			     : spri_tournament_merge(op, from, round, true);

	if (r == 0)
		spri_tournament_cut(op, NULL, 0);
	return r;
}

int spri_tournament_fold(struct spri_op *op, const struct spri_bracket *b)
{
	int r = 0;

	if (b->folds)
		r = b->active	   ? spri_tournament_join(op, b->fold_peer, 0)
		    : op->streamed ? spri_stream_send(op, b->fold_peer, 0)
				   : spri_tournament_send(op, b->fold_peer, 0);
	if (r == 0)
		op->stats.rounds += b->folds;
	return r;
}

int spri_tournament_unfold(struct spri_op *op, const struct spri_bracket *b, uint32_t round)
{
	int r = 0;

	if (b->folds)
		r = b->active ? spri_tournament_send(op, b->fold_peer, round)
			      : spri_tournament_take(op, b->fold_peer, round);
	if (r == 0)
		r = await_mine(op); /* P = 1 */
	if (r)
		return r;
	op->stats.rounds += b->folds;
	spri_tournament_end(op);
	return 0;
}

void spri_tournament_next(struct spri_op *op, uint32_t phase, uint32_t round)
{
	struct spri_tournament *t = op->state;

	op->cursor = (struct spri_cursor){.phase = phase, .round = round};
	if (t) {
		t->merged = 0;
		t->sum.count = 0;
		t->found.count = 0;
		t->late.count = 0;
		t->joined = false;
	}
}

void spri_tournament_end(struct spri_op *op)
{
	struct spri_tournament *t = op->state;

	if (!t || spri_op_failed(op))
		return;
	spri_trim(&t->mine, t->keep, NULL);
	op->sum = t->mine;
	op->adopted = t->adopted;
}
