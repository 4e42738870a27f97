/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Error numbers and texts; see error.h (internal and public). */
#include <internal/error.h>
#include <internal/log.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct error_row {
	int number;
	const char *name;
	const char *text;
	enum spr_scope scope;
};

#define ERROR_ROW(name, number, text, scope) {number, #name, text, SPR_SCOPE_##scope},
static const struct error_row rows[] = {SPR_ERRORS(ERROR_ROW)};
#undef ERROR_ROW

static const struct error_row *find(int error)
{
	for (size_t i = 0; i < spri_countof(rows); i++)
		if (rows[i].number == error)
			return &rows[i];
	return NULL;
}

const char *spr_strerror(int error)
{
	static _Thread_local char unknown[64];
	const struct error_row *row = find(error);
	const char *text;

	if (error == 0)
		return "success";
	if (row)
		return row->text;
	text = error < 0 && error > -4096 ? strerrordesc_np(-error) : NULL;
	if (text)
		return text;
	snprintf(unknown, sizeof unknown, "unknown error %d", error);
	return unknown;
}

const char *spr_error_name(int error)
{
	const struct error_row *row = find(error);
	const char *name;

	if (error == 0)
		return "SPR_OK";
	if (row)
		return row->name;
	name = error < 0 && error > -4096 ? strerrorname_np(-error) : NULL;
	return name ? name : "unknown";
}

enum spr_scope spr_error_scope(int error)
{
	const struct error_row *row = find(error);

	return row ? row->scope : SPR_SCOPE_OPERATION;
}

void spri_trace_failure(int r, const char *function, int line)
{
	spri_logf(SPR_LOG_DEBUG, "%s:%d: %s", function, line, spr_error_name(r));
}

void spri_text_set(struct spri_text *text, const char *format, ...)
{
	va_list args;

	if (!text)
		return;
	va_start(args, format);
	vsnprintf(text->s, sizeof text->s, format, args);
	va_end(args);
}

void spri_text_prefix(struct spri_text *text, const char *format, ...)
{
	char prefix[sizeof text->s], whole[2 * sizeof text->s + 2];
	va_list args;

	va_start(args, format);
	vsnprintf(prefix, sizeof prefix, format, args);
	va_end(args);
	snprintf(whole, sizeof whole, "%s: %s", prefix, text->s);
	memcpy(text->s, whole, sizeof text->s - 1);
	text->s[sizeof text->s - 1] = '\0';
}
