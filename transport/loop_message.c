/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Writes of the loop transport in flight. A message is taken from the fabric's free list by post(),
 * is in its connection's list while it flies, and goes back when the last of its uses has ended:
 * the flight, the SENT note that the sender has not polled, the NOTIFY note that the receiver has
 * not polled.
 *
 * On arrival, at the receiving end: key, permission, bounds; then the bytes are copied; then both
 * notes are queued. A write that is refused places nothing and loses the connection; one that meets
 * nobody (the other end was destroyed) loses it one latency later; one that meets a killed place
 * stays in flight until its deadline or until the news of the kill arrive.
 */
#include "loop.h"

#include <internal/alloc.h>
#include <internal/bits.h>

#include <errno.h>
#include <string.h>

static struct spri_fabric *fabric_of(const struct loop_conn *conn)
{
	return spri_loop_port(conn)->fabric;
}

/* ---- messages ---- */

struct loop_message *spri_loop_message_get(struct spri_fabric *fabric)
{
	struct loop_message *message = fabric->free;

	if (message) {
		fabric->free = message->next;
		message->next = NULL;
		return message;
	}
	message = spri_zalloc(sizeof *message);
	if (message && spri_loop_reserve(fabric, 1) < 0) {
		spri_free(message);
		message = NULL;
	}
	return message;
}

void spri_loop_message_put(struct spri_fabric *fabric, struct loop_message *message, unsigned use)
{
	message->uses &= ~use;
	if (message->uses)
		return;
	message->next = fabric->free;
	fabric->free = message;
}

/* Counts the pieces that lie in each region, so that unregister() notices a write that uses it. */
static void lend(const struct loop_message *message, bool begin)
{
	for (unsigned i = 0; i < message->write.n_gather; i++) {
		const struct spri_gather *piece = &message->write.gather[i];
		struct loop_region *region;

		if (piece->bytes == 0)
			continue;
		region = spri_container_of(piece->region, struct loop_region, base);
		if (begin)
			region->n_lent++;
		else
			region->n_lent--;
	}
}

/* The connection gives up at the earliest deadline of its writes. */
static void arm_timer(struct loop_conn *conn)
{
	uint64_t first = SPRI_NEVER;

	for (const struct loop_message *m = conn->out; m; m = m->next)
		first = spri_min_u64(first, m->deadline_ns);
	if (first != SPRI_NEVER)
		first = spri_max_u64(first, fabric_of(conn)->now_ns);
	spri_loop_schedule(fabric_of(conn), &conn->timer, LOOP_TIMER, first);
}

void spri_loop_message_send(struct loop_conn *conn, struct loop_message *message)
{
	struct spri_fabric *fabric = fabric_of(conn);
	struct loop_flight flight = spri_loop_send(conn, message->bytes);
	uint64_t timeout = spri_loop_port(conn)->timeout_ns;

	message->from = conn;
	message->depart_ns = flight.depart_ns;
	message->left_ns = flight.left_ns;
	message->deadline_ns = SPRI_NEVER;
	message->uses = LOOP_USE_FLIGHT;
	message->next = NULL;
	*conn->out_end = message;
	conn->out_end = &message->next;
	conn->n_out++;
	lend(message, true);
	spri_loop_schedule(fabric, &message->node, LOOP_MESSAGE, flight.reach_ns);
	if (flight.reach_ns - flight.left_ns > timeout) {
		message->deadline_ns = spri_loop_add(flight.left_ns, timeout);
		arm_timer(conn);
	}
}

/* Takes the messages from *at on out of flight: they will not arrive. */
void spri_loop_messages_drop(struct loop_conn *conn, struct loop_message **at)
{
	struct spri_fabric *fabric = fabric_of(conn);
	struct loop_message *message = *at;

	*at = NULL;
	conn->out_end = at;
	while (message) {
		struct loop_message *next = message->next;

		spri_loop_cancel(fabric, &message->node);
		lend(message, false);
		spri_loop_message_put(fabric, message, LOOP_USE_FLIGHT);
		message = next;
	}
}

/* ---- arrival of a write ---- */

struct refusal {
	const char *at_receiver, *at_sender; /* texts */
};

static const struct refusal no_key = {
	"its write was refused: the key is not valid on this connection",
	"refused a write: the key is not valid on this connection"};
static const struct refusal no_permission = {
	"its write was refused: the region does not allow remote writes",
	"refused a write: the region does not allow remote writes"};
static const struct refusal no_bounds = {"its write was refused: it is not within the region",
					 "refused a write: it is not within the region"};

/* May the message be written? Returns where in *to, or the refusal. */
static const struct refusal *check(const struct loop_conn *conn, const struct loop_message *message,
				   uint8_t **to)
{
	const struct loop_grant *grant = conn->grants;
	const struct spri_region *region;
	uint64_t offset;

	*to = NULL;
	if (message->bytes == 0)
		return NULL;
	while (grant && memcmp(grant->key, message->write.key, SPRI_KEY_BYTES) != 0)
		grant = grant->next_conn;
	if (!grant)
		return &no_key;
	region = &grant->region->base;
	if (!(region->access & SPRI_ACCESS_REMOTE_WRITE))
		return &no_permission;
	/* An address before the region wraps around to an offset past its end. */
	offset = message->write.address - (uint64_t)(uintptr_t)region->base;
	if (offset > region->bytes || message->bytes > region->bytes - offset)
		return &no_bounds;
	*to = (uint8_t *)region->base + offset;
	return NULL;
}

void spri_loop_message_arrived(struct spri_fabric *fabric, struct loop_message *message)
{
	struct loop_conn *from = message->from, *to = from->peer;
	const struct refusal *refusal;
	uint8_t *at;

	if (fabric->places[from->peer_place]
		    .killed) { /* nobody answers: it waits for its deadline */
		message->deadline_ns =
			spri_loop_add(message->left_ns, spri_loop_port(from)->timeout_ns);
		if (!spri_loop_killed(from))
			arm_timer(from);
		return;
	}
	if (!to) {
		if (!from->lost.at) {
			uint64_t when = spri_loop_add(fabric->now_ns, fabric->options.latency_ns);

			/* A goodbye that is still on its way is not overtaken. */
			if (from->bye.at)
				when = spri_max_u64(when, spri_loop_due(fabric, &from->bye));
			from->news_status = -ECONNRESET;
			from->news_reason = "connection reset: the other end is gone";
			spri_loop_schedule(fabric, &from->lost, LOOP_LOST, when);
		}
		return;
	}
	refusal = check(to, message, &at);
	if (refusal) {
		spri_loop_conn_lose(to, SPR_EACCESS, refusal->at_receiver, refusal->at_sender);
		return;
	}
	for (unsigned i = 0; i < message->write.n_gather; i++) {
		const struct spri_gather *piece = &message->write.gather[i];

		if (piece->bytes > 0) {
			memmove(at, piece->base, piece->bytes);
			at += piece->bytes;
		}
	}
	assert(from->out == message);
	from->out = message->next;
	if (!from->out)
		from->out_end = &from->out;
	lend(message, false);
	message->uses |= LOOP_USE_SENT | (message->write.notify ? LOOP_USE_NOTIFY : 0);
	message->to = to;
	if (message->write.notify)
		spri_loop_note(spri_loop_port(to), &message->notify, LOOP_NOTE_NOTIFY);
	spri_loop_note(spri_loop_port(from), &message->sent, LOOP_NOTE_SENT);
	spri_loop_message_put(fabric, message, LOOP_USE_FLIGHT);
	if (from->timer.at)
		arm_timer(from);
	if (!from->out)
		spri_loop_conn_drained(from);
}
