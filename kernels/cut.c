/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The exact cut: the k-th largest of n keys, by digits of 11, 10 and 10 bits from the top.
 *
 *   1. histogram of the first digit; from the largest bin down, the one where the k-th lies
 *   2. that bin's members are gathered in a small array when they fit (they nearly always do), and
 *      the other digits are settled there; else each further digit is another pass over the values
 *   3. after the last digit the bin is one key: the cut; what is still missing of k are its equals
 *
 * Worst case, all equal or n huge: three passes, no memory. Few entries are sorted instead.
 */
#include <string.h>

#include <cut.h>
#include <scalar.h>

#define FIRST_SHIFT 20
#define FIRST_BINS 2048
#define DIGIT_BITS 10
#define DIGIT_BINS (1u << DIGIT_BITS)
#define GATHER 4096 /* room for the members of a bin, in entries */
#define FEW 32	    /* so many or fewer are sorted */

/*
 * What is known so far: the k-th largest lies, as the need-th largest, among keys >> shift ==
 * prefix.
 */
struct place {
	uint32_t prefix;
	unsigned shift;
	uint64_t need;
	uint64_t members;
};

/* Walks down from the top bin to the one that holds the need-th; n_bins must hold that many. */
static uint32_t find_bin(const uint64_t *bins, uint32_t n_bins, struct place *place)
{
	uint32_t bin = n_bins - 1;

	while (bins[bin] < place->need)
		place->need -= bins[bin--];
	place->members = bins[bin];
	return bin;
}

static void next_digit(struct place *place, const uint64_t *bins)
{
	uint32_t bin = find_bin(bins, DIGIT_BINS, place);

	place->prefix = place->prefix << DIGIT_BITS | bin;
	place->shift -= DIGIT_BITS;
}

/* One more digit, counted over all values. */
static __attribute__((noinline)) void refine_over_values(struct place *place, const float *value,
							 uint64_t n)
{
	unsigned shift = place->shift - DIGIT_BITS;
	uint64_t bins[DIGIT_BINS] = {0};

	for (uint64_t i = 0; i < n; i++) {
		uint32_t key = spri_f32_key(value[i]);

		bins[key >> shift & (DIGIT_BINS - 1)] += key >> place->shift == place->prefix;
	}
	next_digit(place, bins);
}

/* All further digits, over the gathered members. */
static __attribute__((noinline)) void refine_gathered(struct place *place, const float *value,
						      uint64_t n)
{
	uint32_t key[GATHER + 1]; /* + 1: the loop writes before it knows whether it counts */
	uint32_t room = 0;

	for (uint64_t i = 0; i < n && room < place->members; i++) {
		key[room] = spri_f32_key(value[i]);
		room += key[room] >> place->shift == place->prefix;
	}
	while (place->shift > 0) {
		unsigned shift = place->shift - DIGIT_BITS;
		uint64_t bins[DIGIT_BINS] = {0};
		uint32_t members = 0;

		for (uint32_t i = 0; i < room; i++)
			bins[key[i] >> shift & (DIGIT_BINS - 1)]++;
		next_digit(place, bins);
		for (uint32_t i = 0; i < room; i++) {
			key[members] = key[i];
			members += key[i] >> place->shift == place->prefix;
		}
		room = members;
	}
}

/* n ≤ FEW: insertion into descending order. */
static void cut_few(const float *value, uint64_t n, uint64_t k, uint32_t *key, uint64_t *n_equal)
{
	uint32_t sorted[FEW];
	uint64_t above = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint32_t own = spri_f32_key(value[i]);
		uint64_t j = i;

		for (; j > 0 && sorted[j - 1] < own; j--)
			sorted[j] = sorted[j - 1];
		sorted[j] = own;
	}
	while (sorted[above] > sorted[k - 1])
		above++;
	*key = sorted[k - 1];
	*n_equal = k - above;
}

void spri_cut(const float *value, uint64_t n, uint64_t k, uint32_t *key, uint64_t *n_equal)
{
	struct place place = {.shift = FIRST_SHIFT, .need = k};
	uint64_t bins[FIRST_BINS];
	uint64_t counted = 0;

	assert(k >= 1 && k <= n);
	if (n <= FEW) {
		cut_few(value, n, k, key, n_equal);
		return;
	}
	memset(bins, 0, sizeof bins);
	spri_kernels()->histogram(value, n, FIRST_SHIFT, bins);
	for (uint32_t bin = 0; bin < FIRST_BINS; bin++)
		counted += bins[bin];
	bins[0] += n - counted; /* zeros, which the primitive leaves out, have the smallest key */
	place.prefix = find_bin(bins, FIRST_BINS, &place);
	while (place.shift > 0) {
		if (place.members <= GATHER)
			refine_gathered(&place, value, n);
		else
			refine_over_values(&place, value, n);
	}
	*key = place.prefix;
	*n_equal = place.need;
}

void spri_cut_apply(struct spri_list *list, uint64_t k, uint32_t key, uint64_t n_equal,
		    struct spri_list *trimmed)
{
	uint64_t *index = list->index;
	float *value = list->value;
	uint64_t leave = list->count - k; /* so many are still to go */
	uint64_t kept = 0, i = 0, out = trimmed ? trimmed->count : 0;

	assert(k <= list->count);
	assert(!trimmed || trimmed->capacity - trimmed->count >= leave);
	/*
	 * Both ways at once, without a branch that has to guess; ends when nothing is left to go.
	 */
	for (; leave > 0; i++) {
		uint64_t own_index = index[i];
		float own_value = value[i];
		uint32_t own = spri_f32_key(own_value);
		uint64_t equal = (own == key) & (n_equal > 0);
		uint64_t keep = (own > key) | equal;

		index[kept] = own_index;
		value[kept] = own_value;
		kept += keep;
		n_equal -= equal;
		leave -= !keep;
		if (trimmed) {
			trimmed->index[out] = own_index;
			trimmed->value[out] = own_value;
			out += !keep;
		}
	}
	memmove(index + kept, index + i, (list->count - i) * sizeof *index);
	memmove(value + kept, value + i, (list->count - i) * sizeof *value);
	list->count = k;
	if (trimmed)
		trimmed->count = out;
}
