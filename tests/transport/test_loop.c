/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What loop promises beyond the contract of all transports: exact virtual time, repeatable runs, kill and delay. */
#include "ends.h"

#include <check.h>
#include <internal/alloc.h>
#include <internal/bits.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct spri_transport *loop;
static uint8_t source[1 << 20], target[1 << 20];

/* A world over a fabric of the test's choice: ports at places 0 … n_ports - 1. */
static void fabric_open(struct world *w, const struct spri_fabric_options *options,
			unsigned n_ports, uint64_t timeout_ns)
{
	struct spri_port_options port = {.timeout_ns = timeout_ns};
	struct spri_text text;

	loop = spri_transport_find("loop");
	memset(w, 0, sizeof *w);
	w->t = loop;
	cr_assert_eq(spri_fabric_create(options, &w->fabric), 0, "a fabric should be created");
	port.fabric = w->fabric;
	for (; w->n_ports < n_ports; w->n_ports++) {
		port.place = w->n_ports;
		cr_assert_eq(loop->listen(&port, &w->port[w->n_ports], &text), 0,
			     "listen should succeed");
	}
}

static void run_until(struct world *w, uint64_t time_ns)
{
	while (spri_fabric_advance(w->fabric, time_ns))
		;
}

/* Takes what a place has to report. */
static unsigned take(struct world *w, unsigned port, struct spri_event *events, unsigned max)
{
	int n = loop->poll(w->port[port], events, max);

	cr_assert_geq(n, 0, "poll should succeed, gave %s", spr_error_name(n));
	return (unsigned)n;
}

struct duo {
	struct world w;
	struct end a, b;
	struct spri_region *from, *to;
	struct spri_remote remote;
};

static void duo_open(struct duo *d, const struct spri_fabric_options *options, uint64_t timeout_ns)
{
	fabric_open(&d->w, options, 2, timeout_ns);
	d->from = world_region(&d->w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	d->to = world_region(&d->w, 1, target, sizeof target, SPRI_ACCESS_REMOTE_WRITE);
	ends_meet(&d->w, 0, &d->a, 1, &d->b, 1);
	cr_assert_eq(loop->grant(d->b.conn, d->to, &d->remote), 0, "grant should succeed");
}

static void duo_close(struct duo *d)
{
	end_destroy(&d->w, &d->a);
	end_destroy(&d->w, &d->b);
	world_close(&d->w);
}

/* Posts writes of these sizes at once; returns after how many ns the i-th was notified. */
static void flight_times(struct duo *d, const size_t *bytes, unsigned n, uint64_t *ns)
{
	uint64_t start = spri_fabric_now(d->w.fabric);
	struct spri_event event;

	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(end_write(&d->w, &d->a, d->from, source, bytes[i], &d->remote, 0, i),
			     0, "post");
	for (unsigned i = 0; i < n; i++) {
		while (!spri_fabric_ready(d->w.fabric, 1))
			cr_assert(spri_fabric_advance(d->w.fabric, SPRI_NEVER),
				  "write %u should arrive", i);
		cr_assert_eq(take(&d->w, 1, &event, 1), 1, "one event");
		cr_assert(event.kind == SPRI_EVENT_NOTIFY && event.immediate == i,
			  "NOTIFY %u should come", i);
		ns[i] = spri_fabric_now(d->w.fabric) - start;
	}
}

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

/* Two senders to one receiver: its link takes one after another. Two receivers: the sender's does. */
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

/* ---- kill and delay ---- */

Test(loop, kill_is_noticed_after_detect)
{
	for (unsigned explicit = 0; explicit < 2; explicit ++) {
		struct spri_fabric_options options = {
			.n_places = 2, .latency_ns = 1000, .detect_ns = explicit ? 50000 : 0};
		uint64_t start, detect = explicit ? 50000 : 1000;
		struct spri_event event;
		struct duo d;

		duo_open(&d, &options, SPRI_NS_PER_S);
		cr_assert_eq(end_write(&d.w, &d.b, d.to, target, 8, &d.remote, 0, 1), 0, "post");
		start = spri_fabric_now(d.w.fabric);
		spri_fabric_kill(d.w.fabric, 0);
		spri_fabric_kill(d.w.fabric, 0);
		cr_assert(spri_fabric_killed(d.w.fabric, 0) && !spri_fabric_killed(d.w.fabric, 1),
			  "place 0 was killed");
		cr_assert_eq(loop->poll(d.w.port[0], &event, 1), -ENETDOWN,
			     "a killed place has a broken port");
		cr_assert_eq(loop->wait(d.w.port[0], start + 10), -ENETDOWN,
			     "a killed place has a broken port");
		cr_assert_eq(end_write(&d.w, &d.a, d.from, source, 8, &d.remote, 0, 1), -ENETDOWN,
			     "and posts nothing");
		run_until(&d.w, start + detect - 1);
		cr_assert_eq(take(&d.w, 1, &event, 1), 0, "nothing to see before %llu ns",
			     (unsigned long long)detect);
		run_until(&d.w, start + detect);
		cr_assert_eq(take(&d.w, 1, &event, 1), 1, "LOST should come after %llu ns",
			     (unsigned long long)detect);
		cr_assert(event.kind == SPRI_EVENT_LOST && event.status == -ECONNRESET,
			  "LOST with -ECONNRESET");
		cr_assert_str_eq(loop->describe(d.b.conn), "rank 0: connection reset by kill",
				 "not \"%s\"", loop->describe(d.b.conn));
		run_until(&d.w, start + 2 * SPRI_NS_PER_S);
		cr_assert_eq(take(&d.w, 1, &event, 1), 0, "LOST comes once, and no SENT");
		duo_close(&d);
	}
}

/* Three writes of 1 ms each; the kill comes when the first has left and the second is leaving. */
Test(loop, kill_loses_what_has_not_left)
{
	struct spri_fabric_options options = {
		.n_places = 2, .latency_ns = 5000000, .bytes_per_s = 1e6, .detect_ns = 1};
	struct duo d;
	uint64_t start;

	duo_open(&d, &options, 10 * SPRI_NS_PER_S);
	memset(target, 0, 3000);
	memset(source, 7, 3000);
	start = spri_fabric_now(d.w.fabric);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(end_write(&d.w, &d.a, d.from, source, 1000, &d.remote, 1000 * i, i), 0,
			     "post");
	run_until(&d.w, start + 1500000);
	spri_fabric_kill(d.w.fabric, 0);
	run_until(&d.w, start + 100000000);
	d.w.broken = 0;
	while (!d.b.lost && d.w.t)
		world_step(&d.w, 0);
	cr_assert_eq(d.b.n_notify, 1, "the first write had left and should arrive, %u did",
		     d.b.n_notify);
	cr_assert(target[999] == 7 && target[1000] == 0, "only the first write should be in place");
	duo_close(&d);
}

Test(loop, connecting_to_a_killed_place_times_out)
{
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 1000};
	struct spri_event event;
	struct world w;
	struct end a;

	fabric_open(&w, &options, 2, 70000);
	spri_fabric_kill(w.fabric, 1);
	end_create(&w, 0, &a);
	cr_assert_eq(end_connect(&w, &a, 1, 1, true, NULL, "rank 1"), 0, "connect should start");
	run_until(&w, 69999);
	cr_assert_eq(take(&w, 0, &event, 1), 0, "not before the timeout");
	run_until(&w, 70000);
	cr_assert_eq(take(&w, 0, &event, 1), 1, "but then");
	cr_assert(event.kind == SPRI_EVENT_LOST && event.status == -ETIMEDOUT,
		  "LOST with -ETIMEDOUT");
	end_destroy(&w, &a);
	world_close(&w);
}

Test(loop, delay_is_added_one_way)
{
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 1000};
	static const size_t bytes[] = {0, 0};
	struct duo d;
	uint64_t ns[2], start;

	duo_open(&d, &options, SPRI_NS_PER_S);
	spri_fabric_delay(d.w.fabric, 0, 1, 123456);
	flight_times(&d, bytes, 2, ns);
	cr_assert(ns[0] == 124456 && ns[1] == 124456, "the delay should be added to the latency");
	start = spri_fabric_now(d.w.fabric);
	cr_assert_eq(end_write(&d.w, &d.b, d.to, target, 0, &d.remote, 0, 1), 0, "post");
	run_until(&d.w, start + 1000);
	world_step(&d.w, 0);
	cr_assert_eq(d.a.n_notify, 1, "the other way should have no delay");
	spri_fabric_delay(d.w.fabric, 0, 1, 0);
	flight_times(&d, bytes, 2, ns);
	cr_assert_eq(ns[0], 1000, "a delay can be taken back");
	duo_close(&d);
}

Test(loop, a_delay_beyond_the_timeout_is_lost)
{
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 1000};
	struct duo d;
	uint64_t start;

	duo_open(&d, &options, SPRI_NS_PER_MS);
	start = spri_fabric_now(d.w.fabric);
	spri_fabric_delay(d.w.fabric, 0, 1, 3600 * SPRI_NS_PER_S);
	cr_assert_eq(end_write(&d.w, &d.a, d.from, source, 8, &d.remote, 0, 1), 0, "post");
	cr_assert(pump(&d.w, d.a.lost), "the sender should see LOST");
	cr_assert_eq(d.a.status, -ETIMEDOUT, "for the timeout");
	cr_assert_leq(spri_fabric_now(d.w.fabric) - start, 2 * SPRI_NS_PER_MS,
		      "soon after the timeout");
	cr_assert_eq(d.a.n_sent, 0, "no SENT");
	duo_close(&d);
}

/* ---- the scheduler's hook ---- */

struct hook {
	struct world *w;
	unsigned n;
	uint32_t place;
	uint64_t deadline_ns;
};

static int hook_wait(void *arg, uint32_t place, uint64_t deadline_ns)
{
	struct hook *hook = arg;

	hook->n++;
	hook->place = place;
	hook->deadline_ns = deadline_ns;
	return hook->n == 2 ? -EINTR : 0;
}

Test(loop, the_hook_waits)
{
	struct spri_fabric_options options = {.n_places = 2};
	struct world w;
	struct hook hook = {.w = &w};

	fabric_open(&w, &options, 2, SPRI_NS_PER_S);
	spri_fabric_on_wait(w.fabric, hook_wait, &hook);
	cr_assert_eq(loop->wait(w.port[1], 777), 0, "wait should give what the hook gives");
	cr_assert(hook.n == 1 && hook.place == 1 && hook.deadline_ns == 777,
		  "the hook should be called");
	cr_assert_eq(spri_fabric_now(w.fabric), 0, "the hook moves time, not wait");
	cr_assert_eq(loop->wait(w.port[0], 1), -EINTR, "wait should give what the hook gives");
	spri_fabric_on_wait(w.fabric, NULL, NULL);
	cr_assert(!spri_fabric_ready(w.fabric, 0), "nothing is ready");
	loop->wake(w.port[0]);
	cr_assert(spri_fabric_ready(w.fabric, 0) && !spri_fabric_ready(w.fabric, 1),
		  "a place that was woken is ready");
	world_close(&w);
}

Test(loop, places_have_one_port)
{
	struct spri_fabric_options options = {.n_places = 2};
	struct spri_port_options port = {.timeout_ns = 1};
	struct spri_port *second = NULL;
	struct spri_text text;
	struct world w;

	fabric_open(&w, &options, 1, 1);
	port.fabric = w.fabric;
	cr_assert_eq(loop->listen(&port, &second, &text), -EADDRINUSE, "place 0 is taken");
	port.place = 2;
	cr_assert_eq(loop->listen(&port, &second, &text), SPR_EARGUMENT, "there is no place 2");
	port.fabric = NULL;
	cr_assert_eq(loop->listen(&port, &second, &text), SPR_EARGUMENT, "there is no fabric");
	port.fabric = w.fabric;
	port.place = 1;
	spri_fabric_kill(w.fabric, 1);
	cr_assert_eq(loop->listen(&port, &second, &text), -ENETDOWN, "place 1 was killed");
	cr_assert_null(second, "a failed listen should write nothing");
	world_close(&w);
}

/* ---- many ---- */

enum { PLACES = 1024, HALF = 20 }; /* 2 × HALF connections per place */

/* A killed place leaves its port behind; the fabric frees it with all it holds. */
Test(loop, a_thousand_places)
{
	struct spri_fabric_options options = {.n_places = PLACES,
					      .latency_ns = 20000,
					      .bytes_per_s = 1e9,
					      .jitter_ns = 5000,
					      .seed = 1};
	struct spri_port_options po = {.timeout_ns = SPRI_NS_PER_S};
	static struct spri_port *port[PLACES];
	static struct spri_conn *conn[PLACES][2 * HALF];
	struct spri_event events[8];
	struct spri_fabric *fabric;
	struct spri_text text;
	long live = spri_heap_live();
	unsigned connected = 0, notified = 0, lost = 0;
	int n;

	loop = spri_transport_find("loop");
	cr_assert_eq(spri_fabric_create(&options, &fabric), 0, "a fabric of %d places", PLACES);
	po.fabric = fabric;
	for (po.place = 0; po.place < PLACES; po.place++)
		cr_assert_eq(loop->listen(&po, &port[po.place], &text), 0, "listen");
	for (uint32_t i = 0; i < PLACES; i++)
		for (uint32_t k = 0; k < 2 * HALF;
		     k++) { /* place i reaches out to i + 1 … i + HALF */
			uint32_t to = (k < HALF ? i + k + 1 : i + PLACES - (k - HALF + 1)) % PLACES;
			uint8_t blob[SPRI_ADDRESS_BYTES];
			struct spri_connect args = {
				.address = blob, .id = k % HALF, .active = k < HALF, .label = "x"};

			args.address_bytes = loop->address(port[to], blob);
			cr_assert_eq(loop->create(port[i], NULL, &conn[i][k]), 0, "create");
			cr_assert_eq(loop->connect(conn[i][k], &args), 0, "connect");
		}
	while (notified < PLACES * 2 * HALF && spri_fabric_now(fabric) < po.timeout_ns) {
		uint64_t slice = spri_fabric_now(fabric) + 5000;

		while (spri_fabric_advance(fabric, slice))
			;
		for (uint32_t i = 0; i < PLACES; i++)
			while ((n = loop->poll(port[i], events, 8)) > 0)
				for (int e = 0; e < n; e++) {
					struct spri_write write = {.notify = true};

					notified += events[e].kind == SPRI_EVENT_NOTIFY;
					if (events[e].kind != SPRI_EVENT_CONNECTED)
						continue;
					connected++;
					cr_assert_eq(loop->post(events[e].conn, &write), 0, "post");
				}
	}
	cr_assert_eq(connected, PLACES * 2 * HALF, "every end should be connected");
	cr_assert_eq(notified, PLACES * 2 * HALF, "every write should be notified");
	spri_fabric_kill(fabric, 500);
	while (spri_fabric_advance(fabric, SPRI_NEVER))
		;
	for (uint32_t i = 0; i < PLACES; i++)
		while (i != 500 && (n = loop->poll(port[i], events, 8)) > 0)
			for (int e = 0; e < n; e++)
				lost += events[e].kind == SPRI_EVENT_LOST;
	cr_assert_eq(lost, 2 * HALF, "%d places should notice the kill, %u did", 2 * HALF, lost);
	for (uint32_t i = 0; i < PLACES; i++) {
		for (uint32_t k = 0; k < 2 * HALF && i != 500; k++)
			loop->destroy(conn[i][k]);
		if (i != 500)
			loop->fini(port[i]);
	}
	spri_fabric_destroy(fabric);
	cr_assert_eq(spri_heap_live(), live, "nothing should be left");
}
