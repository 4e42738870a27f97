/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Importance of gradients (Cheng & Xu 2019): I = |a| / max(|w|, floor), where a is what a rank has
 * accumulated and w the weight it belongs to. One pass accumulates, weighs and, on ranks that
 * propose a mask, chooses. Part of the front header.
 *
 * Numeric contract as in kernel.h; sums (of I, I², w²) are in double, element i of the call going
 * to lane i mod 8, lanes added in pairs at the end of each block of 4096 elements, blocks like the
 * digits of a binary counter (norm.c): they depend on the values and n alone, not on the row.
 */
#ifndef SPRI_IMPORTANCE_H
#define SPRI_IMPORTANCE_H

#include <internal/compiler.h>
#include <sparring/types.h>

/*
 * For i in [0, n): a = scale · gradient[i] + residual[i]; shadow[i] = a; I = |a| / max(|weight[i]|,
 * floor); chosen when u · threshold < I, with u in [0, 1): all of I > threshold, others with
 * probability I / threshold.
 *
 * u of element j = base + i: word (j / 8) mod 4 of Philox4x32-10 with the key, counter
 * (j / 32 · 8 + j mod 8, step), its upper 24 bits times 2^-24. (Eight neighbouring elements use
 * eight counters and the same word, so a vector row needs no shuffle.)
 */
struct spri_importance {
	const float *gradient; /* n */
	const float *residual; /* n; may equal shadow */
	const float *weight;   /* n */
	float *shadow;	       /* n */
	uint64_t n;
	uint64_t base;	 /* index of element 0 */
	float scale;	 /* factor on the gradient */
	float floor;	 /* > 0: lowest denominator */
	bool choose;	 /* this rank proposes a mask */
	float threshold; /* ≥ 0, when choose */
	uint64_t key, step;
	enum spr_nonfinite policy; /* DROP: as in spri_select; else only reported */
	uint64_t *index;	   /* capacity entries; the chosen, ascending */
	uint64_t capacity;
	uint64_t count;		 /* out: written, ≤ capacity; appending stops there */
	uint64_t n_chosen;	 /* out: all that were chosen */
	double sum, sum_squares; /* out: of I, over elements whose I is finite */
	double weight_squares;	 /* out: of w */
	/* out: lowest index of a sum a that is not finite, and how many were dropped */
	uint64_t bad_index;
	uint64_t dropped;
};

void spri_importance(struct spri_importance *s);

#endif
