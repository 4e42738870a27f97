/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Stacks that one thread changes between. Sanitizers are told of every change. fiber.c saves the
 * registers by hand on x86-64, since kernels change at every atomic and ucontext costs two system
 * calls; elsewhere it uses ucontext.
 */
#ifndef SPR_TESTS_FIBER_H
#define SPR_TESTS_FIBER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_fiber;

/* The thread's own stack as a fiber. NULL: no memory, here and below. */
struct emu_fiber *emu_fiber_of_thread(void);
/* Starts in entry, which never returns, at the first change to it. */
struct emu_fiber *emu_fiber_create(size_t stack_bytes, void (*entry)(void));
/* Another one runs; accepts NULL. */
void emu_fiber_destroy(struct emu_fiber *fiber);
/* From the running fiber to another; returns when something changes back. */
void emu_fiber_change(struct emu_fiber *from, struct emu_fiber *to);

#ifdef __cplusplus
}
#endif

#endif
