/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A multilayer perceptron on OpenBLAS, with derivatives.
 *
 * Forward, for each layer l:  act[l+1] = relu(act[l] · W + b), the last one without relu.
 * Backward, with D = (softmax − one-hot) / batch at the end, from the last layer down:
 *   1. gradient of W = act[l]ᵀ · D, gradient of b = column sums of D
 *   2. D ← (D · Wᵀ) where act[l] > 0, else 0
 *
 * Matrices are row-major, one image per row. After init nothing allocates and nothing fails.
 */
#include "train_mlp.h"

#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int train_mlp_init(struct train_mlp *mlp, const size_t *width, int n_layers, size_t max_batch)
{
	size_t widest = 0;

	memset(mlp, 0, sizeof(*mlp));
	if (n_layers < 1 || n_layers > TRAIN_MLP_MAX_LAYERS || max_batch < 1)
		return -EINVAL;
	mlp->n_layers = n_layers;
	mlp->max_batch = max_batch;
	for (int l = 0; l <= n_layers; l++) {
		if (width[l] < 1 || width[l] > 1 << 20)
			return -EINVAL;
		mlp->width[l] = width[l];
		widest = width[l] > widest ? width[l] : widest;
		mlp->act[l] = malloc(max_batch * width[l] * sizeof(float));
		if (!mlp->act[l])
			return -ENOMEM;
	}
	for (int l = 0; l < n_layers; l++) {
		mlp->weight_at[l] = mlp->n_params;
		mlp->n_params += width[l] * width[l + 1];
		mlp->bias_at[l] = mlp->n_params;
		mlp->n_params += width[l + 1];
	}
	for (int i = 0; i < 2; i++) {
		mlp->delta[i] = malloc(max_batch * widest * sizeof(float));
		if (!mlp->delta[i])
			return -ENOMEM;
	}
	return 0;
}

void train_mlp_fini(struct train_mlp *mlp)
{
	for (int l = 0; l <= TRAIN_MLP_MAX_LAYERS; l++)
		free(mlp->act[l]);
	free(mlp->delta[0]);
	free(mlp->delta[1]);
	memset(mlp, 0, sizeof(*mlp));
}

void train_mlp_draw(const struct train_mlp *mlp, float *params, uint64_t seed)
{
	uint64_t state = seed;

	for (int l = 0; l < mlp->n_layers; l++) {
		size_t n = mlp->width[l] * mlp->width[l + 1];
		/* Uniform in ±sqrt(6 / inputs): He's variance, 2 / inputs, and no logarithm. */
		double bound = sqrt(6.0 / (double)mlp->width[l]);

		for (size_t i = 0; i < n; i++) {
			double unit = (double)(train_random(&state) >> 11) * 0x1p-53;

			params[mlp->weight_at[l] + i] = (float)((2 * unit - 1) * bound);
		}
		memset(params + mlp->bias_at[l], 0, mlp->width[l + 1] * sizeof(float));
	}
}

static void forward(struct train_mlp *mlp, const float *params, size_t batch)
{
	for (int l = 0; l < mlp->n_layers; l++) {
		size_t n_in = mlp->width[l], n_out = mlp->width[l + 1];
		const float *bias = params + mlp->bias_at[l];
		float *out = mlp->act[l + 1];

		for (size_t i = 0; i < batch; i++)
			memcpy(out + i * n_out, bias, n_out * sizeof(float));
		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)batch, (int)n_out,
			    (int)n_in, 1.0f, mlp->act[l], (int)n_in, params + mlp->weight_at[l],
			    (int)n_out, 1.0f, out, (int)n_out);
		if (l + 1 == mlp->n_layers)
			break;
		for (size_t i = 0; i < batch * n_out; i++)
			out[i] = out[i] > 0 ? out[i] : 0;
	}
}

/* Loss of one image; `delta`, when not NULL, receives (softmax − one-hot) · scale. */
static double softmax_loss(const float *logit, size_t n_classes, size_t label, float scale,
			   float *delta)
{
	float most = logit[0];
	double sum = 0;

	for (size_t c = 1; c < n_classes; c++)
		most = logit[c] > most ? logit[c] : most;
	for (size_t c = 0; c < n_classes; c++)
		sum += exp((double)(logit[c] - most));
	if (delta)
		for (size_t c = 0; c < n_classes; c++) {
			double p = exp((double)(logit[c] - most)) / sum;

			delta[c] = (float)(p - (c == label)) * scale;
		}
	return log(sum) - (double)(logit[label] - most);
}

double train_mlp_gradient(struct train_mlp *mlp, const float *params, const uint8_t *labels,
			  size_t batch, float *gradient)
{
	size_t n_classes = mlp->width[mlp->n_layers];
	float *d = mlp->delta[0], *d_below = mlp->delta[1];
	double loss = 0;

	forward(mlp, params, batch);
	for (size_t i = 0; i < batch; i++)
		loss += softmax_loss(mlp->act[mlp->n_layers] + i * n_classes, n_classes, labels[i],
				     1.0f / (float)batch, d + i * n_classes);
	for (int l = mlp->n_layers - 1; l >= 0; l--) {
		size_t n_in = mlp->width[l], n_out = mlp->width[l + 1];
		float *bias = gradient + mlp->bias_at[l], *swap = d;

		cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)n_in, (int)n_out,
			    (int)batch, 1.0f, mlp->act[l], (int)n_in, d, (int)n_out, 0.0f,
			    gradient + mlp->weight_at[l], (int)n_out);
		memset(bias, 0, n_out * sizeof(float));
		for (size_t i = 0; i < batch; i++)
			for (size_t j = 0; j < n_out; j++)
				bias[j] += d[i * n_out + j];
		if (l == 0)
			break;
		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)batch, (int)n_in,
			    (int)n_out, 1.0f, d, (int)n_out, params + mlp->weight_at[l], (int)n_out,
			    0.0f, d_below, (int)n_in);
		for (size_t i = 0; i < batch * n_in; i++)
			d_below[i] = mlp->act[l][i] > 0 ? d_below[i] : 0;
		d = d_below;
		d_below = swap;
	}
	return loss / (double)batch;
}

void train_mlp_evaluate(struct train_mlp *mlp, const float *params, const uint8_t *labels,
			size_t batch, double *loss_sum, uint64_t *n_correct)
{
	size_t n_classes = mlp->width[mlp->n_layers];

	forward(mlp, params, batch);
	for (size_t i = 0; i < batch; i++) {
		const float *logit = mlp->act[mlp->n_layers] + i * n_classes;
		size_t best = 0;

		for (size_t c = 1; c < n_classes; c++)
			best = logit[c] > logit[best] ? c : best;
		*loss_sum += softmax_loss(logit, n_classes, labels[i], 0, NULL);
		*n_correct += best == labels[i];
	}
}
