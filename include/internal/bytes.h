/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Little-endian fields of wire and file formats, one byte order on every host. */
#ifndef SPRI_BYTES_H
#define SPRI_BYTES_H

#include <internal/compiler.h>

static inline void spri_put_u16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static inline void spri_put_u32(uint8_t *p, uint32_t v)
{
	spri_put_u16(p, (uint16_t)v);
	spri_put_u16(p + 2, (uint16_t)(v >> 16));
}

static inline void spri_put_u64(uint8_t *p, uint64_t v)
{
	spri_put_u32(p, (uint32_t)v);
	spri_put_u32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t spri_get_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t spri_get_u32(const uint8_t *p)
{
	return (uint32_t)spri_get_u16(p) | (uint32_t)spri_get_u16(p + 2) << 16;
}

static inline uint64_t spri_get_u64(const uint8_t *p)
{
	return (uint64_t)spri_get_u32(p) | (uint64_t)spri_get_u32(p + 4) << 32;
}

/* CRC-32C (Castagnoli, reflected, initial and final all-ones) of n bytes; `crc` 0 to begin. */
uint32_t spri_crc32c(uint32_t crc, const void *data, size_t n);

#endif
