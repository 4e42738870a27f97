/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* A multilayer perceptron: ReLU between layers, softmax and cross-entropy at the end. */
#ifndef SPR_PERF_TRAIN_MLP_H
#define SPR_PERF_TRAIN_MLP_H

#include <stddef.h>
#include <stdint.h>

#define TRAIN_MLP_MAX_LAYERS 6

/*
 * Shape and scratch; the parameters are one flat vector of the caller's: for each layer its weights
 * (inputs × outputs, row by row), then its biases.
 */
struct train_mlp {
	int n_layers;				/* of weights */
	size_t width[TRAIN_MLP_MAX_LAYERS + 1]; /* inputs, hidden units, ..., classes */
	size_t weight_at[TRAIN_MLP_MAX_LAYERS]; /* where a layer's weights start in the vector */
	size_t bias_at[TRAIN_MLP_MAX_LAYERS];
	size_t n_params;  /* length of the vector */
	size_t max_batch; /* images at a time */
	float *act[TRAIN_MLP_MAX_LAYERS +
		   1];	 /* activations, max_batch × width[l]; owned; act[0] is the input */
	float *delta[2]; /* derivatives by them, max_batch × widest; owned */
};

/* Returns: 0; -EINVAL for a shape that is none, -ENOMEM. fini accepts `mlp` either way. */
int train_mlp_init(struct train_mlp *mlp, const size_t *width, int n_layers, size_t max_batch);
void train_mlp_fini(struct train_mlp *mlp);

/* He's uniform weights and zero biases; the same bits for the same seed anywhere. */
void train_mlp_draw(const struct train_mlp *mlp, float *params, uint64_t seed);

/*
 * Forward and backward over the `batch` images in mlp->act[0]: `gradient` (n_params) becomes the
 * derivative of the mean loss. Returns: the mean loss.
 */
double train_mlp_gradient(struct train_mlp *mlp, const float *params, const uint8_t *labels,
			  size_t batch, float *gradient);

/* Forward only. Adds to *loss_sum and *n_correct. */
void train_mlp_evaluate(struct train_mlp *mlp, const float *params, const uint8_t *labels,
			size_t batch, double *loss_sum, uint64_t *n_correct);

/* The next number of a splitmix64 stream: shuffles and initial weights. */
static inline uint64_t train_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

#endif
