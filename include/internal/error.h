/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * How failures travel inside: int, 0 done, negative failed (pass it on unchanged), positive
 * a condition that the function documents. The texts that people read are kept by long-lived
 * objects; the first finder sets one, each layer above may put a prefix before it.
 */
#ifndef SPRI_ERROR_H
#define SPRI_ERROR_H

#include <internal/compiler.h>
#include <sparring/error.h>

/* Positive conditions. */
enum {
	SPRI_AGAIN = 1, /* nothing was taken; make progress and repeat */
};

/* Passes r on; when it is negative, tells the log hook where it went by. `return spri_trace(r);` */
#define spri_trace(r) spri_trace_at((r), __func__, __LINE__)
void spri_trace_failure(int r, const char *function, int line);

static inline int spri_trace_at(int r, const char *function, int line)
{
	if (spri_unlikely(r < 0))
		spri_trace_failure(r, function, line);
	return r;
}

/*
 * One line of text for people, always terminated, cut when too long. Zeroed memory is the empty
 * text.
 */
struct spri_text {
	char s[384];
};

void spri_text_set(struct spri_text *text, const char *format, ...) SPRI_PRINTF(2, 3);
/* Puts "prefix: " before what is there. */
void spri_text_prefix(struct spri_text *text, const char *format, ...) SPRI_PRINTF(2, 3);

#endif
