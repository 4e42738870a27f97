/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Part of cuda_emu.h: CUDA's device functions. The names are CUDA's. */
#ifndef SPR_TESTS_CUDA_EMU_DEVICE_H
#define SPR_TESTS_CUDA_EMU_DEVICE_H

#include <cmath>

/* ---- barriers and fences ---- */

static inline void __syncthreads(int line = __builtin_LINE())
{
	emu::barrier(emu::op::sync, false, line);
}

static inline int __syncthreads_count(int predicate, int line = __builtin_LINE())
{
	return (int)emu::barrier(emu::op::count, predicate, line);
}

static inline int __syncthreads_or(int predicate, int line = __builtin_LINE())
{
	return emu::barrier(emu::op::any, predicate, line) > 0;
}

static inline int __syncthreads_and(int predicate, int line = __builtin_LINE())
{
	return emu::barrier(emu::op::all, !predicate, line) == 0;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
	emu::meet(emu::op::warp, mask, 0, emu::lane(), line);
}

static inline void __threadfence()
{
	emu::point();
}

static inline void __threadfence_block()
{
	emu::point();
}

static inline void __threadfence_system()
{
	emu::point();
}

static inline void __nanosleep(unsigned)
{
	emu::point();
}

[[noreturn]] static inline void __trap()
{
	emu::fail("__trap()");
}

/* ---- warps ---- */

static inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return (unsigned)emu::meet(emu::op::ballot, mask, predicate != 0, emu::lane(), line);
}

static inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return __ballot_sync(mask, predicate, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return __ballot_sync(mask, predicate, line) == mask;
}

template <class T> unsigned __match_any_sync(unsigned mask, T v, int line = __builtin_LINE())
{
	return (unsigned)emu::meet(emu::op::match, mask, emu::pack(v), emu::lane(), line);
}

template <class T>
T __shfl_sync(unsigned mask, T v, int from, int width = 32, int line = __builtin_LINE())
{
	unsigned base = emu::lane() & ~(unsigned)(width - 1);
	unsigned lane = base + ((unsigned)from & (unsigned)(width - 1));

	return emu::unpack<T>(emu::meet(emu::op::shuffle, mask, emu::pack(v), lane, line));
}

template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE())
{
	unsigned lane = emu::lane();

	if ((lane & (unsigned)(width - 1)) >= by)
		lane -= by;
	return emu::unpack<T>(emu::meet(emu::op::shuffle, mask, emu::pack(v), lane, line));
}

template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, int line = __builtin_LINE())
{
	unsigned lane = emu::lane();

	if ((lane & (unsigned)(width - 1)) + by < (unsigned)width)
		lane += by;
	return emu::unpack<T>(emu::meet(emu::op::shuffle, mask, emu::pack(v), lane, line));
}

template <class T>
T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32, int line = __builtin_LINE())
{
	unsigned lane = emu::lane() ^ (unsigned)by;

	if (lane / (unsigned)width > emu::lane() / (unsigned)width)
		lane = emu::lane();
	return emu::unpack<T>(emu::meet(emu::op::shuffle, mask, emu::pack(v), lane, line));
}

/* ---- atomics; each overload that CUDA has ---- */

#define EMU_ATOMIC(name, type, value)                                                              \
	static inline type name(type *p, type v)                                                   \
	{                                                                                          \
		emu::point();                                                                      \
		type old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                   \
		__atomic_store_n(p, (value), __ATOMIC_SEQ_CST);                                    \
		return old;                                                                        \
	}
#define EMU_ATOMICS(type)                                                                          \
	EMU_ATOMIC(atomicAdd, type, (type)(old + v))                                               \
	EMU_ATOMIC(atomicMin, type, old < v ? old : v)                                             \
	EMU_ATOMIC(atomicMax, type, old > v ? old : v)                                             \
	EMU_ATOMIC(atomicAnd, type, old &v)                                                        \
	EMU_ATOMIC(atomicOr, type, old | v)                                                        \
	EMU_ATOMIC(atomicXor, type, old ^ v)                                                       \
	EMU_ATOMIC(atomicExch, type, v)                                                            \
	static inline type atomicCAS(type *p, type expected, type v)                               \
	{                                                                                          \
		emu::point();                                                                      \
		__atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST,              \
					    __ATOMIC_SEQ_CST);                                     \
		return expected;                                                                   \
	}
EMU_ATOMICS(int)
EMU_ATOMICS(unsigned)
EMU_ATOMICS(unsigned long long)
EMU_ATOMIC(atomicSub, int, old - v)
EMU_ATOMIC(atomicSub, unsigned, old - v)
#undef EMU_ATOMICS
#undef EMU_ATOMIC

/* ---- loads and stores with order (cuda.cuh) ---- */

template <class T> T emu_load(const T *p)
{
	emu::point();
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

template <class T> void emu_store(T *p, T v)
{
	emu::point();
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static inline uint32_t spri_load_acquire(const uint32_t *p)
{
	return emu_load(p);
}

static inline uint64_t spri_load_acquire(const uint64_t *p)
{
	return emu_load(p);
}

static inline void spri_store_release(uint32_t *p, uint32_t v)
{
	emu_store(p, v);
}

static inline void spri_store_release(uint64_t *p, uint64_t v)
{
	emu_store(p, v);
}

static inline void spri_store_release_system(uint32_t *p, uint32_t v)
{
	emu_store(p, v);
	emu::tell_release(p, v);
	emu::point();
}

/* ---- loads and stores with cache hints ---- */

#define EMU_LOAD(name)                                                                             \
	template <class T> T name(const T *p)                                                      \
	{                                                                                          \
		return *p;                                                                         \
	}
#define EMU_STORE(name)                                                                            \
	template <class T> void name(T *p, T v)                                                    \
	{                                                                                          \
		*p = v;                                                                            \
	}
EMU_LOAD(__ldg)
EMU_LOAD(__ldcs)
EMU_LOAD(__ldcg)
EMU_LOAD(__ldca)
EMU_STORE(__stcs)
EMU_STORE(__stcg)
EMU_STORE(__stwt)
#undef EMU_LOAD
#undef EMU_STORE

/* ---- bits and arithmetic ---- */

static inline int __popc(unsigned v)
{
	return __builtin_popcount(v);
}

static inline int __popcll(unsigned long long v)
{
	return __builtin_popcountll(v);
}

static inline int __ffs(int v)
{
	return __builtin_ffs(v);
}

static inline int __ffsll(long long v)
{
	return __builtin_ffsll(v);
}

static inline int __clz(int v)
{
	return v ? __builtin_clz((unsigned)v) : 32;
}

static inline int __clzll(long long v)
{
	return v ? __builtin_clzll((unsigned long long)v) : 64;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)((uint64_t)a * b >> 32);
}

#define EMU_BITS(name, to, from)                                                                   \
	static inline to name(from v)                                                              \
	{                                                                                          \
		return emu::unpack<to>(emu::pack(v));                                              \
	}
EMU_BITS(__float_as_uint, unsigned, float)
EMU_BITS(__float_as_int, int, float)
EMU_BITS(__uint_as_float, float, unsigned)
EMU_BITS(__int_as_float, float, int)
EMU_BITS(__double_as_longlong, long long, double)
EMU_BITS(__longlong_as_double, double, long long)
#undef EMU_BITS

#define EMU_ROUNDED(name, type, operation)                                                         \
	static inline type name(type a, type b)                                                    \
	{                                                                                          \
		return a operation b;                                                              \
	}
EMU_ROUNDED(__fadd_rn, float, +)
EMU_ROUNDED(__fsub_rn, float, -)
EMU_ROUNDED(__fmul_rn, float, *)
EMU_ROUNDED(__fdiv_rn, float, /)
EMU_ROUNDED(__dadd_rn, double, +)
EMU_ROUNDED(__dsub_rn, double, -)
EMU_ROUNDED(__dmul_rn, double, *)
EMU_ROUNDED(__ddiv_rn, double, /)
#undef EMU_ROUNDED

template <class T> T min(T a, T b)
{
	return b < a ? b : a;
}

template <class T> T max(T a, T b)
{
	return a < b ? b : a;
}

#endif
