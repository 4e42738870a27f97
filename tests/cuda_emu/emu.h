/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The CPU emulator of CUDA kernels, for whoever launches them: the shim in the device's place
 * (shim.c) and the stand-in driver.
 *
 * Every thread of a block is a fiber, several blocks are in flight; who goes on at a barrier, a
 * shuffle, an atomic or an ordered load is drawn from the seed. What no order of threads excuses (a
 * barrier that not all reach, a mask that does not match, a deadlock) ends the process with
 * "cuda_emu: kernel, block, thread: what" on stderr and abort.
 *
 * Threads: any; one kernel runs at a time.
 */
#ifndef SPR_TESTS_EMU_H
#define SPR_TESTS_EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of a kernel by its full name ("spri_axpby"); −1: there is none. */
int spri_emu_find(const char *kernel);
/*
 * Runs it to its end: sizes in threads and blocks, `shared` bytes of dynamic shared memory, params
 * as cuLaunchKernel takes them.
 */
void spri_emu_run(int kernel, const unsigned grid[3], const unsigned block[3], size_t shared,
		  void **params);
/* The size of a kernel's i-th parameter; 0 past the last. */
size_t spri_emu_parameter(int kernel, unsigned i);
/* The order of all that runs from now on. */
void spri_emu_seed(uint64_t seed);
/*
 * Called at every store with release in the scope of the system (spri_store_release_system), when
 * it is done and before another thread goes on: what whoever polls may see at the earliest.
 * NULL: nobody.
 */
void spri_emu_on_release(void (*hook)(void *arg, const uint32_t *p, uint32_t v), void *arg);

#ifdef __cplusplus
}
#endif

#endif
