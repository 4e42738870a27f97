/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The progress bar; see progress.h. */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define REDRAW_NS 50000000u

void perf_progress_init(struct perf_progress *bar)
{
	const char *term = getenv("TERM");

	*bar = (struct perf_progress){.terminal = isatty(STDERR_FILENO) &&
						  (!term || strcmp(term, "dumb"))};
}

void perf_progress_update(struct perf_progress *bar, const char *label, uint64_t done,
			  uint64_t total, const char *text)
{
	struct winsize size = {0};
	struct timespec now;
	uint64_t now_ns;
	int columns = 80, width, filled;

	if (!bar->terminal || total == 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	if (bar->drawn && done < total && now_ns - bar->last_ns < REDRAW_NS)
		return;
	bar->last_ns = now_ns;
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
		columns = size.ws_col;
	width = columns - (int)strlen(label) - (text ? (int)strlen(text) : 0) - 12;
	width = width < 4 ? 4 : width > 40 ? 40 : width;
	done = done > total ? total : done;
	filled = (int)((double)done / (double)total * width);
	fprintf(stderr, "\r%s [", label);
	for (int i = 0; i < width; i++)
		fputc(i < filled ? '#' : '.', stderr);
	fprintf(stderr, "] %3d %% %s\033[K", (int)((double)done / (double)total * 100),
		text ? text : "");
	fflush(stderr);
	bar->drawn = true;
}

void perf_progress_clear(struct perf_progress *bar)
{
	if (!bar->drawn)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	bar->drawn = false;
}
