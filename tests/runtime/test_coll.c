/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What all-reduce promises, for every algorithm and many numbers of ranks, against an oracle that
 * shares no code.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coll_world.h"

static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 96};
static const char *const sparse[] = {"gtopk", "gtopk_tree", "topk_allgather", "prune_ring"};
enum { N_RANKS = sizeof ranks / sizeof ranks[0], N_SPARSE = 4 };

Test(coll, dense_sum_is_exact)
{
	for (int p = 0; p < N_RANKS; p++) {
		static const uint64_t counts[] = {0, 1, 7, 1000, 4099};
		struct world *w = world_create(ranks[p]);

		for (unsigned i = 0; i < 5; i++) {
			call_draw(world_call(w, "dense_ring", counts[i], 0), 0, i + 1);
			call_draw(world_call(w, "dense_ring", counts[i], 0), 0, i + 11);
			for (int r = 0; r < w->n_ranks;
			     r++) /* the second one in place, on some ranks */
				w->calls[2 * i + 1].ranks[r].in_place = r % 3 != 1;
		}
		world_run(w);
		world_check(w);
		world_destroy(w);
	}
}

Test(coll, sparse_sums_are_exact)
{
	for (int p = 0; p < N_RANKS; p++)
		for (int a = 0; a < N_SPARSE; a++) {
			struct world *w = world_create(ranks[p]);

			call_draw(world_call(w, sparse[a], 0, 5), 0, 1);
			call_draw(world_call(w, sparse[a], 1, 1), 2, 2);
			call_draw(world_call(w, sparse[a], 7, 3), 6, 3);
			call_draw(world_call(w, sparse[a], 1000, 10), 40, 4);
			call_draw(world_call(w, sparse[a], 1000, 300), 400, 5);
			call_draw(world_call(w, sparse[a], 1000, 5000), 500, 6); /* k > length */
			call_draw(world_call(w, sparse[a], 100000, 0), 0, 7);	 /* k = 0 */
			call_draw(world_call(w, sparse[a], 100000, 700), 900, 8);
			for (unsigned i = 0; i < w->n_calls; i++)
				call_set_step(&w->calls[i], ((uint64_t)1 << 40) + 5 * i);
			world_run(w);
			world_check(w);
			world_destroy(w);
		}
}

Test(coll, empty_lists_on_some_ranks)
{
	for (int p = 0; p < N_RANKS; p++)
		for (int a = 0; a < N_SPARSE; a++) {
			struct world *w = world_create(ranks[p]);

			for (int mask = 0; mask < 6; mask++) {
				struct call *c = world_call(w, sparse[a], 500, 20);

				call_draw(c, 50, (uint64_t)mask + 1);
				for (int r = 0; r < w->n_ranks; r++)
					if ((r + mask) % 3 == 0 || (mask == 5 && r))
						c->ranks[r].in.count = 0;
			}
			world_run(w);
			world_check(w);
			world_destroy(w);
		}
}

/* Lists that cancel each other, wholly or in part: zero sums are no entries. */
Test(coll, zero_sums_are_left_out)
{
	for (int p = 0; p < N_RANKS; p++)
		for (int a = 0; a < N_SPARSE; a++) {
			struct world *w = world_create(ranks[p]);
			struct call *c = world_call(w, sparse[a], 64, 16);

			for (int r = 0; r < w->n_ranks; r++)
				for (uint64_t i = 0; i < 16; i++)
					pairs_add(&c->ranks[r].in, 4 * i,
						  (r % 2 ? -1.0f : 1.0f) * (float)(i + 1));
			world_run(w);
			world_check(w);
			world_destroy(w);
		}
}

Test(coll, exactly_k)
{
	for (int p = 0; p < N_RANKS; p++)
		for (int a = 0; a < 2; a++) {
			struct world *w = world_create(ranks[p]);
			struct call *full = world_call(w, sparse[a], 3000, 50);
			struct call *few = world_call(w, sparse[a], 3000, 50);

			for (int r = 0; r < w->n_ranks; r++)
				for (uint64_t i = 0; i < 50;
				     i++) { /* equal values: ties everywhere */
					pairs_add(&full->ranks[r].in, 31 * i + (uint64_t)r % 31,
						  1.0f);
					if (i < 3)
						pairs_add(&few->ranks[r].in,
							  10 * i + (uint64_t)r % 10, 1.0f);
				}
			world_run(w);
			world_check(w);
			for (int r = 0; r < w->n_ranks; r++) {
				uint64_t all = 3 * (uint64_t)(w->n_ranks < 10 ? w->n_ranks : 10);

				cr_assert_eq(full->ranks[r].sum.count, 50, "%s: exactly k of more",
					     sparse[a]);
				cr_assert_eq(few->ranks[r].sum.count, all < 50 ? all : 50,
					     "%s: all %llu when fewer than k", sparse[a],
					     (unsigned long long)all);
			}
			world_destroy(w);
		}
}

/* Fewer entries than blocks: each block has its turn, and the largest of it wins then. */
Test(coll, pruned_blocks_take_turns)
{
	for (int p = 0; ranks[p] <= WORLD_CALLS; p++) {
		struct world *w = world_create(ranks[p]);
		uint64_t n = (uint64_t)ranks[p];

		for (uint64_t step = 0; step < n; step++) {
			struct call *c = world_call(w, "prune_ring", 10 * n, 1);

			call_set_step(c, step);
			for (int r = 0; r < w->n_ranks; r++) /* rank r knows one of block r */
				pairs_add(&c->ranks[r].in, 10 * (uint64_t)r + 3, 1.0f + (float)r);
		}
		world_run(w);
		world_check(w);
		for (uint64_t step = 0; step < n; step++) {
			const struct pairs *sum = &w->calls[step].ranks[0].sum;

			cr_assert_eq(sum->count, 1, "P = %d, step %llu: one entry", ranks[p],
				     (unsigned long long)step);
			cr_assert_eq(sum->index[0], 10 * ((n - step) % n) + 3,
				     "P = %d, step %llu: whose turn it is", ranks[p],
				     (unsigned long long)step);
		}
		world_destroy(w);
	}
}

/* Trimmed values are never lost and never adopted twice, even when almost everything is trimmed. */
Test(coll, mass_conservation)
{
	for (int p = 0; p < N_RANKS; p++)
		for (int a = 0; a < N_SPARSE; a++) {
			struct world *w = world_create(ranks[p]);

			for (uint64_t i = 0; i < 8; i++)
				call_draw(world_call(w, sparse[a], 200 << i, 40), 60, 100 + i);
			world_run(w);
			world_check(w);
			world_destroy(w);
		}
}

Test(coll, butterfly_and_tree_have_the_same_winner)
{
	static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17};

	for (unsigned p = 0; p < sizeof sizes / sizeof sizes[0]; p++) {
		struct world *w = world_create(sizes[p]);

		for (uint64_t i = 0; i < 5; i++) {
			call_draw_rough(world_call(w, "gtopk", 3000, 100 + 100 * i), 600, i + 1);
			call_draw_rough(world_call(w, "gtopk_tree", 3000, 100 + 100 * i), 600,
					i + 1);
		}
		world_run(w);
		for (unsigned i = 0; i < w->n_calls; i += 2)
			for (int r = 0; r < w->n_ranks; r++) {
				cr_assert_eq(w->calls[i].ranks[r].status, 0, "gtopk works, got %s",
					     w->calls[i].ranks[r].text);
				cr_assert_gt(w->calls[i].ranks[r].sum.count, 0,
					     "there is a winner");
				cr_assert(pairs_equal(&w->calls[i].ranks[r].sum,
						      &w->calls[i + 1].ranks[0].sum),
					  "P = %d: the same bits from both", sizes[p]);
			}
		world_destroy(w);
	}
}

/* Fills a world with one rough call of every algorithm. */
static struct world *rough_world(int n_ranks)
{
	struct world *w = world_create(n_ranks);

	for (uint64_t i = 0; i < 2; i++) {
		for (int a = 0; a < N_SPARSE; a++)
			call_draw_rough(world_call(w, sparse[a], 20000, 1500), 3000, 7 + i);
		call_draw_rough(world_call(w, "dense_ring", 9001, 0), 0, 7 + i);
	}
	return w;
}

static void same_results(const struct world *a, const struct world *b, const char *what)
{
	for (unsigned i = 0; i < a->n_calls; i++)
		for (int r = 0; r < a->n_ranks; r++) {
			const struct call_rank *x = &a->calls[i].ranks[0],
					       *y = &b->calls[i].ranks[r];
			const struct call_rank *mine = &a->calls[i].ranks[r];

			cr_assert_eq(y->status, 0, "%s works (%s), got %s", a->calls[i].algo, what,
				     y->text);
			cr_assert(pairs_equal(&x->sum, &y->sum),
				  "%s, rank %d: the same bits on every rank (%s)", a->calls[i].algo,
				  r, what);
			cr_assert(pairs_equal(&mine->adopted, &y->adopted),
				  "%s, rank %d: the same adoptions (%s)", a->calls[i].algo, r,
				  what);
			if (y->out)
				cr_assert_arr_eq(x->out, y->out, a->calls[i].count * sizeof *y->out,
						 "%s, rank %d: the same bits on every rank (%s)",
						 a->calls[i].algo, r, what);
		}
}

/* Whatever the chunks, windows, delays and order of arrival. */
Test(coll, same_bits)
{
	static const int sizes[] = {2, 3, 5, 8, 13};

	for (unsigned p = 0; p < sizeof sizes / sizeof sizes[0]; p++) {
		struct world *reference = rough_world(sizes[p]);

		reference->landing = 64 << 20;
		world_run(reference);
		same_results(reference, reference, "itself");
		for (uint64_t seed = 1; seed <= 6; seed++) {
			struct world *w = rough_world(sizes[p]);

			w->seed = seed;
			w->jitter_ns = seed % 2 ? 50000 : 0;
			w->landing = seed % 3 == 0 ? 0 : (size_t)65536 * (size_t)sizes[p] * seed;
			w->at_once = seed % 2;
			world_run(w);
			same_results(reference, w, w->at_once ? "all in flight" : "one by one");
			world_destroy(w);
		}
		world_destroy(reference);
	}
}

/* Indices of 2^32 and above: small offsets are sent, from a base of 64 bits. */
Test(coll, indices_above_32_bits)
{
	static const int sizes[] = {1, 2, 3, 5, 8, 9};

	for (unsigned p = 0; p < sizeof sizes / sizeof sizes[0]; p++) {
		struct world *w = world_create(sizes[p]);

		for (int a = 0; a < N_SPARSE; a++) {
			call_draw(world_call(w, sparse[a], (uint64_t)1 << 40, 500), 700,
				  1); /* 256 ranges */
			call_draw(world_call(w, sparse[a], (uint64_t)1 << 48, 500), 700,
				  2); /* each its own */
			call_draw(world_call(w, sparse[a], 3 * ((uint64_t)1 << 32), 500), 700, 3);
			call_draw(world_call(w, sparse[a], (uint64_t)1 << 40, 500), 0, 4);
			for (int r = 0; r < w->n_ranks;
			     r++) /* neighbours across the border, and the last index */
				for (uint64_t i = 0; i < 100; i++)
					pairs_add(&w->calls[w->n_calls - 1].ranks[r].in,
						  i < 99 ? ((uint64_t)1 << 32) * (i / 33 + 1) - 16 +
								   i % 33
							 : ((uint64_t)1 << 40) - 1,
						  (float)(1 + (i * 7 + (uint64_t)r) % 11));
		}
		world_run(w);
		world_check(w);
		for (int r = 0; r < w->n_ranks; r++)
			cr_assert_eq(w->calls[3].ranks[r].sum.index[99], ((uint64_t)1 << 40) - 1,
				     "the last index of a vector of 2^40");
		world_destroy(w);
	}
}

Test(coll, a_thousand_virtual_ranks)
{
	struct world *w = world_create(1024);

	call_draw(world_call(w, "gtopk", 5000, 10), 20, 1);
	call_draw(world_call(w, "gtopk_tree", 5000, 10), 20, 1);
	world_run(w);
	world_check(w);
	world_destroy(w);
}

/* These send as many messages as there are pairs of ranks. */
Test(coll, some_hundred_virtual_ranks)
{
	struct world *w = world_create(200);

	call_draw(world_call(w, "dense_ring", 1500, 0), 0, 2);
	call_draw(world_call(w, "topk_allgather", 500, 2), 4, 3);
	call_draw(world_call(w, "prune_ring", 5000, 100), 150, 4);
	world_run(w);
	world_check(w);
	world_destroy(w);
}

/* What is sent is what the formulas say. */
Test(coll, rounds_and_bytes_follow_the_formulas)
{
	for (int p = 0; p < N_RANKS; p++) {
		struct world *w = world_create(ranks[p]);
		int n = ranks[p];

		for (int a = 0; a < N_SPARSE; a++) {
			struct call *c = world_call(w, sparse[a], 1 << 20, 96);

			for (int r = 0; r < n;
			     r++) /* full lists that do not meet: every message has k entries */
				for (uint64_t i = 0; i < 96; i++)
					pairs_add(&c->ranks[r].in, i * 10900 + (uint64_t)r, 1.0f);
		}
		call_draw(world_call(w, "dense_ring", 96 * 7 * (uint64_t)n, 0), 0, 1);
		world_run(w);
		for (unsigned i = 0; i < w->n_calls; i++) {
			bool ring = i >= N_SPARSE - 1;
			double rounds, bytes, values_share = i < N_SPARSE ? 0.5 : 1.0;
			double slack = i == N_SPARSE - 1 ? 8.0 * n : 0; /* shares of k / P */
			uint64_t most_rounds = 0, most_bytes = 0;

			cr_assert_eq(spr_algo_cost(w->calls[i].algo, n, w->calls[i].count,
						   w->calls[i].k, &rounds, &bytes),
				     0, "%s has a cost", w->calls[i].algo);
			for (int r = 0; r < n; r++) {
				const struct spr_request_stats *s = &w->calls[i].ranks[r].stats;

				cr_assert_eq(w->calls[i].ranks[r].status, 0, "%s works",
					     w->calls[i].algo);
				most_rounds = s->rounds > most_rounds ? s->rounds : most_rounds;
				most_bytes =
					s->value_bytes > most_bytes ? s->value_bytes : most_bytes;
			}
			cr_assert_leq((double)most_bytes, bytes * values_share + slack,
				      "%s, P = %d: value bytes within the formula",
				      w->calls[i].algo, n);
			if (i == 2 || ring || (n & (n - 1)) == 0)
				cr_assert_float_eq(
					(double)most_rounds, i == 1 ? rounds / 2 : rounds,
					i == 1 ? rounds / 2 : 0.1,
					"%s, P = %d: %g rounds, got %llu", w->calls[i].algo, n,
					rounds, (unsigned long long)most_rounds);
			if (i >= 2 || (i == 0 && (n & (n - 1)) == 0))
				cr_assert_float_eq(
					(double)most_bytes, bytes * values_share, slack + 0.1,
					"%s, P = %d: %g value bytes, got %llu", w->calls[i].algo, n,
					bytes * values_share, (unsigned long long)most_bytes);
		}
		world_destroy(w);
	}
}
