/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The life of a tcp connection; conn.h draws its states.
 *
 *   connect  active: tcp_dial.c. Passive: a stream whose hello asks for this connection is taken
 *            over and answered; CONFIRM from the other end makes it UP. Until then the other end
 *            may come by another of our addresses.
 *   close    queue, then GOODBYE. The peer answers FAREWELL behind its own queue (or says GOODBYE
 *            itself): from then on neither end has bytes under way, and closing the socket cannot
 *            turn into a reset that destroys what was sent. A peer that does not answer, but whose
 *            kernel has acknowledged every byte, is waited for no longer than a second; one whose
 *            kernel has not, as long as the bytes get fewer, and then for the timeout.
 *   destroy  closes the socket whatever the state.
 *
 * Failures: every one goes through spri_tcp_lose(), or through spri_tcp_refuse() when the peer is
 * to be told why. LOST is reported after all that arrived before.
 */
#include "tcp.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int spri_tcp_create(struct spri_port *base, void *user, struct spri_conn **out)
{
	struct tcp_port *p = (struct tcp_port *)base;
	struct tcp_conn *c = spri_zalloc(sizeof *c);

	if (!c)
		return spri_trace(-ENOMEM);
	c->base.port = base;
	c->base.user = user;
	c->source = (struct tcp_source){TCP_CONN, -1};
	c->deadline_ns = SPRI_NEVER;
	c->send.blocked_ns = SPRI_NEVER;
	snprintf(c->label, sizeof c->label, "peer");
	tcp_link_init(&c->all);
	tcp_link_init(&c->ready);
	tcp_append(&p->conns, &c->all);
	*out = &c->base;
	return 0;
}

void spri_tcp_destroy(struct spri_conn *base)
{
	struct tcp_conn *c = (struct tcp_conn *)base;

	if (!c)
		return;
	spri_tcp_drop(tcp_port_of(c), &c->source);
	tcp_unlink(&c->all);
	tcp_unlink(&c->ready);
	spri_free(c->grants);
	spri_free(c);
}

const char *spri_tcp_describe(struct spri_conn *base)
{
	return ((struct tcp_conn *)base)->text.s;
}

static void move(struct tcp_conn *c, enum spri_conn_state to)
{
	spri_conn_move(&c->state, to, c->label);
}

static uint64_t goodbye_deadline(const struct tcp_conn *c)
{
	return spri_tcp_after(spri_now_ns(),
			      spri_min_u64(tcp_port_of(c)->timeout_ns, TCP_GOODBYE_NS));
}

static void set_deadline(struct tcp_conn *c, uint64_t at_ns)
{
	c->deadline_ns = at_ns;
	spri_tcp_arm(tcp_port_of(c), at_ns);
}

/* Goodbye is on its way, or would be if the peer took bytes: spri_tcp_conn_expire() looks on. */
static void await_farewell(struct tcp_conn *c)
{
	c->left = spri_tcp_left(c);
	c->left_ns = spri_now_ns();
	set_deadline(c, goodbye_deadline(c));
}

void spri_tcp_hang_up(struct tcp_conn *c)
{
	spri_tcp_drop(tcp_port_of(c), &c->source);
	c->readable = c->writable = c->ending = false;
	c->send_error = 0;
	c->receive.head = c->receive.tail = 0;
	c->receive.open = c->receive.stalled = false;
	c->receive.left = 0;
}

/* ---- connect ---- */

int spri_tcp_connect(struct spri_conn *base, const struct spri_connect *args)
{
	struct tcp_conn *c = (struct tcp_conn *)base;
	struct spri_blob blob;
	int r;

	if (c->state != SPRI_CONN_NEW) {
		spri_text_set(&c->text, "%s: connect: already called", c->label);
		return spri_trace(SPR_EARGUMENT);
	}
	if (args->label)
		snprintf(c->label, sizeof c->label, "%s", args->label);
	r = spri_blob_decode(args->address, args->address_bytes, &blob);
	if (r < 0) {
		spri_text_set(&c->text, "%s: connect: %zu bytes that are no tcp address", c->label,
			      args->address_bytes);
		return spri_trace(r);
	}
	c->id = args->id;
	memcpy(c->peer, blob.id, sizeof c->peer);
	if (args->private_data)
		memcpy(c->private_mine, args->private_data, sizeof c->private_mine);
	set_deadline(c, spri_tcp_after(spri_now_ns(), tcp_port_of(c)->timeout_ns));
	if (args->active) {
		spri_tcp_dial(c, &blob);
	} else {
		move(c, SPRI_CONN_AWAITING);
		spri_tcp_guest_match(c);
	}
	return 0;
}

void spri_tcp_adopt(struct tcp_conn *c, struct tcp_guest *g)
{
	struct tcp_port *p = tcp_port_of(c);
	struct spri_answer a = {.version = SPRI_WIRE_VERSION, .status = SPRI_ANSWER_ACCEPTED};
	uint8_t bytes[SPRI_ANSWER_BYTES];

	assert(c->state == SPRI_CONN_AWAITING && c->source.fd < 0);
	c->source.fd = g->source.fd;
	g->source.fd = -1;
	memcpy(c->private_peers, g->hello.private_data, sizeof c->private_peers);
	spri_tcp_guest_destroy(p, g);
	memcpy(a.private_data, c->private_mine, sizeof a.private_data);
	spri_answer_encode(&a, bytes);
	if (spri_tcp_watch(p, &c->source, EPOLL_CTL_MOD, TCP_STREAM_EVENTS) < 0 ||
	    spri_tcp_send_now(p, c->source.fd, bytes, sizeof bytes) < 0) {
		spri_tcp_hang_up(c);
		return;
	}
	move(c, SPRI_CONN_ANSWERED);
}

void spri_tcp_up(struct tcp_conn *c, const uint8_t *private_data)
{
	if (private_data)
		memcpy(c->private_peers, private_data, sizeof c->private_peers);
	c->deadline_ns = SPRI_NEVER;
	c->writable = true;
	c->tell_connected = true;
	move(c, SPRI_CONN_UP);
}

/* ---- failure ---- */

void spri_tcp_lose(struct tcp_conn *c, int status, const char *format, ...)
{
	char text[sizeof c->text.s - sizeof c->label];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	spri_text_set(&c->text, "%s: %s", c->label, text);
	c->status = status;
	c->deadline_ns = SPRI_NEVER;
	c->tell_lost = true;
	spri_tcp_drop(tcp_port_of(c), &c->source);
	move(c, SPRI_CONN_LOST);
	spri_tcp_ready(c);
}

void spri_tcp_refuse(struct tcp_conn *c, int status, uint32_t reason)
{
	struct tcp_send *s = &c->send;

	c->receive.head = c->receive.tail = 0;
	c->receive.open = c->receive.stalled = false;
	c->receive.left = 0;
	if (c->state == SPRI_CONN_DONE)
		spri_tcp_hang_up(c);
	if (c->state != SPRI_CONN_UP && c->state != SPRI_CONN_LEFT && c->state != SPRI_CONN_CLOSING)
		return;
	c->status = status;
	spri_text_set(&c->text, "%s: %s %s", c->label,
		      reason == SPRI_REFUSED_FRAME ? "the peer sent a"
						   : "the peer's write was refused:",
		      spri_refusal_text(reason));
	/*
	 * What the kernel has begun must be ended, or the peer would not find the frame that says
	 * why.
	 */
	s->posted = s->sent + (s->offset > 0);
	s->tail_bytes = (s->tail_sent + SPRI_FRAME_BYTES - 1) / SPRI_FRAME_BYTES * SPRI_FRAME_BYTES;
	move(c, SPRI_CONN_REFUSING);
	spri_tcp_send_tail(c, SPRI_FRAME_REFUSED, reason);
	set_deadline(c, goodbye_deadline(c));
	if (c->writable)
		spri_tcp_send(c);
	spri_tcp_ready(c);
}

/* The refusal is on its way, or cannot be: the end. */
static void refused(struct tcp_conn *c, bool linger)
{
	c->tell_lost = true;
	c->linger = linger;
	if (linger) {
		/* Unread bytes would turn close() into a reset that may overtake the refusal. */
		shutdown(c->source.fd, SHUT_WR);
		set_deadline(c, goodbye_deadline(c));
	} else {
		spri_tcp_drop(tcp_port_of(c), &c->source);
		c->deadline_ns = SPRI_NEVER;
	}
	move(c, SPRI_CONN_LOST);
}

static void done(struct tcp_conn *c)
{
	c->deadline_ns = SPRI_NEVER;
	move(c, SPRI_CONN_DONE);
}

void spri_tcp_stream_ended(struct tcp_conn *c, int error)
{
	int e = error == 0 || error == EPIPE ? ECONNRESET : error;
	int status = e == ETIMEDOUT ? SPR_ETIMEOUT : -e;
	/* After the peer's goodbye there is nobody to say goodbye to. */
	bool unsent = c->peer_left ? c->send.sent != c->send.posted : tcp_unsent(c);

	switch (c->state) {
	case SPRI_CONN_ASKING:
		spri_tcp_dial_failed(c, 1, status, "ended the connection: %s", spr_strerror(-e));
		return;
	case SPRI_CONN_ANSWERED:
		spri_tcp_hang_up(c);
		move(c, SPRI_CONN_AWAITING);
		spri_tcp_guest_match(c);
		return;
	case SPRI_CONN_REFUSING:
		refused(c, false);
		return;
	case SPRI_CONN_LEFT:
	case SPRI_CONN_CLOSING:
		if (!unsent) {
			spri_tcp_drop(tcp_port_of(c), &c->source);
			if (c->state == SPRI_CONN_CLOSING)
				done(c);
			return;
		}
		break;
	case SPRI_CONN_DONE:
	case SPRI_CONN_LOST:
		spri_tcp_drop(tcp_port_of(c), &c->source);
		c->deadline_ns = SPRI_NEVER;
		return;
	default:
		break;
	}
	spri_tcp_lose(c, status, "connection lost: %s", spr_strerror(-e));
}

/* ---- close ---- */

void spri_tcp_close(struct spri_conn *base)
{
	struct tcp_conn *c = (struct tcp_conn *)base;

	switch (c->state) {
	case SPRI_CONN_NEW:
	case SPRI_CONN_DIALING:
	case SPRI_CONN_ASKING:
	case SPRI_CONN_AWAITING:
	case SPRI_CONN_ANSWERED:
		spri_tcp_hang_up(c);
		done(c);
		return;
	case SPRI_CONN_LEFT:
		if (c->source.fd < 0) {
			done(c);
			return;
		}
		break;
	case SPRI_CONN_UP:
		break;
	default:
		return;
	}
	move(c, SPRI_CONN_CLOSING);
	spri_tcp_send_tail(c, SPRI_FRAME_GOODBYE, 0);
	if (c->send.sent == c->send.posted)
		await_farewell(c);
	if (c->writable)
		spri_tcp_send(c);
	spri_tcp_ready(c);
}

bool spri_tcp_closed(struct spri_conn *base)
{
	const struct tcp_conn *c = (struct tcp_conn *)base;

	return c->state == SPRI_CONN_DONE || c->state == SPRI_CONN_LOST;
}

void spri_tcp_all_sent(struct tcp_conn *c)
{
	if (c->state == SPRI_CONN_REFUSING)
		refused(c, true);
	else if (c->state == SPRI_CONN_CLOSING && c->peer_left)
		done(c);
	else if (c->state == SPRI_CONN_CLOSING)
		await_farewell(c);
}

void spri_tcp_peer_left(struct tcp_conn *c)
{
	if (c->state == SPRI_CONN_LOST)
		return;
	c->peer_left = true;
	c->tell_closed = true;
	if (c->state == SPRI_CONN_UP) {
		move(c, SPRI_CONN_LEFT);
		spri_tcp_send_tail(c, SPRI_FRAME_FAREWELL, 0);
		if (c->writable)
			spri_tcp_send(c);
	} else if (c->state == SPRI_CONN_CLOSING && !tcp_unsent(c)) {
		done(c);
	}
}

void spri_tcp_farewell(struct tcp_conn *c)
{
	c->farewell = true;
	if (c->state == SPRI_CONN_CLOSING)
		done(c);
}

/* ---- progress ---- */

/* Events that are the connection's own. LOST comes behind what was buffered when it happened. */
static void report(struct tcp_conn *c, struct tcp_events *out)
{
	struct tcp_send *s = &c->send;

	while (s->reported != s->sent && out->n < out->max)
		tcp_emit(out, c, SPRI_EVENT_SENT)->cookie =
			s->queue[s->reported++ % TCP_QUEUE].cookie;
	if (s->reported != s->sent || c->receive.stalled)
		return;
	if (c->tell_closed && out->n < out->max) {
		tcp_emit(out, c, SPRI_EVENT_CLOSED);
		c->tell_closed = false;
	}
	if (c->tell_lost && out->n < out->max) {
		tcp_emit(out, c, SPRI_EVENT_LOST)->status = c->status;
		c->tell_lost = false;
	}
}

static bool may_send(const struct tcp_conn *c)
{
	return c->source.fd >= 0 && c->writable && tcp_unsent(c) &&
	       (c->state == SPRI_CONN_UP || c->state == SPRI_CONN_LEFT ||
		c->state == SPRI_CONN_CLOSING || c->state == SPRI_CONN_REFUSING);
}

bool spri_tcp_serve(struct tcp_conn *c, struct tcp_events *out)
{
	if (c->state == SPRI_CONN_DIALING && c->writable)
		spri_tcp_dialed(c);
	if (c->state == SPRI_CONN_REFUSING || c->linger)
		spri_tcp_discard(c);
	else
		spri_tcp_receive(c, out);
	if (may_send(c))
		spri_tcp_send(c);
	report(c, out);
	return (c->source.fd >= 0 && c->readable && c->state != SPRI_CONN_DIALING) || may_send(c) ||
	       c->receive.stalled || c->tell_connected || c->tell_closed || c->tell_lost ||
	       c->send.reported != c->send.sent;
}

/* ---- deadlines ---- */

static void took_nothing(struct tcp_conn *c)
{
	spri_tcp_lose(c, SPR_ETIMEOUT, "took no data for %.3g s",
		      (double)tcp_port_of(c)->timeout_ns / SPRI_NS_PER_S);
}

/* No answer to our goodbye yet. */
static void look_at_goodbye(struct tcp_conn *c)
{
	uint64_t left = spri_tcp_left(c), now = spri_now_ns();

	if (left == 0) {
		done(c);
		return;
	}
	if (left == c->left && now >= spri_tcp_after(c->left_ns, tcp_port_of(c)->timeout_ns)) {
		took_nothing(c);
		return;
	}
	if (left != c->left)
		c->left_ns = now;
	c->left = left;
	set_deadline(c, goodbye_deadline(c));
}

/* The deadline of the handshake, of goodbye, of a refusal. */
static void expired(struct tcp_conn *c)
{
	double seconds = (double)tcp_port_of(c)->timeout_ns / SPRI_NS_PER_S;

	switch (c->state) {
	case SPRI_CONN_DIALING:
	case SPRI_CONN_ASKING:
		spri_tcp_dial_expired(c);
		break;
	case SPRI_CONN_AWAITING:
	case SPRI_CONN_ANSWERED:
		spri_tcp_hang_up(c);
		spri_tcp_lose(c, SPR_ETIMEOUT, "did not connect within %.3g s", seconds);
		break;
	case SPRI_CONN_CLOSING:
		look_at_goodbye(c);
		break;
	case SPRI_CONN_REFUSING:
		refused(c, false);
		spri_tcp_ready(c);
		break;
	default: /* lingering */
		spri_tcp_drop(tcp_port_of(c), &c->source);
		c->deadline_ns = SPRI_NEVER;
		break;
	}
}

uint64_t spri_tcp_conn_expire(struct tcp_conn *c, uint64_t now)
{
	uint64_t timeout_ns = tcp_port_of(c)->timeout_ns, blocked, next;

	if (now >= c->deadline_ns) {
		expired(c);
	} else if ((c->state == SPRI_CONN_DIALING || c->state == SPRI_CONN_ASKING) &&
		   now >= c->dial.share_ns) {
		spri_tcp_dial_failed(c, 0, SPR_ETIMEOUT, "no answer");
	} else if (c->source.fd >= 0 && tcp_unsent(c) &&
		   now >= spri_tcp_after(c->send.blocked_ns, timeout_ns)) {
		if (c->peer_left && c->send.sent == c->send.posted)
			spri_tcp_stream_ended(c, ETIMEDOUT);
		else
			took_nothing(c);
	}
	next = c->deadline_ns;
	if (c->state == SPRI_CONN_DIALING || c->state == SPRI_CONN_ASKING)
		next = spri_min_u64(next, c->dial.share_ns);
	blocked = spri_tcp_after(c->send.blocked_ns, timeout_ns);
	return c->source.fd >= 0 && tcp_unsent(c) ? spri_min_u64(next, blocked) : next;
}
