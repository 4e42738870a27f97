/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The monotonic clock. */
#include <internal/clock.h>

#include <time.h>

uint64_t spri_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SPRI_NS_PER_S + (uint64_t)t.tv_nsec;
}
