/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Labelled images in the IDX format of MNIST and its relatives. */
#ifndef SPR_PERF_TRAIN_DATA_H
#define SPR_PERF_TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

/* Where Debian's package dataset-fashion-mnist puts its files. */
#define TRAIN_DATA_DIR "/usr/share/datasets/fashion-mnist"

/* Images and their labels; zero-initialised it is empty. */
struct train_set {
	size_t count;	      /* images */
	size_t rows, columns; /* of one image */
	size_t pixels;	      /* rows × columns */
	size_t n_classes;     /* largest label + 1 */
	uint8_t *image;	      /* count × pixels bytes; owned */
	uint8_t *label;	      /* count bytes; owned */
	float scale[256]; /* brightness → value with mean 0 and deviation 1 over the training set */
};

/* The two parts of a data set. */
struct train_data {
	struct train_set train;
	struct train_set test; /* same image size; scaled as train is */
};

/*
 * Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain or with .gz, from a directory.
 * Returns: 0; negative after a text in `error` that names the file and what was expected.
 * train_data_fini accepts `data` either way.
 */
int train_data_load(const char *directory, struct train_data *data, char *error,
		    size_t error_bytes);
void train_data_fini(struct train_data *data);

/* Copies n images as scaled values: order[first], ... or, where order is NULL, first, ... */
void train_set_gather(const struct train_set *set, const uint32_t *order, size_t first, size_t n,
		      float *out, uint8_t *labels);

#endif
