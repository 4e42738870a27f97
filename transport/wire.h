/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The bytes that tcp puts on the wire and into its address blob: offsets, sizes, and the
 * functions between bytes and structs. Little-endian, every field aligned to its size.
 * docs/wire.md, "TCP", has the same tables in the same order; tests/transport/test_wire.c has
 * recorded bytes.
 *
 * Decoders check what can be checked without knowing the connection; they read each byte
 * once and never past what they are told is there.
 */
#ifndef SPRI_WIRE_H
#define SPRI_WIRE_H

#include "transport.h"

#define SPRI_WIRE_VERSION 1
#define SPRI_PORT_ID_BYTES 16
#define SPRI_WIRE_RESERVED_BYTES 16 /* behind the caller's bytes, for later versions */

/* ---- address blob ---- */

enum {
	SPRI_BLOB_VERSION = 0,	/* u16: SPRI_BLOB_FORMAT */
	SPRI_BLOB_COUNT = 2,	/* u16: addresses that follow, 1 … SPRI_BLOB_MOST */
	SPRI_BLOB_RESERVED = 4, /* u32: 0 */
	SPRI_BLOB_PORT_ID = 8,	/* 16 bytes: random, of this port */
	SPRI_BLOB_ADDRESSES = 24,

	SPRI_BLOB_AT_FAMILY = 0, /* u16 in each address: 4 or 6 */
	SPRI_BLOB_AT_PORT = 2,	 /* u16: TCP port */
	SPRI_BLOB_AT_HOST = 4,	 /* 16 bytes, network order; IPv4: the first four, the rest 0 */
	SPRI_BLOB_EACH = 20,
	SPRI_BLOB_MOST = 24,
	SPRI_BLOB_FORMAT = 1,
};

/* One way to reach a port. */
struct spri_wire_address {
	uint16_t family; /* 4 or 6 */
	uint16_t port;	 /* TCP port, host order */
	uint8_t host[16];
};

/* A decoded blob. */
struct spri_blob {
	uint8_t id[SPRI_PORT_ID_BYTES];
	unsigned n;
	struct spri_wire_address addresses[SPRI_BLOB_MOST];
};

/* Returns the length; blob->n must be 1 … SPRI_BLOB_MOST. */
size_t spri_blob_encode(const struct spri_blob *blob, uint8_t out[SPRI_ADDRESS_BYTES]);
/* Returns 0 or SPR_EARGUMENT: not such a blob. */
int spri_blob_decode(const void *bytes, size_t n, struct spri_blob *out) SPRI_MUST;

/* ---- hello: the active end's first bytes. Up to PRIVATE the same in every version ---- */

enum {
	SPRI_HELLO_MAGIC = 0,	  /* u32: "SPRH" */
	SPRI_HELLO_VERSION = 4,	  /* u16 */
	SPRI_HELLO_LENGTH = 6,	  /* u16: bytes of this hello; those not known are skipped */
	SPRI_HELLO_FEATURES = 8,  /* u64: bits 0–31 offered, bits 32–63 required */
	SPRI_HELLO_TO = 16,	  /* 16 bytes: the port that is wanted */
	SPRI_HELLO_FROM = 32,	  /* 16 bytes: the port that asks */
	SPRI_HELLO_ID = 48,	  /* u64: connection id */
	SPRI_HELLO_PRIVATE = 56,  /* 40 bytes of the caller's */
	SPRI_HELLO_RESERVED = 96, /* 16 bytes: sent as 0, not read */
	SPRI_HELLO_BYTES = 112,
	SPRI_HELLO_MOST = 256, /* longest hello of any version */
};

struct spri_hello {
	uint16_t version;
	uint64_t features;
	uint8_t to[SPRI_PORT_ID_BYTES];
	uint8_t from[SPRI_PORT_ID_BYTES];
	uint64_t id;
	uint8_t private_data[SPRI_PRIVATE_BYTES]; /* zeros when the version is not ours */
};

void spri_hello_encode(const struct spri_hello *hello, uint8_t out[SPRI_HELLO_BYTES]);
/*
 * Looks at `n` bytes so far. Returns 0 (whole), SPRI_AGAIN (so far so good), SPR_EPROTOCOL (no
 * hello).
 */
int spri_hello_decode(const uint8_t *p, size_t n, struct spri_hello *out) SPRI_MUST;

/* ---- answer: the passive end's, once or twice. Up to PRIVATE the same in every version ---- */

enum {
	SPRI_ANSWER_MAGIC = 0,	    /* u32: "SPRA" */
	SPRI_ANSWER_VERSION = 4,    /* u16: of the side that answers */
	SPRI_ANSWER_LENGTH = 6,	    /* u16: bytes of this answer; those not known are skipped */
	SPRI_ANSWER_FEATURES = 8,   /* u64: as in the hello */
	SPRI_ANSWER_STATUS = 16,    /* u32: below */
	SPRI_ANSWER_RESERVED = 20,  /* u32: sent as 0, not read */
	SPRI_ANSWER_PRIVATE = 24,   /* 40 bytes of the caller's; zeros unless accepted */
	SPRI_ANSWER_RESERVED2 = 64, /* 16 bytes: sent as 0, not read */
	SPRI_ANSWER_BYTES = 80,
	SPRI_ANSWER_MOST = 256,
};

/* Status of an answer. Numbers are never used again for another meaning. */
enum spri_answer_status {
	SPRI_ANSWER_ACCEPTED = 0, /* the last answer: frames follow */
	SPRI_ANSWER_PARKED =
		1, /* the right port, which does not await this id yet: another answer follows */
	SPRI_ANSWER_WRONG_PORT = 2,    /* another port than the hello wants */
	SPRI_ANSWER_OTHER_VERSION = 3, /* see the version field */
	SPRI_ANSWER_FEATURE = 4,       /* a required feature is not known here */
	SPRI_ANSWER_NOT_AWAITED = 5,   /* nobody came to await this id in time */
	SPRI_ANSWER_BUSY = 6,	       /* too many hellos are parked */
};

struct spri_answer {
	uint16_t version;
	uint64_t features;
	uint32_t status;
	uint8_t private_data[SPRI_PRIVATE_BYTES];
};

void spri_answer_encode(const struct spri_answer *answer, uint8_t out[SPRI_ANSWER_BYTES]);
/* As spri_hello_decode; *used is the answer's length when it is whole. */
int spri_answer_decode(const uint8_t *p, size_t n, struct spri_answer *out, size_t *used) SPRI_MUST;
/* "another process listens there". Static. */
const char *spri_answer_text(uint32_t status);

/* ---- frames: everything after the handshake, both ways ---- */

enum {
	SPRI_FRAME_TYPE = 0,  /* u16: below */
	SPRI_FRAME_FLAGS = 2, /* u16: SPRI_FRAME_NOTIFY; others must be 0 */
	SPRI_FRAME_IMMEDIATE =
		4, /* u32: WRITE with NOTIFY: the immediate; REFUSED: the reason; else 0 */
	SPRI_FRAME_ADDRESS = 8, /* u64: WRITE: destination; else 0 */
	SPRI_FRAME_LENGTH = 16, /* u64: WRITE: bytes of payload that follow the header; else 0 */
	SPRI_FRAME_KEY = 24,	/* 16 bytes: WRITE: the remote key; else 0 */
	SPRI_FRAME_BYTES = 40,

	SPRI_FRAME_NOTIFY = 1, /* flag: the immediate is to be reported */
};

enum spri_frame_type {
	SPRI_FRAME_WRITE = 1,
	SPRI_FRAME_CONFIRM = 2,	 /* active end, once, before all others: the answer arrived */
	SPRI_FRAME_GOODBYE = 3,	 /* the sender posts nothing more */
	SPRI_FRAME_FAREWELL = 4, /* answer to GOODBYE: the sender has nothing more to send either */
	SPRI_FRAME_REFUSED =
		5, /* the receiver of a frame did not accept it: the connection is lost */
};

/* Reason of REFUSED. */
enum spri_refusal {
	SPRI_REFUSED_KEY = 1,	     /* no grant of this connection has that key */
	SPRI_REFUSED_BOUNDS = 2,     /* not inside the region */
	SPRI_REFUSED_PERMISSION = 3, /* the region may not be written by peers */
	SPRI_REFUSED_WITHDRAWN = 4,  /* the region was unregistered while the payload arrived */
	SPRI_REFUSED_FRAME = 5,	     /* not a frame that is allowed here */
};

struct spri_frame {
	uint16_t type;
	uint16_t flags;
	uint32_t immediate;
	uint64_t address;
	uint64_t length;
	uint8_t key[SPRI_KEY_BYTES];
};

void spri_frame_encode(const struct spri_frame *frame, uint8_t out[SPRI_FRAME_BYTES]);
/* Returns 0 or SPR_EPROTOCOL: unknown type or flag, or a field that its type does not have. */
int spri_frame_decode(const uint8_t p[SPRI_FRAME_BYTES], struct spri_frame *out) SPRI_MUST;
/* "unknown key". Static. */
const char *spri_refusal_text(uint32_t reason);

#endif
