/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Who talks to whom: the bracket, the ring and the dissemination, for every number of ranks up to
 * 130 and the largest ones.
 */
#include <stdlib.h>
#include <string.h>

#include <check.h>
#include <coll/schedule.h>

enum { MOST = 130 };

static const uint32_t sizes[] = {1,  2,	 3,  4,	 5,  6,	 7,  8,	 9,  10,  11,  12,  13,	 14, 15,
				 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 130};

Test(schedule, positions_and_active_ranks_are_one_to_one)
{
	for (uint32_t n = 1; n <= MOST; n++) {
		bool seen[MOST] = {false};
		uint32_t n_active = 0;

		for (uint32_t rank = 0; rank < n; rank++) {
			struct spri_bracket b = spri_bracket(rank, n);

			cr_assert(b.n_active <= n && n < 2 * b.n_active,
				  "P' is the power of two below %u", n);
			cr_assert_eq(b.n_active + b.n_extra, n, "P' + E = P for %u", n);
			if (!b.active) {
				cr_assert(b.folds && b.fold_peer == rank - 1 && rank % 2 == 1,
					  "rank %u of %u is folded into the one before", rank, n);
				continue;
			}
			n_active++;
			cr_assert(b.position < b.n_active && !seen[b.position],
				  "rank %u of %u has a position of its own", rank, n);
			seen[b.position] = true;
			cr_assert_eq(spri_bracket_rank(&b, b.position), rank,
				     "position to rank and back");
			if (b.folds)
				cr_assert_eq(b.fold_peer, rank + 1,
					     "rank %u of %u takes the next in", rank, n);
		}
		cr_assert_eq(n_active, spri_bracket(0, n).n_active, "P' ranks are active of %u", n);
	}
}

/*
 * Whose lists are in a rank's after each round: every merge joins disjoint sets, and at the end
 * everybody has all.
 */
Test(schedule, butterfly_joins_every_rank_once)
{
	for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
		uint32_t n = sizes[at];
		struct spri_bracket b0 = spri_bracket(0, n);
		static uint8_t has[MOST][MOST], next[MOST][MOST];

		memset(has, 0, sizeof has);
		for (uint32_t r = 0; r < n; r++) {
			struct spri_bracket b = spri_bracket(r, n);

			if (b.active)
				has[r][r] = 1;
			if (b.active && b.folds)
				has[r][b.fold_peer] = 1;
		}
		for (uint32_t d = 0; d < b0.n_rounds; d++) {
			for (uint32_t r = 0; r < n; r++) {
				struct spri_bracket b = spri_bracket(r, n);
				uint32_t p;

				if (!b.active)
					continue;
				p = spri_bracket_partner(&b, d);
				cr_assert(p < n && p != r, "partner %u of %u is another rank", p,
					  r);
				for (uint32_t i = 0; i < n; i++) {
					cr_assert(!(has[r][i] && has[p][i]),
						  "no list is counted twice (P = %u)", n);
					next[r][i] = has[r][i] | has[p][i];
				}
				b = spri_bracket(p, n);
				cr_assert_eq(spri_bracket_partner(&b, d), r, "partners agree");
			}
			memcpy(has, next, sizeof has);
		}
		for (uint32_t r = 0; r < n; r++)
			for (uint32_t i = 0; spri_bracket(r, n).active && i < n; i++)
				cr_assert(has[r][i], "rank %u of %u has the list of %u", r, n, i);
	}
}

Test(schedule, adopter_is_one_of_the_group_and_the_same_for_all_of_it)
{
	for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
		uint32_t n = sizes[at];

		for (uint32_t r = 0; r < n; r++) {
			struct spri_bracket b = spri_bracket(r, n);

			for (uint32_t d = 0; b.active && d < b.n_rounds; d++) {
				uint32_t p = spri_bracket_partner(&b, d);
				struct spri_bracket pb = spri_bracket(p, n);

				for (uint64_t i = 0; i < 50; i++) {
					uint64_t index = i * 0x10000001;
					uint32_t adopter = spri_bracket_adopter(&b, d, index);
					struct spri_bracket ab = spri_bracket(adopter, n);

					cr_assert_eq(adopter, spri_bracket_adopter(&pb, d, index),
						     "both partners name the same adopter");
					cr_assert(ab.active && ab.position >> (d + 1) ==
								       b.position >> (d + 1),
						  "adopter %u is in the group of %u in round %u of "
						  "P = %u",
						  adopter, r, d, n);
				}
			}
		}
	}
}

Test(schedule, adoption_is_spread_evenly)
{
	struct spri_bracket b = spri_bracket(0, 16);

	for (uint32_t d = 0; d < 4; d++) {
		uint32_t counts[16] = {0}, group = 2u << d;

		for (uint64_t index = 0; index < 16000; index++)
			counts[spri_bracket_adopter(&b, d, index)]++;
		for (uint32_t r = 0; r < group; r++)
			cr_assert(counts[r] > 16000 / group * 9 / 10 &&
					  counts[r] < 16000 / group * 11 / 10,
				  "round %u: rank %u adopts about 16000/%u, got %u", d, r, group,
				  counts[r]);
	}
}

Test(schedule, largest_number_of_ranks)
{
	static const uint32_t ns[] = {65535, 65536};

	for (size_t i = 0; i < 2; i++)
		for (uint32_t r = 0; r < ns[i]; r += 251) {
			struct spri_bracket b = spri_bracket(r, ns[i]);

			if (b.active)
				cr_assert_eq(spri_bracket_rank(&b, b.position), r, "rank %u of %u",
					     r, ns[i]);
			for (uint32_t d = 1; d < ns[i]; d *= 2) {
				uint32_t to = spri_bruck_to(r, ns[i], d);

				cr_assert(to < ns[i] && spri_bruck_from(to, ns[i], d) == r,
					  "dissemination from %u at distance %u", r, d);
			}
		}
}

Test(schedule, ring_blocks_cover_the_vector)
{
	static const uint64_t counts[] = {0, 1, 7, 96, 1000, 1001, (uint64_t)1 << 48};

	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
		for (uint32_t n = 1; n <= MOST; n++) {
			uint64_t least = UINT64_MAX, most = 0;

			cr_assert_eq(spri_ring_offset(counts[c], n, 0), 0,
				     "the first block begins at 0");
			cr_assert_eq(spri_ring_offset(counts[c], n, n), counts[c],
				     "the last ends at the end");
			for (uint32_t b = 0; b < n; b++) {
				uint64_t size = spri_ring_offset(counts[c], n, b + 1) -
						spri_ring_offset(counts[c], n, b);

				least = size < least ? size : least;
				most = size > most ? size : most;
			}
			cr_assert_leq(most - least, 1, "blocks of %u differ by one at most", n);
		}
}

/* Quotas sum up to k, differ by one at most, and over P steps each block has its share of k. */
Test(schedule, ring_quotas_go_round)
{
	static const uint64_t ks[] = {0, 1, 2, 7, 64, 1000, (uint64_t)1 << 48};

	for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++)
		for (size_t k = 0; k < sizeof ks / sizeof ks[0]; k++) {
			uint32_t n = sizes[at];
			uint64_t total[MOST] = {0};

			for (uint64_t s = 0; s < n; s++) {
				uint64_t step = ((uint64_t)3 << 33) * n + s;

				cr_assert_eq(spri_ring_quota_offset(ks[k], n, step, 0), 0,
					     "the first block begins at 0");
				cr_assert_eq(spri_ring_quota_offset(ks[k], n, step, n), ks[k],
					     "the quotas of %u blocks are k", n);
				for (uint32_t b = 0; b < n; b++) {
					uint64_t quota =
						spri_ring_quota_offset(ks[k], n, step, b + 1) -
						spri_ring_quota_offset(ks[k], n, step, b);
					bool odd = (b + s) % n < ks[k] % n;

					cr_assert_eq(quota, ks[k] / n + odd,
						     "block %u of %u, step %llu", b, n,
						     (unsigned long long)s);
					total[b] += quota;
				}
			}
			for (uint32_t b = 0; b < n; b++)
				cr_assert_eq(total[b], ks[k], "block %u of %u over %u steps", b, n,
					     n);
		}
}

Test(schedule, dissemination_brings_every_block_once)
{
	for (uint32_t n = 1; n <= MOST; n++) {
		uint32_t have = 1, rounds = 0;

		/* by symmetry all ranks hold the same number: r, r+1, … r+have−1 */
		for (uint32_t d = 1; d < n; d *= 2, rounds++) {
			uint32_t blocks = spri_bruck_blocks(n, d);

			cr_assert_eq(have, d, "before distance %u there are as many blocks", d);
			cr_assert_leq(blocks, have, "only blocks that are there are sent");
			for (uint32_t r = 0; r < n; r++)
				cr_assert(spri_bruck_to(spri_bruck_from(r, n, d), n, d) == r &&
						  spri_bruck_from(r, n, d) == (r + d) % n,
					  "sender and receiver agree");
			have += blocks;
		}
		cr_assert_eq(have, n, "P = %u: expected all blocks, got %u", n, have);
		cr_assert_eq(rounds, spri_ceil_log2(n), "P = %u: ⌈log2 P⌉ rounds", n);
	}
}
