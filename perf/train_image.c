/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Feed-forward networks on images, on OpenBLAS, with derivatives: the perceptron (mlp) and the
 * convolutional network (conv). Both are chains of stages; a stage is a convolution, ReLU behind it
 * but for the last. A fully connected layer is a convolution whose kernel is the whole image.
 *
 * Activations lie image by image, row by row, pixel by pixel, channels together, so that one row
 * of a convolution's patch is one stretch of memory. For a stage with input X, patches C(X) (X
 * itself when the kernel is the whole image), weights W, biases b:
 *
 *   forward:   Y = relu(C(X) · W + b)
 *   backward, with D the derivative by Y before relu, (softmax − one-hot) / batch at the end:
 *     1. gradient of W = C(X)ᵀ · D, gradient of b = column sums of D
 *     2. D ← C⁻¹(D · Wᵀ) where X > 0, else 0; C⁻¹ adds each patch's elements where they came from
 */
#include "train_model.h"

#include <cblas.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 4

/* Convolution: its square kernel, or the whole image for 0. */
struct stage {
	size_t in_rows, in_columns, in_channels;
	size_t kernel_rows, kernel_columns, stride, pad;
	size_t rows, columns, channels; /* of the output */
	size_t weights, biases;		/* layers of the net; biases = weights + 1 */
	size_t patch;			/* elements of one patch */
	float *out;			/* max_batch × rows × columns × channels; owned */
	/* max_batch × rows × columns × patch, or NULL; owned, as the next one */
	float *patches; /* zero where a patch reaches outside the image: never written */
	/* derivatives by them; not of the first stage, which has no use for them */
	float *d_patches;
};

struct chain {
	size_t n;
	struct stage stage[MAX_STAGES];
	float *delta[2]; /* derivatives, as long as the longest output; owned */
};

/* What distinguishes the stages of a model. */
struct recipe {
	const char *weights, *biases; /* names of its layers */
	size_t kernel, stride;	      /* 0: fully connected */
	size_t channels;
};

static size_t place_count(const struct stage *s)
{
	return s->rows * s->columns;
}

static int stage_init(struct train_net *net, struct stage *s, const struct recipe *recipe)
{
	int whole = recipe->kernel == 0;

	s->kernel_rows = whole ? s->in_rows : recipe->kernel;
	s->kernel_columns = whole ? s->in_columns : recipe->kernel;
	s->stride = whole ? 1 : recipe->stride;
	s->pad = whole ? 0 : recipe->kernel / 2;
	if (s->in_rows + 2 * s->pad < s->kernel_rows ||
	    s->in_columns + 2 * s->pad < s->kernel_columns || recipe->channels < 1)
		return -EINVAL;
	s->rows = (s->in_rows + 2 * s->pad - s->kernel_rows) / s->stride + 1;
	s->columns = (s->in_columns + 2 * s->pad - s->kernel_columns) / s->stride + 1;
	s->channels = recipe->channels;
	s->patch = s->kernel_rows * s->kernel_columns * s->in_channels;
	s->weights = net->n_layers;
	s->biases = s->weights + 1;
	train_net_add(net, recipe->weights, s->patch * s->channels, 0);
	train_net_add(net, recipe->biases, s->channels, 1);
	s->out = malloc(net->max_batch * place_count(s) * s->channels * sizeof(float));
	if (!s->out)
		return -ENOMEM;
	if (whole)
		return 0;
	s->patches = calloc(net->max_batch * place_count(s), s->patch * sizeof(float));
	if (s->weights > 0)
		s->d_patches = malloc(net->max_batch * place_count(s) * s->patch * sizeof(float));
	return s->patches && (s->d_patches || s->weights == 0) ? 0 : -ENOMEM;
}

static int chain_init(struct train_net *net, const struct recipe *recipes, size_t n)
{
	size_t rows = net->shape.rows, columns = net->shape.columns, channels = 1, longest = 0;
	struct chain *chain = calloc(1, sizeof(*chain));

	net->own = chain;
	if (!chain)
		return -ENOMEM;
	if (rows < 1 || columns < 1)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		struct stage *s = &chain->stage[chain->n++];
		int r;

		s->in_rows = rows;
		s->in_columns = columns;
		s->in_channels = channels;
		r = stage_init(net, s, &recipes[i]);
		if (r < 0)
			return r;
		rows = s->rows;
		columns = s->columns;
		channels = s->channels;
		longest = rows * columns * channels > longest ? rows * columns * channels : longest;
	}
	for (int i = 0; i < 2; i++) {
		chain->delta[i] = malloc(net->max_batch * longest * sizeof(float));
		if (!chain->delta[i])
			return -ENOMEM;
	}
	return 0;
}

static void chain_fini(struct train_net *net)
{
	struct chain *chain = net->own;

	for (size_t i = 0; chain && i < chain->n; i++) {
		free(chain->stage[i].out);
		free(chain->stage[i].patches);
		free(chain->stage[i].d_patches);
	}
	if (chain) {
		free(chain->delta[0]);
		free(chain->delta[1]);
	}
	free(chain);
	net->own = NULL;
}

static int mlp_init(struct train_net *net)
{
	net->hidden1 = net->hidden1 ? net->hidden1 : 1024;
	net->hidden2 = net->hidden2 ? net->hidden2 : 256;
	const struct recipe recipes[] = {
		{"dense1.weights", "dense1.biases", 0, 0, net->hidden1},
		{"dense2.weights", "dense2.biases", 0, 0, net->hidden2},
		{"dense3.weights", "dense3.biases", 0, 0, net->shape.n_classes},
	};

	return chain_init(net, recipes, sizeof(recipes) / sizeof(recipes[0]));
}

static int conv_init(struct train_net *net)
{
	net->hidden1 = net->hidden1 ? net->hidden1 : 8;
	net->hidden2 = net->hidden2 ? net->hidden2 : 64;
	const struct recipe recipes[] = {
		{"conv1.weights", "conv1.biases", 5, 2, net->hidden1},
		{"conv2.weights", "conv2.biases", 3, 2, 2 * net->hidden1},
		{"dense1.weights", "dense1.biases", 0, 0, net->hidden2},
		{"dense2.weights", "dense2.biases", 0, 0, net->shape.n_classes},
	};

	return chain_init(net, recipes, sizeof(recipes) / sizeof(recipes[0]));
}

static void chain_draw(const struct train_net *net, float *params, uint64_t seed)
{
	const struct chain *chain = net->own;
	uint64_t state = seed;

	for (size_t i = 0; i < chain->n; i++) {
		const struct train_layer *weights = &net->layer[chain->stage[i].weights];
		const struct train_layer *biases = weights + 1;

		/* ±sqrt(6 / inputs): He's variance, 2 / inputs, and no logarithm. */
		train_draw_uniform(params + weights->offset, weights->count,
				   sqrt(6.0 / (double)chain->stage[i].patch), &state);
		memset(params + biases->offset, 0, biases->count * sizeof(float));
	}
}

/*
 * Copies between an image and its patches: images → patches, or back, adding. Calls `move` for each
 * stretch that both have; what lies outside the image is left alone.
 */
static void each_stretch(const struct stage *s, float *image, float *patches,
			 void (*move)(float *image, float *patch, size_t n))
{
	size_t channels = s->in_channels, width = s->kernel_columns * channels;

	for (size_t y = 0; y < s->rows; y++)
		for (size_t x = 0; x < s->columns; x++) {
			float *patch = patches + (y * s->columns + x) * s->patch;
			size_t top = y * s->stride, left = x * s->stride; /* with the padding */
			size_t skip = left < s->pad ? s->pad - left : 0;
			size_t end = s->in_columns + s->pad - left;

			end = end > s->kernel_columns ? s->kernel_columns : end;
			for (size_t ky = 0; ky < s->kernel_rows; ky++) {
				size_t row = top + ky - s->pad; /* wraps above the image */

				if (row >= s->in_rows)
					continue;
				move(image + (row * s->in_columns + left + skip - s->pad) *
						     channels,
				     patch + ky * width + skip * channels, (end - skip) * channels);
			}
		}
}

static void move_out(float *image, float *patch, size_t n)
{
	for (size_t i = 0; i < n; i++)
		patch[i] = image[i];
}

static void move_back(float *image, float *patch, size_t n)
{
	for (size_t i = 0; i < n; i++)
		image[i] += patch[i];
}

/* The matrix that the stage multiplies with its weights, one row for each place of the output. */
static float *rows_of(struct stage *s, float *in, size_t batch)
{
	size_t in_size = s->in_rows * s->in_columns * s->in_channels;

	if (!s->patches)
		return in;
	for (size_t i = 0; i < batch; i++)
		each_stretch(s, in + i * in_size, s->patches + i * place_count(s) * s->patch,
			     move_out);
	return s->patches;
}

static void forward(struct train_net *net, const float *params, const struct train_batch *batch)
{
	struct chain *chain = net->own;
	float *in = batch->pixel;

	for (size_t l = 0; l < chain->n; l++) {
		struct stage *s = &chain->stage[l];
		const float *bias = params + net->layer[s->biases].offset;
		size_t n = batch->n * place_count(s), width = s->channels;
		const float *rows = rows_of(s, in, batch->n);

		for (size_t i = 0; i < n; i++)
			memcpy(s->out + i * width, bias, width * sizeof(float));
		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)width,
			    (int)s->patch, 1.0f, rows, (int)s->patch,
			    params + net->layer[s->weights].offset, (int)width, 1.0f, s->out,
			    (int)width);
		in = s->out;
		if (l + 1 == chain->n)
			break;
		for (size_t i = 0; i < n * width; i++)
			in[i] = in[i] > 0 ? in[i] : 0;
	}
}

/* From d, derivatives by a stage's output, to those by its input, `below` it; ReLU included. */
static void backward_data(struct stage *s, const float *weights, const float *d, float *d_below,
			  const float *below, size_t batch)
{
	size_t n = batch * place_count(s), in_size = s->in_rows * s->in_columns * s->in_channels;
	float *product = s->d_patches ? s->d_patches : d_below;

	cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)s->patch,
		    (int)s->channels, 1.0f, d, (int)s->channels, weights, (int)s->channels, 0.0f,
		    product, (int)s->patch);
	if (s->d_patches) {
		memset(d_below, 0, batch * in_size * sizeof(float));
		for (size_t i = 0; i < batch; i++)
			each_stretch(s, d_below + i * in_size,
				     s->d_patches + i * place_count(s) * s->patch, move_back);
	}
	for (size_t i = 0; i < batch * in_size; i++)
		d_below[i] = below[i] > 0 ? d_below[i] : 0;
}

static double chain_gradient(struct train_net *net, const float *params,
			     const struct train_batch *batch, float *gradient)
{
	struct chain *chain = net->own;
	size_t n_classes = net->shape.n_classes;
	float *d = chain->delta[0], *d_below = chain->delta[1];
	double loss = 0;

	forward(net, params, batch);
	for (size_t i = 0; i < batch->n; i++)
		loss += train_softmax_loss(chain->stage[chain->n - 1].out + i * n_classes,
					   n_classes, batch->label[i], 1.0f / (float)batch->n,
					   d + i * n_classes);
	for (size_t l = chain->n; l-- > 0;) {
		struct stage *s = &chain->stage[l];
		float *below = l > 0 ? chain->stage[l - 1].out : batch->pixel, *swap = d;
		size_t n = batch->n * place_count(s), width = s->channels;
		float *bias = gradient + net->layer[s->biases].offset;

		memset(bias, 0, width * sizeof(float));
		for (size_t i = 0; i < n; i++)
			for (size_t j = 0; j < width; j++)
				bias[j] += d[i * width + j];
		train_net_done(net, s->biases);
		cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)s->patch, (int)width,
			    (int)n, 1.0f, s->patches ? s->patches : below, (int)s->patch, d,
			    (int)width, 0.0f, gradient + net->layer[s->weights].offset, (int)width);
		train_net_done(net, s->weights);
		if (l == 0)
			break;
		backward_data(s, params + net->layer[s->weights].offset, d, d_below, below,
			      batch->n);
		d = d_below;
		d_below = swap;
	}
	return loss / (double)batch->n;
}

static void chain_evaluate(struct train_net *net, const float *params,
			   const struct train_batch *batch, struct train_score *score)
{
	const struct chain *chain = net->own;
	size_t n_classes = net->shape.n_classes;

	forward(net, params, batch);
	for (size_t i = 0; i < batch->n; i++)
		train_score_add(score, chain->stage[chain->n - 1].out + i * n_classes, n_classes,
				batch->label[i]);
}

const struct train_model train_mlp = {"mlp",	      "perceptron on images, two hidden layers",
				      TRAIN_IMAGES,   mlp_init,
				      chain_fini,     chain_draw,
				      chain_gradient, chain_evaluate};
const struct train_model train_conv = {
	"conv",		"convolutional network on images, two convolutions",
	TRAIN_IMAGES,	conv_init,
	chain_fini,	chain_draw,
	chain_gradient, chain_evaluate};
