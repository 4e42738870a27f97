/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The heap behind alloc.h: libc's, with a counter for leaks and a countdown for failures. */
#include <internal/alloc.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

/* Allocations of this thread that still succeed; < 0: all. */
static _Thread_local long fail_after = -1;
static atomic_long live; /* allocations that are not freed */

static bool must_fail(void)
{
	if (spri_likely(fail_after < 0))
		return false;
	return fail_after-- == 0;
}

void *spri_alloc(size_t bytes)
{
	void *p;

	if (must_fail())
		return NULL;
	p = malloc(bytes ? bytes : 1);
	if (p)
		atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
	return p;
}

void *spri_zalloc(size_t bytes)
{
	return spri_calloc(1, bytes);
}

void *spri_calloc(size_t n, size_t bytes)
{
	void *p;

	if (must_fail())
		return NULL;
	p = calloc(n ? n : 1, bytes ? bytes : 1);
	if (p)
		atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
	return p;
}

char *spri_strdup(const char *s)
{
	size_t bytes = strlen(s) + 1;
	char *copy = spri_alloc(bytes);

	if (copy)
		memcpy(copy, s, bytes);
	return copy;
}

void spri_free(void *p)
{
	if (!p)
		return;
	atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
	free(p);
}

void *spri_alloc_pages(size_t bytes)
{
	void *p;

	if (must_fail())
		return NULL;
	p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
	return p;
}

void spri_free_pages(void *p, size_t bytes)
{
	if (!p)
		return;
	atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
	munmap(p, bytes ? bytes : 1);
}

void spri_heap_fail_after(long n)
{
	fail_after = n;
}

long spri_heap_live(void)
{
	return atomic_load_explicit(&live, memory_order_relaxed);
}

int spri_random_bytes(void *p, size_t n)
{
	uint8_t *at = p;

	while (n > 0) {
		ssize_t got = getrandom(at, n, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		at += got;
		n -= (size_t)got;
	}
	return 0;
}
