/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What rdma_cm reports, and the passive handshake.
 *
 *   1. A request comes in at one of our addresses; its hello carries a token.
 *   2. A connection that awaits this token takes it over; else the request waits as a guest for the
 *      connect() that will.
 *   3. Queue pair, receives, all states, then accept with our hello. AWAITING becomes ANSWERED, and
 *      UP when the peer's CONFIRM arrives.
 *
 * Each event is copied and acknowledged before it is acted upon: destroying an id waits for that.
 *
 * Failures: a request that is none of sparring's, of another version, or of a token that nobody
 * awaits in time is turned down with a reason. A peer that takes its request back leaves the
 * connection awaiting: it may come by another address.
 */
#include "verbs.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/log.h>

#include <errno.h>
#include <string.h>

#define RNR_TRIES 6
#define REFUSED_BY_NOBODY 8 /* status of a reject by the kernel: nobody listens there */

/* An event, after it was acknowledged. */
struct news {
	enum rdma_cm_event_type kind;
	int status;
	struct rdma_cm_id *id;
	size_t bytes;
	uint8_t private_data[256];
};

void spri_verbs_hello(const struct verbs_conn *c, uint8_t out[SPRI_VERBS_HELLO_BYTES])
{
	struct spri_verbs_hello h = {.version = SPRI_VERBS_VERSION,
				     .device = (uint8_t)c->place->device->index,
				     .mtu = c->place->mtu,
				     .credits = (uint16_t)c->receive.told,
				     .token = c->token};

	memcpy(h.private_data, c->private_mine, sizeof h.private_data);
	spri_verbs_hello_encode(&h, out);
}

/* ---- requests ---- */

static void turn_down(struct rdma_cm_id *id, enum spri_verbs_reject reason)
{
	uint8_t bytes[SPRI_VERBS_REJECT_BYTES];

	spri_verbs_reject_encode(reason, bytes);
	(void)!rdma_reject(id, bytes, sizeof bytes); /* fails when the peer gave up first */
	rdma_destroy_id(id);
}

void spri_verbs_guest_destroy(struct verbs_port *p, struct verbs_guest *g)
{
	if (g->cm)
		rdma_destroy_id(g->cm);
	verbs_unlink(&g->all);
	p->n_guests--;
	spri_free(g);
}

uint64_t spri_verbs_guests_expire(struct verbs_port *p, uint64_t now)
{
	while (verbs_linked(&p->guests)) {
		struct verbs_guest *g = spri_container_of(p->guests.next, struct verbs_guest, all);

		if (g->deadline_ns > now)
			return g->deadline_ns; /* they came in this order */
		turn_down(g->cm, SPRI_VERBS_REJECT_NOT_AWAITED);
		g->cm = NULL;
		spri_verbs_guest_destroy(p, g);
	}
	return SPRI_NEVER;
}

static int answer(struct verbs_conn *c, uint8_t peer_mtu)
{
	uint8_t hello[SPRI_VERBS_HELLO_BYTES];
	struct rdma_conn_param param = {.private_data = hello,
					.private_data_len = sizeof hello,
					.responder_resources = 1,
					.initiator_depth = 1,
					.flow_control = 1,
					.rnr_retry_count = RNR_TRIES};
	int r = spri_verbs_qp_create(c);

	if (r == 0 && !c->place->device->iwarp)
		r = spri_verbs_qp_ready(c, peer_mtu);
	if (r < 0)
		return spri_trace(r);
	spri_verbs_hello(c, hello);
	param.qp_num = c->qp->qp_num;
	if (rdma_accept(c->cm, &param) != 0)
		return spri_trace(spri_verbs_errno());
	return 0;
}

/* Takes the request over and answers it; the guest is freed. */
static void adopt(struct verbs_conn *c, struct verbs_guest *g)
{
	struct spri_verbs_hello h = g->hello;
	int r;

	assert(c->state == SPRI_CONN_AWAITING && !c->cm);
	c->cm = g->cm;
	c->cm->context = &c->source;
	c->place = g->place;
	g->cm = NULL;
	spri_verbs_guest_destroy(verbs_port_of(c), g);
	memcpy(c->private_peers, h.private_data, sizeof c->private_peers);
	c->peer_device = h.device;
	r = answer(c, h.mtu);
	if (r < 0) {
		struct rdma_cm_id *id = c->cm;

		spri_logf(SPR_LOG_WARN, "verbs: %s: accepting: %s", c->label, spr_strerror(r));
		c->cm = NULL;
		spri_verbs_hang_up(c);
		turn_down(id, SPRI_VERBS_REJECT_RESOURCES);
		return;
	}
	c->send.allowed = h.credits;
	c->joined = true;
	spri_conn_move(&c->state, SPRI_CONN_ANSWERED, c->label);
}

void spri_verbs_match(struct verbs_conn *c)
{
	struct verbs_port *p = verbs_port_of(c);

	for (struct verbs_link *l = p->guests.next; l != &p->guests; l = l->next) {
		struct verbs_guest *g = spri_container_of(l, struct verbs_guest, all);

		if (g->hello.token == c->token && !g->place->device->gone) {
			adopt(c, g);
			return;
		}
	}
}

static struct verbs_conn *awaiting(struct verbs_port *p, uint64_t token)
{
	for (struct verbs_link *l = p->conns.next; l != &p->conns; l = l->next) {
		struct verbs_conn *c = spri_container_of(l, struct verbs_conn, all);

		if (c->state == SPRI_CONN_AWAITING && c->token == token)
			return c;
	}
	return NULL;
}

static void on_request(struct verbs_port *p, const struct news *news)
{
	struct verbs_place *place = spri_verbs_place(p, news->id);
	struct spri_verbs_hello h;
	struct verbs_guest *g;
	struct verbs_conn *c;
	int r = spri_verbs_hello_decode(news->private_data, news->bytes, &h);

	if (r < 0 || h.version != SPRI_VERBS_VERSION || h.features != 0 || !place ||
	    p->n_guests == VERBS_PARKED) {
		turn_down(news->id, r < 0 || h.version != SPRI_VERBS_VERSION
					    ? SPRI_VERBS_REJECT_OTHER_VERSION
				    : h.features ? SPRI_VERBS_REJECT_FEATURE
				    : place	 ? SPRI_VERBS_REJECT_BUSY
						 : SPRI_VERBS_REJECT_RESOURCES);
		return;
	}
	g = spri_zalloc(sizeof *g);
	if (!g) {
		turn_down(news->id, SPRI_VERBS_REJECT_RESOURCES);
		return;
	}
	g->source.kind = VERBS_GUEST;
	g->cm = news->id;
	g->cm->context = &g->source;
	g->place = place;
	g->hello = h;
	g->deadline_ns = spri_verbs_after(spri_now_ns(), p->timeout_ns);
	verbs_link_init(&g->all);
	verbs_append(&p->guests, &g->all);
	p->n_guests++;
	c = awaiting(p, h.token);
	if (c)
		adopt(c, g);
	else
		spri_verbs_arm(p, g->deadline_ns);
}

/* ---- events ---- */

static void device_gone(struct verbs_port *p, const struct rdma_cm_id *id)
{
	struct verbs_place *place = spri_verbs_place(p, id);

	if (place) {
		place->device->gone = true;
		spri_logf(SPR_LOG_ERROR, "verbs: device %s is gone", place->device->name);
	}
}

/* The other end, or the way there, said no. */
static void on_no(struct verbs_conn *c, const struct news *news)
{
	unsigned version = 0, reason = 0;
	int status = news->status < 0 ? news->status : -ECONNREFUSED;

	if (c->state == SPRI_CONN_ANSWERED) {
		c->broken = true; /* whoever asked has gone */
		return;
	}
	if (c->state != SPRI_CONN_DIALING && c->state != SPRI_CONN_ASKING)
		return;
	if (news->kind == RDMA_CM_EVENT_REJECTED)
		reason = spri_verbs_reject_decode(news->private_data, news->bytes, &version);
	if (reason == SPRI_VERBS_REJECT_OTHER_VERSION)
		spri_verbs_dial_failed(c, VERBS_STRIKES, SPR_EVERSION,
				       "peer speaks protocol version %u, this side %u", version,
				       SPRI_VERBS_VERSION);
	else if (reason)
		spri_verbs_dial_failed(c, reason == SPRI_VERBS_REJECT_FEATURE ? VERBS_STRIKES : 1,
				       reason == SPRI_VERBS_REJECT_FEATURE	 ? SPR_EVERSION
				       : reason == SPRI_VERBS_REJECT_NOT_AWAITED ? SPR_ETIMEOUT
										 : -ECONNREFUSED,
				       "%s", spri_verbs_reject_text(reason));
	else if (news->kind == RDMA_CM_EVENT_REJECTED)
		spri_verbs_dial_failed(c,
				       news->status == REFUSED_BY_NOBODY ||
						       news->status == -ECONNREFUSED
					       ? VERBS_STRIKES
					       : 1,
				       -ECONNREFUSED, "refused (reason %d)", news->status);
	else if (news->kind == RDMA_CM_EVENT_UNREACHABLE && status == -ETIMEDOUT)
		spri_verbs_dial_failed(c, 0, SPR_ETIMEOUT, "no answer");
	else
		spri_verbs_dial_failed(c, c->state == SPRI_CONN_DIALING ? VERBS_STRIKES : 1, status,
				       "%s: %s", rdma_event_str(news->kind), spr_strerror(status));
}

static void conn_event(struct verbs_conn *c, const struct news *news)
{
	switch (news->kind) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		spri_verbs_dial_resolved(c, false);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		spri_verbs_dial_resolved(c, true);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		spri_verbs_dial_accepted(c, news->private_data, news->bytes);
		break;
	case RDMA_CM_EVENT_ESTABLISHED: /* iWARP's active end has no CONNECT_RESPONSE */
		spri_verbs_dial_accepted(c, news->private_data, news->bytes);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		on_no(c, news);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (c->state == SPRI_CONN_ASKING)
			on_no(c, news);
		else
			c->cut = true;
		break;
	default:
		break;
	}
	spri_verbs_ready(verbs_port_of(c));
}

static void on_news(struct verbs_port *p, const struct news *news)
{
	struct verbs_source *source = news->id->context;

	if (news->kind == RDMA_CM_EVENT_DEVICE_REMOVAL)
		device_gone(p, news->id);
	else if (source->kind == VERBS_LISTENER && news->kind == RDMA_CM_EVENT_CONNECT_REQUEST)
		on_request(p, news);
	else if (source->kind == VERBS_GUEST)
		spri_verbs_guest_destroy(p, spri_container_of(source, struct verbs_guest, source));
	else if (source->kind == VERBS_CONN)
		conn_event(spri_container_of(source, struct verbs_conn, source), news);
}

int spri_verbs_cm_events(struct verbs_port *p)
{
	struct rdma_cm_event *e;
	struct news news;

	while (rdma_get_cm_event(p->cm, &e) == 0) {
		news.kind = e->event;
		news.status = e->status;
		news.id = e->id;
		news.bytes = e->param.conn.private_data ? e->param.conn.private_data_len : 0;
		news.bytes = spri_min_u64(news.bytes, sizeof news.private_data);
		if (news.bytes)
			memcpy(news.private_data, e->param.conn.private_data, news.bytes);
		rdma_ack_cm_event(e);
		on_news(p, &news);
	}
	return errno == EAGAIN || errno == EINTR ? 0 : spri_trace(spri_verbs_errno());
}
