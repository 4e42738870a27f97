/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Command lines of the tools, from one table per tool: parsing, --help and --version, refusals.
 *
 *     static const struct perf_option table[] = {
 *             {'n', "ranks", PERF_OPT_U64, "P", "number of ranks", &config.n_ranks, 1, 1024},
 *             {'c', "check", PERF_OPT_U64, "0|1", "check every result", &config.check, 0, 1},
 *             {0, "tag", PERF_OPT_FLAG, NULL, "prefix each line with its rank", &config.tag, 0, 0},
 *     };
 *     static const struct perf_options options = {"spr_run", "starts ranks",
 *                                                 "[OPTIONS] -- PROG", NULL,
 *                                                 table, spri_countof(table), true};
 *     r = perf_options_parse(&options, argc, argv, &first);
 *     if (r)
 *             return r > 0 ? 0 : PERF_EXIT_USAGE;
 *
 * Accepted: -n 4, -n4, --ranks 4, --ranks=4, in any order; "--" ends the options. -h, --help and
 * --version are added to every table. Each refusal is one line on stderr that names the option,
 * what was given and what would be right; an unknown option is answered with the nearest known
 * one.
 */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include <internal/compiler.h>

#define PERF_EXIT_USAGE 2 /* exit status of every tool for a command line that it refuses */

/* The kind of an option's argument, and the type that `out` points to. */
enum perf_option_kind {
	PERF_OPT_FLAG,	   /* none; bool */
	PERF_OPT_U64,	   /* whole number; uint64_t */
	PERF_OPT_SIZE,	   /* bytes, K M G (powers of 1024) may follow; uint64_t */
	PERF_OPT_DOUBLE,   /* decimal number; double */
	PERF_OPT_DURATION, /* number with ns, us, ms or s; uint64_t nanoseconds */
	PERF_OPT_RATE,	   /* as tc writes it: 1gbit, 12mbps (bytes); double, bytes per second */
	PERF_OPT_STRING	   /* anything; const char *, borrowed from argv */
};

struct perf_option {
	char letter;	  /* 0: none */
	const char *name; /* long name without dashes; NULL: none */
	enum perf_option_kind kind;
	const char *argument; /* its name in --help; NULL for flags */
	const char *meaning;  /* in --help; newlines allowed */
	void *out;	      /* written when the option is given; holds the default before */
	double min, max;      /* numbers: inclusive bounds, in the unit of `out`; both 0: none */
};

struct perf_options {
	const char *tool;   /* its name, for messages */
	const char *about;  /* one sentence */
	const char *usage;  /* what follows the name */
	const char *epilog; /* text after the table in --help, or NULL */
	const struct perf_option *table;
	size_t n_options;
	bool operands; /* what is no option ends parsing; false: it is refused */
};

/*
 * Reads argv. *first becomes the position of the first operand (argc when there is none).
 * Returns: 0; 1 when --help or --version was printed; -1 when the line was refused, with a message.
 */
int perf_options_parse(const struct perf_options *options, int argc, char **argv,
		       int *first) SPRI_MUST;

/*
 * One line on stderr: "tool: text (see tool --help)". Returns -1, for `return
 * perf_options_refuse(...)`.
 */
int perf_options_refuse(const struct perf_options *options, const char *format, ...)
	SPRI_PRINTF(2, 3);

/*
 * Readers of single values, whole string or nothing. Return true and write *out when `text` is
 * one.
 */
bool perf_parse_u64(const char *text, uint64_t *out);
bool perf_parse_size(const char *text, uint64_t *bytes);
bool perf_parse_double(const char *text, double *out);
bool perf_parse_duration(const char *text, uint64_t *ns);
bool perf_parse_rate(const char *text, double *bytes_per_s);

/* The word of `words` nearest to `word` by edit distance, or NULL when none is near. */
const char *perf_nearest(const char *word, const char *const *words, size_t n);

#endif
