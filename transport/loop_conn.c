/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Connections of the loop transport: how two ends meet and how they part.
 *
 *        connect               met        close, some in flight    the last one arrived
 *   NEW ----------> CONNECTING -----> OPEN ---------------> CLOSING ---------------> CLOSED
 *    |                  |              |                                               ^
 *    |      close       |    close     |      close, nothing in flight                 |
 *    +------------------+--------------+-----------------------------------------------+
 *
 *   CONNECTING, OPEN, CLOSING, CLOSED ----- a failure -----> GONE
 *
 * Meeting: the active end sends a request, which takes one latency. Whichever is at the passive
 * place first, the request or the passive end, waits in the fabric's table, found by (passive
 * place, active place, id). When both are there the passive end is OPEN and an answer flies back;
 * when it arrives the active end is OPEN.
 *
 * Failures:
 *   - nobody at the other place: LOST -ECONNREFUSED; no other end in time, or the place was killed:
 *     -ETIMEDOUT
 *   - a write that does not arrive within the timeout (a delayed link, a killed place): LOST
 *     -ETIMEDOUT
 *   - a write that is refused: LOST SPR_EACCESS at the receiver at once, at the sender when the
 *     news arrive
 *   - destroyed without a finished close: the other end LOST -ECONNRESET when the news arrive
 *   - a killed place: writes that have left still arrive, then (detect_ns after the kill) LOST
 *     -ECONNRESET
 */
#include "loop.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/log.h>

#include <errno.h>
#include <string.h>

static const char *const state_names[] = {"NEW", "CONNECTING", "OPEN", "CLOSING", "CLOSED", "GONE"};

/* Which states may follow, as a mask. */
static const uint8_t edges[] = {
	[LOOP_NEW] = 1 << LOOP_CONNECTING | 1 << LOOP_CLOSED,
	[LOOP_CONNECTING] = 1 << LOOP_OPEN | 1 << LOOP_CLOSED | 1 << LOOP_GONE,
	[LOOP_OPEN] = 1 << LOOP_CLOSING | 1 << LOOP_CLOSED | 1 << LOOP_GONE,
	[LOOP_CLOSING] = 1 << LOOP_CLOSED | 1 << LOOP_GONE,
	[LOOP_CLOSED] = 1 << LOOP_GONE,
	[LOOP_GONE] = 0,
};

static void move(struct loop_conn *conn, enum loop_state to)
{
	assert(edges[conn->state] & 1 << to);
	spri_logf(SPR_LOG_DEBUG, "loop: %s: %s to %s", conn->label, state_names[conn->state],
		  state_names[to]);
	conn->state = (uint8_t)to;
}

static struct spri_fabric *fabric_of(const struct loop_conn *conn)
{
	return spri_loop_port(conn)->fabric;
}

bool spri_loop_killed(const struct loop_conn *conn)
{
	return fabric_of(conn)->places[spri_loop_port(conn)->place].killed;
}

void spri_loop_note(struct loop_port *port, struct loop_note *n, enum loop_note_kind kind)
{
	struct spri_fabric *fabric = port->fabric;

	n->kind = (uint8_t)kind;
	n->next = NULL;
	if (!port->notes && fabric->on_ready)
		fabric->on_ready(fabric->on_ready_arg, port->place);
	*port->notes_end = n;
	port->notes_end = &n->next;
}

/* ---- the table of ends that wait ---- */

static struct loop_conn **bucket(struct spri_fabric *fabric, const struct loop_conn *conn)
{
	uint32_t own = spri_loop_port(conn)->place;
	uint64_t passive = conn->active ? conn->peer_place : own;
	uint64_t active = conn->active ? own : conn->peer_place;
	uint64_t hash = spri_mix64(spri_mix64(passive << 32 | active) + conn->id);

	return &fabric->table[hash & (fabric->n_buckets - 1)];
}

/* Doubles the table; when there is no memory the chains just get longer. */
static void grow_table(struct spri_fabric *fabric)
{
	size_t n_old = fabric->n_buckets;
	struct loop_conn **old = fabric->table, **table = spri_calloc(2 * n_old, sizeof *table);

	if (!table)
		return;
	fabric->table = table;
	fabric->n_buckets = 2 * n_old;
	for (size_t i = 0; i < n_old; i++)
		while (old[i]) {
			struct loop_conn *conn = old[i], **to = bucket(fabric, conn);

			old[i] = conn->chain;
			conn->chain = *to;
			*to = conn;
		}
	spri_free(old);
}

static void await(struct spri_fabric *fabric, struct loop_conn *conn)
{
	struct loop_conn **to;

	if (fabric->n_waiting >= fabric->n_buckets)
		grow_table(fabric);
	to = bucket(fabric, conn);
	conn->chain = *to;
	*to = conn;
	conn->waiting = true;
	fabric->n_waiting++;
}

static void await_no_more(struct spri_fabric *fabric, struct loop_conn *conn)
{
	struct loop_conn **at;

	if (!conn->waiting)
		return;
	for (at = bucket(fabric, conn); *at != conn; at = &(*at)->chain)
		;
	*at = conn->chain;
	conn->waiting = false;
	fabric->n_waiting--;
}

/* The waiting end that `conn` looks for, or NULL. */
static struct loop_conn *other_end(struct spri_fabric *fabric, const struct loop_conn *conn)
{
	const struct loop_port *own = spri_loop_port(conn);

	for (struct loop_conn *other = *bucket(fabric, conn); other; other = other->chain) {
		const struct loop_port *port = spri_loop_port(other);

		if (other->active != conn->active && other->id == conn->id &&
		    other->peer_place == own->place && conn->peer_place == port->place &&
		    other->peer_generation == own->generation &&
		    conn->peer_generation == port->generation)
			return other;
	}
	return NULL;
}

/* ---- parting ---- */

/* Tells the other end, if there is one, that the connection is lost; the ends forget each other. */
static void sever(struct loop_conn *conn, int status, const char *reason)
{
	struct loop_conn *peer = conn->peer;
	struct spri_fabric *fabric = fabric_of(conn);

	if (!peer)
		return;
	conn->peer = NULL;
	peer->peer = NULL;
	if (peer->state == LOOP_GONE || peer->lost.at)
		return;
	/* The goodbye would claim that all writes came before it. */
	if (conn->state == LOOP_CLOSING)
		spri_loop_cancel(fabric, &peer->bye);
	peer->news_status = status;
	peer->news_reason = reason;
	spri_loop_schedule(fabric, &peer->lost, LOOP_LOST, spri_loop_send(conn, 0).reach_ns);
}

/*
 * The connection failed. The other end learns peer_reason, with the same status unless it is a
 * timeout of ours.
 */
void spri_loop_conn_lose(struct loop_conn *conn, int status, const char *reason,
			 const char *peer_reason)
{
	struct spri_fabric *fabric = fabric_of(conn);

	if (conn->state == LOOP_GONE)
		return;
	sever(conn, status == SPR_EACCESS ? status : -ECONNRESET, peer_reason);
	move(conn, LOOP_GONE);
	conn->status = status;
	conn->reason = reason;
	spri_logf(SPR_LOG_INFO, "loop: %s: %s", conn->label, reason);
	spri_loop_messages_drop(conn, &conn->out);
	await_no_more(fabric, conn);
	spri_loop_cancel(fabric, &conn->timer);
	spri_loop_cancel(fabric, &conn->setup);
	spri_loop_cancel(fabric, &conn->lost);
	spri_loop_cancel(fabric, &conn->bye);
	spri_loop_note(spri_loop_port(conn), &conn->note_lost, LOOP_NOTE_LOST);
}

void spri_loop_conn_close(struct loop_conn *conn)
{
	struct spri_fabric *fabric = fabric_of(conn);
	struct loop_conn *peer = conn->peer;
	bool open = conn->state == LOOP_OPEN;

	if (conn->state >= LOOP_CLOSING)
		return;
	await_no_more(fabric, conn);
	spri_loop_cancel(fabric, &conn->setup);
	move(conn, conn->out ? LOOP_CLOSING : LOOP_CLOSED);
	if (conn->state == LOOP_CLOSED)
		spri_loop_cancel(fabric, &conn->timer);
	/* Nothing overtakes on a connection, so the goodbye can leave at once. */
	if (peer && peer->state != LOOP_GONE)
		spri_loop_schedule(fabric, &peer->bye, LOOP_BYE, spri_loop_send(conn, 0).reach_ns);
	if (peer && !open) { /* closed before it was open: it takes nothing from the other end */
		conn->peer = NULL;
		peer->peer = NULL;
	}
}

void spri_loop_conn_drained(struct loop_conn *conn)
{
	if (conn->state == LOOP_CLOSING)
		move(conn, LOOP_CLOSED);
}

void spri_loop_conn_killed(struct loop_conn *conn)
{
	struct spri_fabric *fabric = fabric_of(conn);
	struct loop_conn *peer = conn->peer;
	struct loop_message **at = &conn->out;
	uint64_t detect = fabric->options.detect_ns, when;

	await_no_more(fabric, conn);
	spri_loop_cancel(fabric, &conn->timer);
	spri_loop_cancel(fabric, &conn->setup);
	when = spri_loop_add(fabric->now_ns, detect ? detect : fabric->options.latency_ns);
	for (; *at && (*at)->left_ns <= fabric->now_ns; at = &(*at)->next)
		if ((*at)->node.at)
			when = spri_max_u64(when, spri_loop_due(fabric, &(*at)->node));
	if (peer && *at)
		spri_loop_cancel(fabric, &peer->bye);
	spri_loop_messages_drop(conn, at);
	if (!peer || peer->state == LOOP_GONE || peer->lost.at || conn->state == LOOP_CLOSED)
		return;
	if (peer->setup.at)
		when = spri_max_u64(when, spri_loop_due(fabric, &peer->setup));
	if (peer->bye.at)
		when = spri_max_u64(when, spri_loop_due(fabric, &peer->bye));
	peer->news_status = -ECONNRESET;
	peer->news_reason = "connection reset by kill";
	spri_loop_schedule(fabric, &peer->lost, LOOP_LOST, when);
}

/* Does a note of this port's list concern conn? If so, it is taken out of use. */
static bool forget_note(struct loop_conn *conn, struct loop_note *n)
{
	struct loop_message *message;
	unsigned use;

	if (n->kind == LOOP_NOTE_SENT) {
		message = spri_container_of(n, struct loop_message, sent);
		use = message->from == conn ? LOOP_USE_SENT : 0;
	} else if (n->kind == LOOP_NOTE_NOTIFY) {
		message = spri_container_of(n, struct loop_message, notify);
		use = message->to == conn ? LOOP_USE_NOTIFY : 0;
	} else {
		return n == &conn->note_connected || n == &conn->note_closed ||
		       n == &conn->note_lost;
	}
	if (use)
		spri_loop_message_put(fabric_of(conn), message, use);
	return use != 0;
}

void spri_loop_conn_free(struct loop_conn *conn)
{
	struct loop_port *port = spri_loop_port(conn);
	struct spri_fabric *fabric = port->fabric;
	struct loop_note **at = &port->notes;

	if (conn->state != LOOP_CLOSED) {
		sever(conn, -ECONNRESET, "connection reset by the other end");
	} else if (conn->peer) {
		conn->peer->peer = NULL;
		conn->peer = NULL;
	}
	spri_loop_messages_drop(conn, &conn->out);
	await_no_more(fabric, conn);
	spri_loop_cancel(fabric, &conn->timer);
	spri_loop_cancel(fabric, &conn->setup);
	spri_loop_cancel(fabric, &conn->lost);
	spri_loop_cancel(fabric, &conn->bye);
	fabric->n_nodes -= LOOP_CONN_NODES;
	while (*at)
		if (forget_note(conn, *at))
			*at = (*at)->next;
		else
			at = &(*at)->next;
	port->notes_end = at;
	while (conn->grants)
		spri_loop_grant_free(conn->grants);
	*conn->link = conn->next;
	if (conn->next)
		conn->next->link = conn->link;
	spri_free(conn->text);
	spri_free(conn);
}

/* ---- meeting ---- */

static void meet(struct loop_conn *passive, struct loop_conn *active)
{
	struct spri_fabric *fabric = fabric_of(passive);
	uint8_t data[SPRI_PRIVATE_BYTES];

	memcpy(data, passive->private_data, sizeof data);
	memcpy(passive->private_data, active->private_data, sizeof data);
	memcpy(active->private_data, data, sizeof data);
	await_no_more(fabric, passive);
	await_no_more(fabric, active);
	passive->peer = active;
	active->peer = passive;
	move(passive, LOOP_OPEN);
	spri_loop_cancel(fabric, &passive->timer);
	spri_loop_note(spri_loop_port(passive), &passive->note_connected, LOOP_NOTE_CONNECTED);
	spri_loop_schedule(fabric, &active->setup, LOOP_ACCEPT,
			   spri_loop_send(passive, 0).reach_ns);
}

void spri_loop_conn_start(struct loop_conn *conn)
{
	struct loop_port *port = spri_loop_port(conn);
	struct spri_fabric *fabric = port->fabric;
	struct loop_conn *other;

	move(conn, LOOP_CONNECTING);
	spri_loop_schedule(fabric, &conn->timer, LOOP_TIMER,
			   spri_loop_add(fabric->now_ns, port->timeout_ns));
	if (conn->active) {
		spri_loop_schedule(fabric, &conn->setup, LOOP_REQUEST,
				   spri_loop_send(conn, 0).reach_ns);
		return;
	}
	other = other_end(fabric, conn);
	if (other)
		meet(conn, other);
	else
		await(fabric, conn);
}

static void request_arrived(struct spri_fabric *fabric, struct loop_conn *active)
{
	struct loop_place *place = &fabric->places[active->peer_place];
	struct loop_conn *passive;

	if (place->killed)
		return;
	if (!place->port || place->port->generation != active->peer_generation) {
		active->news_status = -ECONNREFUSED;
		active->news_reason = "nobody listens at its address";
		spri_loop_schedule(fabric, &active->lost, LOOP_LOST,
				   spri_loop_add(fabric->now_ns, fabric->options.latency_ns));
		return;
	}
	passive = other_end(fabric, active);
	if (passive)
		meet(passive, active);
	else
		await(fabric, active);
}

static void answer_arrived(struct spri_fabric *fabric, struct loop_conn *active)
{
	move(active, LOOP_OPEN);
	spri_loop_cancel(fabric, &active->timer);
	spri_loop_note(spri_loop_port(active), &active->note_connected, LOOP_NOTE_CONNECTED);
}

/* ---- what happens when its time has come ---- */

static void timer_ran_out(struct loop_conn *conn)
{
	if (conn->state == LOOP_CONNECTING)
		spri_loop_conn_lose(conn, -ETIMEDOUT, "no connection within the timeout",
				    "gave up connecting: timeout");
	else
		spri_loop_conn_lose(
			conn, -ETIMEDOUT, "a write did not arrive within the timeout",
			"connection reset: its write did not arrive within the timeout");
}

static void news_arrived(struct spri_fabric *fabric, struct loop_conn *conn)
{
	struct loop_conn *peer = conn->peer;

	if (peer) { /* it was killed, and has nothing more on its way */
		conn->peer = NULL;
		peer->peer = NULL;
		spri_loop_messages_drop(peer, &peer->out);
	}
	spri_loop_cancel(fabric, &conn->bye);
	spri_loop_conn_lose(conn, conn->news_status, conn->news_reason, NULL);
}

void spri_loop_happen(struct spri_fabric *fabric, struct loop_node *node)
{
	struct loop_conn *conn;

	switch ((enum loop_node_kind)node->kind) {
	case LOOP_MESSAGE:
		spri_loop_message_arrived(fabric,
					  spri_container_of(node, struct loop_message, node));
		break;
	case LOOP_REQUEST:
		request_arrived(fabric, spri_container_of(node, struct loop_conn, setup));
		break;
	case LOOP_ACCEPT:
		conn = spri_container_of(node, struct loop_conn, setup);
		if (!spri_loop_killed(conn))
			answer_arrived(fabric, conn);
		break;
	case LOOP_BYE:
		conn = spri_container_of(node, struct loop_conn, bye);
		if (!spri_loop_killed(conn))
			spri_loop_note(spri_loop_port(conn), &conn->note_closed, LOOP_NOTE_CLOSED);
		break;
	case LOOP_LOST:
		conn = spri_container_of(node, struct loop_conn, lost);
		if (!spri_loop_killed(conn))
			news_arrived(fabric, conn);
		break;
	case LOOP_TIMER:
		timer_ran_out(spri_container_of(node, struct loop_conn, timer));
		break;
	default:
		assert(!"a node of no kind");
	}
}
