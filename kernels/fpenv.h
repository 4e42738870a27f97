/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The floating-point environment of every kernel: round to nearest, denormals kept, no traps.
 * Entering costs one read of the control register when the caller has it so already, which is the
 * rule; else it is set and put back at the end. The barriers keep loads, and with them the
 * arithmetic, between enter and leave.
 *
 * And the fence behind stores that went past the caches.
 */
#ifndef SPRI_FPENV_H
#define SPRI_FPENV_H

#include <internal/compiler.h>

#if defined(__x86_64__)

#include <xmmintrin.h>

#define SPRI_MXCSR_RIGHT 0x1f80u /* traps masked, nearest, no FTZ, no DAZ */
#define SPRI_MXCSR_STICKY 0x3fu	 /* the exception flags, which are none of our business */

struct spri_fpenv {
	unsigned control; /* what the caller had */
};

static inline bool spri_fp_is_right(struct spri_fpenv env)
{
	return (env.control & ~SPRI_MXCSR_STICKY) == SPRI_MXCSR_RIGHT;
}

static inline struct spri_fpenv spri_fp_enter(void)
{
	struct spri_fpenv env = {.control = _mm_getcsr()};

	if (spri_unlikely(!spri_fp_is_right(env)))
		_mm_setcsr(SPRI_MXCSR_RIGHT);
	__asm__ volatile("" ::: "memory");
	return env;
}

static inline void spri_fp_leave(struct spri_fpenv env)
{
	__asm__ volatile("" ::: "memory");
	if (spri_unlikely(!spri_fp_is_right(env)))
		_mm_setcsr(env.control);
}

/* Whoever sees a store behind it sees the streaming stores before it. */
static inline void spri_stream_fence(void)
{
	_mm_sfence();
}

#else

#include <fenv.h>

struct spri_fpenv {
	fenv_t saved;
};

static inline struct spri_fpenv spri_fp_enter(void)
{
	struct spri_fpenv env;

	fegetenv(&env.saved);
	fesetenv(FE_DFL_ENV);
	__asm__ volatile("" ::: "memory");
	return env;
}

static inline void spri_fp_leave(struct spri_fpenv env)
{
	__asm__ volatile("" ::: "memory");
	fesetenv(&env.saved);
}

static inline void spri_stream_fence(void) {}

#endif
#endif
