/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Queue pairs: made with one completion queue and a little memory of their own, readied with what
 * rdma_cm knows of the path and what the user set, stopped, destroyed.
 *
 *   create   buffers (whole pages, so that a child process loses nothing else), completion queue,
 *            queue pair, INIT, all receives posted
 *   ready    RTR and RTS. The path MTU is the smallest of the path's, ours and the peer's; both
 *            ends come to the same. iWARP: the kernel does this when it connects.
 *   stop     error state: the device ends what is under way
 *
 * The queue pair is not given to librdmacm, which would choose timeouts, retries and MTU itself.
 *
 * Failures: what was made is undone by spri_verbs_qp_destroy(). A device that allows less inline
 * data, gather entries or depth gets less.
 */
#include "verbs.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/log.h>

#include <errno.h>
#include <string.h>

#define LEAST_DEPTH (4 * VERBS_RESERVE)
#define RXE_LEAST_TIMEOUT 18 /* below, rxe repeats writes wrongly when a queue delays them */
#define RNR_TIMER 20	     /* 10.24 ms between tries; no receive queue should run dry */
#define RNR_TRIES 6

static int make_buffers(struct verbs_conn *c)
{
	c->buffer_bytes = (size_t)(c->receive.depth + c->send.depth) * SPRI_VERBS_MESSAGE_BYTES;
	c->buffers = spri_alloc_pages(c->buffer_bytes);
	if (!c->buffers)
		return spri_trace(-ENOMEM);
	c->mr = ibv_reg_mr(c->place->device->pd, c->buffers, c->buffer_bytes,
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		int r = spri_verbs_errno();
		struct spri_text text;

		spri_verbs_limits(r, c->place->device->name, c->buffer_bytes, &text);
		spri_logf(SPR_LOG_ERROR, "%s", text.s);
		return spri_trace(r);
	}
	return 0;
}

static int make_queues(struct verbs_conn *c)
{
	static const uint32_t inlines[] = {VERBS_INLINE, 64, SPRI_VERBS_MESSAGE_BYTES, 0};
	struct verbs_device *d = c->place->device;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	uint32_t gather = (uint32_t)spri_min_u64(SPRI_MAX_GATHER, (uint64_t)d->attr.max_sge);

	c->cq = ibv_create_cq(d->context, (int)(c->send.depth + c->receive.depth), c, d->channel,
			      0);
	if (!c->cq)
		return spri_trace(spri_verbs_errno());
	c->armed = false;
	d->port->n_unarmed++;
	for (size_t i = 0; i < spri_countof(inlines) && !c->qp; i++) {
		init.send_cq = init.recv_cq = c->cq;
		init.cap = (struct ibv_qp_cap){.max_send_wr = c->send.depth,
					       .max_recv_wr = c->receive.depth,
					       .max_send_sge = gather,
					       .max_recv_sge = 1,
					       .max_inline_data = inlines[i]};
		c->qp = ibv_create_qp(d->pd, &init);
	}
	if (!c->qp)
		return spri_trace(spri_verbs_errno());
	c->send.inline_bytes = init.cap.max_inline_data;
	c->send.max_gather = gather;
	return 0;
}

static int initialise(struct verbs_conn *c)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask = 0;

	if (rdma_init_qp_attr(c->cm, &attr, &mask) != 0)
		return spri_trace(spri_verbs_errno());
	if (mask & IBV_QP_ACCESS_FLAGS)
		attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return spri_trace(spri_verbs_value(ibv_modify_qp(c->qp, &attr, mask)));
}

int spri_verbs_qp_create(struct verbs_conn *c)
{
	const struct ibv_device_attr *limits = &c->place->device->attr;
	uint64_t most = spri_min_u64((uint64_t)limits->max_qp_wr, (uint64_t)limits->max_cqe / 2);
	int r;

	memset(&c->send, 0, sizeof c->send);
	memset(&c->receive, 0, sizeof c->receive);
	c->send.depth = (uint32_t)spri_min_u64(VERBS_SENDS, most);
	c->receive.depth = (uint32_t)spri_min_u64(VERBS_RECEIVES, most);
	if (most < LEAST_DEPTH)
		return spri_trace(-ENOSPC);
	c->receive.told = c->receive.depth - VERBS_RESERVE;
	c->receive.step = c->receive.told / 4;
	r = make_buffers(c);
	if (r == 0)
		r = make_queues(c);
	if (r == 0)
		r = initialise(c);
	if (r == 0)
		r = spri_verbs_replenish(c);
	return spri_trace(r);
}

/* What the user set, over what rdma_cm found. */
static void apply_settings(const struct verbs_conn *c, struct ibv_qp_attr *attr, int mask)
{
	const struct verbs_settings *set = &verbs_port_of(c)->settings;

	if (mask & IBV_QP_AV) {
		if (set->gid >= 0)
			attr->ah_attr.grh.sgid_index = (uint8_t)set->gid;
		if (set->traffic_class >= 0)
			attr->ah_attr.grh.traffic_class = (uint8_t)set->traffic_class;
		if (set->service_level >= 0)
			attr->ah_attr.sl = (uint8_t)set->service_level;
	}
	if (mask & IBV_QP_TIMEOUT)
		attr->timeout = set->timeout;
	if (mask & IBV_QP_TIMEOUT && c->place->device->soft)
		attr->timeout = (uint8_t)spri_max_u64(attr->timeout, RXE_LEAST_TIMEOUT);
	if (mask & IBV_QP_RETRY_CNT)
		attr->retry_cnt = set->retry;
	if (mask & IBV_QP_RNR_RETRY)
		attr->rnr_retry = RNR_TRIES;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		attr->min_rnr_timer = RNR_TIMER;
}

static unsigned mtu_bytes(unsigned mtu)
{
	return 128u << mtu;
}

int spri_verbs_qp_ready(struct verbs_conn *c, uint8_t peer_mtu)
{
	struct verbs_place *place = c->place;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	uint64_t mtu = spri_min_u64(place->mtu, peer_mtu);
	int mask = 0, r;

	if (rdma_init_qp_attr(c->cm, &attr, &mask) != 0)
		return spri_trace(spri_verbs_errno());
	if (mask & IBV_QP_PATH_MTU)
		attr.path_mtu = (enum ibv_mtu)spri_min_u64(attr.path_mtu, mtu);
	if (place->mtu != peer_mtu)
		spri_logf(SPR_LOG_WARN,
			  "verbs: %s: path MTU %u: %s port %u here has %u, the peer's port %u",
			  c->label, mtu_bytes((unsigned)mtu), place->device->name, place->port,
			  mtu_bytes(place->mtu), mtu_bytes(peer_mtu));
	apply_settings(c, &attr, mask);
	r = spri_verbs_value(ibv_modify_qp(c->qp, &attr, mask));
	if (r < 0)
		return spri_trace(r);
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTS;
	if (rdma_init_qp_attr(c->cm, &attr, &mask) != 0)
		return spri_trace(spri_verbs_errno());
	apply_settings(c, &attr, mask);
	return spri_trace(spri_verbs_value(ibv_modify_qp(c->qp, &attr, mask)));
}

void spri_verbs_qp_stop(struct verbs_conn *c)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int r = c->qp ? spri_verbs_value(ibv_modify_qp(c->qp, &attr, IBV_QP_STATE)) : 0;

	/* A queue pair that is in error already may refuse. */
	if (r < 0)
		spri_logf(SPR_LOG_DEBUG, "verbs: %s: stopping: %s", c->label, spr_strerror(r));
}

bool spri_verbs_qp_failed(const struct verbs_conn *c)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	return c->qp && ibv_query_qp(c->qp, &attr, IBV_QP_STATE, &init) == 0 &&
	       attr.qp_state == IBV_QPS_ERR;
}

void spri_verbs_qp_destroy(struct verbs_conn *c)
{
	int qp = c->qp ? ibv_destroy_qp(c->qp) : 0;
	int cq = c->cq ? ibv_destroy_cq(c->cq) : 0;
	int mr = c->mr ? ibv_dereg_mr(c->mr) : 0;

	if (qp || cq || mr)
		spri_logf(SPR_LOG_WARN, "verbs: %s: destroying its queues: %s", c->label,
			  spr_strerror(spri_verbs_value(qp   ? qp
							: cq ? cq
							     : mr)));
	if (c->cq && !c->armed)
		verbs_port_of(c)->n_unarmed--;
	if (c->buffers)
		spri_free_pages(c->buffers, c->buffer_bytes);
	c->qp = NULL;
	c->cq = NULL;
	c->mr = NULL;
	c->buffers = NULL;
}
