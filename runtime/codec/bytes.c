/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * bytes: `count` bytes that sparring does not look into, for control data. `value` points to them,
 * at either end.
 */
#include <string.h>

#include <codec/rows.h>
#include <internal/bits.h>

static uint32_t bytes_most(size_t room, enum spr_dtype dtype)
{
	(void)dtype;
	return (uint32_t)spri_min_u64(room, UINT32_MAX);
}

static uint64_t bytes_bound(uint64_t count, enum spr_dtype dtype)
{
	(void)dtype;
	return count;
}

static uint32_t bytes_fit(const uint64_t *index, uint64_t n, size_t room, enum spr_dtype dtype)
{
	(void)index;
	return (uint32_t)spri_min_u64(n, bytes_most(room, dtype));
}

static uint32_t bytes_encode(uint8_t *payload, const uint64_t *index, const float *value,
			     uint32_t n, enum spr_dtype dtype)
{
	(void)index;
	(void)dtype;
	if (n > 0)
		memcpy(payload, value, n);
	return n;
}

static int bytes_decode(const struct spri_chunk *chunk, uint64_t *index, float *value,
			uint64_t after, uint64_t length)
{
	(void)index;
	(void)after;
	if (chunk->payload_bytes != chunk->count)
		return spri_trace(SPR_EPROTOCOL);
	if (chunk->base > length || chunk->count > length - chunk->base)
		return spri_trace(SPR_EPROTOCOL);
	if (chunk->count > 0)
		memcpy(value, chunk->payload, chunk->count);
	return 0;
}

const struct spri_codec spri_codec_bytes = {
	SPRI_CODEC_BYTES, "bytes",   "uninterpreted bytes", false,	  false, true, bytes_most,
	bytes_bound,	  bytes_fit, bytes_encode,	    bytes_decode,
};
