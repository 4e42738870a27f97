/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The header of a chunk (docs/wire.md, "Chunk"): written with pack, read and checked with unpack.
 *
 * Reading, in this order: the 64 bytes are copied out of the landing buffer, which the peer can
 * still write to, and only the copy is looked at; then magic (EPROTOCOL), version (EVERSION:
 * another version may have its checksum elsewhere), checksum, and the fields: anything else that is
 * wrong is EPROTOCOL with a text that says which field. Bytes that version 1 reserves are written
 * as 0 and not looked at.
 */
#include <string.h>

#include <codec/codec.h>
#include <internal/bytes.h>

enum {
	AT_MAGIC = 0,
	AT_VERSION = 2,
	AT_CODEC = 3,
	AT_DTYPE = 4,
	AT_FLAGS = 5,
	AT_ALGO = 6,
	AT_RESERVED = 7,
	AT_SEQ = 8,
	AT_ROUND = 12,
	AT_BLOCK = 16,
	AT_COUNT = 20,
	AT_BASE = 24,
	AT_SIGNATURE = 32,
	AT_STATUS = 40,
	AT_RANK = 44,
	AT_INDEX = 48,
	AT_PAYLOAD_BYTES = 56,
	AT_CRC = 60,
	AT_PAYLOAD = 64,
};
static_assert(AT_PAYLOAD == SPRI_CHUNK_HEADER, "the payload stands behind the header");

#define KNOWN_FLAGS (SPRI_CHUNK_LAST_OF_BLOCK | SPRI_CHUNK_LAST_OF_ROUND)

void spri_chunk_pack(uint8_t *buffer, const struct spri_chunk *chunk)
{
	spri_put_u16(buffer + AT_MAGIC, SPRI_CHUNK_MAGIC);
	buffer[AT_VERSION] = SPRI_CHUNK_VERSION;
	buffer[AT_CODEC] = chunk->codec;
	buffer[AT_DTYPE] = chunk->dtype;
	buffer[AT_FLAGS] = chunk->flags;
	buffer[AT_ALGO] = chunk->algo;
	buffer[AT_RESERVED] = 0;
	spri_put_u32(buffer + AT_SEQ, chunk->seq);
	spri_put_u32(buffer + AT_ROUND, chunk->round);
	spri_put_u32(buffer + AT_BLOCK, chunk->block);
	spri_put_u32(buffer + AT_COUNT, chunk->count);
	spri_put_u64(buffer + AT_BASE, chunk->base);
	spri_put_u64(buffer + AT_SIGNATURE, chunk->signature);
	spri_put_u32(buffer + AT_STATUS, (uint32_t)chunk->outcome.status);
	spri_put_u32(buffer + AT_RANK, chunk->outcome.rank);
	spri_put_u64(buffer + AT_INDEX, chunk->outcome.index);
	spri_put_u32(buffer + AT_PAYLOAD_BYTES, chunk->payload_bytes);
	spri_put_u32(buffer + AT_CRC, spri_crc32c(0, buffer, AT_CRC));
}

/* Fields that the codec decides about. */
static int check_payload(const struct spri_chunk *chunk, size_t room, struct spri_text *text)
{
	const struct spri_codec *codec = spri_codec_find(chunk->codec);
	uint64_t bound;

	if (!codec) {
		spri_text_set(text, "chunk: unknown codec %u", chunk->codec);
		return spri_trace(SPR_EPROTOCOL);
	}
	if (!codec->valued && chunk->dtype != 0) {
		spri_text_set(text, "chunk: dtype %u in codec %s, which has no values",
			      chunk->dtype, codec->name);
		return spri_trace(SPR_EPROTOCOL);
	}
	bound = codec->bound(chunk->count, chunk->dtype);
	if (chunk->payload_bytes > room - SPRI_CHUNK_HEADER) {
		spri_text_set(text, "chunk: %u payload bytes in a buffer of %zu",
			      chunk->payload_bytes, room);
		return spri_trace(SPR_EPROTOCOL);
	}
	if (chunk->payload_bytes > bound || (codec->exact && chunk->payload_bytes != bound)) {
		spri_text_set(text, "chunk: %u payload bytes for %u entries in codec %s",
			      chunk->payload_bytes, chunk->count, codec->name);
		return spri_trace(SPR_EPROTOCOL);
	}
	return 0;
}

static int check_fields(const struct spri_chunk *chunk, struct spri_text *text)
{
	if (chunk->dtype > SPR_BF16) {
		spri_text_set(text, "chunk: unknown dtype %u", chunk->dtype);
		return spri_trace(SPR_EPROTOCOL);
	}
	if (chunk->flags & ~KNOWN_FLAGS) {
		spri_text_set(text, "chunk: unknown flags 0x%x", chunk->flags);
		return spri_trace(SPR_EPROTOCOL);
	}
	if (chunk->outcome.status > 0) {
		spri_text_set(text, "chunk: outcome %d is not an error number",
			      chunk->outcome.status);
		return spri_trace(SPR_EPROTOCOL);
	}
	return 0;
}

int spri_chunk_unpack(const uint8_t *buffer, size_t room, struct spri_chunk *chunk,
		      struct spri_text *text)
{
	uint8_t header[SPRI_CHUNK_HEADER];
	struct spri_chunk read;
	int r;

	if (room < sizeof header) {
		spri_text_set(text, "chunk: a buffer of %zu bytes holds no header", room);
		return spri_trace(SPR_EPROTOCOL);
	}
	memcpy(header, buffer, sizeof header);
	if (spri_get_u16(header + AT_MAGIC) != SPRI_CHUNK_MAGIC) {
		spri_text_set(text, "chunk: magic 0x%04x, expected 0x%04x",
			      spri_get_u16(header + AT_MAGIC), SPRI_CHUNK_MAGIC);
		return spri_trace(SPR_EPROTOCOL);
	}
	if (header[AT_VERSION] != SPRI_CHUNK_VERSION) {
		spri_text_set(text, "chunk: version %u, expected %u", header[AT_VERSION],
			      SPRI_CHUNK_VERSION);
		return spri_trace(SPR_EVERSION);
	}
	if (spri_get_u32(header + AT_CRC) != spri_crc32c(0, header, AT_CRC)) {
		spri_text_set(text, "chunk: the header's checksum is wrong");
		return spri_trace(SPR_EPROTOCOL);
	}
	read = (struct spri_chunk){
		.codec = header[AT_CODEC],
		.dtype = header[AT_DTYPE],
		.flags = header[AT_FLAGS],
		.algo = header[AT_ALGO],
		.seq = spri_get_u32(header + AT_SEQ),
		.round = spri_get_u32(header + AT_ROUND),
		.block = spri_get_u32(header + AT_BLOCK),
		.count = spri_get_u32(header + AT_COUNT),
		.base = spri_get_u64(header + AT_BASE),
		.signature = spri_get_u64(header + AT_SIGNATURE),
		.outcome = {(int32_t)spri_get_u32(header + AT_STATUS),
			    spri_get_u32(header + AT_RANK), spri_get_u64(header + AT_INDEX)},
		.payload_bytes = spri_get_u32(header + AT_PAYLOAD_BYTES),
		.payload = buffer + SPRI_CHUNK_HEADER,
	};
	r = check_fields(&read, text);
	if (r == 0)
		r = check_payload(&read, room, text);
	if (r == 0)
		*chunk = read;
	return r;
}
