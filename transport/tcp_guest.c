/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Incoming streams until their hello has found its connection.
 *
 *   1. accept: the stream becomes a guest, with little time to say hello.
 *   2. The hello names this port, a version that we speak, and the sender and id of a
 *      connection. If that connection awaits it, it takes the stream over (tcp_conn.c).
 *   3. Else the hello is parked, and the peer told so, until connect() asks for it.
 *
 * Failures: garbage, silence and hangers-up are dropped without an answer; wrong port, version and
 * features get an answer that says so. Newcomers in number: at most TCP_HALF_OPEN without
 * a hello; beyond that one that was silent for a second makes way, or the others wait in
 * the kernel's backlog. At most TCP_PARKED are parked. Without descriptors, accepting pauses.
 */
#include "tcp.h"

#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <internal/clock.h>
#include <internal/log.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SILENCE_NS SPRI_NS_PER_S	   /* after it, a guest makes way for newcomers */
#define SHORTAGE_NS (100 * SPRI_NS_PER_MS) /* pause when the kernel has no descriptors or memory */

void spri_tcp_guest_destroy(struct tcp_port *p, struct tcp_guest *g)
{
	if (g->parked)
		p->n_parked--;
	else
		p->n_half_open--;
	tcp_unlink(&g->all);
	spri_tcp_drop(p, &g->source);
	spri_free(g);
	spri_tcp_resume(p);
}

static void answer(struct tcp_port *p, const struct tcp_guest *g, enum spri_answer_status status)
{
	struct spri_answer a = {.version = SPRI_WIRE_VERSION, .status = status};
	uint8_t bytes[SPRI_ANSWER_BYTES];

	spri_answer_encode(&a, bytes);
	if (spri_tcp_send_now(p, g->source.fd, bytes, sizeof bytes) < 0)
		spri_logf(SPR_LOG_DEBUG, "tcp: an answer could not be sent");
}

/* The passive connection that this hello is for, or NULL. */
static struct tcp_conn *find_conn(struct tcp_port *p, const struct spri_hello *h)
{
	for (struct tcp_link *l = p->conns.next; l != &p->conns; l = l->next) {
		struct tcp_conn *c = spri_container_of(l, struct tcp_conn, all);

		if ((c->state == SPRI_CONN_AWAITING || c->state == SPRI_CONN_ANSWERED) &&
		    c->id == h->id && memcmp(c->peer, h->from, sizeof c->peer) == 0)
			return c;
	}
	return NULL;
}

/* The parked guest with this sender and id, or NULL. */
static struct tcp_guest *find_parked(struct tcp_port *p, uint64_t id, const uint8_t *from)
{
	for (struct tcp_link *l = p->guests.next; l != &p->guests; l = l->next) {
		struct tcp_guest *g = spri_container_of(l, struct tcp_guest, all);

		if (g->parked && g->hello.id == id &&
		    memcmp(g->hello.from, from, SPRI_PORT_ID_BYTES) == 0)
			return g;
	}
	return NULL;
}

void spri_tcp_guest_match(struct tcp_conn *c)
{
	struct tcp_guest *g;

	while (c->state == SPRI_CONN_AWAITING) {
		g = find_parked(tcp_port_of(c), c->id, c->peer);
		if (!g)
			return;
		spri_tcp_adopt(c, g);
	}
}

static void park(struct tcp_port *p, struct tcp_guest *g)
{
	if (p->n_parked == TCP_PARKED) {
		answer(p, g, SPRI_ANSWER_BUSY);
		spri_tcp_guest_destroy(p, g);
		return;
	}
	g->parked = true;
	p->n_half_open--;
	p->n_parked++;
	g->deadline_ns = spri_tcp_after(spri_now_ns(), p->timeout_ns);
	spri_tcp_arm(p, g->deadline_ns);
	answer(p, g, SPRI_ANSWER_PARKED);
	spri_tcp_resume(p);
}

/* Versions and features. Returns true when the two sides can talk. */
static bool agree(struct tcp_port *p, struct tcp_guest *g, struct tcp_conn *c)
{
	const struct spri_hello *h = &g->hello;

	if (h->version != SPRI_WIRE_VERSION) {
		answer(p, g, SPRI_ANSWER_OTHER_VERSION);
		if (c)
			spri_tcp_lose(c, SPR_EVERSION,
				      "peer speaks protocol version %u, this side %u", h->version,
				      SPRI_WIRE_VERSION);
		return false;
	}
	if (h->features >> 32) {
		answer(p, g, SPRI_ANSWER_FEATURE);
		if (c)
			spri_tcp_lose(c, SPR_EVERSION,
				      "peer needs protocol features 0x%llx, unknown to this side",
				      (unsigned long long)(h->features >> 32 << 32));
		return false;
	}
	return true;
}

/* A hello is whole in g->hello. */
static void hello(struct tcp_port *p, struct tcp_guest *g)
{
	struct tcp_guest *older;
	struct tcp_conn *c;

	if (memcmp(g->hello.to, p->id, sizeof p->id) != 0) {
		answer(p, g, SPRI_ANSWER_WRONG_PORT);
		spri_tcp_guest_destroy(p, g);
		return;
	}
	c = find_conn(p, &g->hello);
	if (!agree(p, g, c && c->state == SPRI_CONN_AWAITING ? c : NULL)) {
		spri_tcp_guest_destroy(p, g);
		return;
	}
	/*
	 * The sender tries one address after the other: a newer stream means that it gave up the
	 * older.
	 */
	older = find_parked(p, g->hello.id, g->hello.from);
	if (older)
		spri_tcp_guest_destroy(p, older);
	if (c && c->state == SPRI_CONN_ANSWERED) {
		spri_tcp_hang_up(c);
		spri_conn_move(&c->state, SPRI_CONN_AWAITING, c->label);
	}
	if (c)
		spri_tcp_adopt(c, g);
	else
		park(p, g);
}

/* The most bytes that the hello may still have: nothing that follows it is taken. */
static size_t hello_left(const struct tcp_guest *g)
{
	size_t length;

	if (g->got < SPRI_HELLO_FEATURES)
		return SPRI_HELLO_BYTES - g->got;
	length = spri_get_u16(g->bytes + SPRI_HELLO_LENGTH);
	return length > g->got ? length - g->got : 0;
}

/* Reads what is there. The guest may be gone afterwards. */
static void guest_read(struct tcp_port *p, struct tcp_guest *g)
{
	int r = SPRI_AGAIN;
	uint8_t surplus;
	ssize_t n;

	while (r == SPRI_AGAIN) {
		if (g->parked)
			n = recv(g->source.fd, &surplus, 1, 0);
		else
			n = recv(g->source.fd, g->bytes + g->got, hello_left(g), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0 || g->parked)
			break;
		g->got += (size_t)n;
		r = spri_hello_decode(g->bytes, g->got, &g->hello);
	}
	if (r == 0)
		hello(p, g);
	else
		spri_tcp_guest_destroy(p, g);
}

static void welcome(struct tcp_port *p, int fd)
{
	struct tcp_guest *g = spri_zalloc(sizeof *g);

	if (!g) {
		close(fd);
		return;
	}
	spri_tcp_tune(p, fd);
	g->source = (struct tcp_source){TCP_GUEST, fd};
	g->born_ns = spri_now_ns();
	g->deadline_ns = spri_tcp_after(g->born_ns, spri_min_u64(p->timeout_ns, TCP_HALF_OPEN_NS));
	tcp_link_init(&g->all);
	tcp_append(&p->guests, &g->all);
	p->n_half_open++;
	if (spri_tcp_watch(p, &g->source, EPOLL_CTL_ADD, TCP_STREAM_EVENTS) < 0) {
		spri_tcp_guest_destroy(p, g);
		return;
	}
	spri_tcp_arm(p, g->deadline_ns);
	guest_read(p, g);
}

/* Returns true when one more may come in. */
static bool make_room(struct tcp_port *p)
{
	struct tcp_link *l = p->guests.next;
	struct tcp_guest *g;

	if (p->n_half_open < TCP_HALF_OPEN)
		return true;
	while (spri_container_of(l, struct tcp_guest, all)->parked)
		l = l->next;
	g = spri_container_of(l, struct tcp_guest, all);
	if (spri_now_ns() - g->born_ns < SILENCE_NS) {
		spri_tcp_pause(p, g->born_ns + SILENCE_NS);
		return false;
	}
	spri_tcp_guest_destroy(p, g);
	return true;
}

/* One newcomer. Returns false when there is none, or none can be taken now. */
static bool accept_one(struct tcp_port *p, struct tcp_listener *l)
{
	int fd;

	if (!make_room(p))
		return false;
	fd = accept4(l->source.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0) {
		welcome(p, fd);
		return true;
	}
	if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
		spri_logf(SPR_LOG_WARN, "tcp: accepting a connection: %s", spr_strerror(-errno));
		spri_tcp_pause(p, spri_now_ns() + SHORTAGE_NS);
	}
	/* Others are of that one stream, which is gone; epoll reports again when more are there. */
	return false;
}

void spri_tcp_accept(struct tcp_port *p)
{
	p->accept_ready = false;
	for (unsigned i = 0; i < p->n_listeners; i++) {
		struct tcp_listener *l = &p->listeners[i];

		if (!l->ready)
			continue;
		l->ready = false;
		for (unsigned k = 0; k < TCP_ACCEPTS && accept_one(p, l); k++)
			;
	}
}

/* The first with news, or NULL. */
static struct tcp_guest *find_ready(struct tcp_port *p)
{
	for (struct tcp_link *l = p->guests.next; l != &p->guests; l = l->next)
		if (spri_container_of(l, struct tcp_guest, all)->ready)
			return spri_container_of(l, struct tcp_guest, all);
	return NULL;
}

void spri_tcp_guests_serve(struct tcp_port *p)
{
	struct tcp_guest *g;

	/* From the start each time: serving one may free others. */
	while ((g = find_ready(p)) != NULL) {
		g->ready = false;
		guest_read(p, g);
	}
	p->guests_ready = false;
}

uint64_t spri_tcp_guests_expire(struct tcp_port *p, uint64_t now)
{
	uint64_t next = SPRI_NEVER;
	struct tcp_link *l, *following;

	for (l = p->guests.next; l != &p->guests; l = following) {
		struct tcp_guest *g = spri_container_of(l, struct tcp_guest, all);

		following = l->next;
		if (now < g->deadline_ns) {
			next = spri_min_u64(next, g->deadline_ns);
			continue;
		}
		if (g->parked)
			answer(p, g, SPRI_ANSWER_NOT_AWAITED);
		spri_tcp_guest_destroy(p, g);
	}
	return next;
}
