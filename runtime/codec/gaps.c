/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* gaps: a mask, as the gaps between its indices in few bits (rice.h). No values. */
#include <codec/rice.h>
#include <codec/rows.h>

static uint32_t gaps_most(size_t room, enum spr_dtype dtype)
{
	(void)dtype;
	return spri_rice_most(room, 0);
}

static uint64_t gaps_bound(uint64_t count, enum spr_dtype dtype)
{
	(void)dtype;
	return spri_rice_bound(count);
}

static uint32_t gaps_fit(const uint64_t *index, uint64_t n, size_t room, enum spr_dtype dtype)
{
	(void)dtype;
	return spri_rice_fit(index, n, room, 0);
}

static uint32_t gaps_encode(uint8_t *payload, const uint64_t *index, const float *value, uint32_t n,
			    enum spr_dtype dtype)
{
	(void)value;
	(void)dtype;
	return spri_rice_encode(payload, index, n);
}

static int gaps_decode(const struct spri_chunk *chunk, uint64_t *index, float *value,
		       uint64_t after, uint64_t length)
{
	(void)value;
	return spri_rice_decode(chunk, chunk->payload_bytes, index, after, length);
}

const struct spri_codec spri_codec_gaps = {
	SPRI_CODEC_GAPS,
	"gaps",
	"a mask as gaps between indices in few bits",
	true,
	false,
	false,
	gaps_most,
	gaps_bound,
	gaps_fit,
	gaps_encode,
	gaps_decode,
};
