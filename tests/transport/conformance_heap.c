/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Conformance, continued (see test_conformance.c): a whole life of two ports and a connection,
 * again and again, with allocation n = 0, 1, 2, ... failing, until nothing fails any more. Each
 * time: no crash, no leak, no wrong bytes.
 */
#include "ends.h"

#include <check.h>
#include <internal/alloc.h>

#include <string.h>

#define SECOND SPRI_NS_PER_S
#define SHORT (200 * SPRI_NS_PER_MS) /* a timeout for what may not succeed */

struct heap_case {
	const struct spri_transport *t;
	uint8_t source[4096], target[4096];
	struct world w;
	struct end a, b;
	struct spri_region *from, *to;
};

/* Pumps until the condition holds; gives up at a lost end, a broken port or the deadline. */
#define try_pump(c, condition)                                                                     \
	({                                                                                         \
		uint64_t until_ = world_now(&(c)->w) + 2 * SECOND;                                 \
		while (!(condition) && !(c)->a.lost && !(c)->b.lost &&                             \
		       world_step(&(c)->w, until_))                                                \
			;                                                                          \
		(condition);                                                                       \
	})

static int try_connect(struct heap_case *c, struct end *end, unsigned to, bool active)
{
	uint8_t blob[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = blob, .id = 8, .active = active, .label = "peer"};

	args.address_bytes = c->t->address(c->w.port[to], blob);
	return c->t->connect(end->conn, &args);
}

/* Everything once, with open ports. True when all of it worked. */
static bool use_connection(struct heap_case *c)
{
	const struct spri_transport *t = c->t;
	struct spri_memory source = {.base = c->source, .bytes = sizeof c->source};
	struct spri_memory target = {
		.base = c->target, .bytes = sizeof c->target, .access = SPRI_ACCESS_REMOTE_WRITE};
	struct spri_remote remote;

	if (t->register_(c->w.port[0], &source, &c->from, NULL) < 0 ||
	    t->register_(c->w.port[1], &target, &c->to, NULL) < 0 ||
	    t->create(c->w.port[0], &c->a, &c->a.conn) < 0 ||
	    t->create(c->w.port[1], &c->b, &c->b.conn) < 0 ||
	    t->grant(c->b.conn, c->to, &remote) < 0 || try_connect(c, &c->a, 1, true) < 0 ||
	    try_connect(c, &c->b, 0, false) < 0)
		return false;
	if (!try_pump(c, c->a.connected && c->b.connected))
		return false;
	for (uint32_t i = 0; i < 4; i++)
		if (end_write(&c->w, &c->a, c->from, c->source + 1024 * i, 1024, &remote, 1024 * i,
			      i) != 0)
			return false;
	if (!try_pump(c, c->b.n_notify == 4 && c->a.n_sent == 4))
		return false;
	t->close(c->a.conn);
	return try_pump(c, c->b.closed && t->closed(c->a.conn));
}

/* One run with allocation n failing. Returns whether everything worked. */
static bool run_heap_case(struct heap_case *c)
{
	bool done = false;

	memset(&c->a, 0, sizeof c->a);
	memset(&c->b, 0, sizeof c->b);
	memset(c->target, 0, sizeof c->target);
	c->from = c->to = NULL;
	if (world_try_open(&c->w, c->t, 2, SHORT) == 0) {
		done = use_connection(c);
		if (c->a.lost)
			cr_assert_not_null(c->t->describe(c->a.conn), "%s: describe", c->t->name);
		c->t->destroy(c->a.conn);
		c->t->destroy(c->b.conn);
		c->t->unregister(c->from);
		c->t->unregister(c->to);
		world_close(&c->w);
	}
	return done;
}

/* Was the failure that spri_heap_fail_after(n) asked for used up? Clears it. */
static bool failure_happened(long n)
{
	for (long i = 0; i <= n; i++) {
		void *p = spri_alloc(1);

		if (!p)
			return false;
		spri_free(p);
	}
	return true;
}

Test(conformance, every_allocation_may_fail)
{
	static struct heap_case c;

	pattern_fill(c.source, sizeof c.source, 11);
	FOR_EACH_ROW(t)
	{
		bool done = false, happened = true;
		long n = 0;

		c.t = t;
		for (; happened || !done; n++) {
			long live = spri_heap_live();

			cr_assert(n < 2000, "%s: should succeed at last", t->name);
			spri_heap_fail_after(n);
			done = run_heap_case(&c);
			happened = failure_happened(n);
			spri_heap_fail_after(-1);
			cr_assert_eq(spri_heap_live(), live,
				     "%s: %ld allocations leaked when number %ld failed", t->name,
				     spri_heap_live() - live, n);
			cr_assert(done || happened, "%s: should succeed when nothing fails",
				  t->name);
			cr_assert(!done || pattern_is(c.target, sizeof c.target, 11),
				  "%s: what succeeds should be right (%ld)", t->name, n);
		}
		cr_assert_gt(n, 3, "%s: allocations should go through the project's heap", t->name);
	}
}
