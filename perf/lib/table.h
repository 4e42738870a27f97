/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Aligned columns on a terminal or in a file. Two ways: a *stream* prints each row at once with
 * the widths of its column list (benchmarks); otherwise rows are kept until perf_table_print, and
 * the widths fit the longest cells (listings). Widths count characters of UTF-8, not bytes.
 */
#ifndef PERF_TABLE_H
#define PERF_TABLE_H

#include <internal/compiler.h>

#include <stdio.h>

struct perf_column {
	const char *title;
	const char *unit; /* second heading line, in a stream; NULL: none */
	int width;	  /* at least so wide; negative: flush left */
};

struct perf_table;

/* Given: perf_table_destroy. `columns` is lent. Returns NULL when memory is out. */
struct perf_table *perf_table_create(FILE *out, const struct perf_column *columns, size_t n_columns,
				     bool stream);
void perf_table_destroy(struct perf_table *table); /* accepts NULL */

/*
 * The headings: at once in a stream ('#' first, as nccl-tests do), else above the rows by
 * perf_table_print.
 */
void perf_table_header(struct perf_table *table);

/* The next cell; a full row goes out (stream) or is kept. */
void perf_table_cell(struct perf_table *table, const char *format, ...) SPRI_PRINTF(2, 3);

/* Prints the kept rows, indented; then the table is empty. Nothing to do for a stream. */
void perf_table_print(struct perf_table *table, int indent);

#endif
