/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What sparse all-reduce promises, whatever its lists look like on the wire: values of 16 bits, and
 * gaps instead of indices.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coll_world.h"

static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
static const char *const sparse[] = {"gtopk", "gtopk_tree", "topk_allgather", "prune_ring"};
static const enum spr_dtype wires[] = {SPR_F32, SPR_F16, SPR_BF16};
enum { N_RANKS = sizeof ranks / sizeof ranks[0], N_SPARSE = 4, N_WIRES = 3, N_CODECS = 3 };

/* A call in every form that a list can have. */
static void add_forms(struct world *w, const char *algo, uint64_t count, uint64_t k, uint64_t n,
		      uint64_t seed)
{
	for (unsigned i = 0; i < N_WIRES; i++)
		for (unsigned codec = SPR_CODEC_RAW; codec <= SPR_CODEC_PACKED; codec++) {
			struct call *c = world_call(w, algo, count, k);

			c->wire = wires[i];
			c->codec = (enum spr_codec)codec;
			call_draw(c, n, seed);
			call_set_step(c, seed);
		}
}

/* Sums are the oracle's, which rounds where the library does; nothing is lost. */
Test(coll_wire, sums_are_exact_and_mass_is_conserved)
{
	for (int p = 0; p < N_RANKS; p++)
		for (int a = 0; a < N_SPARSE; a++) {
			struct world *w = world_create(ranks[p]);

			add_forms(w, sparse[a], 1000, 40, 60, 1);
			add_forms(w, sparse[a], 100000, 700, 900, 2);
			world_run(w);
			world_check(w);
			world_destroy(w);
			w = world_create(ranks[p]);
			add_forms(w, sparse[a], 50, 70, 60, 3); /* k > length */
			add_forms(w, sparse[a], (uint64_t)1 << 48, 100, 150, 4);
			world_run(w);
			world_check(w);
			world_destroy(w);
		}
}

/* Rounding took something off, or the tests above show nothing; so did the cut. */
Test(coll_wire, rounding_is_adopted)
{
	for (int a = 0; a < N_SPARSE; a++) {
		struct world *w = world_create(5);
		unsigned adopted[N_WIRES] = {0};

		for (unsigned i = 0; i < N_WIRES; i++) {
			struct call *c = world_call(w, sparse[a], 1000, 1000);

			c->wire = wires[i];
			call_draw(c, 300, 1);
		}
		world_run(w);
		world_check(w);
		for (unsigned i = 0; i < N_WIRES; i++)
			for (int r = 0; r < 5; r++)
				adopted[i] += (unsigned)w->calls[i].ranks[r].adopted.count;
		cr_assert_eq(adopted[0], 0, "%s: nothing is cut, nothing rounded: got %u",
			     sparse[a], adopted[0]);
		cr_assert(adopted[1] > 0 && adopted[2] > adopted[1],
			  "%s: fewer bits, more errors: got %u and %u", sparse[a], adopted[1],
			  adopted[2]);
		world_destroy(w);
	}
}

/* Rough values, beyond what half can hold: the codec changes no bit, nor do delays and windows. */
Test(coll_wire, same_bits)
{
	static const int sizes[] = {2, 3, 5, 8};

	for (unsigned p = 0; p < sizeof sizes / sizeof sizes[0]; p++)
		for (unsigned i = 0; i < N_WIRES; i++) {
			struct world *w = world_create(sizes[p]);

			for (unsigned at = 0; at < N_SPARSE * N_CODECS; at++) {
				struct call *c = world_call(w, sparse[at / N_CODECS], 20000, 1500);

				c->wire = wires[i];
				c->codec = at % N_CODECS;
				call_draw_rough(c, 3000, 7);
			}
			w->jitter_ns = 50000;
			w->at_once = true;
			w->landing = i == 0 ? 0 : 1 << 20;
			world_run(w);
			for (unsigned at = 0; at < w->n_calls; at++)
				for (int r = 0; r < w->n_ranks; r++) {
					const struct call *c = &w->calls[at];
					const struct call *raw = &w->calls[at - at % N_CODECS];

					cr_assert_eq(c->ranks[r].status, 0, "%s works, got %s",
						     c->algo, c->ranks[r].text);
					cr_assert_gt(c->ranks[r].sum.count, 100, "%s: a sum",
						     c->algo);
					cr_assert(pairs_equal(&c->ranks[r].sum, &raw->ranks[0].sum),
						  "%s, %d ranks: the same bits", c->algo, sizes[p]);
					cr_assert(pairs_equal(&c->ranks[r].adopted,
							      &raw->ranks[r].adopted),
						  "%s, %d ranks: the same adoptions", c->algo,
						  sizes[p]);
				}
			cr_assert(pairs_equal(&w->calls[0].ranks[0].sum,
					      &w->calls[N_CODECS].ranks[0].sum),
				  "butterfly and tree have the same winner");
			world_destroy(w);
		}
}

/* What is too large for half stays in somebody's residual. */
Test(coll_wire, saturation)
{
	for (int a = 0; a < N_SPARSE; a++) {
		struct world *w = world_create(4);
		struct call *c = world_call(w, sparse[a], 10, 10);

		c->wire = SPR_F16;
		for (int r = 0; r < 4; r++) {
			pairs_add(&c->ranks[r].in, 3, 65504);
			pairs_add(&c->ranks[r].in, 7, -0x1p17f);
		}
		world_run(w);
		world_check(w);
		for (int r = 0; r < 4; r++)
			cr_assert(isfinite(c->ranks[r].sum.value[0]), "%s: finite", sparse[a]);
		world_destroy(w);
	}
}

/* Non-finite values are found and travel as with singles. */
Test(coll_wire, nonfinite)
{
	for (int a = 0; a < N_SPARSE; a++)
		for (unsigned i = 1; i < N_WIRES; i++) {
			struct world *w = world_create(3);

			for (unsigned policy = 0; policy < 3; policy++) {
				struct call *c = world_call(w, sparse[a], 100, 20);

				c->wire = wires[i];
				c->nonfinite = (enum spr_nonfinite)policy;
				pairs_add(&c->ranks[1].in, 40, INFINITY);
				pairs_add(&c->ranks[1].in, 50, NAN);
				pairs_add(&c->ranks[2].in, 60, 1.0f);
			}
			world_run(w);
			call_failed_alike(&w->calls[0], SPR_ENONFINITE);
			for (int r = 0; r < 3; r++) {
				const struct pairs *all = &w->calls[1].ranks[r].sum;
				const struct pairs *rest = &w->calls[2].ranks[r].sum;

				cr_assert(all->count == 3 && isinf(all->value[0]) &&
						  isnan(all->value[1]),
					  "%s: infinity and NaN arrive", sparse[a]);
				cr_assert(rest->count == 1 && rest->index[0] == 60,
					  "%s: they are dropped", sparse[a]);
				cr_assert_eq(w->calls[1].ranks[r].adopted.count, 0,
					     "%s: they have no error", sparse[a]);
			}
			world_destroy(w);
		}
}

/* Bytes on the wire, all of them, of one call. */
static double entry_bytes(enum spr_dtype wire, enum spr_codec codec)
{
	struct world *w = world_create(2);
	struct call *c = world_call(w, "gtopk", 10 << 20, 10 << 10);
	double bytes;

	c->wire = wire;
	c->codec = codec;
	call_draw(c, 10 << 10, 1);
	w->landing = 1 << 20;
	world_run(w);
	world_check(w);
	bytes = (double)c->ranks[0].stats.wire_bytes / (double)c->ranks[0].in.count;
	cr_assert_eq(c->ranks[0].stats.value_bytes,
		     c->ranks[0].in.count * (wire == SPR_F32 ? 4 : 2), "value bytes, got %llu",
		     (unsigned long long)c->ranks[0].stats.value_bytes);
	world_destroy(w);
	return bytes;
}

/* Density 0.001: 32 and 11.4 bits for an index, 32 and 16 for a value. */
Test(coll_wire, bytes_of_an_entry)
{
	double raw = entry_bytes(SPR_F32, SPR_CODEC_RAW);
	double halves = entry_bytes(SPR_F16, SPR_CODEC_RAW);
	double packed = entry_bytes(SPR_F32, SPR_CODEC_PACKED);
	double least = entry_bytes(SPR_BF16, SPR_CODEC_PACKED);

	cr_assert(raw > 8 && raw < 8.1, "8 bytes, got %g", raw);
	cr_assert(halves > 6 && halves < 6.1, "6 bytes, got %g", halves);
	cr_assert(packed > 5.3 && packed < 5.6, "5.43 bytes, got %g", packed);
	cr_assert(least > 3.3 && least < 3.6, "3.43 bytes, got %g", least);
}

/* Arguments that cannot be, or that differ between ranks, fail on all of them alike. */
Test(coll_wire, arguments)
{
	for (int a = 0; a < N_SPARSE; a++) {
		struct world *w = world_create(5);
		struct call *type = world_call(w, sparse[a], 100, 20);
		struct call *codec = world_call(w, sparse[a], 100, 20);
		struct call *other_type = world_call(w, sparse[a], 100, 20);
		struct call *other_codec = world_call(w, sparse[a], 100, 20);
		struct call *good = world_call(w, sparse[a], 100, 20);

		type->ranks[3].other_wire = 3;
		codec->ranks[3].other_codec = 3;
		other_type->ranks[3].other_wire = 1;
		other_codec->codec = SPR_CODEC_RAW;
		other_codec->ranks[3].other_codec = 1;
		for (unsigned i = 0; i < 5; i++)
			call_draw(&w->calls[i], 15, i + 1);
		world_run(w);
		call_failed_alike(type, SPR_EARGUMENT);
		call_failed_alike(codec, SPR_EARGUMENT);
		call_failed_alike(other_type, SPR_EMISMATCH);
		call_failed_alike(other_codec, SPR_EMISMATCH);
		cr_assert_eq(good->ranks[4].status, 0, "%s: the next call works", sparse[a]);
		world_destroy(w);
	}
}
