/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Chunks: what stands in a landing buffer. A header of 64 bytes (docs/wire.md, "Chunk"), then the
 * payload in one of the codecs of the table (codec.c). Little-endian. The header carries a
 * CRC-32C of itself; payload bytes are the transport's to protect.
 */
#ifndef SPRI_CODEC_H
#define SPRI_CODEC_H

#include <internal/compiler.h>
#include <internal/error.h>
#include <kernel.h>

#define SPRI_CHUNK_HEADER 64u
#define SPRI_CHUNK_MAGIC 0x5053u /* "SP" */
#define SPRI_CHUNK_VERSION 1u

enum {
	SPRI_CHUNK_LAST_OF_BLOCK = 1,
	SPRI_CHUNK_LAST_OF_ROUND = 2, /* carries the outcome so far */
};

/* How an operation stands on the ranks heard of so far. status 0: well. */
struct spri_outcome {
	int32_t status; /* 0, or the error that all ranks are to end with */
	uint32_t rank;	/* who found it; SPRI_NO_RANK: arose in a merge, found by several */
	uint64_t index; /* element, SPRI_NO_INDEX when there is none */
};
#define SPRI_NO_RANK UINT32_MAX

/* The header, unpacked. Offsets on the wire in brackets. */
struct spri_chunk {
	uint8_t codec;	    /* [3] id of the codec; magic u16 is at [0], version u8 at [2] */
	uint8_t dtype;	    /* [4] enum spr_dtype of the values; 0 when there are none */
	uint8_t flags;	    /* [5] SPRI_CHUNK_* */
	uint8_t algo;	    /* [6] id of the algorithm; [7] is 0 */
	uint32_t seq;	    /* [8] number of the operation */
	uint32_t round;	    /* [12] of the algorithm's schedule */
	uint32_t block;	    /* [16] which list or block of the round: the rank it comes from */
	uint32_t count;	    /* [20] entries or elements in the payload */
	uint64_t base;	    /* [24] index of the first entry or element */
	uint64_t signature; /* [32] hash of the call's arguments */
	struct spri_outcome outcome; /* [40] status, [44] rank, [48] index */
	uint32_t payload_bytes;	     /* [56]; CRC-32C of bytes 0-59 is at [60] */
	const uint8_t *payload;	     /* not on the wire: where it stands in the landing buffer */
};

/* Writes the 64 bytes. */
void spri_chunk_pack(uint8_t *buffer, const struct spri_chunk *chunk);
/*
 * Reads and checks a header out of a landing buffer of `room` bytes that the peer can still write
 * to: copied once, then checked (magic, version, CRC, known codec, dtype right for it, payload
 * within room and right for codec, dtype and count). Returns 0; SPR_EVERSION, SPR_EPROTOCOL with a
 * text.
 */
int spri_chunk_unpack(const uint8_t *buffer, size_t room, struct spri_chunk *chunk,
		      struct spri_text *text) SPRI_MUST;

/* One encoding; ids are never reused. */
struct spri_codec {
	uint8_t id;
	const char *name;
	const char *about;
	bool indexed; /* carries indices (sparse), or not (dense, bytes) */
	bool valued;  /* carries values of the chunk's dtype; else that is 0 (masks, bytes) */
	bool exact;   /* a payload of `count` entries has bound(count) bytes, no fewer */
	/* Most entries that any chunk of `room` payload bytes can carry. */
	uint32_t (*most)(size_t room, enum spr_dtype dtype);
	/* Payload bytes of `count` entries, at most. */
	uint64_t (*bound)(uint64_t count, enum spr_dtype dtype);
	/*
	 * Most entries, counted from the first of the n given, that one chunk of `room` payload
	 * bytes can carry (raw32: also bounded by index[i] − index[0] < 2^32). ≥ 1 when n ≥ 1.
	 */
	uint32_t (*fit)(const uint64_t *index, uint64_t n, size_t room, enum spr_dtype dtype);
	/*
	 * Encodes n entries (fit() allows them); returns payload bytes. Values go as dtype: those
	 * that it cannot hold exactly are rounded (spri_round before, to know the errors). Dense
	 * codecs ignore index, mask codecs value; for `bytes`, value points to n bytes.
	 */
	uint32_t (*encode)(uint8_t *payload, const uint64_t *index, const float *value, uint32_t n,
			   enum spr_dtype dtype);
	/*
	 * Decodes chunk->count entries into index/value (dense: value only; masks: index only;
	 * bytes: value points to room for count bytes). All check that payload_bytes is right for
	 * count and dtype before anything is written. Indexed codecs check: strictly ascending,
	 * first equals base, below `length`, and above `after` (SPRI_NO_INDEX: nothing before).
	 * Reads every payload byte once. Returns 0 or SPR_EPROTOCOL.
	 */
	int (*decode)(const struct spri_chunk *chunk, uint64_t *index, float *value, uint64_t after,
		      uint64_t length);
};

enum {
	SPRI_CODEC_RAW32 = 1,  /* offsets and values */
	SPRI_CODEC_DENSE = 2,  /* values */
	SPRI_CODEC_BYTES = 3,  /* octets */
	SPRI_CODEC_PACKED = 4, /* gaps in few bits, and values */
	SPRI_CODEC_GAPS = 5,   /* gaps alone: a mask */
	SPRI_CODEC_BITMAP = 6, /* one bit per index from base on: a mask */
};

const struct spri_codec *spri_codec_row(unsigned i);
const struct spri_codec *spri_codec_find(uint8_t id); /* NULL: unknown */

#endif
