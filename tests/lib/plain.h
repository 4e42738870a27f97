/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The plain runner: Criterion's syntax, as far as these tests use it, in one file of C. A test runs
 * in a child process with a time limit, or with --no-fork (the only way under ThreadSanitizer) in
 * the runner itself. Options: --list, --filter SUITE/NAME (either part may be *), --no-fork.
 */
#ifndef SPR_TESTS_PLAIN_H
#define SPR_TESTS_PLAIN_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The optional arguments of Test(), by name: Test(suite, name, .timeout = 5). */
struct plain_options {
	int first;		 /* takes the place before the named ones; unused */
	void (*init)(void);	 /* before the test, in its process */
	void (*fini)(void);	 /* after the test */
	double timeout;		 /* seconds; 0: 60 */
	bool disabled;		 /* counted as skipped */
	const char *description; /* printed with the name */
};

struct plain_test {
	const char *suite;
	const char *name;
	void (*body)(void);
	struct plain_options options;
	struct plain_test *next; /* owner: the runner's list */
};

void plain_register(struct plain_test *test);

__attribute__((noreturn, format(printf, 4, 5))) void
plain_fail(const char *file, int line, const char *condition, const char *format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void plain_skip(const char *format, ...);
/* Called by every assertion that holds. */
static inline void plain_pass(void) {}

#define Test(suite_, name_, ...)                                                                   \
	static void suite_##_##name_##_body(void);                                                 \
	static struct plain_test suite_##_##name_##_test = {                                       \
		#suite_, #name_, suite_##_##name_##_body, {0, ##__VA_ARGS__}, NULL};               \
	__attribute__((constructor)) static void suite_##_##name_##_register(void)                 \
	{                                                                                          \
		plain_register(&suite_##_##name_##_test);                                          \
	}                                                                                          \
	static void suite_##_##name_##_body(void)

/* The message is optional; when there is one it is a literal format with its arguments. */
#define plain_check(condition, text, ...)                                                          \
	((condition) ? plain_pass() : plain_fail(__FILE__, __LINE__, text, " " __VA_ARGS__))

#define cr_assert(condition, ...) plain_check(condition, #condition, __VA_ARGS__)
#define cr_assert_not(condition, ...) plain_check(!(condition), "!(" #condition ")", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) plain_check((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) plain_check((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) plain_check((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) plain_check((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) plain_check((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) plain_check((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_null(p, ...) plain_check((p) == NULL, #p " == NULL", __VA_ARGS__)
#define cr_assert_not_null(p, ...) plain_check((p) != NULL, #p " != NULL", __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)                                                                \
	plain_check(strcmp((a), (b)) == 0, #a " equals " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...)                                                               \
	plain_check(strcmp((a), (b)) != 0, #a " differs from " #b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, bytes, ...)                                                         \
	plain_check(memcmp((a), (b), (bytes)) == 0, #a " equals " #b " in " #bytes " bytes",       \
		    __VA_ARGS__)
#define cr_assert_arr_neq(a, b, bytes, ...)                                                        \
	plain_check(memcmp((a), (b), (bytes)) != 0, #a " differs from " #b " in " #bytes " bytes", \
		    __VA_ARGS__)
#define cr_assert_float_eq(a, b, epsilon, ...)                                                     \
	plain_check(fabs((double)(a) - (double)(b)) <= (double)(epsilon),                          \
		    #a " == " #b " within " #epsilon, __VA_ARGS__)
#define cr_assert_fail(...) plain_fail(__FILE__, __LINE__, "not to come here", " " __VA_ARGS__)
#define cr_skip(...) plain_skip(" " __VA_ARGS__)
#define cr_skip_test(...) plain_skip(" " __VA_ARGS__)

#endif
