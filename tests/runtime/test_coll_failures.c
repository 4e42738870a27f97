/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * All or nothing: whatever goes wrong on one rank, every rank ends with the same error and the same
 * text, or names the lost rank.
 */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coll_world.h"

static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17};
static const char *const algos[] = {"dense_ring",     "gtopk",	    "gtopk_tree",
				    "topk_allgather", "prune_ring", "iwp_ring"};
enum { N_RANKS = sizeof ranks / sizeof ranks[0], N_ALGOS = 6 };

/* Values, of which a mask chooses some. */
static bool is_masked(const struct call_rank *rank)
{
	return rank->dense && !rank->out;
}

/* The i-th element that will be looked at: of the list, of the vector, of one broadcaster's mask */
static float *element(const struct call *c, int r, uint64_t i, uint64_t *index)
{
	const struct call_rank *rank = &c->ranks[r];
	int broadcasters[17];

	if (!rank->dense) {
		*index = rank->in.index[i];
		return &rank->in.value[i];
	}
	*index = i;
	if (is_masked(rank)) {
		cr_assert_eq(spr_mask_broadcasters(c->n_ranks, c->broadcasters, c->seed, rank->step,
						   broadcasters),
			     0);
		*index = c->ranks[broadcasters[0]].in.index[i];
	}
	return &rank->dense[*index];
}

/* A good call before and after shows that the communicator works on. */
static struct call *with_neighbours(struct world *w, const char *algo)
{
	struct call *c;

	call_draw(world_call(w, algo, 300, 30), 40, 1);
	c = world_call(w, algo, 3000, 500);
	call_draw(c, 700, 2);
	call_draw(world_call(w, algo, 300, 30), 40, 3);
	return c;
}

static void check_neighbours(const struct world *w)
{
	for (unsigned i = 0; i < w->n_calls; i += 2)
		for (int r = 0; r < w->n_ranks; r++)
			cr_assert_eq(w->calls[i].ranks[r].status, 0,
				     "%s, P = %d: call %u works, got %s", w->calls[i].algo,
				     w->n_ranks, i, w->calls[i].ranks[r].text);
}

/* Runs fn over every algorithm, number of ranks and rank that misbehaves. */
static void everywhere(int least_ranks, void (*fn)(struct world *w, struct call *c, int bad))
{
	for (int a = 0; a < N_ALGOS; a++)
		for (int p = 0; p < N_RANKS; p++)
			for (int bad = 0; bad<ranks[p]; bad += ranks[p]> 9 ? 3 : 1) {
				struct world *w;

				if (ranks[p] < least_ranks)
					continue;
				w = world_create(ranks[p]);
				w->jitter_ns = 5000;
				w->seed = (uint64_t)bad + 1;
				fn(w, with_neighbours(w, algos[a]), bad);
				check_neighbours(w);
				world_destroy(w);
			}
}

static void other_arguments(struct world *w, struct call *c, int bad)
{
	if (is_masked(&c->ranks[bad]))
		c->ranks[bad].step = 7;
	else if (c->ranks[bad].dense)
		c->ranks[bad].count = 2000;
	else
		c->ranks[bad].k = 600;
	world_run(w);
	cr_assert_not_null(strstr(call_failed_alike(c, SPR_EMISMATCH), "different arguments"),
			   "the text says what is wrong, got \"%s\"", c->ranks[0].text);
}

Test(coll, mismatched_arguments_fail_on_all_alike)
{
	everywhere(2, other_arguments);
}

/* Several ranks differ: groups of every shape, also ones that do not meet in the first rounds. */
Test(coll, mismatched_groups_fail_on_all_alike)
{
	for (int a = 0; a < N_ALGOS; a++)
		for (int p = 1; p < N_RANKS; p++)
			for (unsigned shape = 1; shape < 64; shape += 5) {
				struct world *w = world_create(ranks[p]);
				struct call *c = with_neighbours(w, algos[a]);
				bool differ = false;

				for (int r = 0; r < w->n_ranks; r++) {
					struct pairs *in = &c->ranks[r].in;

					if (shape >> (r % 6) & 1)
						c->ranks[r].count = 2999;
					if (in->count && in->index[in->count - 1] >= 2999)
						in->count--;
					differ |= c->ranks[r].count != c->ranks[0].count;
				}
				world_run(w);
				check_neighbours(w);
				if (differ)
					call_failed_alike(c, SPR_EMISMATCH);
				world_destroy(w);
			}
}

static void one_nan(struct world *w, struct call *c, int bad)
{
	uint64_t index;
	char expected[64];

	*element(c, bad, 123, &index) = bad % 2 ? NAN : -INFINITY;
	world_run(w);
	snprintf(expected, sizeof expected, "rank %d: ", bad);
	cr_assert_not_null(strstr(call_failed_alike(c, SPR_ENONFINITE), expected),
			   "the text names rank %d, got \"%s\"", bad, c->ranks[0].text);
	snprintf(expected, sizeof expected, "element %llu)", (unsigned long long)index);
	cr_assert_not_null(strstr(c->ranks[0].text, expected),
			   "the text names element %llu, got \"%s\"", (unsigned long long)index,
			   c->ranks[0].text);
}

Test(coll, nonfinite_inputs_fail_on_all_alike)
{
	everywhere(1, one_nan);
}

/*
 * Every element of the vector, so that each block and round is hit; in place, where the input is
 * gone when it is found.
 */
Test(coll, nonfinite_dense_element_is_found_wherever_it_is)
{
	for (int p = 0; p < N_RANKS; p++)
		for (uint64_t at = 0; at < 40; at++) {
			struct world *w = world_create(ranks[p]);
			struct call *c = world_call(w, "dense_ring", 40, 0);
			int bad = (int)(at % (uint64_t)ranks[p]);
			char expected[96];

			call_draw(c, 0, at);
			c->ranks[bad].dense[at] = INFINITY;
			for (int r = 0; r < w->n_ranks; r++)
				c->ranks[r].in_place = at % 2;
			world_run(w);
			snprintf(expected, sizeof expected,
				 "dense_ring: rank %d: a value is NaN or infinite (element %llu)",
				 bad, (unsigned long long)at);
			cr_assert_str_eq(call_failed_alike(c, SPR_ENONFINITE), expected,
					 "rank and element are right, got %s", c->ranks[0].text);
			world_destroy(w);
		}
}

/* Finite inputs whose sum is not. */
static void overflow(struct world *w, struct call *c, int bad)
{
	int other = (bad + 1) % w->n_ranks;
	int two[2] = {bad, other};

	c->broadcasters = w->n_ranks;
	for (int i = 0; i < 2; i++) {
		struct call_rank *rank = &c->ranks[two[i]];

		if (rank->dense)
			rank->dense[77] = 3e38f;
		if (rank->out)
			continue;
		rank->in.count = 1;
		rank->in.index[0] = 77;
		rank->in.value[0] = 3e38f;
	}
	world_run(w);
	cr_assert_not_null(strstr(call_failed_alike(c, SPR_ENONFINITE), "element 77)"),
			   "the text names element 77, got \"%s\"", c->ranks[0].text);
}

Test(coll, sums_that_overflow_fail_on_all_alike)
{
	everywhere(2, overflow);
}

Test(coll, nonfinite_is_propagated_or_dropped)
{
	for (int a = 0; a < N_ALGOS; a++)
		for (int p = 0; p < N_RANKS; p++)
			for (int drop = 0; drop < 2; drop++) {
				struct world *w = world_create(ranks[p]);
				struct call *c = world_call(w, algos[a], 100, 100);
				int last = w->n_ranks - 1;

				c->nonfinite = drop ? SPR_NONFINITE_DROP : SPR_NONFINITE_PROPAGATE;
				for (int r = 0; r < w->n_ranks; r++)
					for (uint64_t i = 0; i < 10; i++) {
						float v = (float)(i + 1);

						if (i == 3 && r == last)
							v = -NAN;
						if (i == 5 && r == 0)
							v = INFINITY;
						if (c->ranks[r].dense)
							c->ranks[r].dense[10 * i] = v;
						if (!c->ranks[r].out)
							pairs_add(&c->ranks[r].in, 10 * i, v);
					}
				world_run(w);
				for (int r = 0; r < w->n_ranks; r++) {
					const struct call_rank *rank = &c->ranks[r];
					float n = (float)w->n_ranks, at3, at5, at7;
					uint32_t bits;

					cr_assert_eq(rank->status, 0,
						     "%s: expected success, got %s", algos[a],
						     rank->text);
					if (!rank->out)
						cr_assert_eq(rank->sum.count,
							     drop && w->n_ranks == 1 && !rank->dense
								     ? 8
								     : 10,
							     "%s: the number of entries, got %llu",
							     algos[a],
							     (unsigned long long)rank->sum.count);
					if (!rank->out && rank->sum.count < 10)
						continue;
					at3 = rank->out ? rank->out[30] : rank->sum.value[3];
					at5 = rank->out ? rank->out[50] : rank->sum.value[5];
					at7 = rank->out ? rank->out[70] : rank->sum.value[7];
					memcpy(&bits, &at3, sizeof bits);
					if (drop)
						cr_assert(at3 == 4 * (n - 1) && at5 == 6 * (n - 1),
							  "%s, P = %d: a dropped value counts as "
							  "zero, got %g and %g",
							  algos[a], w->n_ranks, (double)at3,
							  (double)at5);
					else
						cr_assert(bits == 0x7fc00000 && isinf(at5) &&
								  at5 > 0,
							  "%s, P = %d: one NaN and infinity, got "
							  "0x%x and %g",
							  algos[a], w->n_ranks, bits, (double)at5);
					cr_assert_eq(at7, 8 * n, "%s: the others are added",
						     algos[a]);
				}
				world_destroy(w);
			}
}

static void no_memory(struct world *w, struct call *c, int bad)
{
	char expected[96];

	c->ranks[bad].fail_allocation = 0;
	world_run(w);
	if (w->n_ranks == 1 && c->ranks[0].out) {
		cr_assert_eq(c->ranks[0].status, 0, "dense_ring alone needs no memory");
		return;
	}
	snprintf(expected, sizeof expected, "%s: rank %d: Cannot allocate memory", c->algo, bad);
	cr_assert_str_eq(call_failed_alike(c, -ENOMEM), expected,
			 "the text names rank %d, got \"%s\"", bad, c->ranks[0].text);
}

Test(coll, no_memory_on_one_rank_fails_on_all_alike)
{
	everywhere(1, no_memory);
}

/*
 * The n-th allocation, until there is no n-th. The algorithm's own fail the operation alone; those
 * of the transport (loop makes messages while it posts) break the communicator, and all ranks hear
 * of it.
 */
Test(coll, every_allocation_of_a_start_may_fail)
{
	for (int a = 0; a < N_ALGOS; a++)
		for (long n = 0;; n++) {
			struct world *w = world_create(6);
			struct call *c = with_neighbours(w, algos[a]);
			bool succeeded, broken;

			c->ranks[4].fail_allocation = n;
			world_run(w);
			succeeded = c->ranks[4].status == 0;
			broken = w->calls[2].ranks[0].status < 0;
			cr_assert(!(broken && n == 0),
				  "%s: the first allocation is the algorithm's", algos[a]);
			if (succeeded)
				world_check(w);
			else if (!broken)
				call_failed_alike(c, -ENOMEM);
			for (int r = 0; broken && r < w->n_ranks; r++)
				cr_assert_lt(c->ranks[r].status, 0,
					     "%s: rank %d hears of allocation %ld", algos[a], r, n);
			if (broken)
				cr_assert_eq(c->ranks[4].status, -ENOMEM,
					     "%s: who has no memory says so", algos[a]);
			world_destroy(w);
			if (succeeded)
				break;
			cr_assert_lt(n, 30, "%s: a start makes few allocations", algos[a]);
		}
}

static void bad_list(struct world *w, struct call *c, int bad)
{
	struct call_rank *rank = &c->ranks[bad];
	char expected[64];

	if (rank->out)
		rank->count = (uint64_t)1 << 60; /* and so another signature */
	else
		rank->in.index[3] = rank->in.index[2];
	world_run(w);
	snprintf(expected, sizeof expected, "rank %d: ", bad);
	cr_assert_not_null(strstr(call_failed_alike(c, SPR_EARGUMENT), expected),
			   "the text names rank %d, got \"%s\"", bad, c->ranks[0].text);
}

Test(coll, bad_arguments_on_one_rank_fail_on_all_alike)
{
	everywhere(1, bad_list);
}

/* Two ranks fail for two reasons: one of them is told, and all tell the same. */
static void two_reasons(struct world *w, struct call *c, int bad)
{
	int other = (bad + w->n_ranks / 2) % w->n_ranks, status;
	uint64_t index;

	c->ranks[bad].fail_allocation = 0;
	*element(c, other, 5, &index) = NAN;
	world_run(w);
	status = c->ranks[0].status;
	cr_assert(status == -ENOMEM || status == SPR_ENONFINITE, "one of the two, got %s",
		  spr_error_name(status));
	call_failed_alike(c, status);
}

Test(coll, two_failures_end_in_one)
{
	everywhere(2, two_reasons);
}

Test(coll, killed_rank_is_named_by_all)
{
	for (int a = 0; a < N_ALGOS; a++)
		for (int p = 1; p < N_RANKS; p++)
			for (int bad = 0; bad<ranks[p]; bad += ranks[p]> 9 ? 3 : 1) {
				struct world *w = world_create(ranks[p]);

				with_neighbours(w, algos[a]);
				w->killed = bad;
				w->kill_before = 1;
				world_run(w);
				for (int r = 0; r < w->n_ranks; r++) {
					if (r == bad)
						continue;
					cr_assert_eq(
						w->calls[2].ranks[r].status, SPR_ELOST,
						"%s, P = %d: rank %d hears that %d is lost, got %s",
						algos[a], w->n_ranks, r, bad,
						spr_error_name(w->calls[2].ranks[r].status));
					cr_assert_eq(w->lost[r], bad,
						     "%s, P = %d: rank %d names rank %d, got %d",
						     algos[a], w->n_ranks, r, bad, w->lost[r]);
				}
				world_destroy(w);
			}
}

/* Two failures of different kinds in flight on both lanes, among good ones. */
Test(coll, failed_and_good_operations_in_flight_together)
{
	for (int p = 1; p < N_RANKS; p++) {
		struct world *w = world_create(ranks[p]);
		int bad = w->n_ranks - 1;

		w->at_once = true;
		w->jitter_ns = 20000;
		for (unsigned i = 0; i < 12; i++)
			call_draw(world_call(w, algos[i % N_ALGOS], 2000, 200), 300, i + 1);
		w->calls[6].ranks[0].dense[11] = NAN;
		w->calls[7].ranks[bad].in.value[3] = NAN;
		w->calls[8].ranks[bad].k = 777;
		w->calls[10].ranks[bad].in.value[3] = NAN;
		w->calls[11].ranks[bad].step = 3;
		world_run(w);
		for (unsigned i = 0; i < w->n_calls; i++) {
			if (i == 6 || i == 7 || i == 10)
				call_failed_alike(&w->calls[i], SPR_ENONFINITE);
			else if (i == 8 || i == 11)
				call_failed_alike(&w->calls[i], SPR_EMISMATCH);
			else
				for (int r = 0; r < w->n_ranks; r++)
					cr_assert_eq(w->calls[i].ranks[r].status, 0,
						     "call %u (%s) works, got %s", i,
						     w->calls[i].algo, w->calls[i].ranks[r].text);
		}
		world_destroy(w);
	}
}
