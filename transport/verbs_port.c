/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A verbs port: one channel of rdma_cm, up to VERBS_DEVICES devices, one epoll instance for all
 * their descriptors, one timer, one eventfd for wake().
 *
 *   listen   settings -> descriptors -> devices and addresses (verbs_device.c)
 *   poll     news, if it is time to ask -> every connection once -> deadlines. When nothing was
 *   found
 *            and somebody wants to sleep: completion queues are armed, every connection once more.
 *   wait     ppoll on the epoll descriptor and the eventfd; takes only the latter's count
 *
 * Failures: a channel or epoll instance that breaks makes poll() and wait() fail.
 */
#include "rows.h"
#include "verbs.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/log.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TICK_MOST (1 * SPRI_NS_PER_S)
#define TICK_LEAST (10 * SPRI_NS_PER_MS)

int spri_verbs_watch(struct verbs_port *p, int fd, struct verbs_source *source)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = source};

	if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
		return spri_trace(-errno);
	return 0;
}

/* ---- listen ---- */

static void fork_init(void)
{
	int r = spri_verbs_value(ibv_fork_init());

	/* Newer kernels need no help; older ones may have had memory registered before. */
	if (r < 0)
		spri_logf(SPR_LOG_DEBUG, "verbs: ibv_fork_init: %s", spr_strerror(r));
}

/* The port's own descriptors and its id. */
static int open_port(struct verbs_port *p)
{
	int flags, r;

	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll_fd < 0)
		return spri_trace(-errno);
	p->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (p->wake_fd < 0)
		return spri_trace(-errno);
	p->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (p->timer_fd < 0)
		return spri_trace(-errno);
	p->cm = rdma_create_event_channel();
	if (!p->cm)
		return spri_trace(spri_verbs_errno());
	flags = fcntl(p->cm->fd, F_GETFL);
	if (flags < 0 || fcntl(p->cm->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return spri_trace(-errno);
	r = spri_verbs_watch(p, p->timer_fd, &p->timer_source);
	if (r == 0)
		r = spri_verbs_watch(p, p->cm->fd, &p->cm_source);
	if (r == 0)
		r = spri_random_bytes(p->id, sizeof p->id);
	return spri_trace(r);
}

static void set_up(struct verbs_port *p, const struct spri_port_options *options)
{
	p->base.ops = &spri_verbs;
	p->epoll_fd = p->wake_fd = p->timer_fd = -1;
	p->cm_source.kind = VERBS_CM;
	p->timer_source.kind = VERBS_TIMER;
	p->armed_ns = SPRI_NEVER;
	p->timeout_ns = options->timeout_ns;
	p->tick_ns = spri_max_u64(spri_min_u64(p->timeout_ns / 8, TICK_MOST), TICK_LEAST);
	verbs_link_init(&p->conns);
	verbs_link_init(&p->guests);
}

int spri_verbs_listen(const struct spri_port_options *options, struct spri_port **out,
		      struct spri_text *text)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct verbs_port *p;
	int r;

	if (options->timeout_ns == 0) {
		spri_text_set(text, "a timeout of 0 leaves no time to connect");
		return spri_trace(SPR_EARGUMENT);
	}
	p = spri_zalloc(sizeof *p);
	if (!p) {
		spri_text_set(text, "%s", spr_strerror(-ENOMEM));
		return spri_trace(-ENOMEM);
	}
	set_up(p, options);
	r = spri_verbs_settings(&p->settings, text);
	if (r == 0) {
		pthread_once(&once, fork_init);
		r = open_port(p);
		if (r < 0)
			spri_text_set(text, "opening a port: %s", spr_strerror(r));
		else
			r = spri_verbs_open_places(p, options, text);
	}
	if (r < 0) {
		spri_verbs_fini(&p->base);
		return spri_trace(r);
	}
	*out = &p->base;
	return 0;
}

void spri_verbs_fini(struct spri_port *base)
{
	struct verbs_port *p = (struct verbs_port *)base;

	if (!p)
		return;
	assert(!verbs_linked(&p->conns) && p->n_regions == 0);
	while (verbs_linked(&p->guests))
		spri_verbs_guest_destroy(
			p, spri_container_of(p->guests.next, struct verbs_guest, all));
	spri_verbs_shut(p);
	if (p->cm)
		rdma_destroy_event_channel(p->cm);
	if (p->timer_fd >= 0)
		close(p->timer_fd);
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	if (p->epoll_fd >= 0)
		close(p->epoll_fd);
	spri_free(p);
}

size_t spri_verbs_address(struct spri_port *base, uint8_t *blob)
{
	struct verbs_port *p = (struct verbs_port *)base;
	struct spri_verbs_blob b = {.n = p->n_places};

	memcpy(b.id, p->id, sizeof b.id);
	for (unsigned i = 0; i < p->n_places; i++)
		b.addresses[i] = p->places[p->order[i]].address;
	return spri_verbs_blob_encode(&b, blob);
}

/* ---- poll ---- */

/* Lets wait() know whether there is something to do that no descriptor will announce. */
static void settle(struct verbs_port *p)
{
	int busy = p->pending || p->timer_fired || p->n_unarmed > 0;

	if (atomic_load_explicit(&p->busy, memory_order_relaxed) != busy)
		atomic_store(&p->busy, busy); /* before the load of sleepers: pairs with wait() */
	if (busy && atomic_load(&p->sleepers) > 0)
		spri_verbs_wake(&p->base);
}

void spri_verbs_ready(struct verbs_port *p)
{
	p->pending = true;
	if (!p->polling)
		settle(p);
}

/* Is something under way of which the kernel will have the news? */
static bool is_attentive(const struct verbs_conn *c)
{
	return c->state != SPRI_CONN_UP && c->state != SPRI_CONN_NEW &&
	       c->state != SPRI_CONN_DONE && c->state != SPRI_CONN_LOST;
}

/*
 * Every connection once, beginning behind the one at which the last round ended for want of room.
 */
static void serve(struct verbs_port *p, struct verbs_events *out)
{
	struct verbs_link *l = p->conns.next;
	bool pending = false, attentive = p->n_guests > 0;
	struct ibv_wc wc[VERBS_BATCH];

	p->pending = false;
	for (; l != &p->conns && (out->n < out->max || out->max == 0); l = l->next) {
		struct verbs_conn *c = spri_container_of(l, struct verbs_conn, all);
		int n = 0;

		if (spri_likely(verbs_at_rest(c) && out->max > 0)) {
			n = ibv_poll_cq(c->cq, verbs_room(out), wc);
			if (n == 0) /* as most looks at most connections end */
				continue;
		}
		pending |= spri_verbs_serve(c, wc, n, out);
		attentive |= is_attentive(c);
	}
	if (l != &p->conns) { /* moves the head of the list before the first that was not served */
		verbs_unlink(&p->conns);
		verbs_append(l, &p->conns);
		pending = attentive = true;
	}
	p->pending |= pending;
	p->attentive = attentive;
}

/* Every completion queue will announce its next completion. */
static void arm_all(struct verbs_port *p)
{
	for (struct verbs_link *l = p->conns.next; l != &p->conns; l = l->next) {
		struct verbs_conn *c = spri_container_of(l, struct verbs_conn, all);

		if (!c->cq || c->armed || spri_verbs_value(ibv_req_notify_cq(c->cq, 0)) < 0)
			continue;
		c->armed = true;
		p->n_unarmed--;
	}
}

int spri_verbs_poll(struct spri_port *base, struct spri_event *events, unsigned max)
{
	struct verbs_port *p = (struct verbs_port *)base;
	struct verbs_events out = {.list = events, .max = max};
	int r = 0;

	p->polling = true;
	if (p->attentive || ++p->lazy >= VERBS_LAZY || atomic_load(&p->news)) {
		p->lazy = 0;
		atomic_store(&p->news, 0);
		r = spri_verbs_news(p);
	}
	serve(p, &out);
	if (out.n == 0 && (atomic_load(&p->drowsy) || atomic_load(&p->sleepers) > 0)) {
		atomic_store(&p->drowsy, 0);
		arm_all(p);
		serve(p, &out); /* what came before the arming is not announced */
	}
	if (p->timer_fired)
		spri_verbs_expire(p);
	p->polling = false;
	settle(p);
	return r < 0 ? spri_trace(r) : (int)out.n;
}

/* ---- wait, wake ---- */

int spri_verbs_wait(struct spri_port *base, uint64_t deadline_ns)
{
	struct verbs_port *p = (struct verbs_port *)base;
	struct pollfd fds[2] = {{.fd = p->epoll_fd, .events = POLLIN},
				{.fd = p->wake_fd, .events = POLLIN}};
	uint64_t now = spri_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0, count;
	struct timespec t = {.tv_sec = (time_t)(left / SPRI_NS_PER_S),
			     .tv_nsec = (long)(left % SPRI_NS_PER_S)};
	int r = 0;

	atomic_fetch_add(&p->sleepers, 1); /* before the load of busy: pairs with settle() */
	if (atomic_load(&p->busy)) {
		atomic_store(&p->drowsy, 1);
	} else {
		r = ppoll(fds, 2, deadline_ns == SPRI_NEVER ? NULL : &t, NULL);
		r = r < 0 && errno != EINTR ? -errno : 0;
	}
	atomic_fetch_sub(&p->sleepers, 1);
	if (fds[0].revents)
		atomic_store(&p->news, 1);
	if (fds[1].revents && read(p->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
		return spri_trace(-errno);
	return spri_trace(r);
}

void spri_verbs_wake(struct spri_port *base)
{
	struct verbs_port *p = (struct verbs_port *)base;
	uint64_t one = 1;

	/* Fails only when the count is at its end: then whoever waits is woken anyway. */
	if (write(p->wake_fd, &one, sizeof one) < 0)
		return;
}

uint64_t spri_verbs_now(struct spri_port *base)
{
	(void)base;
	return spri_now_ns();
}

void spri_verbs_stats(struct spri_port *base, struct spri_port_stats *out)
{
	*out = ((struct verbs_port *)base)->stats;
}
