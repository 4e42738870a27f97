/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Histogram and scatter, for all rows. Gradients crowd in few bins, and an increment that meets the
 * one before it waits for its store; so long inputs are dealt out over four tables of 16-bit
 * counters (16 KiB of stack), which are added up before one of them could overflow.
 */
#include <string.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define TABLES 4
#define TABLE_BINS 2048 /* the widest histogram that the small tables take */
#define TABLE_SHIFT 20	/* its shift: 0x7fffffff >> 20 is 2047 */
#define BATCH (TABLES * 65535u)
#define WORTHWHILE 8192 /* from so many elements on, clearing and adding the tables pays */

static void count_direct(const float *v, uint64_t n, unsigned shift, uint64_t *bins)
{
	for (uint64_t i = 0; i < n; i++) {
		uint32_t key = spri_f32_key(v[i]);

		bins[key >> shift] += key != 0;
	}
}

/* At most BATCH elements, a multiple of TABLES. */
static void count_batch(const float *v, uint64_t n, unsigned shift, uint64_t *bins)
{
	uint16_t table[TABLES][TABLE_BINS];
	uint32_t n_bins = (0x7fffffffu >> shift) + 1;

	memset(table, 0, sizeof table);
	for (uint64_t i = 0; i < n; i += TABLES) {
		for (unsigned t = 0; t < TABLES; t++) {
			uint32_t key = spri_f32_key(v[i + t]);

			table[t][key >> shift] += key != 0;
		}
	}
	for (uint32_t bin = 0; bin < n_bins; bin++)
		bins[bin] +=
			(uint64_t)table[0][bin] + table[1][bin] + table[2][bin] + table[3][bin];
}

void spri_histogram_c(const float *v, uint64_t n, unsigned shift, uint64_t *bins)
{
	assert(shift < 31);
	while (shift >= TABLE_SHIFT && n >= WORTHWHILE) {
		uint64_t length = spri_min_u64(n, BATCH) / TABLES * TABLES;

		count_batch(v, length, shift, bins);
		v += length;
		n -= length;
	}
	count_direct(v, n, shift, bins);
}

void spri_scatter_c(float *out, uint64_t base, const uint64_t *index, const float *value,
		    uint64_t n, float factor)
{
	struct spri_fpenv env = spri_fp_enter();

	for (uint64_t i = 0; i < n; i++)
		out[index[i] - base] = spri_product(value[i], factor);
	spri_fp_leave(env);
}
