/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Readers of single values, and the nearest word; see options.h. */
#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool perf_parse_u64(const char *text, uint64_t *out)
{
	uint64_t v = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
			return false;
	}
	*out = v;
	return true;
}

/*
 * A decimal number at the start of text; *end is what follows. No sign, no hexadecimal, no "inf".
 */
static bool number(const char *text, double *out, const char **end)
{
	char *stop;
	double v;

	if ((*text < '0' || *text > '9') && *text != '.')
		return false;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return false;
	v = strtod(text, &stop);
	if (stop == text || !isfinite(v))
		return false;
	*out = v;
	*end = stop;
	return true;
}

bool perf_parse_double(const char *text, double *out)
{
	const char *end;
	double v;

	if (!number(text, &v, &end) || *end)
		return false;
	*out = v;
	return true;
}

bool perf_parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	char digits[24];
	size_t n = strspn(text, "0123456789");
	const char *rest = text + n;
	const char *unit;
	uint64_t v;

	if (n == 0 || n >= sizeof digits)
		return false;
	memcpy(digits, text, n);
	digits[n] = '\0';
	if (!perf_parse_u64(digits, &v))
		return false;
	if (*rest) {
		unit = strchr(units, *rest >= 'a' && *rest <= 'z' ? *rest - 'a' + 'A' : *rest);
		if (!unit)
			return false;
		if (__builtin_mul_overflow(v, 1ull << 10 * (unit - units + 1), &v))
			return false;
		rest++;
		if (!strcasecmp(rest, "B") || !strcasecmp(rest, "iB"))
			rest = "";
	}
	if (*rest)
		return false;
	*bytes = v;
	return true;
}

bool perf_parse_duration(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	const char *end;
	double v;

	if (!number(text, &v, &end))
		return false;
	for (size_t i = 0; i < spri_countof(units); i++) {
		if (strcmp(end, units[i].name) || v * units[i].ns > 9e18)
			continue;
		*ns = (uint64_t)(v * units[i].ns + 0.5);
		return true;
	}
	if (*end || v != 0) /* a bare 0 needs no unit */
		return false;
	*ns = 0;
	return true;
}

bool perf_parse_rate(const char *text, double *bytes_per_s)
{
	static const struct {
		const char *name;
		double factor;
	} prefixes[] = {{"ki", 1024}, {"mi", 1048576}, {"gi", 1073741824}, {"ti", 1099511627776.0},
			{"k", 1e3},   {"m", 1e6},      {"g", 1e9},	   {"t", 1e12}};
	const char *unit;
	double v;

	if (!number(text, &v, &unit) || v <= 0)
		return false;
	for (size_t i = 0; i < spri_countof(prefixes) && *unit; i++) {
		size_t n = strlen(prefixes[i].name);

		if (strncasecmp(unit, prefixes[i].name, n) || !unit[n])
			continue;
		v *= prefixes[i].factor;
		unit += n;
		break;
	}
	if (!strcasecmp(unit, "bps"))
		*bytes_per_s = v;
	else if (!*unit || !strcasecmp(unit, "bit"))
		*bytes_per_s = v / 8;
	else
		return false;
	return true;
}

/* Levenshtein distance of two words, of which at most 63 letters count. */
static size_t distance(const char *a, const char *b)
{
	size_t row[64];
	size_t n = strnlen(b, 63);

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t corner = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < n; j++) {
			size_t best = corner + (a[i] != b[j]);

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j + 1] + 1 < best)
				best = row[j + 1] + 1;
			corner = row[j + 1];
			row[j + 1] = best;
		}
	}
	return row[n];
}

const char *perf_nearest(const char *word, const char *const *words, size_t n)
{
	size_t limit = strlen(word) / 2 + 1;
	const char *best = NULL;

	for (size_t i = 0; i < n; i++) {
		size_t d = words[i] ? distance(word, words[i]) : limit;

		if (d < limit) {
			limit = d;
			best = words[i];
		}
	}
	return best;
}
