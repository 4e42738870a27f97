/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Selection by importance (Cheng & Xu 2019; kernels/importance.h), and how the threshold of a part
 * is steered so that the union of the masks has the density that was asked for.
 *
 *   threshold = factor · ratio
 *
 *   ratio   follows variance / mean of I, which the broadcasters tell with their masks: the scale
 *           on which I falls off (for an exponential distribution it is the mean). Smoothed, as one
 *           heavy element moves the variance far.
 *   factor  is corrected after each step by the density d of the union, target t:
 *           factor ·= 1 + (d − t) / (2 t), between 1/2 and 2. At rest the mean of d is t. When
 *           d is beyond 4 t (gradients that come back after steps without any), it begins again.
 *
 * With random choice the expected density is E[min(1, I / threshold)] ≤ mean / threshold. The first
 * step knows no ratio: each broadcaster takes threshold = mean / t, an upper bound, and factor
 * begins as what all of them used over the ratio.
 *
 * All ranks compute the same from the same notes, with additions, products and quotients alone
 * (they are exact in IEEE 754; logarithms are not the same everywhere). The threshold matters on
 * broadcasters only, so a rank with other weights would spoil a mask, but no sum.
 *
 * Failures: a NaN, by the policy, as in any selection.
 */
#include <internal/bits.h>
#include <internal/bytes.h>
#include <math.h>
#include <string.h>

#include "exchange.h"

/* Elements between two looks at the network: whole blocks of the sums' tree. */
#define SEGMENT ((uint64_t)1 << 17)
/* How much of the ratio is that of the last step. */
#define NEWS 0.1
/* Bounds of the factor, and their inverse; far from anything that a gradient asks for. */
#define LEAST_FACTOR 1e-30
/* The lowest denominator there is: weights that are all zero have no rms. */
#define LEAST_FLOOR 1e-12

/* Sums over a part. */
struct sums {
	double sum, sum_squares, weight_squares;
	struct spri_finite finite;
};

/* One walk over a part. */
static void walk(struct spr_exchange *exchange, struct exchange_part *part,
		 struct spri_importance *s, struct sums *sums)
{
	const struct spri_importance all = *s;
	struct spri_tree trees[3] = {{{0}}};

	s->trees = trees;
	*sums = (struct sums){.finite = SPRI_FINITE_NONE};
	part->selected.count = 0;
	for (uint64_t at = 0; at < all.n; at += SEGMENT) {
		s->gradient = all.gradient + at;
		s->residual = all.residual + at;
		s->weight = all.weight + at;
		s->shadow = all.shadow + at;
		s->n = spri_min_u64(SEGMENT, all.n - at);
		s->base = at;
		s->index = part->selected.index + part->selected.count;
		s->capacity = part->selected.capacity - part->selected.count;
		spri_importance(s);
		part->selected.count += s->count;
		sums->sum = s->sum;
		sums->sum_squares = s->sum_squares;
		sums->weight_squares = s->weight_squares;
		sums->finite.bad_index = spri_min_u64(sums->finite.bad_index, s->bad_index);
		sums->finite.dropped += s->dropped;
		spri_exchange_progress(exchange, part, NULL);
	}
	*s = all;
}

static double rms_of(double squares, uint64_t n)
{
	return sqrt(squares / (double)n);
}

static void write_note(struct exchange_part *part, const struct sums *sums, double threshold)
{
	double n = (double)part->count, mean = sums->sum / n;
	double variance = sums->sum_squares / n - mean * mean;
	uint64_t bits[3];
	const double note[3] = {mean, variance > 0 ? variance : 0, threshold};

	memcpy(bits, note, sizeof bits);
	for (unsigned i = 0; i < 3; i++)
		spri_put_u64(part->note + 8 * i, bits[i]);
}

static struct exchange_note read_note(const uint8_t *octets)
{
	struct exchange_note note;
	uint64_t bits[3];

	for (unsigned i = 0; i < 3; i++)
		bits[i] = spri_get_u64(octets + 8 * i);
	memcpy(&note, bits, sizeof note);
	return note;
}

int spri_importance_select(struct spr_exchange *exchange, struct exchange_part *part,
			   const float *gradient, float scale, uint64_t *index)
{
	const struct exchange_steering *steering = &part->steering;
	const float *weight = exchange->weights + part->offset;
	double rms = steering->rms > 0
			     ? steering->rms
			     : spri_norm2(weight, part->count) / sqrt((double)part->count);
	double threshold = steering->factor * steering->ratio;
	struct spri_importance s = {
		.gradient = gradient,
		.residual = exchange->residual + part->offset,
		.weight = weight,
		.shadow = exchange->shadow + part->offset,
		.n = part->count,
		.scale = scale,
		.floor = (float)fmax(exchange->importance_floor * rms, LEAST_FLOOR),
		.choose = exchange->proposes && steering->ratio > 0,
		.threshold = (float)threshold,
		.key = spri_mix64(exchange->seed ^ spri_mix64(exchange->comm->rank + 1)),
		.step = exchange->step,
		.policy = exchange->policy,
	};
	struct sums sums;

	walk(exchange, part, &s, &sums);
	if (exchange->proposes && steering->ratio == 0) {
		/* the first walk told the mean; the residual of the second is the same */
		threshold = sums.sum / (double)part->count / exchange->density;
		s.choose = true;
		s.threshold = (float)threshold;
		walk(exchange, part, &s, &sums);
	}
	part->now.rms = rms_of(sums.weight_squares, part->count);
	part->now.dropped += sums.finite.dropped;
	write_note(part, &sums, threshold);
	*index = sums.finite.bad_index;
	return exchange->policy == SPR_NONFINITE_ERROR && sums.finite.bad_index != SPRI_NO_INDEX
		       ? SPR_ENONFINITE
		       : 0;
}

static double clamp(double x, double least, double most)
{
	return x > least ? x < most ? x : most : least; /* NaN: least */
}

void spri_importance_steer(struct spr_exchange *exchange, struct exchange_part *part)
{
	struct exchange_steering *steering = &part->steering;
	double density = (double)part->op->sum.count / (double)part->count;
	double target = exchange->density, ratio = 0, used = 0, mean = 0;
	uint32_t r = exchange->n_broadcasters, n = 0;

	steering->rms = part->now.rms;
	for (uint32_t i = 0; i < r; i++) {
		struct exchange_note note =
			read_note(part->notes + (size_t)i * EXCHANGE_NOTE_BYTES);

		if (!(note.mean > 0) || !(note.variance > 0) || !isfinite(note.variance) ||
		    !(note.threshold > 0) || !isfinite(note.threshold))
			continue; /* nothing to learn from zeros, or from a layer of one element */
		mean += note.mean;
		ratio += note.variance / note.mean;
		used += note.threshold;
		n++;
	}
	if (n > 0 && steering->ratio == 0) {
		steering->ratio = ratio / n;
		steering->factor = used / ratio;
	} else if (n > 0) {
		steering->ratio += NEWS * (ratio / n - steering->ratio);
	}
	if (n == 0 || steering->ratio == 0)
		return;
	if (density > 4 * target) /* far off: begin again, as in the first step */
		steering->factor = mean / n / target / steering->ratio;
	else
		steering->factor *= clamp(1 + (density - target) / (2 * target), 0.5, 2);
	steering->factor = clamp(steering->factor, LEAST_FACTOR, 1 / LEAST_FACTOR);
}
