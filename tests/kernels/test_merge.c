/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Merge against a naive union: overlaps from none to all, zero sums, every policy, uneven lengths.
 */
#include "vectors.h"

/* A sorted list with strictly ascending far indices; about `density` of 256 places are taken. */
struct side {
	struct area index, value;
	uint64_t n;
};

static struct side side_make(enum kind kind, uint64_t n, unsigned density, uint64_t first,
			     uint64_t seed)
{
	struct side s = {area_make(n * 8, 8), area_make(n * sizeof(float), 4), n};
	uint64_t state = seed * 77 + 5, at = FAR_BASE + first;

	fill(s.value.data, n, kind, seed);
	for (uint64_t i = 0; i < n; i++, at++) {
		while (next_random(&state) % 256 >= density)
			at++;
		((uint64_t *)s.index.data)[i] = at;
		if (size_of(((float *)s.value.data)[i]) == 0)
			((float *)s.value.data)[i] = -1.5f; /* zeros are no entries */
	}
	return s;
}

static bool side_close(struct side *s)
{
	return area_close(&s->index) && area_close(&s->value);
}

static float naive_entry(uint64_t index, float a, float b, enum spr_nonfinite policy,
			 struct spri_finite *finite)
{
	float sum = plain_sum(a, b);

	if (!is_bad(sum))
		return sum;
	if (index < finite->bad_index)
		finite->bad_index = index;
	if (policy != SPR_NONFINITE_DROP)
		return sum;
	finite->dropped++;
	sum = (is_bad(a) ? 0.0f : a) + (is_bad(b) ? 0.0f : b);
	return is_bad(sum) ? 0.0f : sum;
}

static uint64_t naive_merge(struct entry *out, const struct side *a, const struct side *b,
			    enum spr_nonfinite policy, struct spri_finite *finite)
{
	const uint64_t *ai = a->index.data, *bi = b->index.data;
	const float *av = a->value.data, *bv = b->value.data;
	uint64_t i = 0, j = 0, n = 0;

	while (i < a->n || j < b->n) {
		uint64_t at = i < a->n && (j == b->n || ai[i] <= bi[j]) ? ai[i] : bi[j];
		float x = i < a->n && ai[i] == at ? av[i++] : 0.0f;
		float y = j < b->n && bi[j] == at ? bv[j++] : 0.0f;
		float sum = naive_entry(at, x, y, policy, finite);

		if (size_of(sum))
			out[n++] = (struct entry){at, sum};
	}
	return n;
}

static void compare(const struct spri_list *out, uint64_t first, const struct entry *want,
		    uint64_t n)
{
	expect(out->count == first + n, "merged %lu, expected %lu", out->count - first, n);
	for (uint64_t i = 0; i < n; i++)
		expect(out->index[first + i] == want[i].index &&
			       bits_of(out->value[first + i]) == bits_of(want[i].value),
		       "entry %lu of %lu is (%lu, %08x), expected (%lu, %08x)", i, n,
		       out->index[first + i] - FAR_BASE, bits_of(out->value[first + i]),
		       want[i].index - FAR_BASE, bits_of(want[i].value));
}

/* Merges into a list that already holds two entries; room is exact, the guard lies behind it. */
static void check_merge(struct side a, struct side b, enum spr_nonfinite policy)
{
	uint64_t first = 2, room = first + a.n + b.n;
	struct area index = area_make(room * 8, 0), value = area_make(room * sizeof(float), 4);
	struct spri_list out = {index.data, value.data, first, room};
	struct spri_finite finite = SPRI_FINITE_NONE, expected = SPRI_FINITE_NONE;
	struct entry *want = malloc((room + 1) * sizeof *want);
	uint64_t n;

	expect(want, "expected memory for a test");
	out.index[0] = 1;
	out.index[1] = 2;
	out.value[0] = out.value[1] = 3.0f;
	n = naive_merge(want, &a, &b, policy, &expected);
	spri_merge(&out, a.index.data, a.value.data, a.n, b.index.data, b.value.data, b.n, policy,
		   &finite);
	compare(&out, first, want, n);
	expect(out.index[0] == 1 && out.index[1] == 2 && out.value[1] == 3.0f,
	       "expected what was in the list to stay");
	expect(finite.bad_index == expected.bad_index && finite.dropped == expected.dropped,
	       "policy %d: finite is (%lu, %lu), expected (%lu, %lu)", policy, finite.bad_index,
	       finite.dropped, expected.bad_index, expected.dropped);
	free(want);
	expect(area_close(&index) && area_close(&value) && side_close(&a) && side_close(&b),
	       "na %lu nb %lu: expected nothing to be written past an end", a.n, b.n);
}

static void check_lengths(uint64_t na, uint64_t nb, enum kind kind)
{
	static const unsigned densities[] = {256, 200, 100, 20};

	for (unsigned d = 0; d < 4; d++) {
		for (int policy = 0; policy < 3; policy++) {
			uint64_t seed = na * 1000 + nb * 7 + d;

			check_merge(side_make(kind, na, densities[d], 0, seed),
				    side_make(kind, nb, densities[(d + na) % 4], 0, seed + 1),
				    (enum spr_nonfinite)policy);
		}
	}
}

Test(merge, every_short_length)
{
	for (uint64_t na = 0; na <= 70; na++) {
		for (uint64_t nb = 0; nb <= 70; nb += na % 7 + 1)
			check_lengths(na, nb, (enum kind)((na + nb) % KIND_COUNT));
	}
}

Test(merge, long_and_uneven)
{
	static const uint64_t lengths[][2] = {{1000, 1000}, {5000, 3}, {3, 5000},  {0, 700},
					      {700, 0},	    {4096, 1}, {777, 9001}};

	for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		for (int kind = 0; kind < KIND_COUNT; kind++)
			check_lengths(lengths[i][0], lengths[i][1], (enum kind)kind);
	}
}

Test(merge, disjoint_ranges_in_either_order)
{
	for (int policy = 0; policy < 3; policy++) {
		check_merge(side_make(KIND_NAN, 500, 256, 0, 1),
			    side_make(KIND_INF, 900, 256, 10000, 2), (enum spr_nonfinite)policy);
		check_merge(side_make(KIND_NAN, 500, 256, 10000, 1),
			    side_make(KIND_INF, 900, 256, 0, 2), (enum spr_nonfinite)policy);
	}
}

Test(merge, opposite_values_leave_nothing)
{
	for (uint64_t n = 1; n < 300; n += 13) {
		struct side a = side_make(KIND_SMALL, n, 100, 0, n);
		struct side b = side_make(KIND_SMALL, n, 100, 0, n);
		uint64_t index[600];
		float value[600];
		struct spri_list out = {index, value, 0, 600};
		struct spri_finite finite = SPRI_FINITE_NONE;

		for (uint64_t i = 0; i < n; i++)
			((float *)b.value.data)[i] *= -1.0f;
		spri_merge(&out, a.index.data, a.value.data, n, b.index.data, b.value.data, n,
			   SPR_NONFINITE_ERROR, &finite);
		expect(out.count == 0, "expected %lu zero sums to be left out, got %lu", n,
		       out.count);
		expect(side_close(&a) && side_close(&b), "expected the inputs untouched");
	}
}

Test(merge, finite_collects_over_calls)
{
	const uint64_t index[] = {7, 9};
	const float bad[] = {INFINITY, 1.0f}, worse[] = {1.0f, NAN};
	uint64_t to[8];
	float value[8];
	struct spri_list out = {to, value, 0, 8};
	struct spri_finite finite = SPRI_FINITE_NONE;

	spri_merge(&out, index, worse, 2, NULL, NULL, 0, SPR_NONFINITE_DROP, &finite);
	cr_assert(finite.bad_index == 9 && finite.dropped == 1, "expected (9, 1), got (%lu, %lu)",
		  finite.bad_index, finite.dropped);
	spri_merge(&out, NULL, NULL, 0, index, bad, 2, SPR_NONFINITE_DROP, &finite);
	cr_assert(finite.bad_index == 7 && finite.dropped == 2, "expected (7, 2), got (%lu, %lu)",
		  finite.bad_index, finite.dropped);
	cr_assert_eq(out.count, 2, "expected two finite entries, got %lu", out.count);
}
