/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Select: the exact top-k of |scale · gradient + residual| on the device, in one pass over memory
 * when the carried threshold holds. One kernel after the other, no block waits for another:
 *
 *   scan    a warp takes a segment: sums to the shadow; those at or above the carried threshold are
 *           candidates: the warp reserves room for its own, in which they stand in index order.
 *           Segments stand in any order, so each notes where its candidates are.
 *   digit   three times: a histogram of the next digit of the keys; the last block finds the bin of
 *           the cut. After the third the prefix is the cut. Looks through the candidates, or
 *           through the shadow when they do not serve: none was carried, fewer than k or more than
 *           there is room for qualified.
 *   count   how many entries of each segment lie above and at the cut; parts are runs of segments
 *   write   a block writes its part of the list: what the parts before hold tells where. Whoever
 *           completes a chunk raises its flag; the last block writes the result.
 *
 * Bytes per element: 12 in the scan (8 without a residual), and in a repair 4 for each of digit
 * (three times), count and write; per candidate 6 in scan, digit, count, write.
 *
 * k = 0 needs scan and write alone, k ≥ n no digit: all that is not zero is above the cut.
 */
#include <cuda/select.h>
#include <cuda/walk.cuh>

#define THREADS SPRI_SELECT_THREADS
#define SEGMENT SPRI_SELECT_SEGMENT

typedef struct spri_select_args args; /* in CUDA's own way: by value to a kernel, by reference on */

static __device__ __forceinline__ unsigned lane_here(void)
{
	return threadIdx.x % SPRI_WARP;
}

static __device__ __forceinline__ unsigned lanes_below(void)
{
	return (1u << lane_here()) - 1;
}

/* Read again from where other blocks of the same kernel wrote it. */
template <typename T> static __device__ __forceinline__ T fresh(const T &v)
{
	return *(const volatile T *)&v;
}

/* ---- scan ---- */

/* What is written for a sum that is not finite. */
static __device__ __forceinline__ float note(const args &s, float product, float r, float sum,
					     uint64_t i)
{
	struct spri_found found = spri_found_none();
	float v = s.drop ? spri_sum_by(SPR_NONFINITE_DROP, product, r, i, &found) : sum;

	spri_atomic_max(&s.state->bad, ~i);
	if (s.drop)
		spri_atomic_add(&s.state->dropped, 1);
	return v;
}

/* W neighbours at a time: 4 by one access, or 1. */
template <unsigned W> static __device__ __forceinline__ void load(float *to, const float *from)
{
	if (W == 4) {
		float4 all = __ldcs((const float4 *)from);

		to[0] = all.x;
		to[1 % W] = all.y;
		to[2 % W] = all.z;
		to[3 % W] = all.w;
	} else {
		to[0] = __ldcs(from);
	}
}

template <unsigned W> static __device__ __forceinline__ void store(float *to, const float *from)
{
	if (W == 4)
		__stcs((float4 *)to, make_float4(from[0], from[1 % W], from[2 % W], from[3 % W]));
	else
		__stcs(to, from[0]);
}

/*
 * The sums of a segment. In step t a lane has elements t · 32 W + lane · W and W − 1 more; bit
 * t · W + c of what it returns says that element c of step t qualifies. W = 4 wants a whole
 * segment.
 */
template <unsigned W>
static __device__ __forceinline__ uint64_t sum_segment(const args &s, uint64_t base,
						       unsigned length, uint32_t threshold)
{
	const unsigned steps = SEGMENT / (SPRI_WARP * W), batch = 16 / W < 8 ? 16 / W : 8;
	uint64_t mask = 0;

	for (unsigned first = 0; first < steps; first += batch) {
		float g[batch * W], r[batch * W];

#pragma unroll
		for (unsigned b = 0; b < batch; b++) {
			unsigned at = ((first + b) * SPRI_WARP + lane_here()) * W;

			for (unsigned c = 0; c < W; c++)
				g[b * W + c] = r[b * W + c] = 0.0f;
			if (W == 1 && at >= length)
				continue;
			load<W>(g + b * W, s.gradient + base + at);
			if (s.residual)
				load<W>(r + b * W, s.residual + base + at);
		}
#pragma unroll
		for (unsigned b = 0; b < batch; b++) {
			unsigned at = ((first + b) * SPRI_WARP + lane_here()) * W;
			float sum[W];

			for (unsigned c = 0; c < W; c++) {
				float product = __fmul_rn(g[b * W + c], s.scale);

				sum[c] = spri_sum(product, r[b * W + c]);
				if (spri_nonfinite(sum[c]) && at + c < length)
					sum[c] = note(s, product, r[b * W + c], sum[c],
						      base + at + c);
				if (spri_key(sum[c]) >= threshold && at + c < length)
					mask |= UINT64_C(1) << ((first + b) * W + c);
			}
			if (W == 4 || at < length)
				store<W>(s.shadow + base + at, sum);
		}
	}
	return mask;
}

/* The candidates of a segment, as its mask has them, to where the warp's room begins. */
template <unsigned W>
static __device__ __forceinline__ void append(const args &s, uint64_t mask, uint64_t base,
					      uint64_t to)
{
	for (unsigned step = 0; step < SEGMENT / (SPRI_WARP * W); step++) {
		unsigned bits = (unsigned)(mask >> step * W) & ((1u << W) - 1);
		unsigned offset = (step * SPRI_WARP + lane_here()) * W;
		unsigned below = 0, all = 0;

		if (!__any_sync(SPRI_ALL_LANES, bits != 0))
			continue;
		for (unsigned c = 0; c < W; c++) {
			unsigned ballot = __ballot_sync(SPRI_ALL_LANES, bits >> c & 1);

			below += __popc(ballot & lanes_below());
			all += __popc(ballot);
		}
		for (unsigned c = 0; c < W; c++) {
			if (!(bits >> c & 1))
				continue;
			/* the sum is this thread's own, from a moment ago */
			s.candidate[to + below] = s.shadow[base + offset + c];
			s.offset[to + below] = (uint16_t)(offset + c);
			below++;
		}
		to += all;
	}
}

/* Reserves room for a segment's candidates and writes them there. */
template <unsigned W>
static __device__ __forceinline__ void keep_segment(const args &s, uint64_t mask, uint64_t segment)
{
	unsigned n = spri_warp_sum((unsigned)__popcll(mask));
	unsigned long long to = 0;

	if (lane_here() == 0) {
		if (n > 0)
			to = spri_atomic_add(&s.state->n_qualified, n);
		s.first[segment] = to;
		s.n_candidates[segment] = (uint16_t)n;
	}
	if (n == 0)
		return;
	to = __shfl_sync(SPRI_ALL_LANES, to, 0);
	if (to + n <= s.capacity) /* else the shadow is looked through, and this not read */
		append<W>(s, mask, segment * SEGMENT, to);
}

template <unsigned W>
static __device__ __forceinline__ void scan_segment(const args &s, uint64_t segment,
						    unsigned length)
{
	uint32_t threshold = s.capacity > 0 ? s.threshold : UINT32_MAX;
	uint64_t mask = sum_segment<W>(s, segment * SEGMENT, length, threshold);

	if (s.capacity > 0)
		keep_segment<W>(s, mask, segment);
}

extern "C" __global__ void __launch_bounds__(THREADS) spri_select_scan(args s)
{
	uintptr_t unaligned = (uintptr_t)s.gradient | (uintptr_t)s.residual | (uintptr_t)s.shadow;
	uint64_t warps = spri_threads() / SPRI_WARP;

	for (uint64_t segment = spri_thread() / SPRI_WARP; segment < s.n_segments;
	     segment += warps) {
		uint64_t left = s.n - segment * SEGMENT;

		if (unaligned % 16 == 0 && left >= SEGMENT)
			scan_segment<4>(s, segment, SEGMENT);
		else
			scan_segment<1>(s, segment, (unsigned)min(left, (uint64_t)SEGMENT));
	}
}
SPRI_KERNEL(select_scan);

/* ---- what is looked through: the candidates, or the shadow ---- */

static __device__ __forceinline__ bool from_candidates(const args &s)
{
	uint64_t n = s.state->n_qualified;

	/* below a threshold of 1 there are zeros alone */
	return s.capacity > 0 && n <= s.capacity && (n >= s.k || s.threshold == 1);
}

struct entries {
	const float *value;
	const uint16_t *offset; /* in the segment; NULL: the entry's place */
	uint64_t base;		/* index of the segment's first element */
	unsigned n;
};

static __device__ __forceinline__ struct entries entries_of(const args &s, uint64_t segment,
							    bool candidates)
{
	struct entries e;

	e.base = segment * SEGMENT;
	if (candidates) {
		e.value = s.candidate + s.first[segment];
		e.offset = s.offset + s.first[segment];
		e.n = s.n_candidates[segment];
	} else {
		e.value = s.shadow + e.base;
		e.offset = NULL;
		e.n = (unsigned)min(s.n - e.base, (uint64_t)SEGMENT);
	}
	return e;
}

/* Selected are the keys above, and the first `need` of those that equal it. */
struct cut {
	uint32_t key;
	uint64_t need;
};

static __device__ __forceinline__ struct cut cut_of(const args &s)
{
	struct cut all = {0, 0}, cut = {s.state->prefix, s.state->need};

	return s.k >= s.n || s.state->all ? all : cut;
}

/* ---- digit ---- */

/* About the key of the rank-th largest of a bin of the first digit, as if they lay evenly. */
static __device__ __forceinline__ uint32_t key_within(uint32_t bin, uint64_t rank, uint64_t members)
{
	uint32_t key = ((bin + 1) << 20) - (uint32_t)((rank << 20) / members);

	return max(min(key, 0x7fffffffu), 1u);
}

/* By the last block: the bin where the cut lies, and in the first digit two ranks more. */
static __device__ void pick(const args &s, unsigned digit, unsigned n_bins)
{
	__shared__ uint64_t above_of[THREADS]; /* the highest bins first */
	const uint64_t *bins = s.state->bins[digit];
	unsigned own = n_bins / THREADS, from = threadIdx.x * own;
	uint64_t need = digit == 0 ? s.k : s.state->need;
	uint64_t half = digit == 0 && s.k >= 32 ? s.k / 2 : 0;
	uint64_t want = digit == 0 ? s.k + s.k / 4 + 16 : 0;
	uint32_t prefix = s.state->prefix;
	uint64_t above = 0, total;

	for (unsigned b = from; b < from + own; b++)
		above += fresh(bins[b]);
	above_of[THREADS - 1 - threadIdx.x] = above;
	__syncthreads();
	total = spri_block_scan(above_of, THREADS);
	__syncthreads();
	if (total < need) { /* the first digit: fewer than k are not zero */
		if (threadIdx.x == 0)
			s.state->all = 1;
		return;
	}
	above = above_of[THREADS - 1 - threadIdx.x];
	for (unsigned b = from + own; b-- > from;) {
		uint64_t members = fresh(bins[b]);

		if (above < need && need <= above + members) {
			s.state->prefix = prefix * n_bins + b;
			s.state->need = need - above;
		}
		if (above < half && half <= above + members)
			s.state->half_key = key_within(b, half - above, members);
		if (above < want && want <= above + members)
			s.state->want_key = key_within(b, want - above, members);
		above += members;
	}
}

extern "C" __global__ void __launch_bounds__(THREADS) spri_select_digit(args s, unsigned digit)
{
	__shared__ uint32_t bins[SPRI_SELECT_BINS];
	bool candidates = from_candidates(s);
	const float *value = candidates ? s.candidate : s.shadow;
	uint64_t n = candidates ? s.state->n_qualified : s.n;
	unsigned bits = digit == 0 ? 11 : 10, shift = (SPRI_SELECT_DIGITS - 1 - digit) * 10;
	uint32_t prefix = s.state->prefix;

	if (s.state->all)
		return;
	for (unsigned b = threadIdx.x; b < 1u << bits; b += THREADS)
		bins[b] = 0;
	__syncthreads();
	for (uint64_t i = spri_thread(); i < n; i += spri_threads()) {
		uint32_t key = spri_key(value[i]);

		if (key != 0 && key >> shift >> bits == prefix)
			atomicAdd(&bins[key >> shift & ((1u << bits) - 1)], 1u);
	}
	__syncthreads();
	for (unsigned b = threadIdx.x; b < 1u << bits; b += THREADS) {
		if (bins[b] > 0)
			spri_atomic_add(&s.state->bins[digit][b], bins[b]);
	}
	if (spri_last_block(&s.state->through[digit]))
		pick(s, digit, 1u << bits);
}
SPRI_KERNEL(select_digit);

/* ---- count ---- */

extern "C" __global__ void __launch_bounds__(THREADS) spri_select_count(args s)
{
	__shared__ uint64_t total[2];
	bool candidates = from_candidates(s);
	struct cut cut = cut_of(s);
	uint64_t begin = blockIdx.x * s.part_segments;
	uint64_t end = min(begin + s.part_segments, s.n_segments);
	uint64_t all_above = 0, all_equal = 0;

	if (threadIdx.x < 2)
		total[threadIdx.x] = 0;
	__syncthreads();
	for (uint64_t segment = begin + threadIdx.x / SPRI_WARP; segment < end;
	     segment += THREADS / SPRI_WARP) {
		struct entries e = entries_of(s, segment, candidates);
		unsigned both = 0; /* above | equal << 16: a segment has 2048 */

		for (unsigned j = lane_here(); j < e.n; j += SPRI_WARP) {
			uint32_t key = spri_key(e.value[j]);

			both += (unsigned)(key > cut.key) | (unsigned)(key == cut.key) << 16;
		}
		both = spri_warp_sum(both);
		if (lane_here() == 0)
			s.n_selected[segment] = both;
		all_above += both & 0xffff;
		all_equal += both >> 16;
	}
	if (lane_here() == 0) {
		spri_atomic_add(&total[0], all_above);
		spri_atomic_add(&total[1], all_equal);
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		s.totals[blockIdx.x].above = total[0];
		s.totals[blockIdx.x].equal = total[1];
	}
}
SPRI_KERNEL(select_count);

/* ---- write ---- */

/* What the parts before this one hold, and what all do: [0] above, [1] equal; [2], [3]. */
static __device__ void sum_parts(const args &s, uint64_t sums[4])
{
	uint64_t own[4] = {0, 0, 0, 0};

	if (threadIdx.x < 4)
		sums[threadIdx.x] = 0;
	__syncthreads();
	for (unsigned part = threadIdx.x; part < gridDim.x; part += THREADS) {
		struct spri_select_total total = s.totals[part];

		own[0] += part < blockIdx.x ? total.above : 0;
		own[1] += part < blockIdx.x ? total.equal : 0;
		own[2] += total.above;
		own[3] += total.equal;
	}
	for (unsigned i = 0; i < 4; i++) {
		uint64_t sum = spri_warp_scan(own[i]);

		if (lane_here() == SPRI_WARP - 1)
			spri_atomic_add(&sums[i], sum);
	}
	__syncthreads();
}

/* The selected of a segment, when so many lie above and at the cut before it. By a warp. */
static __device__ __forceinline__ void write_segment(const args &s, struct entries e,
						     struct cut cut, uint64_t above, uint64_t equal)
{
	for (unsigned at = 0; at < e.n; at += SPRI_WARP) {
		unsigned j = at + lane_here();
		float v = j < e.n ? e.value[j] : 0.0f;
		uint32_t key = spri_key(v);
		bool is_above = key > cut.key, is_equal = j < e.n && key == cut.key;
		unsigned higher = __ballot_sync(SPRI_ALL_LANES, is_above);
		unsigned same = __ballot_sync(SPRI_ALL_LANES, is_equal);
		uint64_t rank = equal + __popc(same & lanes_below());

		if (is_above || (is_equal && rank < cut.need)) {
			uint64_t to = above + __popc(higher & lanes_below()) + min(rank, cut.need);
			uint64_t i = e.base + (e.offset ? e.offset[j] : j);

			s.index[to] = i;
			s.value[to] = v;
			if (s.near_index) {
				s.near_index[to] = (uint32_t)i;
				s.near_value[to] = v;
			}
			s.shadow[i] = 0.0f;
			if (is_equal && rank + 1 == cut.need)
				s.state->cut_index = i;
		}
		above += __popc(higher);
		equal += __popc(same);
	}
}

/*
 * Notes that entries [from, to) are written, and raises the flag of each chunk that is whole; one
 * that stays short of k is told by the result alone.
 */
static __device__ void tell(const args &s, uint64_t from, uint64_t to)
{
	if (s.chunk == 0 || from == to)
		return;
	for (uint64_t c = from / s.chunk + threadIdx.x; c * s.chunk < to; c += THREADS) {
		uint64_t begin = c * s.chunk, end = min(begin + s.chunk, s.k);
		uint64_t mine = min(end, to) - max(begin, from), before;

		__threadfence_system(); /* the block's entries, which a barrier is behind */
		before = spri_atomic_add(&s.written[c], mine);
		if (before + mine == end - begin) {
			__threadfence_system(); /* those of other blocks, too */
			spri_store_release_system(&s.flag[c], s.sequence);
		}
	}
}

/*
 * This block's part, segments in batches of one per thread. Returns how many are selected in all.
 */
static __device__ uint64_t write_part(const args &s)
{
	__shared__ uint64_t before[THREADS]; /* above | equal << 32 */
	__shared__ uint64_t sums[4];
	bool candidates = from_candidates(s);
	struct cut cut = cut_of(s);
	uint64_t begin = blockIdx.x * s.part_segments;
	uint64_t end = min(begin + s.part_segments, s.n_segments);
	uint64_t above, equal, count, from;

	sum_parts(s, sums);
	above = sums[0];
	equal = sums[1];
	count = sums[2] + min(sums[3], cut.need);
	from = above + min(equal, cut.need);
	for (uint64_t first = begin; first < end; first += THREADS) {
		unsigned n = (unsigned)min(end - first, (uint64_t)THREADS);
		unsigned own = threadIdx.x < n ? s.n_selected[first + threadIdx.x] : 0;
		uint64_t all;

		before[threadIdx.x] = (own & 0xffff) | (uint64_t)(own >> 16) << 32;
		all = spri_block_scan(before, THREADS);
		__syncthreads();
		for (unsigned j = threadIdx.x / SPRI_WARP; j < n; j += THREADS / SPRI_WARP) {
			uint64_t segment = first + j;
			uint64_t higher = above + (uint32_t)before[j];
			uint64_t same = equal + (before[j] >> 32);
			unsigned has = s.n_selected[segment];

			if ((has & 0xffff) > 0 || (has >> 16 > 0 && same < cut.need))
				write_segment(s, entries_of(s, segment, candidates), cut, higher,
					      same);
		}
		above += (uint32_t)all;
		equal += all >> 32;
		__syncthreads(); /* before the next batch, and before they are told */
	}
	tell(s, from, above + min(equal, cut.need));
	return count;
}

/* The key that about 1.25 k of the same data reach. */
static __device__ uint32_t next_threshold(const args &s, uint32_t cut)
{
	uint64_t k = s.k, n = s.state->n_qualified, want = k + k / 4 + 16;
	uint32_t half = s.state->half_key, key = s.state->want_key, doubling = 1u << 20;
	bool candidates = from_candidates(s);
	uint64_t distance;

	if (candidates && n >= k + k / 8 && n <= k + k / 2 + 32)
		return s.threshold; /* good as it is */
	if (key != 0 || !candidates) {
		if (candidates)
			key = max(key, s.threshold); /* below it they are not complete */
		return max(min(key, cut), 1u);
	}
	/*
	 * Not among the candidates: below them, by the distance in which the count last doubled, in
	 * sixteenths; too low costs less than too high.
	 */
	if (half > cut)
		doubling = half - cut;
	distance = doubling / 16 * (min((want - k) * 5 / 4 + k / 16, 6 * k) * 16 / k);
	return distance < cut ? cut - (uint32_t)distance : 1;
}

/* By one thread, when all else is written. */
static __device__ void finish(const args &s, uint64_t count)
{
	struct spri_gpu_selected *result = s.result;
	bool all = s.k >= s.n || s.state->all;

	result->count = count;
	result->bad_index = ~s.state->bad;
	result->dropped = s.state->dropped;
	result->repaired = s.capacity > 0 && !from_candidates(s);
	if (s.k == 0) {
		result->cut_key = UINT32_MAX;
		result->cut_index = 0;
		result->threshold = s.threshold;
	} else if (all) {
		result->cut_key = 1; /* whatever there is */
		result->cut_index = UINT64_MAX;
		result->threshold = 1;
	} else {
		result->cut_key = s.state->prefix;
		result->cut_index = fresh(s.state->cut_index);
		result->threshold = next_threshold(s, s.state->prefix);
	}
	__threadfence_system();
	spri_store_release_system(&result->done, s.sequence);
}

/* 4 blocks, 64 registers: left alone, ptxas wants fewer on sm_100, and spills. */
extern "C" __global__ void __launch_bounds__(THREADS, 4) spri_select_write(args s)
{
	uint64_t count = s.k > 0 ? write_part(s) : 0;

	if (!spri_last_block(&s.state->through[SPRI_SELECT_DIGITS]))
		return;
	if (threadIdx.x == 0)
		finish(s, count);
}
SPRI_KERNEL(select_write);
