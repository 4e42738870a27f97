/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The Euclidean norm, in one order of additions whatever the row: element i of a block goes to lane
 * i mod 8; the lanes are added in pairs; blocks are added in pairs like the digits of a binary
 * counter, so that the tree depends on n alone. Squares of singles neither overflow nor vanish in
 * double.
 */
#include <math.h>

#include <fpenv.h>
#include <scalar.h>

#define LANES 8
#define BLOCK 4096
#define LEVELS 64

static double sum_block(const float *v, uint64_t n)
{
	double lane[LANES] = {0};
	uint64_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		for (unsigned j = 0; j < LANES; j++)
			lane[j] += (double)v[i + j] * (double)v[i + j];
	}
	for (unsigned j = 0; i + j < n; j++)
		lane[j] += (double)v[i + j] * (double)v[i + j];
	return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
	       ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

double spri_norm2(const float *v, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	double partial[LEVELS]; /* partial[l]: a sum of 2^l blocks, when bit l of `blocks` is set */
	uint64_t blocks = 0;
	double sum = 0.0;

	for (uint64_t at = 0; at < n; at += BLOCK) {
		double carry = sum_block(v + at, spri_min_u64(BLOCK, n - at));
		unsigned level = 0;

		for (; blocks >> level & 1; level++)
			carry = partial[level] + carry;
		partial[level] = carry;
		blocks++;
	}
	for (unsigned level = 0; blocks >> level; level++) {
		if (blocks >> level & 1)
			sum = partial[level] + sum;
	}
	sum = sqrt(sum);
	spri_fp_leave(env);
	return sum != sum ? (double)NAN : sum;
}
