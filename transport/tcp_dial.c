/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The active handshake: from a list of addresses to a stream that the wanted port has accepted.
 *
 *   1. Addresses in a network that we have an address in come first; the order of the blob decides
 *      the rest.
 *   2. Each try gets an even share of the time that is left: remaining / addresses not tried yet in
 *      this round.
 *   3. Connected: hello. The answer says accepted (CONFIRM follows, and the connection is UP), or
 *      "parked": this is the right port, which does not await us yet; then the rest of the time is
 *      for this address.
 *
 * Failures: a refused or unreachable address, another process behind it (container bridges have the
 * same address on every host), or one that does not speak the protocol is given up at once; one
 * that ends the stream after TCP_STRIKES times; one that says nothing is tried again in the next
 * round. When no address is left, or no time, the connection is LOST with what was observed last;
 * another protocol version is worth more than what came after it.
 */
#include "tcp.h"

#include <internal/clock.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp_interfaces.h"

static bool near_us(const struct tcp_port *p, const struct spri_wire_address *a)
{
	for (unsigned i = 0; i < p->n_listeners; i++)
		if (p->listeners[i].address.family == a->family &&
		    spri_prefix_equal(p->listeners[i].address.host, a->host,
				      p->listeners[i].prefix))
			return true;
	return false;
}

/* Starts connecting to an address. Returns 0, negative errno. */
static int dial_open(struct tcp_conn *c, const struct spri_wire_address *a)
{
	struct tcp_port *p = tcp_port_of(c);
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(a->port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
	const struct sockaddr *at =
		a->family == 4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t n = a->family == 4 ? sizeof v4 : sizeof v6;
	int r;

	memcpy(&v4.sin_addr, a->host, sizeof v4.sin_addr);
	memcpy(&v6.sin6_addr, a->host, sizeof v6.sin6_addr);
	c->source.fd = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->source.fd < 0)
		return spri_trace(-errno);
	spri_tcp_tune(p, c->source.fd);
	r = connect(c->source.fd, at, n) < 0 && errno != EINPROGRESS ? -errno : 0;
	if (r == 0)
		r = spri_tcp_watch(p, &c->source, EPOLL_CTL_ADD, TCP_STREAM_EVENTS);
	if (r < 0)
		spri_tcp_hang_up(c);
	return spri_trace(r);
}

/* Keeps what was observed at the address being tried, unless something more telling is known. */
static void note(struct tcp_conn *c, int status, const char *format, va_list args)
{
	const struct spri_wire_address *a = &c->dial.to[c->dial.at];
	char host[INET6_ADDRSTRLEN] = "?";
	int n;

	if (c->dial.status == SPR_EVERSION)
		return;
	inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->host, host, sizeof host);
	n = snprintf(c->dial.why, sizeof c->dial.why, "%s port %u: ", host, a->port);
	vsnprintf(c->dial.why + n, sizeof c->dial.why - (size_t)n, format, args);
	c->dial.status = status;
}

static void notef(struct tcp_conn *c, int status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	note(c, status, format, args);
	va_end(args);
}

/*
 * Moves `at` to the next address that is not given up, round the list. Returns false when there is
 * none.
 */
static bool advance(struct tcp_dial *d)
{
	for (unsigned i = 0; i < d->n; i++) {
		d->at = (d->at + 1) % d->n;
		if (d->strikes[d->at] < TCP_STRIKES)
			return true;
	}
	return false;
}

/* Addresses that this round has still to try, the one at `at` included. */
static unsigned left_in_round(const struct tcp_dial *d)
{
	unsigned left = 0;

	for (unsigned i = d->at; i < d->n; i++)
		left += d->strikes[i] < TCP_STRIKES;
	return left;
}

/*
 * Tries the address at `at`, or the first after it that can be tried at all. The state is DIALING.
 */
static void dial_try(struct tcp_conn *c)
{
	struct tcp_dial *d = &c->dial;

	for (;;) {
		uint64_t now = spri_now_ns();
		unsigned left = left_in_round(d);
		int r;

		if (now >= c->deadline_ns) {
			spri_tcp_dial_expired(c);
			return;
		}
		d->share_ns = left > 1 ? now + (c->deadline_ns - now) / left : SPRI_NEVER;
		r = dial_open(c, &d->to[d->at]);
		if (r == 0) {
			spri_tcp_arm(tcp_port_of(c), d->share_ns);
			return;
		}
		notef(c, r, "%s", spr_strerror(r));
		d->strikes[d->at] = TCP_STRIKES;
		if (!advance(d)) {
			spri_tcp_lose(c, d->status, "cannot connect: %s", d->why);
			return;
		}
	}
}

void spri_tcp_dial(struct tcp_conn *c, const struct spri_blob *blob)
{
	struct tcp_dial *d = &c->dial;

	for (int far = 0; far < 2; far++)
		for (unsigned i = 0; i < blob->n; i++)
			if (near_us(tcp_port_of(c), &blob->addresses[i]) == !far)
				d->to[d->n++] = blob->addresses[i];
	spri_conn_move(&c->state, SPRI_CONN_DIALING, c->label);
	dial_try(c);
}

void spri_tcp_dial_failed(struct tcp_conn *c, unsigned strikes, int status, const char *format, ...)
{
	struct tcp_dial *d = &c->dial;
	va_list args;

	va_start(args, format);
	note(c, status, format, args);
	va_end(args);
	spri_tcp_hang_up(c);
	if (c->state == SPRI_CONN_ASKING)
		spri_conn_move(&c->state, SPRI_CONN_DIALING, c->label);
	d->strikes[d->at] += (uint8_t)strikes;
	if (advance(d))
		dial_try(c);
	else
		spri_tcp_lose(c, d->status, "cannot connect: %s", d->why);
}

void spri_tcp_dial_expired(struct tcp_conn *c)
{
	struct tcp_dial *d = &c->dial;
	double seconds = (double)tcp_port_of(c)->timeout_ns / SPRI_NS_PER_S;

	if (c->source.fd >= 0 && c->state == SPRI_CONN_DIALING)
		notef(c, SPR_ETIMEOUT, "no answer");
	else if (c->source.fd >= 0)
		notef(c, SPR_ETIMEOUT, "connected, but did not accept");
	spri_tcp_hang_up(c);
	if (d->status == SPR_EVERSION)
		spri_tcp_lose(c, d->status, "cannot connect: %s", d->why);
	else
		spri_tcp_lose(c, SPR_ETIMEOUT, "no connection within %.3g s: %s", seconds, d->why);
}

void spri_tcp_dialed(struct tcp_conn *c)
{
	struct tcp_port *p = tcp_port_of(c);
	struct spri_hello h = {.version = SPRI_WIRE_VERSION, .id = c->id};
	uint8_t bytes[SPRI_HELLO_BYTES];
	int error = 0, r;
	socklen_t n = sizeof error;

	if (getsockopt(c->source.fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
		error = errno;
	if (error) {
		spri_tcp_dial_failed(c, TCP_STRIKES, error == ETIMEDOUT ? SPR_ETIMEOUT : -error,
				     "%s", spr_strerror(-error));
		return;
	}
	memcpy(h.to, c->peer, sizeof h.to);
	memcpy(h.from, p->id, sizeof h.from);
	memcpy(h.private_data, c->private_mine, sizeof h.private_data);
	spri_hello_encode(&h, bytes);
	r = spri_tcp_send_now(p, c->source.fd, bytes, sizeof bytes);
	if (r < 0)
		spri_tcp_dial_failed(c, 1, r, "%s", spr_strerror(r));
	else
		spri_conn_move(&c->state, SPRI_CONN_ASKING, c->label);
}

/* Accepted: says so to the other end, so that it knows which of our tries counts. */
static void accepted(struct tcp_conn *c, const struct spri_answer *a)
{
	struct spri_frame f = {.type = SPRI_FRAME_CONFIRM};
	uint8_t bytes[SPRI_FRAME_BYTES];
	int r;

	spri_frame_encode(&f, bytes);
	r = spri_tcp_send_now(tcp_port_of(c), c->source.fd, bytes, sizeof bytes);
	if (r < 0)
		spri_tcp_dial_failed(c, 1, r, "%s", spr_strerror(r));
	else
		spri_tcp_up(c, a->private_data);
}

bool spri_tcp_take_answer(struct tcp_conn *c)
{
	struct tcp_receive *in = &c->receive;
	struct spri_answer a;
	size_t used = 0;
	int r = spri_answer_decode(in->buffer + in->head, in->tail - in->head, &a, &used);

	if (r == SPRI_AGAIN)
		return false;
	if (r < 0) {
		spri_tcp_dial_failed(c, TCP_STRIKES, r, "something else than sparring answers");
		return false;
	}
	in->head += (uint32_t)used;
	if (a.version != SPRI_WIRE_VERSION)
		spri_tcp_dial_failed(c, TCP_STRIKES, SPR_EVERSION,
				     "peer speaks protocol version %u, this side %u", a.version,
				     SPRI_WIRE_VERSION);
	else if (a.status == SPRI_ANSWER_ACCEPTED && a.features >> 32)
		spri_tcp_dial_failed(c, TCP_STRIKES, SPR_EVERSION,
				     "peer needs protocol features 0x%llx, unknown to this side",
				     (unsigned long long)(a.features >> 32 << 32));
	else if (a.status == SPRI_ANSWER_ACCEPTED)
		accepted(c, &a);
	else if (a.status == SPRI_ANSWER_PARKED)
		c->dial.share_ns = SPRI_NEVER;
	else
		spri_tcp_dial_failed(c, TCP_STRIKES,
				     a.status == SPRI_ANSWER_FEATURE	   ? SPR_EVERSION
				     : a.status == SPRI_ANSWER_NOT_AWAITED ? SPR_ETIMEOUT
									   : -ECONNREFUSED,
				     "%s", spri_answer_text(a.status));
	return c->source.fd >= 0;
}
