/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * All-reduce, on dense and on sparse vectors, without state. exchange.h puts the training step
 * (residual, selection, schedule) on top.
 *
 * For a fixed algorithm the result has the same bits on every rank, transport, kernel variant and
 * run: additions happen in an order fixed by the ranks, and the order of entries is total (larger
 * |value| first, by its bits; then smaller index).
 */
#ifndef SPARRING_COLL_H
#define SPARRING_COLL_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct spr_allreduce_args {
	size_t size;	  /* sizeof(struct spr_allreduce_args) */
	const char *algo; /* "dense_ring" (NULL means it) */
	const void *in;	  /* count elements; lent until the request is done */
	void *out; /* count elements, may equal in; lent until done; undefined after a failure */
	uint64_t count; /* elements, 0 allowed */
	enum spr_dtype dtype;
	enum spr_nonfinite nonfinite;
	/*
	 * Of in and out. SPR_MEMORY_CUDA: they are those of GPU `device` (SPR_GPU(number); 0: this
	 * rank's); `stream` (a CUstream or cudaStream_t; NULL: the default stream) is the caller's:
	 * what it was given before the call is waited for, and what it is given after the request
	 * is done finds the sum. The vector is summed while it is still being copied.
	 */
	enum spr_memory_kind memory;
	int device;
	void *stream;
};

/*
 * Starts the sum of a dense vector over all ranks; collective. Every rank passes the same algo,
 * count, dtype and policy.
 * Steps 2(P−1), bytes per rank 2(P−1)/P · count · 4 (dense_ring).
 * Ownership: *out_request is given: spr_request_destroy. Blocks: no, but while a list or a mask is
 * copied from a GPU.
 * Returns: 0 (the outcome comes with the request, argument errors that other ranks must hear of
 * included); SPR_EARGUMENT when nothing could be started (NULL pointers, unknown algorithm),
 * negative errno.
 */
SPR_API int spr_allreduce(struct spr_comm *comm, const struct spr_allreduce_args *args,
			  struct spr_request **out_request);

struct spr_allreduce_sparse_args {
	size_t size; /* sizeof(struct spr_allreduce_sparse_args) */
	/* "gtopk" (NULL means it), "gtopk_tree", "topk_allgather", "prune_ring" */
	const char *algo;
	struct spr_sparse in; /* this rank's entries, at most k; arrays lent until done */
	/* gtopk, gtopk_tree, prune_ring: entries to keep; topk_allgather: most of one rank */
	uint64_t k;
	uint64_t length; /* all indices are below it */
	enum spr_nonfinite nonfinite;
	enum spr_dtype wire;  /* of values on the wire; what rounding takes off is in `adopted` */
	enum spr_codec codec; /* of indices on the wire */
	uint64_t step;	      /* prune_ring: rotates the blocks' quotas */
	/* of the arrays of `in`, as in spr_allreduce_args; results are in host memory */
	enum spr_memory_kind memory;
	int device;
	void *stream;
};

/*
 * Starts the sum of sparse vectors over all ranks; collective. gtopk and gtopk_tree keep the k
 * largest of every merged pair (exactly k, or all non-zeros when fewer); topk_allgather keeps
 * all; prune_ring keeps at most k, a share of about k/P in each of P equal blocks of the index
 * range. The result is read with spr_allreduce_sparse_result once the request is done. Steps and
 * bytes per rank (entry = 8 bytes): gtopk log2 P · k entries, two more rounds when P is no power
 * of two; gtopk_tree 2⌈log2 P⌉ rounds; topk_allgather ⌈log2 P⌉ rounds, (P−1)·k entries;
 * prune_ring 2(P−1) rounds, 2(P−1)/P · k entries.
 * Ownership, Blocks, Returns: as spr_allreduce.
 */
SPR_API int spr_allreduce_sparse(struct spr_comm *comm,
				 const struct spr_allreduce_sparse_args *args,
				 struct spr_request **out_request);

struct spr_allreduce_masked_args {
	size_t size;	  /* sizeof(struct spr_allreduce_masked_args) */
	const char *algo; /* "iwp_ring" (NULL means it) */
	const float *in;  /* count elements; lent until the request is done */
	uint64_t count;	  /* elements, 0 allowed */
	/*
	 * The indices that this rank proposes, strictly ascending, n_mask of them; lent until done.
	 * They count only when the rank is one of the broadcasters.
	 */
	const uint64_t *mask;
	uint64_t n_mask;
	int broadcasters;    /* r: ranks that propose, 1 to P; 0: 1 */
	uint64_t seed, step; /* draw them: spr_mask_broadcasters */
	enum spr_nonfinite nonfinite;
	enum spr_dtype wire; /* of values on the wire; what rounding takes off is in `adopted` */
	/* of in and mask, as in spr_allreduce_args; results are in host memory */
	enum spr_memory_kind memory;
	int device;
	void *stream;
};

/*
 * Starts the sum, over all ranks, of the elements that any of r ranks proposes; collective. The
 * broadcasters' masks go to every rank, as packed gaps or as a bitmap, whichever is smaller; their
 * union M is then summed by a ring, values alone. When M has more than half of the elements all of
 * them are summed. The result is read with spr_allreduce_sparse_result: every index of M in order,
 * with its sum, zeros included.
 * Steps ⌈log2 P⌉ + 2(P−1), bytes per rank about r·|mask| + 2(P−1)/P · |M| · value.
 * Source: Cheng & Xu 2019 (arXiv 1901.01544); where it is silent, docs/architecture.md.
 * Ownership, Blocks, Returns: as spr_allreduce.
 */
SPR_API int spr_allreduce_masked(struct spr_comm *comm,
				 const struct spr_allreduce_masked_args *args,
				 struct spr_request **out_request);

/*
 * The ranks that broadcast their masks in a step: r different ones of n_ranks, ascending, written
 * to ranks. A pure function (Philox, keyed by the seed), the same everywhere.
 * Returns: 0; SPR_EARGUMENT (n_ranks < 1, r not in 1 to n_ranks).
 */
SPR_API int spr_mask_broadcasters(int n_ranks, int r, uint64_t seed, uint64_t step, int *ranks);

/*
 * The result of a finished sparse or masked all-reduce: `sum` is the undivided sum, the same on
 * every rank; `adopted` (may be NULL) are the partial sums that were trimmed, and the rounding
 * errors, that fell to this rank: over all ranks, inputs = sum + adopted. Arrays are borrowed from
 * the request.
 * Returns: 0; SPR_EBUSY while in flight; the outcome when it failed.
 */
SPR_API int spr_allreduce_sparse_result(const struct spr_request *request, struct spr_sparse *sum,
					struct spr_sparse *adopted);

/* An algorithm, as spr_info and the benchmarks list it. */
struct spr_algo_info {
	const char *name;
	const char *about; /* one sentence */
	int sparse;	   /* 0: spr_allreduce; 1: spr_allreduce_sparse; 2: spr_allreduce_masked */
};

/* The i-th algorithm. Returns: 0; SPR_EARGUMENT past the last. */
SPR_API int spr_algo_info(unsigned i, struct spr_algo_info *info);

/*
 * The cost formula of an algorithm for P ranks: message rounds on the longest path (each costs α)
 * and bytes that the busiest rank sends or receives one after the other (each costs β): time =
 * rounds·α + bytes·β. `count` elements (dense) and `k` entries (sparse). Source: algorithms of
 * Shi et al. 2019 (ICDCS), Thakur et al. 2005.
 * Returns: 0; SPR_EARGUMENT for an unknown algorithm.
 */
SPR_API int spr_algo_cost(const char *algo, int n_ranks, uint64_t count, uint64_t k, double *rounds,
			  double *bytes);

#ifdef __cplusplus
}
#endif
#endif
