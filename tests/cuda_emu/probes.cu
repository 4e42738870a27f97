/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Kernels that test the emulator: right ones, and the same with something taken out, which some
 * order of threads must show or which must be refused. For test_cuda_emu.c.
 */
#include <cuda.cuh>

#include "probes.h"

/* out[i] of a block = in[last - i], through shared memory. */
static __device__ void reverse(unsigned *out, const unsigned *in, bool barrier)
{
	__shared__ unsigned held[PROBE_THREADS];
	unsigned base = blockIdx.x * PROBE_THREADS;

	held[threadIdx.x] = in[base + threadIdx.x];
	if (barrier)
		__syncthreads();
	out[base + threadIdx.x] = held[PROBE_THREADS - 1 - threadIdx.x];
}

extern "C" __global__ void spri_probe_reverse(unsigned *out, const unsigned *in)
{
	reverse(out, in, true);
}
SPRI_KERNEL(probe_reverse);

extern "C" __global__ void spri_probe_reverse_no_barrier(unsigned *out, const unsigned *in)
{
	reverse(out, in, false);
}
SPRI_KERNEL(probe_reverse_no_barrier);

/* The sum of each warp, by halving in dynamic shared memory. */
static __device__ void halve(unsigned *out, const unsigned *in, bool barrier)
{
	SPRI_DYNAMIC_SHARED(unsigned, held);
	unsigned at = threadIdx.x;

	held[at] = in[blockIdx.x * blockDim.x + at];
	for (unsigned by = 16; by > 0; by /= 2) {
		unsigned other = 0;

		if (barrier)
			__syncwarp();
		if (at % 32 < by)
			other = held[at + by];
		if (barrier)
			__syncwarp();
		held[at] += other;
	}
	if (at % 32 == 0)
		out[(blockIdx.x * blockDim.x + at) / 32] = held[at];
}

extern "C" __global__ void spri_probe_halve(unsigned *out, const unsigned *in)
{
	halve(out, in, true);
}
SPRI_KERNEL(probe_halve);

extern "C" __global__ void spri_probe_halve_no_barrier(unsigned *out, const unsigned *in)
{
	halve(out, in, false);
}
SPRI_KERNEL(probe_halve_no_barrier);

/* The same sum by each shuffle, and what ballots and matches say of it. */
extern "C" __global__ void spri_probe_warp(unsigned *out, unsigned *says, const unsigned *in)
{
	unsigned at = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
	unsigned down = in[at], across = in[at], up = in[at], low;

	for (int by = 16; by > 0; by /= 2) {
		down += __shfl_down_sync(SPRI_ALL_LANES, down, by);
		across += __shfl_xor_sync(SPRI_ALL_LANES, across, by);
	}
	for (int by = 1; by < 32; by *= 2) {
		unsigned v = __shfl_up_sync(SPRI_ALL_LANES, up, by);

		if (lane >= (unsigned)by)
			up += v;
	}
	down = __shfl_sync(SPRI_ALL_LANES, down, 0);
	up = __shfl_sync(SPRI_ALL_LANES, up, 31);
	if (lane < 7)
		low = __ballot_sync(0x7f, in[at] & 1);
	else
		low = __popc(__match_any_sync(0xffffff80u, in[at] & 1));
	out[at] = down == across && across == up ? up : 0;
	says[at] = low;
}
SPRI_KERNEL(probe_warp);

/* Adds every input once, by a compare and swap; counts the odd ones of the block at a barrier. */
extern "C" __global__ void spri_probe_add(struct probe_sum *sum, const unsigned *in, uint64_t n,
					  struct probe_factor factor)
{
	uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	unsigned v = at < n ? in[at] * factor.by : 0;
	unsigned old = sum->swapped, seen;

	do {
		seen = old;
		old = atomicCAS(&sum->swapped, seen, seen + v);
	} while (old != seen);
	atomicAdd(&sum->added, v);
	spri_atomic_max(&sum->largest, v);
	seen = (unsigned)__syncthreads_count(v & 1);
	if (threadIdx.x == 0)
		atomicAdd(&sum->odd, seen);
	if (__syncthreads_or(v == factor.sought) && threadIdx.x == 0)
		atomicAdd(&sum->blocks_with_sought, 1u);
}
SPRI_KERNEL(probe_add);

/*
 * Each block waits for the one before it. With tickets whoever is waited for runs already; by the
 * number of the block it may never have started.
 */
static __device__ void in_turn(unsigned *turn, unsigned number)
{
	if (threadIdx.x == 0) {
		while (spri_load_acquire(turn) != number)
			;
		spri_store_release(turn, number + 1);
	}
	__syncthreads();
}

extern "C" __global__ void spri_probe_tickets(unsigned *turn, unsigned *ticket)
{
	__shared__ unsigned number;

	if (threadIdx.x == 0)
		number = atomicAdd(ticket, 1u);
	__syncthreads();
	in_turn(turn, number);
}
SPRI_KERNEL(probe_tickets);

extern "C" __global__ void spri_probe_no_tickets(unsigned *turn)
{
	in_turn(turn, blockIdx.x);
}
SPRI_KERNEL(probe_no_tickets);

/* What must be refused, one after the other. */
extern "C" __global__ void spri_probe_wrong(unsigned which)
{
	unsigned at = threadIdx.x;

	if (which == PROBE_BARRIER_LEFT_OUT && at != 5)
		__syncthreads();
	if (which == PROBE_TWO_BARRIERS && at == 5)
		__syncthreads();
	else if (which == PROBE_TWO_BARRIERS)
		__syncthreads();
	if (which == PROBE_LANE_ENDED && at != 5)
		__shfl_sync(SPRI_ALL_LANES, at, 0);
	if (which == PROBE_MASKS_DIFFER)
		__ballot_sync(at == 5 ? 0xfffffffeu : SPRI_ALL_LANES, 1);
	if (which == PROBE_LANE_OUTSIDE && at % 32 < 16)
		__shfl_sync(0xffffu, at, 20);
	if (which == PROBE_DEADLOCK && at == 0)
		__syncwarp();
	else if (which == PROBE_DEADLOCK)
		__syncthreads();
}
SPRI_KERNEL(probe_wrong);
