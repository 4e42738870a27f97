/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The index section of packed and gaps: what lies between strictly ascending indices, in few bits
 * (docs/wire.md, "Gaps"). Golomb 1966, Rice 1979. The first index is the chunk's base and takes
 * none. Indices are below SPR_MAX_COUNT.
 */
#ifndef SPRI_CODEC_RICE_H
#define SPRI_CODEC_RICE_H

#include <codec/codec.h>

/* Bytes of the section of `count` entries: at most, and at least. */
uint64_t spri_rice_bound(uint64_t count);
uint64_t spri_rice_least(uint64_t count);

/* Most entries that fit into `room` bytes, when each takes value_bytes beside its gap. */
uint32_t spri_rice_most(size_t room, uint32_t value_bytes);

/*
 * The longest prefix of n indices that fits likewise. Exact: encode() finds the same sizes.
 */
uint32_t spri_rice_fit(const uint64_t *index, uint64_t n, size_t room, uint32_t value_bytes);

/* Writes the section of n indices, and nothing behind it. Returns its bytes. */
uint32_t spri_rice_encode(uint8_t *out, const uint64_t *index, uint32_t n);

/*
 * Reads the section of chunk->count indices, which is the first `bytes` bytes of the payload;
 * checks as spri_codec.decode. Returns 0 or SPR_EPROTOCOL.
 */
int spri_rice_decode(const struct spri_chunk *chunk, uint64_t bytes, uint64_t *index,
		     uint64_t after, uint64_t length) SPRI_MUST;

#endif
