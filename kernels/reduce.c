/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Dense sums under a policy. The primitive of the row adds and tells whether some sum was not
 * finite; every non-finite input makes such a sum, so nothing else is looked at as long as it says
 * no. If it says yes:
 *
 *   ERROR, PROPAGATE   the output is right as it is; the lowest index is looked for in it
 *   DROP               the block is made again in scalar code. As an output in place would have
 *                      overwritten its inputs by then, DROP in place works through a small buffer.
 */
#include <string.h>

#include <fpenv.h>
#include <scalar.h>

#define BLOCK 2048 /* elements; 8 KiB of stack */

static const float zeros[BLOCK];

static void note_lowest(const float *v, uint64_t n, uint64_t base, struct spri_finite *finite)
{
	uint64_t i = 0;

	while (i < n && !spri_f32_nonfinite(v[i]))
		i++;
	if (i < n)
		spri_finite_note(finite, base + i);
}

static void drop_block(float *out, const float *a, const float *b, uint64_t n, uint64_t base,
		       struct spri_finite *finite)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = spri_sum_drop(a[i], b[i], base + i, finite);
}

/* n ≤ BLOCK. */
static void reduce_block(float *out, const float *a, const float *b, uint64_t n, uint64_t base,
			 enum spr_nonfinite policy, struct spri_finite *finite)
{
	const struct spri_kernel_row *row = spri_kernels();
	bool in_place = out == a || out == b;
	float buffer[BLOCK];
	float *sum = policy == SPR_NONFINITE_DROP && in_place ? buffer : out;

	if (spri_unlikely(row->reduce(sum, a, b, n))) {
		if (policy == SPR_NONFINITE_DROP)
			drop_block(sum, a, b, n, base, finite);
		else
			note_lowest(sum, n, base, finite);
	}
	if (sum != out)
		memcpy(out, sum, n * sizeof *out);
}

void spri_reduce(float *out, const float *a, const float *b, uint64_t n, uint64_t base,
		 enum spr_nonfinite policy, struct spri_finite *finite)
{
	struct spri_fpenv env = spri_fp_enter();

	for (uint64_t at = 0; at < n; at += BLOCK)
		reduce_block(out + at, a + at, b + at, spri_min_u64(BLOCK, n - at), base + at,
			     policy, finite);
	spri_fp_leave(env);
}

void spri_check(float *out, const float *in, uint64_t n, uint64_t base, enum spr_nonfinite policy,
		struct spri_finite *finite)
{
	struct spri_fpenv env = spri_fp_enter();

	for (uint64_t at = 0; at < n; at += BLOCK)
		reduce_block(out + at, in + at, zeros, spri_min_u64(BLOCK, n - at), base + at,
			     policy, finite);
	spri_fp_leave(env);
}
