/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The IDX reader of spr_train: files it makes itself, whole and damaged, plain and gzipped. */
#include "check.h"
#include "train_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define N_TRAIN 5
#define N_TEST 2
#define PIXELS 6

static char directory[64];

static void write_file(const char *name, const unsigned char *bytes, size_t n)
{
	size_t length = strlen(name);
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	if (length > 3 && strcmp(name + length - 3, ".gz") == 0) {
		gzFile gz = gzopen(path, "wb");

		cr_assert_not_null(gz);
		cr_assert_eq(gzwrite(gz, bytes, (unsigned)n), (int)n);
		cr_assert_eq(gzclose(gz), Z_OK);
	} else {
		FILE *f = fopen(path, "wb");

		cr_assert_not_null(f);
		cr_assert_eq(fwrite(bytes, 1, n, f), n);
		cr_assert_eq(fclose(f), 0);
	}
}

static void write_images(const char *name, unsigned char n, unsigned char rows)
{
	unsigned char bytes[16 + N_TRAIN * PIXELS] = {0, 0, 8, 3,    0, 0, 0, n,
						      0, 0, 0, rows, 0, 0, 0, PIXELS / 2};

	for (size_t i = 0; i < (size_t)n * PIXELS; i++)
		bytes[16 + i] = (unsigned char)(i * 7);
	write_file(name, bytes, 16 + (size_t)n * rows * (PIXELS / 2));
}

static void write_labels(const char *name, unsigned char n)
{
	unsigned char bytes[8 + N_TRAIN] = {0, 0, 8, 1, 0, 0, 0, n};

	for (unsigned char i = 0; i < n; i++)
		bytes[8 + i] = i % 3;
	write_file(name, bytes, 8u + n);
}

/* A whole data set, gzipped but for one plain file. */
static void make(void)
{
	snprintf(directory, sizeof(directory), "/tmp/spr_train_data.XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	write_images("train-images-idx3-ubyte.gz", N_TRAIN, 2);
	write_labels("train-labels-idx1-ubyte", N_TRAIN);
	write_images("t10k-images-idx3-ubyte.gz", N_TEST, 2);
	write_labels("t10k-labels-idx1-ubyte.gz", N_TEST);
}

static void clean(void)
{
	static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
					    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
	char path[160];

	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
		snprintf(path, sizeof(path), "%s/%s.gz", directory, names[i]);
		unlink(path);
	}
	rmdir(directory);
}

Test(train_data, reads_plain_and_gzipped)
{
	static const uint32_t order[] = {4, 0};
	struct train_data data;
	char error[512] = "";
	float out[2 * PIXELS];
	uint8_t labels[2];
	double sum = 0, squares = 0;

	make();
	cr_assert_eq(train_data_load(directory, &data, error, sizeof(error)), 0, "%s", error);
	cr_assert_eq(data.train.count, N_TRAIN);
	cr_assert_eq(data.test.count, N_TEST);
	cr_assert_eq(data.train.rows, 2);
	cr_assert_eq(data.train.columns, 3);
	cr_assert_eq(data.train.n_classes, 3);
	for (size_t i = 0; i < N_TRAIN * PIXELS; i++) {
		double v = (double)data.train.scale[data.train.image[i]];

		sum += v;
		squares += v * v;
	}
	cr_assert(fabs(sum / (N_TRAIN * PIXELS)) < 1e-6, "mean %g, expected 0",
		  sum / (N_TRAIN * PIXELS));
	cr_assert(fabs(squares / (N_TRAIN * PIXELS) - 1) < 1e-6, "variance %g, expected 1",
		  squares / (N_TRAIN * PIXELS));
	train_set_gather(&data.train, order, 0, 2, out, labels);
	cr_assert_eq(labels[0], 4 % 3);
	cr_assert_eq(labels[1], 0);
	for (size_t p = 0; p < PIXELS; p++) {
		cr_assert_eq(out[p], data.train.scale[(4 * PIXELS + p) * 7 % 256]);
		cr_assert_eq(out[PIXELS + p], data.train.scale[p * 7]);
	}
	train_data_fini(&data);
	clean();
}

/* Loads, expects a failure whose text names the file and holds `what`. */
static void expect_failure(const char *file, const char *what)
{
	struct train_data data;
	char error[512] = "";

	cr_assert_lt(train_data_load(directory, &data, error, sizeof(error)), 0,
		     "a load that should fail over %s (%s) did not", file, what);
	cr_assert(strstr(error, file), "'%s' does not name %s", error, file);
	cr_assert(strstr(error, what), "'%s' does not say '%s'", error, what);
	train_data_fini(&data);
}

Test(train_data, names_the_file_that_is_missing)
{
	char path[160];

	make();
	snprintf(path, sizeof(path), "%s/t10k-labels-idx1-ubyte.gz", directory);
	cr_assert_eq(unlink(path), 0);
	expect_failure("t10k-labels-idx1-ubyte", "no such file");
	clean();
}

Test(train_data, refuses_damaged_files)
{
	static const unsigned char magic[16] = {0, 0, 9, 1, 0, 0, 0, N_TRAIN};
	static const unsigned char zero[16] = {0, 0, 8, 1, 0, 0, 0, 0};
	static const unsigned char huge[16] = {0, 0, 8, 1, 0xff, 0xff, 0xff, 0xff};
	static const unsigned char ok[16] = {0, 0, 8, 1, 0, 0, 0, N_TRAIN};
	const char *labels = "train-labels-idx1-ubyte";

	make();
	write_file(labels, magic, 8 + N_TRAIN);
	expect_failure(labels, "expected 00000801");
	write_file(labels, zero, 8);
	expect_failure(labels, "dimension 1 is 0");
	write_file(labels, huge, 8 + N_TRAIN);
	expect_failure(labels, "dimension 1 is 4294967295");
	write_file(labels, ok, 5);
	expect_failure(labels, "ends inside the header");
	write_file(labels, ok, 8 + N_TRAIN - 1);
	expect_failure(labels, "ends inside the data");
	write_file(labels, ok, 8 + N_TRAIN + 1);
	expect_failure(labels, "goes on after");
	write_labels(labels, N_TRAIN - 1);
	expect_failure(labels, "expected 5, one per image");
	write_labels(labels, N_TRAIN);
	write_images("t10k-images-idx3-ubyte", N_TEST, 1); /* the plain file goes first */
	expect_failure("t10k-images-idx3-ubyte", "expected 2 × 3");
	clean();
}

Test(train_data, refuses_a_cut_gzip)
{
	char path[160];

	make();
	snprintf(path, sizeof(path), "%s/train-images-idx3-ubyte.gz", directory);
	cr_assert_eq(truncate(path, 30), 0);
	expect_failure("train-images-idx3-ubyte.gz", "");
	clean();
}
