/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * CUDA's device language as C++17: what the .cu of kernels/cuda use of it, with the same overloads.
 * The scheduler is in cuda_emu.cpp; unit.cpp.in compiles one .cu with this header.
 *
 * Shared memory is `static` in a section of the unit's own, which is exchanged when another block
 * goes on; at a block's start it is filled with 0xa5.
 */
#ifndef SPR_TESTS_CUDA_EMU_H
#define SPR_TESTS_CUDA_EMU_H

#include <cstdint>
#include <cstring>
#include <utility>

namespace emu
{
struct triple {
	unsigned x, y, z;
};

/* Where the running thread stands. */
struct place {
	triple thread_at, block_at, block_size, grid_size;
};
extern place *here;

enum class op { sync, count, all, any, warp, shuffle, ballot, match };

/* A point at which another thread may go on. */
void point();
/* Waits for the whole block; the number of threads whose predicate held. */
unsigned barrier(op kind, bool predicate, int line);
/* Waits for the lanes of the mask; each gets the value of lane `from`, or the ballot. */
uint64_t meet(op kind, unsigned mask, uint64_t value, unsigned from, int line);
/* Somebody outside may look now: a store in the scope of the system. */
void tell_release(const uint32_t *p, uint32_t v);
unsigned lane();
void *dynamic_shared();
[[noreturn]] void fail(const char *what);

/* ---- kernels by name ---- */

struct kernel {
	const char *name;
	void (*call)(void (*function)(), void **params);
	void (*function)();
	const size_t *parameters;  /* their sizes, 0 last */
	char *shared, *shared_end; /* the unit's section */
	kernel *next;
};
void add(kernel *k);

template <class... A, size_t... I>
void call_with(void (*function)(A...), void **params, std::index_sequence<I...>)
{
	(void)params;
	function(*static_cast<std::remove_const_t<A> *>(params[I])...);
}

template <class F> struct caller;
template <class... A> struct caller<void(A...)> {
	static constexpr size_t parameters[] = {sizeof(A)..., 0};
	static void call(void (*function)(), void **params)
	{
		call_with(reinterpret_cast<void (*)(A...)>(function), params,
			  std::index_sequence_for<A...>());
	}
};

template <class F> struct registration {
	kernel k;
	registration(const char *name, F *function, char *shared, char *shared_end)
	    : k{name,
		caller<F>::call,
		reinterpret_cast<void (*)()>(function),
		caller<F>::parameters,
		shared,
		shared_end,
		nullptr}
	{
		add(&k);
	}
};

/* ---- values as 64 bits, for shuffles ---- */

template <class T> uint64_t pack(T v)
{
	uint64_t bits = 0;

	static_assert(sizeof v <= sizeof bits, "shuffles move up to 8 bytes");
	std::memcpy(&bits, &v, sizeof v);
	return bits;
}

template <class T> T unpack(uint64_t bits)
{
	T v;

	std::memcpy(&v, &bits, sizeof v);
	return v;
}
} /* namespace emu */

/* ---- qualifiers ---- */

#define EMU_TEXT_(x) #x
#define EMU_TEXT(x) EMU_TEXT_(x)
#define EMU_PASTE_(a, b) a##b
#define EMU_PASTE(a, b) EMU_PASTE_(a, b)

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("emu_shared_" EMU_TEXT(EMU_UNIT))))

extern "C" {
extern char EMU_PASTE(__start_emu_shared_, EMU_UNIT)[] __attribute__((weak, visibility("hidden")));
extern char EMU_PASTE(__stop_emu_shared_, EMU_UNIT)[] __attribute__((weak, visibility("hidden")));
}

#define SPRI_KERNEL(name)                                                                          \
	static emu::registration<decltype(spri_##name)> emu_kernel_##name(                         \
		"spri_" #name, spri_##name, EMU_PASTE(__start_emu_shared_, EMU_UNIT),              \
		EMU_PASTE(__stop_emu_shared_, EMU_UNIT))
#define SPRI_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emu::dynamic_shared())

/* ---- types ---- */

#define EMU_VECTOR2(name, type, bytes)                                                             \
	struct alignas(bytes) name {                                                               \
		type x, y;                                                                         \
	};                                                                                         \
	static inline name make_##name(type x, type y)                                             \
	{                                                                                          \
		return {x, y};                                                                     \
	}
#define EMU_VECTOR4(name, type, bytes)                                                             \
	struct alignas(bytes) name {                                                               \
		type x, y, z, w;                                                                   \
	};                                                                                         \
	static inline name make_##name(type x, type y, type z, type w)                             \
	{                                                                                          \
		return {x, y, z, w};                                                               \
	}
EMU_VECTOR2(float2, float, 8)
EMU_VECTOR2(uint2, unsigned, 8)
EMU_VECTOR2(double2, double, 16)
EMU_VECTOR2(ulonglong2, unsigned long long, 16)
EMU_VECTOR4(float4, float, 16)
EMU_VECTOR4(uint4, unsigned, 16)
EMU_VECTOR4(ushort4, unsigned short, 8)
#undef EMU_VECTOR2
#undef EMU_VECTOR4

#define threadIdx (emu::here->thread_at)
#define blockIdx (emu::here->block_at)
#define blockDim (emu::here->block_size)
#define gridDim (emu::here->grid_size)
#define warpSize 32

#include <cuda_emu_device.h>

#endif
