/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * raw32: `count` offsets from the chunk's base, u32, then `count` values. 8 bytes per entry, 6 with
 * 16-bit values. The first offset is 0, the others ascend strictly. A chunk whose base is 0 may
 * begin with any offset: its offsets are the indices, as a GPU wrote them without knowing of
 * chunks.
 *
 * A list that spans 2^32 indices or more is cut where an offset would not fit: fit() ends the chunk
 * there, and the next one has a base of its own.
 *
 * Decoding trusts nothing: each offset is read once, and is compared with the one before and with
 * the room up to `length` before it is added to the base, so no sum can wrap.
 */
#include <codec/rows.h>
#include <codec/values.h>

static uint32_t entry_bytes(enum spr_dtype dtype)
{
	return 4 + spri_dtype_bytes(dtype);
}

static uint32_t raw32_most(size_t room, enum spr_dtype dtype)
{
	return (uint32_t)(spri_min_u64(room, UINT32_MAX) / entry_bytes(dtype));
}

static uint64_t raw32_bound(uint64_t count, enum spr_dtype dtype)
{
	return count * entry_bytes(dtype);
}

static uint32_t raw32_fit(const uint64_t *index, uint64_t n, size_t room, enum spr_dtype dtype)
{
	uint64_t low = 0, high = spri_min_u64(n, raw32_most(room, dtype));

	if (high == 0 || index[high - 1] - index[0] <= UINT32_MAX)
		return (uint32_t)high;
	/* index[low] is within reach of the first, index[high - 1] is not: halve until they meet */
	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		if (index[middle] - index[0] <= UINT32_MAX)
			low = middle;
		else
			high = middle;
	}
	return (uint32_t)(low + 1);
}

static uint32_t raw32_encode(uint8_t *payload, const uint64_t *index, const float *value,
			     uint32_t n, enum spr_dtype dtype)
{
	for (uint32_t i = 0; i < n; i++)
		spri_put_u32(payload + 4 * (size_t)i, (uint32_t)(index[i] - index[0]));
	spri_values_put(payload + 4 * (size_t)n, value, n, dtype);
	return (uint32_t)raw32_bound(n, dtype);
}

/* The first entry: its offset, and that it comes behind those of the chunks before. */
static bool begins_well(const struct spri_chunk *chunk, uint64_t offset, uint64_t after)
{
	return (offset == 0 || chunk->base == 0) &&
	       (after == SPRI_NO_INDEX || chunk->base + offset > after);
}

static int raw32_decode(const struct spri_chunk *chunk, uint64_t *index, float *value,
			uint64_t after, uint64_t length)
{
	const uint8_t *offsets = chunk->payload;
	uint64_t room, last = 0;

	if (chunk->payload_bytes != raw32_bound(chunk->count, chunk->dtype))
		return spri_trace(SPR_EPROTOCOL);
	if (chunk->count == 0)
		return 0;
	if (chunk->base >= length)
		return spri_trace(SPR_EPROTOCOL);
	room = length - chunk->base; /* offsets are below it */
	for (uint32_t i = 0; i < chunk->count; i++) {
		uint64_t offset = spri_get_u32(offsets + 4 * (size_t)i);
		bool in_order = i == 0 ? begins_well(chunk, offset, after) : offset > last;

		if (!in_order || offset >= room)
			return spri_trace(SPR_EPROTOCOL);
		index[i] = chunk->base + offset;
		last = offset;
	}
	spri_values_get(value, offsets + 4 * (size_t)chunk->count, chunk->count, chunk->dtype);
	return 0;
}

const struct spri_codec spri_codec_raw32 = {
	SPRI_CODEC_RAW32,
	"raw32",
	"32-bit offsets from a base index, then the values",
	true,
	true,
	true,
	raw32_most,
	raw32_bound,
	raw32_fit,
	raw32_encode,
	raw32_decode,
};
