/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What a verbs port does about peers that are not sparring, or another version: plain rdma_cm ids
 * at the other end say what no port would. Needs a device of InfiniBand or RoCE: iWARP's kernel
 * side wants a queue pair for each of these ids.
 */
#include "ends.h"

#include <check.h>
#include <verbs.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define SECOND SPRI_NS_PER_S
#define SHORT (300 * SPRI_NS_PER_MS)

/* The row, with one device only, so that there is one way to every address. */
static const struct spri_transport *row(struct spri_text *why)
{
	const struct spri_transport *t = spri_transport_find("verbs");
	struct spri_port_options options = {.timeout_ns = SECOND,
					    .interfaces = getenv("TEST_INTERFACES")};
	struct spri_port *port = NULL;
	bool iwarp;

	if (t->probe(why) < 0 || t->listen(&options, &port, why) < 0)
		return NULL;
	iwarp = ((struct verbs_port *)port)->devices[0].iwarp;
	setenv("SPR_RDMA_DEVICE", ((struct verbs_port *)port)->devices[0].name, 1);
	t->fini(port);
	if (iwarp)
		spri_text_set(why, "the first device is iWARP");
	return iwarp ? NULL : t;
}

#define NEED_DEVICE(t)                                                                             \
	struct spri_text why_ = {0};                                                               \
	const struct spri_transport *t = row(&why_);                                               \
	if (!t)                                                                                    \
	cr_skip("%s", why_.s)

/* A side made by hand. */
struct raw {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id;
	enum rdma_cm_event_type kind; /* of the last event */
	uint8_t bytes[256];	      /* its private data */
	size_t n_bytes;
};

static void raw_open(struct raw *raw)
{
	memset(raw, 0, sizeof *raw);
	raw->channel = rdma_create_event_channel();
	cr_assert_not_null(raw->channel, "a channel of rdma_cm");
	cr_assert_eq(fcntl(raw->channel->fd, F_SETFL, O_NONBLOCK), 0, "that does not block");
}

static void raw_close(struct raw *raw)
{
	if (raw->id)
		rdma_destroy_id(raw->id);
	if (raw->listener)
		rdma_destroy_id(raw->listener);
	rdma_destroy_event_channel(raw->channel);
}

/* Runs the world until the raw side has an event. */
static enum rdma_cm_event_type raw_event(struct world *w, struct raw *raw)
{
	uint64_t until = world_now(w) + WORLD_PATIENCE;
	struct rdma_cm_event *e;

	while (rdma_get_cm_event(raw->channel, &e) < 0)
		cr_assert(errno == EAGAIN && world_step(w, until), "an event should come");
	raw->kind = e->event;
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		raw->id = e->id;
	raw->n_bytes = e->param.conn.private_data ? e->param.conn.private_data_len : 0;
	if (raw->n_bytes > sizeof raw->bytes)
		raw->n_bytes = sizeof raw->bytes;
	if (raw->n_bytes)
		memcpy(raw->bytes, e->param.conn.private_data, raw->n_bytes);
	rdma_ack_cm_event(e);
	return raw->kind;
}

/* The address of a port, with another port number. */
static void address_of(struct world *w, uint16_t port, struct sockaddr_storage *out)
{
	const struct verbs_port *p = (const struct verbs_port *)w->port[0];

	spri_verbs_sockaddr(&p->places[0].address, port, out);
}

/* Asks port 0 for a connection, with these private data. */
static void raw_ask(struct world *w, struct raw *raw, const void *bytes, uint8_t n)
{
	const struct verbs_port *p = (const struct verbs_port *)w->port[0];
	struct rdma_conn_param param = {.private_data = bytes,
					.private_data_len = n,
					.qp_num = 0x123,
					.retry_count = 3,
					.rnr_retry_count = 3};
	struct sockaddr_storage from, to;

	address_of(w, 0, &from);
	address_of(w, p->places[0].address.port, &to);
	raw_open(raw);
	cr_assert_eq(rdma_create_id(raw->channel, &raw->id, NULL, RDMA_PS_TCP), 0, "an id");
	cr_assert_eq(
		rdma_resolve_addr(raw->id, (struct sockaddr *)&from, (struct sockaddr *)&to, 2000),
		0, "resolve an address");
	cr_assert_eq(raw_event(w, raw), RDMA_CM_EVENT_ADDR_RESOLVED, "it should be resolved");
	cr_assert_eq(rdma_resolve_route(raw->id, 2000), 0, "resolve a route");
	cr_assert_eq(raw_event(w, raw), RDMA_CM_EVENT_ROUTE_RESOLVED, "it should be resolved");
	cr_assert_eq(rdma_connect(raw->id, &param), 0, "ask");
}

static struct spri_verbs_hello hello(void)
{
	return (struct spri_verbs_hello){
		.version = SPRI_VERBS_VERSION, .mtu = 3, .credits = 100, .token = 77};
}

static void expect_reject(struct world *w, struct raw *raw, unsigned reason, const char *what)
{
	unsigned version = 0, said;

	cr_assert_eq(raw_event(w, raw), RDMA_CM_EVENT_REJECTED, "%s should be rejected, not %s",
		     what, rdma_event_str(raw->kind));
	said = spri_verbs_reject_decode(raw->bytes, raw->n_bytes, &version);
	cr_assert_eq(said, reason, "%s: reason %u should be said, not %u", what, reason, said);
	cr_assert_eq(version, SPRI_VERBS_VERSION, "%s: with the port's version", what);
	raw_close(raw);
}

/* Requests that cannot be; the port meets others as if nothing had been. */
Test(verbs_cm, requests_that_cannot_be)
{
	NEED_DEVICE(t);
	struct spri_verbs_hello h = hello();
	uint8_t bytes[SPRI_VERBS_HELLO_BYTES] = {0};
	struct world w;
	struct raw raw;
	struct end a, b;

	world_open(&w, t, 2, 5 * SECOND);
	raw_ask(&w, &raw, NULL, 0);
	expect_reject(&w, &raw, SPRI_VERBS_REJECT_OTHER_VERSION, "no hello");
	memset(bytes, 0xee, sizeof bytes);
	raw_ask(&w, &raw, bytes, sizeof bytes);
	expect_reject(&w, &raw, SPRI_VERBS_REJECT_OTHER_VERSION, "something else");
	h.version = 9;
	spri_verbs_hello_encode(&h, bytes);
	raw_ask(&w, &raw, bytes, sizeof bytes);
	expect_reject(&w, &raw, SPRI_VERBS_REJECT_OTHER_VERSION, "version 9");
	h = hello();
	h.features = 1;
	spri_verbs_hello_encode(&h, bytes);
	raw_ask(&w, &raw, bytes, sizeof bytes);
	expect_reject(&w, &raw, SPRI_VERBS_REJECT_FEATURE, "an unknown feature");
	ends_meet(&w, 1, &a, 0, &b, 1);
	end_destroy(&w, &a);
	end_destroy(&w, &b);
	world_close(&w);
}

Test(verbs_cm, requests_that_nobody_awaits)
{
	NEED_DEVICE(t);
	struct spri_verbs_hello h = hello();
	uint8_t bytes[SPRI_VERBS_HELLO_BYTES];
	struct world w;
	struct raw raw;

	world_open(&w, t, 1, SHORT);
	spri_verbs_hello_encode(&h, bytes);
	raw_ask(&w, &raw, bytes, sizeof bytes);
	expect_reject(&w, &raw, SPRI_VERBS_REJECT_NOT_AWAITED, "a token of nobody");
	/* Taken back before the time is up, or still waiting when the port goes: no harm either. */
	raw_ask(&w, &raw, bytes, sizeof bytes);
	world_settle(&w);
	raw_close(&raw);
	world_settle(&w);
	raw_ask(&w, &raw, bytes, sizeof bytes);
	world_settle(&w);
	world_close(&w);
	raw_close(&raw);
}

/* A listening id at port 0's address, and a connection of port 0 that asks it. */
static void raw_listen(struct world *w, struct raw *raw, struct end *end)
{
	const struct verbs_port *p = (const struct verbs_port *)w->port[0];
	struct spri_verbs_blob blob = {.n = 1, .id = {1, 2, 3}};
	uint8_t bytes[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = bytes, .id = 5, .active = true, .label = "rank 8"};
	struct sockaddr_storage at;

	raw_open(raw);
	address_of(w, 0, &at);
	cr_assert_eq(rdma_create_id(raw->channel, &raw->listener, NULL, RDMA_PS_TCP), 0, "an id");
	cr_assert_eq(rdma_bind_addr(raw->listener, (struct sockaddr *)&at), 0, "bind");
	cr_assert_eq(rdma_listen(raw->listener, 4), 0, "listen");
	blob.addresses[0] = p->places[0].address;
	blob.addresses[0].port = ntohs(rdma_get_src_port(raw->listener));
	args.address_bytes = spri_verbs_blob_encode(&blob, bytes);
	end_create(w, 0, end);
	cr_assert_eq(w->t->connect(end->conn, &args), 0, "connect should start");
	cr_assert_eq(raw_event(w, raw), RDMA_CM_EVENT_CONNECT_REQUEST, "it should ask");
	cr_assert_geq(raw->n_bytes, SPRI_VERBS_HELLO_BYTES, "with a hello");
}

static void expect_lost(struct world *w, struct end *end, int status, const char *text)
{
	cr_assert(pump(w, end->lost), "LOST should come");
	cr_assert_eq(end->status, status, "with %s, not %s", spr_error_name(status),
		     spr_error_name(end->status));
	cr_assert(strstr(w->t->describe(end->conn), "rank 8: verbs: cannot connect: ") &&
			  strstr(w->t->describe(end->conn), text),
		  "\"%s\" should be in the text: \"%s\"", text, w->t->describe(end->conn));
	end_destroy(w, end);
	world_close(w);
}

Test(verbs_cm, answers_that_cannot_be)
{
	NEED_DEVICE(t);
	uint8_t bytes[SPRI_VERBS_HELLO_BYTES];
	struct rdma_conn_param param = {.private_data = bytes,
					.private_data_len = sizeof bytes,
					.qp_num = 0x123,
					.rnr_retry_count = 3};
	struct spri_verbs_hello h = hello();
	struct world w;
	struct raw raw;
	struct end a;

	memset(bytes, 0xee, sizeof bytes);
	world_open(&w, t, 1, 5 * SECOND);
	raw_listen(&w, &raw, &a);
	cr_assert_eq(rdma_accept(raw.id, &param), 0, "accept");
	expect_lost(&w, &a, SPR_EPROTOCOL, "something else than sparring answers");
	raw_close(&raw);
	h.version = 9;
	spri_verbs_hello_encode(&h, bytes);
	world_open(&w, t, 1, 5 * SECOND);
	raw_listen(&w, &raw, &a);
	cr_assert_eq(rdma_accept(raw.id, &param), 0, "accept");
	expect_lost(&w, &a, SPR_EVERSION, "peer speaks protocol version 9");
	raw_close(&raw);
}

Test(verbs_cm, rejects)
{
	NEED_DEVICE(t);
	uint8_t bytes[SPRI_VERBS_REJECT_BYTES];
	struct world w;
	struct raw raw;
	struct end a;

	spri_verbs_reject_encode(SPRI_VERBS_REJECT_OTHER_VERSION, bytes);
	bytes[SPRI_VERBS_REJECT_VERSION] = 9;
	world_open(&w, t, 1, 5 * SECOND);
	raw_listen(&w, &raw, &a);
	cr_assert_eq(rdma_reject(raw.id, bytes, sizeof bytes), 0, "reject");
	expect_lost(&w, &a, SPR_EVERSION, "peer speaks protocol version 9, this side 1");
	raw_close(&raw);
	/* One that says nothing is asked VERBS_STRIKES times. */
	world_open(&w, t, 1, 5 * SECOND);
	raw_listen(&w, &raw, &a);
	for (unsigned strike = 1; strike < VERBS_STRIKES; strike++) {
		cr_assert_eq(rdma_reject(raw.id, NULL, 0), 0, "reject");
		rdma_destroy_id(raw.id);
		raw.id = NULL;
		cr_assert_eq(raw_event(&w, &raw), RDMA_CM_EVENT_CONNECT_REQUEST, "asked again");
	}
	cr_assert_eq(rdma_reject(raw.id, NULL, 0), 0, "reject");
	expect_lost(&w, &a, -ECONNREFUSED, "refused");
	raw_close(&raw);
}
