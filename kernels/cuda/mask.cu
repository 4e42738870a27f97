/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Bitmaps. Packing sets bits. Unpacking keeps the order:
 *
 *   1. mask_count: the bits of every tile, a warp each
 *   2. mask_scan: one block makes of them the bits before every tile
 *   3. mask_write: a warp goes through its tile in words and knows where each one's indices go
 */
#include <cuda/args.h>
#include <cuda/walk.cuh>

#define TILE_WORDS (SPRI_GPU_TILE / 32)

extern "C" __global__ void spri_mask_set(uint32_t *map, const uint64_t *index, uint64_t count)
{
	for (uint64_t i = spri_thread(); i < count; i += spri_threads())
		atomicOr(&map[index[i] / 32], 1u << index[i] % 32);
}
SPRI_KERNEL(mask_set);

/* Word `at` of the map without what stands behind its n bits; 0 beyond. */
static __device__ __forceinline__ uint32_t map_word(const struct spri_gpu_bits *s, uint64_t at)
{
	uint64_t first = at * 32;

	if (first >= s->n)
		return 0;
	return s->n - first >= 32 ? s->map[at] : s->map[at] & ((1u << (s->n - first)) - 1);
}

extern "C" __global__ void spri_mask_count(struct spri_gpu_bits s)
{
	const uint64_t tiles = SPRI_GPU_TILES(s.n), stride = spri_threads() / SPRI_WARP;

	for (uint64_t tile = spri_thread() / SPRI_WARP; tile < tiles; tile += stride) {
		unsigned lane = threadIdx.x % SPRI_WARP, bits = 0;

		for (unsigned w = lane; w < TILE_WORDS; w += SPRI_WARP)
			bits += (unsigned)__popc(map_word(&s, tile * TILE_WORDS + w));
		bits = spri_warp_sum(bits);
		if (lane == 0)
			s.before[tile] = bits;
	}
}
SPRI_KERNEL(mask_count);

/* One block. */
extern "C" __global__ void spri_mask_scan(struct spri_gpu_bits s)
{
	uint64_t count = spri_block_scan(s.before, SPRI_GPU_TILES(s.n));

	if (threadIdx.x == 0)
		*s.count = count;
}
SPRI_KERNEL(mask_scan);

/* The indices of a word's bits, from place `at` of the output on. */
static __device__ __forceinline__ void write_word(const struct spri_gpu_bits *s, uint32_t word,
						  uint64_t first, uint64_t at)
{
	for (; word && at < s->capacity; word &= word - 1)
		s->index[at++] = first + (unsigned)__ffs((int)word) - 1;
}

extern "C" __global__ void spri_mask_write(struct spri_gpu_bits s)
{
	const uint64_t tiles = SPRI_GPU_TILES(s.n), stride = spri_threads() / SPRI_WARP;

	for (uint64_t tile = spri_thread() / SPRI_WARP; tile < tiles; tile += stride) {
		uint64_t before = s.before[tile];

		for (unsigned w = threadIdx.x % SPRI_WARP; w < TILE_WORDS; w += SPRI_WARP) {
			uint64_t at = tile * TILE_WORDS + w;
			uint32_t word = map_word(&s, at);
			uint64_t own = (unsigned)__popc(word), sum = spri_warp_scan(own);

			write_word(&s, word, at * 32, before + sum - own);
			before +=
				__shfl_sync(SPRI_ALL_LANES, (unsigned long long)sum, SPRI_WARP - 1);
		}
	}
}
SPRI_KERNEL(mask_write);
