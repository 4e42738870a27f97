/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The Euclidean norm, added up in the order of tree.h. Squares of singles neither overflow nor
 * vanish in double.
 */
#include <math.h>

#include <fpenv.h>
#include <scalar.h>
#include <tree.h>

#define LANES SPRI_TREE_LANES

static void add_block(struct spri_tree *tree, const float *v, uint64_t n)
{
	double lane[LANES] = {0};
	uint64_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		for (unsigned j = 0; j < LANES; j++)
			lane[j] += (double)v[i + j] * (double)v[i + j];
	}
	for (unsigned j = 0; i + j < n; j++)
		lane[j] += (double)v[i + j] * (double)v[i + j];
	spri_tree_add(tree, lane);
}

double spri_norm2(const float *v, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	struct spri_tree tree = {0};
	double norm;

	for (uint64_t at = 0; at < n; at += SPRI_TREE_BLOCK)
		add_block(&tree, v + at, spri_min_u64(SPRI_TREE_BLOCK, n - at));
	norm = sqrt(spri_tree_total(&tree));
	spri_fp_leave(env);
	return norm;
}
