/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A progress bar on stderr, only when that is a terminal; otherwise every call does nothing. At
 * most 20 updates a second are drawn. Print to the terminal between clear and the next update.
 */
#ifndef PERF_PROGRESS_H
#define PERF_PROGRESS_H

#include <internal/compiler.h>

struct perf_progress {
	bool terminal;	  /* stderr is one */
	bool drawn;	  /* a bar stands in the current line */
	uint64_t last_ns; /* when it was drawn */
};

void perf_progress_init(struct perf_progress *bar);

/*
 * "label [#####.....]  50 % text"; the last step (done == total) is always drawn. `text` may be
 * NULL.
 */
void perf_progress_update(struct perf_progress *bar, const char *label, uint64_t done,
			  uint64_t total, const char *text);

/* Wipes the bar from the line. */
void perf_progress_clear(struct perf_progress *bar);

#endif
