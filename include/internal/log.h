/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The log hook. The library prints nothing: a line goes to the function that the user gave
 * to spr_context_open, if it is at or below the level asked for. The hook of the context
 * whose code runs is kept per thread and set at the entry of each public function.
 */
#ifndef SPRI_LOG_H
#define SPRI_LOG_H

#include <internal/compiler.h>
#include <sparring/context.h>

struct spri_log {
	spr_log_fn fn; /* NULL: nobody listens */
	void *arg;     /* handed to fn */
	int level;     /* enum spr_log_level; lines above it are not formatted */
};

/*
 * The hook of this thread, NULL: none; set by spri_log_enter() only. In static TLS (8 bytes), so
 * that a public call reaches it without calling the dynamic linker.
 */
extern _Thread_local const struct spri_log *spri_log_here SPRI_TLS;

/*
 * Makes `log` (borrowed until replaced; NULL: none) the hook of this thread. Returns the one
 * before.
 */
static inline const struct spri_log *spri_log_enter(const struct spri_log *log)
{
	const struct spri_log *before = spri_log_here;

	spri_log_here = log;
	return before;
}

/* One line, without a newline at its end. */
void spri_logf(int level, const char *format, ...) SPRI_PRINTF(2, 3);

#endif
