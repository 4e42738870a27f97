/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Command lines of the tools; the contract is in options.h.
 *
 * Path: each word is an option (found in the table), "--", or an operand; an option's argument is
 * what follows its letter, its "=", or the next word. Failures: the first wrong word is named and
 * nothing more is read.
 */
#include "options.h"

#include <sparring/types.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_NAMES 64 /* options of a tool that can be suggested */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define VERSION TEXT(SPR_VERSION_MAJOR) "." TEXT(SPR_VERSION_MINOR) "." TEXT(SPR_VERSION_PATCH)

static const char *const kind_texts[] = {
	[PERF_OPT_FLAG] = "nothing",
	[PERF_OPT_U64] = "a whole number",
	[PERF_OPT_SIZE] = "a size in bytes (K, M or G may follow)",
	[PERF_OPT_DOUBLE] = "a number",
	[PERF_OPT_DURATION] = "a time with its unit (ns, us, ms or s)",
	[PERF_OPT_RATE] = "a rate as tc writes it (1gbit, 100mbit, 12mbps)",
	[PERF_OPT_STRING] = "a word",
};

int perf_options_refuse(const struct perf_options *options, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", options->tool);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fprintf(stderr, " (see %s --help)\n", options->tool);
	return -1;
}

/* One entry of the table: the option at its left, the meaning at column 30, line by line. */
static void help_row(const char *left, const char *meaning)
{
	size_t width = strlen(left);

	printf("  %s", left);
	if (width > 26) {
		printf("\n");
		width = 0;
		printf("  ");
	}
	for (bool first = true; meaning; first = false) {
		size_t n = strcspn(meaning, "\n");

		printf("%*s%.*s\n", first ? (int)(28 - width) : 30, "", (int)n, meaning);
		meaning = meaning[n] ? meaning + n + 1 : NULL;
	}
}

static void help(const struct perf_options *options)
{
	printf("usage: %s %s\n\n%s\n\n", options->tool, options->usage, options->about);
	for (size_t i = 0; i < options->n_options; i++) {
		const struct perf_option *o = &options->table[i];
		char left[80], letter[8] = "    ";

		if (o->letter)
			snprintf(letter, sizeof letter, "-%c%s", o->letter, o->name ? ", " : "  ");
		snprintf(left, sizeof left, "%s%s%s%s%s", letter, o->name ? "--" : "",
			 o->name ? o->name : "", o->argument ? " " : "",
			 o->argument ? o->argument : "");
		help_row(left, o->meaning);
	}
	help_row("-h, --help", "print this");
	help_row("    --version", "print the version");
	if (options->epilog)
		printf("\n%s", options->epilog);
}

/* Writes what was given to the option. Returns 0 or -1. */
static int store(const struct perf_options *options, const struct perf_option *o, const char *shown,
		 const char *text)
{
	uint64_t u = 0;
	double d = 0;
	bool ok = true;

	switch (o->kind) {
	case PERF_OPT_FLAG:
		*(bool *)o->out = true;
		return 0;
	case PERF_OPT_STRING:
		*(const char **)o->out = text;
		return 0;
	case PERF_OPT_U64:
		ok = perf_parse_u64(text, &u);
		break;
	case PERF_OPT_SIZE:
		ok = perf_parse_size(text, &u);
		break;
	case PERF_OPT_DURATION:
		ok = perf_parse_duration(text, &u);
		break;
	case PERF_OPT_DOUBLE:
		ok = perf_parse_double(text, &d);
		break;
	case PERF_OPT_RATE:
		ok = perf_parse_rate(text, &d);
		break;
	}
	bool real = o->kind == PERF_OPT_DOUBLE || o->kind == PERF_OPT_RATE;
	double v = real ? d : (double)u;

	if (!ok)
		return perf_options_refuse(options, "%s is '%s', must be %s", shown, text,
					   kind_texts[o->kind]);
	if ((o->min != 0 || o->max != 0) && (v < o->min || v > o->max))
		return perf_options_refuse(options, "%s is '%s', must be from %.15g to %.15g%s",
					   shown, text, o->min, o->max,
					   o->kind == PERF_OPT_DURATION ? " ns" : "");
	if (real)
		*(double *)o->out = d;
	else
		*(uint64_t *)o->out = u;
	return 0;
}

static const struct perf_option *find_name(const struct perf_options *options, const char *name,
					   size_t n)
{
	for (size_t i = 0; i < options->n_options; i++) {
		const char *known = options->table[i].name;

		if (known && strlen(known) == n && !strncmp(known, name, n))
			return &options->table[i];
	}
	return NULL;
}

static const struct perf_option *find_letter(const struct perf_options *options, char letter)
{
	for (size_t i = 0; i < options->n_options; i++)
		if (options->table[i].letter && options->table[i].letter == letter)
			return &options->table[i];
	return NULL;
}

/* Refuses an unknown option, naming the nearest known one. */
static int unknown(const struct perf_options *options, const char *word)
{
	const char *names[MAX_NAMES + 2];
	const char *start = word + strspn(word, "-");
	char name[64];
	const char *nearest;
	size_t n = 0;

	snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
	for (size_t i = 0; i < options->n_options && n < MAX_NAMES; i++)
		if (options->table[i].name)
			names[n++] = options->table[i].name;
	names[n++] = "help";
	names[n++] = "version";
	nearest = strlen(name) > 1 ? perf_nearest(name, names, n) : NULL;
	if (nearest)
		return perf_options_refuse(options, "unknown option '%s'; the nearest one is --%s",
					   word, nearest);
	return perf_options_refuse(options, "unknown option '%s'", word);
}

/* One option and, if it takes one, its argument. *at moves over what was read. Returns 0, 1, -1. */
static int option(const struct perf_options *options, int argc, char **argv, int *at)
{
	const char *word = argv[(*at)++];
	bool is_long = word[1] == '-';
	size_t n = strcspn(word, "=");
	const struct perf_option *o;
	const char *argument = NULL;
	char shown[64];

	if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
		help(options);
		return 1;
	}
	if (!strcmp(word, "--version")) {
		printf("%s %s\n", options->tool, VERSION);
		return 1;
	}
	o = is_long ? find_name(options, word + 2, n - 2) : find_letter(options, word[1]);
	if (!o)
		return unknown(options, word);
	snprintf(shown, sizeof shown, "%.*s", is_long ? (int)n : 2, word);
	if (is_long && word[n] == '=')
		argument = word + n + 1;
	else if (!is_long && word[2])
		argument = word + 2 + (word[2] == '=');
	if (o->kind == PERF_OPT_FLAG) {
		if (argument)
			return perf_options_refuse(options, "%s takes no argument, got '%s'", shown,
						   argument);
		return store(options, o, shown, NULL);
	}
	if (!argument) {
		if (*at == argc)
			return perf_options_refuse(options, "%s needs %s behind it", shown,
						   kind_texts[o->kind]);
		argument = argv[(*at)++];
	}
	return store(options, o, shown, argument);
}

/* At exit: what was printed has to be where it belongs; a full disk is a failure. */
static void check_stdout(void)
{
	if (fflush(stdout) || ferror(stdout)) {
		perror("standard output");
		_exit(1);
	}
}

int perf_options_parse(const struct perf_options *options, int argc, char **argv, int *first)
{
	int at = 1, r;

	atexit(check_stdout);
	while (at < argc) {
		const char *word = argv[at];

		if (!strcmp(word, "--")) {
			at++;
			break;
		}
		if (word[0] != '-' || !word[1]) {
			if (options->operands)
				break;
			return perf_options_refuse(options,
						   "'%s' is no option, and %s takes no operands",
						   word, options->tool);
		}
		r = option(options, argc, argv, &at);
		if (r)
			return r;
	}
	if (at < argc && !options->operands)
		return perf_options_refuse(options, "%s takes no operands, got '%s'", options->tool,
					   argv[at]);
	*first = at;
	return 0;
}
