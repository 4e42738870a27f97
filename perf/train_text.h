/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* A text as symbols, one for each character. */
#ifndef SPR_PERF_TRAIN_TEXT_H
#define SPR_PERF_TRAIN_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Prints the King James Bible, a verse a line; of Debian's packages bible-kjv, bible-kjv-text. */
#define TRAIN_TEXT_COMMAND "bible -f gen1:1-rev22:21 </dev/null 2>/dev/null"

/* Rarer characters share the symbol 0. */
#define TRAIN_TEXT_MAX_SYMBOLS 96

/* Zero-initialised it is empty. */
struct train_text {
	size_t count;	  /* characters */
	size_t n_train;	  /* of these, the first ones, to train on; the rest is held out */
	size_t n_symbols; /* all values are below it */
	uint8_t *symbol;  /* count; owned */
};

/*
 * Reads a file (plain or gzipped), or with NULL the output of TRAIN_TEXT_COMMAND without the
 * number at each verse's beginning. The last twentieth is held out.
 * Returns: 0; negative after a text in `error`. train_text_fini accepts `text` either way.
 */
int train_text_load(const char *path, struct train_text *text, char *error, size_t error_bytes);
void train_text_fini(struct train_text *text);

#endif
