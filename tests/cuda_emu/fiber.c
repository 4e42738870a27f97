/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Fibers: see fiber.h. The address sanitizer needs the bounds of the stack that is changed to; it
 * tells those of the thread's own stack when the first fiber starts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <internal/compiler.h>

#include "fiber.h"

#if SPRI_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if SPRI_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct emu_fiber {
	void *stack; /* mapped; NULL: the thread's own */
	size_t bytes;
	void (*entry)(void);
	struct emu_fiber *from; /* who changed to this one last */
	void *asan;		/* its fake stack, while it does not run */
	const void *bottom;	/* of the stack, as the address sanitizer wants it */
	void *tsan;
#if defined(__x86_64__)
	void *sp;
#else
	ucontext_t context;
#endif
};

/* On the new stack, at every arrival: what the sanitizers still have to know. */
static void arrived(struct emu_fiber *fiber)
{
#if SPRI_ASAN
	const void *bottom;
	size_t bytes;

	__sanitizer_finish_switch_fiber(fiber->asan, &bottom, &bytes);
	if (!fiber->from->stack) {
		fiber->from->bottom = bottom;
		fiber->from->bytes = bytes;
	}
#else
	(void)fiber;
#endif
}

static void leaving(struct emu_fiber *from SPRI_UNUSED, struct emu_fiber *to SPRI_UNUSED)
{
#if SPRI_ASAN
	__sanitizer_start_switch_fiber(&from->asan, to->bottom, to->bytes);
#endif
#if SPRI_TSAN
	__tsan_switch_to_fiber(to->tsan, 0);
#endif
}

static struct emu_fiber *starting; /* the fiber that is changed to for the first time */

static void start(void)
{
	struct emu_fiber *self = starting;

	arrived(self);
	self->entry();
	abort(); /* entry never returns */
}

#if defined(__x86_64__)

/* Pushes what a function must keep, exchanges the stacks, pops. */
void emu_fiber_swap(void **from, void *to);
__asm__(".text\n"
	".type emu_fiber_swap, @function\n"
	"emu_fiber_swap:\n"
	"	endbr64\n"
	"	push %rbp\n"
	"	push %rbx\n"
	"	push %r12\n"
	"	push %r13\n"
	"	push %r14\n"
	"	push %r15\n"
	"	mov %rsp, (%rdi)\n"
	"	mov %rsi, %rsp\n"
	"	pop %r15\n"
	"	pop %r14\n"
	"	pop %r13\n"
	"	pop %r12\n"
	"	pop %rbx\n"
	"	pop %rbp\n"
	"	ret\n"
	".size emu_fiber_swap, . - emu_fiber_swap\n");

static void prepare(struct emu_fiber *fiber)
{
	void **top = (void **)((char *)fiber->stack + fiber->bytes);

	/* start is entered by ret as by a call: 8 bytes off 16, with no return address */
	top[-2] = NULL;
	top[-3] = NULL;
	*(void (**)(void)) & top[-4] = start;
	fiber->sp = top - 10; /* and six registers */
}

static void swap(struct emu_fiber *from, struct emu_fiber *to)
{
	emu_fiber_swap(&from->sp, to->sp);
}

#else

static void prepare(struct emu_fiber *fiber)
{
	getcontext(&fiber->context);
	fiber->context.uc_stack.ss_sp = fiber->stack;
	fiber->context.uc_stack.ss_size = fiber->bytes;
	makecontext(&fiber->context, start, 0);
}

static void swap(struct emu_fiber *from, struct emu_fiber *to)
{
	swapcontext(&from->context, &to->context);
}

#endif

struct emu_fiber *emu_fiber_of_thread(void)
{
	struct emu_fiber *fiber = calloc(1, sizeof *fiber);

#if SPRI_TSAN
	if (fiber)
		fiber->tsan = __tsan_get_current_fiber();
#endif
	return fiber;
}

struct emu_fiber *emu_fiber_create(size_t stack_bytes, void (*entry)(void))
{
	struct emu_fiber *fiber = emu_fiber_of_thread();
	void *stack = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!fiber || stack == MAP_FAILED) {
		if (stack != MAP_FAILED)
			munmap(stack, stack_bytes);
		free(fiber);
		return NULL;
	}
	fiber->stack = stack;
	fiber->bytes = stack_bytes;
	fiber->bottom = stack;
	fiber->entry = entry;
	fiber->from = fiber;
#if SPRI_TSAN
	fiber->tsan = __tsan_create_fiber(0);
#endif
	prepare(fiber);
	return fiber;
}

void emu_fiber_destroy(struct emu_fiber *fiber)
{
	if (!fiber)
		return;
	if (fiber->stack) {
#if SPRI_TSAN
		__tsan_destroy_fiber(fiber->tsan);
#endif
		munmap(fiber->stack, fiber->bytes);
	}
	free(fiber);
}

void emu_fiber_change(struct emu_fiber *from, struct emu_fiber *to)
{
	to->from = from;
	starting = to;
	leaving(from, to);
	swap(from, to);
	arrived(from);
}
