/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Reads labelled images in the IDX format: a magic number (two zero bytes, the element type 8 for
 * unsigned bytes, the number of dimensions), one big-endian 32-bit size per dimension, the bytes.
 *
 *   1. For each of the four files try NAME, then NAME.gz (zlib reads both alike).
 *   2. Check magic and sizes, read exactly the bytes that they promise, then expect the end.
 *   3. Check that images and labels agree in number and that both parts have the same image size.
 *   4. Mean and deviation of the training pixels give the table from brightness to value.
 *
 * A file that is missing, short, long or of another kind ends the load with a text that names the
 * file, what was found and what was expected. Sizes are bounded before anything is allocated.
 */
#include "train_data.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* More than this in one file is no data set for this program, but a damaged header. */
#define MAX_FILE_BYTES ((uint64_t)1 << 31)

/* A file that is being read, and where its complaints go. */
struct idx_file {
	gzFile gz;	 /* open file; owned */
	char path[4096]; /* its name, with .gz where that is the one */
	char *error;	 /* borrowed from the caller */
	size_t error_bytes;
};

__attribute__((format(printf, 2, 3))) static int complain(const struct idx_file *f,
							  const char *format, ...)
{
	char what[256];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	snprintf(f->error, f->error_bytes, "%s: %s", f->path, what);
	return -1;
}

static int idx_open(struct idx_file *f, const char *directory, const char *name)
{
	static const char *const suffixes[] = {"", ".gz"};

	for (int i = 0; i < 2; i++) {
		int n = snprintf(f->path, sizeof(f->path), "%s/%s%s", directory, name, suffixes[i]);

		if (n < 0 || (size_t)n >= sizeof(f->path))
			return complain(f, "the name is too long");
		f->gz = gzopen(f->path, "rbe");
		if (f->gz)
			return 0;
		if (errno != ENOENT)
			return complain(f, "cannot open: %s",
					errno ? strerror(errno) : "no memory");
	}
	return complain(f,
			"no such file, nor without .gz (Debian: apt install dataset-fashion-mnist; "
			"elsewhere: --data DIR)");
}

/* Reads exactly `bytes` bytes. */
static int idx_read(struct idx_file *f, void *out, size_t bytes, const char *what)
{
	size_t done = 0;

	while (done < bytes) {
		size_t left = bytes - done;
		int n = gzread(f->gz, (char *)out + done,
			       left > 1 << 20 ? 1 << 20 : (unsigned)left);

		if (n < 0) {
			int code;
			const char *text = gzerror(f->gz, &code);

			return complain(f, "cannot read: %s",
					code == Z_ERRNO ? strerror(errno) : text);
		}
		if (n == 0)
			return complain(f, "ends inside the %s: %zu bytes of %zu", what, done,
					bytes);
		done += (size_t)n;
	}
	return 0;
}

/* Reads a header with `n_sizes` dimensions and all elements; *data is given. */
static int idx_load(struct idx_file *f, int n_sizes, uint32_t *sizes, uint8_t **data)
{
	unsigned char head[4 + 4 * 3];
	uint64_t bytes = 1;
	char extra;
	int r = idx_read(f, head, 4 + 4 * (size_t)n_sizes, "header");

	if (r < 0)
		return r;
	if (head[0] || head[1] || head[2] != 8 || head[3] != n_sizes)
		return complain(f,
				"starts with %02x%02x%02x%02x, expected 000008%02x (IDX, bytes, %d "
				"dimensions)",
				head[0], head[1], head[2], head[3], n_sizes, n_sizes);
	for (int i = 0; i < n_sizes; i++) {
		const unsigned char *p = head + 4 + 4 * i;

		sizes[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
		if (sizes[i] == 0 || sizes[i] > MAX_FILE_BYTES / bytes)
			return complain(
				f,
				"dimension %d is %u, expected 1 or more and at most 2 GiB in all",
				i + 1, sizes[i]);
		bytes *= sizes[i];
	}
	*data = malloc(bytes);
	if (!*data)
		return complain(f, "no memory for %llu bytes", (unsigned long long)bytes);
	r = idx_read(f, *data, bytes, "data");
	if (r < 0)
		return r;
	r = gzread(f->gz, &extra, 1);
	if (r != 0)
		return complain(f, r < 0 ? "damaged at its end"
					 : "goes on after the data it announces");
	return 0;
}

static int load_images(struct idx_file *f, const char *directory, const char *name,
		       struct train_set *set)
{
	uint32_t sizes[3] = {0};
	int r = idx_open(f, directory, name);

	if (r < 0)
		return r;
	r = idx_load(f, 3, sizes, &set->image);
	gzclose(f->gz);
	if (r < 0)
		return r;
	set->count = sizes[0];
	set->rows = sizes[1];
	set->columns = sizes[2];
	set->pixels = set->rows * set->columns;
	return 0;
}

static int load_labels(struct idx_file *f, const char *directory, const char *name,
		       struct train_set *set)
{
	uint32_t n_labels = 0;
	int r = idx_open(f, directory, name);

	if (r < 0)
		return r;
	r = idx_load(f, 1, &n_labels, &set->label);
	gzclose(f->gz);
	if (r < 0)
		return r;
	if (n_labels != set->count)
		return complain(f, "has %u labels, expected %zu, one per image", n_labels,
				set->count);
	for (size_t i = 0; i < set->count; i++)
		if (set->label[i] >= set->n_classes)
			set->n_classes = set->label[i] + 1u;
	return 0;
}

/* Brightness to value: mean 0 and deviation 1 over the training pixels. Exact integer sums. */
static void make_scale(const struct train_set *train, float *scale)
{
	uint64_t histogram[256] = {0}, total = train->count * train->pixels, sum = 0, squares = 0;
	double mean, deviation;

	for (uint64_t i = 0; i < total; i++)
		histogram[train->image[i]]++;
	for (uint64_t v = 0; v < 256; v++) {
		sum += v * histogram[v];
		squares += v * v * histogram[v];
	}
	mean = (double)sum / (double)total;
	deviation = sqrt((double)squares / (double)total - mean * mean);
	for (int v = 0; v < 256; v++)
		scale[v] = (float)((v - mean) / (deviation > 0 ? deviation : 1));
}

int train_data_load(const char *directory, struct train_data *data, char *error, size_t error_bytes)
{
	static const char *const part_names[] = {"train", "t10k"};
	struct train_set *parts[] = {&data->train, &data->test};
	struct idx_file f = {.error = error, .error_bytes = error_bytes};
	char name[64];

	memset(data, 0, sizeof(*data));
	for (int i = 0; i < 2; i++) {
		int r;

		snprintf(name, sizeof(name), "%s-images-idx3-ubyte", part_names[i]);
		r = load_images(&f, directory, name, parts[i]);
		if (r < 0)
			return r;
		if (parts[i]->rows != data->train.rows || parts[i]->columns != data->train.columns)
			return complain(
				&f, "has images of %zu × %zu, expected %zu × %zu as in training",
				parts[i]->rows, parts[i]->columns, data->train.rows,
				data->train.columns);
		snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", part_names[i]);
		r = load_labels(&f, directory, name, parts[i]);
		if (r < 0)
			return r;
	}
	if (data->test.n_classes > data->train.n_classes)
		return complain(&f, "has label %zu, expected at most %zu as in training",
				data->test.n_classes - 1, data->train.n_classes - 1);
	make_scale(&data->train, data->train.scale);
	memcpy(data->test.scale, data->train.scale, sizeof(data->test.scale));
	return 0;
}

void train_data_fini(struct train_data *data)
{
	free(data->train.image);
	free(data->train.label);
	free(data->test.image);
	free(data->test.label);
	memset(data, 0, sizeof(*data));
}

void train_set_gather(const struct train_set *set, const uint32_t *order, size_t first, size_t n,
		      float *out, uint8_t *labels)
{
	for (size_t i = 0; i < n; i++) {
		size_t which = order ? order[first + i] : first + i;
		const uint8_t *image = set->image + which * set->pixels;

		for (size_t p = 0; p < set->pixels; p++)
			out[i * set->pixels + p] = set->scale[image[p]];
		labels[i] = set->label[which];
	}
}
