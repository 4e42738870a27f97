/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the sanitizers ask a test program at its start; without a sanitizer nobody calls these. An
 * allocation that is too large must return NULL, as tests of overflow expect; undefined behaviour
 * must end the test. The names are the sanitizers'.
 */
#define ASKED __attribute__((visibility("default"), used))

ASKED const char *__asan_default_options(void);
ASKED const char *__tsan_default_options(void);
ASKED const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1:detect_leaks=1:strict_string_checks=1";
}

const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1:second_deadlock_stack=1";
}

const char *__ubsan_default_options(void)
{
	return "halt_on_error=1:print_stacktrace=1";
}
