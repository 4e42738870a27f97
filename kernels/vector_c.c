/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Reduce, scale and axpby in C: the definition of these primitives. */
#include <fpenv.h>
#include <rows.h>
#include <scalar.h>

bool spri_reduce_c(float *out, const float *a, const float *b, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	int32_t top = 0; /* the largest key; keys fit in 31 bits */

	for (uint64_t i = 0; i < n; i++) {
		float sum = spri_sum(a[i], b[i]);
		int32_t key = (int32_t)spri_f32_key(sum);

		out[i] = sum;
		top = key > top ? key : top;
	}
	spri_fp_leave(env);
	return (uint32_t)top >= SPRI_INF_KEY;
}

void spri_scale_c(float *out, const float *in, uint64_t n, float factor)
{
	struct spri_fpenv env = spri_fp_enter();

	for (uint64_t i = 0; i < n; i++)
		out[i] = spri_product(in[i], factor);
	spri_fp_leave(env);
}

bool spri_axpby_c(float *out, float a, const float *x, float b, const float *y, uint64_t n)
{
	struct spri_fpenv env = spri_fp_enter();
	int32_t top = 0;

	for (uint64_t i = 0; i < n; i++) {
		float sum = spri_sum(a * x[i], b * y[i]);
		int32_t key = (int32_t)spri_f32_key(sum);

		out[i] = sum;
		top = key > top ? key : top;
	}
	spri_fp_leave(env);
	return (uint32_t)top >= SPRI_INF_KEY;
}
