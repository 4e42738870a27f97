/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * packed: the gaps between the indices in few bits (rice.h), then `count` values. At density 0.001
 * an index takes about 11.6 bits, against 32 in raw32; a list may span any number of indices.
 */
#include <codec/rice.h>
#include <codec/rows.h>
#include <codec/values.h>

static uint32_t packed_most(size_t room, enum spr_dtype dtype)
{
	return spri_rice_most(room, spri_dtype_bytes(dtype));
}

static uint64_t packed_bound(uint64_t count, enum spr_dtype dtype)
{
	return spri_rice_bound(count) + count * spri_dtype_bytes(dtype);
}

static uint32_t packed_fit(const uint64_t *index, uint64_t n, size_t room, enum spr_dtype dtype)
{
	return spri_rice_fit(index, n, room, spri_dtype_bytes(dtype));
}

static uint32_t packed_encode(uint8_t *payload, const uint64_t *index, const float *value,
			      uint32_t n, enum spr_dtype dtype)
{
	uint32_t bytes = spri_rice_encode(payload, index, n);

	spri_values_put(payload + bytes, value, n, dtype);
	return bytes + n * spri_dtype_bytes(dtype);
}

static int packed_decode(const struct spri_chunk *chunk, uint64_t *index, float *value,
			 uint64_t after, uint64_t length)
{
	uint64_t values = (uint64_t)chunk->count * spri_dtype_bytes(chunk->dtype), gaps;
	int r;

	if (chunk->payload_bytes < values)
		return spri_trace(SPR_EPROTOCOL);
	gaps = chunk->payload_bytes - values;
	r = spri_rice_decode(chunk, gaps, index, after, length);
	if (r == 0)
		spri_values_get(value, chunk->payload + gaps, chunk->count, chunk->dtype);
	return r;
}

const struct spri_codec spri_codec_packed = {
	SPRI_CODEC_PACKED,
	"packed",
	"gaps between indices in few bits, then the values",
	true,
	true,
	false,
	packed_most,
	packed_bound,
	packed_fit,
	packed_encode,
	packed_decode,
};
