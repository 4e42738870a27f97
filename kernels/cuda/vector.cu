/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Operations on whole vectors, element by element; see gpu.h and, for the bits, vector_c.c. */
#include <cuda/walk.cuh>

extern "C" __global__ void spri_axpby(struct spri_gpu_axpby s)
{
	uint64_t nonfinite = 0;

	spri_map(s.out, s.x, s.y, s.n, [&](uint64_t, float x, float y) {
		float sum = spri_sum(__fmul_rn(s.a, x), __fmul_rn(s.b, y));

		nonfinite += spri_nonfinite(sum);
		return sum;
	});
	if (s.nonfinite && nonfinite)
		spri_atomic_add(s.nonfinite, nonfinite);
}
SPRI_KERNEL(axpby);

extern "C" __global__ void spri_scale(float *out, const float *in, uint64_t n, float factor)
{
	spri_map(out, in, NULL, n,
		 [=](uint64_t, float v, float) { return spri_product(v, factor); });
}
SPRI_KERNEL(scale);

/* spri_reduce, and with zeros for b spri_check. */
extern "C" __global__ void spri_add(struct spri_gpu_reduce s)
{
	struct spri_found found = spri_found_none();

	spri_map(s.out, s.a, s.b, s.n, [&](uint64_t i, float a, float b) {
		return spri_sum_by(s.policy, a, b, s.base + i, &found);
	});
	spri_found_report(&found, (struct spri_finite *)s.finite);
}
SPRI_KERNEL(add);

extern "C" __global__ void spri_drop(struct spri_gpu_drop s)
{
	uint64_t dropped = 0;

	for (uint64_t i = spri_thread(); i < s.n; i += spri_threads()) {
		if (!spri_nonfinite(s.shadow[i]))
			continue;
		s.shadow[i] = spri_finite_or_zero(__fmul_rn(s.momentum, s.velocity[i]));
		dropped++;
	}
	if (dropped)
		spri_atomic_add(s.dropped, dropped);
}
SPRI_KERNEL(drop);
