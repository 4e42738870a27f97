/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What loop promises beyond the contract of all transports, 1: exact virtual time and repeatable
 * runs.
 */
#include "duo.h"

#include <check.h>
#include <internal/bits.h>

#include <string.h>

Test(loop, latency_and_bandwidth_are_exact)
{
	struct spri_fabric_options options = {
		.n_places = 2, .latency_ns = 436000, .bytes_per_s = 1e9 / 8}; /* 8 ns a byte */
	static const size_t bytes[] = {0, 1000, 1, 500000};
	struct duo d;
	uint64_t ns[4];

	duo_open(&d, &options, 10 * SPRI_NS_PER_S);
	cr_assert_eq(spri_fabric_now(d.w.fabric), 2 * 436000,
		     "meeting should take one latency each way");
	flight_times(&d, bytes, 4, ns);
	cr_assert_eq(ns[0], 436000, "no bytes: the latency");
	cr_assert_eq(ns[1], 436000 + 8000, "1,000 bytes: latency and 8 µs, not %llu",
		     (unsigned long long)ns[1]);
	cr_assert_eq(ns[2], 436000 + 8008, "one more byte: 8 ns later");
	cr_assert_eq(ns[3], 436000 + 4008008, "500,001 bytes before the end of the last");
	duo_close(&d);
}

Test(loop, no_bandwidth_means_infinite)
{
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 5};
	static const size_t bytes[] = {sizeof source, sizeof source};
	struct duo d;
	uint64_t ns[2];

	duo_open(&d, &options, SPRI_NS_PER_S);
	flight_times(&d, bytes, 2, ns);
	cr_assert(ns[0] == 5 && ns[1] == 5, "only the latency counts");
	duo_close(&d);
}

/*
 * Two senders to one receiver: its link takes one after another. Two receivers: the sender's does.
 */
Test(loop, links_are_shared)
{
	struct spri_fabric_options options = {.n_places = 3, .latency_ns = 100, .bytes_per_s = 1e9};
	struct world w;
	struct end a[2], b[2];
	uint64_t start;

	fabric_open(&w, &options, 3, SPRI_NS_PER_S);
	for (unsigned fan_in = 0; fan_in < 2; fan_in++) {
		for (unsigned i = 0; i < 2; i++) {
			unsigned sender = fan_in ? i : 2, receiver = fan_in ? 2 : i;
			struct spri_region *from =
				world_region(&w, sender, source, 1000, SPRI_ACCESS_LOCAL);
			struct spri_region *to = world_region(&w, receiver, target + 1000 * i, 1000,
							      SPRI_ACCESS_REMOTE_WRITE);
			struct spri_remote remote;

			ends_meet(&w, sender, &a[i], receiver, &b[i], 10 * fan_in + i);
			cr_assert_eq(loop->grant(b[i].conn, to, &remote), 0, "grant");
			a[i].arg = from;
			memcpy(b[i].private_data, &remote, sizeof remote);
		}
		start = spri_fabric_now(w.fabric);
		for (unsigned i = 0; i < 2; i++) {
			struct spri_remote remote;

			memcpy(&remote, b[i].private_data, sizeof remote);
			cr_assert_eq(end_write(&w, &a[i], a[i].arg, source, 1000, &remote, 0, 1), 0,
				     "post");
		}
		run_until(&w, start + 100 + 1999);
		cr_assert(!world_step(&w, 0) && b[0].n_notify + b[1].n_notify == 1,
			  "the second should still be on the link");
		run_until(&w, start + 100 + 2000);
		cr_assert(!world_step(&w, 0) && b[0].n_notify + b[1].n_notify == 2,
			  "both should be there after 2 µs");
		for (unsigned i = 0; i < 2; i++) {
			end_destroy(&w, &a[i]);
			end_destroy(&w, &b[i]);
		}
	}
	world_close(&w);
}

Test(loop, source_is_lent_until_sent)
{
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 1000};
	struct duo d;

	duo_open(&d, &options, SPRI_NS_PER_S);
	memset(source, 1, 8);
	cr_assert_eq(end_write(&d.w, &d.a, d.from, source, 8, &d.remote, 0, 1), 0, "post");
	source[0] = 2; /* too early: before SENT */
	cr_assert(pump(&d.w, d.a.n_sent == 1), "SENT should come");
	cr_assert_eq(target[0], 2, "a source that is changed before SENT should be seen");
	duo_close(&d);
}

/* ---- repeatable ---- */

/* Runs traffic among three places with jitter; returns a digest of every event with its time. */
static uint64_t run_with_seed(uint64_t seed)
{
	struct spri_fabric_options options = {.n_places = 3,
					      .latency_ns = 1000,
					      .bytes_per_s = 1e9,
					      .jitter_ns = 3000,
					      .seed = seed};
	struct world w;
	struct end e[3][3];
	struct spri_region *from[3], *to[3];
	struct spri_remote remote[3][3];
	struct spri_event events[4];
	uint64_t digest = 0;

	fabric_open(&w, &options, 3, SPRI_NS_PER_S);
	for (unsigned i = 0; i < 3; i++) {
		from[i] = world_region(&w, i, source, sizeof source, SPRI_ACCESS_LOCAL);
		to[i] = world_region(&w, i, target, sizeof target, SPRI_ACCESS_REMOTE_WRITE);
	}
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < i; k++) {
			ends_meet(&w, i, &e[i][k], k, &e[k][i], 1);
			cr_assert_eq(loop->grant(e[i][k].conn, to[i], &remote[k][i]), 0, "grant");
			cr_assert_eq(loop->grant(e[k][i].conn, to[k], &remote[i][k]), 0, "grant");
		}
	for (uint32_t n = 0; n < 120; n++) {
		unsigned i = n % 3, k = (i + 1 + n / 3 % 2) % 3;

		cr_assert_eq(end_write(&w, &e[i][k], from[i], source, 17 * n, &remote[i][k], 0, n),
			     0, "post");
	}
	do {
		for (unsigned i = 0; i < 3; i++)
			for (unsigned n = take(&w, i, events, 4); n > 0; n = take(&w, i, events, 4))
				for (unsigned k = 0; k < n; k++)
					digest =
						spri_mix64(digest ^ spri_fabric_now(w.fabric) ^
							   (uint64_t)events[k].kind << 60 ^
							   events[k].cookie << 32 ^
							   events[k].immediate ^ (uint64_t)i << 56);
	} while (spri_fabric_advance(w.fabric, SPRI_NEVER));
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < 3; k++)
			if (i != k)
				end_destroy(&w, &e[i][k]);
	world_close(&w);
	return digest;
}

Test(loop, a_seed_repeats_a_run)
{
	uint64_t first = run_with_seed(1);

	cr_assert_eq(run_with_seed(1), first,
		     "the same seed should give the same events at the same times");
	cr_assert_neq(run_with_seed(2), first, "another seed should give another run");
}

Test(loop, jitter_keeps_the_order)
{
	struct spri_fabric_options options = {
		.n_places = 2, .latency_ns = 100, .jitter_ns = 100000, .seed = 3};
	size_t bytes[64] = {0};
	uint64_t ns[64];
	unsigned different = 0;
	struct duo d;

	duo_open(&d, &options, SPRI_NS_PER_S);
	flight_times(&d, bytes, 64, ns); /* asserts the order */
	for (unsigned i = 0; i < 64; i++) {
		cr_assert(ns[i] >= 100 && ns[i] <= 100100, "jitter is at most 100 µs, not %llu ns",
			  (unsigned long long)ns[i]);
		different += i > 0 && ns[i] != ns[i - 1];
	}
	cr_assert_gt(different, 1, "there should be jitter");
	duo_close(&d);
}

Test(loop, keys_come_from_the_seed)
{
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 100, .seed = 3};
	struct spri_remote first;
	struct duo d;

	duo_open(&d, &options, SPRI_NS_PER_S);
	first = d.remote;
	cr_assert_eq(loop->grant(d.b.conn, d.to, &d.remote), 0, "grant");
	cr_assert_arr_eq(d.remote.key, first.key, SPRI_KEY_BYTES, "granted again: the same key");
	duo_close(&d);
	duo_open(&d, &options, SPRI_NS_PER_S);
	cr_assert_arr_eq(d.remote.key, first.key, SPRI_KEY_BYTES, "the same seed: the same key");
	duo_close(&d);
	options.seed = 4;
	duo_open(&d, &options, SPRI_NS_PER_S);
	cr_assert_arr_neq(d.remote.key, first.key, SPRI_KEY_BYTES, "another seed: another key");
	duo_close(&d);
}
