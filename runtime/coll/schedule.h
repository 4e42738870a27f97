/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Who talks to whom at which step: pure functions of (rank, P), shared by gtopk and gtopk_tree so
 * that both play the same bracket.
 *
 * The bracket: P' = 2^floor(log2 P) ranks are active. With E = P − P' extra ranks, the pairs (2j,
 * 2j + 1), j < E, merge first (fold): 2j is active, 2j + 1 is folded. Active ranks are numbered
 * by position: 2j has position j for j < E, rank r ≥ 2E has position r − E. Then round d = 0 …
 * log2 P' − 1 joins positions that differ in bit d. At the end 2j tells 2j + 1 the result
 * (unfold).
 */
#ifndef SPRI_SCHEDULE_H
#define SPRI_SCHEDULE_H

#include <internal/bits.h>

struct spri_bracket {
	uint32_t n_ranks, rank;
	uint32_t n_active;  /* P' */
	uint32_t n_extra;   /* E */
	uint32_t n_rounds;  /* log2 P' */
	bool active;	    /* this rank plays the rounds */
	bool folds;	    /* it is in one of the first E pairs */
	uint32_t fold_peer; /* the other of the pair, when folds */
	uint32_t position;  /* when active */
};

/* The rank at a position. */
static inline uint32_t spri_bracket_rank(const struct spri_bracket *b, uint32_t position)
{
	assert(position < b->n_active);
	return position < b->n_extra ? 2 * position : position + b->n_extra;
}

static inline struct spri_bracket spri_bracket(uint32_t rank, uint32_t n_ranks)
{
	struct spri_bracket b = {.n_ranks = n_ranks, .rank = rank};

	assert(rank < n_ranks);
	b.n_rounds = spri_floor_log2(n_ranks);
	b.n_active = 1u << b.n_rounds;
	b.n_extra = n_ranks - b.n_active;
	b.folds = rank < 2 * b.n_extra;
	b.active = !b.folds || rank % 2 == 0;
	b.fold_peer = b.folds ? rank ^ 1u : rank;
	b.position = b.folds ? rank / 2 : rank - b.n_extra;
	return b;
}

/* Butterfly: the partner's rank in round d. */
static inline uint32_t spri_bracket_partner(const struct spri_bracket *b, uint32_t d)
{
	assert(b->active && d < b->n_rounds);
	return spri_bracket_rank(b, b->position ^ 1u << d);
}

/*
 * Butterfly: the rank that adopts the trimmed entry `index` of round d: one of the 2^(d+1) that
 * made the merge.
 */
static inline uint32_t spri_bracket_adopter(const struct spri_bracket *b, uint32_t d,
					    uint64_t index)
{
	uint32_t group = 2u << d;
	uint32_t first = b->position & ~(group - 1);

	return spri_bracket_rank(
		b, first + (uint32_t)(spri_mix64(index + 0x9e3779b97f4a7c15u * (d + 1)) &
				      (group - 1)));
}

/* Ring: neighbours. */
static inline uint32_t spri_ring_next(uint32_t rank, uint32_t n_ranks)
{
	return rank + 1 == n_ranks ? 0 : rank + 1;
}
static inline uint32_t spri_ring_previous(uint32_t rank, uint32_t n_ranks)
{
	return rank == 0 ? n_ranks - 1 : rank - 1;
}

/*
 * Ring: first element of block b when n elements are cut into P blocks that differ by one at
 * most.
 */
static inline uint64_t spri_ring_offset(uint64_t n, uint32_t n_ranks, uint32_t b)
{
	return n / n_ranks * b + spri_min_u64(b, n % n_ranks);
}

/*
 * Ring: how many of k entries come from the blocks before b, when each block has k / P and one
 * more each those k mod P blocks that are, `step` further on (mod P), among the first: so the odd
 * ones go round with the step, and every block has its turn.
 */
static inline uint64_t spri_ring_quota_offset(uint64_t k, uint32_t n_ranks, uint64_t step,
					      uint32_t b)
{
	uint64_t odd = k % n_ranks, first = step % n_ranks, end = first + b;
	uint64_t n = spri_min_u64(odd, end) - spri_min_u64(odd, first);

	if (end > n_ranks) /* round the corner */
		n += spri_min_u64(odd, end - n_ranks);
	return k / n_ranks * b + n;
}

/*
 * Dissemination (Bruck): in round i, with d = 2^i < P, rank r holds the blocks of ranks r, r+1,
 * …, r+d−1 (mod P), sends the first min(d, P − d) of them to r − d and receives as many from r +
 * d: the blocks of r+d, …
 */
static inline uint32_t spri_bruck_to(uint32_t rank, uint32_t n_ranks, uint32_t d)
{
	return (rank + n_ranks - d) % n_ranks;
}
static inline uint32_t spri_bruck_from(uint32_t rank, uint32_t n_ranks, uint32_t d)
{
	return (uint32_t)(((uint64_t)rank + d) % n_ranks);
}
static inline uint32_t spri_bruck_blocks(uint32_t n_ranks, uint32_t d)
{
	return d < n_ranks - d ? d : n_ranks - d;
}

#endif
