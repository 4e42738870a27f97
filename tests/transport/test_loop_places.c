/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What loop promises beyond the contract of all transports, 2: kill, delay, many places, the hook.
 */
#include "duo.h"

#include <check.h>
#include <internal/alloc.h>

#include <errno.h>
#include <string.h>

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

/* The goodbye of a killed place would say that all had been sent. */
Test(loop, kill_during_close)
{
	struct spri_fabric_options options = {
		.n_places = 2, .latency_ns = 5000000, .bytes_per_s = 1e6, .detect_ns = 1};
	struct duo d;

	duo_open(&d, &options, 10 * SPRI_NS_PER_S);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(end_write(&d.w, &d.a, d.from, source, 1000, &d.remote, 0, i), 0,
			     "post");
	loop->close(d.a.conn);
	run_until(&d.w, spri_fabric_now(d.w.fabric) + 1500000);
	spri_fabric_kill(d.w.fabric, 0);
	run_until(&d.w, spri_fabric_now(d.w.fabric) + 100000000);
	world_step(&d.w, 0);
	cr_assert_eq(d.b.n_notify, 1, "the first write had left");
	cr_assert(d.b.lost == 1 && d.b.closed == 0, "LOST should come, and no CLOSED");
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
	cr_assert_str_eq(loop->describe(d.a.conn),
			 "rank 1: a write did not arrive within the timeout", "not \"%s\"",
			 loop->describe(d.a.conn));
	duo_close(&d);
}

/* ---- who waits for whom ---- */

/* More ends than the table has buckets, of ids that never meet; the table cannot grow at first. */
Test(loop, only_equal_ids_meet)
{
	enum { ENDS = 300 };
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 10};
	static struct end passive[ENDS], active[ENDS];
	struct world w;

	fabric_open(&w, &options, 2, SPRI_NS_PER_S);
	for (unsigned i = 0; i < ENDS; i++) {
		end_create(&w, 0, &passive[i]);
		end_create(&w, 1, &active[i]);
		spri_heap_fail_after(0);
		cr_assert_eq(end_connect(&w, &passive[i], 1, i, false, NULL, "b"), 0, "connect");
		spri_heap_fail_after(i < 100 ? 0 : -1);
		cr_assert_eq(end_connect(&w, &active[i], 0, ENDS + i, true, NULL, "a"), 0,
			     "connect");
		run_until(&w, spri_fabric_now(w.fabric) + 20);
		spri_heap_fail_after(-1);
	}
	cr_assert(!spri_fabric_ready(w.fabric, 0) && !spri_fabric_ready(w.fabric, 1),
		  "none should have met");
	for (unsigned i = 0; i < ENDS; i++) {
		end_destroy(&w, &active[i]);
		end_create(&w, 1, &active[i]);
		cr_assert_eq(end_connect(&w, &active[i], 0, i, true, NULL, "a"), 0, "connect");
	}
	cr_assert(pump(&w, active[ENDS - 1].connected), "now they should meet");
	for (unsigned i = 0; i < ENDS; i++) {
		cr_assert(active[i].connected == 1 && passive[i].connected == 1,
			  "all of them, but not %u", i);
		end_destroy(&w, &active[i]);
		end_destroy(&w, &passive[i]);
	}
	world_close(&w);
}

/* An address outlives its port; the next port at the place is another one. */
Test(loop, a_new_port_is_not_the_old_one)
{
	struct spri_fabric_options options = {.n_places = 2, .latency_ns = 10};
	struct spri_port_options port = {.timeout_ns = 1000, .place = 1};
	uint8_t blob[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = blob, .id = 1, .label = "old"};
	struct spri_text text;
	struct world w;
	struct end a, b, c, e, f;

	fabric_open(&w, &options, 2, 1000);
	args.address_bytes = loop->address(w.port[1], blob);
	loop->fini(w.port[1]);
	port.fabric = w.fabric;
	cr_assert_eq(loop->listen(&port, &w.port[1], &text), 0, "listen again");
	end_create(&w, 0, &a);
	cr_assert_eq(loop->connect(a.conn, &args), 0, "passive");
	end_create(&w, 1, &b);
	cr_assert_eq(end_connect(&w, &b, 0, 1, true, NULL, "b"), 0, "active");
	end_create(&w, 0, &c);
	args.active = true;
	args.id = 2;
	cr_assert_eq(loop->connect(c.conn, &args), 0, "active, to the old port");
	end_create(&w, 1, &e); /* this time the one with the right address is there first */
	cr_assert_eq(end_connect(&w, &e, 0, 3, true, NULL, "e"), 0, "active");
	run_until(&w, 50);
	end_create(&w, 0, &f);
	args.active = false;
	args.id = 3;
	cr_assert_eq(loop->connect(f.conn, &args), 0, "passive");
	cr_assert(pump(&w, a.lost && b.lost && c.lost && e.lost && f.lost),
		  "none should be connected");
	cr_assert_eq(c.status, -ECONNREFUSED, "nobody listens at the old address");
	cr_assert_str_eq(loop->describe(c.conn), "old: nobody listens at its address", "not \"%s\"",
			 loop->describe(c.conn));
	end_destroy(&w, &a);
	end_destroy(&w, &b);
	end_destroy(&w, &c);
	end_destroy(&w, &e);
	end_destroy(&w, &f);
	world_close(&w);
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
