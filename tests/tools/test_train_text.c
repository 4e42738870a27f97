/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The text reader of spr_train, and pieces of text as samples. */
#include "check.h"
#include "train_source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define N 4000

static char path[64];

/* Writes N bytes, byte i being `first` + i · step modulo kinds, plain or gzipped. */
static void write_text(const char *mode, int first, int step, int kinds, size_t n)
{
	gzFile gz;

	strcpy(path, "/tmp/spr_text_XXXXXX");
	close(mkstemp(path));
	gz = gzopen(path, mode);
	cr_assert_not_null(gz);
	for (size_t i = 0; i < n; i++)
		gzputc(gz, first + (int)(i * (size_t)step % (size_t)kinds));
	gzclose(gz);
}

Test(train_text, numbers_the_characters)
{
	struct train_text text;
	char error[256];

	for (int zipped = 0; zipped < 2; zipped++) {
		write_text(zipped ? "wb" : "wbT", 'a', 3, 7, N);
		cr_assert_eq(train_text_load(path, &text, error, sizeof(error)), 0, "%s", error);
		unlink(path);
		cr_assert_eq(text.count, N);
		cr_assert_eq(text.n_train, N - N / 20);
		cr_assert_eq(text.n_symbols, 7);
		for (size_t i = 0; i < N; i++)
			cr_assert_eq(text.symbol[i], i * 3 % 7);
		train_text_fini(&text);
	}
}

Test(train_text, rare_characters_share_a_symbol)
{
	size_t n_shared = 0;
	struct train_text text;
	char error[256];

	write_text("wb", 1, 1, 200, N);
	cr_assert_eq(train_text_load(path, &text, error, sizeof(error)), 0, "%s", error);
	unlink(path);
	cr_assert_eq(text.n_symbols, TRAIN_TEXT_MAX_SYMBOLS);
	for (size_t i = 0; i < 200; i++)
		n_shared += text.symbol[i] == 0;
	cr_assert_eq(n_shared, 200 - (TRAIN_TEXT_MAX_SYMBOLS - 1));
	train_text_fini(&text);
}

Test(train_text, refuses_what_is_no_text)
{
	struct train_text text;
	char error[256];

	cr_assert_lt(train_text_load("/nonexistent/text", &text, error, sizeof(error)), 0);
	cr_assert_not_null(strstr(error, "/nonexistent/text: cannot read: No such file"), "%s",
			   error);
	train_text_fini(&text);
	write_text("wb", 'a', 1, 3, 100);
	cr_assert_lt(train_text_load(path, &text, error, sizeof(error)), 0);
	cr_assert_not_null(strstr(error, "has 100 characters, expected 1024 or more"), "%s", error);
	train_text_fini(&text);
	unlink(path);
}

Test(train_text, pieces_overlap_by_one_character)
{
	static const uint32_t order[] = {3, 0};
	struct train_source source;
	struct train_batch batch;
	char error[256];

	write_text("wb", 'a', 1, 11, N);
	cr_assert_eq(train_source_load(&source, TRAIN_TEXT, path, 10, error, sizeof(error)), 0,
		     "%s", error);
	unlink(path);
	cr_assert_eq(source.n_train, (N - N / 20 - 1) / 10);
	cr_assert_eq(source.n_test, (N / 20 - 1) / 10);
	cr_assert_eq(train_batch_init(&batch, &source, 2), 0);
	train_source_gather(&source, false, order, 0, 2, &batch);
	cr_assert_eq(batch.n, 2);
	for (size_t i = 0; i < 11; i++) {
		cr_assert_eq(batch.label[i], (30 + i) % 11);
		cr_assert_eq(batch.label[11 + i], i);
	}
	train_source_gather(&source, true, NULL, 1, 1, &batch);
	for (size_t i = 0; i < 11; i++)
		cr_assert_eq(batch.label[i], (N - N / 20 + 10 + i) % 11);
	train_batch_fini(&batch);
	train_source_fini(&source);
	write_text("wb", 'a', 1, 11, N);
	cr_assert_lt(train_source_load(&source, TRAIN_TEXT, path, 400, error, sizeof(error)), 0);
	cr_assert_not_null(strstr(error, "too few for pieces of 400"), "%s", error);
	train_source_fini(&source);
	unlink(path);
}
