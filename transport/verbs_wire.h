/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The bytes of verbs: the address blob, what rdma_cm carries for us in a connection request, an
 * accept and a reject, and the messages that the ends send each other beside one-sided writes.
 * Little-endian, every field aligned to its size. docs/wire.md, "Verbs", has the same tables in the
 * same order; tests/transport/test_verbs_wire.c has recorded bytes.
 *
 * The immediate of a WRITE_WITH_IMM is the caller's 32 bits, in network order as verbs wants it.
 */
#ifndef SPRI_VERBS_WIRE_H
#define SPRI_VERBS_WIRE_H

#include "transport.h"

#define SPRI_VERBS_VERSION 1
#define SPRI_VERBS_PORT_ID_BYTES 16

/* ---- address blob ---- */

enum {
	SPRI_VERBS_BLOB_FORMAT_AT = 0, /* u16: SPRI_VERBS_BLOB_FORMAT */
	SPRI_VERBS_BLOB_COUNT = 2,     /* u16: addresses that follow, 1 … SPRI_VERBS_BLOB_MOST */
	SPRI_VERBS_BLOB_RESERVED = 4,  /* u32: 0 */
	SPRI_VERBS_BLOB_PORT_ID = 8,   /* 16 bytes: random, of this port */
	SPRI_VERBS_BLOB_ADDRESSES = 24,

	SPRI_VERBS_BLOB_AT_FAMILY = 0,	 /* u8 in each address: 4 or 6 */
	SPRI_VERBS_BLOB_AT_KIND = 1,	 /* u8: enum spri_verbs_kind */
	SPRI_VERBS_BLOB_AT_PORT = 2,	 /* u16: port number of rdma_cm */
	SPRI_VERBS_BLOB_AT_RESERVED = 4, /* u32: 0 */
	SPRI_VERBS_BLOB_AT_HOST = 8, /* 16 bytes, network order; IPv4: the first four, the rest 0 */
	SPRI_VERBS_BLOB_EACH = 24,
	SPRI_VERBS_BLOB_MOST = 16,
	SPRI_VERBS_BLOB_FORMAT = 2, /* 1 is tcp's */
};

/* Which devices can talk to each other. */
enum spri_verbs_kind {
	SPRI_VERBS_IB = 1,    /* InfiniBand */
	SPRI_VERBS_ROCE = 2,  /* RoCE */
	SPRI_VERBS_IWARP = 3, /* iWARP */
};

struct spri_verbs_address {
	uint8_t family; /* 4 or 6 */
	uint8_t kind;	/* enum spri_verbs_kind */
	uint16_t port;	/* of rdma_cm, host order */
	uint8_t host[16];
};

struct spri_verbs_blob {
	uint8_t id[SPRI_VERBS_PORT_ID_BYTES];
	unsigned n;
	struct spri_verbs_address addresses[SPRI_VERBS_BLOB_MOST];
};

/* Returns the length; blob->n must be 1 … SPRI_VERBS_BLOB_MOST. */
size_t spri_verbs_blob_encode(const struct spri_verbs_blob *blob, uint8_t out[SPRI_ADDRESS_BYTES]);
/* Returns 0 or SPR_EARGUMENT: not such a blob. */
int spri_verbs_blob_decode(const void *bytes, size_t n, struct spri_verbs_blob *out) SPRI_MUST;

/*
 * ---- hello: private data of the connection request and of the accept. Magic and version are at
 * the same place in every version. ----
 */

enum {
	SPRI_VERBS_HELLO_MAGIC = 0,    /* u16: "SV" */
	SPRI_VERBS_HELLO_VERSION = 2,  /* u8 */
	SPRI_VERBS_HELLO_FEATURES = 3, /* u8: features that the other end must know; none yet */
	SPRI_VERBS_HELLO_DEVICE = 4,   /* u8: which rkey of a key is for this connection */
	SPRI_VERBS_HELLO_MTU = 5,      /* u8: active MTU of the port, 1 (256) … 5 (4096) */
	SPRI_VERBS_HELLO_CREDITS =
		6, /* u16: notifications that may be sent before the first CREDIT */
	SPRI_VERBS_HELLO_TOKEN = 8,    /* u64: which connection between which two ports */
	SPRI_VERBS_HELLO_PRIVATE = 16, /* 40 bytes of the caller's */
	SPRI_VERBS_HELLO_BYTES = 56,
};

struct spri_verbs_hello {
	uint8_t version;
	uint8_t features;
	uint8_t device;
	uint8_t mtu;
	uint16_t credits;
	uint64_t token;
	uint8_t private_data[SPRI_PRIVATE_BYTES]; /* zeros when the version is not ours */
};

void spri_verbs_hello_encode(const struct spri_verbs_hello *hello,
			     uint8_t out[SPRI_VERBS_HELLO_BYTES]);
/*
 * n may be more than a hello: InfiniBand pads. Returns 0 (also for another version: see the field),
 * SPR_EPROTOCOL.
 */
int spri_verbs_hello_decode(const void *bytes, size_t n, struct spri_verbs_hello *out) SPRI_MUST;

/* The token of connection `id` that port `from` opens to port `to`. */
uint64_t spri_verbs_token(const uint8_t *from, const uint8_t *to, uint64_t id);

/* ---- reject: private data when a request is turned down ---- */

enum {
	SPRI_VERBS_REJECT_MAGIC = 0,   /* u16: "SV" */
	SPRI_VERBS_REJECT_VERSION = 2, /* u8: of the side that rejects */
	SPRI_VERBS_REJECT_REASON = 3,  /* u8: below */
	SPRI_VERBS_REJECT_BYTES = 4,
};

/* Numbers are never used again for another meaning. */
enum spri_verbs_reject {
	SPRI_VERBS_REJECT_OTHER_VERSION = 1, /* see the version field */
	SPRI_VERBS_REJECT_FEATURE = 2,	     /* a feature is needed that is not known here */
	SPRI_VERBS_REJECT_NOT_AWAITED = 3,   /* nobody came to await this token in time */
	SPRI_VERBS_REJECT_BUSY = 4,	     /* too many requests wait */
	SPRI_VERBS_REJECT_RESOURCES = 5,     /* no queue pair could be made */
};

void spri_verbs_reject_encode(enum spri_verbs_reject reason, uint8_t out[SPRI_VERBS_REJECT_BYTES]);
/* Returns the reason, 0 when the bytes are none of ours; *version is who says it. */
unsigned spri_verbs_reject_decode(const void *bytes, size_t n, unsigned *version);
/* "the peer did not await this connection in time". Static. */
const char *spri_verbs_reject_text(unsigned reason);

/* ---- messages: SENDs on the queue pair ---- */

enum {
	SPRI_VERBS_MESSAGE_TYPE = 0,	  /* u8: below */
	SPRI_VERBS_MESSAGE_RESERVED = 1,  /* 3 bytes: 0 */
	SPRI_VERBS_MESSAGE_IMMEDIATE = 4, /* u32: NOTIFY: the caller's; else 0 */
	SPRI_VERBS_MESSAGE_CREDITS = 8,	  /* u32: notifications allowed since the hello, all told */
	SPRI_VERBS_MESSAGE_RESERVED2 = 12, /* u32: 0 */
	SPRI_VERBS_MESSAGE_BYTES = 16,
};

enum spri_verbs_message_type {
	SPRI_VERBS_NOTIFY = 1,	 /* iWARP: the immediate of the write before it */
	SPRI_VERBS_CONFIRM = 2,	 /* active end, once, before all others: the accept arrived */
	SPRI_VERBS_CREDIT = 3,	 /* only for its credits */
	SPRI_VERBS_GOODBYE = 4,	 /* the sender posts nothing more */
	SPRI_VERBS_FAREWELL = 5, /* answer to GOODBYE: nothing more comes from here either */
	SPRI_VERBS_REFUSED = 6,	 /* the connection is lost: a write that no device may see */
};

struct spri_verbs_message {
	uint8_t type;
	uint32_t immediate;
	uint32_t credits;
};

void spri_verbs_message_encode(const struct spri_verbs_message *message,
			       uint8_t out[SPRI_VERBS_MESSAGE_BYTES]);
/* Returns 0 or SPR_EPROTOCOL: another length, an unknown type, reserved bytes that are not 0. */
int spri_verbs_message_decode(const uint8_t *p, size_t n, struct spri_verbs_message *out) SPRI_MUST;

#endif
