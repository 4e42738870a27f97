/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Weigh and draw in C: the definition of these primitives. */
#include <internal/philox.h>

#include <fpenv.h>
#include <rows.h>
#include <scalar.h>
#include <tree.h>

#define GROUP SPRI_DRAW_GROUP

/* The element i, which belongs to lane j. Returns the key of the sum. */
static inline uint32_t weigh_one(struct spri_weigh *s, uint64_t i, unsigned j)
{
	float w = __builtin_fabsf(s->weight[i]);
	float a = spri_sum(s->gradient[i] * s->scale, s->residual[i]);
	float importance = __builtin_fabsf(a) / (w > s->floor ? w : s->floor);
	double finite = spri_finite_or_zero(importance);

	s->shadow[i] = a;
	if (s->importance)
		s->importance[i] = importance;
	s->sum[j] += finite;
	s->sum_squares[j] += finite * finite;
	s->weight_squares[j] += (double)w * (double)w;
	return spri_f32_key(a);
}

void spri_weigh_c(struct spri_weigh *s)
{
	struct spri_fpenv env = spri_fp_enter();
	uint32_t top = 0;

	for (uint64_t i = 0; i < s->n; i++) {
		uint32_t key = weigh_one(s, i, i % SPRI_TREE_LANES);

		top = key > top ? key : top;
	}
	s->nonfinite = top >= SPRI_INF_KEY;
	spri_fp_leave(env);
}

/* Which elements of the group are chosen: a bit each. */
static uint32_t draw_group(const struct spri_draw *s, uint64_t group, const float *importance)
{
	uint32_t chosen = 0;

	for (unsigned j = 0; j < 8; j++) {
		uint32_t word[4];

		spri_philox4(s->key, group * 8 + j, s->step, word);
		for (unsigned w = 0; w < 4; w++) {
			float u = (float)((word[w] >> 8) + 1) * 0x1p-24f;

			if (!(u * s->threshold >= importance[8 * w + j]))
				chosen |= 1u << (8 * w + j);
		}
	}
	return chosen;
}

void spri_draw_c(struct spri_draw *s)
{
	struct spri_fpenv env = spri_fp_enter();
	float least = 0x1p-24f * s->threshold; /* what the smallest u asks for */

	for (uint64_t g = 0; g < s->n_groups; g++) {
		const float *importance = s->importance + g * GROUP;
		unsigned j = 0;

		while (j < GROUP && importance[j] <= least)
			j++;
		if (j < GROUP)
			spri_draw_append(s, s->group + g, draw_group(s, s->group + g, importance));
	}
	spri_fp_leave(env);
}
