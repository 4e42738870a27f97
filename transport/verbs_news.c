/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What comes to a verbs port by descriptors, beside rdma_cm (verbs_connect.c): announced
 * completions, the devices' own events, and the timer, one descriptor that is set no later than the
 * earliest deadline, so that it also ends a wait() that another thread is in. Open connections are
 * looked at every tick_ns, so that no write has to ask for the time.
 *
 * Failures of a device, as it reports them:
 *   a queue pair in error   the connection ends; a refused write is told apart where the device
 *   does
 *   port down               the connections on it are lost if it is not up again in time
 *   device lost             all its connections are lost
 */
#include "verbs.h"

#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/log.h>

#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define EDGES 16

/* ---- completion channels ---- */

static void announced(struct verbs_device *d)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(d->channel, &cq, &context) == 0) {
		struct verbs_conn *c = context;

		ibv_ack_cq_events(cq, 1);
		if (c->armed)
			d->port->n_unarmed++;
		c->armed = false;
	}
}

/* ---- device events ---- */

static struct verbs_conn *conn_of_qp(struct verbs_port *p, const struct ibv_qp *qp)
{
	for (struct verbs_link *l = p->conns.next; l != &p->conns; l = l->next) {
		struct verbs_conn *c = spri_container_of(l, struct verbs_conn, all);

		if (c->qp == qp)
			return c;
	}
	return NULL;
}

static void qp_event(struct verbs_port *p, enum ibv_event_type kind, const struct ibv_qp *qp)
{
	struct verbs_conn *c = conn_of_qp(p, qp);

	if (!c)
		return;
	if (kind == IBV_EVENT_COMM_EST && c->cm) {
		(void)!rdma_notify(c->cm, kind); /* of no consequence: CONFIRM says it too */
	} else if (kind == IBV_EVENT_QP_FATAL || kind == IBV_EVENT_QP_REQ_ERR ||
		   kind == IBV_EVENT_QP_ACCESS_ERR) {
		c->refused = c->refused || kind != IBV_EVENT_QP_FATAL;
		c->broken = true;
	}
}

static void port_event(struct verbs_device *d, uint8_t port, bool up)
{
	uint64_t grace = spri_min_u64(d->port->timeout_ns, VERBS_DOWN_NS);
	uint64_t until = up ? SPRI_NEVER : spri_verbs_after(spri_now_ns(), grace);

	for (unsigned i = 0; i < d->port->n_places; i++)
		if (d->port->places[i].device == d && d->port->places[i].port == port)
			d->port->places[i].down_until_ns = until;
	spri_logf(SPR_LOG_WARN, "verbs: port %u of %s is %s", port, d->name, up ? "up" : "down");
	spri_verbs_arm(d->port, until);
}

static void device_gone(struct verbs_device *d)
{
	if (!d->gone)
		spri_logf(SPR_LOG_ERROR, "verbs: device %s failed", d->name);
	d->gone = true;
}

static void device_event(struct verbs_device *d, const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
		qp_event(d->port, e->event_type, e->element.qp);
		break;
	case IBV_EVENT_CQ_ERR:
		((struct verbs_conn *)e->element.cq->cq_context)->broken = true;
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
		port_event(d, (uint8_t)e->element.port_num, e->event_type == IBV_EVENT_PORT_ACTIVE);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		device_gone(d);
		break;
	default:
		spri_logf(SPR_LOG_DEBUG, "verbs: %s: %s", d->name,
			  ibv_event_type_str(e->event_type));
		break;
	}
	spri_verbs_ready(d->port);
}

static void device_events(struct verbs_device *d)
{
	struct ibv_async_event e;

	while (ibv_get_async_event(d->context, &e) == 0) {
		device_event(d, &e);
		ibv_ack_async_event(&e); /* until then the kernel keeps the queue pair */
	}
	if (errno == EIO || errno == ENODEV)
		device_gone(d);
}

/* Connections on a device that is gone are lost. */
static void lose_orphans(struct verbs_port *p)
{
	bool gone = false;

	for (unsigned i = 0; i < p->n_devices; i++)
		gone = gone || p->devices[i].gone;
	for (struct verbs_link *l = p->conns.next; gone && l != &p->conns; l = l->next) {
		struct verbs_conn *c = spri_container_of(l, struct verbs_conn, all);

		if (!c->place || !c->place->device->gone || c->state == SPRI_CONN_LOST)
			continue;
		if (c->state == SPRI_CONN_DONE || c->state == SPRI_CONN_REFUSING)
			c->broken = true;
		else
			spri_verbs_lose(c, -ENODEV, "verbs: device %s is gone",
					c->place->device->name);
	}
}

int spri_verbs_news(struct verbs_port *p)
{
	struct epoll_event events[EDGES];
	int n = epoll_wait(p->epoll_fd, events, EDGES, 0), r = 0;

	if (n < 0)
		return errno == EINTR ? 0 : spri_trace(-errno);
	for (int i = 0; i < n && r == 0; i++) {
		struct verbs_source *s = events[i].data.ptr;

		switch (s->kind) {
		case VERBS_CM:
			r = spri_verbs_cm_events(p);
			break;
		case VERBS_COMPLETIONS:
			announced(spri_container_of(s, struct verbs_device, completions));
			break;
		case VERBS_ASYNC:
			device_events(spri_container_of(s, struct verbs_device, async));
			break;
		default:
			p->timer_fired = true;
			break;
		}
	}
	if (n > 0)
		lose_orphans(p);
	return spri_trace(r);
}

/* ---- timer ---- */

uint64_t spri_verbs_after(uint64_t t, uint64_t add)
{
	return add < SPRI_NEVER - t ? t + add : SPRI_NEVER;
}

void spri_verbs_arm(struct verbs_port *p, uint64_t at_ns)
{
	struct itimerspec when = {.it_value = {0, 0}};

	if (at_ns >= p->armed_ns)
		return;
	p->armed_ns = at_ns;
	at_ns = at_ns ? at_ns : 1; /* 0 would disarm */
	when.it_value.tv_sec = (time_t)(at_ns / SPRI_NS_PER_S);
	when.it_value.tv_nsec = (long)(at_ns % SPRI_NS_PER_S);
	if (timerfd_settime(p->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) < 0)
		p->timer_fired =
			true; /* cannot happen with a valid time; poll() then looks itself */
}

void spri_verbs_expire(struct verbs_port *p)
{
	uint64_t now = spri_now_ns(), next, fired;

	p->timer_fired = false;
	/* Clears the descriptor; empty when nothing fired. */
	if (read(p->timer_fd, &fired, sizeof fired) < 0)
		fired = 0;
	p->armed_ns = SPRI_NEVER;
	next = spri_verbs_guests_expire(p, now);
	for (struct verbs_link *l = p->conns.next; l != &p->conns; l = l->next)
		next = spri_min_u64(
			next,
			spri_verbs_conn_expire(spri_container_of(l, struct verbs_conn, all), now));
	spri_verbs_arm(p, next);
}
