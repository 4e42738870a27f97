/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The norm on a GPU: the scalar tree of additions, to the bit, for every shape of it. */
#include "remote.h"

static uint64_t bits_of_double(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof bits);
	return bits;
}

static void check_norm(struct remote_gpu *g, enum kind kind, uint64_t n, uint64_t seed)
{
	struct remote v = remote_fill(g, n, kind, seed), out = remote_make(g, sizeof(double), 0);
	double want = spri_norm2(remote_here(&v), n), got;

	remote_seed(seed);
	expect(spri_gpu_norm2(g->stream, remote_there(&v), n, remote_there(&out)) == 0,
	       "norm2 is queued");
	remote_fetch(&out);
	memcpy(&got, remote_here(&out), sizeof got);
	expect(bits_of_double(got) == bits_of_double(want),
	       "kind %u, seed %lu, %lu elements: %a, expected %a", kind, seed, n, got, want);
	expect(remote_end(&v) && remote_end(&out), "norm2 writes where it should");
}

Test(gpu_norm, every_kind)
{
	static const uint64_t sizes[] = {0,    1,     2,     3,	    7,	      8,	9,    31,
					 33,   127,   128,   129,   4095,     4096,	4097, 8191,
					 8193, 12288, 20000, 32769, 7 * 4096, 65536 - 3};
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++)
			check_norm(&g, kind, sizes[i], kind + i);
	remote_close(&g);
}

/* Blocks of the tree in every number up to two full levels more than a warp's. */
Test(gpu_norm, every_shape_of_the_tree)
{
	struct remote_gpu g = remote_open();

	for (uint64_t blocks = 1; blocks < 70; blocks++)
		check_norm(&g, KIND_LAYERS, blocks * 4096 - blocks % 3, blocks);
	remote_close(&g);
}

Test(gpu_norm, more_than_a_grid_takes_at_once)
{
	struct remote_gpu g = remote_open();

	check_norm(&g, KIND_SMALL, 3500001, 1);
	remote_close(&g);
}
