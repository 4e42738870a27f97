/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Reads a text and numbers its characters.
 *
 *   1. Read all bytes of the file, or of the command's output.
 *   2. From the command: drop each line's first word, the verse's number.
 *   3. The bytes that are most frequent get symbols of their own, in byte order; the others, if
 *      there are more kinds than symbols, share symbol 0.
 *
 * A text that cannot be read, is empty or too large ends the load with a line that says what was
 * tried and, for the default, which packages to install.
 */
#include "train_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MIN_BYTES ((size_t)1 << 10)
#define MAX_BYTES ((size_t)1 << 30)
#define FIRST_BYTES ((size_t)1 << 20)
#define HELD_OUT 20 /* one part in so many */

/* Where bytes come from. */
struct input {
	gzFile gz;     /* or NULL */
	FILE *command; /* or NULL */
};

static long input_read(const struct input *in, uint8_t *out, size_t bytes)
{
	size_t n;

	if (in->gz)
		return gzread(in->gz, out, bytes > 1 << 20 ? 1 << 20 : (unsigned)bytes);
	n = fread(out, 1, bytes, in->command);
	return n == 0 && ferror(in->command) ? -1 : (long)n;
}

/* All bytes of the input. Returns: 0; -EIO, -ENOMEM, -EFBIG. */
static int read_all(const struct input *in, struct train_text *text)
{
	size_t room = 0;

	for (;;) {
		long n;

		if (text->count == room) {
			uint8_t *more;

			room = room ? 2 * room : FIRST_BYTES;
			if (room > MAX_BYTES)
				return -EFBIG;
			more = realloc(text->symbol, room);
			if (!more)
				return -ENOMEM;
			text->symbol = more;
		}
		n = input_read(in, text->symbol + text->count, room - text->count);
		if (n < 0)
			return -EIO;
		if (n == 0)
			return 0;
		text->count += (size_t)n;
	}
}

/* "Ge1:1 In the beginning" → "In the beginning", in every line. */
static void drop_first_words(struct train_text *text)
{
	size_t kept = 0;
	int in_word = 1;

	for (size_t i = 0; i < text->count; i++) {
		uint8_t c = text->symbol[i];

		if (!in_word)
			text->symbol[kept++] = c;
		if (c == '\n')
			in_word = 1;
		else if (c == ' ')
			in_word = 0;
	}
	text->count = kept;
}

/* Bytes → symbols. */
static void number_symbols(struct train_text *text)
{
	size_t frequency[256] = {0}, n_kinds = 0, n_own;
	uint8_t symbol_of[256] = {0}, next = 0;

	for (size_t i = 0; i < text->count; i++)
		frequency[text->symbol[i]]++;
	for (int c = 0; c < 256; c++)
		n_kinds += frequency[c] > 0;
	n_own = n_kinds;
	if (n_kinds > TRAIN_TEXT_MAX_SYMBOLS) {
		n_own = TRAIN_TEXT_MAX_SYMBOLS - 1;
		next = 1;
	}
	for (int c = 0; c < 256; c++) {
		size_t n_before = 0; /* kinds that are more frequent */

		for (int d = 0; d < 256; d++)
			n_before += frequency[d] > frequency[c] ||
				    (frequency[d] == frequency[c] && d < c);
		if (frequency[c] > 0 && n_before < n_own)
			symbol_of[c] = next++;
	}
	for (size_t i = 0; i < text->count; i++)
		text->symbol[i] = symbol_of[text->symbol[i]];
	text->n_symbols = next;
}

static int input_open(struct input *in, const char *path)
{
	if (path)
		in->gz = gzopen(path, "rbe");
	else
		in->command = popen(TRAIN_TEXT_COMMAND, "re");
	return in->gz || in->command ? 0 : -(errno ? errno : ENOMEM);
}

/* Returns: 0; -EIO for a command that failed. */
static int input_close(struct input *in)
{
	if (in->gz)
		gzclose(in->gz);
	return in->command && pclose(in->command) != 0 ? -EIO : 0;
}

int train_text_load(const char *path, struct train_text *text, char *error, size_t error_bytes)
{
	struct input in = {0};
	int r, closed;

	memset(text, 0, sizeof(*text));
	r = input_open(&in, path);
	if (r == 0) {
		r = read_all(&in, text);
		closed = input_close(&in);
		r = r < 0 ? r : closed;
	}
	if (r < 0 && !path)
		snprintf(error, error_bytes,
			 "cannot get a text from 'bible': %s (Debian: apt install bible-kjv; "
			 "elsewhere: --data FILE)",
			 strerror(-r));
	else if (r < 0)
		snprintf(error, error_bytes, "%s: cannot read: %s", path, strerror(-r));
	if (r < 0)
		return r;
	if (!path)
		drop_first_words(text);
	if (text->count < MIN_BYTES) {
		snprintf(error, error_bytes, "%s: has %zu characters, expected %zu or more",
			 path ? path : "bible", text->count, MIN_BYTES);
		return -EINVAL;
	}
	number_symbols(text);
	text->n_train = text->count - text->count / HELD_OUT;
	return 0;
}

void train_text_fini(struct train_text *text)
{
	free(text->symbol);
	memset(text, 0, sizeof(*text));
}
