/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The conformance suite of transports: every promise of transport.h, on every row of the table that
 * this machine can use. This file: the rows themselves, meeting, parting and waiting.
 * conformance_write.c: writes and their events. conformance_refuse.c: writes that must be refused.
 * conformance_heap.c: every allocation fails once.
 */
#include "ends.h"

#include <check.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define SECOND SPRI_NS_PER_S
#define SHORT (200 * SPRI_NS_PER_MS) /* a timeout for what must not succeed */

/* ---- the rows ---- */

Test(conformance, every_slot_is_filled)
{
	const struct spri_transport *t;
	void *slot;

	for (unsigned i = 0; (t = spri_transport_row(i)) != NULL; i++) {
		cr_assert(t->name && t->name[0] && t->about && t->about[0],
			  "row %u should have name and sentence", i);
		for (size_t at = offsetof(struct spri_transport, probe); at < sizeof *t;
		     at += sizeof slot) {
			memcpy(&slot, (const char *)t + at, sizeof slot);
			cr_assert_not_null(slot, "%s: the slot at offset %zu should be filled",
					   t->name, at);
		}
		cr_assert_eq(spri_transport_find(t->name), t, "%s should be found by its name",
			     t->name);
	}
	cr_assert_null(spri_transport_find("pigeon"), "there should be no row of this name");
	cr_assert_not_null(spri_transport_find("loop"), "loop should be in the table");
	cr_assert_not_null(spri_transport_find("tcp"), "tcp should be in the table");
}

Test(conformance, rows_that_decline_say_why)
{
	const struct spri_transport *t;
	char all[1024] = "";
	size_t at = 0;

	for (unsigned i = 0; (t = spri_transport_row(i)) != NULL; i++) {
		struct spri_text why = {0};
		int r = t->probe(&why);

		cr_assert(r <= 0, "%s: probe should give 0 or negative, gave %d", t->name, r);
		if (r == 0)
			continue;
		cr_assert(why.s[0] != '\0', "%s: a row that declines should say why", t->name);
		at += (size_t)snprintf(all + at, sizeof all - at, "%s%.40s: %.200s", at ? "; " : "",
				       t->name, why.s);
	}
	if (at > 0)
		cr_skip("%s", all);
}

Test(conformance, stub_refuses)
{
	const struct spri_transport *t;
	struct spri_text why = {0};

	for (unsigned i = 0; (t = spri_transport_row(i)) != NULL; i++) {
		struct spri_port_options options = {.timeout_ns = SECOND};
		struct spri_port *port = NULL;

		if (t->probe(&why) == 0)
			continue;
		why.s[0] = '\0';
		cr_assert_lt(t->listen(&options, &port, &why), 0,
			     "%s: declines, so listen should fail", t->name);
		cr_assert(why.s[0] != '\0', "%s: listen should say why it failed", t->name);
		cr_assert_null(port, "%s: a failed listen should write no port", t->name);
	}
}

/* ---- meeting ---- */

static void private_datum(uint8_t *data, uint8_t first)
{
	for (unsigned i = 0; i < SPRI_PRIVATE_BYTES; i++)
		data[i] = (uint8_t)(first + i);
}

/* Connects a to b; whoever is first gets time for itself before the other calls. */
static void meet_in_order(const struct spri_transport *t, bool active_first)
{
	struct world w;
	struct end a, b;
	uint8_t data_a[SPRI_PRIVATE_BYTES], data_b[SPRI_PRIVATE_BYTES];

	private_datum(data_a, 1);
	private_datum(data_b, 100);
	world_open(&w, t, 2, 5 * SECOND);
	end_create(&w, 0, &a);
	end_create(&w, 1, &b);
	for (int turn = 0; turn < 2; turn++) {
		bool active = (turn == 0) == active_first;
		int r = active ? end_connect(&w, &a, 1, 42, true, data_a, "rank 1")
			       : end_connect(&w, &b, 0, 42, false, data_b, "rank 0");

		cr_assert_eq(r, 0, "%s: connect should start, gave %s", t->name, spr_error_name(r));
		if (turn == 0)
			world_settle(&w);
		cr_assert(!a.lost && !b.lost, "%s: the first end should await the second", t->name);
	}
	cr_assert(pump(&w, a.connected && b.connected), "%s: both ends should be CONNECTED",
		  t->name);
	world_settle(&w);
	cr_assert_eq(a.connected, 1, "%s: CONNECTED should come once", t->name);
	cr_assert_eq(b.connected, 1, "%s: CONNECTED should come once", t->name);
	cr_assert_arr_eq(a.private_data, data_b, SPRI_PRIVATE_BYTES, "%s: a should get b's data",
			 t->name);
	cr_assert_arr_eq(b.private_data, data_a, SPRI_PRIVATE_BYTES, "%s: b should get a's data",
			 t->name);
	cr_assert_str_eq(t->describe(a.conn), "", "%s: a healthy connection has no text", t->name);
	end_destroy(&w, &a);
	end_destroy(&w, &b);
	world_close(&w);
}

Test(conformance, meet_active_first)
{
	FOR_EACH_ROW(t)
	meet_in_order(t, true);
}

Test(conformance, meet_passive_first)
{
	FOR_EACH_ROW(t)
	meet_in_order(t, false);
}

Test(conformance, no_private_data_means_zeros)
{
	static const uint8_t zeros[SPRI_PRIVATE_BYTES];

	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b;

		world_open(&w, t, 2, 5 * SECOND);
		ends_meet(&w, 0, &a, 1, &b, 1);
		cr_assert_arr_eq(a.private_data, zeros, sizeof zeros, "%s: zeros to the active end",
				 t->name);
		cr_assert_arr_eq(b.private_data, zeros, sizeof zeros,
				 "%s: zeros to the passive end", t->name);
		end_destroy(&w, &a);
		end_destroy(&w, &b);
		world_close(&w);
	}
}

Test(conformance, ids_are_per_pair_of_ports)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end ab, ba, ac, ca, bc, cb;

		world_open(&w, t, 3, 5 * SECOND);
		ends_meet(&w, 0, &ab, 1, &ba, 9);
		ends_meet(&w, 0, &ac, 2, &ca, 9);
		ends_meet(&w, 1, &bc, 2, &cb, 9);
		end_destroy(&w, &ab);
		end_destroy(&w, &ba);
		end_destroy(&w, &ac);
		end_destroy(&w, &ca);
		end_destroy(&w, &bc);
		end_destroy(&w, &cb);
		world_close(&w);
	}
}

Test(conformance, nobody_at_the_other_end)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b;

		world_open(&w, t, 2, SHORT);
		end_create(&w, 0, &a);
		end_create(&w, 1, &b);
		/* The ids differ, so each end waits for somebody who never comes. */
		cr_assert_eq(end_connect(&w, &a, 1, 5, true, NULL, "rank 1"), 0,
			     "%s: connect should start", t->name);
		cr_assert_eq(end_connect(&w, &b, 0, 6, false, NULL, "rank 0"), 0,
			     "%s: connect should start", t->name);
		cr_assert(pump(&w, a.lost && b.lost), "%s: both should be LOST within the timeout",
			  t->name);
		cr_assert(a.lost == 1 && b.lost == 1, "%s: LOST should come once", t->name);
		cr_assert(a.connected == 0 && b.connected == 0, "%s: neither was connected",
			  t->name);
		cr_assert(a.status < 0 && b.status < 0, "%s: LOST carries a status", t->name);
		cr_assert_not_null(strstr(t->describe(a.conn), "rank 1"),
				   "%s: the text should name the peer: \"%s\"", t->name,
				   t->describe(a.conn));
		cr_assert_not_null(strstr(t->describe(b.conn), "rank 0"),
				   "%s: the text should name the peer: \"%s\"", t->name,
				   t->describe(b.conn));
		end_destroy(&w, &a);
		end_destroy(&w, &b);
		world_close(&w);
	}
}

Test(conformance, a_port_that_is_gone)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a;
		uint8_t blob[SPRI_ADDRESS_BYTES];
		struct spri_connect args = {
			.address = blob, .id = 1, .active = true, .label = "rank 2"};

		world_open(&w, t, 3, SHORT);
		args.address_bytes = t->address(w.port[2], blob);
		t->fini(w.port[2]);
		w.n_ports = 2;
		end_create(&w, 0, &a);
		cr_assert_eq(t->connect(a.conn, &args), 0, "%s: connect should start", t->name);
		cr_assert(pump(&w, a.lost), "%s: nobody listens there: LOST should come", t->name);
		cr_assert_lt(a.status, 0, "%s: LOST carries a status", t->name);
		end_destroy(&w, &a);
		world_close(&w);
	}
}

Test(conformance, bad_address_blobs)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a;
		uint8_t blob[SPRI_ADDRESS_BYTES + 1] = {0}, bad[SPRI_ADDRESS_BYTES + 1];
		size_t bytes;

		world_open(&w, t, 2, SHORT);
		bytes = t->address(w.port[1], blob);
		for (unsigned kind = 0; kind < 5; kind++) {
			struct spri_connect args = {.address = bad,
						    .address_bytes = bytes,
						    .id = 3,
						    .active = true,
						    .label = "x"};
			int r;

			memcpy(bad, blob, sizeof bad);
			switch (kind) {
			case 0:
				args.address_bytes = 0;
				break;
			case 1:
				args.address_bytes = bytes - 1;
				break;
			case 2:
				args.address_bytes = bytes + 1;
				break;
			case 3:
				bad[0] ^= 0xff;
				break;
			default:
				memset(bad, 0xff, sizeof bad);
				break;
			}
			end_create(&w, 0, &a);
			r = t->connect(a.conn, &args);
			cr_assert_eq(r, SPR_EARGUMENT,
				     "%s: bad blob %u should give SPR_EARGUMENT, gave %s", t->name,
				     kind, spr_error_name(r));
			end_destroy(&w, &a);
		}
		world_close(&w);
	}
}

Test(conformance, post_needs_a_connection)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a;
		struct spri_write write = {.notify = true};

		world_open(&w, t, 2, 5 * SECOND);
		end_create(&w, 0, &a);
		cr_assert_eq(t->post(a.conn, &write), -ENOTCONN,
			     "%s: a new connection should refuse posts", t->name);
		cr_assert_eq(end_connect(&w, &a, 1, 1, true, NULL, "rank 1"), 0,
			     "%s: connect should start", t->name);
		cr_assert_eq(t->post(a.conn, &write), -ENOTCONN,
			     "%s: posts should wait for CONNECTED", t->name);
		end_destroy(&w, &a);
		world_close(&w);
	}
}

/* ---- parting ---- */

Test(conformance, close_delivers_what_was_posted)
{
	static uint8_t source[256 * 1024], target[sizeof source];
	enum { WRITES = 20, BYTES = sizeof source / WRITES };

	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b;
		struct spri_region *from, *to;
		struct spri_remote remote;
		struct spri_write write = {.notify = true};

		pattern_fill(source, sizeof source, 3);
		memset(target, 0, sizeof target);
		world_open(&w, t, 2, 5 * SECOND);
		from = world_region(&w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
		to = world_region(&w, 1, target, sizeof target, SPRI_ACCESS_REMOTE_WRITE);
		ends_meet(&w, 0, &a, 1, &b, 1);
		cr_assert_eq(t->grant(b.conn, to, &remote), 0, "%s: grant", t->name);
		for (uint32_t i = 0; i < WRITES; i++)
			cr_assert_eq(end_write_all(&w, &a, from, source + i * BYTES, BYTES, &remote,
						   i * BYTES, i),
				     0, "%s: post %u", t->name, i);
		t->close(a.conn);
		t->close(a.conn);
		cr_assert_eq(t->post(a.conn, &write), -ENOTCONN,
			     "%s: post after close should be refused", t->name);
		cr_assert(pump(&w, b.closed && t->closed(a.conn)), "%s: CLOSED should come",
			  t->name);
		cr_assert_eq(b.notified_before_closed, WRITES,
			     "%s: all %d writes should come before CLOSED, not %u", t->name, WRITES,
			     b.notified_before_closed);
		cr_assert(pattern_is(target, (size_t)WRITES * BYTES, 3),
			  "%s: all bytes should have arrived", t->name);
		cr_assert(pump(&w, a.n_sent == WRITES), "%s: every write should be SENT", t->name);
		end_destroy(&w, &a);
		world_settle(&w);
		cr_assert_eq(b.lost, 0, "%s: no LOST after a finished close: \"%s\"", t->name,
			     t->describe(b.conn));
		cr_assert_eq(b.closed, 1, "%s: CLOSED should come once", t->name);
		end_destroy(&w, &b);
		world_close(&w);
	}
}

Test(conformance, both_close)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b;

		world_open(&w, t, 2, 5 * SECOND);
		ends_meet(&w, 0, &a, 1, &b, 1);
		t->close(a.conn);
		t->close(b.conn);
		cr_assert(pump(&w, a.closed && b.closed && t->closed(a.conn) && t->closed(b.conn)),
			  "%s: both ends should see CLOSED and be closed", t->name);
		cr_assert(!a.lost && !b.lost, "%s: neither end is lost", t->name);
		end_destroy(&w, &a);
		end_destroy(&w, &b);
		world_close(&w);
	}
}

Test(conformance, destroy_without_close_is_lost)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b;
		struct spri_write write = {.notify = true};

		world_open(&w, t, 2, 5 * SECOND);
		ends_meet(&w, 0, &a, 1, &b, 1);
		end_destroy(&w, &a);
		cr_assert(pump(&w, b.lost), "%s: the other end should see LOST", t->name);
		world_settle(&w);
		cr_assert_eq(b.lost, 1, "%s: LOST should come once", t->name);
		cr_assert_eq(b.closed, 0, "%s: there was no goodbye", t->name);
		cr_assert_lt(b.status, 0, "%s: LOST carries a status", t->name);
		cr_assert_not_null(strstr(t->describe(b.conn), "rank 0"),
				   "%s: the text should name the peer: \"%s\"", t->name,
				   t->describe(b.conn));
		cr_assert_eq(t->post(b.conn, &write), b.status,
			     "%s: post should give the status of LOST", t->name);
		cr_assert(t->closed(b.conn), "%s: a lost connection has nothing left to send",
			  t->name);
		end_destroy(&w, &b);
		world_close(&w);
	}
}

/*
 * Eight megabytes do not fit between the ends, and b does not take them: the close is not finished.
 */
Test(conformance, destroy_with_an_unfinished_close_is_lost)
{
	enum { BYTES = 8 << 20 };
	static uint8_t source[BYTES], target[BYTES];

	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b;
		struct spri_region *from, *to;
		struct spri_remote remote;

		world_open(&w, t, 2, 5 * SECOND);
		from = world_region(&w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
		to = world_region(&w, 1, target, sizeof target, SPRI_ACCESS_REMOTE_WRITE);
		ends_meet(&w, 0, &a, 1, &b, 1);
		cr_assert_eq(t->grant(b.conn, to, &remote), 0, "%s: grant", t->name);
		for (uint32_t i = 0; i < 4; i++)
			cr_assert_eq(end_write_all(&w, &a, from, source, BYTES, &remote, 0, i), 0,
				     "%s: post", t->name);
		t->close(a.conn);
		cr_assert(!t->closed(a.conn), "%s: four large writes cannot have been sent yet",
			  t->name);
		end_destroy(&w, &a);
		cr_assert(pump(&w, b.lost), "%s: the other end should see LOST", t->name);
		cr_assert_eq(b.closed, 0, "%s: the other end should not see CLOSED", t->name);
		cr_assert_lt(b.n_notify, 4, "%s: not all can have arrived", t->name);
		end_destroy(&w, &b);
		world_close(&w);
	}
}

/* Events that were not polled go with their connection; those of other connections stay. */
Test(conformance, destroy_takes_its_events_along)
{
	static uint8_t source[64], target[64];

	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b, c, d;
		struct spri_region *from, *to;
		struct spri_remote remote[2];

		world_open(&w, t, 2, 5 * SECOND);
		from = world_region(&w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
		to = world_region(&w, 1, target, sizeof target, SPRI_ACCESS_REMOTE_WRITE);
		ends_meet(&w, 0, &a, 1, &b, 1);
		ends_meet(&w, 0, &c, 1, &d, 2);
		cr_assert_eq(t->grant(b.conn, to, &remote[0]), 0, "%s: grant", t->name);
		cr_assert_eq(t->grant(d.conn, to, &remote[1]), 0, "%s: grant", t->name);
		for (uint32_t i = 0; i < 4; i++)
			cr_assert_eq(end_write_all(&w, &a, from, source, 8, &remote[0], 0, i), 0,
				     "%s: post", t->name);
		a.n_sent = b.n_notify = 0;
		for (unsigned i = 0; i < 8; i++) /* events of a and b come up, nobody polls them */
			cr_assert_eq(t->wait(w.port[i % 2], world_now(&w) + SPRI_NS_PER_MS), 0,
				     "%s: wait", t->name);
		for (uint32_t i = 0; i < 4; i++)
			cr_assert_eq(end_write(&w, &c, from, source, 8, &remote[1], 8, i), 0,
				     "%s: post", t->name);
		for (unsigned i = 0; i < 8; i++)
			cr_assert_eq(t->wait(w.port[i % 2], world_now(&w) + SPRI_NS_PER_MS), 0,
				     "%s: wait", t->name);
		end_destroy(&w, &a);
		end_destroy(&w, &b);
		cr_assert(pump(&w, d.n_notify == 4 && c.n_sent == 4),
			  "%s: the other connection has its events", t->name);
		cr_assert(a.n_sent == 0 && b.n_notify == 0 && !a.lost && !b.lost,
			  "%s: a connection that was destroyed has no events", t->name);
		end_destroy(&w, &c);
		end_destroy(&w, &d);
		world_close(&w);
	}
}

Test(conformance, destroy_in_every_state)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end a, b;

		world_open(&w, t, 2, 5 * SECOND);
		t->destroy(NULL);
		t->unregister(NULL);
		t->fini(NULL);
		end_create(&w, 0, &a);
		end_destroy(&w, &a); /* new */
		end_create(&w, 0, &a);
		cr_assert_eq(end_connect(&w, &a, 1, 1, true, NULL, "rank 1"), 0,
			     "%s: connect should start", t->name);
		end_destroy(&w, &a); /* connecting */
		world_settle(&w);
		end_create(&w, 1, &b);
		cr_assert_eq(end_connect(&w, &b, 0, 2, false, NULL, "rank 0"), 0,
			     "%s: connect should start", t->name);
		t->close(b.conn);
		cr_assert(t->closed(b.conn), "%s: closed before it was connected: nothing to send",
			  t->name);
		end_destroy(&w, &b); /* closed early */
		ends_meet(&w, 0, &a, 1, &b, 3);
		end_destroy(&w, &b); /* connected */
		cr_assert(pump(&w, a.lost), "%s: the other end should see LOST", t->name);
		end_destroy(&w, &a); /* lost */
		ends_meet(&w, 0, &a, 1, &b, 4);
		end_destroy(&w, &a); /* events of it may be under way */
		end_destroy(&w, &b);
		world_settle(&w);
		world_close(&w);
	}
}

/* ---- waiting ---- */

Test(conformance, wait_honours_its_deadline)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		uint64_t deadline;
		unsigned n = 0;

		world_open(&w, t, 1, SECOND);
		deadline = world_now(&w) + 20 * SPRI_NS_PER_MS;
		for (; world_now(&w) < deadline && n < 10000; n++)
			cr_assert_eq(t->wait(w.port[0], deadline), 0, "%s: wait should succeed",
				     t->name);
		cr_assert(world_now(&w) >= deadline, "%s: %u waits did not come to the deadline",
			  t->name, n);
		cr_assert_eq(t->wait(w.port[0], deadline), 0, "%s: a deadline in the past is fine",
			     t->name);
		cr_assert_eq(t->wait(w.port[0], 0), 0, "%s: a deadline in the past is fine",
			     t->name);
		world_close(&w);
	}
}

Test(conformance, wake_ends_the_next_wait)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		uint64_t deadline;

		world_open(&w, t, 1, SECOND);
		deadline = world_now(&w) + 3600 * SECOND;
		t->wake(w.port[0]);
		cr_assert_eq(t->wait(w.port[0], deadline), 0, "%s: wait should succeed", t->name);
		cr_assert(world_now(&w) < deadline, "%s: wake should end the next wait", t->name);
		world_close(&w);
	}
}

struct waker {
	struct world *w;
	atomic_bool done;
};

static void *wake_soon(void *arg)
{
	struct waker *waker = arg;
	struct timespec pause = {.tv_nsec = 5000000};

	nanosleep(&pause, NULL);
	atomic_store(&waker->done, true);
	waker->w->t->wake(waker->w->port[0]);
	return NULL;
}

Test(conformance, wake_ends_a_wait_under_way)
{
	FOR_EACH_ROW(t)
	{
		struct world w;
		struct waker waker = {.w = &w};
		pthread_t thread;

		world_open(&w, t, 1, SECOND);
		cr_assert_eq(pthread_create(&thread, NULL, wake_soon, &waker), 0,
			     "a thread should start");
		/*
		 * Were it not for wake(), this would take an hour of the port's clock (none of ours
		 * on loop).
		 */
		while (!atomic_load(&waker.done))
			cr_assert_eq(t->wait(w.port[0], world_now(&w) + 3600 * SECOND), 0,
				     "%s: wait", t->name);
		pthread_join(thread, NULL);
		world_close(&w);
	}
}
