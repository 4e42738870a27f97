/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Trim and cut against a sort: all kinds of values, ties at the cut, lists from nothing to long. */
#include "vectors.h"

struct trim_case {
	enum kind kind;
	uint64_t n, k;
	bool wants_trimmed;
};

static void check_side(const char *name, const struct spri_list *got, uint64_t first,
		       struct entry *want, uint64_t n, const struct trim_case *c)
{
	qsort(want, n, sizeof *want, by_index);
	expect(got->count == first + n, "%s: kind %d n %lu k %lu: %lu entries, expected %lu", name,
	       c->kind, c->n, c->k, got->count - first, n);
	for (uint64_t i = 0; i < n; i++)
		expect(got->index[first + i] == want[i].index &&
			       bits_of(got->value[first + i]) == bits_of(want[i].value),
		       "%s: kind %d n %lu k %lu: entry %lu is (%lu, %08x), expected (%lu, %08x)",
		       name, c->kind, c->n, c->k, i, got->index[first + i] - FAR_BASE,
		       bits_of(got->value[first + i]), want[i].index - FAR_BASE,
		       bits_of(want[i].value));
}

static void check_cut(const struct trim_case *c, const float *value, const struct entry *ranked)
{
	uint64_t n_equal = 0, want_equal = 0;
	uint32_t key = 0, want;

	if (c->k == 0 || c->k > c->n)
		return;
	want = size_of(ranked[c->k - 1].value);
	for (uint64_t i = 0; i < c->k; i++)
		want_equal += size_of(ranked[i].value) == want;
	spri_cut(value, c->n, c->k, &key, &n_equal);
	expect(key == want && n_equal == want_equal,
	       "kind %d n %lu k %lu: the cut is (%08x, %lu), expected (%08x, %lu)", c->kind, c->n,
	       c->k, key, n_equal, want, want_equal);
}

/* The trimmed list has exactly the room that is needed behind three entries of its own. */
static void check_trim(const struct trim_case *c)
{
	uint64_t keep = c->k < c->n ? c->k : c->n, leave = c->n - keep, first = 3;
	struct area index = area_make(c->n * 8, 8), value = area_make(c->n * sizeof(float), 4);
	struct area out_index = area_make((first + leave) * 8, 0);
	struct area out_value = area_make((first + leave) * sizeof(float), 4);
	struct spri_list list = {index.data, value.data, c->n, c->n};
	struct spri_list trimmed = {out_index.data, out_value.data, first, first + leave};
	struct entry *ranked = malloc((c->n + 1) * sizeof *ranked);

	expect(ranked, "expected memory for a test");
	fill(list.value, c->n, c->kind, c->n + c->k);
	for (uint64_t i = 0; i < c->n; i++) {
		list.index[i] = FAR_BASE + i * 3 + i % 2;
		ranked[i] = (struct entry){list.index[i], list.value[i]};
	}
	qsort(ranked, c->n, sizeof *ranked, by_rank);
	check_cut(c, list.value, ranked);
	spri_trim(&list, c->k, c->wants_trimmed ? &trimmed : NULL);
	check_side("kept", &list, 0, ranked, keep, c);
	if (c->wants_trimmed)
		check_side("trimmed", &trimmed, first, ranked + keep, leave, c);
	free(ranked);
	expect(area_close(&index) && area_close(&value) && area_close(&out_index) &&
		       area_close(&out_value),
	       "kind %d n %lu k %lu: expected nothing to be written past an end", c->kind, c->n,
	       c->k);
}

static void check_length(uint64_t n)
{
	const uint64_t ks[] = {0, 1, 2, n / 10, n / 3, n / 2, n > 0 ? n - 1 : 0, n, n + 9};

	for (unsigned i = 0; i < sizeof ks / sizeof *ks; i++) {
		for (unsigned kind = 0; kind < KIND_COUNT; kind++)
			check_trim(&(struct trim_case){kind, n, ks[i], (kind + i) % 4 != 0});
	}
}

Test(trim, every_short_length)
{
	for (uint64_t n = 0; n <= 140; n++)
		check_length(n);
}

/* Beyond the small arrays: a bin of the first digit that does not fit, and several of each. */
Test(trim, long)
{
	static const uint64_t lengths[] = {1000, 4095, 4096, 4097, 8192, 20011};

	for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
		check_length(lengths[i]);
	for (unsigned kind = 0; kind < KIND_COUNT; kind += 3)
		check_trim(&(struct trim_case){kind, 300007, 100003, true});
}

/* Keys that differ in the last digit only, more of them than are ever gathered. */
Test(trim, crowded_bins)
{
	const uint64_t n = 50000;
	float *value = malloc(n * sizeof *value);
	struct entry *ranked = malloc(n * sizeof *ranked);
	uint64_t state = 9;

	cr_assert(value && ranked, "expected memory for a test");
	for (unsigned spread = 1; spread <= 1u << 21; spread <<= 3) {
		for (uint64_t i = 0; i < n; i++) {
			value[i] =
				from_bits(0x3f800000u + (uint32_t)(next_random(&state) % spread));
			ranked[i] = (struct entry){i, value[i]};
		}
		qsort(ranked, n, sizeof *ranked, by_rank);
		for (uint64_t k = 1; k < n; k = k * 3 + 1)
			check_cut(&(struct trim_case){KIND_TIES, n, k, false}, value, ranked);
	}
	free(value);
	free(ranked);
}

/* Equal sizes at the cut: those of smallest index stay, whatever their sign. */
Test(trim, ties_by_index)
{
	uint64_t index[] = {10, 20, 30, 40, 50}, out_index[3];
	float value[] = {-1.0f, 2.0f, 1.0f, -1.0f, 1.0f}, out_value[3];
	struct spri_list list = {index, value, 5, 5}, trimmed = {out_index, out_value, 0, 3};

	spri_trim(&list, 2, &trimmed);
	cr_assert(list.count == 2 && index[0] == 10 && index[1] == 20,
		  "expected 10 and 20 to stay");
	cr_assert(trimmed.count == 3 && out_index[0] == 30 && out_index[2] == 50 &&
			  out_value[1] == -1.0f,
		  "expected 30, 40 and 50 to leave in order");
}
