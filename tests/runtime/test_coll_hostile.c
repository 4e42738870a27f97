/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The algorithms against a partner that sends what it must not (coll_alone.h). Whatever comes, a
 * step ends with 0, SPRI_AGAIN or SPR_EPROTOCOL and a text, and writes nowhere else (address
 * sanitizer sees to that).
 */
#include "coll_alone.h"

#include <check.h>
#include <coll/coll.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <internal/philox.h>
#include <stdlib.h>
#include <string.h>

static void good_list(void)
{
	add(SPRI_CODEC_RAW32, 1, 0, 100, 3, MORE);
	add(SPRI_CODEC_RAW32, 1, 300, 100, 3, ROUND);
}

static void list_too_long(void)
{
	add(SPRI_CODEC_RAW32, 1, 0, 100, 1, MORE);
	add(SPRI_CODEC_RAW32, 1, 300, 101, 1, ROUND);
}

static void list_steps_back(void)
{
	add(SPRI_CODEC_RAW32, 1, 0, 100, 3, MORE);
	add(SPRI_CODEC_RAW32, 1, 297, 10, 3, ROUND);
}

static void list_beyond_the_vector(void)
{
	add(SPRI_CODEC_RAW32, 1, 0, 10, 3, MORE);
	add(SPRI_CODEC_RAW32, 1, COUNT - 3, 4, 1, ROUND);
}

static void list_not_ascending(void)
{
	add(SPRI_CODEC_RAW32, 1, 0, 10, 0, ROUND);
}

static void list_in_another_codec(void)
{
	add(SPRI_CODEC_DENSE, 1, 0, 10, 1, ROUND);
}

static void list_larger_than_a_chunk(void)
{
	struct spri_chunk *c = add(SPRI_CODEC_RAW32, 1, 0, 10, 1, ROUND);

	c->count = 1u << 30; /* the real layer refuses it already */
}

static void list_of_two_blocks(void)
{
	add(SPRI_CODEC_RAW32, 1, 0, 10, 3, BLOCK);
	add(SPRI_CODEC_RAW32, 1, 0, 10, 3, ROUND);
}

static void list_of_another_rank(void)
{
	add(SPRI_CODEC_RAW32, 0, 0, 10, 3, ROUND);
}

static void block_without_end(void)
{
	add(SPRI_CODEC_RAW32, 1, 0, 10, 3, SPRI_CHUNK_LAST_OF_ROUND);
}

Test(coll_hostile, lists)
{
	static const struct {
		void (*write_script)(void);
		const char *what;
		int expected, expected_allgather;
	} cases[] = {
		{good_list, "a good list", 0, 0},
		{list_too_long, "more than k entries", SPR_EPROTOCOL, SPR_EPROTOCOL},
		{list_steps_back, "a chunk that steps back", SPR_EPROTOCOL, SPR_EPROTOCOL},
		{list_beyond_the_vector, "an index beyond the vector", SPR_EPROTOCOL,
		 SPR_EPROTOCOL},
		{list_not_ascending, "equal indices", SPR_EPROTOCOL, SPR_EPROTOCOL},
		{list_in_another_codec, "another codec", SPR_EPROTOCOL, SPR_EPROTOCOL},
		{list_larger_than_a_chunk, "a count of 2^30", SPR_EPROTOCOL, SPR_EPROTOCOL},
		{list_of_two_blocks, "two blocks that overlap", SPR_EPROTOCOL, SPR_EPROTOCOL},
		{list_of_another_rank, "the list of another rank", 0, SPR_EPROTOCOL},
		{block_without_end, "a round that ends within a block", 0, SPR_EPROTOCOL},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		run(&spri_algo_gtopk, 0, 2, cases[i].write_script, cases[i].what,
		    cases[i].expected);
		run(&spri_algo_topk_allgather, 0, 2, cases[i].write_script, cases[i].what,
		    cases[i].expected_allgather);
		/* a leaf of the tree takes the result as it is; the root merges */
		run(&spri_algo_gtopk_tree, 0, 2, cases[i].write_script, cases[i].what,
		    cases[i].expected);
		run(&spri_algo_gtopk_tree, 1, 2, cases[i].write_script, cases[i].what,
		    cases[i].expected);
	}
}

/*
 * Two ranks: round 0 brings block 1 (elements 300 … 599), round 1 block 0; a chunk has 240
 * elements.
 */
static void good_elements(void)
{
	add(SPRI_CODEC_DENSE, 1, 300, 240, 0, MORE);
	add(SPRI_CODEC_DENSE, 1, 540, 60, 0, ROUND);
	add(SPRI_CODEC_DENSE, 0, 0, 240, 0, MORE);
	add(SPRI_CODEC_DENSE, 0, 240, 60, 0, ROUND);
}

static void elements_of_another_block(void)
{
	add(SPRI_CODEC_DENSE, 0, 0, 240, 0, MORE);
}

static void elements_with_a_gap(void)
{
	add(SPRI_CODEC_DENSE, 1, 300, 240, 0, MORE);
	add(SPRI_CODEC_DENSE, 1, 541, 59, 0, ROUND);
}

static void elements_beyond_the_vector(void)
{
	add(SPRI_CODEC_DENSE, 1, 300, 240, 0, MORE);
	add(SPRI_CODEC_DENSE, 1, 540, 61, 0, ROUND);
}

static void elements_that_end_early(void)
{
	add(SPRI_CODEC_DENSE, 1, 300, 240, 0, ROUND);
}

static void elements_that_do_not_end(void)
{
	add(SPRI_CODEC_DENSE, 1, 300, 240, 0, MORE);
	add(SPRI_CODEC_DENSE, 1, 540, 60, 0, MORE);
}

static void elements_as_a_list(void)
{
	add(SPRI_CODEC_RAW32, 1, 300, 100, 1, MORE);
}

Test(coll_hostile, elements)
{
	run(&spri_algo_dense_ring, 0, 2, good_elements, "good elements", 0);
	run(&spri_algo_dense_ring, 0, 2, elements_of_another_block, "another block", SPR_EPROTOCOL);
	run(&spri_algo_dense_ring, 0, 2, elements_with_a_gap, "a gap", SPR_EPROTOCOL);
	run(&spri_algo_dense_ring, 0, 2, elements_beyond_the_vector, "too many", SPR_EPROTOCOL);
	run(&spri_algo_dense_ring, 0, 2, elements_that_end_early, "too few", SPR_EPROTOCOL);
	run(&spri_algo_dense_ring, 0, 2, elements_that_do_not_end, "no end", SPR_EPROTOCOL);
	run(&spri_algo_dense_ring, 0, 2, elements_as_a_list, "a list", SPR_EPROTOCOL);
}

/* Two ranks, 100 entries of each block at most. */
static void good_blocks(void)
{
	add(SPRI_CODEC_RAW32, 1, 300, 50, 3, MORE);
	add(SPRI_CODEC_RAW32, 1, 450, 50, 3, ROUND);
	add(SPRI_CODEC_RAW32, 0, 0, 100, 3, ROUND);
}

static void block_of_another(void)
{
	add(SPRI_CODEC_RAW32, 0, 300, 50, 3, ROUND);
}

static void block_beyond_its_quota(void)
{
	add(SPRI_CODEC_RAW32, 1, 300, 100, 1, MORE);
	add(SPRI_CODEC_RAW32, 1, 450, 1, 1, ROUND);
}

static void block_that_begins_early(void)
{
	add(SPRI_CODEC_RAW32, 1, 299, 50, 3, ROUND);
}

static void final_block_beyond_its_quota(void)
{
	add(SPRI_CODEC_RAW32, 1, 300, 0, 1, ROUND);
	add(SPRI_CODEC_RAW32, 0, 0, 101, 1, ROUND);
}

static void final_block_that_ends_late(void)
{
	add(SPRI_CODEC_RAW32, 1, 300, 0, 1, ROUND);
	add(SPRI_CODEC_RAW32, 0, 290, 11, 1, ROUND);
}

static void final_block_that_steps_back(void)
{
	add(SPRI_CODEC_RAW32, 1, 300, 0, 1, ROUND);
	add(SPRI_CODEC_RAW32, 0, 100, 11, 1, MORE);
	add(SPRI_CODEC_RAW32, 0, 110, 11, 1, ROUND);
}

Test(coll_hostile, pruned_blocks)
{
	const struct spri_algo *algo = &spri_algo_prune_ring;

	run(algo, 0, 2, good_blocks, "good blocks", 0);
	run(algo, 0, 2, block_of_another, "another block", SPR_EPROTOCOL);
	run(algo, 0, 2, block_beyond_its_quota, "too many", SPR_EPROTOCOL);
	run(algo, 0, 2, block_that_begins_early, "an index before", SPR_EPROTOCOL);
	run(algo, 0, 2, final_block_beyond_its_quota, "too many final", SPR_EPROTOCOL);
	run(algo, 0, 2, final_block_that_ends_late, "an index behind", SPR_EPROTOCOL);
	run(algo, 0, 2, final_block_that_steps_back, "equal indices", SPR_EPROTOCOL);
	run(algo, 0, 2, elements_as_a_list, "a list that does not end", SPRI_AGAIN);
	run(algo, 0, 2, good_elements, "elements", SPR_EPROTOCOL);
}

/* Two ranks; 200 elements in the end, of which ours are every third of the vector. */
static void good_masks(void)
{
	add_head(150, 8 + NOTE);
	add_mask(SPRI_CODEC_GAPS, 1, 0, 50, 3, MORE);
	add_mask(SPRI_CODEC_GAPS, 1, 150, 100, 3, ROUND);
	add(SPRI_CODEC_DENSE, 1, 100, 100, 0, ROUND);
	add(SPRI_CODEC_DENSE, 0, 0, 100, 0, ROUND);
}

/* More than half of all: the ring has 600 elements, of which a chunk has 240. */
static void good_bitmap(void)
{
	add_head(400, 8 + NOTE);
	add_mask(SPRI_CODEC_BITMAP, 1, 100, 400, 1, ROUND);
	good_elements();
}

static void mask_without_indices(void)
{
	add_head(0, 8 + NOTE);
	add_mask(SPRI_CODEC_GAPS, 1, 0, 0, 1, ROUND);
	add(SPRI_CODEC_DENSE, 1, 100, 100, 0, ROUND);
	add(SPRI_CODEC_DENSE, 0, 0, 100, 0, ROUND);
}

static void head_too_short(void)
{
	add_head(10, 8 + NOTE - 1);
}

static void head_too_long(void)
{
	add_head(10, 8 + NOTE + 1);
}

static void head_of_more_than_there_are(void)
{
	add_head(COUNT + 1, 8 + NOTE);
}

static void head_as_a_mask(void)
{
	add_mask(SPRI_CODEC_GAPS, 1, 0, 8 + NOTE, 1, BLOCK);
}

static void mask_longer_than_announced(void)
{
	add_head(150, 8 + NOTE);
	add_mask(SPRI_CODEC_GAPS, 1, 0, 151, 3, ROUND);
}

static void mask_shorter_than_announced(void)
{
	add_head(150, 8 + NOTE);
	add_mask(SPRI_CODEC_GAPS, 1, 0, 149, 3, ROUND);
}

static void mask_beyond_the_vector(void)
{
	add_head(10, 8 + NOTE);
	add_mask(SPRI_CODEC_BITMAP, 1, COUNT - 9, 10, 1, ROUND);
}

static void mask_that_steps_back(void)
{
	add_head(20, 8 + NOTE);
	add_mask(SPRI_CODEC_GAPS, 1, 100, 10, 1, MORE);
	add_mask(SPRI_CODEC_GAPS, 1, 109, 10, 1, ROUND);
}

static void mask_in_two_codecs(void)
{
	add_head(20, 8 + NOTE);
	add_mask(SPRI_CODEC_GAPS, 1, 100, 10, 1, MORE);
	add_mask(SPRI_CODEC_BITMAP, 1, 200, 10, 1, ROUND);
}

static void mask_as_a_list(void)
{
	add_head(100, 8 + NOTE);
	add(SPRI_CODEC_RAW32, 1, 0, 100, 1, ROUND);
}

static void values_of_another_mask(void)
{
	add_head(0, 8 + NOTE);
	add_mask(SPRI_CODEC_GAPS, 1, 0, 0, 1, ROUND);
	add(SPRI_CODEC_DENSE, 1, 100, 101, 0, ROUND);
}

Test(coll_hostile, masks)
{
	const struct spri_algo *algo = &spri_algo_iwp_ring;

	run(algo, 0, 2, good_masks, "good masks", 0);
	run(algo, 0, 2, good_bitmap, "a good bitmap", 0);
	run(algo, 0, 2, mask_without_indices, "an empty mask", 0);
	run(algo, 0, 2, head_too_short, "a short head", SPR_EPROTOCOL);
	run(algo, 0, 2, head_too_long, "a long head", SPR_EPROTOCOL);
	run(algo, 0, 2, head_of_more_than_there_are, "too many", SPR_EPROTOCOL);
	run(algo, 0, 2, head_as_a_mask, "no head", SPR_EPROTOCOL);
	run(algo, 0, 2, mask_longer_than_announced, "a long mask", SPR_EPROTOCOL);
	run(algo, 0, 2, mask_shorter_than_announced, "a short mask", SPR_EPROTOCOL);
	run(algo, 0, 2, mask_beyond_the_vector, "an index beyond", SPR_EPROTOCOL);
	run(algo, 0, 2, mask_that_steps_back, "equal indices", SPR_EPROTOCOL);
	run(algo, 0, 2, mask_in_two_codecs, "two codecs", SPR_EPROTOCOL);
	run(algo, 0, 2, mask_as_a_list, "a list", SPR_EPROTOCOL);
	run(algo, 0, 2, values_of_another_mask, "too many values", SPR_EPROTOCOL);
}

/*
 * Memory is taken when a mask arrives, for the union and for values: without it the rounds go on.
 */
Test(coll_hostile, no_memory_for_masks)
{
	long n;
	int status = -1;

	for (n = 0; status < 0; n++) {
		struct fixture f;
		int r;

		begin(&f, &spri_algo_iwp_ring, 0, 2);
		good_masks();
		spri_heap_fail_after(n);
		r = f.op.algo->step(&f.op);
		spri_heap_fail_after(-1);
		status = f.op.outcome.status;
		cr_assert_eq(r, 0, "allocation %ld: all rounds are over, got %d", n, r);
		cr_assert(status == 0 || status == -ENOMEM, "allocation %ld: got %d", n, status);
		cr_assert_eq(f.op.sum.count, status ? 0 : 200, "a sum when there is one");
		end(&f);
	}
	cr_assert_eq(n, 4, "the mask, the union and the values: got %ld", n - 1);
}

static void good_bytes(void)
{
	add(SPRI_CODEC_BYTES, 1, 0, 500, 0, MORE);
	add(SPRI_CODEC_BYTES, 1, 500, 100, 0, ROUND);
}

static void too_many_bytes(void)
{
	add(SPRI_CODEC_BYTES, 1, 0, 500, 0, MORE);
	add(SPRI_CODEC_BYTES, 1, 500, 101, 0, ROUND);
}

static void too_few_bytes(void)
{
	add(SPRI_CODEC_BYTES, 1, 0, 500, 0, ROUND);
}

static void bytes_twice(void)
{
	add(SPRI_CODEC_BYTES, 1, 0, 500, 0, MORE);
	add(SPRI_CODEC_BYTES, 1, 0, 100, 0, ROUND);
}

Test(coll_hostile, bytes)
{
	run(&spri_algo_allgather, 0, 2, good_bytes, "good bytes", 0);
	run(&spri_algo_allgather, 0, 2, too_many_bytes, "too many", SPR_EPROTOCOL);
	run(&spri_algo_allgather, 0, 2, too_few_bytes, "too few", SPR_EPROTOCOL);
	run(&spri_algo_allgather, 0, 2, bytes_twice, "the same twice", SPR_EPROTOCOL);
	run(&spri_algo_allgather, 0, 2, good_list, "a list", SPR_EPROTOCOL);
}

/* ---- anything ---- */

static uint64_t draws;
static uint32_t draw(uint32_t n)
{
	return (uint32_t)(spri_philox(99, draws++) % n);
}

/* Chunks that are often nearly right: consecutive places of the block that is due. */
static void anything(uint32_t n_ranks)
{
	uint64_t at = 0;
	uint8_t codec = (uint8_t)(1 + draw(3));

	if (draw(3) == 0) {
		uint32_t n = draw(150);

		add_head(n, 8 + NOTE);
		add_mask((uint8_t)(SPRI_CODEC_GAPS + draw(2)), draw(n_ranks), draw(COUNT),
			 draw(3) ? n : draw(300), 1 + draw(3), draw(2) ? BLOCK : ROUND);
		if (draw(3) == 0)
			script.payload[script.n - 1][draw(30)] ^= (uint8_t)draw(256);
	}
	for (unsigned i = 0, n = 1 + draw(12); i < n; i++) {
		uint32_t room = (CHUNK_BYTES - SPRI_CHUNK_HEADER) / (codec == 1	  ? 8
								     : codec == 2 ? 4
										  : 1);
		uint8_t flags = draw(3) ? MORE : draw(2) ? ROUND : (uint8_t)draw(4);
		struct spri_chunk *c = add(codec, draw(n_ranks), at,
					   draw(4) ? draw(room + 1) : room, 1 + draw(3), flags);

		at += draw(8) ? c->count * 2 : draw(COUNT + 10);
		if (draw(10) == 0)
			c->base = draw(2) ? UINT64_MAX - draw(5) : draw(COUNT + 10);
		if (draw(10) == 0)
			c->payload_bytes ^= 1u << draw(12);
		if (draw(20) == 0)
			c->count ^= 1u << draw(31);
		if (draw(10) == 0)
			script.payload[script.n - 1][draw(200)] ^= (uint8_t)draw(256);
		if (draw(30) == 0)
			codec = (uint8_t)(1 + draw(3));
	}
}

Test(coll_hostile, anything_is_taken_or_refused)
{
	unsigned results[3] = {0};

	for (unsigned trial = 0; trial < 6000; trial++) {
		const struct spri_algo *algo = algos[trial % N_ALGOS];
		uint32_t n_ranks = 2 + draw(5);
		struct fixture f;
		int r;

		begin(&f, algo, draw(n_ranks), n_ranks);
		anything(n_ranks);
		r = algo->step(&f.op);
		cr_assert(r == 0 || r == SPRI_AGAIN || r == SPR_EPROTOCOL, "%s, trial %u: got %d",
			  algo->name, trial, r);
		cr_assert_eq(f.op.text.s[0] != '\0', r < 0, "%s: a text for a refusal", algo->name);
		results[r == 0 ? 0 : r < 0 ? 1 : 2]++;
		end(&f);
	}
	cr_assert(results[0] > 10 && results[1] > 1000 && results[2] > 10,
		  "some are taken, most are refused, some wait; got %u, %u, %u", results[0],
		  results[1], results[2]);
}

/* In failed mode nothing is looked at, and nothing needs state. */
Test(coll_hostile, failed_operations_drain)
{
	for (unsigned trial = 0; trial < 2000; trial++) {
		const struct spri_algo *algo = algos[trial % N_ALGOS];
		uint32_t n_ranks = 1 + draw(6), rank = draw(n_ranks);
		struct fixture f;
		int r;

		begin(&f, algo, rank, n_ranks);
		algo->finish(&f.op);
		spri_op_report(&f.op, SPR_EARGUMENT, rank, SPRI_NO_INDEX);
		r = algo->start(&f.op);
		cr_assert_eq(r, 0, "%s starts when it has failed", algo->name);
		cr_assert_null(f.op.state, "%s allocates nothing then", algo->name);
		for (unsigned i = 0; i < 50;
		     i++) { /* more ends of messages than rounds, some with rubbish before */
			struct spri_chunk *c = add(SPRI_CODEC_RAW32, draw(n_ranks), draw(50),
						   draw(50), draw(2), draw(4) ? ROUND : MORE);

			c->count = draw(UINT32_MAX);
		}
		r = algo->step(&f.op);
		cr_assert_eq(r, 0, "%s, rank %u of %u goes through its schedule, got %d",
			     algo->name, rank, n_ranks, r);
		cr_assert_eq(f.op.sum.count, 0, "%s has no result", algo->name);
		end(&f);
	}
}
