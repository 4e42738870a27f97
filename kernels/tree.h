/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Sums of many values in double, in one order of additions whatever the row: element i goes to lane
 * i mod 8; the lanes are added in pairs at the end of a block; blocks are added in pairs like the
 * digits of a binary counter, so that the tree depends on n alone.
 */
#ifndef SPRI_TREE_H
#define SPRI_TREE_H

#include <internal/compiler.h>

#define SPRI_TREE_LANES 8
#define SPRI_TREE_BLOCK 4096 /* elements */
#define SPRI_TREE_LEVELS 64

/* All zeros: no block yet. */
struct spri_tree {
	double partial
		[SPRI_TREE_LEVELS]; /* [l]: a sum of 2^l blocks, when bit l of blocks is set */
	uint64_t blocks;
};

static inline void spri_tree_add(struct spri_tree *tree, const double lane[SPRI_TREE_LANES])
{
	double carry = ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
		       ((lane[1] + lane[5]) + (lane[3] + lane[7]));
	unsigned level = 0;

	for (; tree->blocks >> level & 1; level++)
		carry = tree->partial[level] + carry;
	tree->partial[level] = carry;
	tree->blocks++;
}

static inline double spri_tree_total(const struct spri_tree *tree)
{
	double sum = 0.0;

	for (unsigned level = 0; tree->blocks >> level; level++) {
		if (tree->blocks >> level & 1)
			sum = tree->partial[level] + sum;
	}
	return sum != sum ? __builtin_nan("") : sum;
}

#endif
