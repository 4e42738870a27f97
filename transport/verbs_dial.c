/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The active handshake: from the peer's addresses to a connected queue pair.
 *
 *   1. Routes: each of our addresses with each of the peer's of the same kind (InfiniBand, RoCE,
 *      iWARP). Those within one network come first. Of these each connection begins at another
 *      one, so that several devices share the work; unless the caller has put them in an order.
 *   2. rdma_cm resolves address and route: by them the kernel chooses GID and path.
 *   3. Queue pair, receives, connection request with our hello. DIALING becomes ASKING.
 *   4. The peer accepts: the queue pair is readied, the accept confirmed to rdma_cm and, by the
 *      first message, to the peer. On iWARP this message is also what lets the passive end send.
 *
 * Failures: as for tcp: an address that refuses or cannot be reached is given up at once, one that
 * fails later after VERBS_STRIKES times, one that says nothing is tried again in the next round.
 */
#include "tcp_interfaces.h"
#include "verbs.h"

#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/log.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_MS 60000
#define RNR_TRIES 6

/* ---- routes ---- */

static bool near_us(const struct verbs_place *from, const struct spri_verbs_address *to)
{
	return spri_prefix_equal(from->address.host, to->host, from->prefix);
}

/* Adds the routes that are near (or far); of near ones, when no device has precedence, all by
 * turns.
 */
static void add_routes(struct verbs_conn *c, const struct spri_verbs_blob *blob, bool near)
{
	struct verbs_port *p = verbs_port_of(c);
	struct verbs_dial *d = &c->dial;
	bool alike = p->places[p->order[p->n_places - 1]].turn == 0;
	unsigned n = p->n_places * blob->n, first = alike ? (unsigned)(c->token % n) : 0;

	for (unsigned k = 0; k < n && d->n < spri_countof(d->routes); k++) {
		unsigned i = near ? (first + k) % n : k;
		struct verbs_place *from = &p->places[p->order[i / blob->n]];
		const struct spri_verbs_address *to = &blob->addresses[i % blob->n];

		if (from->address.family == to->family && from->address.kind == to->kind &&
		    !from->device->gone && near_us(from, to) == near)
			d->routes[d->n++] = (struct verbs_route){.from = from, .to = *to};
	}
}

/* Keeps what was observed on the route being tried, unless something more telling is known. */
static void note(struct verbs_conn *c, int status, const char *format, va_list args)
{
	const struct verbs_route *route = &c->dial.routes[c->dial.at];
	char host[INET6_ADDRSTRLEN] = "?";
	int n;

	if (c->dial.status == SPR_EVERSION)
		return;
	inet_ntop(route->to.family == 4 ? AF_INET : AF_INET6, route->to.host, host, sizeof host);
	n = snprintf(c->dial.why, sizeof c->dial.why, "%s port %u by %s: ", host, route->to.port,
		     route->from->device->name);
	vsnprintf(c->dial.why + n, sizeof c->dial.why - (size_t)n, format, args);
	c->dial.status = status;
}

static void notef(struct verbs_conn *c, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	note(c, status, format, args);
	va_end(args);
}

/* Moves `at` to the next route that is not given up, round the list. False: there is none. */
static bool advance(struct verbs_dial *d)
{
	for (unsigned i = 0; i < d->n; i++) {
		d->at = (d->at + 1) % d->n;
		if (d->routes[d->at].strikes < VERBS_STRIKES)
			return true;
	}
	return false;
}

/* Routes that this round has still to try, the one at `at` included. */
static unsigned left_in_round(const struct verbs_dial *d)
{
	unsigned left = 0;

	for (unsigned i = d->at; i < d->n; i++)
		left += d->routes[i].strikes < VERBS_STRIKES;
	return left;
}

/* ---- trying ---- */

/* What is left of the try, as rdma_cm wants it. */
static int milliseconds(const struct verbs_conn *c)
{
	uint64_t until = spri_min_u64(c->deadline_ns, c->dial.share_ns), now = spri_now_ns();
	uint64_t ms = until > now ? (until - now) / SPRI_NS_PER_MS : 0;

	return (int)spri_min_u64(spri_max_u64(ms, 1), LONGEST_MS);
}

/* Starts to resolve a route. Returns 0, negative errno. */
static int dial_open(struct verbs_conn *c, const struct verbs_route *route)
{
	struct verbs_port *p = verbs_port_of(c);
	struct sockaddr_storage from, to;
	uint8_t tos = (uint8_t)p->settings.traffic_class;
	int r;

	spri_verbs_sockaddr(&route->from->address, 0, &from);
	spri_verbs_sockaddr(&route->to, route->to.port, &to);
	if (rdma_create_id(p->cm, &c->cm, &c->source, RDMA_PS_TCP) != 0) {
		c->cm = NULL;
		return spri_trace(spri_verbs_errno());
	}
	if (p->settings.traffic_class >= 0 &&
	    rdma_set_option(c->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) != 0)
		spri_logf(SPR_LOG_WARN, "verbs: %s: traffic class: %s", c->label,
			  spr_strerror(spri_verbs_errno()));
	if (rdma_resolve_addr(c->cm, (struct sockaddr *)&from, (struct sockaddr *)&to,
			      milliseconds(c)) == 0)
		return 0;
	r = spri_verbs_errno();
	spri_verbs_hang_up(c);
	return spri_trace(r);
}

void spri_verbs_dial_try(struct verbs_conn *c)
{
	struct verbs_dial *d = &c->dial;

	for (;;) {
		uint64_t now = spri_now_ns();
		unsigned left = left_in_round(d);
		int r;

		if (now >= c->deadline_ns) {
			spri_verbs_dial_expired(c);
			return;
		}
		d->share_ns = left > 1 ? now + (c->deadline_ns - now) / left : SPRI_NEVER;
		r = dial_open(c, &d->routes[d->at]);
		if (r == 0) {
			spri_verbs_arm(verbs_port_of(c), d->share_ns);
			return;
		}
		notef(c, r, "%s", spr_strerror(r));
		d->routes[d->at].strikes = VERBS_STRIKES;
		if (!advance(d)) {
			spri_verbs_lose(c, d->status, "verbs: cannot connect: %s", d->why);
			return;
		}
	}
}

void spri_verbs_dial(struct verbs_conn *c, const struct spri_verbs_blob *blob)
{
	add_routes(c, blob, true);
	add_routes(c, blob, false);
	spri_conn_move(&c->state, SPRI_CONN_DIALING, c->label);
	if (c->dial.n > 0)
		spri_verbs_dial_try(c);
	else
		spri_verbs_lose(
			c, -EHOSTUNREACH,
			"verbs: cannot connect: none of its addresses is of a kind (InfiniBand, "
			"RoCE, iWARP; IPv4, IPv6) that this side has");
}

void spri_verbs_dial_failed(struct verbs_conn *c, unsigned strikes, int status, const char *format,
			    ...)
{
	struct verbs_dial *d = &c->dial;
	va_list args;

	va_start(args, format);
	note(c, status, format, args);
	va_end(args);
	spri_verbs_hang_up(c);
	if (c->state == SPRI_CONN_ASKING)
		spri_conn_move(&c->state, SPRI_CONN_DIALING, c->label);
	d->routes[d->at].strikes += (uint8_t)strikes;
	if (advance(d))
		spri_verbs_dial_try(c);
	else
		spri_verbs_lose(c, d->status, "verbs: cannot connect: %s", d->why);
}

void spri_verbs_dial_expired(struct verbs_conn *c)
{
	struct verbs_dial *d = &c->dial;
	double seconds = (double)verbs_port_of(c)->timeout_ns / SPRI_NS_PER_S;

	if (c->cm && c->state == SPRI_CONN_DIALING)
		notef(c, SPR_ETIMEOUT, "no way there was found");
	else if (c->cm)
		notef(c, SPR_ETIMEOUT, "did not accept");
	spri_verbs_hang_up(c);
	if (d->status == SPR_EVERSION)
		spri_verbs_lose(c, d->status, "verbs: cannot connect: %s", d->why);
	else
		spri_verbs_lose(c, SPR_ETIMEOUT, "verbs: no connection within %.3g s: %s", seconds,
				d->why);
}

/* ---- asking ---- */

static int ask(struct verbs_conn *c)
{
	uint8_t hello[SPRI_VERBS_HELLO_BYTES];
	struct rdma_conn_param param = {.private_data = hello,
					.private_data_len = sizeof hello,
					.responder_resources = 1,
					.initiator_depth = 1,
					.flow_control = 1,
					.retry_count = verbs_port_of(c)->settings.retry,
					.rnr_retry_count = RNR_TRIES};
	int r = spri_verbs_qp_create(c);

	if (r < 0)
		return spri_trace(r);
	spri_verbs_hello(c, hello);
	param.qp_num = c->qp->qp_num;
	if (rdma_connect(c->cm, &param) != 0)
		return spri_trace(spri_verbs_errno());
	return 0;
}

void spri_verbs_dial_resolved(struct verbs_conn *c, bool route)
{
	int r;

	if (c->state != SPRI_CONN_DIALING || !c->cm)
		return;
	if (!route) {
		if (rdma_resolve_route(c->cm, milliseconds(c)) != 0) {
			r = spri_verbs_errno();
			spri_verbs_dial_failed(c, VERBS_STRIKES, r, "%s", spr_strerror(r));
		}
		return;
	}
	c->place = spri_verbs_place(verbs_port_of(c), c->cm);
	if (!c->place) {
		spri_verbs_dial_failed(c, VERBS_STRIKES, -ENODEV,
				       "the way there is by another device");
		return;
	}
	r = ask(c);
	if (r < 0)
		spri_verbs_dial_failed(c, 1, r, "making a queue pair: %s", spr_strerror(r));
	else
		spri_conn_move(&c->state, SPRI_CONN_ASKING, c->label);
}

void spri_verbs_dial_accepted(struct verbs_conn *c, const void *private_data, size_t n)
{
	struct spri_verbs_hello h;
	int r;

	if (c->state != SPRI_CONN_ASKING)
		return;
	if (spri_verbs_hello_decode(private_data, n, &h) < 0) {
		spri_verbs_dial_failed(c, VERBS_STRIKES, SPR_EPROTOCOL,
				       "something else than sparring answers");
		return;
	}
	if (h.version != SPRI_VERBS_VERSION || h.features != 0) {
		spri_verbs_dial_failed(
			c, VERBS_STRIKES, SPR_EVERSION,
			"peer speaks protocol version %u, features 0x%x; this side %u", h.version,
			h.features, SPRI_VERBS_VERSION);
		return;
	}
	c->peer_device = h.device;
	c->send.allowed = h.credits;
	memcpy(c->private_peers, h.private_data, sizeof c->private_peers);
	c->joined = true;
	r = c->place->device->iwarp ? 0 : spri_verbs_qp_ready(c, h.mtu);
	if (r == 0 && !c->place->device->iwarp && rdma_establish(c->cm) != 0)
		r = spri_verbs_errno();
	if (r < 0) {
		spri_verbs_dial_failed(c, 1, r, "readying the queue pair: %s", spr_strerror(r));
		return;
	}
	verbs_owe(c, SPRI_VERBS_CONFIRM);
	spri_verbs_up(c);
	spri_verbs_push(c);
}
