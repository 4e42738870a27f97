/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * gtopk_tree: the tournament of Shi et al. 2019: rounds to a root, then a broadcast back along the
 * same tree. Bracket and positions: schedule.h. With P' = 2^⌊log2 P⌋:
 *
 *   rounds 2⌈log2 P⌉, bytes of the busiest rank 2⌈log2 P⌉ · k · 8
 *
 *   1. fold: each folded rank 2j + 1 sends its list to 2j, which merges and cuts
 *   2. up, round d = 0 … log2 P' − 1: position p with the low d bits zero merges and cuts the list
 *      of p + 2^d, or sends its own to p − 2^d when bit d is set, and has played
 *   3. down, the same rounds backwards: who sent its list receives the result from where it went,
 *      and passes it on to whom it took from
 *   4. unfold: 2j sends the result to 2j + 1
 *
 * Who merges adopts what it cut off. On the wire these are rounds 0, 1 + d, 2 log2 P' − d and 1 + 2
 * log2 P'.
 *
 * Failures: whatever a rank finds goes up with its list, and what the root knows comes back to all.
 */
#include <coll/tournament.h>

enum { FOLD, UP, DOWN, UNFOLD, END };

/* The round in which a position's list goes up: its lowest set bit; all rounds for the root. */
static uint32_t level(const struct spri_bracket *b)
{
	return b->position ? (uint32_t)__builtin_ctz(b->position) : b->n_rounds;
}

/* Where it goes. */
static uint32_t parent(const struct spri_bracket *b)
{
	return spri_bracket_rank(b, b->position - (1u << level(b)));
}

/* Whose list comes in round d < level. */
static uint32_t child(const struct spri_bracket *b, uint32_t d)
{
	return spri_bracket_rank(b, b->position + (1u << d));
}

static unsigned tree_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out)
{
	struct spri_bracket b = spri_bracket(rank, n_ranks);
	unsigned n = 0;

	if (b.folds)
		out[n++] = b.fold_peer;
	if (!b.active)
		return n;
	for (uint32_t d = 0; d < level(&b); d++)
		out[n++] = child(&b, d);
	if (b.position)
		out[n++] = parent(&b);
	return n;
}

static double tree_rounds(uint32_t n_ranks)
{
	return 2.0 * spri_ceil_log2(n_ranks);
}

static double tree_bytes(uint32_t n_ranks, double count, double k)
{
	(void)count;
	return tree_rounds(n_ranks) * k * 8;
}

static int tree_start(struct spri_op *op)
{
	struct spri_bracket b = spri_bracket(op->comm->rank, op->comm->n_ranks);

	return spri_tournament_start(op, b.active ? level(&b) + b.folds : 0);
}

static int fold(struct spri_op *op, const struct spri_bracket *b)
{
	int r = spri_tournament_fold(op, b);

	if (r == 0)
		spri_tournament_next(op, b->active ? UP : UNFOLD, 0);
	return r;
}

/* Round d of the way up, until the own list has gone up or, at the root, all rounds are played. */
static int up(struct spri_op *op, const struct spri_bracket *b)
{
	uint32_t d = op->cursor.round, top = level(b);
	int r;

	if (d > top || d == b->n_rounds) {
		spri_tournament_next(op, DOWN, 0);
		return 0;
	}
	r = d < top ? spri_tournament_join(op, child(b, d), 1 + d)
		    : spri_tournament_send(op, parent(b), 1 + d);
	if (r)
		return r;
	op->stats.rounds++;
	spri_tournament_next(op, UP, d + 1);
	return 0;
}

/*
 * Step 0 of the way down takes the result from the parent, step i passes it on to child level − i.
 */
static int down(struct spri_op *op, const struct spri_bracket *b)
{
	uint32_t i = op->cursor.round, top = level(b), wire_round = 2 * b->n_rounds - (top - i);
	int r = 0;

	if (i > top) {
		spri_tournament_next(op, UNFOLD, 0);
		return 0;
	}
	if (i > 0)
		r = spri_tournament_send(op, child(b, top - i), wire_round);
	else if (b->position)
		r = spri_tournament_take(op, parent(b), wire_round);
	if (r)
		return r;
	op->stats.rounds += i > 0 || b->position;
	spri_tournament_next(op, DOWN, i + 1);
	return 0;
}

static int unfold(struct spri_op *op, const struct spri_bracket *b)
{
	int r = spri_tournament_unfold(op, b, 1 + 2 * b->n_rounds);

	if (r == 0)
		spri_tournament_next(op, END, 0);
	return r;
}

static int tree_step(struct spri_op *op)
{
	static int (*const phases[END])(struct spri_op *,
					const struct spri_bracket *) = {fold, up, down, unfold};
	struct spri_bracket b = spri_bracket(op->comm->rank, op->comm->n_ranks);
	int r = 0;

	while (r == 0 && op->cursor.phase != END)
		r = phases[op->cursor.phase](op, &b);
	return r;
}

const struct spri_algo spri_algo_gtopk_tree = {
	3,
	"gtopk_tree",
	"global top-k as the paper's tournament: rounds to a root, then a broadcast",
	SPRI_ALGO_SPARSE,
	tree_partners,
	tree_rounds,
	tree_bytes,
	tree_start,
	tree_step,
	spri_tournament_finish,
};
