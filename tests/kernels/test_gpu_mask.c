/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Bitmaps on a GPU: there and back, against bits set one by one. */
#include "remote.h"

static const uint64_t sizes[] = {0,  1,	 2,    3,    31,   32,	 33,   63,    64,
				 65, 97, 1000, 4095, 4096, 4097, 8200, 100000};
static const double densities[] = {0, 0.001, 0.03, 0.5, 1};

/* Which of n bits are set, at least at both ends; a byte each. */
static uint8_t *choose(uint64_t n, double density, uint64_t seed, uint64_t *count)
{
	uint8_t *bits = calloc(n + 1, 1);
	uint64_t state = seed * 77 + 1;

	*count = 0;
	for (uint64_t i = 0; i < n; i++) {
		double u = (double)(next_random(&state) >> 11) * 0x1p-53;

		bits[i] = u < density || (density > 0 && (i == 0 || i == n - 1));
		*count += bits[i];
	}
	return bits;
}

/* The indices of what is chosen, sent; the map that they make is compared octet by octet. */
static void check_pack(struct remote_gpu *g, uint64_t n, const uint8_t *bits, uint64_t count,
		       uint64_t seed)
{
	struct remote index = remote_make(g, count * sizeof(uint64_t), 8);
	struct remote map = remote_make(g, (n + 31) / 32 * 4, seed % 4 * 4);
	uint64_t *at = remote_here(&index), found = 0;
	const uint8_t *octets = remote_here(&map);

	for (uint64_t i = 0; i < n; i++)
		if (bits[i])
			at[found++] = i;
	remote_send(&index);
	remote_seed(seed);
	expect(spri_gpu_mask_pack(g->stream, remote_there(&map), n, remote_there(&index), count) ==
		       0,
	       "mask_pack is queued");
	remote_fetch(&map);
	for (uint64_t i = 0; i < (n + 31) / 32 * 32; i++)
		expect((octets[i / 8] >> i % 8 & 1) == (i < n && bits[i]),
		       "%lu bits, %lu set: bit %lu", n, count, i);
	expect(remote_end(&index) && remote_end(&map), "mask_pack writes where it should");
}

/* What stands behind the n bits of the map is not looked at. */
static void check_unpack(struct remote_gpu *g, uint64_t n, const uint8_t *bits, uint64_t count,
			 uint64_t seed)
{
	struct remote index = remote_make(g, count * sizeof(uint64_t), seed % 2 * 8);
	struct remote map = remote_make(g, (n + 31) / 32 * 4, seed % 3 * 4);
	struct remote counted = remote_make(g, sizeof(uint64_t), 0);
	const uint64_t *at = remote_here(&index);
	uint8_t *octets = remote_here(&map);
	uint64_t next = 0, got;

	for (uint64_t i = 0; i < n; i++)
		octets[i / 8] =
			(uint8_t)((octets[i / 8] & ~(1u << i % 8)) | (unsigned)bits[i] << i % 8);
	remote_send(&map);
	remote_seed(seed);
	expect(spri_gpu_mask_unpack(g->stream, remote_there(&index), remote_there(&counted),
				    remote_there(&map), n) == 0,
	       "mask_unpack is queued");
	remote_fetch(&index);
	remote_fetch(&counted);
	memcpy(&got, remote_here(&counted), sizeof got);
	expect(got == count, "%lu bits: %lu set, expected %lu", n, got, count);
	for (uint64_t i = 0; i < n; i++)
		expect(!bits[i] || at[next++] == i, "%lu bits: %lu is in its place", n, i);
	expect(remote_end(&index) && remote_end(&map) && remote_end(&counted),
	       "mask_unpack writes where it should");
}

static void check_both(struct remote_gpu *g, uint64_t n, double density, uint64_t seed)
{
	uint64_t count;
	uint8_t *bits = choose(n, density, seed, &count);

	check_pack(g, n, bits, count, seed);
	check_unpack(g, n, bits, count, seed);
	free(bits);
}

Test(gpu_mask, there_and_back)
{
	struct remote_gpu g = remote_open();

	for (unsigned i = 0; i < spri_countof(sizes); i++)
		for (unsigned j = 0; j < spri_countof(densities); j++)
			check_both(&g, sizes[i], densities[j], 10 * i + j);
	remote_close(&g);
}

Test(gpu_mask, more_than_a_grid_takes_at_once)
{
	struct remote_gpu g = remote_open();

	check_both(&g, 900001, 0.02, 1);
	remote_close(&g);
}
