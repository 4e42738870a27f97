/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Conformance, continued (see test_conformance.c): writes that the receiving side must refuse. Each
 * case makes a fresh connection, posts one bad write, and expects LOST with SPR_EACCESS at both
 * ends, no NOTIFY, no SENT after it, and not a byte changed in the target or in the guards around
 * it.
 */
#include "ends.h"

#include <check.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define SECOND SPRI_NS_PER_S

enum { GUARD = 4096, BYTES = 1024, GUARD_VALUE = 0xa5 };

struct trial {
	const struct spri_transport *t;
	struct world w;
	struct end a, b;
	struct spri_region *from, *to;
	struct spri_remote remote; /* of the target, granted to a */
	uint8_t source[2 * GUARD];
	uint8_t memory[GUARD + BYTES + GUARD]; /* the target is the middle */
};

static struct trial x;

static void trial_open(const struct spri_transport *t, unsigned access)
{
	memset(&x, 0, sizeof x);
	x.t = t;
	memset(x.memory, GUARD_VALUE, sizeof x.memory);
	memset(x.source, 0x11, sizeof x.source);
	world_open(&x.w, t, 2, 10 * SECOND);
	x.from = world_region(&x.w, 0, x.source, sizeof x.source, SPRI_ACCESS_LOCAL);
	x.to = world_region(&x.w, 1, x.memory + GUARD, BYTES, access);
	ends_meet(&x.w, 0, &x.a, 1, &x.b, 1);
}

static void trial_grant(void)
{
	cr_assert_eq(x.t->grant(x.b.conn, x.to, &x.remote), 0, "%s: grant should succeed",
		     x.t->name);
}

/* Where the device checks, one end may see another status than SPR_EACCESS. */
static void check_status(const char *which, int status, const char *what)
{
	if (x.t->caps & SPRI_CAP_REFUSALS)
		cr_assert_eq(status, SPR_EACCESS, "%s: %s: the %s should see SPR_EACCESS, not %s",
			     x.t->name, what, which, spr_error_name(status));
	else
		cr_assert_lt(status, 0, "%s: %s: the %s should see a failure, not %d", x.t->name,
			     what, which, status);
}

/* Posts `bytes` bytes at an offset from the remote's address and expects the refusal. */
static void expect_refusal(uint64_t offset, size_t bytes, const char *what)
{
	struct spri_write late = {.notify = true};

	cr_assert_eq(end_write(&x.w, &x.a, x.from, x.source, bytes, &x.remote, offset, 1), 0,
		     "%s: %s: the sender cannot know, so post should take it", x.t->name, what);
	cr_assert(pump(&x.w, x.a.lost && x.b.lost), "%s: %s: both ends should be LOST", x.t->name,
		  what);
	world_settle(&x.w);
	cr_assert(x.a.lost == 1 && x.b.lost == 1, "%s: %s: LOST should come once", x.t->name, what);
	check_status("sender", x.a.status, what);
	check_status("receiver", x.b.status, what);
	cr_assert_eq(x.b.n_notify, 0, "%s: %s: a refused write should not notify", x.t->name, what);
	for (size_t i = 0; i < sizeof x.memory; i++)
		cr_assert_eq(x.memory[i], GUARD_VALUE,
			     "%s: %s: the byte at %td of the target was changed", x.t->name, what,
			     (ptrdiff_t)i - GUARD);
	cr_assert_not_null(strstr(x.t->describe(x.a.conn), "rank 1"),
			   "%s: %s: the text should name the peer: \"%s\"", x.t->name, what,
			   x.t->describe(x.a.conn));
	cr_assert_not_null(strstr(x.t->describe(x.b.conn), "rank 0"),
			   "%s: %s: the text should name the peer: \"%s\"", x.t->name, what,
			   x.t->describe(x.b.conn));
	cr_assert_eq(x.t->post(x.a.conn, &late), x.a.status,
		     "%s: %s: post should give the status of LOST", x.t->name, what);
}

static void trial_close(void)
{
	end_destroy(&x.w, &x.a);
	end_destroy(&x.w, &x.b);
	world_close(&x.w);
}

/* The control: what the other cases vary does work. */
Test(conformance, write_to_the_very_bounds)
{
	FOR_EACH_ROW(t)
	{
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		cr_assert_eq(end_write(&x.w, &x.a, x.from, x.source, BYTES, &x.remote, 0, 1), 0,
			     "%s: post", t->name);
		cr_assert_eq(end_write(&x.w, &x.a, x.from, x.source, 1, &x.remote, BYTES - 1, 2), 0,
			     "%s: post", t->name);
		cr_assert(pump(&x.w, x.b.n_notify == 2),
			  "%s: writes within the bounds should arrive", t->name);
		for (size_t i = 0; i < sizeof x.memory; i++)
			cr_assert_eq(
				x.memory[i], i >= GUARD && i < GUARD + BYTES ? 0x11 : GUARD_VALUE,
				"%s: the byte at %td of the target", t->name, (ptrdiff_t)i - GUARD);
		trial_close();
	}
}

Test(conformance, refuse_out_of_bounds)
{
	static const struct {
		uint64_t offset;
		size_t bytes;
		const char *what;
	} cases[] = {
		{1, BYTES, "one byte past the end"},
		{0, BYTES + 1, "one byte too long"},
		{BYTES, 1, "begins at the end"},
		{UINT64_MAX, BYTES, "one byte before the start"},
		{UINT64_MAX, 1, "lies before the start"},
		{BYTES + 100, 8, "lies past the end"},
		{1ull << 63, 8, "half the address space away"},
	};

	FOR_EACH_ROW(t)
	for (size_t i = 0; i < spri_countof(cases); i++) {
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		expect_refusal(cases[i].offset, cases[i].bytes, cases[i].what);
		trial_close();
	}
}

Test(conformance, refuse_address_overflow)
{
	FOR_EACH_ROW(t)
	for (uint64_t back = 1; back <= BYTES; back *= 32) {
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		/* address + bytes wraps around; with back == BYTES it is exactly 0. */
		expect_refusal(UINT64_MAX - back + 1 - x.remote.address, BYTES,
			       "the address wraps around");
		trial_close();
	}
}

Test(conformance, refuse_wrong_key)
{
	FOR_EACH_ROW(t)
	for (unsigned bit = 0; bit < 8 * SPRI_KEY_BYTES; bit += 37) {
		/* A device's key is 32 bits; which of the four depends on the connection. */
		bool short_keys = !(t->caps & SPRI_CAP_CONN_KEYS);

		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		for (unsigned at = bit % 32; short_keys && at < 8 * SPRI_KEY_BYTES; at += 32)
			x.remote.key[at / 8] ^= (uint8_t)(1u << at % 8);
		if (!short_keys)
			x.remote.key[bit / 8] ^= (uint8_t)(1u << bit % 8);
		expect_refusal(0, BYTES, "one bit of the key is wrong");
		trial_close();
	}
}

Test(conformance, refuse_zero_key)
{
	FOR_EACH_ROW(t)
	{
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		memset(x.remote.key, 0, sizeof x.remote.key);
		expect_refusal(0, BYTES, "the key is zero");
		trial_close();
	}
}

Test(conformance, refuse_what_was_not_granted)
{
	FOR_EACH_ROW(t)
	{
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		x.remote.address = (uint64_t)(uintptr_t)(x.memory + GUARD);
		expect_refusal(0, BYTES, "nothing was granted");
		trial_close();
	}
}

/*
 * A key is valid on the connection it was granted on, and on no other between the same two ports.
 */
Test(conformance, refuse_key_of_another_connection)
{
	FOR_EACH_ROW(t)
	{
		struct end c, d;

		if (!(t->caps & SPRI_CAP_CONN_KEYS))
			continue; /* its keys hold on every connection of the port */
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		ends_meet(&x.w, 0, &c, 1, &d, 2);
		cr_assert_eq(t->grant(d.conn, x.to, &x.remote), 0, "%s: grant", t->name);
		expect_refusal(0, BYTES, "the key of another connection");
		cr_assert_eq(end_write(&x.w, &c, x.from, x.source, BYTES, &x.remote, 0, 1), 0,
			     "%s: post", t->name);
		cr_assert(pump(&x.w, d.n_notify == 1), "%s: the other connection should live on",
			  t->name);
		cr_assert_eq(x.memory[GUARD], 0x11, "%s: and carry its write", t->name);
		end_destroy(&x.w, &c);
		end_destroy(&x.w, &d);
		trial_close();
	}
}

/* The region may be refused by grant() already, or when it is written to. */
Test(conformance, refuse_region_without_permission)
{
	FOR_EACH_ROW(t)
	{
		int r;

		trial_open(t, SPRI_ACCESS_LOCAL);
		r = t->grant(x.b.conn, x.to, &x.remote);
		if (r == 0)
			expect_refusal(0, BYTES, "a region without the permission");
		else
			cr_assert_eq(r, SPR_EARGUMENT, "%s: grant should refuse with SPR_EARGUMENT",
				     t->name);
		trial_close();
	}
}

Test(conformance, refuse_after_unregister)
{
	FOR_EACH_ROW(t)
	{
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		t->unregister(x.to);
		x.w.n_regions--; /* it was the last one */
		expect_refusal(0, BYTES, "the region was unregistered");
		trial_close();
	}
}

/* Registering the same memory again does not bring the old key back to life. */
Test(conformance, refuse_key_of_a_former_region)
{
	FOR_EACH_ROW(t)
	{
		struct spri_remote again;

		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		t->unregister(x.to);
		x.w.n_regions--;
		x.to = world_region(&x.w, 1, x.memory + GUARD, BYTES, SPRI_ACCESS_REMOTE_WRITE);
		cr_assert_eq(t->grant(x.b.conn, x.to, &again), 0, "%s: grant", t->name);
		cr_assert_arr_neq(again.key, x.remote.key, SPRI_KEY_BYTES,
				  "%s: a new region has a new key", t->name);
		expect_refusal(0, BYTES, "the key of a former region");
		trial_close();
	}
}

/* What arrived before the refused write stays notified; what was posted behind it never is. */
Test(conformance, refusal_ends_what_follows)
{
	FOR_EACH_ROW(t)
	{
		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		trial_grant();
		cr_assert_eq(end_write(&x.w, &x.a, x.from, x.source, 8, &x.remote, 0, 1), 0,
			     "%s: post", t->name);
		cr_assert_eq(end_write(&x.w, &x.a, x.from, x.source, 8, &x.remote, BYTES, 2), 0,
			     "%s: post", t->name);
		cr_assert_eq(end_write(&x.w, &x.a, x.from, x.source, 8, &x.remote, 16, 3), 0,
			     "%s: post", t->name);
		cr_assert(pump(&x.w, x.a.lost && x.b.lost), "%s: both ends should be LOST",
			  t->name);
		world_settle(&x.w);
		cr_assert_eq(x.b.n_notify, 1, "%s: only the first write should notify", t->name);
		cr_assert_eq(x.b.immediates[0], 1, "%s: only the first write should notify",
			     t->name);
		cr_assert_eq(x.memory[GUARD], 0x11, "%s: the first write is in place", t->name);
		cr_assert_eq(x.memory[GUARD + 16], GUARD_VALUE, "%s: the third write must not be",
			     t->name);
		trial_close();
	}
}

/* Memory that the processor cannot reach: refused by a row without the capability, with words. */
Test(conformance, refuse_memory_of_a_device)
{
	FOR_EACH_ROW(t)
	{
		struct spri_memory memory = {.base = x.memory,
					     .bytes = BYTES,
					     .device = true,
					     .dma_buf = open("/dev/null", O_RDWR | O_CLOEXEC)};
		struct spri_region *region = NULL;
		struct spri_text text = {""};
		int r;

		trial_open(t, SPRI_ACCESS_REMOTE_WRITE);
		r = t->register_(x.w.port[0], &memory, &region, &text);
		if (t->caps & SPRI_CAP_DEVICE_MEMORY)
			cr_assert_lt(r, 0, "%s: /dev/null is no dma-buf, gave %d", t->name, r);
		else
			cr_assert_eq(r, SPR_EUNSUPPORTED, "%s: gave %s", t->name,
				     spr_error_name(r));
		cr_assert_null(region, "%s: a failed register should write no region", t->name);
		cr_assert_not_null(strstr(text.s, t->name), "%s: the text: \"%s\"", t->name,
				   text.s);
		close(memory.dma_buf);
		trial_close();
	}
}
