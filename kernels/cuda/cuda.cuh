/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What every .cu includes first: CUDA's own language under nvcc, the emulator of tests/cuda_emu
 * under a C++ compiler, and what both need names for.
 *
 * Rules that let one text serve both:
 *   - a kernel is `extern "C" __global__ void spri_<name>(...)`, its name is in SPRI_GPU_KERNELS of
 *     launch.h, and `SPRI_KERNEL(name);` stands behind it
 *   - static shared memory as in CUDA, in functions that are no templates; dynamic shared memory by
 *     SPRI_DYNAMIC_SHARED
 *   - memory that other threads write while this one reads goes through the atomics or the loads
 *     and stores below: they are where the emulator changes to another thread, and what makes the
 *     order right on a GPU. A loop that waits on a plain volatile never ends in the emulator.
 *   - every lane that a mask names is there: no shuffle or barrier after some threads returned
 *   - additions and products that must round as in C are plain operators: --fmad=false
 *   - CUDA's atomics know unsigned long long, not uint64_t: spri_atomic_add and its kind below
 *   - 16-byte types (float4, uint4) need 16-byte alignment, which the callers of this library do
 *     not promise
 */
#ifndef SPRI_CUDA_CUH
#define SPRI_CUDA_CUH

#include <stdint.h>

#ifndef __CUDACC__
#include <cuda_emu.h>
#else

#define SPRI_KERNEL(name) static_assert(true, #name)
#define SPRI_DYNAMIC_SHARED(type, name) extern __shared__ type name[]

/* Loads and stores with order, in the scope of the device and of the whole system. */
static __device__ __forceinline__ uint32_t spri_load_acquire(const uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ uint64_t spri_load_acquire(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ void spri_store_release(uint32_t *p, uint32_t v)
{
	asm volatile("st.release.gpu.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

static __device__ __forceinline__ void spri_store_release(uint64_t *p, uint64_t v)
{
	asm volatile("st.release.gpu.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

static __device__ __forceinline__ void spri_store_release_system(uint32_t *p, uint32_t v)
{
	asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

#endif

static __device__ __forceinline__ uint64_t spri_atomic_add(uint64_t *p, uint64_t v)
{
	return atomicAdd((unsigned long long *)p, (unsigned long long)v);
}

static __device__ __forceinline__ uint64_t spri_atomic_min(uint64_t *p, uint64_t v)
{
	return atomicMin((unsigned long long *)p, (unsigned long long)v);
}

static __device__ __forceinline__ uint64_t spri_atomic_max(uint64_t *p, uint64_t v)
{
	return atomicMax((unsigned long long *)p, (unsigned long long)v);
}

/* ---- one element, as in scalar.h ---- */

#define SPRI_ALL_LANES 0xffffffffu
#define SPRI_INF_KEY 0x7f800000u /* keys from here on are not finite */

/* The key of the total order: |v| by its bits. */
static __device__ __forceinline__ uint32_t spri_key(float v)
{
	return __float_as_uint(v) & 0x7fffffffu;
}

static __device__ __forceinline__ bool spri_nonfinite(float v)
{
	return spri_key(v) >= SPRI_INF_KEY;
}

/* v, with every NaN as the one NaN. */
static __device__ __forceinline__ float spri_canonical(float v)
{
	return v != v ? __uint_as_float(0x7fc00000u) : v;
}

static __device__ __forceinline__ float spri_finite_or_zero(float v)
{
	return spri_nonfinite(v) ? 0.0f : v;
}

#endif
