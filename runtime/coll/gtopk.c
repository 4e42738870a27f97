/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * gtopk: the tournament as a butterfly, in which all active ranks play every round (half the
 * latency of gtopk_tree, the same winner). Bracket and positions: schedule.h. With P' = 2^⌊log2 P⌋:
 *
 *   rounds log2 P' (+ 2 when P is no power of two), bytes per rank rounds · k · 8
 *
 *   1. fold: each folded rank 2j + 1 sends its list to 2j, which merges, cuts, and adopts what it
 *      cut off
 *   2. round d = 0 … log2 P' − 1: exchange lists with the position that differs in bit d; both
 *      merge (the lower position's list on the left) and cut, so all 2^(d+1) ranks of the group
 *      hold the same list; what they cut off is adopted by one of them, chosen by a hash of the
 *      index
 *   3. unfold: 2j sends the result to 2j + 1
 *
 * On the wire these are rounds 0, 1 + d and 1 + log2 P'.
 *
 * Failures: after round d a whole group has the same outcome, because its ranks made the same
 * merges; so after the last one all active ranks have, and the folded ones are told.
 */
#include <coll/tournament.h>

enum { FOLD, PLAY, UNFOLD, END };

static unsigned gtopk_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out)
{
	struct spri_bracket b = spri_bracket(rank, n_ranks);
	unsigned n = 0;

	if (b.folds)
		out[n++] = b.fold_peer;
	for (uint32_t d = 0; b.active && d < b.n_rounds; d++)
		out[n++] = spri_bracket_partner(&b, d);
	return n;
}

static double gtopk_rounds(uint32_t n_ranks)
{
	struct spri_bracket b = spri_bracket(0, n_ranks);

	return b.n_rounds + (b.n_extra > 0 ? 2 : 0);
}

static double gtopk_bytes(uint32_t n_ranks, double count, double k)
{
	(void)count;
	return gtopk_rounds(n_ranks) * k * 8;
}

static int gtopk_start(struct spri_op *op)
{
	struct spri_bracket b = spri_bracket(op->comm->rank, op->comm->n_ranks);

	return spri_tournament_start(op, b.active ? b.n_rounds + b.folds : 0);
}

static int fold(struct spri_op *op, const struct spri_bracket *b)
{
	int r = spri_tournament_fold(op, b);

	if (r == 0)
		spri_tournament_next(op, b->active && b->n_rounds > 0 ? PLAY : UNFOLD, 0);
	return r;
}

static int play(struct spri_op *op, const struct spri_bracket *b)
{
	uint32_t d = op->cursor.round, partner = spri_bracket_partner(b, d);
	bool first = op->streamed && d == 0, ours_first = !(b->position & 1u << d);
	int sent, merged;

	/* a rank that folded has a merged list by now, others have what they are selecting */
	sent = first && !b->folds ? spri_stream_send(op, partner, 1 + d)
				  : spri_tournament_send(op, partner, 1 + d);
	if (sent < 0)
		return sent;
	if (first && !spri_bracket(partner, b->n_ranks).folds)
		merged = spri_tournament_merge_stream(op, partner, 1 + d, ours_first);
	else
		merged = spri_tournament_merge(op, partner, 1 + d, ours_first);
	if (sent || merged)
		return merged ? merged : sent;
	spri_tournament_cut(op, b, d);
	op->stats.rounds++;
	spri_tournament_next(op, d + 1 < b->n_rounds ? PLAY : UNFOLD, d + 1);
	return 0;
}

static int unfold(struct spri_op *op, const struct spri_bracket *b)
{
	int r = spri_tournament_unfold(op, b, 1 + b->n_rounds);

	if (r == 0)
		spri_tournament_next(op, END, 0);
	return r;
}

static int gtopk_step(struct spri_op *op)
{
	static int (*const phases[END])(struct spri_op *,
					const struct spri_bracket *) = {fold, play, unfold};
	struct spri_bracket b = spri_bracket(op->comm->rank, op->comm->n_ranks);
	int r = 0;

	while (r == 0 && op->cursor.phase != END)
		r = phases[op->cursor.phase](op, &b);
	return r == 0 && !spri_transfer_sent(op) ? SPRI_AGAIN : r;
}

const struct spri_algo spri_algo_gtopk = {
	4,
	"gtopk",
	"global top-k as a butterfly: every rank plays every round, half the latency of the tree",
	SPRI_ALGO_SPARSE,
	gtopk_partners,
	gtopk_rounds,
	gtopk_bytes,
	gtopk_start,
	gtopk_step,
	spri_tournament_finish,
	true,
};
