/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Values of a payload, which several codecs share: n of them, in the chunk's type, side by side. */
#ifndef SPRI_CODEC_VALUES_H
#define SPRI_CODEC_VALUES_H

#include <string.h>

#include <internal/bits.h>
#include <internal/bytes.h>
#include <kernel.h>

static inline void spri_values_put(uint8_t *payload, const float *value, uint32_t n,
				   enum spr_dtype dtype)
{
	if (n == 0)
		return;
	if (dtype != SPR_F32)
		spri_narrow(payload, value, n, dtype);
	else if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
		memcpy(payload, value, 4 * (size_t)n);
	else
		for (uint32_t i = 0; i < n; i++)
			spri_put_u32(payload + 4 * (size_t)i, spri_f32_bits(value[i]));
}

static inline void spri_values_get(float *value, const uint8_t *payload, uint32_t n,
				   enum spr_dtype dtype)
{
	if (n == 0)
		return;
	if (dtype != SPR_F32)
		spri_widen(value, payload, n, dtype);
	else if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
		memcpy(value, payload, 4 * (size_t)n);
	else
		for (uint32_t i = 0; i < n; i++)
			value[i] = spri_f32_from_bits(spri_get_u32(payload + 4 * (size_t)i));
}

#endif
