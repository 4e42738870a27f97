/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A world for tests of algorithms: virtual ranks that make the same calls through the public API,
 * and an oracle that computes the same results in the plainest way. It shares no code with the
 * library's layers.
 *
 *     struct world *w = world_create(5);        5 ranks; change what should differ: w->landing = …
 *     struct call *c = world_call(w, "gtopk", length, k); call_draw(c, n, seed);
 *     every rank's input world_run(w); c->ranks[i].status, .sum, .adopted, .out  what each rank got
 *     world_destroy(w);
 */
#ifndef COLL_WORLD_H
#define COLL_WORLD_H

#include <sparring/sparring.h>

#include <stdbool.h>
#include <stdlib.h>

enum { WORLD_CALLS = 16 };

/* Memory of the test's own: there is some, or the test ends. */
static inline void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

/* A sparse vector, or a set of pairs in any order. Owned arrays. */
struct pairs {
	uint64_t count, capacity;
	uint64_t *index;
	float *value;
};

void pairs_add(struct pairs *p, uint64_t index, float value);
void pairs_fini(struct pairs *p);
/* All of them added up by index, ascending, without zeros. */
void pairs_sum(struct pairs *out, const struct pairs *const *parts, unsigned n);
/* The k largest |value| of a sum stay (ties: the smaller index). */
void pairs_cut(struct pairs *p, uint64_t k);
/* Values become those that the wire's type has; zeros leave. */
void pairs_round(struct pairs *p, enum spr_dtype wire);
bool pairs_equal(const struct pairs *a, const struct pairs *b);

/* One rank's part in a call. */
struct call_rank {
	/* in */
	struct pairs in;      /* sparse; masked: the mask, whose values are not used */
	float *dense;	      /* dense, masked: count values */
	uint64_t k, count;    /* as the call's, unless a test changes them */
	uint64_t step;	      /* sparse, masked */
	unsigned other_wire;  /* sparse: added to the call's, so that ranks differ */
	unsigned other_codec; /* likewise */
	bool in_place;	      /* dense: out = in */
	long fail_allocation; /* the n-th of the start fails; −1: none */
	/* out */
	int started, status;
	char text[400];
	struct pairs sum, adopted;
	float *out; /* dense */
	struct spr_request_stats stats;
};

struct call {
	const char *algo;
	uint64_t count; /* elements; the length of sparse vectors */
	uint64_t k;
	enum spr_nonfinite nonfinite;
	enum spr_dtype wire;
	enum spr_codec codec;
	int broadcasters; /* masked */
	uint64_t seed;	  /* masked */
	int n_ranks;
	struct call_rank *ranks;
};

/* What a sparse call is to give, from what the ranks put in. */
void call_sparse_sum(const struct call *c, struct pairs *out);

struct world {
	int n_ranks;
	uint64_t seed, jitter_ns, timeout_ns;
	size_t landing; /* 0: 8 KiB per partner, the least there is */
	bool at_once;	/* all calls are started before the first is waited for */
	int killed;	/* −1, or the rank that is killed before call `kill_before` */
	unsigned kill_before;
	struct call calls[WORLD_CALLS];
	unsigned n_calls;
	int *statuses; /* n_ranks: of opening and joining */
	int *lost;     /* n_ranks: spr_comm_lost_rank at the end */
};

struct world *world_create(int n_ranks);
void world_destroy(struct world *w);
struct call *world_call(struct world *w, const char *algo, uint64_t count, uint64_t k);
/*
 * Exact inputs: whole numbers times 2^-10. Sparse, masked: about n entries per rank, that meet.
 * n = 0: none.
 */
void call_draw(struct call *c, uint64_t n, uint64_t seed);
/* Floats of mixed size, whose sums round. */
void call_draw_rough(struct call *c, uint64_t n, uint64_t seed);
/* Of a masked call: the elements that are summed, with the sums, zeros included. */
void call_masked_sum(const struct call *c, struct pairs *out);
/* The step of a sparse or masked call, on all ranks. */
void call_set_step(struct call *c, uint64_t step);
/* Makes all calls on all ranks. Asserts that the simulation itself ran. */
void world_run(struct world *w);

/* Asserts that every rank of every call got what the oracle gets, and that no mass is lost. */
void world_check(const struct world *w);
/* Asserts that every rank ended call c with this status and the same text; returns it. */
const char *call_failed_alike(const struct call *c, int status);

#endif
