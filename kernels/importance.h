/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Importance of gradients (Cheng & Xu 2019): I = |a| / max(|w|, floor), where a is what a rank has
 * accumulated and w the weight it belongs to. One pass accumulates, weighs and, on ranks that
 * propose a mask, chooses. Part of the front header.
 *
 * Numeric contract as in kernel.h; sums (of I, I², w²) are in double, in the order of tree.h with
 * element i of the call in lane i mod 8: they depend on the values and n alone, not on the row.
 */
#ifndef SPRI_IMPORTANCE_H
#define SPRI_IMPORTANCE_H

#include <internal/compiler.h>
#include <sparring/types.h>

#include <tree.h>

#define SPRI_WEIGH_MOST 512 /* elements of a piece; it stays in the first cache between the two */
#define SPRI_DRAW_GROUP 32  /* elements that share eight counters */

/* ---- operation ---- */

/*
 * For i in [0, n): a = scale · gradient[i] + residual[i], as in the scan; shadow[i] = a; I = |a| /
 * max(|weight[i]|, floor), rounded once (a weight that is NaN counts as 0); chosen unless
 * u · threshold ≥ I, with u in (0, 1]: all of I > threshold, others with probability I / threshold,
 * none whose I is 0. NaN, like infinity, is larger than all, and chosen.
 *
 * u of element j = base + i: word (j / 8) mod 4 of Philox4x32-10 with the key, counter
 * (j / 32 · 8 + j mod 8, step); its upper 24 bits, plus 1, times 2^-24. (Eight neighbouring
 * elements use eight counters and the same word, so a vector row needs no shuffle; the smallest u
 * is not 0, so that 32 elements too unimportant for it are passed over without drawing.)
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
	/*
	 * in/out: of the sums, three, zeroed before the first call; NULL: this call is all. A layer
	 * that is done in several calls, each but the last of whole blocks (SPRI_TREE_BLOCK), then
	 * has the same sums as in one.
	 */
	struct spri_tree *trees;
	uint64_t *index; /* capacity entries; the chosen, ascending */
	uint64_t capacity;
	uint64_t count;	   /* out: written, ≤ capacity; appending stops there */
	uint64_t n_chosen; /* out: all that were chosen */
	/* out, of this call and those before: of I, over elements whose I is finite */
	double sum, sum_squares;
	double weight_squares; /* out: of w; NaN when a weight is */
	/* out: lowest index of a sum a that is not finite, and how many were dropped */
	uint64_t bad_index;
	uint64_t dropped;
};

void spri_importance(struct spri_importance *s);

/* ---- its two primitives ---- */

/* Accumulates and weighs a piece. */
struct spri_weigh {
	const float *gradient, *residual, *weight; /* n */
	float *shadow;				   /* n; may equal gradient or residual */
	uint64_t n;				   /* ≤ SPRI_WEIGH_MOST */
	float scale, floor;
	bool stream;	   /* write the shadow past the caches, where its alignment allows */
	float *importance; /* n: I; NULL: not wanted */
	/* in/out: the lanes of the sums; element i adds to lane i mod 8 */
	double sum[8], sum_squares[8], weight_squares[8];
	bool nonfinite; /* out: some a was not finite */
};

/* Chooses among the elements of n_groups groups, whose numbers are `group` and what follows. */
struct spri_draw {
	const float *importance; /* 32 · n_groups, 64-byte aligned */
	uint64_t group;		 /* the first element's index / 32 */
	uint64_t n_groups;
	float threshold;
	uint64_t key, step;
	uint64_t *index; /* capacity entries */
	uint64_t capacity;
	uint64_t count, n_chosen; /* in/out: as in spri_importance */
};

#endif
