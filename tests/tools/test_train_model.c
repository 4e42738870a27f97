/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The models of spr_train, each row of the table: derivatives against differences, shares against
 * the whole batch, layers without gaps that finish from the last to the first.
 */
#include "check.h"
#include "train_exp.h"
#include "train_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 6
#define ROWS 7
#define COLUMNS 6
#define N_CLASSES 5
#define LENGTH 4

static const struct train_shape shape = {ROWS, COLUMNS, N_CLASSES, LENGTH};
static const size_t hidden[] = {4, 3};

/* A small net of a model, its weights, and any samples, the same each time. */
struct subject {
	struct train_net net;
	float *params, *gradient;
	float pixel[BATCH * ROWS * COLUMNS];
	uint8_t label[BATCH * (LENGTH + 1)];
	struct train_batch batch;
};

static void subject_init(struct subject *s, const struct train_model *model)
{
	uint64_t state = 7;

	cr_assert_eq(train_net_init(&s->net, model, &shape, hidden, BATCH), 0, "%s", model->name);
	s->params = calloc(s->net.n_params, sizeof(float));
	s->gradient = calloc(s->net.n_params, sizeof(float));
	cr_assert_not_null(s->params);
	cr_assert_not_null(s->gradient);
	model->draw(&s->net, s->params, 3);
	train_draw_uniform(s->pixel, BATCH * ROWS * COLUMNS, 1, &state);
	for (size_t i = 0; i < BATCH * (LENGTH + 1); i++)
		s->label[i] = (uint8_t)(train_random(&state) % N_CLASSES);
	s->batch = (struct train_batch){BATCH, s->pixel, s->label};
}

static void subject_fini(struct subject *s)
{
	free(s->params);
	free(s->gradient);
	train_net_fini(&s->net);
}

static double loss_of(struct subject *s)
{
	struct train_score score = {0};

	s->net.model->evaluate(&s->net, s->params, &s->batch, &score);
	return score.loss / (double)score.n_counted;
}

Test(train_model, gradient_matches_differences)
{
	for (int m = 0; train_models[m]; m++) {
		struct subject s;
		double loss;

		subject_init(&s, train_models[m]);
		loss = s.net.model->gradient(&s.net, s.params, &s.batch, s.gradient);
		cr_assert(fabs(loss - loss_of(&s)) < 1e-9,
			  "%s: gradient's and evaluate's loss differ: %g", s.net.model->name, loss);
		for (size_t i = 0; i < s.net.n_params; i++) {
			float keep = s.params[i];
			double up, down, slope;

			s.params[i] = keep + 0x1p-10f;
			up = loss_of(&s);
			s.params[i] = keep - 0x1p-10f;
			down = loss_of(&s);
			s.params[i] = keep;
			slope = (up - down) / 0x1p-9;
			cr_assert(fabs(slope - (double)s.gradient[i]) < 2e-3,
				  "%s: parameter %zu: gradient %g, expected the slope %g",
				  s.net.model->name, i, (double)s.gradient[i], slope);
		}
		subject_fini(&s);
	}
}

Test(train_model, every_layer_matters)
{
	for (int m = 0; train_models[m]; m++) {
		struct subject s;

		subject_init(&s, train_models[m]);
		s.net.model->gradient(&s.net, s.params, &s.batch, s.gradient);
		for (size_t l = 0; l < s.net.n_layers; l++) {
			const struct train_layer *layer = &s.net.layer[l];
			double largest = 0;

			for (size_t i = 0; i < layer->count; i++)
				largest =
					fmax(largest, fabs((double)s.gradient[layer->offset + i]));
			cr_assert_gt(largest, 1e-4, "%s: no derivative in %s", s.net.model->name,
				     layer->name);
		}
		subject_fini(&s);
	}
}

Test(train_model, shares_average_to_the_whole)
{
	for (int m = 0; train_models[m]; m++) {
		const struct train_model *model = train_models[m];
		size_t per_sample = model->kind == TRAIN_TEXT ? LENGTH + 1 : 1;
		struct subject s;
		float *half[2];

		subject_init(&s, model);
		model->gradient(&s.net, s.params, &s.batch, s.gradient);
		for (size_t h = 0; h < 2; h++) {
			struct train_batch part = {BATCH / 2,
						   s.pixel + h * (BATCH / 2) * ROWS * COLUMNS,
						   s.label + h * (BATCH / 2) * per_sample};

			half[h] = calloc(s.net.n_params, sizeof(float));
			cr_assert_not_null(half[h]);
			model->gradient(&s.net, s.params, &part, half[h]);
		}
		for (size_t i = 0; i < s.net.n_params; i++)
			cr_assert(fabsf(s.gradient[i] - (half[0][i] + half[1][i]) / 2) < 1e-5f,
				  "%s: parameter %zu: %g, expected the mean of %g and %g",
				  model->name, i, (double)s.gradient[i], (double)half[0][i],
				  (double)half[1][i]);
		free(half[0]);
		free(half[1]);
		subject_fini(&s);
	}
}

/* Counts the layers down. */
static void note_layer(void *arg, size_t layer)
{
	size_t *left = arg;

	cr_assert_eq(layer, *left - 1, "layer %zu is done, expected %zu", layer, *left - 1);
	*left = layer;
}

Test(train_model, layers_have_no_gaps_and_finish_backwards)
{
	for (int m = 0; train_models[m]; m++) {
		struct subject s;
		size_t at = 0, left;

		subject_init(&s, train_models[m]);
		for (size_t l = 0; l < s.net.n_layers; l++) {
			cr_assert_eq(s.net.layer[l].offset, at);
			at += s.net.layer[l].count;
		}
		cr_assert_eq(at, s.net.n_params);
		left = s.net.n_layers;
		s.net.on_layer = note_layer;
		s.net.on_layer_arg = &left;
		s.net.model->gradient(&s.net, s.params, &s.batch, s.gradient);
		cr_assert_eq(left, 0, "%s: %zu layers were not announced", s.net.model->name, left);
		subject_fini(&s);
	}
}

Test(train_model, weights_come_from_the_seed)
{
	for (int m = 0; train_models[m]; m++) {
		struct subject s;
		size_t bytes;

		subject_init(&s, train_models[m]);
		bytes = s.net.n_params * sizeof(float);
		s.net.model->draw(&s.net, s.gradient, 3);
		cr_assert_arr_eq(s.params, s.gradient, bytes);
		s.net.model->draw(&s.net, s.gradient, 4);
		cr_assert_arr_neq(s.params, s.gradient, bytes);
		for (size_t l = 0; l < s.net.n_layers; l++)
			cr_assert_eq(s.params[s.net.layer[l].offset] == 0, s.net.layer[l].is_bias,
				     "%s: %s", s.net.model->name, s.net.layer[l].name);
		subject_fini(&s);
	}
}

Test(train_model, perceptron_has_its_variance)
{
	const struct train_model *mlp = train_model_find("mlp");
	const struct train_shape images = {28, 28, 10, 0};
	const size_t own[2] = {0};
	struct train_net net;
	double squares = 0, expected = 2.0 / 784;
	float *params;

	cr_assert_not_null(mlp);
	cr_assert_eq(train_net_init(&net, mlp, &images, own, 1), 0);
	cr_assert_eq(net.n_params, 1068810);
	params = calloc(net.n_params, sizeof(float));
	cr_assert_not_null(params);
	mlp->draw(&net, params, 5);
	for (size_t i = 0; i < net.layer[0].count; i++)
		squares += (double)params[i] * (double)params[i];
	squares /= (double)net.layer[0].count;
	cr_assert(fabs(squares / expected - 1) < 0.05, "variance %g, expected about He's %g",
		  squares, expected);
	free(params);
	train_net_fini(&net);
}

Test(train_model, refuses_shapes_that_are_none)
{
	static const size_t too_many[] = {(size_t)1 << 40, 4};

	for (int m = 0; train_models[m]; m++) {
		struct train_shape none = {0, 0, N_CLASSES, 0}, no_class = shape;
		struct train_net net;

		no_class.n_classes = 0;
		cr_assert_eq(train_net_init(&net, train_models[m], &none, hidden, 1), -EINVAL);
		train_net_fini(&net);
		cr_assert_eq(train_net_init(&net, train_models[m], &no_class, hidden, 1), -EINVAL);
		train_net_fini(&net);
		cr_assert_eq(train_net_init(&net, train_models[m], &shape, hidden, 0), -EINVAL);
		train_net_fini(&net);
		cr_assert_eq(train_net_init(&net, train_models[m], &shape, too_many, 1), -EINVAL);
		train_net_fini(&net);
	}
	cr_assert_null(train_model_find("none"));
}

Test(train_model, exp_is_close)
{
	for (float x = -90; x < 90; x += 0.0625f) {
		double bounded = x < -87 ? -87 : x > 87 ? 87 : (double)x, right = exp(bounded);

		cr_assert(fabs((double)train_exp(x) / right - 1) < 3e-7, "exp(%g) is %g", (double)x,
			  (double)train_exp(x));
		cr_assert_float_eq(train_tanh(x), tanh((double)x), 3e-7);
		cr_assert_float_eq(train_sigmoid(x), 1 / (1 + exp(-(double)x)), 3e-7);
	}
}
