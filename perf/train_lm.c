/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A language model on characters: one gated recurrent unit layer of H units over V symbols, with
 * derivatives by backpropagation through a piece of text of T characters. Each piece starts from
 * a state of zeros.
 *
 * For each character t, with the symbol's row of Wx, the state h and σ the sigmoid:
 *
 *   x = Wx[symbol] + b          [reset, update, candidate], 3H
 *   g = h · Wh                  likewise
 *   r = σ(x_r + g_r), z = σ(x_z + g_z), c = tanh(x_c + r ∘ g_c)
 *   h ← (1 − z) ∘ c + z ∘ h
 *
 * and, for all characters at once, logits = h · Wo + bo against the next symbol. Backward:
 *
 *   1. D = (softmax − one-hot) / (batch · T); gradient of Wo = hᵀ · D; D ← D · Woᵀ
 *   2. from the last character to the first: derivatives by x and g; D of the state before gains
 *      (derivative by g) · Whᵀ + z ∘ D
 *   3. gradient of Wh = Σ_t h(t−1)ᵀ · dg(t), one product; of Wx and b: sums of rows of dx
 *
 * Arrays are [t][sample][unit], so that a step is one product and step 3 is one product too.
 */
#include "train_exp.h"
#include "train_model.h"

#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN_WEIGHTS, IN_BIASES, STATE_WEIGHTS, OUT_WEIGHTS, OUT_BIASES };

/* Scratch, for max_batch samples; all owned. */
struct unit {
	float *gate;	/* T × batch × 3H: r, z, c */
	float *state;	/* (T + 1) × batch × H: before each character, and the last */
	float *from_h;	/* T × batch × 3H: g, later derivatives by it */
	float *d_in;	/* T × batch × 3H: derivatives by x */
	float *logit;	/* T × batch × V, later derivatives by it */
	float *d_out;	/* T × batch × H: derivatives by the states, from the logits */
	float *d_state; /* batch × H: derivative by the state after the current character */
};

static int lm_init(struct train_net *net)
{
	struct unit *u = calloc(1, sizeof(*u));
	size_t n_symbols = net->shape.n_classes, n, h;

	net->own = u;
	if (!u)
		return -ENOMEM;
	h = net->hidden1 = net->hidden1 ? net->hidden1 : 96;
	net->hidden2 = 0;
	if (net->shape.length < 1 || net->shape.length > 4096)
		return -EINVAL;
	train_net_add(net, "input.weights", n_symbols * 3 * h, 0);
	train_net_add(net, "input.biases", 3 * h, 1);
	train_net_add(net, "state.weights", h * 3 * h, 0);
	train_net_add(net, "output.weights", h * n_symbols, 0);
	train_net_add(net, "output.biases", n_symbols, 1);
	n = net->shape.length * net->max_batch * sizeof(float);
	u->gate = malloc(n * 3 * h);
	u->from_h = malloc(n * 3 * h);
	u->d_in = malloc(n * 3 * h);
	u->logit = malloc(n * n_symbols);
	u->d_out = malloc(n * h);
	u->state = malloc((n + net->max_batch * sizeof(float)) * h);
	u->d_state = malloc(net->max_batch * h * sizeof(float));
	return u->gate && u->from_h && u->d_in && u->logit && u->d_out && u->state && u->d_state
		       ? 0
		       : -ENOMEM;
}

static void lm_fini(struct train_net *net)
{
	struct unit *u = net->own;

	if (u) {
		free(u->gate);
		free(u->state);
		free(u->from_h);
		free(u->d_in);
		free(u->logit);
		free(u->d_out);
		free(u->d_state);
	}
	free(u);
	net->own = NULL;
}

static void lm_draw(const struct train_net *net, float *params, uint64_t seed)
{
	double bound = 1 / sqrt((double)net->hidden1);
	uint64_t state = seed;

	for (size_t i = 0; i < net->n_layers; i++) {
		const struct train_layer *layer = &net->layer[i];

		if (layer->is_bias)
			memset(params + layer->offset, 0, layer->count * sizeof(float));
		else
			train_draw_uniform(params + layer->offset, layer->count, bound, &state);
	}
}

/* One character of one sample: x and g → gates and the next state. */
static void step_unit(const float *restrict x, const float *restrict bias, const float *restrict g,
		      const float *restrict before, float *restrict gate, float *restrict after,
		      size_t h)
{
	for (size_t i = 0; i < 2 * h; i++)
		gate[i] = train_sigmoid(x[i] + bias[i] + g[i]);
	for (size_t i = 0; i < h; i++)
		gate[2 * h + i] =
			train_tanh(x[2 * h + i] + bias[2 * h + i] + gate[i] * g[2 * h + i]);
	for (size_t i = 0; i < h; i++)
		after[i] = gate[2 * h + i] + gate[h + i] * (before[i] - gate[2 * h + i]);
}

static void forward(struct train_net *net, const float *params, const struct train_batch *batch)
{
	struct unit *u = net->own;
	size_t h = net->hidden1, length = net->shape.length, n = batch->n;
	size_t n_symbols = net->shape.n_classes;
	const float *in = params + net->layer[IN_WEIGHTS].offset;
	const float *bias = params + net->layer[IN_BIASES].offset;
	const float *out_bias = params + net->layer[OUT_BIASES].offset;

	memset(u->state, 0, n * h * sizeof(float));
	for (size_t t = 0; t < length; t++) {
		float *before = u->state + t * n * h, *g = u->from_h + t * n * 3 * h;

		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)(3 * h), (int)h,
			    1.0f, before, (int)h, params + net->layer[STATE_WEIGHTS].offset,
			    (int)(3 * h), 0.0f, g, (int)(3 * h));
		for (size_t i = 0; i < n; i++) {
			size_t symbol = batch->label[i * (length + 1) + t];

			step_unit(in + symbol * 3 * h, bias, g + i * 3 * h, before + i * h,
				  u->gate + (t * n + i) * 3 * h, before + (n + i) * h, h);
		}
	}
	for (size_t i = 0; i < length * n; i++)
		memcpy(u->logit + i * n_symbols, out_bias, n_symbols * sizeof(float));
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)(length * n), (int)n_symbols,
		    (int)h, 1.0f, u->state + n * h, (int)h, params + net->layer[OUT_WEIGHTS].offset,
		    (int)n_symbols, 1.0f, u->logit, (int)n_symbols);
}

/* Symbol t of sample i's targets. */
static size_t target(const struct train_net *net, const struct train_batch *batch, size_t t,
		     size_t i)
{
	return batch->label[i * (net->shape.length + 1) + t + 1];
}

/* Steps 1 and its loss: derivatives of the output layer, and by the states. */
static double backward_output(struct train_net *net, const float *params,
			      const struct train_batch *batch, float *gradient)
{
	struct unit *u = net->own;
	size_t h = net->hidden1, n_symbols = net->shape.n_classes;
	size_t n = net->shape.length * batch->n;
	float *bias = gradient + net->layer[OUT_BIASES].offset;
	double loss = 0;

	memset(bias, 0, n_symbols * sizeof(float));
	for (size_t i = 0; i < n; i++) {
		float *logit = u->logit + i * n_symbols;

		loss += train_softmax_loss(logit, n_symbols,
					   target(net, batch, i / batch->n, i % batch->n),
					   1.0f / (float)n, logit);
		for (size_t c = 0; c < n_symbols; c++)
			bias[c] += logit[c];
	}
	train_net_done(net, OUT_BIASES);
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)h, (int)n_symbols, (int)n, 1.0f,
		    u->state + batch->n * h, (int)h, u->logit, (int)n_symbols, 0.0f,
		    gradient + net->layer[OUT_WEIGHTS].offset, (int)n_symbols);
	train_net_done(net, OUT_WEIGHTS);
	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)h, (int)n_symbols, 1.0f,
		    u->logit, (int)n_symbols, params + net->layer[OUT_WEIGHTS].offset,
		    (int)n_symbols, 0.0f, u->d_out, (int)h);
	return loss / (double)n;
}

/*
 * One character of one sample: d, the derivative by the state after it, becomes the part of the
 * derivative by the state before it that does not pass through g; g becomes the derivative by g.
 */
static void step_back(const float *restrict gate, const float *restrict before, float *restrict d,
		      float *restrict g, float *restrict d_in, size_t h)
{
	for (size_t i = 0; i < h; i++) {
		float r = gate[i], z = gate[h + i], c = gate[2 * h + i];
		float d_candidate = d[i] * (1 - z) * (1 - c * c);
		float d_reset = d_candidate * g[2 * h + i] * r * (1 - r);
		float d_update = d[i] * (before[i] - c) * z * (1 - z);

		d_in[i] = g[i] = d_reset;
		d_in[h + i] = g[h + i] = d_update;
		d_in[2 * h + i] = d_candidate;
		g[2 * h + i] = d_candidate * r;
		d[i] *= z;
	}
}

/* Step 2. */
static void backward_states(struct train_net *net, const float *params, size_t n)
{
	struct unit *u = net->own;
	size_t h = net->hidden1;

	memset(u->d_state, 0, n * h * sizeof(float));
	for (size_t t = net->shape.length; t-- > 0;) {
		float *g = u->from_h + t * n * 3 * h, *d_in = u->d_in + t * n * 3 * h;
		const float *d_out = u->d_out + t * n * h, *before = u->state + t * n * h;

		for (size_t i = 0; i < n * h; i++)
			u->d_state[i] += d_out[i];
		for (size_t i = 0; i < n; i++)
			step_back(u->gate + (t * n + i) * 3 * h, before + i * h, u->d_state + i * h,
				  g + i * 3 * h, d_in + i * 3 * h, h);
		if (t > 0)
			cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)h,
				    (int)(3 * h), 1.0f, g, (int)(3 * h),
				    params + net->layer[STATE_WEIGHTS].offset, (int)(3 * h), 1.0f,
				    u->d_state, (int)h);
	}
}

/* Step 3. */
static void sum_gradients(struct train_net *net, const struct train_batch *batch, float *gradient)
{
	const struct unit *u = net->own;
	size_t h = net->hidden1, length = net->shape.length, n = batch->n;
	float *in = gradient + net->layer[IN_WEIGHTS].offset;
	float *bias = gradient + net->layer[IN_BIASES].offset;

	/* The first state is zero: its products are left out. */
	cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)h, (int)(3 * h),
		    (int)((length - 1) * n), 1.0f, u->state + n * h, (int)h, u->from_h + n * 3 * h,
		    (int)(3 * h), 0.0f, gradient + net->layer[STATE_WEIGHTS].offset, (int)(3 * h));
	train_net_done(net, STATE_WEIGHTS);
	memset(in, 0, net->layer[IN_WEIGHTS].count * sizeof(float));
	memset(bias, 0, 3 * h * sizeof(float));
	for (size_t t = 0; t < length; t++)
		for (size_t i = 0; i < n; i++) {
			const float *restrict d = u->d_in + (t * n + i) * 3 * h;
			float *restrict row = in + batch->label[i * (length + 1) + t] * 3 * h;

			for (size_t j = 0; j < 3 * h; j++)
				row[j] += d[j];
		}
	/* Every character has one row of Wx and the same biases. */
	for (size_t symbol = 0; symbol < net->shape.n_classes; symbol++)
		for (size_t j = 0; j < 3 * h; j++)
			bias[j] += in[symbol * 3 * h + j];
	train_net_done(net, IN_BIASES);
	train_net_done(net, IN_WEIGHTS);
}

static double lm_gradient(struct train_net *net, const float *params,
			  const struct train_batch *batch, float *gradient)
{
	double loss;

	forward(net, params, batch);
	loss = backward_output(net, params, batch, gradient);
	backward_states(net, params, batch->n);
	sum_gradients(net, batch, gradient);
	return loss;
}

static void lm_evaluate(struct train_net *net, const float *params, const struct train_batch *batch,
			struct train_score *score)
{
	const struct unit *u = net->own;
	size_t n_symbols = net->shape.n_classes;

	forward(net, params, batch);
	for (size_t i = 0; i < net->shape.length * batch->n; i++)
		train_score_add(score, u->logit + i * n_symbols, n_symbols,
				target(net, batch, i / batch->n, i % batch->n));
}

const struct train_model train_lm = {
	"lm",	     "recurrent language model on the characters of a text",
	TRAIN_TEXT,  lm_init,
	lm_fini,     lm_draw,
	lm_gradient, lm_evaluate};
