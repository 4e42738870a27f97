/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Sorted union of two sparse lists. Which list comes next is random, so nothing branches on it: each
 * turn takes from a, from b or from both by arithmetic, adds what it took (nothing is +0, which
 * leaves any other value as it is), writes, and moves on unless the sum is zero. The one branch, a sum
 * that is not finite, is rare; a non-finite input always makes one.
 */
#include <fpenv.h>
#include <scalar.h>

/* An entry that is not finite, by policy. */
static __attribute__((noinline)) float
resolve(uint64_t index, float a, float b, enum spr_nonfinite policy, struct spri_finite *finite)
{
	if (policy == SPR_NONFINITE_DROP)
		return spri_sum_drop(a, b, index, finite);
	spri_finite_note(finite, index);
	return spri_sum(a, b);
}

/* v when take is 1, +0 when it is 0. */
static inline float masked(float v, uint64_t take)
{
	return spri_f32_from_bits(spri_f32_bits(v) & -(uint32_t)take);
}

/* What is left of one list when the other has ended. Returns the new end of out. */
static uint64_t copy_rest(struct spri_list *out, uint64_t end, const uint64_t *index,
			  const float *value, uint64_t n, enum spr_nonfinite policy,
			  struct spri_finite *finite)
{
	for (uint64_t i = 0; i < n; i++) {
		float v = value[i];

		if (spri_unlikely(spri_f32_nonfinite(v)))
			v = resolve(index[i], v, 0.0f, policy, finite);
		out->index[end] = index[i];
		out->value[end] = v;
		end += spri_f32_key(v) != 0;
	}
	return end;
}

void spri_merge(struct spri_list *out, const uint64_t *ai, const float *av, uint64_t na,
		const uint64_t *bi, const float *bv, uint64_t nb, enum spr_nonfinite policy,
		struct spri_finite *finite)
{
	struct spri_fpenv env = spri_fp_enter();
	uint64_t *index = out->index;
	float *value = out->value;
	uint64_t end = out->count, i = 0, j = 0;

	assert(out->capacity - out->count >= na + nb);
	while (i < na && j < nb) {
		uint64_t x = ai[i], y = bi[j];
		uint64_t take_a = x <= y, take_b = y <= x;
		float a = masked(av[i], take_a), b = masked(bv[j], take_b);
		uint64_t at = x < y ? x : y;
		float sum = a + b;

		if (spri_unlikely(spri_f32_nonfinite(sum)))
			sum = resolve(at, a, b, policy, finite);
		index[end] = at;
		value[end] = sum;
		end += spri_f32_key(sum) != 0;
		i += take_a;
		j += take_b;
	}
	end = copy_rest(out, end, ai + i, av + i, na - i, policy, finite);
	out->count = copy_rest(out, end, bi + j, bv + j, nb - j, policy, finite);
	spri_fp_leave(env);
}
