/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The perceptron of spr_train: its derivatives against differences, shares against the whole
 * batch.
 */
#include "check.h"
#include "train_mlp.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 12
#define N_IN 9
#define N_CLASSES 4

static const size_t shape[] = {N_IN, 8, 6, N_CLASSES};

/* Any inputs and labels, the same each time. */
static void fill(float *in, uint8_t *labels)
{
	uint64_t state = 7;

	for (size_t i = 0; i < BATCH * N_IN; i++)
		in[i] = (float)(train_random(&state) >> 40) * 0x1p-23f - 1.0f;
	for (size_t i = 0; i < BATCH; i++)
		labels[i] = (uint8_t)(train_random(&state) % N_CLASSES);
}

static double loss_of(struct train_mlp *mlp, const float *params, const uint8_t *labels)
{
	double loss = 0;
	uint64_t n_correct = 0;

	train_mlp_evaluate(mlp, params, labels, BATCH, &loss, &n_correct);
	return loss / BATCH;
}

Test(train_mlp, gradient_matches_differences)
{
	struct train_mlp mlp;
	uint8_t labels[BATCH];
	float *params, *gradient;
	double loss;

	cr_assert_eq(train_mlp_init(&mlp, shape, 3, BATCH), 0);
	cr_assert_eq(mlp.n_params, (N_IN + 1) * 8 + (8 + 1) * 6 + (6 + 1) * N_CLASSES);
	params = calloc(mlp.n_params, sizeof(float));
	gradient = calloc(mlp.n_params, sizeof(float));
	cr_assert_not_null(params);
	cr_assert_not_null(gradient);
	train_mlp_draw(&mlp, params, 3);
	fill(mlp.act[0], labels);
	loss = train_mlp_gradient(&mlp, params, labels, BATCH, gradient);
	cr_assert(fabs(loss - loss_of(&mlp, params, labels)) < 1e-9,
		  "gradient's and evaluate's loss differ: %g", loss);
	for (size_t i = 0; i < mlp.n_params; i++) {
		float keep = params[i];
		double up, down, slope;

		params[i] = keep + 0x1p-10f;
		up = loss_of(&mlp, params, labels);
		params[i] = keep - 0x1p-10f;
		down = loss_of(&mlp, params, labels);
		params[i] = keep;
		slope = (up - down) / 0x1p-9;
		cr_assert(fabs(slope - (double)gradient[i]) < 2e-3,
			  "parameter %zu: gradient %g, expected the slope %g", i,
			  (double)gradient[i], slope);
	}
	free(params);
	free(gradient);
	train_mlp_fini(&mlp);
}

Test(train_mlp, shares_average_to_the_whole)
{
	struct train_mlp mlp;
	uint8_t labels[BATCH];
	float *in, *params, *whole, *half[2];
	size_t n;

	cr_assert_eq(train_mlp_init(&mlp, shape, 3, BATCH), 0);
	n = mlp.n_params;
	params = calloc(4 * n, sizeof(float));
	in = malloc(BATCH * N_IN * sizeof(float));
	cr_assert_not_null(params);
	cr_assert_not_null(in);
	whole = params + n;
	half[0] = whole + n;
	half[1] = half[0] + n;
	train_mlp_draw(&mlp, params, 3);
	fill(in, labels);
	memcpy(mlp.act[0], in, BATCH * N_IN * sizeof(float));
	train_mlp_gradient(&mlp, params, labels, BATCH, whole);
	for (size_t h = 0; h < 2; h++) {
		memcpy(mlp.act[0], in + h * (BATCH / 2) * N_IN, (BATCH / 2) * N_IN * sizeof(float));
		train_mlp_gradient(&mlp, params, labels + h * (BATCH / 2), BATCH / 2, half[h]);
	}
	for (size_t i = 0; i < n; i++)
		cr_assert(fabsf(whole[i] - (half[0][i] + half[1][i]) / 2) < 1e-5f,
			  "parameter %zu: %g, expected the mean of %g and %g", i, (double)whole[i],
			  (double)half[0][i], (double)half[1][i]);
	free(params);
	free(in);
	train_mlp_fini(&mlp);
}

Test(train_mlp, weights_come_from_the_seed)
{
	struct train_mlp mlp;
	float a[200], b[200];
	double squares = 0, expected = 2.0 / N_IN;

	cr_assert_eq(train_mlp_init(&mlp, shape, 3, 1), 0);
	cr_assert_lt(mlp.n_params, 200);
	train_mlp_draw(&mlp, a, 5);
	train_mlp_draw(&mlp, b, 5);
	cr_assert_arr_eq(a, b, mlp.n_params * sizeof(float));
	train_mlp_draw(&mlp, b, 6);
	cr_assert_arr_neq(a, b, mlp.n_params * sizeof(float));
	for (size_t i = 0; i < N_IN * 8; i++)
		squares += (double)a[i] * (double)a[i];
	cr_assert(squares / (N_IN * 8) > expected / 2 && squares / (N_IN * 8) < expected * 2,
		  "variance %g, expected about He's %g", squares / (N_IN * 8), expected);
	for (size_t i = 0; i < 8; i++)
		cr_assert_eq(a[mlp.bias_at[0] + i], 0.0f);
	train_mlp_fini(&mlp);
}

Test(train_mlp, refuses_shapes_that_are_none)
{
	static const size_t with_zero[] = {4, 0, 2}, huge[] = {4, (size_t)1 << 40, 2};
	struct train_mlp mlp;

	cr_assert_eq(train_mlp_init(&mlp, shape, 0, 1), -EINVAL);
	train_mlp_fini(&mlp);
	cr_assert_eq(train_mlp_init(&mlp, shape, TRAIN_MLP_MAX_LAYERS + 1, 1), -EINVAL);
	train_mlp_fini(&mlp);
	cr_assert_eq(train_mlp_init(&mlp, shape, 3, 0), -EINVAL);
	train_mlp_fini(&mlp);
	cr_assert_eq(train_mlp_init(&mlp, with_zero, 2, 1), -EINVAL);
	train_mlp_fini(&mlp);
	cr_assert_eq(train_mlp_init(&mlp, huge, 2, 1), -EINVAL);
	train_mlp_fini(&mlp);
}
