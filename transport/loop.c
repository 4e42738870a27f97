/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The loop transport: ports of one process, joined by a fabric in virtual time. It is the double
 * for tests, the simulator's network and the shortest thing to read when learning the contract.
 * This file holds the slots of the row; loop_conn.c the life of a connection; loop_message.c writes
 * in flight; loop_fabric.c places, links and time.
 *
 * The happy path of a write: post() checks it, takes a message from the free list and the link's
 * time, and queues the message for when it reaches the other place. When that time comes (wait() or
 * the scheduler of the simulator calls spri_fabric_advance) key, permission and bounds are checked
 * at the receiving end, the bytes are copied from the source, which is lent until then, and both
 * notes are queued: NOTIFY at the receiver, SENT at the sender. So SENT comes later than on a real
 * network, and a source that is changed too early is seen by the tests.
 *
 * What differs from other rows, within the contract:
 *   - poll() moves no time. Whoever gets SPRI_AGAIN or an empty poll() has to wait().
 *   - all but wake() belong to one thread.
 *   - keys come from the seed: they are repeatable, not secret.
 *   - notes that a receiver does not poll are kept without a bound; there is no back-pressure but
 *     LOOP_QUEUE.
 *
 * Failures: see loop_conn.c. A killed place, or one whose delay could not be stored, fails poll(),
 * wait() and post().
 */
#include "loop.h"
#include "rows.h"

#include <internal/alloc.h>
#include <internal/bytes.h>
#include <internal/philox.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BLOB_BYTES 16
#define BLOB_MAGIC 0x706f6f6cu /* "loop" */
#define KEY_STREAM 2	       /* upper half of the generator's counter; jitter uses another */

static struct loop_port *port_of(struct spri_port *port)
{
	return spri_container_of(port, struct loop_port, base);
}

static struct loop_conn *conn_of(struct spri_conn *conn)
{
	return spri_container_of(conn, struct loop_conn, base);
}

static struct loop_region *region_of(struct spri_region *region)
{
	return spri_container_of(region, struct loop_region, base);
}

static int broken(const struct loop_port *port)
{
	return port->fabric->places[port->place].broken;
}

/* ---- ports ---- */

static int loop_probe(struct spri_text *why SPRI_UNUSED)
{
	return 0;
}

static int loop_listen(const struct spri_port_options *options, struct spri_port **out,
		       struct spri_text *text)
{
	struct spri_fabric *fabric = options->fabric;
	struct loop_place *place;
	struct loop_port *port;

	if (!fabric || options->place >= fabric->options.n_places) {
		spri_text_set(text, "loop: place %u is not in the fabric", options->place);
		return SPR_EARGUMENT;
	}
	place = &fabric->places[options->place];
	if (place->broken || place->port) {
		spri_text_set(text, "loop: place %u %s", options->place,
			      place->port ? "has a port already" : "was killed");
		return place->port ? -EADDRINUSE : place->broken;
	}
	port = spri_zalloc(sizeof *port);
	if (!port) {
		spri_text_set(text, "loop: no memory for a port");
		return -ENOMEM;
	}
	port->base.ops = &spri_loop;
	port->fabric = fabric;
	port->place = options->place;
	port->generation = ++place->generation;
	port->timeout_ns = options->timeout_ns;
	port->notes_end = &port->notes;
	atomic_init(&port->woken, false);
	place->port = port;
	*out = &port->base;
	return 0;
}

/* magic u32, place u32, generation u32, CRC-32C of these u32 */
static size_t loop_address(struct spri_port *base, uint8_t *blob)
{
	const struct loop_port *port = port_of(base);

	spri_put_u32(blob, BLOB_MAGIC);
	spri_put_u32(blob + 4, port->place);
	spri_put_u32(blob + 8, port->generation);
	spri_put_u32(blob + 12, spri_crc32c(0, blob, 12));
	return BLOB_BYTES;
}

void spri_loop_port_free(struct loop_port *port)
{
	while (port->conns)
		spri_loop_conn_free(port->conns);
	while (port->regions)
		spri_loop.unregister(&port->regions->base);
	port->fabric->places[port->place].port = NULL;
	spri_free(port);
}

static void loop_fini(struct spri_port *base)
{
	if (!base)
		return;
	assert(!port_of(base)->conns && !port_of(base)->regions);
	spri_loop_port_free(port_of(base));
}

static uint64_t loop_now(struct spri_port *base)
{
	return port_of(base)->fabric->now_ns;
}

static void loop_stats(struct spri_port *base, struct spri_port_stats *out)
{
	*out = port_of(base)->stats;
}

/* ---- regions and grants ---- */

static int loop_register(struct spri_port *base, const struct spri_memory *memory,
			 struct spri_region **out, struct spri_text *text)
{
	struct loop_port *port = port_of(base);
	struct loop_region *region;

	if (memory->bytes > UINTPTR_MAX - (uintptr_t)memory->base ||
	    (memory->access & ~(unsigned)SPRI_ACCESS_REMOTE_WRITE))
		return SPR_EARGUMENT;
	if (memory->device)
		return spri_transport_no_device(base, text);
	region = spri_zalloc(sizeof *region);
	if (!region)
		return -ENOMEM;
	region->base = (struct spri_region){.port = base,
					    .base = memory->base,
					    .bytes = memory->bytes,
					    .access = memory->access};
	region->next = port->regions;
	region->link = &port->regions;
	if (region->next)
		region->next->link = &region->next;
	port->regions = region;
	*out = &region->base;
	return 0;
}

void spri_loop_grant_free(struct loop_grant *grant)
{
	*grant->link_conn = grant->next_conn;
	if (grant->next_conn)
		grant->next_conn->link_conn = grant->link_conn;
	*grant->link_region = grant->next_region;
	if (grant->next_region)
		grant->next_region->link_region = grant->link_region;
	spri_free(grant);
}

static void loop_unregister(struct spri_region *base)
{
	struct loop_region *region;

	if (!base)
		return;
	region = region_of(base);
	assert(region->n_lent == 0 || broken(port_of(base->port)));
	while (region->grants)
		spri_loop_grant_free(region->grants);
	*region->link = region->next;
	if (region->next)
		region->next->link = region->link;
	spri_free(region);
}

/* The same region granted again on the same connection has the same key. */
static int loop_grant(struct spri_conn *conn_base, struct spri_region *region_base,
		      struct spri_remote *out)
{
	struct loop_conn *conn = conn_of(conn_base);
	struct loop_region *region = region_of(region_base);
	struct spri_fabric *fabric = spri_loop_port(conn)->fabric;
	struct loop_grant *grant = conn->grants;
	uint32_t x[4];

	if (region_base->port != conn_base->port)
		return SPR_EARGUMENT;
	while (grant && grant->region != region)
		grant = grant->next_conn;
	if (!grant) {
		grant = spri_zalloc(sizeof *grant);
		if (!grant)
			return -ENOMEM;
		spri_philox4(fabric->options.seed, fabric->n_keys++, KEY_STREAM, x);
		memcpy(grant->key, x, sizeof grant->key);
		grant->region = region;
		grant->next_conn = conn->grants;
		grant->link_conn = &conn->grants;
		if (grant->next_conn)
			grant->next_conn->link_conn = &grant->next_conn;
		conn->grants = grant;
		grant->next_region = region->grants;
		grant->link_region = &region->grants;
		if (grant->next_region)
			grant->next_region->link_region = &grant->next_region;
		region->grants = grant;
	}
	out->address = (uint64_t)(uintptr_t)region_base->base;
	memcpy(out->key, grant->key, sizeof out->key);
	return 0;
}

/* ---- connections ---- */

static int loop_create(struct spri_port *base, void *user, struct spri_conn **out)
{
	struct loop_port *port = port_of(base);
	struct loop_conn *conn = spri_zalloc(sizeof *conn);

	if (!conn)
		return -ENOMEM;
	if (spri_loop_reserve(port->fabric, LOOP_CONN_NODES) < 0) {
		spri_free(conn);
		return -ENOMEM;
	}
	conn->base.port = base;
	conn->base.user = user;
	conn->out_end = &conn->out;
	conn->next = port->conns;
	conn->link = &port->conns;
	if (conn->next)
		conn->next->link = &conn->next;
	port->conns = conn;
	*out = &conn->base;
	return 0;
}

static int loop_connect(struct spri_conn *base, const struct spri_connect *args)
{
	struct loop_conn *conn = conn_of(base);
	const struct loop_port *port = spri_loop_port(conn);
	const uint8_t *blob = args->address;

	if (broken(port))
		return broken(port);
	if (conn->state != LOOP_NEW)
		return conn->state == LOOP_CLOSED ? -ENOTCONN : -EISCONN;
	if (!blob || args->address_bytes != BLOB_BYTES || spri_get_u32(blob) != BLOB_MAGIC ||
	    spri_get_u32(blob + 12) != spri_crc32c(0, blob, 12) ||
	    spri_get_u32(blob + 4) >= port->fabric->options.n_places)
		return SPR_EARGUMENT;
	conn->peer_place = spri_get_u32(blob + 4);
	conn->peer_generation = spri_get_u32(blob + 8);
	conn->id = args->id;
	conn->active = args->active;
	if (args->private_data)
		memcpy(conn->private_data, args->private_data, sizeof conn->private_data);
	snprintf(conn->label, sizeof conn->label, "%s", args->label ? args->label : "");
	spri_loop_conn_start(conn);
	return 0;
}

static const char *loop_describe(struct spri_conn *base)
{
	struct loop_conn *conn = conn_of(base);
	size_t bytes;

	if (!conn->reason)
		return "";
	if (!conn->text) {
		bytes = strlen(conn->label) + strlen(conn->reason) + 3;
		conn->text = spri_alloc(bytes);
		if (!conn->text)
			return conn->reason;
		snprintf(conn->text, bytes, "%s: %s", conn->label, conn->reason);
	}
	return conn->text;
}

static void loop_close(struct spri_conn *base)
{
	spri_loop_conn_close(conn_of(base));
}

static bool loop_closed(struct spri_conn *base)
{
	return conn_of(base)->state >= LOOP_CLOSED;
}

static void loop_destroy(struct spri_conn *base)
{
	if (base)
		spri_loop_conn_free(conn_of(base));
}

/* ---- writes and events ---- */

/* Is the gather list what it must be? Returns 0 and the sum of its bytes, or SPR_EARGUMENT. */
static int check_write(const struct loop_port *port, const struct spri_write *write, size_t *bytes)
{
	size_t sum = 0;

	if (write->n_gather > SPRI_MAX_GATHER)
		return SPR_EARGUMENT;
	for (unsigned i = 0; i < write->n_gather; i++) {
		const struct spri_gather *piece = &write->gather[i];
		const struct spri_region *region = piece->region;
		uintptr_t offset;

		if (piece->bytes == 0)
			continue;
		if (!region || region->port != &port->base)
			return SPR_EARGUMENT;
		offset = (uintptr_t)piece->base - (uintptr_t)region->base;
		if ((uintptr_t)piece->base < (uintptr_t)region->base || offset > region->bytes ||
		    piece->bytes > region->bytes - offset || piece->bytes > SIZE_MAX - sum)
			return SPR_EARGUMENT;
		sum += piece->bytes;
	}
	*bytes = sum;
	return 0;
}

static int loop_post(struct spri_conn *base, const struct spri_write *write)
{
	struct loop_conn *conn = conn_of(base);
	struct loop_port *port = spri_loop_port(conn);
	struct loop_message *message;
	size_t bytes;
	int r;

	if (conn->state == LOOP_GONE)
		return conn->status;
	if (broken(port))
		return broken(port);
	if (conn->state != LOOP_OPEN)
		return -ENOTCONN;
	r = check_write(port, write, &bytes);
	if (r < 0)
		return spri_trace(r);
	if (conn->n_out >= LOOP_QUEUE)
		return SPRI_AGAIN;
	message = spri_loop_message_get(port->fabric);
	if (!message)
		return -ENOMEM;
	message->write = *write;
	message->bytes = bytes;
	port->stats.writes++;
	port->stats.wire_bytes += bytes;
	spri_loop_message_send(conn, message);
	return 0;
}

/* Fills an event from a note that has left the list. */
static void report(struct spri_fabric *fabric, struct loop_note *note, struct spri_event *event)
{
	struct loop_message *message;
	struct loop_conn *conn;

	memset(event, 0, sizeof *event);
	switch ((enum loop_note_kind)note->kind) {
	case LOOP_NOTE_CONNECTED:
		conn = spri_container_of(note, struct loop_conn, note_connected);
		event->kind = SPRI_EVENT_CONNECTED;
		memcpy(event->private_data, conn->private_data, sizeof event->private_data);
		break;
	case LOOP_NOTE_CLOSED:
		conn = spri_container_of(note, struct loop_conn, note_closed);
		event->kind = SPRI_EVENT_CLOSED;
		break;
	case LOOP_NOTE_LOST:
		conn = spri_container_of(note, struct loop_conn, note_lost);
		event->kind = SPRI_EVENT_LOST;
		event->status = conn->status;
		break;
	case LOOP_NOTE_SENT:
		message = spri_container_of(note, struct loop_message, sent);
		conn = message->from;
		event->kind = SPRI_EVENT_SENT;
		event->cookie = message->write.cookie;
		conn->n_out--;
		spri_loop_message_put(fabric, message, LOOP_USE_SENT);
		break;
	case LOOP_NOTE_NOTIFY:
	default:
		message = spri_container_of(note, struct loop_message, notify);
		conn = message->to;
		event->kind = SPRI_EVENT_NOTIFY;
		event->immediate = message->write.immediate;
		spri_loop_message_put(fabric, message, LOOP_USE_NOTIFY);
		break;
	}
	event->conn = &conn->base;
}

static int loop_poll(struct spri_port *base, struct spri_event *events, unsigned max)
{
	struct loop_port *port = port_of(base);
	unsigned n = 0;

	if (broken(port))
		return broken(port);
	while (n < max && port->notes) {
		struct loop_note *note = port->notes;

		port->notes = note->next;
		if (!port->notes)
			port->notes_end = &port->notes;
		report(port->fabric, note, &events[n++]);
	}
	return (int)n;
}

static int loop_wait(struct spri_port *base, uint64_t deadline_ns)
{
	struct loop_port *port = port_of(base);
	struct spri_fabric *fabric = port->fabric;
	int r = 0;

	if (fabric->wait)
		r = fabric->wait(fabric->wait_arg, port->place, deadline_ns);
	else
		while (!spri_fabric_ready(fabric, port->place) &&
		       spri_fabric_advance(fabric, deadline_ns))
			;
	atomic_store_explicit(&port->woken, false, memory_order_relaxed);
	return r < 0 ? r : broken(port);
}

static void loop_wake(struct spri_port *base)
{
	atomic_store_explicit(&port_of(base)->woken, true, memory_order_release);
}

const struct spri_transport spri_loop = {
	.name = "loop",
	.about = "one process, virtual time: for tests and simulation",
	.caps = SPRI_CAP_CONN_KEYS | SPRI_CAP_REFUSALS,
	.probe = loop_probe,
	.listen = loop_listen,
	.address = loop_address,
	.register_ = loop_register,
	.unregister = loop_unregister,
	.create = loop_create,
	.grant = loop_grant,
	.connect = loop_connect,
	.post = loop_post,
	.poll = loop_poll,
	.wait = loop_wait,
	.wake = loop_wake,
	.now = loop_now,
	.stats = loop_stats,
	.describe = loop_describe,
	.close = loop_close,
	.closed = loop_closed,
	.destroy = loop_destroy,
	.fini = loop_fini,
};
