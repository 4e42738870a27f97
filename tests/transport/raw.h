/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A peer made by hand for the tests of tcp: a plain socket that says whatever the test wants. The
 * world (ends.h) of tcp ports goes on running while the raw side waits.
 */
#ifndef TESTS_TRANSPORT_RAW_H
#define TESTS_TRANSPORT_RAW_H

#include "ends.h"

#include <tcp.h>

/* A stream to or from a port, and the port id that the raw side claims. */
struct raw {
	int fd; /* -1: none */
	uint8_t id[SPRI_PORT_ID_BYTES];
};

/* The row under test, and its port number i with everything in it. */
const struct spri_transport *raw_row(void);
struct tcp_port *raw_port(struct world *w, unsigned i);

/* Connects to address `at` of a port's blob. */
void raw_dial(struct world *w, unsigned port, unsigned at, struct raw *out);
/* A socket that listens on 127.0.0.1, and its address. */
int raw_listen(struct spri_wire_address *out);
/* Takes the next connection of such a socket, which the world makes. */
void raw_accept(struct world *w, int listener, struct raw *out);
void raw_close(struct raw *raw);

/* Sends all of it, the world running. False when the stream is gone. */
bool raw_send(struct world *w, struct raw *raw, const void *bytes, size_t n);
/* Receives exactly n bytes. False when the stream ends before. */
bool raw_receive(struct world *w, struct raw *raw, void *bytes, size_t n);
/* True when the stream ends or is reset, whatever came before, within the world's patience. */
bool raw_ended(struct world *w, struct raw *raw);

/* A hello that the port would accept for connection `id`. */
struct spri_hello raw_hello(struct world *w, unsigned port, const struct raw *raw, uint64_t id);
bool raw_send_hello(struct world *w, struct raw *raw, const struct spri_hello *hello);
/* The next answer. The test fails when none comes. */
struct spri_answer raw_answer(struct world *w, struct raw *raw);
bool raw_send_frame(struct world *w, struct raw *raw, const struct spri_frame *frame);
/* The next frame's header. The test fails when none comes. */
struct spri_frame raw_frame(struct world *w, struct raw *raw);

/* A blob of a port id and some addresses. */
size_t raw_blob(const uint8_t *id, const struct spri_wire_address *addresses, unsigned n,
		uint8_t *out);
/* Makes a passive connection at a port that awaits the raw side, labelled "rank 7". */
void raw_awaited(struct world *w, unsigned port, const struct raw *raw, uint64_t id,
		 struct end *end);
/* The whole handshake: a raw stream whose other end is `end`. */
void raw_meet(struct world *w, unsigned port, struct raw *raw, uint64_t id, struct end *end);

/* Ports 0 and 1 still do what they are for: a connection is made and ended. */
void raw_expect_healthy(struct world *w, const char *after);

/* Open descriptors of this process. */
unsigned raw_descriptors(void);

#endif
