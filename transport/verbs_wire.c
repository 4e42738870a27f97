/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Between bytes and structs of verbs; see verbs_wire.h. Pure functions, built with and without
 * libibverbs.
 */
#include "verbs_wire.h"

#include <internal/bits.h>
#include <internal/bytes.h>

#include <string.h>

#define MAGIC 0x5653u /* "SV" */

/* Each field follows the one before, and the whole is what it says. */
#define FOLLOWS(a, bytes, b) _Static_assert((a) + (bytes) == (b), #b " does not follow " #a)
FOLLOWS(SPRI_VERBS_BLOB_FORMAT_AT, 2, SPRI_VERBS_BLOB_COUNT);
FOLLOWS(SPRI_VERBS_BLOB_COUNT, 2, SPRI_VERBS_BLOB_RESERVED);
FOLLOWS(SPRI_VERBS_BLOB_RESERVED, 4, SPRI_VERBS_BLOB_PORT_ID);
FOLLOWS(SPRI_VERBS_BLOB_PORT_ID, SPRI_VERBS_PORT_ID_BYTES, SPRI_VERBS_BLOB_ADDRESSES);
FOLLOWS(SPRI_VERBS_BLOB_AT_FAMILY, 1, SPRI_VERBS_BLOB_AT_KIND);
FOLLOWS(SPRI_VERBS_BLOB_AT_KIND, 1, SPRI_VERBS_BLOB_AT_PORT);
FOLLOWS(SPRI_VERBS_BLOB_AT_PORT, 2, SPRI_VERBS_BLOB_AT_RESERVED);
FOLLOWS(SPRI_VERBS_BLOB_AT_RESERVED, 4, SPRI_VERBS_BLOB_AT_HOST);
FOLLOWS(SPRI_VERBS_BLOB_AT_HOST, 16, SPRI_VERBS_BLOB_EACH);
FOLLOWS(SPRI_VERBS_HELLO_MAGIC, 2, SPRI_VERBS_HELLO_VERSION);
FOLLOWS(SPRI_VERBS_HELLO_VERSION, 1, SPRI_VERBS_HELLO_FEATURES);
FOLLOWS(SPRI_VERBS_HELLO_FEATURES, 1, SPRI_VERBS_HELLO_DEVICE);
FOLLOWS(SPRI_VERBS_HELLO_DEVICE, 1, SPRI_VERBS_HELLO_MTU);
FOLLOWS(SPRI_VERBS_HELLO_MTU, 1, SPRI_VERBS_HELLO_CREDITS);
FOLLOWS(SPRI_VERBS_HELLO_CREDITS, 2, SPRI_VERBS_HELLO_TOKEN);
FOLLOWS(SPRI_VERBS_HELLO_TOKEN, 8, SPRI_VERBS_HELLO_PRIVATE);
FOLLOWS(SPRI_VERBS_HELLO_PRIVATE, SPRI_PRIVATE_BYTES, SPRI_VERBS_HELLO_BYTES);
FOLLOWS(SPRI_VERBS_REJECT_MAGIC, 2, SPRI_VERBS_REJECT_VERSION);
FOLLOWS(SPRI_VERBS_REJECT_VERSION, 1, SPRI_VERBS_REJECT_REASON);
FOLLOWS(SPRI_VERBS_REJECT_REASON, 1, SPRI_VERBS_REJECT_BYTES);
FOLLOWS(SPRI_VERBS_MESSAGE_TYPE, 1, SPRI_VERBS_MESSAGE_RESERVED);
FOLLOWS(SPRI_VERBS_MESSAGE_RESERVED, 3, SPRI_VERBS_MESSAGE_IMMEDIATE);
FOLLOWS(SPRI_VERBS_MESSAGE_IMMEDIATE, 4, SPRI_VERBS_MESSAGE_CREDITS);
FOLLOWS(SPRI_VERBS_MESSAGE_CREDITS, 4, SPRI_VERBS_MESSAGE_RESERVED2);
FOLLOWS(SPRI_VERBS_MESSAGE_RESERVED2, 4, SPRI_VERBS_MESSAGE_BYTES);
#undef FOLLOWS
_Static_assert((int)SPRI_VERBS_BLOB_ADDRESSES +
			       (int)SPRI_VERBS_BLOB_MOST * (int)SPRI_VERBS_BLOB_EACH <=
		       SPRI_ADDRESS_BYTES,
	       "the largest blob fits");
_Static_assert((int)SPRI_VERBS_HELLO_BYTES <= 56, "rdma_cm carries 56 bytes in every port space");

/* ---- address blob ---- */

size_t spri_verbs_blob_encode(const struct spri_verbs_blob *blob, uint8_t out[SPRI_ADDRESS_BYTES])
{
	assert(blob->n >= 1 && blob->n <= SPRI_VERBS_BLOB_MOST);
	spri_put_u16(out + SPRI_VERBS_BLOB_FORMAT_AT, SPRI_VERBS_BLOB_FORMAT);
	spri_put_u16(out + SPRI_VERBS_BLOB_COUNT, (uint16_t)blob->n);
	spri_put_u32(out + SPRI_VERBS_BLOB_RESERVED, 0);
	memcpy(out + SPRI_VERBS_BLOB_PORT_ID, blob->id, sizeof blob->id);
	for (unsigned i = 0; i < blob->n; i++) {
		uint8_t *p = out + SPRI_VERBS_BLOB_ADDRESSES + i * SPRI_VERBS_BLOB_EACH;

		p[SPRI_VERBS_BLOB_AT_FAMILY] = blob->addresses[i].family;
		p[SPRI_VERBS_BLOB_AT_KIND] = blob->addresses[i].kind;
		spri_put_u16(p + SPRI_VERBS_BLOB_AT_PORT, blob->addresses[i].port);
		spri_put_u32(p + SPRI_VERBS_BLOB_AT_RESERVED, 0);
		memcpy(p + SPRI_VERBS_BLOB_AT_HOST, blob->addresses[i].host, 16);
	}
	return SPRI_VERBS_BLOB_ADDRESSES + blob->n * SPRI_VERBS_BLOB_EACH;
}

static bool address_decode(const uint8_t *p, struct spri_verbs_address *out)
{
	out->family = p[SPRI_VERBS_BLOB_AT_FAMILY];
	out->kind = p[SPRI_VERBS_BLOB_AT_KIND];
	out->port = spri_get_u16(p + SPRI_VERBS_BLOB_AT_PORT);
	memcpy(out->host, p + SPRI_VERBS_BLOB_AT_HOST, 16);
	return (out->family == 4 || out->family == 6) && out->kind >= SPRI_VERBS_IB &&
	       out->kind <= SPRI_VERBS_IWARP && out->port != 0;
}

int spri_verbs_blob_decode(const void *bytes, size_t n, struct spri_verbs_blob *out)
{
	const uint8_t *p = bytes;
	unsigned count;

	if (n < SPRI_VERBS_BLOB_ADDRESSES ||
	    spri_get_u16(p + SPRI_VERBS_BLOB_FORMAT_AT) != SPRI_VERBS_BLOB_FORMAT)
		return SPR_EARGUMENT;
	count = spri_get_u16(p + SPRI_VERBS_BLOB_COUNT);
	if (count < 1 || count > SPRI_VERBS_BLOB_MOST ||
	    n != SPRI_VERBS_BLOB_ADDRESSES + count * SPRI_VERBS_BLOB_EACH)
		return SPR_EARGUMENT;
	memset(out, 0, sizeof *out);
	memcpy(out->id, p + SPRI_VERBS_BLOB_PORT_ID, sizeof out->id);
	for (unsigned i = 0; i < count; i++)
		if (!address_decode(p + SPRI_VERBS_BLOB_ADDRESSES + i * SPRI_VERBS_BLOB_EACH,
				    &out->addresses[i]))
			return SPR_EARGUMENT;
	out->n = count;
	return 0;
}

/* ---- hello, reject ---- */

void spri_verbs_hello_encode(const struct spri_verbs_hello *hello,
			     uint8_t out[SPRI_VERBS_HELLO_BYTES])
{
	spri_put_u16(out + SPRI_VERBS_HELLO_MAGIC, MAGIC);
	out[SPRI_VERBS_HELLO_VERSION] = hello->version;
	out[SPRI_VERBS_HELLO_FEATURES] = hello->features;
	out[SPRI_VERBS_HELLO_DEVICE] = hello->device;
	out[SPRI_VERBS_HELLO_MTU] = hello->mtu;
	spri_put_u16(out + SPRI_VERBS_HELLO_CREDITS, hello->credits);
	spri_put_u64(out + SPRI_VERBS_HELLO_TOKEN, hello->token);
	memcpy(out + SPRI_VERBS_HELLO_PRIVATE, hello->private_data, SPRI_PRIVATE_BYTES);
}

int spri_verbs_hello_decode(const void *bytes, size_t n, struct spri_verbs_hello *out)
{
	const uint8_t *p = bytes;

	memset(out, 0, sizeof *out);
	if (n < SPRI_VERBS_HELLO_FEATURES || spri_get_u16(p + SPRI_VERBS_HELLO_MAGIC) != MAGIC)
		return SPR_EPROTOCOL;
	out->version = p[SPRI_VERBS_HELLO_VERSION];
	if (out->version != SPRI_VERBS_VERSION)
		return 0;
	if (n < SPRI_VERBS_HELLO_BYTES)
		return SPR_EPROTOCOL;
	out->features = p[SPRI_VERBS_HELLO_FEATURES];
	out->device = p[SPRI_VERBS_HELLO_DEVICE];
	out->mtu = p[SPRI_VERBS_HELLO_MTU];
	out->credits = spri_get_u16(p + SPRI_VERBS_HELLO_CREDITS);
	out->token = spri_get_u64(p + SPRI_VERBS_HELLO_TOKEN);
	memcpy(out->private_data, p + SPRI_VERBS_HELLO_PRIVATE, SPRI_PRIVATE_BYTES);
	if (out->device >= SPRI_KEY_BYTES / 4 || out->mtu < 1 || out->mtu > 5 || out->credits == 0)
		return SPR_EPROTOCOL;
	return 0;
}

uint64_t spri_verbs_token(const uint8_t *from, const uint8_t *to, uint64_t id)
{
	uint64_t token = spri_mix64(id);

	for (unsigned at = 0; at < SPRI_VERBS_PORT_ID_BYTES; at += 8)
		token = spri_mix64(token ^ spri_get_u64(from + at));
	for (unsigned at = 0; at < SPRI_VERBS_PORT_ID_BYTES; at += 8)
		token = spri_mix64(token ^ spri_get_u64(to + at));
	return token;
}

void spri_verbs_reject_encode(enum spri_verbs_reject reason, uint8_t out[SPRI_VERBS_REJECT_BYTES])
{
	spri_put_u16(out + SPRI_VERBS_REJECT_MAGIC, MAGIC);
	out[SPRI_VERBS_REJECT_VERSION] = SPRI_VERBS_VERSION;
	out[SPRI_VERBS_REJECT_REASON] = (uint8_t)reason;
}

unsigned spri_verbs_reject_decode(const void *bytes, size_t n, unsigned *version)
{
	const uint8_t *p = bytes;

	if (!p || n < SPRI_VERBS_REJECT_BYTES || spri_get_u16(p + SPRI_VERBS_REJECT_MAGIC) != MAGIC)
		return 0;
	*version = p[SPRI_VERBS_REJECT_VERSION];
	return p[SPRI_VERBS_REJECT_REASON];
}

const char *spri_verbs_reject_text(unsigned reason)
{
	switch (reason) {
	case SPRI_VERBS_REJECT_OTHER_VERSION:
		return "the peer speaks another version of the protocol";
	case SPRI_VERBS_REJECT_FEATURE:
		return "the peer does not know a feature that this side needs";
	case SPRI_VERBS_REJECT_NOT_AWAITED:
		return "the peer did not await this connection in time";
	case SPRI_VERBS_REJECT_BUSY:
		return "too many connection requests wait at the peer";
	case SPRI_VERBS_REJECT_RESOURCES:
		return "the peer could not make a queue pair";
	default:
		return "the peer gave a reason that this version does not know";
	}
}

/* ---- messages ---- */

void spri_verbs_message_encode(const struct spri_verbs_message *message,
			       uint8_t out[SPRI_VERBS_MESSAGE_BYTES])
{
	memset(out, 0, SPRI_VERBS_MESSAGE_BYTES);
	out[SPRI_VERBS_MESSAGE_TYPE] = message->type;
	spri_put_u32(out + SPRI_VERBS_MESSAGE_IMMEDIATE, message->immediate);
	spri_put_u32(out + SPRI_VERBS_MESSAGE_CREDITS, message->credits);
}

int spri_verbs_message_decode(const uint8_t *p, size_t n, struct spri_verbs_message *out)
{
	if (n != SPRI_VERBS_MESSAGE_BYTES)
		return SPR_EPROTOCOL;
	out->type = p[SPRI_VERBS_MESSAGE_TYPE];
	out->immediate = spri_get_u32(p + SPRI_VERBS_MESSAGE_IMMEDIATE);
	out->credits = spri_get_u32(p + SPRI_VERBS_MESSAGE_CREDITS);
	if (out->type < SPRI_VERBS_NOTIFY || out->type > SPRI_VERBS_REFUSED ||
	    (out->type != SPRI_VERBS_NOTIFY && out->immediate != 0) || (p[1] | p[2] | p[3]) != 0 ||
	    spri_get_u32(p + SPRI_VERBS_MESSAGE_RESERVED2) != 0)
		return SPR_EPROTOCOL;
	return 0;
}
