/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The main function of Criterion programs: Criterion's own, with a time limit for each test, one
 * test at a time, an exit status of 77 when all were skipped, and counts in a fixed form.
 */
#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <criterion/options.h>
#include <stdio.h>

/* Both are written by the hooks, in the parent process. */
static struct criterion_global_stats totals; /* after the last test */
static size_t skips;			     /* of tests that began */

ReportHook(POST_TEST)(struct criterion_test_stats *stats)
{
	skips += stats->test_status == CR_STATUS_SKIPPED;
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
	totals = *stats;
	/* Criterion counts what --filter leaves out as skipped. */
	if (criterion_options.pattern)
		totals.tests_skipped = skips;
}

/* Visible, because Criterion looks this symbol up to start its worker processes. */
__attribute__((visibility("default"))) int main(int argc, char **argv)
{
	struct criterion_test_set *tests = criterion_initialize();
	int r = 0;

	criterion_options.timeout = 60;
	criterion_options.jobs = 1;
	if (criterion_handle_args(argc, argv, true)) {
		/* Criterion counts a crashed test as a failed one, too. */
		r = !criterion_run_all_tests(tests);
		printf("%zu passed, %zu failed, %zu skipped\n", totals.tests_passed,
		       totals.tests_failed, totals.tests_skipped);
		if (!totals.tests_passed && !totals.tests_skipped)
			r = 1; /* no test at all must not look like success */
		if (!r && totals.tests_skipped > 0 && totals.tests_passed == 0)
			r = 77;
	}
	criterion_finalize(tests);
	return r;
}
