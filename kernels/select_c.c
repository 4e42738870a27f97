/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Scan in C: the definition of this primitive. A group of sums is made and kept in a small array
 * with the largest key seen (this the compiler turns into vectors on its own); only a group with
 * something at or above the threshold is looked through for candidates.
 */
#include <string.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

#define GROUP 64

static const float zeros[GROUP];

static void append(struct spri_scan *s, uint64_t at, const float *sum, unsigned n,
		   uint32_t threshold)
{
	for (unsigned j = 0; j < n; j++) {
		if (spri_f32_key(sum[j]) < threshold)
			continue;
		s->n_qualified++;
		if (s->n_candidates == s->capacity)
			continue;
		s->index[s->n_candidates] = s->base + at + j;
		s->value[s->n_candidates] = sum[j];
		s->n_candidates++;
	}
}

/* Writes n sums, returns the largest key among them. */
static inline uint32_t add_group(float *sum, const float *g, const float *r, unsigned n,
				 float scale)
{
	int32_t top = 0; /* keys fit in 31 bits */

	for (unsigned j = 0; j < n; j++) {
		float a = spri_sum(g[j] * scale, r[j]);
		int32_t key = (int32_t)spri_f32_key(a);

		sum[j] = a;
		top = key > top ? key : top;
	}
	return (uint32_t)top;
}

void spri_scan_c(struct spri_scan *s)
{
	uint32_t threshold = s->threshold ? s->threshold : 1;
	struct spri_fpenv env = spri_fp_enter();

	s->n_candidates = 0;
	s->n_qualified = 0;
	s->nonfinite = false;
	for (uint64_t at = 0; at < s->n; at += GROUP) {
		unsigned n = (unsigned)spri_min_u64(GROUP, s->n - at);
		const float *r = s->residual ? s->residual + at : zeros;
		float sum[GROUP];
		uint32_t top;

		top = n == GROUP ? add_group(sum, s->gradient + at, r, GROUP, s->scale)
				 : add_group(sum, s->gradient + at, r, n, s->scale);
		if (s->shadow)
			memcpy(s->shadow + at, sum, n * sizeof *sum);
		if (top >= SPRI_INF_KEY)
			s->nonfinite = true;
		if (top >= threshold)
			append(s, at, sum, n, threshold);
	}
	spri_fp_leave(env);
}
