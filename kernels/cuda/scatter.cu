/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Between lists and vectors. */
#include <cuda/walk.cuh>

extern "C" __global__ void spri_scatter(float *out, const uint64_t *index, const float *value,
					uint64_t n, float factor)
{
	for (uint64_t i = spri_thread(); i < n; i += spri_threads())
		out[index[i]] = value ? spri_product(value[i], factor) : 0.0f;
}
SPRI_KERNEL(scatter);

extern "C" __global__ void spri_gather(float *out, const float *in, const uint64_t *index,
				       uint64_t n)
{
	for (uint64_t i = spri_thread(); i < n; i += spri_threads())
		out[i] = in[index[i]];
}
SPRI_KERNEL(gather);

extern "C" __global__ void spri_adopt(float *inout, const uint64_t *index, const float *value,
				      uint64_t n, enum spr_nonfinite policy)
{
	struct spri_found ignored = spri_found_none();

	for (uint64_t i = spri_thread(); i < n; i += spri_threads()) {
		float *at = inout + index[i];

		*at = spri_sum_by(policy, *at, value[i], 0, &ignored);
	}
}
SPRI_KERNEL(adopt);
