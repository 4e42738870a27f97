/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One element on the device: the arithmetic of scalar.h, and of philox.h, with the same bits.
 * Products and sums are rounded one by one whatever the compiler would like to contract.
 */
#ifndef SPRI_NUMERIC_CUH
#define SPRI_NUMERIC_CUH

#include <cuda/cuda.cuh>

#include <kernel.h>

static __device__ __forceinline__ float spri_sum(float a, float b)
{
	return spri_canonical(__fadd_rn(a, b));
}

static __device__ __forceinline__ float spri_product(float a, float b)
{
	return spri_canonical(__fmul_rn(a, b));
}

/* ---- sums under a policy ---- */

/* What a thread has found. */
struct spri_found {
	uint64_t bad_index; /* the lowest; SPRI_NO_INDEX: none */
	uint64_t dropped;
};

static __device__ __forceinline__ struct spri_found spri_found_none(void)
{
	struct spri_found none = {SPRI_NO_INDEX, 0};

	return none;
}

/* a + b as spri_reduce has it. */
static __device__ __forceinline__ float spri_sum_by(enum spr_nonfinite policy, float a, float b,
						    uint64_t index, struct spri_found *found)
{
	float sum = spri_sum(a, b);

	if (!spri_nonfinite(sum))
		return sum; /* then a and b are finite too */
	found->bad_index = min(found->bad_index, index);
	if (policy != SPR_NONFINITE_DROP)
		return sum;
	found->dropped++;
	return spri_finite_or_zero(__fadd_rn(spri_finite_or_zero(a), spri_finite_or_zero(b)));
}

/* Adds what this thread has found to a struct spri_finite that all threads share. */
static __device__ __forceinline__ void spri_found_report(const struct spri_found *found,
							 struct spri_finite *finite)
{
	if (!finite || found->bad_index == SPRI_NO_INDEX)
		return;
	spri_atomic_min(&finite->bad_index, found->bad_index);
	if (found->dropped)
		spri_atomic_add(&finite->dropped, found->dropped);
}

/* ---- Philox4x32-10 ---- */

static __device__ __forceinline__ void spri_philox4(uint64_t key, uint64_t counter_lo,
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

#endif
