/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What arrives on a verbs connection: completions of both queues, in order.
 *
 *   a receive with an immediate   NOTIFY; every byte before it is in place
 *   a receive with a message      iWARP's NOTIFY, or one for the connection itself
 *   a send                        it and all before it are done: SENT
 *
 * Receives are posted again in batches; a message's at once, before its credits are used (verbs.h,
 * "Receives and credits").
 *
 * Failures: a completion with an error loses the connection with what it says. One that only says
 * that the queue was stopped does not know why: the end of the connection decides then.
 */
#include "verbs.h"

#include <internal/bits.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define RECEIVE_FLAG (1ull << 63) /* of wr_id; below it the receive's number */

static uint8_t *slot(const struct verbs_conn *c, uint32_t number)
{
	return c->buffers + (size_t)(number % c->receive.depth) * SPRI_VERBS_MESSAGE_BYTES;
}

int spri_verbs_replenish(struct verbs_conn *c)
{
	struct verbs_receive *in = &c->receive;
	struct ibv_recv_wr wr[VERBS_REPOST], *bad;
	struct ibv_sge sge[VERBS_REPOST];
	uint32_t left = in->depth - (in->posted - in->taken);

	while (left > 0) {
		uint32_t n = (uint32_t)spri_min_u64(left, VERBS_REPOST);
		int r;

		for (uint32_t i = 0; i < n; i++) {
			uint32_t number = in->posted++;

			sge[i] = (struct ibv_sge){(uintptr_t)slot(c, number),
						  SPRI_VERBS_MESSAGE_BYTES, c->mr->lkey};
			wr[i] = (struct ibv_recv_wr){.wr_id = RECEIVE_FLAG | number,
						     .next = i + 1 < n ? &wr[i + 1] : NULL,
						     .sg_list = &sge[i],
						     .num_sge = 1};
		}
		r = spri_verbs_value(ibv_post_recv(c->qp, wr, &bad));
		if (r < 0)
			return spri_trace(r);
		left -= n;
	}
	in->reposted = in->notified;
	if (in->depth - VERBS_RESERVE + in->reposted - in->told >= in->step && !c->peer_left)
		verbs_owe(c, SPRI_VERBS_CREDIT);
	return 0;
}

static void replenish(struct verbs_conn *c)
{
	int r = c->state == SPRI_CONN_LOST ? 0 : spri_verbs_replenish(c);

	if (r < 0)
		spri_verbs_lose(c, r, "verbs: posting receives to %s: %s", c->place->device->name,
				spr_strerror(r));
}

/* ---- completions ---- */

static void notified(struct verbs_conn *c, uint32_t immediate, struct verbs_events *out)
{
	if (c->state == SPRI_CONN_ANSWERED) {
		spri_verbs_lose(c, SPR_EPROTOCOL, "verbs: a write came before the handshake's end");
		return;
	}
	c->receive.notified++;
	verbs_emit(out, c, SPRI_EVENT_NOTIFY)->immediate = immediate;
}

static void on_receive(struct verbs_conn *c, const struct ibv_wc *wc, struct verbs_events *out)
{
	struct spri_verbs_message m = {.type = 0};
	uint8_t bytes[SPRI_VERBS_MESSAGE_BYTES];

	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		c->receive.taken++;
		notified(c, ntohl(wc->imm_data), out);
		return;
	}
	memcpy(bytes, slot(c, (uint32_t)wc->wr_id), sizeof bytes);
	c->receive.taken++;
	if (spri_verbs_message_decode(bytes, wc->byte_len, &m) < 0) {
		if (c->state != SPRI_CONN_LOST)
			spri_verbs_lose(c, SPR_EPROTOCOL,
					"verbs: the peer sent %u bytes that are no message",
					wc->byte_len);
		return;
	}
	if (m.type != SPRI_VERBS_NOTIFY)
		replenish(c);
	if (c->state != SPRI_CONN_LOST)
		spri_verbs_on_message(c, &m);
	if (m.type == SPRI_VERBS_NOTIFY)
		notified(c, m.immediate, out);
}

/* Work request `number` and all before it are done. */
static void on_sent(struct verbs_conn *c, uint32_t number)
{
	struct verbs_send *s = &c->send;

	if ((int32_t)(number - s->wr_done) <= 0)
		return;
	s->wr_done = number;
	while (s->sent != s->posted) {
		struct verbs_posted *post = &s->queue[s->sent % VERBS_QUEUE];

		if ((int32_t)(post->end - number) > 0 && !post->copied)
			break;
		s->bytes_out -= post->bytes;
		s->sent++;
	}
}

static void on_error(struct verbs_conn *c, const struct ibv_wc *wc)
{
	bool receive = wc->wr_id & RECEIVE_FLAG;

	if (c->state == SPRI_CONN_LOST)
		return;
	/* A peer that said goodbye and has all that was posted may be gone. */
	if (wc->status == IBV_WC_WR_FLUSH_ERR || c->state == SPRI_CONN_DONE ||
	    c->state == SPRI_CONN_REFUSING || (c->peer_left && c->send.sent == c->send.posted)) {
		c->broken = true;
		return;
	}
	spri_verbs_lose(c, spri_verbs_wc_status(wc->status), "verbs: %s on %s: %s (%s)",
			receive ? "receiving" : "a write", c->place->device->name,
			spri_verbs_wc_text(wc->status), ibv_wc_status_str(wc->status));
}

bool spri_verbs_take(struct verbs_conn *c, struct ibv_wc *wc, int n, struct verbs_events *out)
{
	int room = verbs_room(out);

	if (n == 0 && room > 0)
		n = ibv_poll_cq(c->cq, room, wc);
	while (n > 0) {
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				on_error(c, &wc[i]);
			else if (wc[i].wr_id & RECEIVE_FLAG)
				on_receive(c, &wc[i], out);
			else
				on_sent(c, (uint32_t)wc[i].wr_id);
			/* Of CONFIRM; before the writes behind it. */
			if (c->tell_connected) {
				memcpy(verbs_emit(out, c, SPRI_EVENT_CONNECTED)->private_data,
				       c->private_peers, SPRI_PRIVATE_BYTES);
				c->tell_connected = false;
			}
		}
		if (c->receive.depth - (c->receive.posted - c->receive.taken) >= VERBS_REPOST)
			replenish(c);
		if (n < room)
			return false;
		room = verbs_room(out);
		n = room > 0 ? ibv_poll_cq(c->cq, room, wc) : 0;
	}
	if (n < 0 && c->state != SPRI_CONN_LOST)
		spri_verbs_lose(c, -EIO, "verbs: the completion queue of %s is broken",
				c->place->device->name);
	return room == 0;
}
