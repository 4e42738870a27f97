/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One element on the device: the arithmetic of scalar.h, with the same bits.
 * Products and sums are rounded one by one whatever the compiler would like to contract.
 */
#ifndef SPRI_NUMERIC_CUH
#define SPRI_NUMERIC_CUH

#include <cuda/cuda.cuh>
#include <internal/philox.h>

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

#endif
