/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Between bytes and structs; see wire.h. Pure functions. */
#include "wire.h"

#include <internal/bytes.h>

#include <string.h>

#define HELLO_MAGIC 0x48525053u	 /* "SPRH" */
#define ANSWER_MAGIC 0x41525053u /* "SPRA" */

/* Each field follows the one before, and the whole is what it says. */
#define FOLLOWS(a, bytes, b) _Static_assert((a) + (bytes) == (b), #b " does not follow " #a)
FOLLOWS(SPRI_BLOB_VERSION, 2, SPRI_BLOB_COUNT);
FOLLOWS(SPRI_BLOB_COUNT, 2, SPRI_BLOB_RESERVED);
FOLLOWS(SPRI_BLOB_RESERVED, 4, SPRI_BLOB_PORT_ID);
FOLLOWS(SPRI_BLOB_PORT_ID, SPRI_PORT_ID_BYTES, SPRI_BLOB_ADDRESSES);
FOLLOWS(SPRI_BLOB_AT_FAMILY, 2, SPRI_BLOB_AT_PORT);
FOLLOWS(SPRI_BLOB_AT_PORT, 2, SPRI_BLOB_AT_HOST);
FOLLOWS(SPRI_BLOB_AT_HOST, 16, SPRI_BLOB_EACH);
FOLLOWS(SPRI_HELLO_MAGIC, 4, SPRI_HELLO_VERSION);
FOLLOWS(SPRI_HELLO_VERSION, 2, SPRI_HELLO_LENGTH);
FOLLOWS(SPRI_HELLO_LENGTH, 2, SPRI_HELLO_FEATURES);
FOLLOWS(SPRI_HELLO_FEATURES, 8, SPRI_HELLO_TO);
FOLLOWS(SPRI_HELLO_TO, SPRI_PORT_ID_BYTES, SPRI_HELLO_FROM);
FOLLOWS(SPRI_HELLO_FROM, SPRI_PORT_ID_BYTES, SPRI_HELLO_ID);
FOLLOWS(SPRI_HELLO_ID, 8, SPRI_HELLO_PRIVATE);
FOLLOWS(SPRI_HELLO_PRIVATE, SPRI_PRIVATE_BYTES, SPRI_HELLO_RESERVED);
FOLLOWS(SPRI_HELLO_RESERVED, SPRI_WIRE_RESERVED_BYTES, SPRI_HELLO_BYTES);
FOLLOWS(SPRI_ANSWER_MAGIC, 4, SPRI_ANSWER_VERSION);
FOLLOWS(SPRI_ANSWER_VERSION, 2, SPRI_ANSWER_LENGTH);
FOLLOWS(SPRI_ANSWER_LENGTH, 2, SPRI_ANSWER_FEATURES);
FOLLOWS(SPRI_ANSWER_FEATURES, 8, SPRI_ANSWER_STATUS);
FOLLOWS(SPRI_ANSWER_STATUS, 4, SPRI_ANSWER_RESERVED);
FOLLOWS(SPRI_ANSWER_RESERVED, 4, SPRI_ANSWER_PRIVATE);
FOLLOWS(SPRI_ANSWER_PRIVATE, SPRI_PRIVATE_BYTES, SPRI_ANSWER_RESERVED2);
FOLLOWS(SPRI_ANSWER_RESERVED2, SPRI_WIRE_RESERVED_BYTES, SPRI_ANSWER_BYTES);
FOLLOWS(SPRI_FRAME_TYPE, 2, SPRI_FRAME_FLAGS);
FOLLOWS(SPRI_FRAME_FLAGS, 2, SPRI_FRAME_IMMEDIATE);
FOLLOWS(SPRI_FRAME_IMMEDIATE, 4, SPRI_FRAME_ADDRESS);
FOLLOWS(SPRI_FRAME_ADDRESS, 8, SPRI_FRAME_LENGTH);
FOLLOWS(SPRI_FRAME_LENGTH, 8, SPRI_FRAME_KEY);
FOLLOWS(SPRI_FRAME_KEY, SPRI_KEY_BYTES, SPRI_FRAME_BYTES);
#undef FOLLOWS
_Static_assert((int)SPRI_BLOB_ADDRESSES + (int)SPRI_BLOB_MOST * (int)SPRI_BLOB_EACH <=
		       SPRI_ADDRESS_BYTES,
	       "the largest blob fits");
_Static_assert((int)SPRI_HELLO_BYTES <= (int)SPRI_HELLO_MOST, "our hello is not too long");
_Static_assert((int)SPRI_ANSWER_BYTES <= (int)SPRI_ANSWER_MOST, "our answer is not too long");

/* ---- address blob ---- */

size_t spri_blob_encode(const struct spri_blob *blob, uint8_t out[SPRI_ADDRESS_BYTES])
{
	assert(blob->n >= 1 && blob->n <= SPRI_BLOB_MOST);
	spri_put_u16(out + SPRI_BLOB_VERSION, SPRI_BLOB_FORMAT);
	spri_put_u16(out + SPRI_BLOB_COUNT, (uint16_t)blob->n);
	spri_put_u32(out + SPRI_BLOB_RESERVED, 0);
	memcpy(out + SPRI_BLOB_PORT_ID, blob->id, SPRI_PORT_ID_BYTES);
	for (unsigned i = 0; i < blob->n; i++) {
		uint8_t *p = out + SPRI_BLOB_ADDRESSES + i * SPRI_BLOB_EACH;

		spri_put_u16(p + SPRI_BLOB_AT_FAMILY, blob->addresses[i].family);
		spri_put_u16(p + SPRI_BLOB_AT_PORT, blob->addresses[i].port);
		memcpy(p + SPRI_BLOB_AT_HOST, blob->addresses[i].host, 16);
	}
	return SPRI_BLOB_ADDRESSES + blob->n * SPRI_BLOB_EACH;
}

int spri_blob_decode(const void *bytes, size_t n, struct spri_blob *out)
{
	const uint8_t *p = bytes;
	struct spri_blob blob = {.n = 0};

	if (!p || n < SPRI_BLOB_ADDRESSES ||
	    spri_get_u16(p + SPRI_BLOB_VERSION) != SPRI_BLOB_FORMAT)
		return SPR_EARGUMENT;
	blob.n = spri_get_u16(p + SPRI_BLOB_COUNT);
	if (blob.n < 1 || blob.n > SPRI_BLOB_MOST ||
	    n != SPRI_BLOB_ADDRESSES + blob.n * SPRI_BLOB_EACH)
		return SPR_EARGUMENT;
	memcpy(blob.id, p + SPRI_BLOB_PORT_ID, SPRI_PORT_ID_BYTES);
	p += SPRI_BLOB_ADDRESSES;
	for (unsigned i = 0; i < blob.n; i++, p += SPRI_BLOB_EACH) {
		struct spri_wire_address *a = &blob.addresses[i];

		a->family = spri_get_u16(p + SPRI_BLOB_AT_FAMILY);
		a->port = spri_get_u16(p + SPRI_BLOB_AT_PORT);
		memcpy(a->host, p + SPRI_BLOB_AT_HOST, 16);
		if ((a->family != 4 && a->family != 6) || a->port == 0)
			return SPR_EARGUMENT;
	}
	*out = blob;
	return 0;
}

/* ---- hello and answer ---- */

/* True while the n bytes at p may be the beginning of a message with this magic. */
static bool magic_fits(const uint8_t *p, size_t n, uint32_t magic)
{
	uint8_t want[4];

	spri_put_u32(want, magic);
	return memcmp(p, want, n < 4 ? n : 4) == 0;
}

/*
 * What both have in common: magic, version and length. `frozen` bytes are there in every
 * version, `ours` in this one. Returns 0 and *bytes when the message is whole.
 */
static int whole(const uint8_t *p, size_t n, uint32_t magic, size_t frozen, size_t ours,
		 size_t most, size_t *bytes)
{
	size_t length, least;

	if (!magic_fits(p, n, magic))
		return SPR_EPROTOCOL;
	if (n < SPRI_HELLO_FEATURES)
		return SPRI_AGAIN;
	length = spri_get_u16(p + SPRI_HELLO_LENGTH);
	least = spri_get_u16(p + SPRI_HELLO_VERSION) == SPRI_WIRE_VERSION ? ours : frozen;
	if (length < least || length > most)
		return SPR_EPROTOCOL;
	*bytes = length;
	return n < length ? SPRI_AGAIN : 0;
}

void spri_hello_encode(const struct spri_hello *hello, uint8_t out[SPRI_HELLO_BYTES])
{
	spri_put_u32(out + SPRI_HELLO_MAGIC, HELLO_MAGIC);
	spri_put_u16(out + SPRI_HELLO_VERSION, hello->version);
	spri_put_u16(out + SPRI_HELLO_LENGTH, SPRI_HELLO_BYTES);
	spri_put_u64(out + SPRI_HELLO_FEATURES, hello->features);
	memcpy(out + SPRI_HELLO_TO, hello->to, SPRI_PORT_ID_BYTES);
	memcpy(out + SPRI_HELLO_FROM, hello->from, SPRI_PORT_ID_BYTES);
	spri_put_u64(out + SPRI_HELLO_ID, hello->id);
	memcpy(out + SPRI_HELLO_PRIVATE, hello->private_data, SPRI_PRIVATE_BYTES);
	memset(out + SPRI_HELLO_RESERVED, 0, SPRI_WIRE_RESERVED_BYTES);
}

int spri_hello_decode(const uint8_t *p, size_t n, struct spri_hello *out)
{
	size_t bytes = 0;
	int r = whole(p, n, HELLO_MAGIC, SPRI_HELLO_PRIVATE, SPRI_HELLO_BYTES, SPRI_HELLO_MOST,
		      &bytes);

	if (r != 0)
		return r;
	memset(out, 0, sizeof *out);
	out->version = spri_get_u16(p + SPRI_HELLO_VERSION);
	out->features = spri_get_u64(p + SPRI_HELLO_FEATURES);
	memcpy(out->to, p + SPRI_HELLO_TO, SPRI_PORT_ID_BYTES);
	memcpy(out->from, p + SPRI_HELLO_FROM, SPRI_PORT_ID_BYTES);
	out->id = spri_get_u64(p + SPRI_HELLO_ID);
	if (out->version == SPRI_WIRE_VERSION)
		memcpy(out->private_data, p + SPRI_HELLO_PRIVATE, SPRI_PRIVATE_BYTES);
	return 0;
}

void spri_answer_encode(const struct spri_answer *answer, uint8_t out[SPRI_ANSWER_BYTES])
{
	spri_put_u32(out + SPRI_ANSWER_MAGIC, ANSWER_MAGIC);
	spri_put_u16(out + SPRI_ANSWER_VERSION, answer->version);
	spri_put_u16(out + SPRI_ANSWER_LENGTH, SPRI_ANSWER_BYTES);
	spri_put_u64(out + SPRI_ANSWER_FEATURES, answer->features);
	spri_put_u32(out + SPRI_ANSWER_STATUS, answer->status);
	spri_put_u32(out + SPRI_ANSWER_RESERVED, 0);
	memcpy(out + SPRI_ANSWER_PRIVATE, answer->private_data, SPRI_PRIVATE_BYTES);
	memset(out + SPRI_ANSWER_RESERVED2, 0, SPRI_WIRE_RESERVED_BYTES);
}

int spri_answer_decode(const uint8_t *p, size_t n, struct spri_answer *out, size_t *used)
{
	size_t bytes = 0;
	int r = whole(p, n, ANSWER_MAGIC, SPRI_ANSWER_PRIVATE, SPRI_ANSWER_BYTES, SPRI_ANSWER_MOST,
		      &bytes);

	if (r != 0)
		return r;
	memset(out, 0, sizeof *out);
	out->version = spri_get_u16(p + SPRI_ANSWER_VERSION);
	out->features = spri_get_u64(p + SPRI_ANSWER_FEATURES);
	out->status = spri_get_u32(p + SPRI_ANSWER_STATUS);
	if (out->version == SPRI_WIRE_VERSION)
		memcpy(out->private_data, p + SPRI_ANSWER_PRIVATE, SPRI_PRIVATE_BYTES);
	*used = bytes;
	return 0;
}

const char *spri_answer_text(uint32_t status)
{
	switch (status) {
	case SPRI_ANSWER_ACCEPTED:
		return "accepted";
	case SPRI_ANSWER_PARKED:
		return "the peer does not await this connection yet";
	case SPRI_ANSWER_WRONG_PORT:
		return "another process answers there";
	case SPRI_ANSWER_OTHER_VERSION:
		return "another protocol version";
	case SPRI_ANSWER_FEATURE:
		return "the peer lacks a protocol feature that this side needs";
	case SPRI_ANSWER_NOT_AWAITED:
		return "the peer did not await this connection in time";
	case SPRI_ANSWER_BUSY:
		return "the peer has too many connections waiting";
	default:
		return "refused for a reason unknown to this version";
	}
}

/* ---- frames ---- */

void spri_frame_encode(const struct spri_frame *frame, uint8_t out[SPRI_FRAME_BYTES])
{
	spri_put_u16(out + SPRI_FRAME_TYPE, frame->type);
	spri_put_u16(out + SPRI_FRAME_FLAGS, frame->flags);
	spri_put_u32(out + SPRI_FRAME_IMMEDIATE, frame->immediate);
	spri_put_u64(out + SPRI_FRAME_ADDRESS, frame->address);
	spri_put_u64(out + SPRI_FRAME_LENGTH, frame->length);
	memcpy(out + SPRI_FRAME_KEY, frame->key, SPRI_KEY_BYTES);
}

int spri_frame_decode(const uint8_t p[SPRI_FRAME_BYTES], struct spri_frame *out)
{
	static const uint8_t no_key[SPRI_KEY_BYTES];
	struct spri_frame f = {
		.type = spri_get_u16(p + SPRI_FRAME_TYPE),
		.flags = spri_get_u16(p + SPRI_FRAME_FLAGS),
		.immediate = spri_get_u32(p + SPRI_FRAME_IMMEDIATE),
		.address = spri_get_u64(p + SPRI_FRAME_ADDRESS),
		.length = spri_get_u64(p + SPRI_FRAME_LENGTH),
	};

	memcpy(f.key, p + SPRI_FRAME_KEY, SPRI_KEY_BYTES);
	*out = f;
	if (f.type < SPRI_FRAME_WRITE || f.type > SPRI_FRAME_REFUSED)
		return SPR_EPROTOCOL;
	if (f.type == SPRI_FRAME_WRITE) {
		bool notify = f.flags & SPRI_FRAME_NOTIFY;

		return f.flags & ~SPRI_FRAME_NOTIFY || (!notify && f.immediate) ? SPR_EPROTOCOL : 0;
	}
	if (f.flags || f.address || f.length || memcmp(f.key, no_key, SPRI_KEY_BYTES) != 0)
		return SPR_EPROTOCOL;
	return f.immediate && f.type != SPRI_FRAME_REFUSED ? SPR_EPROTOCOL : 0;
}

const char *spri_refusal_text(uint32_t reason)
{
	switch (reason) {
	case SPRI_REFUSED_KEY:
		return "unknown key";
	case SPRI_REFUSED_BOUNDS:
		return "out of bounds";
	case SPRI_REFUSED_PERMISSION:
		return "no permission to write there";
	case SPRI_REFUSED_WITHDRAWN:
		return "the memory was unregistered";
	case SPRI_REFUSED_FRAME:
		return "malformed frame";
	default:
		return "a reason unknown to this version";
	}
}
