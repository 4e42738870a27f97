/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* See raw.h. */
#include "raw.h"

#include <check.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const struct spri_transport *raw_row(void)
{
	const struct spri_transport *t = spri_transport_find("tcp");

	cr_assert_not_null(t, "tcp should be in the table");
	return t;
}

struct tcp_port *raw_port(struct world *w, unsigned i)
{
	return (struct tcp_port *)w->port[i];
}

static void name_raw(struct raw *raw)
{
	static uint8_t count;

	for (unsigned i = 0; i < SPRI_PORT_ID_BYTES; i++)
		raw->id[i] = (uint8_t)(0x40 + i);
	raw->id[0] = ++count;
}

void raw_dial(struct world *w, unsigned port, unsigned at, struct raw *out)
{
	const struct spri_wire_address *a = &raw_port(w, port)->listeners[at].address;
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(a->port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
	bool is4 = a->family == 4;
	int r, on = 1;

	memcpy(&v4.sin_addr, a->host, 4);
	memcpy(&v6.sin6_addr, a->host, 16);
	out->fd = socket(is4 ? AF_INET : AF_INET6, SOCK_STREAM, 0);
	/*
	 * Blocks no longer than the kernel's own handshake with the backlog of this same machine.
	 */
	r = connect(out->fd, is4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
		    is4 ? sizeof v4 : sizeof v6);
	cr_assert_eq(r, 0, "a port should take connections: %s", strerror(errno));
	/* What is sent is under way, whatever comes next. */
	cr_assert_eq(setsockopt(out->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0, "NODELAY");
	name_raw(out);
}

int raw_listen(struct spri_wire_address *out)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	cr_assert(bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 8) == 0 &&
			  getsockname(fd, (struct sockaddr *)&at, &n) == 0,
		  "listening on loopback should work");
	*out = (struct spri_wire_address){4, ntohs(at.sin_port), {127, 0, 0, 1}};
	return fd;
}

/*
 * Repeats a call that does not block, the world running, until it gives something else than EAGAIN.
 */
#define patiently(w, call)                                                                         \
	({                                                                                         \
		uint64_t until_ = world_now(w) + WORLD_PATIENCE;                                   \
		ssize_t result_;                                                                   \
		while ((result_ = (call)) < 0 && errno == EAGAIN && world_step((w), until_))       \
			;                                                                          \
		result_;                                                                           \
	})

void raw_accept(struct world *w, int listener, struct raw *out)
{
	out->fd = (int)patiently(w, accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	cr_assert_geq(out->fd, 0, "accept: %s", strerror(errno));
	name_raw(out);
}

void raw_close(struct raw *raw)
{
	if (raw->fd >= 0)
		close(raw->fd);
	raw->fd = -1;
}

bool raw_send(struct world *w, struct raw *raw, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	ssize_t r;

	while (n > 0) {
		r = patiently(w, send(raw->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT));
		if (r < 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

bool raw_receive(struct world *w, struct raw *raw, void *bytes, size_t n)
{
	uint8_t *p = bytes;
	ssize_t r;

	while (n > 0) {
		r = patiently(w, recv(raw->fd, p, n, MSG_DONTWAIT));
		if (r <= 0)
			return false;
		p += r;
		n -= (size_t)r;
	}
	return true;
}

bool raw_ended(struct world *w, struct raw *raw)
{
	uint8_t waste[4096];
	ssize_t r;

	do
		r = patiently(w, recv(raw->fd, waste, sizeof waste, MSG_DONTWAIT));
	while (r > 0);
	return r == 0 || errno != EAGAIN;
}

struct spri_hello raw_hello(struct world *w, unsigned port, const struct raw *raw, uint64_t id)
{
	struct spri_hello h = {.version = SPRI_WIRE_VERSION, .id = id};

	memcpy(h.to, raw_port(w, port)->id, sizeof h.to);
	memcpy(h.from, raw->id, sizeof h.from);
	h.private_data[0] = 0x77;
	return h;
}

bool raw_send_hello(struct world *w, struct raw *raw, const struct spri_hello *hello)
{
	uint8_t bytes[SPRI_HELLO_BYTES];

	spri_hello_encode(hello, bytes);
	return raw_send(w, raw, bytes, sizeof bytes);
}

struct spri_answer raw_answer(struct world *w, struct raw *raw)
{
	uint8_t bytes[SPRI_ANSWER_BYTES];
	struct spri_answer a = {0};
	size_t used;

	cr_assert(raw_receive(w, raw, bytes, sizeof bytes), "an answer should come");
	cr_assert_eq(spri_answer_decode(bytes, sizeof bytes, &a, &used), 0,
		     "the answer should be one");
	return a;
}

bool raw_send_frame(struct world *w, struct raw *raw, const struct spri_frame *frame)
{
	uint8_t bytes[SPRI_FRAME_BYTES];

	spri_frame_encode(frame, bytes);
	return raw_send(w, raw, bytes, sizeof bytes);
}

struct spri_frame raw_frame(struct world *w, struct raw *raw)
{
	uint8_t bytes[SPRI_FRAME_BYTES];
	struct spri_frame f;

	cr_assert(raw_receive(w, raw, bytes, sizeof bytes), "a frame should come");
	cr_assert_eq(spri_frame_decode(bytes, &f), 0, "the frame should be one");
	return f;
}

size_t raw_blob(const uint8_t *id, const struct spri_wire_address *addresses, unsigned n,
		uint8_t *out)
{
	struct spri_blob blob = {.n = n};

	memcpy(blob.id, id, sizeof blob.id);
	memcpy(blob.addresses, addresses, n * sizeof *addresses);
	return spri_blob_encode(&blob, out);
}

void raw_awaited(struct world *w, unsigned port, const struct raw *raw, uint64_t id,
		 struct end *end)
{
	static const struct spri_wire_address nowhere = {4, 9, {127, 0, 0, 1}};
	uint8_t blob[SPRI_ADDRESS_BYTES], mine[SPRI_PRIVATE_BYTES] = {0x55};
	struct spri_connect args = {.address = blob,
				    .address_bytes = raw_blob(raw->id, &nowhere, 1, blob),
				    .id = id,
				    .private_data = mine,
				    .label = "rank 7"};

	end_create(w, port, end);
	cr_assert_eq(w->t->connect(end->conn, &args), 0, "passive connect should start");
}

void raw_meet(struct world *w, unsigned port, struct raw *raw, uint64_t id, struct end *end)
{
	const struct spri_frame confirm = {.type = SPRI_FRAME_CONFIRM};
	struct spri_hello h;
	struct spri_answer a;

	raw_dial(w, port, 0, raw);
	raw_awaited(w, port, raw, id, end);
	h = raw_hello(w, port, raw, id);
	cr_assert(raw_send_hello(w, raw, &h), "the hello should be taken");
	a = raw_answer(w, raw);
	cr_assert_eq(a.status, SPRI_ANSWER_ACCEPTED, "the hello should be accepted, not: %s",
		     spri_answer_text(a.status));
	cr_assert_eq(a.private_data[0], 0x55, "the answer should carry the port's private data");
	cr_assert_eq(end->connected, 0, "CONNECTED should wait for CONFIRM");
	cr_assert(raw_send_frame(w, raw, &confirm), "CONFIRM should be taken");
	cr_assert(pump(w, end->connected == 1), "CONNECTED should come");
	cr_assert_eq(end->private_data[0], 0x77, "with the hello's private data");
}

unsigned raw_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	cr_assert_not_null(dir, "/proc/self/fd should be readable");
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

void raw_expect_healthy(struct world *w, const char *after)
{
	struct end a, b;

	ends_meet(w, 0, &a, 1, &b, 4711);
	cr_assert(a.connected && b.connected, "after %s the port should work", after);
	end_destroy(w, &a);
	end_destroy(w, &b);
}
