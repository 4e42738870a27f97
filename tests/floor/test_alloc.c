/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The heap: contents, overflow, the countdown to a failure, the count of what lives. */
#include <check.h>
#include <internal/alloc.h>
#include <pthread.h>
#include <string.h>

Test(alloc, contents)
{
	char *zeroed = spri_zalloc(100), *copy = spri_strdup("spar"), *empty = spri_alloc(0);
	static const char zeros[100];

	cr_assert_arr_eq(zeroed, zeros, 100, "expected zeros");
	cr_assert_str_eq(copy, "spar");
	cr_assert_not_null(empty, "expected a pointer for 0 bytes");
	cr_assert_eq(spri_heap_live(), 3, "expected 3 live, got %ld", spri_heap_live());
	spri_free(zeroed);
	spri_free(copy);
	spri_free(empty);
	spri_free(NULL);
	cr_assert_eq(spri_heap_live(), 0, "expected none live, got %ld", spri_heap_live());
}

Test(alloc, overflow_gives_null)
{
	volatile size_t half =
		SIZE_MAX / 2; /* volatile: the compiler warns about what it can see */

	cr_assert_null(spri_calloc(half, 3), "expected NULL when the product overflows");
	cr_assert_eq(spri_heap_live(), 0, "expected a failure not to be counted");
}

Test(alloc, pages_are_zero_and_cost_nothing)
{
	size_t bytes = (size_t)64 << 30; /* more than the machine has, until it is touched */
	unsigned char *p = spri_alloc_pages(bytes);

	cr_assert_not_null(p, "expected 64 GiB of untouched pages");
	cr_assert_eq(p[0] + p[bytes / 2] + p[bytes - 1], 0, "expected zeros");
	p[bytes - 1] = 1;
	cr_assert_eq(spri_heap_live(), 1);
	spri_free_pages(p, bytes);
	spri_free_pages(NULL, 5);
	cr_assert_eq(spri_heap_live(), 0);
}

/* Each kind of allocation, by number. */
static void *take(int kind)
{
	switch (kind) {
	case 0:
		return spri_alloc(8);
	case 1:
		return spri_zalloc(8);
	case 2:
		return spri_calloc(2, 4);
	case 3:
		return spri_strdup("x");
	default:
		return spri_alloc_pages(8);
	}
}

static void give(int kind, void *p)
{
	if (kind == 4)
		spri_free_pages(p, 8);
	else
		spri_free(p);
}

Test(alloc, countdown_fails_once_at_its_place)
{
	for (int kind = 0; kind < 5; kind++)
		for (long n = 0; n < 4; n++) {
			spri_heap_fail_after(n);
			for (long i = 0; i < 8; i++) {
				void *p = take(kind);

				cr_assert_eq(p == NULL, i == n,
					     "kind %d, countdown %ld: expected %s at %ld", kind, n,
					     i == n ? "NULL" : "memory", i);
				give(kind, p);
			}
			spri_heap_fail_after(-1);
		}
	cr_assert_eq(spri_heap_live(), 0, "expected none live, got %ld", spri_heap_live());
}

static void *other_thread(void *arg)
{
	void *p = spri_alloc(1);

	*(bool *)arg = p != NULL;
	spri_free(p);
	return NULL;
}

Test(alloc, countdown_belongs_to_its_thread)
{
	pthread_t thread;
	bool worked = false;

	spri_heap_fail_after(0);
	cr_assert_eq(pthread_create(&thread, NULL, other_thread, &worked), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert(worked, "expected the other thread's allocation to succeed");
	cr_assert_null(spri_alloc(1), "expected this thread's to fail");
}

Test(alloc, random_bytes_fill_everything)
{
	unsigned char a[4096] = {0}, b[4096] = {0};
	size_t zeros = 0;

	cr_assert_eq(spri_random_bytes(a, sizeof a), 0);
	cr_assert_eq(spri_random_bytes(b, sizeof b), 0);
	cr_assert_arr_neq(a, b, sizeof a, "expected two draws to differ");
	for (size_t i = sizeof a - 256; i < sizeof a; i++)
		zeros += a[i] == 0;
	cr_assert_lt(zeros, 32u, "expected the end to be filled, too; %zu of 256 are 0", zeros);
	cr_assert_eq(spri_random_bytes(a, 0), 0);
}
