/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Samples to train on and to test with, whatever they are made of: images, or pieces of text. */
#ifndef SPR_PERF_TRAIN_SOURCE_H
#define SPR_PERF_TRAIN_SOURCE_H

#include "train_data.h"
#include "train_text.h"

#include <stdbool.h>

enum train_kind { TRAIN_IMAGES, TRAIN_TEXT };

/* What a model must know of its samples. */
struct train_shape {
	size_t rows, columns; /* of an image */
	size_t n_classes;     /* kinds of images, or symbols of the text */
	size_t length;	      /* characters of a piece of text that are predicted */
};

/* Samples in a row. */
struct train_batch {
	size_t n;
	float *pixel;	/* images: n × rows × columns; owned */
	uint8_t *label; /* images: n; text: n × (length + 1) symbols; owned */
};

/* Zero-initialised it is empty. */
struct train_source {
	enum train_kind kind;
	struct train_shape shape;
	size_t n_train, n_test; /* samples in use */
	struct train_data images;
	struct train_text text;
};

/*
 * Loads images from the directory `path`, or text from the file `path`; NULL: Fashion-MNIST or the
 * King James Bible as Debian packages them. length: characters in a piece of text.
 * Returns: 0; negative after a text in `error`. fini accepts `source` either way.
 */
int train_source_load(struct train_source *source, enum train_kind kind, const char *path,
		      size_t length, char *error, size_t error_bytes);
void train_source_fini(struct train_source *source);

/* Room for up to max_n samples. Returns: 0; -ENOMEM. fini accepts `batch` either way. */
int train_batch_init(struct train_batch *batch, const struct train_source *source, size_t max_n);
void train_batch_fini(struct train_batch *batch);

/* Copies n samples: order[first], ... or, where order is NULL, first, ... */
void train_source_gather(const struct train_source *source, bool test, const uint32_t *order,
			 size_t first, size_t n, struct train_batch *batch);

#endif
