/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The life of a verbs connection; conn.h draws its states.
 *
 *   connect  active: verbs_dial.c. Passive: a request with this connection's token is accepted; the
 *            active end's CONFIRM makes it UP.
 *   close    GOODBYE behind what was posted. The peer answers FAREWELL behind its own posts (or
 *   says
 *            GOODBYE itself): from then on neither end has bytes under way.
 *   destroy  disconnects and frees whatever the state.
 *
 * Failures: every one goes through spri_verbs_lose() or spri_verbs_refuse(). The queue pair is
 * stopped, what arrived before is reported, the queue pair destroyed (no device touches the sources
 * of posts any more), then LOST is reported.
 *
 * A device that refuses a write stops both queue pairs. The sending end has it from a completion.
 * The receiving end has a device event, or, where the device gives none (rxe), a queue pair that is
 * in error though rdma_cm knows of no end: that is SPR_EACCESS too, unless the port turns out to be
 * down within VERBS_LINGER_NS.
 */
#include "verbs.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int spri_verbs_create(struct spri_port *base, void *user, struct spri_conn **out)
{
	struct verbs_port *p = (struct verbs_port *)base;
	struct verbs_conn *c = spri_zalloc(sizeof *c);

	if (!c)
		return spri_trace(-ENOMEM);
	c->base.port = base;
	c->base.user = user;
	c->source.kind = VERBS_CONN;
	c->deadline_ns = c->linger_ns = SPRI_NEVER;
	snprintf(c->label, sizeof c->label, "peer");
	verbs_link_init(&c->all);
	verbs_append(&p->conns, &c->all);
	*out = &c->base;
	return 0;
}

void spri_verbs_destroy(struct spri_conn *base)
{
	struct verbs_conn *c = (struct verbs_conn *)base;

	if (!c)
		return;
	spri_verbs_hang_up(c);
	verbs_unlink(&c->all);
	spri_free(c);
}

const char *spri_verbs_describe(struct spri_conn *base)
{
	return ((struct verbs_conn *)base)->text.s;
}

static void move(struct verbs_conn *c, enum spri_conn_state to)
{
	spri_conn_move(&c->state, to, c->label);
}

static void set_deadline(struct verbs_conn *c, uint64_t at_ns)
{
	c->deadline_ns = at_ns;
	spri_verbs_arm(verbs_port_of(c), at_ns);
}

static void goodbye_deadline(struct verbs_conn *c)
{
	uint64_t most = spri_min_u64(verbs_port_of(c)->timeout_ns, VERBS_GOODBYE_NS);

	set_deadline(c, spri_verbs_after(spri_now_ns(), most));
}

void spri_verbs_hang_up(struct verbs_conn *c)
{
	if (c->cm && c->joined)
		(void)!rdma_disconnect(c->cm); /* fails when the peer was first */
	spri_verbs_qp_destroy(c);
	if (c->cm)
		rdma_destroy_id(c->cm);
	c->cm = NULL;
	c->place = NULL;
	c->joined = c->cut = c->broken = c->refused = false;
	c->send.wr_done = c->send.wr_posted; /* whatever became of them */
}

/* ---- connect ---- */

int spri_verbs_connect(struct spri_conn *base, const struct spri_connect *args)
{
	struct verbs_conn *c = (struct verbs_conn *)base;
	struct verbs_port *p = verbs_port_of(c);
	struct spri_verbs_blob blob;
	int r;

	if (c->state != SPRI_CONN_NEW) {
		spri_text_set(&c->text, "%s: connect: already called", c->label);
		return spri_trace(SPR_EARGUMENT);
	}
	if (args->label)
		snprintf(c->label, sizeof c->label, "%s", args->label);
	r = spri_verbs_blob_decode(args->address, args->address_bytes, &blob);
	if (r < 0) {
		spri_text_set(&c->text, "%s: connect: %zu bytes that are no verbs address",
			      c->label, args->address_bytes);
		return spri_trace(r);
	}
	c->token = spri_verbs_token(args->active ? p->id : blob.id, args->active ? blob.id : p->id,
				    args->id);
	if (args->private_data)
		memcpy(c->private_mine, args->private_data, sizeof c->private_mine);
	set_deadline(c, spri_verbs_after(spri_now_ns(), p->timeout_ns));
	if (args->active) {
		spri_verbs_dial(c, &blob);
	} else {
		move(c, SPRI_CONN_AWAITING);
		spri_verbs_match(c);
	}
	spri_verbs_ready(p);
	return 0;
}

void spri_verbs_up(struct verbs_conn *c)
{
	uint64_t now = spri_now_ns();

	c->look = (struct verbs_look){.done_ns = now, .life_ns = now, .fed_ns = now};
	set_deadline(c, SPRI_NEVER);
	spri_verbs_arm(verbs_port_of(c), spri_verbs_after(now, verbs_port_of(c)->tick_ns));
	c->tell_connected = true;
	move(c, SPRI_CONN_UP);
}

/* ---- failure ---- */

void spri_verbs_lose(struct verbs_conn *c, int status, const char *format, ...)
{
	char text[sizeof c->text.s - sizeof c->label];
	va_list args;

	if (!spri_conn_may_move(c->state, SPRI_CONN_LOST)) {
		c->broken = true; /* a connection that is over already cannot be lost */
		return;
	}
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	spri_text_set(&c->text, "%s: %s", c->label, text);
	c->status = status;
	c->deadline_ns = SPRI_NEVER;
	c->tell_lost = true;
	spri_verbs_qp_stop(c);
	move(c, SPRI_CONN_LOST);
	spri_verbs_ready(verbs_port_of(c));
}

void spri_verbs_refuse(struct verbs_conn *c, const char *why)
{
	c->status = SPR_EACCESS;
	spri_text_set(&c->text, "%s: verbs: %s", c->label, why);
	move(c, SPRI_CONN_REFUSING);
	verbs_owe(c, SPRI_VERBS_REFUSED);
	goodbye_deadline(c);
	spri_verbs_push(c);
	spri_verbs_ready(verbs_port_of(c));
}

/* The refusal is on its way, or cannot be: the end. */
static void refused(struct verbs_conn *c)
{
	c->deadline_ns = SPRI_NEVER;
	c->tell_lost = true;
	spri_verbs_qp_stop(c);
	move(c, SPRI_CONN_LOST);
}

static void done(struct verbs_conn *c)
{
	c->deadline_ns = SPRI_NEVER;
	move(c, SPRI_CONN_DONE);
}

static void lose_by_port(struct verbs_conn *c)
{
	spri_verbs_lose(c, -ENETDOWN, "verbs: port %u of %s is down", c->place->port,
			c->place->device->name);
}

/* Why an open connection ended without a goodbye. */
static void lose_open(struct verbs_conn *c)
{
	bool access = c->refused || (c->broken && !c->cut) || spri_verbs_qp_failed(c);
	const char *device = c->place->device->name;

	if (c->place->down_until_ns != SPRI_NEVER) /* rxe stops the queue pair, too */
		lose_by_port(c);
	else if (access && !c->place->device->iwarp)
		spri_verbs_lose(c, SPR_EACCESS,
				"verbs: %s refused a write of the peer: key, bounds or permission",
				device);
	else if (access)
		spri_verbs_lose(c, c->refused ? SPR_EACCESS : -ECONNRESET,
				"verbs: %s ended the connection: a write was refused, or the peer "
				"went away",
				device);
	else
		spri_verbs_lose(c, -ECONNRESET, "verbs: connection lost: the peer disconnected");
}

void spri_verbs_ended(struct verbs_conn *c)
{
	/* After the peer's goodbye there is nobody to say goodbye to. */
	bool unsent = c->send.sent != c->send.posted || (!c->peer_left && spri_verbs_unsent(c));

	/* What rdma_cm and the device have to say about it may be there by now. */
	if (spri_verbs_news(verbs_port_of(c)) < 0)
		c->cut = true; /* poll() meets it again */
	switch (c->state) {
	case SPRI_CONN_ANSWERED:
		spri_verbs_hang_up(c);
		move(c, SPRI_CONN_AWAITING);
		spri_verbs_match(c);
		return;
	case SPRI_CONN_REFUSING:
		refused(c);
		return;
	case SPRI_CONN_LEFT:
	case SPRI_CONN_CLOSING:
		if (unsent)
			break;
		spri_verbs_hang_up(c);
		if (c->state == SPRI_CONN_CLOSING)
			done(c);
		return;
	case SPRI_CONN_UP:
		break;
	case SPRI_CONN_DONE:
		spri_verbs_hang_up(c);
		return;
	default:
		c->cut = c->broken = false;
		return;
	}
	lose_open(c);
}

/* ---- close ---- */

void spri_verbs_close(struct spri_conn *base)
{
	struct verbs_conn *c = (struct verbs_conn *)base;

	switch (c->state) {
	case SPRI_CONN_NEW:
	case SPRI_CONN_DIALING:
	case SPRI_CONN_ASKING:
	case SPRI_CONN_AWAITING:
	case SPRI_CONN_ANSWERED:
		spri_verbs_hang_up(c);
		done(c);
		return;
	case SPRI_CONN_LEFT:
		if (!c->qp) {
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
	verbs_owe(c, SPRI_VERBS_GOODBYE);
	spri_verbs_push(c);
	spri_verbs_ready(verbs_port_of(c));
}

bool spri_verbs_closed(struct spri_conn *base)
{
	const struct verbs_conn *c = (struct verbs_conn *)base;

	return c->state == SPRI_CONN_DONE || c->state == SPRI_CONN_LOST;
}

void spri_verbs_all_done(struct verbs_conn *c)
{
	if (c->state == SPRI_CONN_REFUSING)
		refused(c);
	else if (c->state == SPRI_CONN_CLOSING && c->peer_left)
		done(c);
	else if (c->state == SPRI_CONN_CLOSING && c->deadline_ns == SPRI_NEVER)
		goodbye_deadline(c);
}

static void peer_left(struct verbs_conn *c)
{
	c->peer_left = true;
	c->tell_closed = true;
	if (c->state == SPRI_CONN_UP) {
		move(c, SPRI_CONN_LEFT);
		verbs_owe(c, SPRI_VERBS_FAREWELL);
	}
}

void spri_verbs_on_message(struct verbs_conn *c, const struct spri_verbs_message *m)
{
	struct verbs_send *s = &c->send;
	bool wrong = false;

	if ((int32_t)(m->credits - s->allowed) > 0) {
		s->allowed = m->credits;
		s->starved = false;
	}
	switch (m->type) {
	case SPRI_VERBS_CONFIRM:
		wrong = c->state != SPRI_CONN_ANSWERED;
		if (!wrong)
			spri_verbs_up(c);
		break;
	case SPRI_VERBS_GOODBYE:
		wrong = c->peer_left || c->state == SPRI_CONN_ANSWERED;
		if (!wrong)
			peer_left(c);
		break;
	case SPRI_VERBS_FAREWELL:
		wrong = c->state != SPRI_CONN_CLOSING && c->state != SPRI_CONN_DONE;
		if (c->state == SPRI_CONN_CLOSING)
			done(c);
		break;
	case SPRI_VERBS_REFUSED:
		if (c->state == SPRI_CONN_DONE)
			break;
		spri_verbs_lose(c, SPR_EACCESS,
				"verbs: the peer tried a write that was refused before it left");
		break;
	default:
		break;
	}
	if (wrong && c->state != SPRI_CONN_DONE)
		spri_verbs_lose(c, SPR_EPROTOCOL, "verbs: message %u does not fit the state %s",
				m->type, spri_conn_state_name(c->state));
}

/* ---- progress ---- */

static bool has_to_tell(const struct verbs_conn *c)
{
	return c->send.reported != c->send.sent || c->tell_closed || c->tell_lost;
}

/* Events that are the connection's own. LOST comes behind what arrived before. */
static void report(struct verbs_conn *c, struct verbs_events *out)
{
	struct verbs_send *s = &c->send;

	while (s->reported != s->sent && out->n < out->max)
		verbs_emit(out, c, SPRI_EVENT_SENT)->cookie =
			s->queue[s->reported++ % VERBS_QUEUE].cookie;
	if (s->reported != s->sent)
		return;
	if (c->tell_closed && out->n < out->max) {
		verbs_emit(out, c, SPRI_EVENT_CLOSED);
		c->tell_closed = false;
	}
	if (c->tell_lost && !c->qp && out->n < out->max) {
		verbs_emit(out, c, SPRI_EVENT_LOST)->status = c->status;
		c->tell_lost = false;
	}
}

/*
 * What explains the end of an open connection may come a little later. The peer has gone, and the
 * device still works on what was posted: what it will say about that may be why. The queue pair is
 * in error, and nobody has said why: rxe stops it before it reports that its port is down.
 */
static bool lingers(struct verbs_conn *c)
{
	uint64_t now;
	bool explained;

	if (c->state != SPRI_CONN_UP)
		return false;
	explained = c->broken ? c->cut || c->refused || c->place->device->iwarp ||
					c->place->down_until_ns != SPRI_NEVER
			      : verbs_out(c) == 0;
	if (explained)
		return false;
	now = spri_now_ns();
	if (c->linger_ns == SPRI_NEVER) {
		c->linger_ns = spri_verbs_after(now, VERBS_LINGER_NS);
		spri_verbs_arm(verbs_port_of(c), c->linger_ns);
	}
	return now < c->linger_ns;
}

bool spri_verbs_serve(struct verbs_conn *c, struct ibv_wc *wc, int n, struct verbs_events *out)
{
	bool more = false;

	if (c->tell_connected && out->n < out->max) {
		memcpy(verbs_emit(out, c, SPRI_EVENT_CONNECTED)->private_data, c->private_peers,
		       SPRI_PRIVATE_BYTES);
		c->tell_connected = false;
	}
	if (c->cq)
		more = c->tell_connected || spri_verbs_take(c, wc, n, out);
	if (!more && (c->cut || c->broken) && !lingers(c))
		spri_verbs_ended(c);
	if (c->qp && c->state != SPRI_CONN_LOST && (c->send.owe || verbs_unasked(c)))
		spri_verbs_push(c);
	if ((c->state == SPRI_CONN_CLOSING || c->state == SPRI_CONN_REFUSING) &&
	    !spri_verbs_unsent(c))
		spri_verbs_all_done(c);
	if (c->state == SPRI_CONN_LOST && c->cm && !more)
		spri_verbs_hang_up(c);
	if (has_to_tell(c))
		report(c, out);
	return more || c->tell_connected || has_to_tell(c);
}

/* ---- deadlines ---- */

/* The deadline of the handshake, of goodbye, of a refusal. */
static void expired(struct verbs_conn *c)
{
	double seconds = (double)verbs_port_of(c)->timeout_ns / SPRI_NS_PER_S;

	switch (c->state) {
	case SPRI_CONN_DIALING:
	case SPRI_CONN_ASKING:
		spri_verbs_dial_expired(c);
		break;
	case SPRI_CONN_AWAITING:
	case SPRI_CONN_ANSWERED:
		spri_verbs_hang_up(c);
		spri_verbs_lose(c, SPR_ETIMEOUT, "verbs: did not connect within %.3g s", seconds);
		break;
	case SPRI_CONN_CLOSING:
		if (spri_verbs_unsent(c))
			spri_verbs_lose(c, SPR_ETIMEOUT, "verbs: took no goodbye in time");
		else
			done(c);
		break;
	case SPRI_CONN_REFUSING:
		refused(c);
		spri_verbs_ready(verbs_port_of(c));
		break;
	default:
		c->deadline_ns = SPRI_NEVER;
		break;
	}
}

/* Looks at an open connection: does it move, is the peer there, is our port up? */
static void look_at(struct verbs_conn *c, uint64_t now)
{
	struct verbs_look *look = &c->look;
	struct verbs_send *s = &c->send;
	uint64_t timeout_ns = verbs_port_of(c)->timeout_ns;
	double seconds = (double)timeout_ns / SPRI_NS_PER_S;
	bool moved = look->done != s->wr_done;

	if (moved || verbs_out(c) == 0 || !verbs_signal_under_way(s))
		look->done_ns = now;
	if (!s->starved || look->allowed != s->allowed)
		look->fed_ns = now;
	if (moved || look->taken != c->receive.taken)
		look->life_ns = now;
	look->done = s->wr_done;
	look->allowed = s->allowed;
	look->taken = c->receive.taken;
	if (now >= spri_verbs_after(look->done_ns, timeout_ns + s->bytes_out * VERBS_NS_PER_BYTE) ||
	    now >= spri_verbs_after(look->fed_ns, timeout_ns)) {
		spri_verbs_lose(c, SPR_ETIMEOUT, "verbs: took no data for %.3g s", seconds);
	} else if (now >= c->place->down_until_ns) {
		lose_by_port(c);
	} else if (now >= spri_verbs_after(look->life_ns, VERBS_KEEPALIVE_NS) &&
		   verbs_out(c) == 0) {
		look->life_ns = now;
		spri_verbs_flush(c);
	} else if (verbs_out(c) > 0 && !verbs_signal_under_way(s)) {
		spri_verbs_flush(c); /* of copies nobody has asked whether they arrive */
	}
}

uint64_t spri_verbs_conn_expire(struct verbs_conn *c, uint64_t now)
{
	bool open;

	if (now >= c->deadline_ns)
		expired(c);
	else if ((c->state == SPRI_CONN_DIALING || c->state == SPRI_CONN_ASKING) &&
		 now >= c->dial.share_ns)
		spri_verbs_dial_failed(c, 0, SPR_ETIMEOUT, "no answer");
	open = c->qp && (c->state == SPRI_CONN_UP || c->state == SPRI_CONN_LEFT ||
			 c->state == SPRI_CONN_CLOSING);
	if (open)
		look_at(c, now);
	if (open)
		return spri_min_u64(spri_min_u64(c->deadline_ns, c->linger_ns),
				    spri_verbs_after(now, verbs_port_of(c)->tick_ns));
	if (c->state == SPRI_CONN_DIALING || c->state == SPRI_CONN_ASKING)
		return spri_min_u64(c->deadline_ns, c->dial.share_ns);
	return c->deadline_ns;
}
