/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What leaves on a tcp connection: a bounded queue of posted writes, then the tail (goodbye,
 * farewell, refusal), each of which ends what may be posted.
 *
 *   post   fills the next entry; when nothing waits, hands it to the kernel at once
 *   send   headers and gather lists of as many entries as fit go out in one sendmsg
 *   poll   reports SENT for each entry that the kernel has whole (tcp_conn.c)
 *
 * A kernel that takes less than it was offered is not asked again before epoll says that it would
 * take more.
 *
 * Failures: an error is kept in send_error until what has arrived meanwhile was read (the peer may
 * have said why); a kernel that takes nothing for the timeout loses the connection (tcp_conn.c).
 */
#include "tcp.h"

#include <internal/bits.h>
#include <internal/clock.h>

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int spri_tcp_send_now(struct tcp_port *p, int fd, const void *bytes, size_t n)
{
	ssize_t r;

	do {
		r = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return spri_trace(-errno);
	p->stats.wire_bytes += (uint64_t)r;
	/* A new stream has room for a few hundred bytes; one that has not is of no use. */
	return (size_t)r == n ? 0 : spri_trace(-ENOBUFS);
}

uint64_t spri_tcp_left(const struct tcp_conn *c)
{
	const struct tcp_send *s = &c->send;
	uint64_t left = s->tail_bytes - s->tail_sent - s->offset;
	int in_kernel = 0;

	for (uint32_t i = s->sent; i != s->posted; i++)
		left += s->queue[i % TCP_QUEUE].bytes;
	/* A stream that cannot say has ended, and poll() meets that. */
	if (c->source.fd < 0 || ioctl(c->source.fd, SIOCOUTQ, &in_kernel) < 0)
		in_kernel = 0;
	return left + (uint64_t)in_kernel;
}

void spri_tcp_send_tail(struct tcp_conn *c, enum spri_frame_type type, uint32_t immediate)
{
	struct spri_frame f = {.type = (uint16_t)type, .immediate = immediate};

	assert(c->send.tail_bytes + SPRI_FRAME_BYTES <= sizeof c->send.tail);
	spri_frame_encode(&f, c->send.tail + c->send.tail_bytes);
	c->send.tail_bytes += SPRI_FRAME_BYTES;
}

/* The pieces that are offered to the kernel next. */
struct offer {
	struct iovec vector[TCP_VECTORS];
	unsigned n;
	uint64_t bytes;
};

/*
 * Adds a piece without its first *skip bytes, as far as the budget goes; false when no more may be
 * added.
 */
static bool offer_piece(struct offer *o, const void *base, uint64_t bytes, uint64_t *skip)
{
	uint64_t skipped = spri_min_u64(*skip, bytes), take;

	*skip -= skipped;
	bytes -= skipped;
	if (bytes == 0)
		return true;
	if (o->n == TCP_VECTORS || o->bytes == TCP_BUDGET)
		return false;
	take = spri_min_u64(bytes, TCP_BUDGET - o->bytes);
	o->vector[o->n].iov_base = (uint8_t *)(uintptr_t)base + skipped;
	o->vector[o->n++].iov_len = take;
	o->bytes += take;
	return take == bytes;
}

static bool offer_post(struct offer *o, const struct tcp_post *post, uint64_t *skip)
{
	if (!offer_piece(o, post->header, SPRI_FRAME_BYTES, skip))
		return false;
	for (unsigned i = 0; i < post->n_gather; i++)
		if (!offer_piece(o, post->gather[i].iov_base, post->gather[i].iov_len, skip))
			return false;
	return true;
}

static void make_offer(const struct tcp_send *s, struct offer *o)
{
	uint64_t skip = s->offset;

	o->n = 0;
	o->bytes = 0;
	for (uint32_t i = s->sent; i != s->posted; i++)
		if (!offer_post(o, &s->queue[i % TCP_QUEUE], &skip))
			return;
	skip = s->tail_sent;
	offer_piece(o, s->tail, s->tail_bytes, &skip);
}

/* The kernel took n bytes. */
static void taken(struct tcp_send *s, uint64_t n)
{
	while (n > 0 && s->sent != s->posted) {
		uint64_t left = s->queue[s->sent % TCP_QUEUE].bytes - s->offset;

		if (n < left) {
			s->offset += n;
			return;
		}
		n -= left;
		s->offset = 0;
		s->sent++;
	}
	s->tail_sent += (uint32_t)n;
}

static void blocked(struct tcp_conn *c, bool moved)
{
	struct tcp_port *p = tcp_port_of(c);

	if (!tcp_unsent(c) || c->writable) {
		c->send.blocked_ns = SPRI_NEVER;
	} else if (moved || c->send.blocked_ns == SPRI_NEVER) {
		c->send.blocked_ns = spri_now_ns();
		spri_tcp_arm(p, spri_tcp_after(c->send.blocked_ns, p->timeout_ns));
	}
}

void spri_tcp_send(struct tcp_conn *c)
{
	struct offer o;
	struct msghdr message = {.msg_iov = o.vector};
	uint64_t total = 0;
	ssize_t n = 0;

	assert(c->source.fd >= 0);
	while (tcp_unsent(c) && total < TCP_BUDGET && c->writable) {
		make_offer(&c->send, &o);
		message.msg_iovlen = o.n;
		n = sendmsg(c->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		total += (uint64_t)n;
		taken(&c->send, (uint64_t)n);
		c->writable = (uint64_t)n == o.bytes;
	}
	if (n < 0 && errno != EAGAIN) {
		/* The stream is broken; first take what has arrived. */
		c->send_error = errno;
		c->readable = c->ending = true;
	}
	if (n < 0)
		c->writable = false;
	tcp_port_of(c)->stats.wire_bytes += total;
	blocked(c, total > 0);
	if (!tcp_unsent(c))
		spri_tcp_all_sent(c);
}

/* Checks a write and adds up its bytes. */
static int check(const struct tcp_conn *c, const struct spri_write *w, uint64_t *bytes)
{
	uint64_t sum = 0;

	if (w->n_gather > SPRI_MAX_GATHER)
		return SPR_EARGUMENT;
	for (unsigned i = 0; i < w->n_gather; i++) {
		const struct spri_gather *g = &w->gather[i];
		const struct spri_region *r = g->region;
		uint64_t offset;

		if (g->bytes == 0)
			continue;
		if (!r || r->port != c->base.port)
			return SPR_EARGUMENT;
		offset = (uint64_t)((uintptr_t)g->base - (uintptr_t)r->base);
		if ((uintptr_t)g->base < (uintptr_t)r->base || offset > r->bytes ||
		    g->bytes > r->bytes - offset)
			return SPR_EARGUMENT;
		if (g->bytes > UINT64_MAX - SPRI_FRAME_BYTES - sum)
			return SPR_EARGUMENT;
		sum += g->bytes;
	}
	*bytes = sum;
	return 0;
}

static void fill(struct tcp_post *post, const struct spri_write *w, uint64_t bytes)
{
	struct spri_frame f = {
		.type = SPRI_FRAME_WRITE,
		.flags = w->notify ? SPRI_FRAME_NOTIFY : 0,
		.immediate = w->notify ? w->immediate : 0,
		.address = w->address,
		.length = bytes,
	};

	memcpy(f.key, w->key, sizeof f.key);
	spri_frame_encode(&f, post->header);
	post->n_gather = w->n_gather;
	for (unsigned i = 0; i < w->n_gather; i++) {
		post->gather[i].iov_base = (void *)(uintptr_t)w->gather[i].base;
		post->gather[i].iov_len = w->gather[i].bytes;
	}
	post->bytes = SPRI_FRAME_BYTES + bytes;
	post->cookie = w->cookie;
}

int spri_tcp_post(struct spri_conn *base, const struct spri_write *write)
{
	struct tcp_conn *c = (struct tcp_conn *)base;
	struct tcp_send *s = &c->send;
	bool idle = !tcp_unsent(c);
	uint64_t bytes = 0;
	int r;

	if (spri_unlikely(c->state != SPRI_CONN_UP)) {
		if (c->state == SPRI_CONN_LOST || c->state == SPRI_CONN_REFUSING)
			return spri_trace(c->status);
		return spri_trace(-ENOTCONN);
	}
	r = check(c, write, &bytes);
	if (r < 0)
		return spri_trace(r);
	if (s->posted - s->reported == TCP_QUEUE)
		return SPRI_AGAIN;
	fill(&s->queue[s->posted++ % TCP_QUEUE], write, bytes);
	tcp_port_of(c)->stats.writes++;
	if (idle && c->writable && c->source.fd >= 0)
		spri_tcp_send(c);
	if (s->sent != s->reported || c->send_error || (c->writable && tcp_unsent(c)))
		spri_tcp_ready(c);
	return 0;
}
