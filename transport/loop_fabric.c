/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The fabric of the loop transport: virtual time, the queue of what happens next, and the links.
 *
 * The queue is a binary heap ordered by (time, order of queueing), so a run is a function of the
 * calls made and of the seed. spri_fabric_advance() takes the earliest node, sets the clock to its
 * time and lets it happen.
 *
 * A link, for something of b bytes sent at time t:
 *
 *   depart = max(t, egress)             the sending side is busy with earlier things until `egress`
 *   left   = egress = depart + b/rate
 *   reach  = max(left + latency + jitter + extra(from, to),
 *                reach of what this connection sent before)
 *   arrive = ingress = max(reach, ingress + b/rate)
 *
 * The last line is computed at `reach`, in the order in which things reach a place: an idle
 * receiver takes the bytes as they come (a message alone costs latency + b/rate, not twice b/rate),
 * a busy one serves one after another. Requests, answers, goodbyes and bad news are things of 0
 * bytes.
 *
 * Failures: there are none in here, but for memory; room in the queue is taken when a node comes
 * into being.
 */
#include "loop.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/log.h>
#include <internal/philox.h>

#include <errno.h>
#include <string.h>

#define JITTER_STREAM 1 /* upper half of the generator's counter; keys use another */

/* ---- the queue ---- */

static bool earlier(const struct loop_entry *a, const struct loop_entry *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->seq < b->seq;
}

static void put_at(struct spri_fabric *fabric, size_t i, struct loop_entry entry)
{
	fabric->queue[i] = entry;
	entry.node->at = (uint32_t)i + 1;
}

/* Puts an entry into the hole at i, moving the hole up or down until the order is right. */
static void fill_hole(struct spri_fabric *fabric, size_t i, struct loop_entry entry)
{
	struct loop_entry *queue = fabric->queue;

	while (i > 0 && earlier(&entry, &queue[(i - 1) / 2])) {
		put_at(fabric, i, queue[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < fabric->n_queue && earlier(&queue[child + 1], &queue[child]))
			child++;
		if (child >= fabric->n_queue || !earlier(&queue[child], &entry))
			break;
		put_at(fabric, i, queue[child]);
		i = child;
	}
	put_at(fabric, i, entry);
}

int spri_loop_reserve(struct spri_fabric *fabric, size_t n)
{
	size_t need = fabric->n_nodes + n, max = fabric->queue_max;
	struct loop_entry *queue;

	if (need > UINT32_MAX - 1)
		return -ENOMEM;
	if (need > max) {
		max = need > 2 * max ? need : 2 * max;
		queue = spri_alloc(max * sizeof *queue);
		if (!queue)
			return -ENOMEM;
		if (fabric->n_queue > 0)
			memcpy(queue, fabric->queue, fabric->n_queue * sizeof *queue);
		spri_free(fabric->queue);
		fabric->queue = queue;
		fabric->queue_max = max;
	}
	fabric->n_nodes = need;
	return 0;
}

void spri_loop_cancel(struct spri_fabric *fabric, struct loop_node *node)
{
	size_t i = node->at;
	struct loop_entry last;

	if (i == 0)
		return;
	node->at = 0;
	last = fabric->queue[--fabric->n_queue];
	if (last.node != node)
		fill_hole(fabric, i - 1, last);
}

void spri_loop_schedule(struct spri_fabric *fabric, struct loop_node *node,
			enum loop_node_kind kind, uint64_t time_ns)
{
	spri_loop_cancel(fabric, node);
	node->kind = (uint8_t)kind;
	node->through = false;
	if (time_ns == SPRI_NEVER)
		return;
	assert(fabric->n_queue < fabric->queue_max && time_ns >= fabric->now_ns);
	fabric->n_queue++;
	fill_hole(fabric, fabric->n_queue - 1, (struct loop_entry){time_ns, fabric->seq++, node});
}

uint64_t spri_loop_due(const struct spri_fabric *fabric, const struct loop_node *node)
{
	assert(node->at > 0);
	return fabric->queue[node->at - 1].time_ns;
}

/* ---- the links ---- */

uint64_t spri_loop_duration(const struct spri_fabric *fabric, size_t bytes)
{
	double rate = fabric->options.bytes_per_s, ns;

	if (rate <= 0 || bytes == 0)
		return 0;
	ns = (double)bytes * 1e9 / rate + 0.5;
	return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

static uint64_t jitter(struct spri_fabric *fabric)
{
	uint64_t max = fabric->options.jitter_ns;
	uint32_t x[4];

	if (max == 0)
		return 0;
	spri_philox4(fabric->options.seed, fabric->n_jitter++, JITTER_STREAM, x);
	/* The upper half of a 64 × 64-bit product: even over 0 … max, without a division. */
	return (uint64_t)(((unsigned __int128)((uint64_t)x[1] << 32 | x[0]) *
			   ((unsigned __int128)max + 1)) >>
			  64);
}

static uint64_t extra(const struct loop_place *from, uint32_t to)
{
	for (const struct loop_delay *d = from->delays; d; d = d->next)
		if (d->to == to)
			return d->extra_ns;
	return 0;
}

struct loop_flight spri_loop_send(struct loop_conn *conn, size_t bytes)
{
	struct loop_port *port = spri_loop_port(conn);
	struct spri_fabric *fabric = port->fabric;
	struct loop_place *place = &fabric->places[port->place];
	struct loop_flight flight;
	uint64_t fly;

	flight.depart_ns = spri_max_u64(fabric->now_ns, place->egress_ns);
	flight.left_ns = spri_loop_add(flight.depart_ns, spri_loop_duration(fabric, bytes));
	place->egress_ns = flight.left_ns;
	fly = spri_loop_add(fabric->options.latency_ns, jitter(fabric));
	fly = spri_loop_add(fly, extra(place, conn->peer_place));
	flight.reach_ns = spri_max_u64(spri_loop_add(flight.left_ns, fly), conn->reach_ns);
	conn->reach_ns = flight.reach_ns;
	return flight;
}

/* The place whose link a node has to pass, and its bytes; NULL: none. */
static struct loop_place *destination(struct spri_fabric *fabric, struct loop_node *node,
				      size_t *bytes)
{
	struct loop_message *message;
	struct loop_conn *conn;

	*bytes = 0;
	switch ((enum loop_node_kind)node->kind) {
	case LOOP_MESSAGE:
		message = spri_container_of(node, struct loop_message, node);
		*bytes = message->bytes;
		return &fabric->places[message->from->peer_place];
	case LOOP_REQUEST:
		return &fabric->places[spri_container_of(node, struct loop_conn, setup)
					       ->peer_place];
	case LOOP_ACCEPT:
		conn = spri_container_of(node, struct loop_conn, setup);
		break;
	case LOOP_BYE:
		conn = spri_container_of(node, struct loop_conn, bye);
		break;
	case LOOP_LOST:
		conn = spri_container_of(node, struct loop_conn, lost);
		break;
	case LOOP_TIMER:
	default:
		return NULL;
	}
	return &fabric->places[spri_loop_port(conn)->place];
}

/* A node is due: it happens now, or when the receiving link has taken it. */
static void due(struct spri_fabric *fabric, struct loop_node *node)
{
	size_t bytes;
	struct loop_place *place = node->through ? NULL : destination(fabric, node, &bytes);
	uint64_t arrive;
	bool behind;

	if (place && !place->killed) {
		/* One that passed the link until now may still be in the queue: it comes first. */
		behind = place->ingress_ns == fabric->now_ns;
		arrive = spri_loop_add(place->ingress_ns, spri_loop_duration(fabric, bytes));
		arrive = spri_max_u64(arrive, fabric->now_ns);
		place->ingress_ns = arrive;
		if (arrive > fabric->now_ns || behind) {
			spri_loop_schedule(fabric, node, node->kind, arrive);
			node->through = true;
			return;
		}
	}
	spri_loop_happen(fabric, node);
}

/* ---- the fabric (transport.h) ---- */

int spri_fabric_create(const struct spri_fabric_options *options, struct spri_fabric **out)
{
	struct spri_fabric *fabric;

	if (options->n_places == 0 || !(options->bytes_per_s >= 0))
		return SPR_EARGUMENT;
	fabric = spri_zalloc(sizeof *fabric);
	if (!fabric)
		return -ENOMEM;
	fabric->options = *options;
	fabric->n_buckets = 64;
	fabric->places = spri_calloc(options->n_places, sizeof *fabric->places);
	if (!fabric->places)
		goto free_fabric;
	fabric->table = spri_calloc(fabric->n_buckets, sizeof(struct loop_conn *));
	if (!fabric->table)
		goto free_places;
	*out = fabric;
	return 0;

free_places:
	spri_free(fabric->places);
free_fabric:
	spri_free(fabric);
	return -ENOMEM;
}

void spri_fabric_destroy(struct spri_fabric *fabric)
{
	if (!fabric)
		return;
	for (uint32_t i = 0; i < fabric->options.n_places; i++) {
		struct loop_place *place = &fabric->places[i];

		if (place->port) /* left behind by a killed place, which cannot clean up */
			spri_loop_port_free(place->port);
		while (place->delays) {
			struct loop_delay *d = place->delays;

			place->delays = d->next;
			spri_free(d);
		}
	}
	while (fabric->free) {
		struct loop_message *message = fabric->free;

		fabric->free = message->next;
		spri_free(message);
	}
	spri_free(fabric->table);
	spri_free(fabric->queue);
	spri_free(fabric->places);
	spri_free(fabric);
}

uint64_t spri_fabric_now(const struct spri_fabric *fabric)
{
	return fabric->now_ns;
}

void spri_fabric_kill(struct spri_fabric *fabric, uint32_t place)
{
	assert(place < fabric->options.n_places);
	if (fabric->places[place].killed)
		return;
	fabric->places[place].killed = true;
	fabric->places[place].broken = -ENETDOWN;
	if (!fabric->places[place].port)
		return;
	for (struct loop_conn *conn = fabric->places[place].port->conns; conn; conn = conn->next)
		spri_loop_conn_killed(conn);
}

bool spri_fabric_killed(const struct spri_fabric *fabric, uint32_t place)
{
	assert(place < fabric->options.n_places);
	return fabric->places[place].killed;
}

void spri_fabric_delay(struct spri_fabric *fabric, uint32_t from, uint32_t to, uint64_t extra_ns)
{
	struct loop_place *place = &fabric->places[from];
	struct loop_delay *d = place->delays;

	assert(from < fabric->options.n_places && to < fabric->options.n_places);
	while (d && d->to != to)
		d = d->next;
	if (!d) {
		d = spri_zalloc(sizeof *d);
		/* a link that is not as slow as asked for would make a run lie: fail loudly */
		if (!d) {
			place->broken = -ENOMEM;
			return;
		}
		d->to = to;
		d->next = place->delays;
		place->delays = d;
	}
	d->extra_ns = extra_ns;
}

bool spri_fabric_advance(struct spri_fabric *fabric, uint64_t until_ns)
{
	struct loop_entry first;

	if (fabric->n_queue == 0 || fabric->queue[0].time_ns > until_ns) {
		if (until_ns != SPRI_NEVER)
			fabric->now_ns = spri_max_u64(fabric->now_ns, until_ns);
		return false;
	}
	first = fabric->queue[0];
	spri_loop_cancel(fabric, first.node);
	fabric->now_ns = first.time_ns;
	due(fabric, first.node);
	return true;
}

bool spri_fabric_ready(const struct spri_fabric *fabric, uint32_t place)
{
	const struct loop_port *port;

	assert(place < fabric->options.n_places);
	port = fabric->places[place].port;
	return port && (port->notes || fabric->places[place].broken ||
			atomic_load_explicit(&port->woken, memory_order_acquire));
}

void spri_fabric_on_ready(struct spri_fabric *fabric, spri_fabric_ready_fn fn, void *arg)
{
	fabric->on_ready = fn;
	fabric->on_ready_arg = arg;
}

void spri_fabric_on_wait(struct spri_fabric *fabric, spri_fabric_wait_fn fn, void *arg)
{
	fabric->wait = fn;
	fabric->wait_arg = arg;
}
