/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Samples of either kind. Sample i of a text of pieces of L characters is the stretch of L + 1
 * characters at i · L: each piece shares one character with the next, so that every character but
 * the first is predicted once.
 */
#include "train_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int load_images(struct train_source *source, const char *path, char *error,
		       size_t error_bytes)
{
	const struct train_set *train = &source->images.train;
	int r = train_data_load(path ? path : TRAIN_DATA_DIR, &source->images, error, error_bytes);

	if (r < 0)
		return r;
	source->shape.rows = train->rows;
	source->shape.columns = train->columns;
	source->shape.n_classes = train->n_classes;
	source->n_train = train->count;
	source->n_test = source->images.test.count;
	return 0;
}

static int load_text(struct train_source *source, const char *path, size_t length, char *error,
		     size_t error_bytes)
{
	const struct train_text *text = &source->text;
	int r = train_text_load(path, &source->text, error, error_bytes);

	if (r < 0)
		return r;
	source->shape.n_classes = text->n_symbols;
	source->shape.length = length;
	source->n_train = (text->n_train - 1) / length;
	source->n_test = (text->count - text->n_train - 1) / length;
	if (source->n_train == 0 || source->n_test == 0) {
		snprintf(error, error_bytes,
			 "%zu characters are too few for pieces of %zu characters", text->count,
			 length);
		return -EINVAL;
	}
	return 0;
}

int train_source_load(struct train_source *source, enum train_kind kind, const char *path,
		      size_t length, char *error, size_t error_bytes)
{
	memset(source, 0, sizeof(*source));
	source->kind = kind;
	return kind == TRAIN_IMAGES ? load_images(source, path, error, error_bytes)
				    : load_text(source, path, length, error, error_bytes);
}

void train_source_fini(struct train_source *source)
{
	train_data_fini(&source->images);
	train_text_fini(&source->text);
	memset(source, 0, sizeof(*source));
}

int train_batch_init(struct train_batch *batch, const struct train_source *source, size_t max_n)
{
	const struct train_shape *shape = &source->shape;

	memset(batch, 0, sizeof(*batch));
	batch->label = calloc(max_n, source->kind == TRAIN_IMAGES ? 1 : shape->length + 1);
	if (!batch->label)
		return -ENOMEM;
	if (source->kind == TRAIN_TEXT)
		return 0;
	batch->pixel = calloc(max_n, shape->rows * shape->columns * sizeof(float));
	return batch->pixel ? 0 : -ENOMEM;
}

void train_batch_fini(struct train_batch *batch)
{
	free(batch->pixel);
	free(batch->label);
	memset(batch, 0, sizeof(*batch));
}

void train_source_gather(const struct train_source *source, bool test, const uint32_t *order,
			 size_t first, size_t n, struct train_batch *batch)
{
	const struct train_text *text = &source->text;
	size_t length = source->shape.length;

	batch->n = n;
	if (source->kind == TRAIN_IMAGES) {
		train_set_gather(test ? &source->images.test : &source->images.train, order, first,
				 n, batch->pixel, batch->label);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		size_t at = (order ? order[first + i] : first + i) * length;

		memcpy(batch->label + i * (length + 1),
		       text->symbol + (test ? text->n_train : 0) + at, length + 1);
	}
}
