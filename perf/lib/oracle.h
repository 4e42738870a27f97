/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What every all-reduce must give, computed by one process in the plainest way. Shares no code
 * with the runtime or the kernels, so that an error of theirs cannot hide here.
 *
 * Exact inputs are whole numbers from −4095 to 4095, times 2^-10, drawn from (seed, rank, index):
 * sums over up to 4096 ranks fit into 24 bits, so they are exact in any order, and "wrong" means
 * different, without tolerance. One element in 64 is large on every rank with signs of its own,
 * so that indices meet, values tie, and sums cross zero; one in sixteen is zero. Random inputs
 * are floats of mixed size; no oracle is needed for them, only digests.
 */
#ifndef PERF_ORACLE_H
#define PERF_ORACLE_H

#include <internal/compiler.h>

/*
 * The elements first … first + n − 1 of a rank's vector. Pure: whatever the pieces, the vector is
 * the same.
 */
void perf_input_exact(uint64_t seed, int rank, uint64_t first, uint64_t n, float *out);
void perf_input_random(uint64_t seed, int rank, uint64_t first, uint64_t n, float *out);

/* A sparse vector: pairs ascending by index, no zeros. Owned arrays. */
struct perf_list {
	uint64_t count;
	uint64_t *index;
	float *value;
};

void perf_list_fini(struct perf_list *list); /* accepts a zeroed one */

/*
 * The k largest of a dense vector in the total order: larger |v| first, then smaller index; zeros
 * are never entries. Returns 0 or -ENOMEM.
 */
int perf_list_topk(const float *values, uint64_t count, uint64_t k,
		   struct perf_list *out) SPRI_MUST;

/* The k largest of a + b; sums that are zero are left out. Returns 0 or -ENOMEM. */
int perf_list_merge(const struct perf_list *a, const struct perf_list *b, uint64_t k,
		    struct perf_list *out) SPRI_MUST;

struct perf_oracle {
	int n_ranks;
	uint64_t count;		/* elements */
	uint64_t k;		/* entries each rank selects, and gtopk keeps */
	float *dense;		/* count: the sum over the ranks */
	struct perf_list *tops; /* n_ranks: each rank's top k */
};

/*
 * Draws every rank's exact input, one at a time. Memory: 4·count, 24·count while it works, and
 * 12·k per rank. Returns 0 or -ENOMEM.
 */
int perf_oracle_init(struct perf_oracle *oracle, uint64_t seed, int n_ranks, uint64_t count,
		     uint64_t k) SPRI_MUST;
void perf_oracle_fini(struct perf_oracle *oracle); /* accepts a zeroed one */

/* The sum of every rank's top k, all of it. Returns 0 or -ENOMEM. */
int perf_oracle_topk_allgather(const struct perf_oracle *oracle, struct perf_list *out) SPRI_MUST;

/*
 * The winner of the tournament: with P' = 2^floor(log2 P), ranks 2j and 2j+1 merge first for j <
 * P − P'; then the P' that play (the merged ones, then the others) merge at distance 1, 2, 4, …
 * in the order of their numbers. Returns 0 or -ENOMEM.
 */
int perf_oracle_gtopk(const struct perf_oracle *oracle, struct perf_list *out) SPRI_MUST;

/*
 * The pruned ring: the vector is cut into P blocks, the first ones longer by one; block b begins as
 * the entries of rank b, then ranks b+1, b+2, … (mod P) add theirs, and after each the k / P
 * largest stay, one more where (b + step) mod P < k mod P. With k of count or more nothing goes.
 * Returns 0 or -ENOMEM.
 */
int perf_oracle_prune_ring(const struct perf_oracle *oracle, uint64_t step,
			   struct perf_list *out) SPRI_MUST;

/*
 * The sum of every rank's whole vector at the indices that any of n ranks has in its top k, zeros
 * included; at all indices when those are more than half. Returns 0 or -ENOMEM.
 */
int perf_oracle_masked(const struct perf_oracle *oracle, const int *ranks, int n,
		       struct perf_list *out) SPRI_MUST;

/*
 * 64 bits that are linear in the values: what all ranks bring is what comes out plus what ranks
 * keep when their masses add up alike (mod 2^64), but for an accident of 1 in 2^63. Exact for
 * multiples of 2^-24 below 2^38, which exact inputs, their sums and rounding errors are.
 */
uint64_t perf_mass(const uint64_t *index, const float *value, uint64_t count);

/* 64 bits that depend on every index and every bit of every value; `digest` 0 to begin. */
uint64_t perf_digest_dense(uint64_t digest, const float *values, uint64_t count);
uint64_t perf_digest_sparse(uint64_t digest, const uint64_t *index, const float *value,
			    uint64_t count);

/* Elements that differ (by bits; a zero of either sign is zero). */
uint64_t perf_wrong_dense(const float *got, const float *want, uint64_t count);
/* Entries missing, superfluous or different. */
uint64_t perf_wrong_sparse(const uint64_t *index, const float *value, uint64_t count,
			   const struct perf_list *want);

#endif
