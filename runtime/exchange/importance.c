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

/* How much of the ratio is that of the last step. */
#define NEWS 0.1
/* Bounds of the factor, and their inverse; far from anything that a gradient asks for. */
#define LEAST_FACTOR 1e-30
/* The lowest denominator there is: weights that are all zero have no rms. */
#define LEAST_FLOOR 1e-12

static double rms_of(double squares, uint64_t n)
{
	return sqrt(squares / (double)n);
}

static void write_note(struct exchange_part *part, const struct spri_importance *s,
		       double threshold)
{
	double n = (double)part->count, mean = s->sum / n;
	double variance = s->sum_squares / n - mean * mean;
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
	double norm, threshold = steering->factor * steering->ratio, rms = steering->rms;
	struct spri_importance s = {
		.gradient = gradient,
		.residual = exchange->residual + part->offset,
		.weight = exchange->weights + part->offset,
		.shadow = exchange->shadow + part->offset,
		.n = part->count,
		.scale = scale,
		.choose = exchange->proposes && steering->ratio > 0,
		.threshold = (float)threshold,
		.key = spri_mix64(exchange->seed ^ spri_mix64(exchange->comm->rank + 1)),
		.step = exchange->step,
		.policy = exchange->policy,
	};
	int r = 0;

	if (!(rms > 0)) {
		r = exchange->place->norm(exchange, s.weight, s.n, &norm);
		rms = norm / sqrt((double)s.n);
	}
	s.floor = (float)fmax(exchange->importance_floor * rms, LEAST_FLOOR);
	if (r == 0)
		r = exchange->place->weigh(exchange, part, &s);
	if (r == 0 && exchange->proposes && steering->ratio == 0) {
		/* the first walk told the mean; the residual of the second is the same */
		threshold = s.sum / (double)part->count / exchange->density;
		s.choose = true;
		s.threshold = (float)threshold;
		r = exchange->place->weigh(exchange, part, &s);
	}
	if (r < 0)
		return spri_trace(r);
	part->now.rms = rms_of(s.weight_squares, part->count);
	part->now.dropped += s.dropped;
	write_note(part, &s, threshold);
	return spri_residual_finite(exchange, s.bad_index, index);
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
