/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A kernel module for the guest, which keeps it alive under a fault of the emulator. (To satisfy
 * the kernel, this file may also be used under the GPL, version 2.)
 *
 * The kernel patches its own code (static keys): an INT3 goes over the first byte, then the rest is
 * written, then the first byte. QEMU's multi-threaded TCG can keep a translation of that INT3 which
 * it made between another CPU's invalidation and its last store. A CPU that runs it finds no
 * patching under way and dies with "Oops: int3".
 *
 * Path: such a breakpoint is seen first here; the byte is written over itself, which makes TCG drop
 * the translation, and the CPU goes again. Failure: a breakpoint that is real comes again and
 * again, and is then left to the kernel.
 */
#include <asm/processor-flags.h>
#include <linux/kdebug.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/ptrace.h>

#define INT3 0xcc
#define SAME_LIMIT 100000 /* times at one place, before it is taken for real */

static unsigned long hits; /* how often it helped */
module_param(hits, ulong, 0444);

static int on_die(struct notifier_block *block, unsigned long why, void *data)
{
	static unsigned long last, same;
	struct pt_regs *regs = ((struct die_args *)data)->regs;
	unsigned long cr0;
	u8 *at, byte, seen;

	if (why != DIE_INT3 || user_mode(regs))
		return NOTIFY_DONE;
	at = (u8 *)(regs->ip - 1);
	byte = READ_ONCE(*at);
	if (byte == INT3) {
		same = last == regs->ip ? same + 1 : 0;
		last = regs->ip;
		if (same > SAME_LIMIT)
			return NOTIFY_DONE;
	}
	asm volatile("mov %%cr0, %0" : "=r"(cr0) : : "memory");
	asm volatile("mov %0, %%cr0" : : "r"(cr0 & ~X86_CR0_WP) : "memory");
	seen = byte;
	asm volatile("lock; cmpxchgb %2, %1" : "+a"(seen), "+m"(*at) : "q"(byte) : "memory");
	asm volatile("mov %0, %%cr0" : : "r"(cr0) : "memory");
	hits++;
	regs->ip--;
	return NOTIFY_STOP;
}

static struct notifier_block block = {.notifier_call = on_die, .priority = INT_MAX};

static int __init tcgfix_init(void)
{
	return register_die_notifier(&block);
}

module_init(tcgfix_init);
MODULE_DESCRIPTION("survive stale INT3 translations under QEMU TCG");
MODULE_LICENSE("GPL and additional rights");
