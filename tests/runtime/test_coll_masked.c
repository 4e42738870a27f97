/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Masked sums on virtual ranks: any number of ranks and broadcasters, masks from empty to full,
 * values of every type on the wire; compared with the oracle of coll_world.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "coll_world.h"

static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 96};
enum { N_RANKS = sizeof ranks / sizeof ranks[0] };

/* A call with n proposals per rank, of r broadcasters. */
static struct call *masked_call(struct world *w, uint64_t count, uint64_t n, int r)
{
	struct call *c = world_call(w, "iwp_ring", count, n);

	c->broadcasters = r;
	c->seed = 100 + w->n_calls;
	call_set_step(c, w->n_calls);
	call_draw(c, n, w->n_calls);
	return c;
}

Test(coll_masked, sums_are_exact)
{
	for (int p = 0; p < N_RANKS; p++) {
		int n = ranks[p], some = 1 + n / 3;
		struct world *w = world_create(n);

		masked_call(w, 0, 0, 1);
		masked_call(w, 1, 1, some);
		masked_call(w, 7, 2, n);
		masked_call(w, 1000, 0, some); /* an empty mask */
		masked_call(w, 1000, 40, 1);
		masked_call(w, 1000, 40, n);
		masked_call(w, 3001, 5000, some); /* more than half: all of them */
		masked_call(w, 30000, 900, some);
		masked_call(w, 30000, 6000, 1); /* rather a bitmap */
		world_run(w);
		world_check(w);
		world_destroy(w);
	}
}

/* The border between a mask and all elements: half of them is a mask. */
Test(coll_masked, more_than_half_is_all)
{
	for (uint64_t count = 1; count < 12; count++)
		for (int n = 1; n <= 3; n++) {
			struct world *w = world_create(n);

			for (uint64_t i = 0; i <= count; i++) {
				struct call *c = masked_call(w, count, 0, n);

				call_draw(c, count, i); /* and a mask of the first i on rank 0 */
				for (int r = 0; r < n; r++)
					c->ranks[r].in.count = 0;
				for (uint64_t j = 0; j < i; j++)
					pairs_add(&c->ranks[0].in, j, 1);
			}
			world_run(w);
			world_check(w);
			for (uint64_t i = 0; i <= count; i++)
				cr_assert_eq(w->calls[i].ranks[n - 1].sum.count,
					     2 * i > count ? count : i, "%llu of %llu",
					     (unsigned long long)i, (unsigned long long)count);
			world_destroy(w);
		}
}

/* What rounding takes off is adopted, once, and all ranks have the same bits. */
Test(coll_masked, values_of_16_bits)
{
	for (int p = 0; p < N_RANKS; p++)
		for (int wire = SPR_F16; wire <= SPR_BF16; wire++) {
			struct world *w = world_create(ranks[p]);
			uint64_t adopted = 0;

			for (int i = 0; i < 4; i++)
				masked_call(w, 5000, 100 << i, 1 + i % ranks[p])->wire =
					(enum spr_dtype)wire;
			world_run(w);
			world_check(w);
			for (int r = 0; r < ranks[p]; r++)
				adopted += w->calls[3].ranks[r].adopted.count;
			cr_assert_gt(adopted, 0, "P = %d: there is something to round", ranks[p]);
			world_destroy(w);
		}
}

static struct world *rough_world(int n_ranks)
{
	struct world *w = world_create(n_ranks);

	for (int i = 0; i < 6; i++) {
		struct call *c = world_call(w, "iwp_ring", 20000, 3000);

		c->broadcasters = 1 + i % n_ranks;
		c->wire = (enum spr_dtype)(i % 3);
		call_draw_rough(c, (uint64_t)400 << i, (uint64_t)i);
	}
	return w;
}

/* Whatever the chunks, windows, delays and order of arrival. */
Test(coll_masked, same_bits)
{
	static const int sizes[] = {2, 3, 5, 8, 13};

	for (unsigned p = 0; p < sizeof sizes / sizeof sizes[0]; p++) {
		struct world *reference = rough_world(sizes[p]);

		reference->landing = 64 << 20;
		world_run(reference);
		for (uint64_t seed = 1; seed <= 6; seed++) {
			struct world *w = rough_world(sizes[p]);

			w->seed = seed;
			w->jitter_ns = seed % 2 ? 50000 : 0;
			w->landing = seed % 3 == 0 ? 0 : (size_t)65536 * (size_t)sizes[p] * seed;
			w->at_once = seed % 2;
			world_run(w);
			for (unsigned i = 0; i < w->n_calls; i++)
				for (int r = 0; r < w->n_ranks; r++) {
					const struct call_rank *rank = &w->calls[i].ranks[r];
					const struct call_rank *same =
						&reference->calls[i].ranks[r];

					cr_assert_eq(rank->status, 0, "call %u works, got %s", i,
						     rank->text);
					cr_assert(
						pairs_equal(&rank->sum,
							    &reference->calls[i].ranks[0].sum) &&
							pairs_equal(&rank->adopted, &same->adopted),
						"P = %d, call %u, rank %d: the same bits", sizes[p],
						i, r);
				}
			world_destroy(w);
		}
		world_destroy(reference);
	}
}

/* A seed or number of broadcasters of its own would be another mask. */
Test(coll_masked, ranks_that_disagree)
{
	for (int p = 1; p < N_RANKS; p++) {
		struct world *w = world_create(ranks[p]);
		struct call *c = masked_call(w, 1000, 50, 1);

		c->ranks[ranks[p] / 2].step++;
		masked_call(w, 1000, 50, 1);
		world_run(w);
		call_failed_alike(c, SPR_EMISMATCH);
		cr_assert_eq(w->calls[1].ranks[0].status, 0, "the next call works");
		world_destroy(w);
	}
}

Test(coll_masked, bad_masks)
{
	static const uint64_t bad[][3] = {{5, 5, 6}, {5, 4, 6}, {5, 6, 1000}};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct world *w = world_create(3);
		struct call *c = masked_call(w, 1000, 50, 1);
		char expected[128];

		memcpy(c->ranks[1].in.index, bad[i], sizeof bad[i]);
		c->ranks[1].in.count = 3;
		world_run(w);
		snprintf(expected, sizeof expected, "iwp_ring: rank 1: %s (element %d)",
			 spr_strerror(SPR_EARGUMENT),
			 i == 2	  ? 1000
			 : i == 1 ? 4
				  : 5);
		cr_assert_str_eq(call_failed_alike(c, SPR_EARGUMENT), expected, "got %s",
				 c->ranks[0].text);
		world_destroy(w);
	}
	for (int r = -1; r <= 4; r += 5) {
		struct world *w = world_create(3);
		struct call *c = masked_call(w, 100, 10, 1);

		c->broadcasters = r;
		world_run(w);
		call_failed_alike(c, SPR_EARGUMENT);
		world_destroy(w);
	}
}

/* One rank takes all its memory in the start: each allocation in turn. */
Test(coll_masked, every_allocation_may_fail)
{
	for (int wire = SPR_F32; wire <= SPR_F16; wire++)
		for (long n = 0;; n++) {
			struct world *w = world_create(1);
			struct call *c = masked_call(w, 1000, 50, 1);
			int status;

			c->wire = (enum spr_dtype)wire;
			c->ranks[0].fail_allocation = n;
			world_run(w);
			status = c->ranks[0].status;
			if (status == 0)
				world_check(w);
			else
				call_failed_alike(c, -ENOMEM);
			world_destroy(w);
			if (status == 0) {
				cr_assert_geq(n, 3, "state, mask and values");
				break;
			}
		}
}

Test(coll_masked, some_hundred_virtual_ranks)
{
	struct world *w = world_create(200);

	masked_call(w, 3000, 100, 3);
	masked_call(w, 3000, 0, 1);
	world_run(w);
	world_check(w);
	world_destroy(w);
}

Test(coll_masked, rounds_and_bytes_follow_the_formulas)
{
	for (int p = 0; p < N_RANKS; p++) {
		uint64_t count = (uint64_t)96 * 640, values = 0, wire = 0;
		int n = ranks[p], rounds_up = 0;
		struct world *w = world_create(n);
		struct call *c = world_call(w, "iwp_ring", count, 960 * 7);
		double rounds, bytes;

		call_draw(c, 0, 1);
		for (int r = 0; r < n; r++)
			for (uint64_t i = 0; i < 960; i++)
				pairs_add(&c->ranks[r].in, 64 * i + 5 * i % 64, 1);
		c->broadcasters = 1;
		world_run(w);
		world_check(w);
		cr_assert_eq(spr_algo_cost("iwp_ring", n, count, 960, &rounds, &bytes), 0);
		while (1 << rounds_up < n)
			rounds_up++;
		for (int r = 0; r < n; r++) {
			const struct spr_request_stats *s = &c->ranks[r].stats;

			cr_assert_eq(s->rounds, (uint64_t)(rounds_up + 2 * (n - 1)));
			values = s->value_bytes > values ? s->value_bytes : values;
			wire = s->wire_bytes > wire ? s->wire_bytes : wire;
		}
		cr_assert_float_eq(rounds, rounds_up + 2 * (n - 1), 1e-9, "P = %d", n);
		cr_assert_float_eq((double)values, 2.0 * (n - 1) / n * 960 * 4, 8.0 * n,
				   "P = %d: value bytes, got %llu", n, (unsigned long long)values);
		/* headers of chunks of 1 KiB, and of rounds */
		cr_assert_leq((double)wire, bytes * 1.15 + 220.0 * rounds,
			      "P = %d: %llu bytes on the wire, %g by the formula", n,
			      (unsigned long long)wire, bytes);
		world_destroy(w);
	}
}

/* ---- who broadcasts ---- */

Test(coll_masked, broadcasters_are_drawn_fairly)
{
	enum { P = 130, R = 7, STEPS = 3000 };
	unsigned drawn[P] = {0};
	int got[P], again[P];

	for (uint64_t step = 0; step < STEPS; step++) {
		cr_assert_eq(spr_mask_broadcasters(P, R, 42, step, got), 0);
		for (int i = 0; i < R; i++) {
			cr_assert(got[i] >= 0 && got[i] < P && (i == 0 || got[i] > got[i - 1]),
				  "step %llu: ranks ascend", (unsigned long long)step);
			drawn[got[i]]++;
		}
		cr_assert_eq(spr_mask_broadcasters(P, R, 42, step, again), 0);
		cr_assert_arr_eq(got, again, R * sizeof *got, "the same again");
	}
	for (int r = 0; r < P; r++) /* 161.5 expected, 12.4 is its deviation */
		cr_assert(drawn[r] > 100 && drawn[r] < 230, "rank %d was drawn %u times", r,
			  drawn[r]);
}

Test(coll_masked, any_number_of_broadcasters)
{
	static int got[65536];

	for (int n = 1; n <= 130; n++)
		for (int r = 1; r <= n; r++) {
			cr_assert_eq(spr_mask_broadcasters(n, r, 1, (uint64_t)n, got), 0);
			for (int i = 0; i < r; i++)
				cr_assert(got[i] < n && got[i] >= 0 &&
						  (i == 0 || got[i] > got[i - 1]),
					  "%d of %d", r, n);
		}
	cr_assert_eq(spr_mask_broadcasters(65536, 65536, 1, 1, got), 0);
	for (int i = 0; i < 65536; i++)
		cr_assert_eq(got[i], i, "all of them");
	cr_assert_eq(spr_mask_broadcasters(65536, 1, 1, 1, got), 0);
	cr_assert_eq(spr_mask_broadcasters(65537, 1, 1, 1, got), SPR_EARGUMENT);
	cr_assert_eq(spr_mask_broadcasters(0, 1, 1, 1, got), SPR_EARGUMENT);
	cr_assert_eq(spr_mask_broadcasters(5, 0, 1, 1, got), SPR_EARGUMENT);
	cr_assert_eq(spr_mask_broadcasters(5, 6, 1, 1, got), SPR_EARGUMENT);
	cr_assert_eq(spr_mask_broadcasters(5, 1, 1, 1, NULL), SPR_EARGUMENT);
}

/* They are part of what ranks of different builds must agree on. */
Test(coll_masked, recorded_broadcasters)
{
	static const int expected[4] = {149, 326, 377, 834};
	int got[4];

	cr_assert_eq(spr_mask_broadcasters(1000, 4, 1, 2, got), 0);
	cr_assert_arr_eq(got, expected, sizeof got, "got %d %d %d %d", got[0], got[1], got[2],
			 got[3]);
}
