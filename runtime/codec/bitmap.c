/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * bitmap: a mask, as one bit per index from base on, lowest bit first. The first bit is set, and
 * one of the last byte; `count` bits in all. Shorter than gaps where more than about every sixth
 * index is in the mask.
 *
 * fit() ends a chunk where a bit would not fit: the next one has a base of its own, so the room
 * between two chunks takes no bytes.
 */
#include <codec/rows.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <string.h>

static uint32_t bitmap_most(size_t room, enum spr_dtype dtype)
{
	(void)dtype;
	return (uint32_t)(8 * spri_min_u64(room, UINT32_MAX / 8));
}

/* As far as a header can say: how far apart the bits are is not to be seen from their number. */
static uint64_t bitmap_bound(uint64_t count, enum spr_dtype dtype)
{
	(void)dtype;
	return count > 0 ? UINT32_MAX : 0;
}

static uint32_t bitmap_fit(const uint64_t *index, uint64_t n, size_t room, enum spr_dtype dtype)
{
	uint64_t bits = bitmap_most(room, dtype), low = 0, high = spri_min_u64(n, bits) + 1;

	/* `low` entries fit, `high` do not: halve until they meet */
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (index[middle - 1] - index[0] < bits)
			low = middle;
		else
			high = middle;
	}
	return (uint32_t)low;
}

static uint32_t bitmap_encode(uint8_t *payload, const uint64_t *index, const float *value,
			      uint32_t n, enum spr_dtype dtype)
{
	uint32_t bytes, at = 0;
	uint8_t byte = 0;

	(void)value;
	(void)dtype;
	if (n == 0)
		return 0;
	bytes = (uint32_t)((index[n - 1] - index[0]) / 8 + 1);
	memset(payload, 0, bytes);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t bit = (uint32_t)(index[i] - index[0]);

		byte = (uint8_t)((bit / 8 == at ? byte : 0) | 1u << bit % 8);
		at = bit / 8;
		payload[at] = byte;
	}
	return bytes;
}

/* 64 bits, of the n ≤ 8 bytes that there are. */
static uint64_t read_word(const uint8_t *p, uint32_t n)
{
	uint8_t word[8] = {0};

	if (n == 8)
		return spri_get_u64(p);
	memcpy(word, p, n);
	return spri_get_u64(word);
}

static int bitmap_decode(const struct spri_chunk *chunk, uint64_t *index, float *value,
			 uint64_t after, uint64_t length)
{
	uint32_t bytes = chunk->payload_bytes, taken = 0;
	uint64_t room;

	(void)value;
	if (chunk->count == 0 || bytes == 0)
		return chunk->count || bytes ? spri_trace(SPR_EPROTOCOL) : 0;
	length = spri_min_u64(length, SPR_MAX_COUNT);
	if (chunk->base >= length || (after != SPRI_NO_INDEX && chunk->base <= after))
		return spri_trace(SPR_EPROTOCOL);
	room = length - chunk->base; /* bits are below it */
	if (bytes > (room + 7) / 8 || chunk->count > 8ull * bytes)
		return spri_trace(SPR_EPROTOCOL);
	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t base = chunk->base + 8ull * at;
		uint64_t word =
			read_word(chunk->payload + at, (uint32_t)spri_min_u64(bytes - at, 8));

		if ((at == 0 && !(word & 1)) ||
		    (unsigned)__builtin_popcountll(word) > chunk->count - taken)
			return spri_trace(SPR_EPROTOCOL);
		for (; word; word &= word - 1)
			index[taken++] = base + (unsigned)__builtin_ctzll(word);
	}
	/* the last byte has a bit, or the payload could have been shorter */
	if (taken != chunk->count || index[taken - 1] >= length ||
	    (index[taken - 1] - chunk->base) / 8 != bytes - 1)
		return spri_trace(SPR_EPROTOCOL);
	return 0;
}

const struct spri_codec spri_codec_bitmap = {
	SPRI_CODEC_BITMAP,
	"bitmap",
	"a mask as one bit per index",
	true,
	false,
	false,
	bitmap_most,
	bitmap_bound,
	bitmap_fit,
	bitmap_encode,
	bitmap_decode,
};
