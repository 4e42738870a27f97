/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* dense: `count` values, f32, of the elements base, base + 1, … No indices, 4 bytes per element. */
#include <string.h>

#include <codec/rows.h>
#include <internal/bits.h>
#include <internal/bytes.h>

static uint64_t dense_bound(uint64_t count)
{
	return count * 4;
}

static uint32_t dense_fit(const uint64_t *index, uint64_t n, size_t room)
{
	(void)index;
	return (uint32_t)spri_min_u64(spri_min_u64(n, room / 4), UINT32_MAX / 4);
}

static uint32_t dense_encode(uint8_t *payload, const uint64_t *index, const float *value,
			     uint32_t n)
{
	(void)index;
	if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && n > 0)
		memcpy(payload, value, 4 * (size_t)n);
	else
		for (uint32_t i = 0; i < n; i++)
			spri_put_u32(payload + 4 * (size_t)i, spri_f32_bits(value[i]));
	return 4 * n;
}

static int dense_decode(const struct spri_chunk *chunk, uint64_t *index, float *value,
			uint64_t after, uint64_t length)
{
	(void)index;
	(void)after;
	if (chunk->payload_bytes != dense_bound(chunk->count))
		return spri_trace(SPR_EPROTOCOL);
	if (chunk->base > length || chunk->count > length - chunk->base)
		return spri_trace(SPR_EPROTOCOL);
	if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && chunk->count > 0)
		memcpy(value, chunk->payload, chunk->payload_bytes);
	else
		for (uint32_t i = 0; i < chunk->count; i++)
			value[i] = spri_f32_from_bits(spri_get_u32(chunk->payload + 4 * (size_t)i));
	return 0;
}

const struct spri_codec spri_codec_dense = {
	SPRI_CODEC_DENSE,
	"dense",
	"32-bit floats of consecutive elements",
	false,
	true,
	dense_bound,
	dense_fit,
	dense_encode,
	dense_decode,
};
