/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Sorted union of two sparse lists. Which list comes next is random, so nothing branches on it:
 * each step takes from a, from b or from both by arithmetic, adds what it took (nothing is +0,
 * which leaves any other value as it is), writes, and moves on unless the sum is zero. The one
 * branch, a sum that is not finite, is rare; a non-finite input always makes one.
 *
 * A step waits for the one before it (load, compare, add), not for the CPU's width. So:
 *
 *   1. the lists are cut in two at an index, so that both halves hold as many entries
 *   2. both halves are merged side by side, the second to where it stands if no two indices meet
 *   3. the second is moved down by what the first did not need
 */
#include <string.h>

#include <fpenv.h>
#include <scalar.h>

#define WORTHWHILE 64 /* entries from which on two halves are faster than one */

/* What all steps of a merge share. */
struct merge {
	const uint64_t *ai;
	const float *av;
	const uint64_t *bi;
	const float *bv;
	uint64_t *index;
	float *value;
	enum spr_nonfinite policy;
	struct spri_finite *finite;
};

/*
 * Parts of the lists that are merged by themselves: [i, i_end) of a and [j, j_end) of b, to out
 * from `end` on.
 */
struct lane {
	uint64_t i, i_end;
	uint64_t j, j_end;
	uint64_t end;
};

/* An entry that is not finite, by policy. */
static __attribute__((noinline)) float resolve(const struct merge *m, uint64_t index, float a,
					       float b)
{
	if (m->policy == SPR_NONFINITE_DROP)
		return spri_sum_drop(a, b, index, m->finite);
	spri_finite_note(m->finite, index);
	return spri_sum(a, b);
}

/* v when take is 1, +0 when it is 0. */
static inline float masked(float v, uint32_t take)
{
	return spri_f32_from_bits(spri_f32_bits(v) & -take);
}

static inline void step(const struct merge *m, struct lane *lane)
{
	uint64_t x = m->ai[lane->i], y = m->bi[lane->j];
	bool take_a = x <= y, take_b = y <= x;
	float a = masked(m->av[lane->i], take_a), b = masked(m->bv[lane->j], take_b);
	uint64_t at = x < y ? x : y;
	float sum = a + b;

	if (spri_unlikely(spri_f32_nonfinite(sum)))
		sum = resolve(m, at, a, b);
	m->index[lane->end] = at;
	m->value[lane->end] = sum;
	lane->end += spri_f32_key(sum) != 0;
	lane->i += take_a;
	lane->j += take_b;
}

static inline bool both_left(const struct lane *lane)
{
	return lane->i != lane->i_end && lane->j != lane->j_end;
}

/* What is left of one list, [i, i_end), when the other has ended. Returns the new end of out. */
static uint64_t copy_rest(const struct merge *m, uint64_t end, const uint64_t *index,
			  const float *value, uint64_t i, uint64_t i_end)
{
	for (; i < i_end; i++) {
		float v = value[i];

		if (spri_unlikely(spri_f32_nonfinite(v)))
			v = resolve(m, index[i], v, 0.0f);
		m->index[end] = index[i];
		m->value[end] = v;
		end += spri_f32_key(v) != 0;
	}
	return end;
}

/* Returns the new end of out. */
static uint64_t merge_one(const struct merge *m, struct lane lane)
{
	uint64_t end;

	while (both_left(&lane))
		step(m, &lane);
	end = copy_rest(m, lane.end, m->ai, m->av, lane.i, lane.i_end);
	return copy_rest(m, end, m->bi, m->bv, lane.j, lane.j_end);
}

/* Step 1: the upper half of `low` becomes `high`; every index of high is above every one of low. */
static void split(const struct merge *m, struct lane *low, struct lane *high)
{
	uint64_t half = (low->i_end + low->j_end) / 2;
	uint64_t least = half > low->j_end ? half - low->j_end : 0;
	uint64_t most = spri_min_u64(half, low->i_end);
	uint64_t j;

	while (least < most) { /* the fewest of a that belong to the lower half */
		uint64_t i = least + (most - least) / 2;

		if (m->ai[i] < m->bi[half - i - 1])
			least = i + 1;
		else
			most = i;
	}
	j = half - least;
	if (least < low->i_end && j > 0 && m->ai[least] == m->bi[j - 1])
		least++; /* the same index on either side of the cut */
	*high = (struct lane){least, low->i_end, j, low->j_end, low->end + least + j};
	low->i_end = least;
	low->j_end = j;
}

/* Steps 1 to 3. Returns the new end of out. */
static uint64_t merge_two(const struct merge *m, struct lane low)
{
	struct lane high;
	uint64_t start, low_end, n;

	split(m, &low, &high);
	start = high.end;
	while (both_left(&low) && both_left(&high)) {
		step(m, &low);
		step(m, &high);
	}
	low_end = merge_one(m, low);
	n = merge_one(m, high) - start;
	if (low_end != start) {
		memmove(m->index + low_end, m->index + start, n * sizeof *m->index);
		memmove(m->value + low_end, m->value + start, n * sizeof *m->value);
	}
	return low_end + n;
}

void spri_merge(struct spri_list *out, const uint64_t *ai, const float *av, uint64_t na,
		const uint64_t *bi, const float *bv, uint64_t nb, enum spr_nonfinite policy,
		struct spri_finite *finite)
{
	const struct merge m = {ai, av, bi, bv, out->index, out->value, policy, finite};
	const struct lane whole = {0, na, 0, nb, out->count};
	struct spri_fpenv env;

	assert(out->capacity - out->count >= na + nb);
	if (na + nb == 0)
		return;
	env = spri_fp_enter();
	out->count = na + nb < WORTHWHILE ? merge_one(&m, whole) : merge_two(&m, whole);
	spri_fp_leave(env);
}
