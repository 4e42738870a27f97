/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* See duo.h. */
#include "duo.h"

#include <check.h>

#include <string.h>

const struct spri_transport *loop;
uint8_t source[DUO_BYTES], target[DUO_BYTES];

/* A world over a fabric of the test's choice: ports at places 0 … n_ports - 1. */
void fabric_open(struct world *w, const struct spri_fabric_options *options, unsigned n_ports,
		 uint64_t timeout_ns)
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

void run_until(struct world *w, uint64_t time_ns)
{
	while (spri_fabric_advance(w->fabric, time_ns))
		;
}

/* Takes what a place has to report. */
unsigned take(struct world *w, unsigned port, struct spri_event *events, unsigned max)
{
	int n = loop->poll(w->port[port], events, max);

	cr_assert_geq(n, 0, "poll should succeed, gave %s", spr_error_name(n));
	return (unsigned)n;
}

void duo_open(struct duo *d, const struct spri_fabric_options *options, uint64_t timeout_ns)
{
	fabric_open(&d->w, options, 2, timeout_ns);
	d->from = world_region(&d->w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	d->to = world_region(&d->w, 1, target, sizeof target, SPRI_ACCESS_REMOTE_WRITE);
	ends_meet(&d->w, 0, &d->a, 1, &d->b, 1);
	cr_assert_eq(loop->grant(d->b.conn, d->to, &d->remote), 0, "grant should succeed");
}

void duo_close(struct duo *d)
{
	end_destroy(&d->w, &d->a);
	end_destroy(&d->w, &d->b);
	world_close(&d->w);
}

/* Posts writes of these sizes at once; returns after how many ns the i-th was notified. */
void flight_times(struct duo *d, const size_t *bytes, unsigned n, uint64_t *ns)
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
