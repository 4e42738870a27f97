/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Conformance, continued (see test_conformance.c): writes, the order of their events, and counters.
 */
#include "ends.h"

#include <check.h>

#include <errno.h>
#include <string.h>

#define SECOND SPRI_NS_PER_S

/* Two ports, one connection, a source at port 0 and a target at port 1 that is granted to `a`. */
struct bench {
	struct world w;
	struct end a, b;
	struct spri_region *from, *to;
	struct spri_remote remote;
};

static void bench_open(struct bench *x, const struct spri_transport *t, void *source,
		       size_t source_bytes, void *target, size_t target_bytes)
{
	world_open(&x->w, t, 2, 10 * SECOND);
	x->from = world_region(&x->w, 0, source, source_bytes, SPRI_ACCESS_LOCAL);
	x->to = world_region(&x->w, 1, target, target_bytes, SPRI_ACCESS_REMOTE_WRITE);
	ends_meet(&x->w, 0, &x->a, 1, &x->b, 1);
	cr_assert_eq(t->grant(x->b.conn, x->to, &x->remote), 0, "%s: grant should succeed",
		     t->name);
}

static void bench_close(struct bench *x)
{
	cr_assert(!x->a.lost && !x->b.lost, "%s: no connection should be lost: \"%s\", \"%s\"",
		  x->w.t->name, x->w.t->describe(x->a.conn), x->w.t->describe(x->b.conn));
	end_destroy(&x->w, &x->a);
	end_destroy(&x->w, &x->b);
	world_close(&x->w);
}

Test(conformance, write_without_notify)
{
	static uint8_t source[4096], target[4096];

	FOR_EACH_ROW(t)
	{
		struct bench x;
		struct spri_write write = {.n_gather = 1, .cookie = 77};

		pattern_fill(source, sizeof source, 1);
		memset(target, 0, sizeof target);
		bench_open(&x, t, source, sizeof source, target, sizeof target);
		write.gather[0] = (struct spri_gather){source, 1000, x.from};
		write.address = x.remote.address + 8;
		memcpy(write.key, x.remote.key, sizeof write.key);
		cr_assert_eq(t->post(x.a.conn, &write), 0, "%s: post", t->name);
		cr_assert(pump(&x.w, x.a.n_sent == 1), "%s: SENT should come", t->name);
		cr_assert_eq(x.a.cookies[0], 77, "%s: SENT should carry the cookie", t->name);
		world_settle(&x.w);
		cr_assert_eq(x.b.n_notify, 0, "%s: a silent write should not notify", t->name);
		/* The next notification covers it. */
		cr_assert_eq(end_write(&x.w, &x.a, x.from, source, 8, &x.remote, 2000, 0xdeadbeef),
			     0, "%s: post", t->name);
		cr_assert(pump(&x.w, x.b.n_notify == 1), "%s: NOTIFY should come", t->name);
		cr_assert_eq(x.b.immediates[0], 0xdeadbeef, "%s: NOTIFY should carry 32 bits",
			     t->name);
		cr_assert(pattern_is(target + 8, 1000, 1),
			  "%s: the silent write should be in place", t->name);
		cr_assert(pattern_is(target + 2000, 8, 1), "%s: the write should be in place",
			  t->name);
		cr_assert_eq(target[7] | target[1008], 0,
			     "%s: the bytes beside it should be untouched", t->name);
		bench_close(&x);
	}
}

Test(conformance, gather_of_one_to_eight)
{
	static uint8_t source[16384], target[16384];

	FOR_EACH_ROW(t)
	{
		struct bench x;

		pattern_fill(source, sizeof source, 2);
		bench_open(&x, t, source, sizeof source, target, sizeof target);
		for (unsigned n = 1; n <= SPRI_MAX_GATHER; n++) {
			struct spri_write write = {.n_gather = n,
						   .address = x.remote.address + 16,
						   .notify = true,
						   .immediate = n};
			size_t at = 0, bytes;

			memset(target, 0, sizeof target);
			memcpy(write.key, x.remote.key, sizeof write.key);
			for (unsigned i = 0; i < n;
			     i++) { /* the last piece first, odd sizes, some of them empty */
				bytes = i % 3 == 1 ? 0 : 13 * i + n;
				write.gather[i] =
					(struct spri_gather){source + sizeof source - 700 * (i + 1),
							     bytes, bytes ? x.from : NULL};
			}
			cr_assert_eq(t->post(x.a.conn, &write), 0, "%s: post of %u pieces", t->name,
				     n);
			memset(&write, 0xee, sizeof write); /* it was borrowed only */
			cr_assert(pump(&x.w, x.b.n_notify == n && x.a.n_sent == n),
				  "%s: %u pieces should arrive", t->name, n);
			for (unsigned i = 0; i < n; i++) {
				bytes = i % 3 == 1 ? 0 : 13 * i + n;
				cr_assert_arr_eq(target + 16 + at,
						 source + sizeof source - 700 * (i + 1), bytes,
						 "%s: piece %u of %u", t->name, i, n);
				at += bytes;
			}
			cr_assert_eq(target[15] | target[16 + at], 0, "%s: %u pieces: bytes beside",
				     t->name, n);
		}
		bench_close(&x);
	}
}

Test(conformance, notify_without_bytes)
{
	static uint8_t source[64], target[64];

	FOR_EACH_ROW(t)
	{
		struct bench x;
		struct spri_write write = {.notify = true, .immediate = 5, .cookie = 6};

		bench_open(&x, t, source, sizeof source, target, sizeof target);
		cr_assert_eq(t->post(x.a.conn, &write), 0, "%s: no pieces: no key is needed",
			     t->name);
		write.n_gather = 2; /* two empty pieces, no region, at the very end of the target */
		write.immediate = 7;
		write.address = x.remote.address + sizeof target;
		memcpy(write.key, x.remote.key, sizeof write.key);
		cr_assert_eq(t->post(x.a.conn, &write), 0, "%s: empty pieces", t->name);
		cr_assert(pump(&x.w, x.b.n_notify == 2 && x.a.n_sent == 2),
			  "%s: both should arrive", t->name);
		cr_assert(x.b.immediates[0] == 5 && x.b.immediates[1] == 7, "%s: in order",
			  t->name);
		bench_close(&x);
	}
}

/* ---- order ---- */

enum { MANY = 1000, LARGEST = 8000 };

static size_t size_of(uint32_t i)
{
	return 1 + (i * 2654435761u >> 7) % (i % 10 == 0 ? LARGEST : 300);
}

struct order {
	const char *name;
	uint8_t *target;
	uint32_t next; /* immediate that must come next: odd ones */
	size_t at;     /* where write next - 1 begins */
};

/* Each NOTIFY finds its own bytes and those of the silent write before it. */
static void check_order(struct end *end, uint32_t immediate, void *arg)
{
	struct order *o = arg;

	cr_assert(end->lost == 0, "%s: no NOTIFY after LOST", o->name);
	cr_assert_eq(immediate, o->next, "%s: NOTIFY %u should come, not %u", o->name, o->next,
		     immediate);
	for (uint32_t i = immediate - 1; i <= immediate; i++) {
		cr_assert(pattern_is(o->target + o->at, size_of(i), i),
			  "%s: the bytes of write %u should be in place", o->name, i);
		o->at += size_of(i);
	}
	o->next += 2;
}

/*
 * 1,000 writes of mixed sizes, half of them silent, from two buffers that are used again after
 * their SENT: a SENT that comes too early shows up as wrong bytes.
 */
Test(conformance, order_of_many_writes)
{
	static uint8_t source[2][LARGEST], target[2 * MANY * LARGEST / 10];

	FOR_EACH_ROW(t)
	{
		struct bench x;
		struct order o = {t->name, target, 1, 0};
		size_t at = 0;

		memset(target, 0, sizeof target);
		bench_open(&x, t, source, sizeof source, target, sizeof target);
		x.b.on_notify = check_order;
		x.b.arg = &o;
		for (uint32_t i = 0; i < MANY; i++) {
			struct spri_write write = {
				.n_gather = 1, .notify = i % 2, .immediate = i, .cookie = 3 * i};
			uint64_t until = world_now(&x.w) + WORLD_PATIENCE;
			int r;

			cr_assert(at + size_of(i) <= sizeof target,
				  "the target is too small for the test");
			/* Write i - 2 used the same buffer. */
			cr_assert(i < 2 || pump(&x.w, x.a.n_sent >= i - 1),
				  "%s: write %u should be SENT", t->name, i - 2);
			pattern_fill(source[i % 2], size_of(i), i);
			write.gather[0] = (struct spri_gather){source[i % 2], size_of(i), x.from};
			write.address = x.remote.address + at;
			memcpy(write.key, x.remote.key, sizeof write.key);
			at += size_of(i);
			do
				r = t->post(x.a.conn, &write);
			while (r == SPRI_AGAIN && world_step(&x.w, until));
			cr_assert_eq(r, 0, "%s: post %u gave %s", t->name, i, spr_error_name(r));
		}
		cr_assert(pump(&x.w, o.next == MANY + 1 && x.a.n_sent == MANY),
			  "%s: all should arrive", t->name);
		for (uint32_t i = 0; i < MANY; i++)
			cr_assert_eq(x.a.cookies[i], 3 * i,
				     "%s: SENT %u should be in the order of the posts", t->name, i);
		bench_close(&x);
	}
}

/*
 * Posts without polling until the queue is full; afterwards all that was taken arrives, and more
 * can be posted.
 */
Test(conformance, full_queue)
{
	enum { BYTES = 512, MOST = END_LOG };
	static uint8_t source[BYTES], target[BYTES];

	FOR_EACH_ROW(t)
	{
		struct bench x;
		uint32_t taken = 0;
		int r = 0;

		pattern_fill(source, sizeof source, 5);
		bench_open(&x, t, source, sizeof source, target, sizeof target);
		for (unsigned round = 1; round <= 2; round++) {
			while (taken < round * MOST / 2) {
				r = end_write(&x.w, &x.a, x.from, source, BYTES, &x.remote, 0,
					      taken);
				if (r != 0)
					break;
				taken++;
			}
			cr_assert_eq(r, SPRI_AGAIN, "%s: %u posts should fill the queue", t->name,
				     taken);
			cr_assert(pump(&x.w, x.a.n_sent == taken && x.b.n_notify == taken),
				  "%s: what was taken should arrive: %u, not %u", t->name, taken,
				  x.b.n_notify);
			for (uint32_t i = 0; i < taken; i++)
				cr_assert(x.b.immediates[i] == i && x.a.cookies[i] == i,
					  "%s: order at %u", t->name, i);
		}
		bench_close(&x);
	}
}

/* ---- size ---- */

Test(conformance, large_write)
{
	enum { BYTES = 8 << 20 };
	static uint8_t source[BYTES], target[BYTES + 2];

	pattern_fill(source, sizeof source, 13);
	FOR_EACH_ROW(t)
	{
		struct bench x;
		struct spri_write write = {.n_gather = 3, .notify = true, .immediate = 1};

		memset(target, 0, sizeof target);
		bench_open(&x, t, source, sizeof source, target, sizeof target);
		write.gather[0] = (struct spri_gather){source, 1000001, x.from};
		write.gather[1] = (struct spri_gather){source + 1000001, 5, x.from};
		write.gather[2] = (struct spri_gather){source + 1000006, BYTES - 1000006, x.from};
		write.address = x.remote.address + 1;
		memcpy(write.key, x.remote.key, sizeof write.key);
		cr_assert_eq(t->post(x.a.conn, &write), 0, "%s: post of 8 MiB", t->name);
		cr_assert(pump(&x.w, x.b.n_notify == 1 && x.a.n_sent == 1),
			  "%s: 8 MiB should arrive", t->name);
		cr_assert_arr_eq(target + 1, source, BYTES, "%s: 8 MiB should be right", t->name);
		cr_assert_eq(target[0] | target[BYTES + 1], 0,
			     "%s: the bytes beside should be untouched", t->name);
		bench_close(&x);
	}
}

/*
 * Both ends send more than any buffer in between holds; neither waits for the other to read first.
 */
Test(conformance, both_ways_at_once)
{
	enum { BYTES = 3 << 20, WRITES = 4 };
	static uint8_t memory[2][2][BYTES]; /* [port][source, target] */

	FOR_EACH_ROW(t)
	{
		struct world w;
		struct end e[2];
		struct spri_region *from[2], *to[2];
		struct spri_remote remote[2];

		world_open(&w, t, 2, 10 * SECOND);
		for (unsigned p = 0; p < 2; p++) {
			pattern_fill(memory[p][0], BYTES, 20 + p);
			memset(memory[p][1], 0, BYTES);
			from[p] = world_region(&w, p, memory[p][0], BYTES, SPRI_ACCESS_LOCAL);
			to[p] = world_region(&w, p, memory[p][1], BYTES, SPRI_ACCESS_REMOTE_WRITE);
		}
		ends_meet(&w, 0, &e[0], 1, &e[1], 1);
		for (unsigned p = 0; p < 2; p++)
			cr_assert_eq(t->grant(e[p].conn, to[p], &remote[p]), 0, "%s: grant",
				     t->name);
		for (uint32_t i = 0; i < WRITES; i++)
			for (unsigned p = 0; p < 2; p++)
				cr_assert_eq(end_write_all(&w, &e[p], from[p], memory[p][0], BYTES,
							   &remote[!p], 0, i),
					     0, "%s: post", t->name);
		cr_assert(pump(&w, e[0].n_notify == WRITES && e[1].n_notify == WRITES),
			  "%s: all should arrive", t->name);
		for (unsigned p = 0; p < 2; p++) {
			cr_assert(pattern_is(memory[p][1], BYTES, 20 + !p), "%s: bytes at port %u",
				  t->name, p);
			end_destroy(&w, &e[p]);
		}
		world_close(&w);
	}
}

/* ---- several connections ---- */

Test(conformance, several_connections_between_two_ports)
{
	enum { CONNS = 6, BYTES = 3000 };
	static uint8_t source[CONNS][BYTES], target[CONNS][BYTES];
	static struct end a[CONNS], b[CONNS];

	FOR_EACH_ROW(t)
	{
		struct world w;
		struct spri_region *from[2];
		struct spri_remote remote[CONNS];

		memset(target, 0, sizeof target);
		world_open(&w, t, 2, 10 * SECOND);
		from[0] = world_region(&w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
		from[1] = world_region(&w, 1, source, sizeof source, SPRI_ACCESS_LOCAL);
		for (unsigned i = 0; i < CONNS; i++) { /* every other one from port 1 to port 0 */
			struct spri_region *to = world_region(&w, !(i % 2), target[i], BYTES,
							      SPRI_ACCESS_REMOTE_WRITE);

			pattern_fill(source[i], BYTES, 100 + i);
			ends_meet(&w, i % 2, &a[i], !(i % 2), &b[i], 1000 + i);
			cr_assert_eq(t->grant(b[i].conn, to, &remote[i]), 0, "%s: grant", t->name);
		}
		for (unsigned i = 0; i < CONNS; i++)
			for (unsigned k = 0; k < i; k++)
				cr_assert_arr_neq(
					remote[i].key, remote[k].key, SPRI_KEY_BYTES,
					"%s: each connection should have a key of its own",
					t->name);
		for (unsigned i = CONNS; i-- > 0;)
			cr_assert_eq(end_write(&w, &a[i], from[i % 2], source[i], BYTES, &remote[i],
					       0, i),
				     0, "%s: post", t->name);
		for (unsigned i = 0; i < CONNS; i++) {
			cr_assert(pump(&w, b[i].n_notify == 1), "%s: connection %u should notify",
				  t->name, i);
			cr_assert_eq(b[i].immediates[0], i,
				     "%s: connection %u should get its own immediate", t->name, i);
			cr_assert(pattern_is(target[i], BYTES, 100 + i), "%s: connection %u: bytes",
				  t->name, i);
		}
		for (unsigned i = 0; i < CONNS; i++) {
			end_destroy(&w, &a[i]);
			end_destroy(&w, &b[i]);
		}
		world_close(&w);
	}
}

/* ---- counters and arguments ---- */

Test(conformance, stats_count)
{
	static uint8_t source[10000], target[10000];

	FOR_EACH_ROW(t)
	{
		struct bench x;
		struct spri_port_stats before, after, other;

		bench_open(&x, t, source, sizeof source, target, sizeof target);
		t->stats(x.w.port[0], &before);
		for (uint32_t i = 0; i < 5; i++)
			cr_assert_eq(
				end_write_all(&x.w, &x.a, x.from, source, 2000, &x.remote, 0, i), 0,
				"%s: post", t->name);
		cr_assert(pump(&x.w, x.b.n_notify == 5 && x.a.n_sent == 5), "%s: all should arrive",
			  t->name);
		t->stats(x.w.port[0], &after);
		t->stats(x.w.port[1], &other);
		cr_assert_eq(after.writes - before.writes, 5, "%s: 5 writes were posted", t->name);
		cr_assert_geq(after.wire_bytes - before.wire_bytes, 5 * (2000 + t->frame_bytes),
			      "%s: 5 writes of 2,000 bytes and their frames were sent", t->name);
		cr_assert_leq(after.wire_bytes - before.wire_bytes, 10000 + 5 * 256,
			      "%s: framing should be small", t->name);
		cr_assert_eq(other.writes, 0, "%s: port 1 posted nothing", t->name);
		bench_close(&x);
	}
}

/* A post that cannot be is refused at once, and the connection lives on. */
Test(conformance, bad_posts)
{
	static uint8_t memory[4098], target[4096];
	uint8_t *source = memory + 1;

	FOR_EACH_ROW(t)
	{
		struct bench x;
		struct spri_region *elsewhere;
		struct spri_write good = {.n_gather = 1, .notify = true}, bad;

		bench_open(&x, t, source, sizeof target, target, sizeof target);
		elsewhere = world_region(&x.w, 1, source, sizeof target, SPRI_ACCESS_LOCAL);
		good.address = x.remote.address;
		memcpy(good.key, x.remote.key, sizeof good.key);
		good.gather[0] = (struct spri_gather){source, sizeof target, x.from};
		bad = good;
		bad.n_gather = SPRI_MAX_GATHER + 1;
		cr_assert_eq(t->post(x.a.conn, &bad), SPR_EARGUMENT, "%s: too many pieces",
			     t->name);
		bad = good;
		bad.gather[0].region = NULL;
		cr_assert_eq(t->post(x.a.conn, &bad), SPR_EARGUMENT, "%s: bytes without a region",
			     t->name);
		bad = good;
		bad.gather[0].bytes++;
		cr_assert_eq(t->post(x.a.conn, &bad), SPR_EARGUMENT,
			     "%s: a piece that leaves its region", t->name);
		bad = good;
		bad.gather[0].base = memory;
		cr_assert_eq(t->post(x.a.conn, &bad), SPR_EARGUMENT,
			     "%s: a piece before its region", t->name);
		bad = good;
		bad.gather[0].region = elsewhere;
		cr_assert_eq(t->post(x.a.conn, &bad), SPR_EARGUMENT, "%s: a region of another port",
			     t->name);
		cr_assert_eq(t->post(x.a.conn, &good), 0, "%s: the connection should live on",
			     t->name);
		cr_assert(pump(&x.w, x.b.n_notify == 1 && x.a.n_sent == 1), "%s: and carry a write",
			  t->name);
		bench_close(&x);
	}
}
