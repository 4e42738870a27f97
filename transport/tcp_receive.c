/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What arrives on a tcp connection: bytes into frames, frames into memory and events.
 *
 *   1. Bytes are read into the connection's buffer, many small frames with one system call.
 *   2. A header is decoded once and checked: type, state, and for a WRITE key, permission and
 *      bounds. Only then has its payload a place to go.
 *   3. Payload that is buffered is copied there; the rest is read straight into its place, with the
 *      buffer as second vector for what follows it.
 *   4. When the last byte is in place, NOTIFY is reported to the caller's array; no room there, no
 *      parsing.
 *
 * A read that returns less than was asked for has emptied the socket: the next one waits for an
 * edge. Unless an end was announced, which gives no further edge: then reading goes on until it is
 * met.
 *
 * Failures: what must be refused goes to spri_tcp_refuse(), the end of the stream to
 * spri_tcp_stream_ended().
 */
#include "tcp.h"

#include <internal/bits.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* ---- frames ---- */

static void on_write(struct tcp_conn *c, const struct spri_frame *f)
{
	struct tcp_receive *in = &c->receive;
	uint32_t refusal;

	in->region = NULL;
	in->to = NULL;
	refusal = spri_tcp_check_write(c, f, &in->region, &in->to);
	if (refusal) {
		spri_tcp_refuse(c, SPR_EACCESS, refusal);
		return;
	}
	in->frame = *f;
	in->left = f->length;
	in->open = true;
}

static void on_refused(struct tcp_conn *c, uint32_t reason)
{
	if (c->state == SPRI_CONN_DONE)
		spri_tcp_hang_up(c);
	else if (c->state != SPRI_CONN_LOST && reason == SPRI_REFUSED_FRAME)
		spri_tcp_lose(c, SPR_EPROTOCOL, "the peer refused what this side sent: %s",
			      spri_refusal_text(reason));
	else if (c->state != SPRI_CONN_LOST)
		spri_tcp_lose(c, SPR_EACCESS, "the peer refused a write: %s",
			      spri_refusal_text(reason));
}

/* One frame's header. What is not allowed in this state is refused. */
static void on_frame(struct tcp_conn *c, const struct spri_frame *f)
{
	bool handshake = c->state == SPRI_CONN_ANSWERED;

	if (handshake && f->type == SPRI_FRAME_CONFIRM)
		spri_tcp_up(c, NULL);
	else if (handshake)
		spri_tcp_stream_ended(c, EPROTO);
	else if (f->type == SPRI_FRAME_REFUSED)
		on_refused(c, f->immediate);
	else if (f->type == SPRI_FRAME_WRITE && !c->peer_left && !c->farewell)
		on_write(c, f);
	else if (f->type == SPRI_FRAME_GOODBYE && !c->peer_left)
		spri_tcp_peer_left(c);
	else if (f->type == SPRI_FRAME_FAREWELL && !tcp_unsent(c) &&
		 (c->state == SPRI_CONN_CLOSING || c->state == SPRI_CONN_DONE))
		spri_tcp_farewell(c);
	else
		spri_tcp_refuse(c, SPR_EPROTOCOL, SPRI_REFUSED_FRAME);
}

/* Whoever registered the memory hears what was written. False: the connection is lost. */
static bool tell_landed(struct tcp_conn *c)
{
	const struct tcp_receive *in = &c->receive;
	const struct spri_region *region = in->region ? &in->region->base : NULL;
	size_t bytes = in->frame.length;
	int r;

	if (!region || !region->landed || bytes == 0)
		return true;
	r = region->landed(region->landed_arg, in->to - bytes, bytes);
	if (r < 0)
		spri_tcp_lose(c, r, "tcp: placing what the peer wrote: %s", spr_strerror(r));
	return r >= 0;
}

/*
 * The payload of the open frame, as far as it is buffered. Returns true when it is whole and
 * reported.
 */
static bool take_payload(struct tcp_conn *c, struct tcp_events *out)
{
	struct tcp_receive *in = &c->receive;
	size_t n = spri_min_u64(in->left, in->tail - in->head);

	if (n > 0) {
		memcpy(in->to, in->buffer + in->head, n);
		in->head += (uint32_t)n;
		in->to += n;
		in->left -= n;
	}
	if (in->left > 0)
		return false;
	in->open = false;
	if (!tell_landed(c))
		return false;
	if (in->frame.flags & SPRI_FRAME_NOTIFY)
		tcp_emit(out, c, SPRI_EVENT_NOTIFY)->immediate = in->frame.immediate;
	return true;
}

/* One thing more from the buffer. Returns false when it takes more bytes. */
static bool step(struct tcp_conn *c, struct tcp_events *out)
{
	struct tcp_receive *in = &c->receive;
	struct spri_frame f;

	if (c->state == SPRI_CONN_ASKING)
		return spri_tcp_take_answer(c);
	if (in->open)
		return take_payload(c, out);
	if (in->tail - in->head < SPRI_FRAME_BYTES)
		return false;
	if (spri_frame_decode(in->buffer + in->head, &f) < 0)
		f.type = 0; /* allowed in no state */
	in->head += SPRI_FRAME_BYTES;
	on_frame(c, &f);
	return true;
}

void spri_tcp_parse(struct tcp_conn *c, struct tcp_events *out)
{
	struct tcp_receive *in = &c->receive;
	bool more = true;

	in->stalled = false;
	while (more) {
		if (out->n == out->max) {
			in->stalled = in->open ? in->left == 0 || in->head != in->tail
					       : in->head != in->tail;
			return;
		}
		if (c->tell_connected) {
			memcpy(tcp_emit(out, c, SPRI_EVENT_CONNECTED)->private_data,
			       c->private_peers, SPRI_PRIVATE_BYTES);
			c->tell_connected = false;
			continue;
		}
		more = step(c, out);
	}
}

/* ---- bytes ---- */

/*
 * Where the next bytes go: the open frame's place first, then the buffer. Returns how many there is
 * room for.
 */
static size_t make_room(struct tcp_receive *in, uint64_t budget, struct iovec vector[2],
			unsigned *n_vectors)
{
	size_t direct = 0, kept = in->tail - in->head;

	*n_vectors = 0;
	if (in->open && in->left > 0) {
		assert(kept == 0);
		direct = (size_t)spri_min_u64(in->left, budget);
		vector[(*n_vectors)++] = (struct iovec){in->to, direct};
	} else if (kept > 0 && in->head > 0) {
		memmove(in->buffer, in->buffer + in->head, kept);
	}
	in->head = 0;
	in->tail = (uint32_t)kept;
	if (direct == in->left || !in->open) {
		vector[(*n_vectors)++] = (struct iovec){in->buffer + kept, TCP_BUFFER - kept};
		return direct + TCP_BUFFER - kept;
	}
	return direct;
}

/* n bytes are where make_room() wanted them. */
static void arrived(struct tcp_receive *in, size_t n)
{
	if (in->open && in->left > 0) {
		size_t direct = (size_t)spri_min_u64(in->left, n);

		in->to += direct;
		in->left -= direct;
		n -= direct;
	}
	in->tail += (uint32_t)n;
}

/* Reads once. Returns the number of bytes; 0 when it is time to stop. */
static size_t read_some(struct tcp_conn *c, uint64_t budget)
{
	struct iovec vector[2];
	unsigned n_vectors;
	size_t room = make_room(&c->receive, budget, vector, &n_vectors);
	ssize_t n;

	do {
		n = readv(c->source.fd, vector, (int)n_vectors);
	} while (n < 0 && errno == EINTR);
	if (n > 0) {
		arrived(&c->receive, (size_t)n);
		if ((size_t)n < room && !c->ending)
			c->readable = false;
		return (size_t)n;
	}
	c->readable = false;
	if (n == 0)
		spri_tcp_stream_ended(c, c->send_error);
	else if (errno != EAGAIN)
		spri_tcp_stream_ended(c, errno);
	else if (c->send_error)
		spri_tcp_stream_ended(c, c->send_error);
	return 0;
}

static bool may_read(const struct tcp_conn *c)
{
	return c->source.fd >= 0 && c->readable && !c->receive.stalled &&
	       c->state != SPRI_CONN_DIALING && c->state != SPRI_CONN_REFUSING && !c->linger;
}

void spri_tcp_receive(struct tcp_conn *c, struct tcp_events *out)
{
	uint64_t budget = TCP_BUDGET;
	size_t n = 1;

	spri_tcp_parse(c, out);
	while (n > 0 && budget > 0 && may_read(c) && out->n < out->max) {
		n = read_some(c, budget);
		budget -= spri_min_u64(n, budget);
		if (n > 0)
			spri_tcp_parse(c, out);
	}
}

void spri_tcp_discard(struct tcp_conn *c)
{
	uint64_t total = 0;
	ssize_t n;

	while (c->source.fd >= 0 && c->readable && total < TCP_BUDGET) {
		n = recv(c->source.fd, c->receive.buffer, TCP_BUFFER, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n > 0) {
			total += (uint64_t)n;
			continue;
		}
		c->readable = false;
		if (n == 0 || errno != EAGAIN)
			spri_tcp_stream_ended(c, n == 0 ? 0 : errno);
		else if (c->send_error)
			spri_tcp_stream_ended(c, c->send_error);
	}
}
