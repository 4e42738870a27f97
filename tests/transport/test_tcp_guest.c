/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Streams that have come in and whose hello has not found its connection: parked ones, replaced
 * ones, and too many of them.
 */
#include "raw.h"

#include <check.h>

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SECOND SPRI_NS_PER_S
#define MS SPRI_NS_PER_MS

/* ---- hellos that come too early, too late, twice ---- */

Test(tcp, parked_hello)
{
	struct world w;
	struct raw raw;
	struct spri_hello h;
	struct end end;

	world_open(&w, raw_row(), 2, 5 * SECOND);
	raw_dial(&w, 1, 0, &raw);
	h = raw_hello(&w, 1, &raw, 12);
	cr_assert(raw_send_hello(&w, &raw, &h), "send");
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_PARKED,
		     "the port should say that it is the right one");
	cr_assert_eq(raw_port(&w, 1)->n_parked, 1, "the hello should be kept");
	raw_awaited(&w, 1, &raw, 12, &end);
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_ACCEPTED, "connect() should find it");
	cr_assert_eq(raw_port(&w, 1)->n_parked, 0, "and take it out");
	raw_close(&raw);
	end_destroy(&w, &end);
	world_close(&w);
}

Test(tcp, parked_hello_nobody_asks_for)
{
	struct world w;
	struct raw raw;
	struct spri_hello h;

	world_open(&w, raw_row(), 2, 200 * MS);
	raw_dial(&w, 1, 0, &raw);
	h = raw_hello(&w, 1, &raw, 12);
	cr_assert(raw_send_hello(&w, &raw, &h), "send");
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_PARKED, "parked first");
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_NOT_AWAITED,
		     "then told that nobody came");
	cr_assert(raw_ended(&w, &raw), "and ended");
	cr_assert_eq(raw_port(&w, 1)->n_parked, 0, "nothing should be kept");
	raw_close(&raw);
	world_close(&w);
}

/* A parked peer that hangs up, or says more than it may, is forgotten. */
Test(tcp, parked_hello_that_goes_away)
{
	for (unsigned kind = 0; kind < 2; kind++) {
		struct world w;
		struct raw raw;
		struct spri_hello h;

		world_open(&w, raw_row(), 2, 5 * SECOND);
		raw_dial(&w, 1, 0, &raw);
		h = raw_hello(&w, 1, &raw, 12);
		cr_assert(raw_send_hello(&w, &raw, &h), "send");
		cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_PARKED, "parked");
		if (kind == 0)
			raw_close(&raw);
		else
			raw_send(&w, &raw, "more", 4);
		cr_assert(pump(&w, raw_port(&w, 1)->n_parked == 0), "kind %u: forgotten", kind);
		raw_close(&raw);
		world_close(&w);
	}
}

/* The newer of two streams for one connection counts: the peer tries its addresses in turn. */
Test(tcp, newer_hello_replaces_older)
{
	for (unsigned early = 0; early < 2; early++) {
		const struct spri_frame confirm = {.type = SPRI_FRAME_CONFIRM};
		struct world w;
		struct raw raw[2];
		struct spri_hello h;
		struct end end;

		world_open(&w, raw_row(), 2, 5 * SECOND);
		for (unsigned i = 0; i < 2; i++)
			raw_dial(&w, 1, 0, &raw[i]);
		memcpy(raw[1].id, raw[0].id, sizeof raw[0].id);
		h = raw_hello(&w, 1, &raw[0], 2);
		if (!early)
			raw_awaited(&w, 1, &raw[0], 2, &end);
		for (unsigned i = 0; i < 2; i++) {
			cr_assert(raw_send_hello(&w, &raw[i], &h), "send");
			cr_assert_eq(raw_answer(&w, &raw[i]).status,
				     early ? SPRI_ANSWER_PARKED : SPRI_ANSWER_ACCEPTED, "stream %u",
				     i);
		}
		cr_assert(raw_ended(&w, &raw[0]), "the older stream should end");
		if (early) {
			raw_awaited(&w, 1, &raw[0], 2, &end);
			cr_assert_eq(raw_answer(&w, &raw[1]).status, SPRI_ANSWER_ACCEPTED,
				     "the newer one should be taken");
		}
		cr_assert(raw_send_frame(&w, &raw[1], &confirm), "confirm");
		cr_assert(pump(&w, end.connected == 1), "and connect");
		for (unsigned i = 0; i < 2; i++)
			raw_close(&raw[i]);
		end_destroy(&w, &end);
		world_close(&w);
	}
}

/* A peer that gives up between our answer and its CONFIRM may come again. */
Test(tcp, stream_that_ends_before_confirm)
{
	struct world w;
	struct raw raw, again;
	struct spri_hello h;
	struct end end;
	const struct spri_frame notify = {.type = SPRI_FRAME_WRITE, .flags = SPRI_FRAME_NOTIFY};

	world_open(&w, raw_row(), 2, 5 * SECOND);
	for (unsigned kind = 0; kind < 2; kind++) {
		raw_dial(&w, 1, 0, &raw);
		raw_awaited(&w, 1, &raw, 2 + kind, &end);
		h = raw_hello(&w, 1, &raw, 2 + kind);
		cr_assert(raw_send_hello(&w, &raw, &h), "send");
		cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_ACCEPTED, "first try");
		if (kind == 1) /* a frame that comes too early */
			raw_send_frame(&w, &raw, &notify);
		else
			raw_close(&raw);
		cr_assert(kind == 0 || raw_ended(&w, &raw), "the stream should end");
		raw_dial(&w, 1, 0, &again);
		cr_assert(raw_send_hello(&w, &again, &h), "send");
		cr_assert_eq(raw_answer(&w, &again).status, SPRI_ANSWER_ACCEPTED, "second try");
		cr_assert_eq(end.connected + end.lost + end.n_notify, 0, "nothing happened yet");
		raw_close(&raw);
		raw_close(&again);
		end_destroy(&w, &end);
	}
	world_close(&w);
}

/* ---- numbers ---- */

/* Silent streams are bounded in number; those who say hello get through. */
Test(tcp, half_open_flood)
{
	enum { FLOOD = TCP_HALF_OPEN + 100 };
	static struct raw raw[FLOOD];
	struct world w;
	struct tcp_port *p;
	unsigned most = 0;

	world_open(&w, raw_row(), 2, 10 * SECOND);
	p = raw_port(&w, 1);
	for (unsigned i = 0; i < FLOOD; i++) {
		raw_dial(&w, 1, 0, &raw[i]);
		world_step(&w, UINT64_MAX);
		most = p->n_half_open > most ? p->n_half_open : most;
	}
	world_settle(&w);
	cr_assert_eq(p->n_half_open, TCP_HALF_OPEN, "the flood should fill what it may, not %u",
		     p->n_half_open);
	cr_assert_leq(most, TCP_HALF_OPEN, "never more than %d should be half open", TCP_HALF_OPEN);
	raw_expect_healthy(&w, "a flood of silent streams");
	for (unsigned i = 0; i < FLOOD; i++)
		raw_close(&raw[i]);
	cr_assert(pump(&w, p->n_half_open == 0), "closed streams should be forgotten");
	world_close(&w);
}

Test(tcp, silent_streams_have_a_deadline)
{
	struct world w;
	struct raw raw;

	world_open(&w, raw_row(), 2, 200 * MS);
	raw_dial(&w, 1, 0, &raw);
	cr_assert(pump(&w, raw_port(&w, 1)->n_half_open == 1), "half open at first");
	cr_assert(raw_ended(&w, &raw), "then ended");
	cr_assert_eq(raw_port(&w, 1)->n_half_open, 0, "and forgotten");
	raw_close(&raw);
	world_close(&w);
}

/* A port without descriptors waits for some instead of spinning or failing. */
Test(tcp, no_descriptors_left)
{
	enum { MOST = 200 };
	struct rlimit before, few;
	static int spare[MOST];
	unsigned n = 0;
	struct world w;
	struct raw raw;
	struct spri_hello h;

	world_open(&w, raw_row(), 2, 5 * SECOND);
	raw_dial(&w, 1, 0, &raw);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0, "the limit is known");
	few = (struct rlimit){MOST, before.rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0, "the limit can be lowered");
	while (n < MOST && (spare[n] = dup(raw.fd)) >= 0)
		n++;
	cr_assert(n < MOST, "the limit should hold");
	world_settle(&w);
	cr_assert_eq(raw_port(&w, 1)->n_half_open, 0, "nobody can come in");
	cr_assert(raw_port(&w, 1)->accept_paused, "accepting should pause");
	while (n > 0)
		close(spare[--n]);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0, "the limit can be raised");
	h = raw_hello(&w, 1, &raw, 12);
	cr_assert(raw_send_hello(&w, &raw, &h), "send");
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_PARKED, "then go on");
	raw_close(&raw);
	world_close(&w);
}
