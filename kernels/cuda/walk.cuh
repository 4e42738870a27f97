/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * How the threads of a grid share elements: who am I, 16-byte accesses where a pointer allows
 * them, and prefix sums for outputs that keep the order.
 */
#ifndef SPRI_WALK_CUH
#define SPRI_WALK_CUH

#include <cuda/numeric.cuh>

#define SPRI_WARP 32
#define SPRI_ALL_LANES 0xffffffffu

static __device__ __forceinline__ uint64_t spri_thread(void)
{
	return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint64_t spri_threads(void)
{
	return (uint64_t)gridDim.x * blockDim.x;
}

/* ---- four floats ---- */

struct spri_four {
	float v[4];
};

/* At any multiple of 4 bytes; one access when it is a multiple of 16. */
static __device__ __forceinline__ struct spri_four spri_load4(const float *v)
{
	struct spri_four out = {{0, 0, 0, 0}};

	if (((uintptr_t)v & 15) == 0) {
		float4 all = *(const float4 *)v;

		out.v[0] = all.x;
		out.v[1] = all.y;
		out.v[2] = all.z;
		out.v[3] = all.w;
	} else {
		for (unsigned j = 0; j < 4; j++)
			out.v[j] = v[j];
	}
	return out;
}

static __device__ __forceinline__ void spri_store4(float *v, struct spri_four in)
{
	if (((uintptr_t)v & 15) == 0) {
		*(float4 *)v = make_float4(in.v[0], in.v[1], in.v[2], in.v[3]);
	} else {
		for (unsigned j = 0; j < 4; j++)
			v[j] = in.v[j];
	}
}

/*
 * How n elements of `bytes` each are shared: quads [first + 4 · q, + 4) that begin where `anchor`
 * allows one access, and at most six others, before and behind them.
 */
struct spri_quads {
	uint64_t first, count;
	uint64_t others;
};

static __device__ __forceinline__ struct spri_quads spri_quads_of(const void *anchor,
								  unsigned bytes, uint64_t n)
{
	struct spri_quads quads;

	quads.first = min(n, (uint64_t)(0 - (uintptr_t)anchor) / bytes % 4);
	quads.count = (n - quads.first) / 4;
	quads.others = n - 4 * quads.count;
	return quads;
}

/* The i-th of the others. */
static __device__ __forceinline__ uint64_t spri_quads_other(const struct spri_quads *quads,
							    uint64_t i)
{
	return i < quads->first ? i : i + 4 * quads->count;
}

/* out[i] = f(i, x[i], y[i]) for i in [0, n); y NULL: zeros. out may equal x or y. */
template <typename F>
static __device__ __forceinline__ void spri_map(float *out, const float *x, const float *y,
						uint64_t n, F f)
{
	struct spri_quads quads = spri_quads_of(out, sizeof *out, n);

	for (uint64_t q = spri_thread(); q < quads.count; q += spri_threads()) {
		uint64_t i = quads.first + 4 * q;
		struct spri_four a = spri_load4(x + i), b = {{0, 0, 0, 0}};

		if (y)
			b = spri_load4(y + i);
		for (unsigned j = 0; j < 4; j++)
			a.v[j] = f(i + j, a.v[j], b.v[j]);
		spri_store4(out + i, a);
	}
	if (spri_thread() < quads.others) {
		uint64_t i = spri_quads_other(&quads, spri_thread());

		out[i] = f(i, x[i], y ? y[i] : 0.0f);
	}
}

/* ---- prefix sums ---- */

/* The sum of v over all lanes, in each of them. */
static __device__ __forceinline__ unsigned spri_warp_sum(unsigned v)
{
	for (int step = SPRI_WARP / 2; step > 0; step /= 2)
		v += __shfl_xor_sync(SPRI_ALL_LANES, v, step);
	return v;
}

/* The sum of v over this lane and those below it. All lanes of the warp. */
static __device__ __forceinline__ uint64_t spri_warp_scan(uint64_t v)
{
	unsigned lane = threadIdx.x % SPRI_WARP;

	for (unsigned step = 1; step < SPRI_WARP; step *= 2) {
		uint64_t other = __shfl_up_sync(SPRI_ALL_LANES, (unsigned long long)v, step);

		v += lane >= step ? other : 0;
	}
	return v;
}

/*
 * v[i] becomes the sum of what is before it, for n values, by all threads of one block (whole
 * warps). Returns the sum of all. The values are read past the first cache, since other blocks of
 * the same kernel may have written them.
 */
static __device__ inline uint64_t spri_block_scan(uint64_t *v, uint64_t n)
{
	__shared__ uint64_t warp_sum[SPRI_WARP];
	unsigned warp = threadIdx.x / SPRI_WARP, warps = blockDim.x / SPRI_WARP;
	uint64_t before = 0;

	for (uint64_t at = 0; at < n; at += blockDim.x) {
		uint64_t i = at + threadIdx.x;
		uint64_t own = i < n ? ((volatile uint64_t *)v)[i] : 0;
		uint64_t sum = spri_warp_scan(own), earlier = 0, all = 0;

		if (threadIdx.x % SPRI_WARP == SPRI_WARP - 1)
			warp_sum[warp] = sum;
		__syncthreads();
		for (unsigned w = 0; w < warps; w++) {
			earlier += w < warp ? warp_sum[w] : 0;
			all += warp_sum[w];
		}
		__syncthreads();
		if (i < n)
			v[i] = before + earlier + sum - own;
		before += all;
	}
	return before;
}

/*
 * True in all threads of the block that comes here last, which then sees (by volatile reads) what
 * the others wrote before they came. *arrived begins at 0. At most once in a kernel.
 */
static __device__ __forceinline__ bool spri_last_block(uint32_t *arrived)
{
	__shared__ uint32_t before;

	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		before = atomicAdd(arrived, 1u);
	__syncthreads();
	__threadfence();
	return before == gridDim.x - 1;
}

#endif
