/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The plain runner. Happy path: constructors have put every test in the list; for each one the
 * runner forks, the child runs it and exits with 0, the runner prints a line; at the end the
 * counts.
 * Failures: an assertion prints where and what and ends the child with 1; a signal, another exit
 * status (a sanitizer's) or a passed time limit is a failed test and the next one runs. Without
 * fork an assertion jumps back to the runner; a crash or a passed time limit ends the program
 * with a failing status, after the counts in the second case.
 */
#include "plain.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PASSED, FAILED, SKIPPED, N_RESULTS };
enum { STATUS_SKIPPED = 77 };

#ifndef SPR_PLAIN_SLOWER
#define SPR_PLAIN_SLOWER 1 /* times as much time for each test, under a sanitizer */
#endif

static struct plain_test *tests, **tests_end = &tests;
static unsigned counts[N_RESULTS];
static const struct plain_test *current; /* the one that runs in this process */
static pthread_t test_thread;		 /* its thread */
static sigjmp_buf back;			 /* without fork: to the runner */
static bool no_fork;

void plain_register(struct plain_test *test)
{
	*tests_end = test;
	tests_end = &test->next;
}

/* Leaves the test that runs. */
static void leave(int result) __attribute__((noreturn));
static void leave(int result)
{
	fflush(stdout);
	fflush(stderr);
	if (no_fork && pthread_equal(pthread_self(), test_thread))
		siglongjmp(back, result + 1);
	_exit(result == SKIPPED ? STATUS_SKIPPED : 1);
}

void plain_fail(const char *file, int line, const char *condition, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s:%d: %s/%s: expected %s:", file, line, current->suite, current->name,
		condition);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	leave(FAILED);
}

void plain_skip(const char *format, ...)
{
	va_list args;

	printf("skip %s/%s:", current->suite, current->name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	leave(SKIPPED);
}

static void call(const struct plain_test *test)
{
	current = test;
	test_thread = pthread_self();
	if (test->options.init)
		test->options.init();
	test->body();
	if (test->options.fini)
		test->options.fini();
}

static double limit_of(const struct plain_test *test)
{
	return SPR_PLAIN_SLOWER * (test->options.timeout > 0 ? test->options.timeout : 60);
}

static void report(const struct plain_test *test, int result, const char *why)
{
	static const char *const names[N_RESULTS] = {"pass", "FAIL", "SKIP"};
	const char *about = test->options.description;

	counts[result]++;
	printf("%s %s/%s%s%s%s\n", names[result], test->suite, test->name, why, about ? " - " : "",
	       about ? about : "");
	fflush(stdout);
}

static void print_counts(void)
{
	printf("%u passed, %u failed, %u skipped\n", counts[PASSED], counts[FAILED],
	       counts[SKIPPED]);
	fflush(stdout);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Waits for the child until the limit, then kills its process group. Returns false when it had to.
 */
static bool reap(pid_t child, double limit, int *status)
{
	double end = seconds() + limit;
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	for (;;) {
		double left = end - seconds();
		struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
		pid_t got = waitpid(child, status, left > 0 ? WNOHANG : 0);

		if (got == child)
			return true;
		if (got < 0 && errno != EINTR)
			return false;
		if (left > 0)
			sigtimedwait(&chld, NULL, &t);
		if (end - seconds() <= 0) {
			kill(-child, SIGKILL);
			kill(child, SIGKILL);
			while (waitpid(child, status, 0) < 0 && errno == EINTR)
				;
			return false;
		}
	}
}

static void run_forked(const struct plain_test *test)
{
	char why[96] = "";
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child < 0) {
		snprintf(why, sizeof why, ": fork: %s", strerror(errno));
		report(test, FAILED, why);
		return;
	}
	if (child == 0) {
		sigset_t none;

		setpgid(0, 0);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		call(test);
		exit(0); /* not _exit: a leak checker works at exit */
	}
	setpgid(child, child);
	if (!reap(child, limit_of(test), &status)) {
		snprintf(why, sizeof why, ": took longer than %g s", limit_of(test));
		report(test, FAILED, why);
		return;
	}
	kill(-child, SIGKILL); /* what the test left running */
	if (WIFSIGNALED(status))
		snprintf(why, sizeof why, ": killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) > 1 && WEXITSTATUS(status) != STATUS_SKIPPED)
		snprintf(why, sizeof why, ": exit status %d", WEXITSTATUS(status));
	if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_SKIPPED)
		report(test, SKIPPED, "");
	else
		report(test, status == 0 ? PASSED : FAILED, why);
}

static void alarm_rings(int signal_number)
{
	(void)signal_number;
	report(current, FAILED, ": took too long; the tests after it did not run");
	print_counts();
	_exit(1);
}

static void run_here(const struct plain_test *test)
{
	int result;

	fflush(NULL);
	signal(SIGALRM, alarm_rings);
	alarm((unsigned)limit_of(test) + 1);
	result = sigsetjmp(back, 1);
	if (result == 0) {
		call(test);
		result = PASSED + 1;
	}
	alarm(0);
	report(test, result - 1, "");
}

/* filter: "SUITE/NAME", either may be "*"; without a slash, a suite. NULL: everything. */
static bool wanted(const struct plain_test *test, const char *filter)
{
	const char *slash = filter ? strchr(filter, '/') : NULL;
	size_t n_suite = filter ? (slash ? (size_t)(slash - filter) : strlen(filter)) : 0;
	bool suite, name;

	if (!filter)
		return true;
	suite = (n_suite == 1 && *filter == '*') ||
		(strlen(test->suite) == n_suite && strncmp(test->suite, filter, n_suite) == 0);
	name = !slash || !strcmp(slash + 1, "*") || !strcmp(slash + 1, test->name);
	return suite && name;
}

static int usage(FILE *to, const char *program, int status)
{
	fprintf(to, "usage: %s [--list] [--filter SUITE/NAME] [--no-fork]\n", program);
	return status;
}

int main(int argc, char **argv)
{
	const char *filter = NULL;
	bool list = false;
	sigset_t chld;

#ifdef SPR_PLAIN_NOFORK
	no_fork = true;
#endif
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--list"))
			list = true;
		else if (!strcmp(argv[i], "--no-fork"))
			no_fork = true;
		else if (!strcmp(argv[i], "--filter") && i + 1 < argc)
			filter = argv[++i];
		else if (!strcmp(argv[i], "--help"))
			return usage(stdout, argv[0], 0);
		else
			return usage(stderr, argv[0], 2);
	}
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	if (!no_fork)
		sigprocmask(SIG_BLOCK, &chld, NULL);
	for (const struct plain_test *test = tests; test; test = test->next) {
		if (!wanted(test, filter))
			continue;
		if (list)
			printf("%s/%s\n", test->suite, test->name);
		else if (test->options.disabled)
			report(test, SKIPPED, ": disabled");
		else if (no_fork)
			run_here(test);
		else
			run_forked(test);
	}
	if (list)
		return 0;
	print_counts();
	if (counts[FAILED] || counts[PASSED] + counts[SKIPPED] == 0)
		return 1;
	return counts[PASSED] ? 0 : STATUS_SKIPPED;
}
