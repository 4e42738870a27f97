/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A tcp port: one listening socket on each chosen interface address, one epoll instance, one
 * timer, one eventfd for wake().
 *
 *   listen   interfaces (getifaddrs and the filter) -> sockets on ephemeral ports, random port id
 *   poll     edges -> newcomers -> their hellos -> ready connections once round -> deadlines
 *   wait     ppoll on the epoll descriptor and the eventfd; takes only the latter's count
 *
 * Deadlines come last in poll(), so that a caller who was away for long first sees what arrived
 * meanwhile.
 *
 * Failures: an address that cannot be listened on is left out as long as another can; epoll
 * failing makes poll() and wait() fail.
 */
#include "rows.h"
#include "tcp.h"
#include "tcp_interfaces.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/log.h>

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BACKLOG 1024
#define INTERFACES 1024 /* addresses that are looked at; the filter chooses among them */
#define KEEPALIVE_IDLE_S 5
#define KEEPALIVE_INTERVAL_S 1
#define KEEPALIVE_COUNT 5

/* ---- descriptors ---- */

int spri_tcp_watch(struct tcp_port *p, struct tcp_source *source, int op, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = source};

	if (epoll_ctl(p->epoll_fd, op, source->fd, &e) < 0)
		return spri_trace(-errno);
	return 0;
}

void spri_tcp_drop(struct tcp_port *p, struct tcp_source *source)
{
	if (source->fd < 0)
		return;
	/*
	 * Both are for the sake of a forked child that holds a copy: it must not keep the peer
	 * waiting.
	 */
	epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	if (source->kind == TCP_CONN || source->kind == TCP_GUEST)
		shutdown(source->fd, SHUT_RDWR);
	close(source->fd);
	source->fd = -1;
}

static void set_option(int fd, int level, int option, int value)
{
	if (setsockopt(fd, level, option, &value, sizeof value) < 0)
		spri_logf(SPR_LOG_DEBUG, "tcp: socket option %d/%d: %s", level, option,
			  spr_strerror(-errno));
}

void spri_tcp_tune(struct tcp_port *p, int fd)
{
	uint64_t ms = p->timeout_ns / SPRI_NS_PER_MS;

	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
		   (int)spri_min_u64(spri_max_u64(ms, 1), INT32_MAX));
}

/* ---- listen ---- */

static socklen_t socket_address(const struct spri_wire_address *a, struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof *out);
	if (a->family == 4) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(a->port);
		memcpy(&v4->sin_addr, a->host, 4);
		return sizeof *v4;
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(a->port);
	memcpy(&v6->sin6_addr, a->host, 16);
	return sizeof *v6;
}

/* Reads back which TCP port the kernel chose. */
static int chosen_port(int fd, uint16_t *out)
{
	struct sockaddr_storage at;
	socklen_t n = sizeof at;

	if (getsockname(fd, (struct sockaddr *)&at, &n) < 0)
		return spri_trace(-errno);
	*out = ntohs(at.ss_family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port
					     : ((struct sockaddr_in6 *)&at)->sin6_port);
	return 0;
}

/* Binds, listens and watches. The listener's socket is open; the caller closes it on failure. */
static int bind_listener(struct tcp_port *p, struct tcp_listener *l)
{
	struct sockaddr_storage at;
	socklen_t n = socket_address(&l->address, &at);
	int r;

	if (l->address.family == 6)
		set_option(l->source.fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (bind(l->source.fd, (struct sockaddr *)&at, n) < 0 || listen(l->source.fd, BACKLOG) < 0)
		return spri_trace(-errno);
	r = chosen_port(l->source.fd, &l->address.port);
	if (r < 0)
		return spri_trace(r);
	return spri_trace(spri_tcp_watch(p, &l->source, EPOLL_CTL_ADD, EPOLLIN));
}

static int open_listener(struct tcp_port *p, const struct spri_interface *row)
{
	struct tcp_listener *l = &p->listeners[p->n_listeners];
	int r;

	memset(l, 0, sizeof *l);
	l->source.kind = TCP_LISTENER;
	l->address.family = row->family == AF_INET ? 4 : 6;
	l->prefix = row->prefix;
	if (spri_interface_bytes(row, l->address.host) == 0)
		return spri_trace(-EINVAL);
	l->source.fd = socket(row->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->source.fd < 0)
		return spri_trace(-errno);
	r = bind_listener(p, l);
	if (r < 0) {
		spri_tcp_drop(p, &l->source);
		return spri_trace(r);
	}
	p->n_listeners++;
	return 0;
}

static int open_listeners(struct tcp_port *p, const char *filter, struct spri_text *text)
{
	struct spri_interface *rows = spri_calloc(INTERFACES, sizeof *rows);
	int n = rows ? spri_interfaces(filter, rows, INTERFACES, text) : -ENOMEM, r = n < 0 ? n : 0;

	for (int i = 0; i < n; i++) {
		if (!rows[i].used)
			continue;
		if (p->n_listeners == SPRI_BLOB_MOST) {
			spri_logf(SPR_LOG_WARN, "tcp: %s %s is left out: %d addresses are enough",
				  rows[i].name, rows[i].address, SPRI_BLOB_MOST);
			continue;
		}
		r = open_listener(p, &rows[i]);
		if (r < 0)
			spri_text_set(text, "tcp: listening on %s %s: %s", rows[i].name,
				      rows[i].address, spr_strerror(r));
		if (r < 0)
			spri_logf(SPR_LOG_INFO, "%s", text->s);
	}
	spri_free(rows);
	return p->n_listeners > 0 ? 0 : spri_trace(r);
}

/* The port's own descriptors and its id. */
static int open_port(struct tcp_port *p)
{
	int r;

	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll_fd < 0)
		return spri_trace(-errno);
	p->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (p->wake_fd < 0)
		return spri_trace(-errno);
	p->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (p->timer.fd < 0)
		return spri_trace(-errno);
	r = spri_tcp_watch(p, &p->timer, EPOLL_CTL_ADD, EPOLLIN);
	if (r < 0)
		return spri_trace(r);
	return spri_trace(spri_random_bytes(p->id, sizeof p->id));
}

int spri_tcp_listen(const struct spri_port_options *options, struct spri_port **out,
		    struct spri_text *text)
{
	struct tcp_port *p;
	int r;

	if (options->timeout_ns == 0) {
		spri_text_set(text, "tcp: a timeout of 0 leaves no time to connect");
		return spri_trace(SPR_EARGUMENT);
	}
	p = spri_zalloc(sizeof *p);
	if (!p) {
		spri_text_set(text, "tcp: %s", spr_strerror(-ENOMEM));
		return spri_trace(-ENOMEM);
	}
	p->base.ops = &spri_tcp;
	p->epoll_fd = p->wake_fd = -1;
	p->timer = (struct tcp_source){TCP_TIMER, -1};
	p->armed_ns = SPRI_NEVER;
	p->timeout_ns = options->timeout_ns;
	tcp_link_init(&p->conns);
	tcp_link_init(&p->ready);
	tcp_link_init(&p->guests);
	r = open_port(p);
	if (r < 0)
		spri_text_set(text, "tcp: opening a port: %s", spr_strerror(r));
	else
		r = open_listeners(p, options->interfaces, text);
	if (r < 0) {
		spri_tcp_fini(&p->base);
		return spri_trace(r);
	}
	*out = &p->base;
	return 0;
}

void spri_tcp_fini(struct spri_port *base)
{
	struct tcp_port *p = (struct tcp_port *)base;

	if (!p)
		return;
	assert(!tcp_linked(&p->conns) && p->n_regions == 0);
	while (tcp_linked(&p->guests))
		spri_tcp_guest_destroy(p, spri_container_of(p->guests.next, struct tcp_guest, all));
	for (unsigned i = 0; i < p->n_listeners; i++)
		spri_tcp_drop(p, &p->listeners[i].source);
	spri_tcp_drop(p, &p->timer);
	if (p->wake_fd >= 0)
		close(p->wake_fd);
	if (p->epoll_fd >= 0)
		close(p->epoll_fd);
	spri_free(p);
}

size_t spri_tcp_address(struct spri_port *base, uint8_t *blob)
{
	struct tcp_port *p = (struct tcp_port *)base;
	struct spri_blob b = {.n = p->n_listeners};

	memcpy(b.id, p->id, sizeof b.id);
	for (unsigned i = 0; i < p->n_listeners; i++)
		b.addresses[i] = p->listeners[i].address;
	return spri_blob_encode(&b, blob);
}

static void silence(struct tcp_port *p, uint32_t events)
{
	for (unsigned i = 0; i < p->n_listeners; i++)
		if (spri_tcp_watch(p, &p->listeners[i].source, EPOLL_CTL_MOD, events) < 0)
			spri_logf(SPR_LOG_WARN, "tcp: a listener cannot be switched");
}

void spri_tcp_pause(struct tcp_port *p, uint64_t until_ns)
{
	if (!p->accept_paused)
		silence(p, 0);
	p->accept_paused = true;
	p->resume_ns = until_ns;
	spri_tcp_arm(p, until_ns);
}

void spri_tcp_resume(struct tcp_port *p)
{
	if (p->accept_paused)
		silence(p, EPOLLIN);
	p->accept_paused = false;
}

/* ---- poll ---- */

/* Lets wait() know whether there is work that no edge will announce. */
static void settle(struct tcp_port *p)
{
	int busy = tcp_linked(&p->ready) || p->timer_fired;

	if (atomic_load_explicit(&p->busy, memory_order_relaxed) == busy)
		return;
	atomic_store(&p->busy, busy); /* before the load of sleepers: pairs with wait() */
	if (busy && atomic_load(&p->sleepers) > 0)
		spri_tcp_wake(&p->base);
}

void spri_tcp_ready(struct tcp_conn *c)
{
	struct tcp_port *p = tcp_port_of(c);

	if (!tcp_linked(&c->ready))
		tcp_append(&p->ready, &c->ready);
	if (!p->polling)
		settle(p);
}

static void stream_edge(struct tcp_conn *c, uint32_t events)
{
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->ending = true;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->readable = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		c->writable = true;
	spri_tcp_ready(c);
}

/* Takes edges from the kernel into flags. Frees nothing, so that all of a batch is valid. */
static int collect(struct tcp_port *p)
{
	struct epoll_event events[TCP_EDGES];
	int n = epoll_wait(p->epoll_fd, events, TCP_EDGES, 0);

	if (n < 0)
		return errno == EINTR ? 0 : spri_trace(-errno);
	for (int i = 0; i < n; i++) {
		struct tcp_source *s = events[i].data.ptr;

		switch (s->kind) {
		case TCP_LISTENER:
			spri_container_of(s, struct tcp_listener, source)->ready = true;
			p->accept_ready = true;
			break;
		case TCP_TIMER:
			p->timer_fired = true;
			break;
		case TCP_GUEST:
			spri_container_of(s, struct tcp_guest, source)->ready = true;
			p->guests_ready = true;
			break;
		case TCP_CONN:
			stream_edge(spri_container_of(s, struct tcp_conn, source),
				    events[i].events);
			break;
		}
	}
	return 0;
}

/* Once round the ready list; those that still have work go to its end. */
static void serve(struct tcp_port *p, struct tcp_events *out)
{
	const struct tcp_link *last = p->ready.prev;
	bool more = tcp_linked(&p->ready);

	while (more && (out->n < out->max || out->max == 0)) {
		struct tcp_link *l = p->ready.next;
		struct tcp_conn *c = spri_container_of(l, struct tcp_conn, ready);

		more = l != last;
		tcp_unlink(l);
		if (spri_tcp_serve(c, out))
			spri_tcp_ready(c);
		more = more && tcp_linked(&p->ready);
	}
}

int spri_tcp_poll(struct spri_port *base, struct spri_event *events, unsigned max)
{
	struct tcp_port *p = (struct tcp_port *)base;
	struct tcp_events out = {.list = events, .max = max};
	int r = collect(p);

	if (r < 0)
		return spri_trace(r);
	p->polling = true;
	if (p->accept_ready)
		spri_tcp_accept(p);
	if (p->guests_ready)
		spri_tcp_guests_serve(p);
	serve(p, &out);
	if (p->timer_fired)
		spri_tcp_expire(p);
	p->polling = false;
	settle(p);
	return (int)out.n;
}

/* ---- wait, wake ---- */

int spri_tcp_wait(struct spri_port *base, uint64_t deadline_ns)
{
	struct tcp_port *p = (struct tcp_port *)base;
	struct pollfd fds[2] = {{.fd = p->epoll_fd, .events = POLLIN},
				{.fd = p->wake_fd, .events = POLLIN}};
	uint64_t now = spri_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0, count;
	struct timespec t = {.tv_sec = (time_t)(left / SPRI_NS_PER_S),
			     .tv_nsec = (long)(left % SPRI_NS_PER_S)};
	int r = 0;

	atomic_fetch_add(&p->sleepers, 1); /* before the load of busy: pairs with settle() */
	if (!atomic_load(&p->busy)) {
		r = ppoll(fds, 2, deadline_ns == SPRI_NEVER ? NULL : &t, NULL);
		r = r < 0 && errno != EINTR ? -errno : 0;
	}
	atomic_fetch_sub(&p->sleepers, 1);
	if (fds[1].revents && read(p->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
		return spri_trace(-errno);
	return spri_trace(r);
}

void spri_tcp_wake(struct spri_port *base)
{
	struct tcp_port *p = (struct tcp_port *)base;
	uint64_t one = 1;

	/* Fails only when the count is at its end: then whoever waits is woken anyway. */
	if (write(p->wake_fd, &one, sizeof one) < 0)
		return;
}

uint64_t spri_tcp_now(struct spri_port *base)
{
	(void)base;
	return spri_now_ns();
}

void spri_tcp_stats(struct spri_port *base, struct spri_port_stats *out)
{
	*out = ((struct tcp_port *)base)->stats;
}
