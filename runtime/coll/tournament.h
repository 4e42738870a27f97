/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What gtopk and gtopk_tree share: the list that a rank plays with, and the four moves of a bout. A
 * move stands for one message of one round; it is called until it returns 0, and works without
 * state, too (failed mode: only the ends of messages move).
 *
 * One merge ⊤ of a round: the partner's list arrives chunk by chunk, and each chunk is merged with
 * the part of ours that it reaches; after the last one the sum is cut to the k largest. What the
 * cut takes off is *adopted* by exactly one of the ranks that made the same merge: so the inputs of
 * all ranks are the result plus what all ranks adopted.
 *
 * With 16-bit values on the wire each rank rounds its own list before it plays, and what a cut
 * leaves: so what is sent is exact, the result included, and the errors are adopted as what was cut
 * off is. A rank adopts those of its own list.
 */
#ifndef SPRI_TOURNAMENT_H
#define SPRI_TOURNAMENT_H

#include <coll/schedule.h>
#include <coll/sparse.h>

struct spri_tournament {
	uint64_t keep;		/* k, at most the vector's length */
	struct spri_list mine;	/* what this rank plays with */
	struct spri_list sum;	/* the merge under way, or the list that arrives instead of mine */
	uint64_t merged;	/* entries of mine that are in sum already */
	struct spri_list chunk; /* one decoded chunk */
	struct spri_list trimmed;      /* of this round */
	struct spri_list errors;       /* likewise: of rounding */
	struct spri_list found, late;  /* of a partner that streams */
	bool joined;		       /* they are merged with mine */
	bool has_mine;		       /* mine is there: a stream was closed */
	struct spri_list adopted;      /* up to now */
	struct spri_list adopted_next; /* being merged: adopted and more */
};

/* Makes op->state, for a rank that cuts at most n_cuts times. Returns 0 or -ENOMEM. */
int spri_tournament_start(struct spri_op *op, uint32_t n_cuts) SPRI_MUST;
void spri_tournament_finish(struct spri_op *op);

/* Move: sends mine. Returns 0, SPRI_AGAIN, negative. */
int spri_tournament_send(struct spri_op *op, uint32_t to, uint32_t round) SPRI_MUST;
/*
 * Move: merges the partner's list with mine into sum, ours as the left operand when `ours_first`.
 * Returns 0 (cut next), SPRI_AGAIN, negative.
 */
int spri_tournament_merge(struct spri_op *op, uint32_t from, uint32_t round,
			  bool ours_first) SPRI_MUST;
/*
 * The same when the partner streams. Both wait until this rank's own entries are selected.
 */
int spri_tournament_merge_stream(struct spri_op *op, uint32_t from, uint32_t round,
				 bool ours_first) SPRI_MUST;
/* Move: takes the partner's list instead of mine. Returns 0, SPRI_AGAIN, negative. */
int spri_tournament_take(struct spri_op *op, uint32_t from, uint32_t round) SPRI_MUST;
/*
 * After a merge: cuts sum to k, and rounds it; it is then mine. What is taken off is adopted: all
 * of it when bracket is NULL, else what falls to this rank in round d of the butterfly.
 */
void spri_tournament_cut(struct spri_op *op, const struct spri_bracket *bracket, uint32_t d);

/*
 * Move: merges the partner's list, ours first, cuts, and adopts all that is cut off. Returns as
 * merge.
 */
int spri_tournament_join(struct spri_op *op, uint32_t from, uint32_t round) SPRI_MUST;
/*
 * Round 0 of both algorithms: folded ranks send, their partners join. Returns 0, SPRI_AGAIN,
 * negative.
 */
int spri_tournament_fold(struct spri_op *op, const struct spri_bracket *b) SPRI_MUST;
/* Their last round: the partners send the result back; then mine is the result. Returns as fold. */
int spri_tournament_unfold(struct spri_op *op, const struct spri_bracket *b,
			   uint32_t round) SPRI_MUST;

/* After a round: the cursor stands at the beginning of the next message. */
void spri_tournament_next(struct spri_op *op, uint32_t phase, uint32_t round);
/* After the last: mine is the result. */
void spri_tournament_end(struct spri_op *op);

#endif
