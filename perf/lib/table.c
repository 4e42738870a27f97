/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Aligned columns; see table.h. When memory runs out cells are lost, never misplaced. */
#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct perf_table {
	FILE *out;			   /* lent */
	const struct perf_column *columns; /* lent */
	size_t n_columns;
	bool stream;
	bool header;  /* headings are wanted above kept rows */
	char **cells; /* owned strings, row by row; NULL entries print as empty */
	size_t n_cells;
	size_t capacity;
	size_t at; /* stream: the column of the next cell */
};

struct perf_table *perf_table_create(FILE *out, const struct perf_column *columns, size_t n_columns,
				     bool stream)
{
	struct perf_table *table = calloc(1, sizeof *table);

	assert(n_columns > 0);
	if (!table)
		return NULL;
	table->out = out;
	table->columns = columns;
	table->n_columns = n_columns;
	table->stream = stream;
	return table;
}

static void clear(struct perf_table *table)
{
	for (size_t i = 0; i < table->n_cells; i++)
		free(table->cells[i]);
	table->n_cells = 0;
}

void perf_table_destroy(struct perf_table *table)
{
	if (!table)
		return;
	clear(table);
	free(table->cells);
	free(table);
}

/* Characters of UTF-8 text. */
static int width_of(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* One padded cell; the last one flush left gets no spaces behind it. */
static void put(FILE *out, const char *text, int width, bool last)
{
	int pad = abs(width) - width_of(text);

	if (width > 0 && (*text || !last))
		fprintf(out, "%*s", pad > 0 ? pad : 0, "");
	fputs(text, out);
	if (width < 0 && !last)
		fprintf(out, "%*s", pad > 0 ? pad : 0, "");
}

void perf_table_header(struct perf_table *table)
{
	bool units = false;

	if (!table->stream) {
		table->header = true;
		return;
	}
	for (int line = 0; line < 2; line++) {
		for (size_t i = 0; i < table->n_columns; i++) {
			const struct perf_column *c = &table->columns[i];
			const char *text = line ? (c->unit ? c->unit : "") : c->title;

			units = units || c->unit;
			fputs(i ? " " : "#", table->out);
			put(table->out, text, c->width, i + 1 == table->n_columns);
		}
		fputc('\n', table->out);
		if (!units)
			break;
	}
	fflush(table->out);
}

/* Takes text (may be NULL when memory was out). */
static void keep(struct perf_table *table, char *text)
{
	if (table->n_cells == table->capacity) {
		size_t capacity = table->capacity ? 2 * table->capacity : 64;
		char **cells = realloc(table->cells, capacity * sizeof *cells);

		if (!cells) {
			free(text);
			return;
		}
		table->cells = cells;
		table->capacity = capacity;
	}
	table->cells[table->n_cells++] = text;
}

void perf_table_cell(struct perf_table *table, const char *format, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) < 0)
		text = NULL;
	va_end(ap);
	if (!table->stream) {
		keep(table, text);
		return;
	}
	fputc(' ', table->out);
	put(table->out, text ? text : "?", table->columns[table->at].width,
	    table->at + 1 == table->n_columns);
	free(text);
	if (++table->at == table->n_columns) {
		table->at = 0;
		fputc('\n', table->out);
		fflush(table->out);
	}
}

void perf_table_print(struct perf_table *table, int indent)
{
	size_t n = table->n_columns, rows = table->n_cells / n;

	for (size_t row = 0; row < rows + table->header; row++) {
		fprintf(table->out, "%*s", indent, "");
		for (size_t c = 0; c < n; c++) {
			size_t kept = row - table->header; /* not read for the heading */
			bool heading = table->header && row == 0;
			const char *text =
				heading ? table->columns[c].title : table->cells[kept * n + c];
			int width = abs(table->columns[c].width);

			if (table->header && width_of(table->columns[c].title) > width)
				width = width_of(table->columns[c].title);
			for (size_t i = 0; i < rows; i++) {
				const char *cell = table->cells[i * n + c];
				int w = cell ? width_of(cell) : 0;

				width = w > width ? w : width;
			}
			put(table->out, text ? text : "",
			    table->columns[c].width < 0 ? -width : width, c + 1 == n);
			if (c + 1 < n)
				fputs("  ", table->out);
		}
		fputc('\n', table->out);
	}
	clear(table);
}
