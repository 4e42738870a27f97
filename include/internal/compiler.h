/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What this project asks of the compiler, under names of its own. The only header
 * (with kernels/cpu.c) in which conditional compilation is at home.
 */
#ifndef SPRI_COMPILER_H
#define SPRI_COMPILER_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPRI_MUST __attribute__((warn_unused_result))
#define SPRI_PRINTF(at, first) __attribute__((format(printf, at, first)))
#define SPRI_UNUSED __attribute__((unused))
#define SPRI_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define SPRI_TLS __attribute__((tls_model("initial-exec")))

#define spri_likely(x) __builtin_expect(!!(x), 1)
#define spri_unlikely(x) __builtin_expect(!!(x), 0)
#define spri_countof(array) (sizeof(array) / sizeof((array)[0]))
#define spri_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Before functions that kernels on GPUs call, too. */
#ifdef __CUDACC__
#define SPRI_ON_DEVICE __host__ __device__
#else
#define SPRI_ON_DEVICE
#endif

/* 1 when built under ThreadSanitizer: fibers must then be announced to it (runtime/sim.c). */
#if defined(__SANITIZE_THREAD__)
#define SPRI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SPRI_TSAN 1
#endif
#endif
#ifndef SPRI_TSAN
#define SPRI_TSAN 0
#endif

/* 1 when built under AddressSanitizer, which wants to know of other stacks (tests/cuda_emu). */
#if defined(__SANITIZE_ADDRESS__)
#define SPRI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPRI_ASAN 1
#endif
#endif
#ifndef SPRI_ASAN
#define SPRI_ASAN 0
#endif

#endif
