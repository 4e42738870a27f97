/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Philox4x32-10 (Salmon et al., SC'11): random numbers as a pure function of (key, counter),
 * so that every rank and every run can draw the same ones without sharing state.
 */
#ifndef SPRI_PHILOX_H
#define SPRI_PHILOX_H

#include <internal/compiler.h>

/* The 128 bits that belong to (key, counter), as four words. */
SPRI_ON_DEVICE static inline void spri_philox4(uint64_t key, uint64_t counter_lo,
					       uint64_t counter_hi, uint32_t out[4])
{
	uint32_t x0 = (uint32_t)counter_lo, x1 = (uint32_t)(counter_lo >> 32);
	uint32_t x2 = (uint32_t)counter_hi, x3 = (uint32_t)(counter_hi >> 32);
	uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * x0;
		uint64_t p1 = (uint64_t)0xCD9E8D57u * x2;
		uint32_t y0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
		uint32_t y2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;

		x1 = (uint32_t)p1;
		x3 = (uint32_t)p0;
		x0 = y0;
		x2 = y2;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = x0;
	out[1] = x1;
	out[2] = x2;
	out[3] = x3;
}

/* 64 of these bits. */
static inline uint64_t spri_philox(uint64_t key, uint64_t counter)
{
	uint32_t out[4];

	spri_philox4(key, counter, 0, out);
	return (uint64_t)out[1] << 32 | out[0];
}

#endif
