/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The log hook of this thread; see log.h. */
#include <internal/log.h>

#include <stdarg.h>
#include <stdio.h>

static _Thread_local const struct spri_log *here; /* of the context whose code runs, or NULL */

const struct spri_log *spri_log_enter(const struct spri_log *log)
{
	const struct spri_log *before = here;

	here = log;
	return before;
}

void spri_logf(int level, const char *format, ...)
{
	char line[512];
	va_list args;

	if (!here || !here->fn || level > here->level)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	here->fn(here->arg, (enum spr_log_level)level, line);
}
