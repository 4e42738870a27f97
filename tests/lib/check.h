/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What a test file includes. One syntax, two runners: Criterion, or (SPR_PLAIN_RUNNER, for
 * ThreadSanitizer and machines without Criterion) the small one in plain.h. In use here:
 *
 *     Test(suite, name) { ... }                  one test case, in a process of its own
 *     cr_assert(condition, "expected %d", n)     and _eq _neq _lt _gt _leq _geq _str_eq _str_neq
 *                                                _arr_eq _arr_neq _null _not_null _float_eq _fail
 *     cr_skip("no %s here", what)                marks the test SKIPPED, with the reason; leaves it
 *
 * Assert and skip only in the thread that runs the test. Each runner ends with one line that
 * quickstart sums: "N passed, N failed, N skipped"; the exit status is 0 when nothing failed,
 * 77 when everything was skipped, else 1.
 */
#ifndef SPR_TESTS_CHECK_H
#define SPR_TESTS_CHECK_H

#include <stdio.h>

#ifdef SPR_PLAIN_RUNNER

#include "plain.h"

#else

#include <criterion/criterion.h>

/* Criterion does not show a skip's text, so it is printed here. */
#undef cr_skip
#define cr_skip(...)                                                                               \
	(printf("skip %s/%s: ", criterion_current_test->category, criterion_current_test->name),   \
	 printf("" __VA_ARGS__), printf("\n"), fflush(stdout),                                     \
	 criterion_skip_test("" __VA_ARGS__))

#endif

#endif
