/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The models that spr_train trains, one row of train_models each. To add one: write a file with a
 * `const struct train_model`, add its row to train_model.c; the tests check its derivatives.
 *
 * The parameters of a model are one flat vector of the caller's, cut into layers. A net is a
 * model of one size with its scratch; after init nothing allocates and nothing fails.
 */
#ifndef SPR_PERF_TRAIN_MODEL_H
#define SPR_PERF_TRAIN_MODEL_H

#include "train_source.h"

#include <stddef.h>
#include <stdint.h>

#define TRAIN_MAX_LAYERS 16

/* A stretch of the parameters: weights of a layer, or its biases. */
struct train_layer {
	const char *name;     /* static storage */
	size_t offset, count; /* parameters */
	int is_bias;
};

/* A model made in one size; zero-initialised it is none. */
struct train_net {
	const struct train_model *model;
	struct train_shape shape;
	size_t hidden1, hidden2; /* units, after the model's own defaults */
	size_t max_batch;	 /* samples at a time */
	size_t n_params;
	size_t n_layers;
	struct train_layer layer[TRAIN_MAX_LAYERS]; /* ascending, without gaps */
	/*
	 * Called inside `gradient` for each layer whose derivatives are final, from the last to the
	 * first. NULL: not called.
	 */
	void (*on_layer)(void *arg, size_t layer);
	void *on_layer_arg; /* lent */
	void *own;	    /* the model's; owned */
};

/* Sums over samples; for text a sample counts once for each of its characters. */
struct train_score {
	double loss; /* nats */
	uint64_t n_correct, n_counted;
};

struct train_model {
	const char *name;
	const char *what; /* one line */
	enum train_kind kind;
	/* Fills the layers of a net whose fields up to max_batch are set. 0; -EINVAL, -ENOMEM. */
	int (*init)(struct train_net *net);
	void (*fini)(struct train_net *net); /* accepts what a failed init left */
	/* Initial weights; the same bits for the same seed anywhere. */
	void (*draw)(const struct train_net *net, float *params, uint64_t seed);
	/* gradient (n_params) becomes the derivative of the mean loss. Returns: the mean loss. */
	double (*gradient)(struct train_net *net, const float *params,
			   const struct train_batch *batch, float *gradient);
	/* Forward only. Adds to *score. */
	void (*evaluate)(struct train_net *net, const float *params,
			 const struct train_batch *batch, struct train_score *score);
};

/* Best known first; ends with NULL. */
extern const struct train_model *const train_models[];

/* NULL when there is no such model. */
const struct train_model *train_model_find(const char *name);

/*
 * Makes a net. hidden1 and hidden2: 0 for the model's defaults.
 * Returns: 0; -EINVAL for a size that is none, -ENOMEM. fini accepts `net` either way.
 */
int train_net_init(struct train_net *net, const struct train_model *model,
		   const struct train_shape *shape, const size_t *hidden, size_t max_batch);
void train_net_fini(struct train_net *net);

/* For models: the next layer of the vector, and the word that one is done. Returns: its offset. */
size_t train_net_add(struct train_net *net, const char *name, size_t count, int is_bias);
static inline void train_net_done(const struct train_net *net, size_t layer)
{
	if (net->on_layer)
		net->on_layer(net->on_layer_arg, layer);
}

/* For models: uniform in ±bound. */
void train_draw_uniform(float *out, size_t n, double bound, uint64_t *state);

/*
 * For models: loss of one prediction; `delta`, when not NULL, receives
 * (softmax − one-hot) · scale and may be the logits themselves.
 */
double train_softmax_loss(const float *logit, size_t n_classes, size_t label, float scale,
			  float *delta);

/* For models: adds one prediction to a score. */
void train_score_add(struct train_score *score, const float *logit, size_t n_classes, size_t label);

/* The next number of a splitmix64 stream: shuffles and initial weights. */
static inline uint64_t train_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

#endif
