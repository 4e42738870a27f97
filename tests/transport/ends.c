/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* See ends.h. */
#include "ends.h"

#include <check.h>
#include <internal/bits.h>

#include <stdlib.h>
#include <string.h>

#define WAIT_NS 200000 /* one wait() of a step */

const struct spri_transport *usable_row(unsigned *i)
{
	const char *only = getenv("TEST_TRANSPORT");
	const struct spri_transport *t;
	struct spri_text why;

	for (; (t = spri_transport_row(*i)) != NULL; ++*i)
		if ((!only || strcmp(only, t->name) == 0) && t->probe(&why) == 0)
			return t;
	return NULL;
}

int world_try_open(struct world *w, const struct spri_transport *t, unsigned n_ports,
		   uint64_t timeout_ns)
{
	struct spri_port_options options = {.timeout_ns = timeout_ns, .interfaces = "lo"};
	struct spri_text text = {0};
	int r = 0;

	/* RDMA devices are on interfaces of their own; which, the machine of the test may say. */
	if (strcmp(t->name, "verbs") == 0)
		options.interfaces = getenv("TEST_INTERFACES");
	memset(w, 0, sizeof *w);
	w->t = t;
	if (strcmp(t->name, "loop") == 0) {
		struct spri_fabric_options fabric = {.n_places = WORLD_PORTS,
						     .latency_ns = 10000,
						     .bytes_per_s = 10e9,
						     .jitter_ns = 2000,
						     .seed = 7};

		r = spri_fabric_create(&fabric, &w->fabric);
		if (r < 0)
			return r;
		options.fabric = w->fabric;
	}
	for (unsigned i = 0; i < n_ports && r == 0; i++) {
		options.place = i;
		r = t->listen(&options, &w->port[i], &text);
		if (r == 0)
			w->n_ports = i + 1;
		else if (text.s[0] == '\0')
			fprintf(stderr, "%s: listen failed with %d and without a text\n", t->name,
				r);
	}
	if (r < 0)
		world_close(w);
	return r;
}

void world_open(struct world *w, const struct spri_transport *t, unsigned n_ports,
		uint64_t timeout_ns)
{
	int r = world_try_open(w, t, n_ports, timeout_ns);

	cr_assert_eq(r, 0, "%s: listen should succeed, gave %s", t->name, spr_error_name(r));
}

void world_close(struct world *w)
{
	for (unsigned i = 0; i < w->n_regions; i++)
		w->t->unregister(w->region[i]);
	for (unsigned i = 0; i < w->n_ports; i++)
		w->t->fini(w->port[i]);
	spri_fabric_destroy(w->fabric);
	memset(w, 0, sizeof *w);
}

static void record(const struct spri_event *event)
{
	struct end *end = event->conn->user;

	switch (event->kind) {
	case SPRI_EVENT_CONNECTED:
		end->connected++;
		memcpy(end->private_data, event->private_data, sizeof end->private_data);
		break;
	case SPRI_EVENT_SENT:
		end->cookies[end->n_sent++ % END_LOG] = event->cookie;
		break;
	case SPRI_EVENT_NOTIFY:
		end->immediates[end->n_notify++ % END_LOG] = event->immediate;
		if (end->on_notify)
			end->on_notify(end, event->immediate, end->arg);
		break;
	case SPRI_EVENT_CLOSED:
		end->closed++;
		end->notified_before_closed = end->n_notify;
		break;
	case SPRI_EVENT_LOST:
		end->lost++;
		end->status = event->status;
		break;
	default:
		cr_assert_fail("an event of an unknown kind %d", (int)event->kind);
	}
}

uint64_t world_now(const struct world *w)
{
	return w->t->now(w->port[0]);
}

/* Polls every port once. Returns the number of events. */
static unsigned poll_all(struct world *w)
{
	struct spri_event events[16];
	unsigned n_all = 0;

	for (unsigned i = 0; i < w->n_ports; i++) {
		int n = w->t->poll(w->port[i], events, spri_countof(events));

		if (n < 0)
			w->broken = n;
		for (int k = 0; k < n; k++)
			record(&events[k]);
		n_all += n > 0 ? (unsigned)n : 0;
	}
	return n_all;
}

static void wait_a_little(struct world *w)
{
	struct spri_port *port = w->port[w->turn++ % w->n_ports];
	int r = w->t->wait(port, w->t->now(port) + WAIT_NS);

	if (r < 0)
		w->broken = r;
}

bool world_step(struct world *w, uint64_t until)
{
	if (poll_all(w) == 0)
		wait_a_little(w);
	return world_now(w) < until && w->broken == 0;
}

void world_settle(struct world *w)
{
	for (unsigned quiet = 0; quiet < 8 * w->n_ports && w->broken == 0; quiet++) {
		if (poll_all(w) > 0)
			quiet = 0;
		wait_a_little(w);
	}
}

struct spri_region *world_region(struct world *w, unsigned port, void *base, size_t bytes,
				 unsigned access)
{
	struct spri_memory memory = {.base = base, .bytes = bytes, .access = access};
	struct spri_region *region = NULL;
	int r = w->t->register_(w->port[port], &memory, &region, NULL);

	cr_assert_eq(r, 0, "%s: register should succeed, gave %s", w->t->name, spr_error_name(r));
	cr_assert(w->n_regions < WORLD_REGIONS, "the test registers too much");
	w->region[w->n_regions++] = region;
	return region;
}

void end_create(struct world *w, unsigned port, struct end *end)
{
	int r;

	memset(end, 0, sizeof *end);
	r = w->t->create(w->port[port], end, &end->conn);
	cr_assert_eq(r, 0, "%s: create should succeed, gave %s", w->t->name, spr_error_name(r));
}

void end_destroy(struct world *w, struct end *end)
{
	w->t->destroy(end->conn);
	end->conn = NULL;
}

int end_connect(struct world *w, struct end *end, unsigned to_port, uint64_t id, bool active,
		const uint8_t *private_data, const char *label)
{
	uint8_t blob[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = blob,
				    .id = id,
				    .active = active,
				    .private_data = private_data,
				    .label = label};

	args.address_bytes = w->t->address(w->port[to_port], blob);
	cr_assert(args.address_bytes > 0 && args.address_bytes <= SPRI_ADDRESS_BYTES,
		  "%s: an address should have 1 to %d bytes", w->t->name, SPRI_ADDRESS_BYTES);
	return w->t->connect(end->conn, &args);
}

void ends_meet(struct world *w, unsigned port_a, struct end *a, unsigned port_b, struct end *b,
	       uint64_t id)
{
	end_create(w, port_a, a);
	end_create(w, port_b, b);
	cr_assert_eq(end_connect(w, b, port_a, id, false, NULL, "rank 0"), 0,
		     "%s: passive connect starts", w->t->name);
	cr_assert_eq(end_connect(w, a, port_b, id, true, NULL, "rank 1"), 0,
		     "%s: active connect starts", w->t->name);
	cr_assert(pump(w, (a->connected && b->connected) || a->lost || b->lost),
		  "%s: the ends should meet", w->t->name);
	cr_assert(!a->lost && !b->lost, "%s: the ends should meet, but: \"%s\", \"%s\"", w->t->name,
		  w->t->describe(a->conn), w->t->describe(b->conn));
}

int end_write(struct world *w, struct end *end, struct spri_region *region, const void *source,
	      size_t bytes, const struct spri_remote *remote, uint64_t offset, uint32_t immediate)
{
	struct spri_write write = {.gather = {{source, bytes, region}},
				   .n_gather = 1,
				   .address = remote->address + offset,
				   .notify = true,
				   .immediate = immediate,
				   .cookie = immediate};

	memcpy(write.key, remote->key, sizeof write.key);
	return w->t->post(end->conn, &write);
}

int end_write_all(struct world *w, struct end *end, struct spri_region *region, const void *source,
		  size_t bytes, const struct spri_remote *remote, uint64_t offset,
		  uint32_t immediate)
{
	uint64_t until = world_now(w) + WORLD_PATIENCE;
	int r;

	do
		r = end_write(w, end, region, source, bytes, remote, offset, immediate);
	while (r == SPRI_AGAIN && world_step(w, until));
	return r;
}

void pattern_fill(void *p, size_t bytes, uint64_t seed)
{
	uint8_t *b = p;

	for (size_t i = 0; i < bytes; i++)
		b[i] = (uint8_t)(spri_mix64(seed + i / 8) >> 8 * (i % 8));
}

bool pattern_is(const void *p, size_t bytes, uint64_t seed)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < bytes; i++)
		if (b[i] != (uint8_t)(spri_mix64(seed + i / 8) >> 8 * (i % 8)))
			return false;
	return true;
}
