/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Landing slots; see slots.h.
 *
 * Why no write meets a buffer that is still being read: buffer b of a lane is written by chunks
 * b, b + window, b + 2·window, …  Chunk s is posted only when s − credited < window, that is when
 * the partner has released chunk s − window, the last one that used the buffer; it releases only
 * after it has read. And the staging buffer of chunk s is filled only when s − completed <
 * window: the transport has reported SENT for chunk s − window. Counters are 32 bits, on the wire
 * 20; window ≤ 2^5, so differences are exact.
 *
 * Failures: a notification that does not fit the counters is a protocol error, and breaks the
 * communicator.
 */
#include <coll/slots.h>
#include <comm.h>
#include <string.h>
#include <timeline.h>

#define COOKIE_CONTROL 0xffu /* writes without a staging buffer */

static size_t buffer_offset(const struct spr_comm *comm, unsigned lane, uint32_t number)
{
	return ((size_t)lane * comm->window + number % comm->window) * comm->chunk_bytes;
}

int spri_slots_reserve(struct spri_link *link, unsigned lane, uint8_t **buffer)
{
	const struct spri_lane *l = &link->lanes[lane];

	if (l->sent - l->credited >= link->comm->window ||
	    l->sent - l->completed >= link->comm->window)
		return SPRI_AGAIN;
	*buffer = link->staging + buffer_offset(link->comm, lane, l->sent);
	return 0;
}

/* What a write of `bytes` costs on the wire, on the account of the operation that has the lane. */
static void count_bytes(struct spri_link *link, unsigned lane, size_t bytes)
{
	link->comm->lane_bytes[lane] += bytes + link->conn->port->ops->frame_bytes;
}

int spri_slots_send(struct spri_link *link, unsigned lane, uint32_t seq, size_t bytes,
		    const struct spri_gather *more, unsigned n_more)
{
	struct spr_comm *comm = link->comm;
	struct spri_lane *l = &link->lanes[lane];
	size_t offset = buffer_offset(comm, lane, l->sent);
	struct spri_write write = {
		.gather = {{.base = link->staging + offset,
			    .bytes = bytes,
			    .region = link->staging_region}},
		.n_gather = 1 + n_more,
		.address = link->remote.address + offset,
		.notify = true,
		.immediate = spri_imm(SPRI_IMM_CHUNK, lane, seq, l->sent),
		.cookie = lane,
	};
	int r;

	assert(n_more < SPRI_MAX_GATHER);
	for (unsigned i = 0; i < n_more; i++) {
		write.gather[1 + i] = more[i];
		bytes += more[i].bytes;
	}
	assert(bytes <= comm->chunk_bytes);
	memcpy(write.key, link->remote.key, sizeof write.key);
	r = link->conn->port->ops->post(link->conn, &write);
	if (r == 0) {
		l->sent++;
		count_bytes(link, lane, bytes);
	}
	return r;
}

bool spri_slots_sent(const struct spri_link *link, unsigned lane, uint32_t sent)
{
	return (int32_t)(link->lanes[lane].completed - sent) >= 0;
}

const uint8_t *spri_slots_peek(struct spri_link *link, unsigned lane)
{
	const struct spri_lane *l = &link->lanes[lane];

	if (l->arrived == l->consumed)
		return NULL;
	return link->landing + buffer_offset(link->comm, lane, l->consumed);
}

int spri_slots_notify(struct spri_link *link, uint32_t immediate)
{
	struct spri_write write = {
		.address = link->remote.address,
		.notify = true,
		.immediate = immediate,
		.cookie = COOKIE_CONTROL,
	};

	memcpy(write.key, link->remote.key, sizeof write.key);
	return link->conn->port->ops->post(link->conn, &write);
}

/*
 * Tells the partner how many buffers are free again. A lost link is reported by the transport's
 * event, not here.
 */
static void return_credits(struct spri_link *link, unsigned lane)
{
	struct spri_lane *l = &link->lanes[lane];
	int r;

	if (link->closed)
		return;
	r = spri_slots_notify(link, spri_imm(SPRI_IMM_CREDIT, lane, 0, l->consumed));
	if (r == 0) {
		l->returned = l->consumed;
		count_bytes(link, lane, 0);
	} else if (r == SPRI_AGAIN)
		link->comm->news_pending = true;
}

/* In batches of a quarter window: the partner always has more than half a window to go on with. */
static bool credits_due(const struct spri_link *link, const struct spri_lane *l)
{
	return l->consumed - l->returned >= link->comm->window / 4;
}

void spri_slots_release(struct spri_link *link, unsigned lane)
{
	struct spri_lane *l = &link->lanes[lane];

	assert(l->arrived != l->consumed);
	l->consumed++;
	if (credits_due(link, l))
		return_credits(link, lane);
}

void spri_slots_flush(struct spr_comm *comm)
{
	for (uint32_t i = 0; i < comm->n_links; i++)
		for (unsigned lane = 0; lane < SPRI_LANES; lane++)
			if (credits_due(&comm->links[i], &comm->links[i].lanes[lane]))
				return_credits(&comm->links[i], lane);
}

/* Whoever takes the chunk reads its header again, and reports what is wrong with it. */
static void trace_arrival(const struct spri_link *link, unsigned lane, uint32_t number)
{
	const struct spr_comm *comm = link->comm;
	struct spri_timeline_event event = {
		.kind = SPRI_TIMELINE_ARRIVE,
		.lane = (uint8_t)lane,
		.comm = comm->number,
		.rank = comm->rank,
		.start_ns = spri_context_now(comm->context),
	};
	struct spri_chunk chunk;
	struct spri_text ignored;

	if (spri_chunk_unpack(link->landing + buffer_offset(comm, lane, number), comm->chunk_bytes,
			      &chunk, &ignored) < 0)
		return;
	event.algo = chunk.algo;
	event.number = chunk.seq;
	event.end_ns = event.start_ns;
	event.chunk = spri_timeline_chunk(link->rank, number, &chunk);
	spri_timeline_add(comm->context->timeline, &event);
}

int spri_slots_arrived(struct spri_link *link, unsigned lane, uint32_t number)
{
	struct spri_lane *l;

	if (lane >= SPRI_LANES)
		return SPR_EPROTOCOL;
	l = &link->lanes[lane];
	if (number != (l->arrived & SPRI_IMM_NUMBER) ||
	    l->arrived - l->consumed >= link->comm->window)
		return SPR_EPROTOCOL;
	if (link->comm->context->timeline)
		trace_arrival(link, lane, l->arrived);
	l->arrived++;
	return 0;
}

int spri_slots_credited(struct spri_link *link, unsigned lane, uint32_t number)
{
	struct spri_lane *l;
	uint32_t more;

	if (lane >= SPRI_LANES)
		return SPR_EPROTOCOL;
	l = &link->lanes[lane];
	more = (number - l->credited) & SPRI_IMM_NUMBER;
	if (more > l->sent - l->credited)
		return SPR_EPROTOCOL;
	l->credited += more;
	return 0;
}

void spri_slots_completed(struct spri_link *link, uint64_t cookie)
{
	if (cookie < SPRI_LANES)
		link->lanes[cookie].completed++;
}
