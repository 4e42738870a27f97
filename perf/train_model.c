/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The table of models, and what they share: layers, initial weights, softmax, scores. */
#include "train_model.h"

#include "train_exp.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

extern const struct train_model train_mlp, train_conv, train_lm;

const struct train_model *const train_models[] = {&train_mlp, &train_conv, &train_lm, NULL};

const struct train_model *train_model_find(const char *name)
{
	for (int i = 0; train_models[i]; i++)
		if (strcmp(train_models[i]->name, name) == 0)
			return train_models[i];
	return NULL;
}

int train_net_init(struct train_net *net, const struct train_model *model,
		   const struct train_shape *shape, const size_t *hidden, size_t max_batch)
{
	const size_t limit = (size_t)1 << 20;

	memset(net, 0, sizeof(*net));
	net->model = model;
	net->shape = *shape;
	net->hidden1 = hidden[0];
	net->hidden2 = hidden[1];
	net->max_batch = max_batch;
	if (max_batch < 1 || max_batch > limit || hidden[0] > limit || hidden[1] > limit ||
	    shape->n_classes < 1 || shape->n_classes > 256)
		return -EINVAL;
	return model->init(net);
}

void train_net_fini(struct train_net *net)
{
	if (net->model)
		net->model->fini(net);
	memset(net, 0, sizeof(*net));
}

size_t train_net_add(struct train_net *net, const char *name, size_t count, int is_bias)
{
	size_t offset = net->n_params;

	assert(net->n_layers < TRAIN_MAX_LAYERS);
	net->layer[net->n_layers++] = (struct train_layer){name, offset, count, is_bias};
	net->n_params += count;
	return offset;
}

void train_draw_uniform(float *out, size_t n, double bound, uint64_t *state)
{
	for (size_t i = 0; i < n; i++) {
		double unit = (double)(train_random(state) >> 11) * 0x1p-53;

		out[i] = (float)((2 * unit - 1) * bound);
	}
}

double train_softmax_loss(const float *logit, size_t n_classes, size_t label, float scale,
			  float *delta)
{
	float most = logit[0], of_label = logit[label], power[256];
	double sum = 0;

	for (size_t c = 1; c < n_classes; c++)
		most = logit[c] > most ? logit[c] : most;
	for (size_t c = 0; c < n_classes; c++)
		power[c] = train_exp(logit[c] - most);
	for (size_t c = 0; c < n_classes; c++)
		sum += (double)power[c];
	if (delta) {
		float share = scale / (float)sum;

		for (size_t c = 0; c < n_classes; c++)
			delta[c] = power[c] * share;
		delta[label] -= scale;
	}
	return log(sum) - (double)(of_label - most);
}

void train_score_add(struct train_score *score, const float *logit, size_t n_classes, size_t label)
{
	size_t best = 0;

	for (size_t c = 1; c < n_classes; c++)
		best = logit[c] > logit[best] ? c : best;
	score->loss += train_softmax_loss(logit, n_classes, label, 0, NULL);
	score->n_correct += best == label;
	score->n_counted++;
}
