/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The log hook of this thread; see log.h. */
#include <internal/log.h>

#include <stdarg.h>
#include <stdio.h>

_Thread_local const struct spri_log *spri_log_here; /* of the context whose code runs, or NULL */

void spri_logf(int level, const char *format, ...)
{
	const struct spri_log *here = spri_log_here;
	char line[512];
	va_list args;

	if (!here || !here->fn || level > here->level)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	here->fn(here->arg, (enum spr_log_level)level, line);
}
