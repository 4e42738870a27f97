/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Tests with known ends, for check_runner: most of them fail, and are meant to. */
#include <check.h>
#include <signal.h>
#include <unistd.h>

Test(sample, pass)
{
	cr_assert(1);
	cr_assert(1, "never said %d", 1);
	cr_assert_eq(1, 1);
	cr_assert_neq(1, 2);
	cr_assert_lt(1, 2);
	cr_assert_leq(2, 2);
	cr_assert_gt(2, 1);
	cr_assert_geq(2, 2);
	cr_assert_str_eq("a", "a");
	cr_assert_str_neq("a", "b");
	cr_assert_arr_eq("abc", "abd", 2);
	cr_assert_arr_neq("abc", "abd", 3);
	cr_assert_null(NULL);
	cr_assert_not_null("");
	cr_assert_float_eq(1.0, 1.25, 0.5);
}

#define FAILS(name, assertion)                                                                     \
	Test(sample, fail_##name)                                                                  \
	{                                                                                          \
		assertion;                                                                         \
	}

FAILS(assert, cr_assert(0, "seven is %d", 7))
FAILS(eq, cr_assert_eq(1, 2, "seven is %d", 7))
FAILS(neq, cr_assert_neq(1, 1, "seven is %d", 7))
FAILS(lt, cr_assert_lt(2, 2, "seven is %d", 7))
FAILS(leq, cr_assert_leq(3, 2, "seven is %d", 7))
FAILS(gt, cr_assert_gt(2, 2, "seven is %d", 7))
FAILS(geq, cr_assert_geq(1, 2, "seven is %d", 7))
FAILS(str_eq, cr_assert_str_eq("a", "b", "seven is %d", 7))
FAILS(str_neq, cr_assert_str_neq("a", "a", "seven is %d", 7))
FAILS(arr_eq, cr_assert_arr_eq("abc", "abd", 3, "seven is %d", 7))
FAILS(arr_neq, cr_assert_arr_neq("abc", "abd", 2, "seven is %d", 7))
FAILS(null, cr_assert_null("", "seven is %d", 7))
FAILS(not_null, cr_assert_not_null(NULL, "seven is %d", 7))
FAILS(float_eq, cr_assert_float_eq(1.0, 2.0, 0.5, "seven is %d", 7))
FAILS(fail, cr_assert_fail("seven is %d", 7))

Test(sample, crash)
{
	raise(SIGKILL);
}

Test(sample, slow, .timeout = 1)
{
	sleep(20);
}

static void skip_from_afar(void)
{
	cr_skip("no %s here", "luck");
}

Test(sample, skip)
{
	skip_from_afar();
	cr_assert_fail("expected the skip to leave the test");
}

Test(sample, disabled, .disabled = true)
{
	cr_assert_fail("expected this not to run");
}
