/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Time, in nanoseconds. Deadlines are absolute values of the clock of the port in use. */
#ifndef SPRI_CLOCK_H
#define SPRI_CLOCK_H

#include <internal/compiler.h>

#define SPRI_NS_PER_S 1000000000ull
#define SPRI_NS_PER_MS 1000000ull
#define SPRI_NEVER                                                                                 \
	UINT64_MAX /* a deadline that is not reached; only for "until something else happens" */

/* The monotonic clock of this machine. Virtual time is asked of the transport (now). */
uint64_t spri_now_ns(void);

#endif
