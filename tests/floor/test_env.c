/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Environment variables: what each reader takes, what it refuses and how it says so; names. */
#include <check.h>
#include <internal/env.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

struct good {
	const char *text;
	uint64_t value;
};

static void set(enum spri_env variable, const char *value)
{
	cr_assert_eq(setenv(spri_env_info(variable)->name, value, 1), 0, "expected setenv to work");
}

/* A refusal names the variable and the value, and leaves the output alone. */
static void check_refusal(int r, enum spri_env variable, const char *value, bool untouched,
			  const struct spri_text *text)
{
	cr_assert_eq(r, SPR_EENVIRONMENT, "expected '%s' to be refused, got %d", value, r);
	cr_assert(untouched, "expected the output to be untouched by '%s'", value);
	cr_assert_not_null(strstr(text->s, spri_env_info(variable)->name),
			   "expected the variable's name in: %s", text->s);
	cr_assert_not_null(strstr(text->s, value), "expected '%s' in: %s", value, text->s);
}

Test(env, get_sees_unset_and_empty_alike)
{
	unsetenv("SPR_TCP_IF");
	cr_assert_null(spri_env_get(SPRI_ENV_TCP_IF), "expected NULL when it is not set");
	set(SPRI_ENV_TCP_IF, "");
	cr_assert_null(spri_env_get(SPRI_ENV_TCP_IF), "expected NULL when it is empty");
	set(SPRI_ENV_TCP_IF, "lo");
	cr_assert_str_eq(spri_env_get(SPRI_ENV_TCP_IF), "lo");
}

Test(env, u64_takes_numbers_in_range)
{
	static const struct good rows[] = {
		{"1", 1}, {"7", 7}, {"007", 7}, {"18446744073709551615", UINT64_MAX}};
	struct spri_text text = {""};
	uint64_t out = 99;

	unsetenv("SPR_SIZE");
	cr_assert_eq(spri_env_u64(SPRI_ENV_SIZE, 1, 8, 5, &out, &text), 0);
	cr_assert_eq(out, 5u, "expected the fallback");
	for (size_t i = 0; i < spri_countof(rows); i++) {
		set(SPRI_ENV_SIZE, rows[i].text);
		cr_assert_eq(spri_env_u64(SPRI_ENV_SIZE, 1, UINT64_MAX, 5, &out, &text), 0,
			     "expected '%s' to be taken: %s", rows[i].text, text.s);
		cr_assert_eq(out, rows[i].value, "expected %llu from '%s', got %llu",
			     (unsigned long long)rows[i].value, rows[i].text,
			     (unsigned long long)out);
	}
}

Test(env, u64_refuses)
{
	static const char *const bad[] = {"-1",
					  "+1",
					  " 1",
					  "1 ",
					  "1x",
					  "x",
					  "0x10",
					  "1.5",
					  "1K",
					  "0",
					  "1000001",
					  "18446744073709551616",
					  "18446744073709551620",
					  "99999999999999999999999"};

	for (size_t i = 0; i < spri_countof(bad); i++) {
		struct spri_text text = {""};
		uint64_t out = 99;
		int r;

		set(SPRI_ENV_SIZE, bad[i]);
		r = spri_env_u64(SPRI_ENV_SIZE, 1, 1000000, 5, &out, &text);
		check_refusal(r, SPRI_ENV_SIZE, bad[i], out == 99, &text);
	}
}

Test(env, u64_bounds_are_inclusive)
{
	struct spri_text text = {""};
	uint64_t out = 99;

	set(SPRI_ENV_SIZE, "8");
	cr_assert_eq(spri_env_u64(SPRI_ENV_SIZE, 8, 8, 5, &out, &text), 0,
		     "expected both bounds to be allowed");
	cr_assert_neq(spri_env_u64(SPRI_ENV_SIZE, 9, 10, 5, &out, &text), 0,
		      "expected 8 < 9 to be refused");
	cr_assert_neq(spri_env_u64(SPRI_ENV_SIZE, 1, 7, 5, &out, NULL), 0,
		      "expected 8 > 7 to be refused, without a text, too");
}

Test(env, bytes_takes_units)
{
	static const struct good rows[] = {
		{"4096", 4096},	    {"4K", 4096}, {"64M", 64ull << 20},
		{"3G", 3ull << 30}, {"0", 0},	  {"17179869183G", 17179869183ull << 30}};
	struct spri_text text = {""};
	uint64_t out = 99;

	unsetenv("SPR_LANDING");
	cr_assert_eq(spri_env_bytes(SPRI_ENV_LANDING, 0, UINT64_MAX, 5, &out, &text), 0);
	cr_assert_eq(out, 5u, "expected the fallback");
	for (size_t i = 0; i < spri_countof(rows); i++) {
		set(SPRI_ENV_LANDING, rows[i].text);
		cr_assert_eq(spri_env_bytes(SPRI_ENV_LANDING, 0, UINT64_MAX, 5, &out, &text), 0,
			     "expected '%s' to be taken: %s", rows[i].text, text.s);
		cr_assert_eq(out, rows[i].value, "expected %llu from '%s', got %llu",
			     (unsigned long long)rows[i].value, rows[i].text,
			     (unsigned long long)out);
	}
}

Test(env, bytes_refuses)
{
	static const char *const bad[] = {"K",
					  "-1K",
					  "4k",
					  "4KB",
					  "4T",
					  "4 K",
					  "1.5M",
					  "4KK",
					  "12B",
					  "1023",
					  "2G",
					  "17179869184G",
					  "17179869185G",
					  "18446744073709551616"};

	for (size_t i = 0; i < spri_countof(bad); i++) {
		struct spri_text text = {""};
		uint64_t out = 99;
		int r;

		set(SPRI_ENV_LANDING, bad[i]);
		r = spri_env_bytes(SPRI_ENV_LANDING, 1024, 1 << 30, 5, &out, &text);
		check_refusal(r, SPRI_ENV_LANDING, bad[i], out == 99, &text);
	}
}

Test(env, seconds_takes_fractions)
{
	static const struct good rows[] = {{"30", 30000000000ull},
					   {"0.001", 1000000},
					   {"0.5", 500000000},
					   {"1000000", 1000000000000000ull},
					   {"1e1", 10000000000ull}};
	struct spri_text text = {""};
	uint64_t out = 99;

	unsetenv("SPR_TIMEOUT");
	cr_assert_eq(spri_env_seconds(SPRI_ENV_TIMEOUT, 5, &out, &text), 0);
	cr_assert_eq(out, 5u, "expected the fallback");
	for (size_t i = 0; i < spri_countof(rows); i++) {
		set(SPRI_ENV_TIMEOUT, rows[i].text);
		cr_assert_eq(spri_env_seconds(SPRI_ENV_TIMEOUT, 5, &out, &text), 0,
			     "expected '%s' to be taken: %s", rows[i].text, text.s);
		cr_assert_eq(out, rows[i].value, "expected %llu from '%s', got %llu",
			     (unsigned long long)rows[i].value, rows[i].text,
			     (unsigned long long)out);
	}
}

Test(env, seconds_refuses)
{
	static const char *const bad[] = {"-1",	    "+1",      ".5",	" 1",  "1s",  "1 ", "0",
					  "0.0009", "1000001", "1e999", "nan", "inf", "x"};

	for (size_t i = 0; i < spri_countof(bad); i++) {
		struct spri_text text = {""};
		uint64_t out = 99;
		int r;

		set(SPRI_ENV_TIMEOUT, bad[i]);
		r = spri_env_seconds(SPRI_ENV_TIMEOUT, 5, &out, &text);
		check_refusal(r, SPRI_ENV_TIMEOUT, bad[i], out == 99, &text);
	}
}

Test(env, word_finds_its_place)
{
	static const char *const words[] = {"c", "avx2", "avx512", NULL};
	static const char *const bad[] = {"C", "avx", "avx2 ", "avx5122"};
	struct spri_text text = {""};
	int out = 99;

	unsetenv("SPR_ISA");
	cr_assert_eq(spri_env_word(SPRI_ENV_ISA, words, 1, &out, &text), 0);
	cr_assert_eq(out, 1, "expected the fallback");
	for (int i = 0; words[i]; i++) {
		set(SPRI_ENV_ISA, words[i]);
		cr_assert_eq(spri_env_word(SPRI_ENV_ISA, words, -1, &out, &text), 0,
			     "expected '%s' to be taken", words[i]);
		cr_assert_eq(out, i, "expected place %d of '%s', got %d", i, words[i], out);
	}
	for (size_t i = 0; i < spri_countof(bad); i++) {
		int r;

		out = 99;
		set(SPRI_ENV_ISA, bad[i]);
		r = spri_env_word(SPRI_ENV_ISA, words, -1, &out, &text);
		check_refusal(r, SPRI_ENV_ISA, bad[i], out == 99, &text);
		cr_assert_not_null(strstr(text.s, "c, avx2, avx512"),
				   "expected the allowed words in: %s", text.s);
	}
}

Test(env, list_is_complete_and_unique)
{
	for (int i = 0; i < SPRI_ENV_COUNT; i++) {
		const struct spri_env_info *info = spri_env_info((enum spri_env)i);

		cr_assert_eq(strncmp(info->name, "SPR_", 4), 0, "expected SPR_ before %s",
			     info->name);
		cr_assert_gt(strlen(info->meaning), 10u, "expected a meaning of %s", info->name);
		cr_assert_not_null(info->value, "expected a default of %s", info->name);
		for (int j = 0; j < i; j++)
			cr_assert_str_neq(info->name, spri_env_info((enum spri_env)j)->name,
					  "expected each name once");
	}
}

Test(env, nearest_name)
{
	static const char *const pairs[][2] = {
		{"SPR_RNAK", "SPR_RANK"},	 {"SPR_TCPIF", "SPR_TCP_IF"},
		{"SPR_TIMEOUTS", "SPR_TIMEOUT"}, {"SPR_TRANSPROT", "SPR_TRANSPORT"},
		{"SPR_LOG", "SPR_LOG"},		 {"SPR_PROGRESS_THREDA", "SPR_PROGRESS_THREAD"}};
	char longest[300];

	for (size_t i = 0; i < spri_countof(pairs); i++)
		cr_assert_str_eq(spri_env_nearest(pairs[i][0]), pairs[i][1],
				 "expected %s beside %s, got %s", pairs[i][1], pairs[i][0],
				 spri_env_nearest(pairs[i][0]));
	cr_assert_not_null(spri_env_nearest(""), "expected a name for the empty one, too");
	memset(longest, 'Z', sizeof longest);
	longest[sizeof longest - 1] = '\0';
	cr_assert_not_null(spri_env_nearest(longest), "expected a name for a very long one, too");
}

struct found {
	int n;
	char name[64], nearest[64];
};

static void note(void *arg, const char *name, const char *nearest)
{
	struct found *found = arg;

	found->n++;
	snprintf(found->name, sizeof found->name, "%s", name);
	snprintf(found->nearest, sizeof found->nearest, "%s", nearest);
}

struct local {
	const char *names[2], *values[2];
	unsigned rank, size;
};

Test(env, local_rank)
{
	static const struct local rows[] = {
		{{"SPR_LOCAL_RANK", "SPR_LOCAL_SIZE"}, {"2", "3"}, 2, 3},
		{{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}, {"1", "4"}, 1, 4},
		{{"LOCAL_RANK", "LOCAL_WORLD_SIZE"}, {"7", "8"}, 7, 8},
		{{"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, {"0", "2"}, 0, 2},
		{{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}, {"3", "4(x2),3"}, 3, 4},
		{{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}, {"3", "3,4"}, 3, 4},
		/* not a launcher's: as if there were none */
		{{"LOCAL_RANK", "LOCAL_WORLD_SIZE"}, {"8", "8"}, 0, 1},
		{{"LOCAL_RANK", "LOCAL_WORLD_SIZE"}, {"x", "8"}, 0, 1},
		{{"LOCAL_RANK", "NOTHING"}, {"1", "8"}, 0, 1},
	};
	struct spri_text text = {""};
	uint32_t rank, size;
	const char *from;

	for (size_t i = 0; i < spri_countof(rows); i++) {
		clearenv();
		for (int k = 0; k < 2; k++)
			setenv(rows[i].names[k], rows[i].values[k], 1);
		cr_assert_eq(spri_env_local(&rank, &size, &from, &text), 0, "%s", text.s);
		cr_assert(rank == rows[i].rank && size == rows[i].size, "row %zu: %u of %u", i,
			  rank, size);
		cr_assert(size == 1 ? !from : !strcmp(from, rows[i].names[0]), "row %zu", i);
	}
	setenv("SPR_LOCAL_RANK", "0", 1); /* ours come first */
	setenv("SPR_LOCAL_SIZE", "1", 1);
	setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
	cr_assert_eq(spri_env_local(&rank, &size, &from, &text), 0);
	cr_assert(size == 1 && from, "ours");
	setenv("SPR_LOCAL_RANK", "1", 1);
	cr_assert_eq(spri_env_local(&rank, &size, &from, &text), SPR_EENVIRONMENT);
	cr_assert_not_null(strstr(text.s, "SPR_LOCAL_RANK is '1'"), "%s", text.s);
}

Test(env, unknown_names_are_reported)
{
	struct found found = {0};

	clearenv();
	spri_env_unknown(note, &found);
	cr_assert_eq(found.n, 0, "expected nothing in an empty environment, got %d", found.n);
	setenv("SPR_RANK", "0", 1);
	setenv("SPRING", "1", 1);
	setenv("XSPR_RANK", "1", 1);
	spri_env_unknown(note, &found);
	cr_assert_eq(found.n, 0, "expected known and foreign names to pass, got %s", found.name);
	setenv("SPR_TIME_OUT", "3", 1);
	spri_env_unknown(note, &found);
	cr_assert_eq(found.n, 1, "expected one unknown name, got %d", found.n);
	cr_assert_str_eq(found.name, "SPR_TIME_OUT");
	cr_assert_str_eq(found.nearest, "SPR_TIMEOUT");
}
