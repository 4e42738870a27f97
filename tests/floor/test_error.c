/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Error numbers and the texts that travel with them; the log hook that traces pass through. */
#include <check.h>
#include <errno.h>
#include <internal/error.h>
#include <internal/log.h>
#include <string.h>

#define ROW(name, number, text, scope) {number, #name, text, SPR_SCOPE_##scope},
static const struct {
	int number;
	const char *name, *text;
	enum spr_scope scope;
} rows[] = {SPR_ERRORS(ROW)};
#undef ROW

Test(error, numbers_names_and_texts_are_unique)
{
	for (size_t i = 0; i < spri_countof(rows); i++) {
		cr_assert_leq(rows[i].number, -5000, "expected %s at or below -5000, got %d",
			      rows[i].name, rows[i].number);
		for (size_t j = 0; j < i; j++) {
			cr_assert_neq(rows[i].number, rows[j].number,
				      "expected %s and %s to differ", rows[i].name, rows[j].name);
			cr_assert_str_neq(rows[i].name, rows[j].name, "expected each name once");
			cr_assert_str_neq(rows[i].text, rows[j].text, "expected each text once");
		}
	}
}

Test(error, functions_answer_from_the_list)
{
	for (size_t i = 0; i < spri_countof(rows); i++) {
		cr_assert_str_eq(spr_strerror(rows[i].number), rows[i].text);
		cr_assert_str_eq(spr_error_name(rows[i].number), rows[i].name);
		cr_assert_eq(spr_error_scope(rows[i].number), rows[i].scope,
			     "expected scope %d of %s", rows[i].scope, rows[i].name);
	}
}

/* The hundreds of a number say what is broken: a reader of a log needs no table. */
Test(error, number_groups_follow_the_scope)
{
	for (size_t i = 0; i < spri_countof(rows); i++)
		for (size_t j = 0; j < i; j++)
			if (rows[i].number / 100 == rows[j].number / 100)
				cr_assert_eq(rows[i].scope, rows[j].scope,
					     "expected one scope for %s and %s", rows[i].name,
					     rows[j].name);
}

Test(error, other_numbers)
{
	cr_assert_str_eq(spr_strerror(0), "success");
	cr_assert_str_eq(spr_error_name(0), "SPR_OK");
	cr_assert_str_eq(spr_strerror(-ENOMEM), "Cannot allocate memory");
	cr_assert_str_eq(spr_error_name(-ENOMEM), "ENOMEM");
	cr_assert_eq(spr_error_scope(-ENOMEM), SPR_SCOPE_OPERATION);
	cr_assert_str_eq(spr_strerror(-4999), "unknown error -4999");
	cr_assert_str_eq(spr_error_name(-4999), "unknown");
	cr_assert_str_eq(spr_strerror(12345), "unknown error 12345");
	cr_assert_not_null(spr_strerror(-2147483647 - 1), "expected a text for INT_MIN");
	cr_assert_not_null(spr_error_name(-2147483647 - 1), "expected a name for INT_MIN");
}

Test(error, text_set_and_prefix)
{
	struct spri_text text = {""};

	spri_text_set(&text, "to RTR: %s", "No route to host");
	spri_text_prefix(&text, "rank %d", 3);
	spri_text_prefix(&text, "allreduce");
	cr_assert_str_eq(text.s, "allreduce: rank 3: to RTR: No route to host");
	spri_text_set(NULL, "nobody listens");
}

Test(error, text_is_cut_and_terminated)
{
	struct {
		struct spri_text text;
		char guard[8];
	} t = {{""}, "guard"};
	char longest[1000];

	memset(longest, 'a', sizeof longest);
	longest[sizeof longest - 1] = '\0';
	spri_text_set(&t.text, "%s", longest);
	cr_assert_eq(strlen(t.text.s), sizeof t.text.s - 1,
		     "expected the longest text that fits, got %zu", strlen(t.text.s));
	spri_text_prefix(&t.text, "front");
	cr_assert_eq(strncmp(t.text.s, "front: aaa", 10), 0,
		     "expected the prefix to be kept, got %.20s", t.text.s);
	cr_assert_eq(strlen(t.text.s), sizeof t.text.s - 1, "expected the end to be cut, got %zu",
		     strlen(t.text.s));
	spri_text_prefix(&t.text, "%s", longest);
	cr_assert_eq(strlen(t.text.s), sizeof t.text.s - 1,
		     "expected a long prefix to be cut, too");
	cr_assert_str_eq(t.guard, "guard", "expected nothing to be written behind the text");
}

struct heard {
	int n, level;
	char line[600];
};

static void hear(void *arg, enum spr_log_level level, const char *line)
{
	struct heard *heard = arg;

	heard->n++;
	heard->level = level;
	snprintf(heard->line, sizeof heard->line, "%s", line);
}

Test(error, trace_tells_failures_to_the_log)
{
	struct heard heard = {0};
	struct spri_log log = {hear, &heard, SPR_LOG_DEBUG};

	cr_assert_eq(spri_trace(-ENOMEM), -ENOMEM,
		     "expected the number to pass, without a hook, too");
	cr_assert_null(spri_log_enter(&log), "expected no hook before");
	cr_assert_eq(spri_trace(0), 0);
	cr_assert_eq(spri_trace(SPRI_AGAIN), SPRI_AGAIN);
	cr_assert_eq(heard.n, 0, "expected success and conditions to be silent, got: %s",
		     heard.line);
	cr_assert_eq(spri_trace(SPR_EARGUMENT), SPR_EARGUMENT);
	cr_assert_eq(heard.n, 1, "expected one line, got %d", heard.n);
	cr_assert_not_null(strstr(heard.line, "SPR_EARGUMENT"), "expected the name in: %s",
			   heard.line);
	cr_assert_not_null(strstr(heard.line, __func__), "expected the function in: %s",
			   heard.line);
	cr_assert_eq(spri_log_enter(NULL), &log, "expected the hook that was set");
}

Test(error, log_level_and_cut)
{
	struct heard heard = {0};
	struct spri_log log = {hear, &heard, SPR_LOG_WARN};
	char longest[2000];

	memset(longest, 'a', sizeof longest);
	longest[sizeof longest - 1] = '\0';
	spri_log_enter(&log);
	spri_logf(SPR_LOG_INFO, "not this");
	cr_assert_eq(heard.n, 0, "expected a line above the level to be dropped");
	spri_logf(SPR_LOG_ERROR, "%s", longest);
	cr_assert_eq(heard.n, 1, "expected a line below the level to pass");
	cr_assert_eq(heard.level, SPR_LOG_ERROR);
	cr_assert_eq(strlen(heard.line), 511u, "expected the line to be cut, got %zu",
		     strlen(heard.line));
	spri_log_enter(NULL);
	spri_logf(SPR_LOG_ERROR, "nor this");
	cr_assert_eq(heard.n, 1, "expected silence without a hook");
}
