/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* dense: `count` values of the elements base, base + 1, … No indices, 4 or 2 bytes per element. */
#include <codec/rows.h>
#include <codec/values.h>

static uint32_t dense_most(size_t room, enum spr_dtype dtype)
{
	return (uint32_t)(spri_min_u64(room, UINT32_MAX) / spri_dtype_bytes(dtype));
}

static uint64_t dense_bound(uint64_t count, enum spr_dtype dtype)
{
	return count * spri_dtype_bytes(dtype);
}

static uint32_t dense_fit(const uint64_t *index, uint64_t n, size_t room, enum spr_dtype dtype)
{
	(void)index;
	return (uint32_t)spri_min_u64(n, dense_most(room, dtype));
}

static uint32_t dense_encode(uint8_t *payload, const uint64_t *index, const float *value,
			     uint32_t n, enum spr_dtype dtype)
{
	(void)index;
	spri_values_put(payload, value, n, dtype);
	return (uint32_t)dense_bound(n, dtype);
}

static int dense_decode(const struct spri_chunk *chunk, uint64_t *index, float *value,
			uint64_t after, uint64_t length)
{
	(void)index;
	(void)after;
	if (chunk->payload_bytes != dense_bound(chunk->count, chunk->dtype))
		return spri_trace(SPR_EPROTOCOL);
	if (chunk->base > length || chunk->count > length - chunk->base)
		return spri_trace(SPR_EPROTOCOL);
	spri_values_get(value, chunk->payload, chunk->count, chunk->dtype);
	return 0;
}

const struct spri_codec spri_codec_dense = {
	SPRI_CODEC_DENSE,
	"dense",
	"values of consecutive elements",
	false,
	true,
	true,
	dense_most,
	dense_bound,
	dense_fit,
	dense_encode,
	dense_decode,
};
