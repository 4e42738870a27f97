/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Between the operations of gpu.h (the other .c of this directory, which know what to launch) and
 * the device (device.c, which knows the driver). Tests put the emulator of tests/cuda_emu in the
 * device's place.
 */
#ifndef SPRI_LAUNCH_H
#define SPRI_LAUNCH_H

#include <gpu.h>

/*
 * Every kernel: an extern "C" __global__ function spri_<name>; no name that kernel.h has, too. How
 * one is written: cuda.cuh.
 */
#define SPRI_GPU_VECTOR_KERNELS(X) X(axpby) X(scale) X(add) X(drop)
#define SPRI_GPU_SCATTER_KERNELS(X) X(scatter) X(gather) X(adopt)
#define SPRI_GPU_NORM_KERNELS(X) X(norm_tiles) X(norm_total)
#define SPRI_GPU_MASK_KERNELS(X) X(mask_set) X(mask_count) X(mask_scan) X(mask_write)
#define SPRI_GPU_HALF_KERNELS(X) X(narrow16) X(widen16)
#define SPRI_GPU_IMPORTANCE_KERNELS(X) X(weigh) X(weigh_totals) X(weigh_finish)
#define SPRI_GPU_MERGE_KERNELS(X) X(unite) X(cut_digit) X(cut_count) X(cut_write)
#define SPRI_GPU_SELECT_KERNELS(X) X(select_scan) X(select_digit) X(select_count) X(select_write)
#define SPRI_GPU_KERNELS(X)                                                                        \
	SPRI_GPU_SELECT_KERNELS(X)                                                                 \
	SPRI_GPU_VECTOR_KERNELS(X)                                                                 \
	SPRI_GPU_SCATTER_KERNELS(X)                                                                \
	SPRI_GPU_NORM_KERNELS(X)                                                                   \
	SPRI_GPU_MASK_KERNELS(X)                                                                   \
	SPRI_GPU_HALF_KERNELS(X)                                                                   \
	SPRI_GPU_IMPORTANCE_KERNELS(X)                                                             \
	SPRI_GPU_MERGE_KERNELS(X)

#define SPRI_GPU_KERNEL_ENUM(name) SPRI_GPU_KERNEL_##name,
enum spri_gpu_kernel { SPRI_GPU_KERNELS(SPRI_GPU_KERNEL_ENUM) SPRI_GPU_KERNEL_COUNT };
#undef SPRI_GPU_KERNEL_ENUM

/*
 * The fat binaries that nvcc made, one per .cu, NULL last; each kernel is in one of them. Empty in
 * builds without nvcc.
 */
extern const unsigned char *const spri_gpu_images[];

/*
 * Queues a kernel: `blocks` × `threads`, `shared` bytes of dynamic shared memory; params points to
 * its arguments. Returns 0 or SPR_EDEVICE.
 */
int spri_gpu_launch(struct spri_gpu_stream *stream, enum spri_gpu_kernel kernel, uint32_t blocks,
		    uint32_t threads, uint32_t shared, void **params) SPRI_MUST;
/*
 * Scratch memory of the stream, 256-byte aligned: the same memory at every call, larger when more
 * is asked for (then its contents are lost, and work that uses the old is waited for). *out is
 * (device). Returns 0, -ENOMEM, or SPR_EDEVICE when that work failed.
 */
int spri_gpu_scratch(struct spri_gpu_stream *stream, size_t bytes, void **out) SPRI_MUST;
/* Multiprocessors of the stream's device. */
uint32_t spri_gpu_processors(const struct spri_gpu_stream *stream);

#endif
