/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The heap. Every allocation of the library goes through here, so that a test can make
 * the n-th one fail (tests fail allocation n for n = 0, 1, 2, ... until a call succeeds).
 */
#ifndef SPRI_ALLOC_H
#define SPRI_ALLOC_H

#include <internal/compiler.h>

/*
 * Returns memory (given: spri_free) or NULL. spri_zalloc clears it. 0 bytes give a valid
 * pointer.
 */
void *spri_alloc(size_t bytes) SPRI_MUST;
void *spri_zalloc(size_t bytes) SPRI_MUST;
/* n × bytes, cleared; NULL too when the product overflows. */
void *spri_calloc(size_t n, size_t bytes) SPRI_MUST;
/* A copy of a string, or NULL. */
char *spri_strdup(const char *s) SPRI_MUST;
/* Accepts NULL. */
void spri_free(void *p);

/*
 * Whole, zeroed pages that cost no memory until touched, at least `bytes` long (given:
 * spri_free_pages with the same size). For landing memory and residuals. NULL on failure.
 */
void *spri_alloc_pages(size_t bytes) SPRI_MUST;
void spri_free_pages(void *p, size_t bytes);

/*
 * For tests, per thread: let n more allocations succeed, then fail the next one (once). n < 0:
 * never.
 */
void spri_heap_fail_after(long n);
/* For tests: allocations that are not freed yet, over all threads. */
long spri_heap_live(void);

/* Fills p with n random bytes from the kernel. Returns 0 or a negative errno. */
int spri_random_bytes(void *p, size_t n) SPRI_MUST;

#endif
