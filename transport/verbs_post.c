/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What leaves on a verbs connection.
 *
 *   post    cuts the gather list into work requests (the device's gather entries, its longest
 *           message), the last of them with the immediate. iWARP: a SEND with the immediate
 *           behind it. One call of the provider for all.
 *   push    messages that are owed, and a flush when the last writes asked for no completion
 *
 * A write that is small enough is copied into its work request. VERBS_CONTROL work requests are
 * kept for push.
 *
 * Failures: a full queue, or a peer that has no receive for a notification, puts the post off
 * (SPRI_AGAIN). A destination that wraps around the end of the address space is kept from the
 * device: some would take it. What the provider does not take loses the connection.
 */
#include "verbs.h"

#include <internal/bits.h>
#include <internal/bytes.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* The work requests of one write, chained. */
struct batch {
	unsigned n, n_sge;
	struct ibv_send_wr wr[VERBS_SEGMENTS + 1]; /* one more: iWARP's SEND */
	struct ibv_sge sge[VERBS_SEGMENTS + SPRI_MAX_GATHER + 1];
	uint8_t message[SPRI_VERBS_MESSAGE_BYTES]; /* of the SEND, when it goes inline */
};

/* Asks for the completion that says that all up to `wr` are done. */
static void signal_wr(struct verbs_send *s, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	s->wr_signalled = (uint32_t)wr->wr_id;
	s->since_signal = 0;
	s->bytes_since = 0;
}

static void hand_over(struct verbs_conn *c, struct ibv_send_wr *first)
{
	struct ibv_send_wr *bad = NULL;
	int r = spri_verbs_value(ibv_post_send(c->qp, first, &bad));

	if (r < 0)
		spri_verbs_lose(c, r, "verbs: posting to %s: %s", c->place->device->name,
				spr_strerror(r));
}

/* ---- messages ---- */

/* Fills a SEND of a message; `inlined` is where its bytes are when the device copies them. */
static void fill_message(struct verbs_conn *c, enum spri_verbs_message_type type,
			 uint32_t immediate, struct ibv_send_wr *wr, struct ibv_sge *sge,
			 uint8_t *inlined)
{
	struct verbs_send *s = &c->send;
	struct spri_verbs_message m = {.type = (uint8_t)type, .immediate = immediate};
	uint32_t number = ++s->wr_posted;
	uint8_t *bytes = inlined;

	c->receive.told = c->receive.depth - VERBS_RESERVE + c->receive.reposted;
	m.credits = c->receive.told;
	s->owe &= ~(1u << SPRI_VERBS_CREDIT);
	if (s->inline_bytes < SPRI_VERBS_MESSAGE_BYTES)
		bytes = c->buffers +
			(size_t)(c->receive.depth + number % s->depth) * SPRI_VERBS_MESSAGE_BYTES;
	spri_verbs_message_encode(&m, bytes);
	*sge = (struct ibv_sge){(uintptr_t)bytes, SPRI_VERBS_MESSAGE_BYTES, c->mr->lkey};
	memset(wr, 0, sizeof *wr);
	wr->wr_id = number;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = bytes == inlined ? IBV_SEND_INLINE : 0;
	wr->sg_list = sge;
	wr->num_sge = 1;
	verbs_port_of(c)->stats.wire_bytes += SPRI_VERBS_MESSAGE_BYTES;
}

static void send_message(struct verbs_conn *c, enum spri_verbs_message_type type)
{
	uint8_t bytes[SPRI_VERBS_MESSAGE_BYTES];
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	fill_message(c, type, 0, &wr, &sge, bytes);
	signal_wr(&c->send, &wr);
	hand_over(c, &wr);
}

void spri_verbs_flush(struct verbs_conn *c)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

	wr.wr_id = ++c->send.wr_posted;
	signal_wr(&c->send, &wr);
	hand_over(c, &wr);
}

static bool has_room(const struct verbs_conn *c)
{
	return c->qp && verbs_out(c) < c->send.depth;
}

void spri_verbs_push(struct verbs_conn *c)
{
	static const uint8_t order[] = {SPRI_VERBS_CONFIRM, SPRI_VERBS_CREDIT, SPRI_VERBS_REFUSED,
					SPRI_VERBS_FAREWELL, SPRI_VERBS_GOODBYE};
	struct verbs_send *s = &c->send;

	for (size_t i = 0; s->owe && i < sizeof order; i++) {
		if (!(s->owe & 1u << order[i]) || !has_room(c) || c->state == SPRI_CONN_LOST)
			continue;
		s->owe &= ~(1u << order[i]);
		send_message(c, order[i]);
	}
	if (has_room(c) && verbs_unasked(c) && c->state != SPRI_CONN_LOST)
		spri_verbs_flush(c);
}

bool spri_verbs_unsent(const struct verbs_conn *c)
{
	return c->send.owe != 0 || verbs_out(c) > 0;
}

/* ---- writes ---- */

/* Checks a write and adds up its bytes. */
static int check(const struct verbs_conn *c, const struct spri_write *w, uint64_t *bytes)
{
	unsigned device = c->place->device->index;
	uint64_t sum = 0;

	if (w->n_gather > SPRI_MAX_GATHER)
		return SPR_EARGUMENT;
	for (unsigned i = 0; i < w->n_gather; i++) {
		const struct spri_gather *g = &w->gather[i];
		const struct spri_region *r = g->region;
		uint64_t offset;

		if (g->bytes == 0)
			continue;
		if (!r || r->port != c->base.port || !((const struct verbs_region *)r)->mr[device])
			return SPR_EARGUMENT;
		offset = (uint64_t)((uintptr_t)g->base - (uintptr_t)r->base);
		if ((uintptr_t)g->base < (uintptr_t)r->base || offset > r->bytes ||
		    g->bytes > r->bytes - offset)
			return SPR_EARGUMENT;
		if (__builtin_add_overflow(sum, g->bytes, &sum))
			return SPR_EARGUMENT;
	}
	*bytes = sum;
	return 0;
}

/* Begins another WRITE of the batch, to this destination. */
static struct ibv_send_wr *next_wr(struct verbs_conn *c, struct batch *b, uint64_t address,
				   uint32_t rkey)
{
	struct ibv_send_wr *wr = &b->wr[b->n++];

	memset(wr, 0, sizeof *wr);
	wr->wr_id = ++c->send.wr_posted;
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->sg_list = &b->sge[b->n_sge];
	wr->wr.rdma.remote_addr = address;
	wr->wr.rdma.rkey = rkey;
	if (b->n > 1)
		b->wr[b->n - 2].next = wr;
	return wr;
}

/* Cuts the gather list into WRITEs. The write needs no more than VERBS_SEGMENTS. */
static void cut_up(struct verbs_conn *c, const struct spri_write *w, struct batch *b)
{
	unsigned device = c->place->device->index;
	uint32_t rkey = spri_get_u32(w->key + 4 * c->peer_device);
	uint64_t address = w->address, in_wr = 0;
	struct ibv_send_wr *wr = next_wr(c, b, address, rkey);

	for (unsigned i = 0; i < w->n_gather; i++) {
		const struct spri_gather *g = &w->gather[i];
		const struct verbs_region *region = (const struct verbs_region *)g->region;
		uint64_t at = 0;

		while (at < g->bytes) {
			uint64_t take;

			if (in_wr == c->place->max_message ||
			    (unsigned)wr->num_sge == c->send.max_gather) {
				wr = next_wr(c, b, address, rkey);
				in_wr = 0;
			}
			take = spri_min_u64(g->bytes - at, c->place->max_message - in_wr);
			b->sge[b->n_sge++] = (struct ibv_sge){
				(uintptr_t)g->base + at, (uint32_t)take, region->mr[device]->lkey};
			wr->num_sge++;
			at += take;
			in_wr += take;
			address += take;
		}
	}
}

/* The processor copies what goes inline: not from the memory of a device. */
static bool may_copy(const struct verbs_conn *c, const struct spri_write *w, uint64_t bytes)
{
	if (bytes == 0 || bytes > c->send.inline_bytes)
		return false;
	for (unsigned i = 0; i < w->n_gather; i++)
		if (w->gather[i].bytes > 0 && w->gather[i].region->device)
			return false;
	return true;
}

/*
 * All work requests of the write, the last one with the notification. Returns true when nothing of
 * the source is needed any more.
 */
static bool fill(struct verbs_conn *c, const struct spri_write *w, uint64_t bytes, struct batch *b)
{
	bool copied = bytes == 0;
	bool trailing = w->notify && c->place->device->iwarp;
	struct ibv_send_wr *last;

	b->n = b->n_sge = 0;
	if (bytes > 0 || !trailing)
		cut_up(c, w, b);
	if (b->n == 1 && may_copy(c, w, bytes)) {
		b->wr[0].send_flags = IBV_SEND_INLINE;
		copied = true;
	}
	if (w->notify && !trailing) {
		last = &b->wr[b->n - 1];
		last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		last->imm_data = htonl(w->immediate);
	} else if (trailing) {
		last = &b->wr[b->n++];
		fill_message(c, SPRI_VERBS_NOTIFY, w->immediate, last, &b->sge[b->n_sge],
			     b->message);
		if (b->n > 1)
			b->wr[b->n - 2].next = last;
	}
	return copied;
}

/* Most work requests that the write may need; nearly always one, without a division. */
static uint64_t most_needed(const struct verbs_conn *c, const struct spri_write *w, uint64_t bytes)
{
	if (spri_likely(bytes <= c->place->max_message && w->n_gather <= c->send.max_gather))
		return 1 + w->notify;
	return bytes / c->place->max_message + 1 + SPRI_MAX_GATHER / c->send.max_gather + w->notify;
}

/* Can it be taken now? 0, SPRI_AGAIN, SPR_EARGUMENT. */
static int admit(struct verbs_conn *c, const struct spri_write *w, uint64_t bytes)
{
	struct verbs_send *s = &c->send;
	uint64_t n = most_needed(c, w, bytes);
	uint64_t most = spri_min_u64(VERBS_SEGMENTS, s->depth - VERBS_CONTROL);

	if (n > most)
		return SPR_EARGUMENT;
	if (s->posted - s->reported == VERBS_QUEUE || verbs_out(c) + n > s->depth - VERBS_CONTROL) {
		if (has_room(c) && verbs_out(c) > 0 && !verbs_signal_under_way(s))
			spri_verbs_flush(c); /* copies, none of which asked, are in the way */
		return SPRI_AGAIN;
	}
	if (w->notify && (int32_t)(s->allowed - s->used) <= 0) {
		s->starved = true;
		return SPRI_AGAIN;
	}
	return 0;
}

int spri_verbs_post(struct spri_conn *base, const struct spri_write *write)
{
	struct verbs_conn *c = (struct verbs_conn *)base;
	struct verbs_port *p = verbs_port_of(c);
	struct verbs_send *s = &c->send;
	struct ibv_send_wr *last;
	struct batch b;
	uint64_t bytes = 0, end;
	bool copied;
	int r;

	if (spri_unlikely(c->state != SPRI_CONN_UP)) {
		if (c->state == SPRI_CONN_LOST || c->state == SPRI_CONN_REFUSING)
			return spri_trace(c->status);
		return spri_trace(-ENOTCONN);
	}
	r = check(c, write, &bytes);
	if (r == 0)
		r = admit(c, write, bytes);
	if (r != 0)
		return spri_trace(r);
	p->stats.writes++;
	if (bytes > 0 && __builtin_add_overflow(write->address, bytes, &end)) {
		spri_verbs_refuse(c, "the address of a write wraps around");
		return 0;
	}
	copied = fill(c, write, bytes, &b);
	last = &b.wr[b.n - 1];
	s->since_signal++;
	s->bytes_since += bytes;
	if ((!copied && !verbs_signal_under_way(s)) || s->since_signal >= VERBS_SIGNAL_EVERY ||
	    s->bytes_since >= VERBS_SIGNAL_BYTES)
		signal_wr(s, last);
	s->queue[s->posted++ % VERBS_QUEUE] =
		(struct verbs_posted){write->cookie, copied ? 0 : bytes, s->wr_posted, copied};
	s->bytes_out += copied ? 0 : bytes;
	s->used += write->notify;
	p->stats.wire_bytes += bytes + base->port->ops->frame_bytes;
	hand_over(c, &b.wr[0]);
	if (copied && s->sent + 1 == s->posted && c->state == SPRI_CONN_UP) {
		s->sent++;
		spri_verbs_ready(p);
	}
	return 0;
}
