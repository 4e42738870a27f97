/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* 16-bit values on a GPU: every pattern to single, and singles of every kind and boundary back. */
#include "remote.h"

static const enum spr_dtype types[] = {SPR_F16, SPR_BF16};

/* Widens all of v, narrows what comes out, and compares both with the scalar definition. */
static void check_both(struct remote_gpu *g, const float *v, uint64_t n, enum spr_dtype dtype)
{
	struct remote in = remote_make(g, n * 4, n % 4 * 4),
		      half = remote_make(g, n * 2, n % 5 * 2);
	struct remote back = remote_make(g, n * 4, n % 3 * 4);
	uint8_t *want = malloc(2 * n + 1);
	float *wide = malloc(4 * n + 1);

	memcpy(remote_here(&in), v, n * 4);
	remote_send(&in);
	spri_narrow(want, v, n, dtype);
	spri_widen(wide, want, n, dtype);
	expect(spri_gpu_narrow(g->stream, remote_there(&half), remote_there(&in), n, dtype) == 0 &&
		       spri_gpu_widen(g->stream, remote_there(&back), remote_there(&half), n,
				      dtype) == 0,
	       "both are queued");
	remote_fetch(&half);
	remote_fetch(&back);
	expect(memcmp(remote_here(&half), want, 2 * n) == 0, "type %d: %lu narrow values",
	       (int)dtype, n);
	expect(first_difference(remote_here(&back), wide, n) == n, "type %d: %lu wide values",
	       (int)dtype, n);
	free(want);
	free(wide);
	expect(remote_end(&in) && remote_end(&half) && remote_end(&back),
	       "nothing is written beside %lu values", n);
}

Test(gpu_half, every_length_and_kind)
{
	struct remote_gpu g = remote_open();
	float v[140];

	for (unsigned i = 0; i < spri_countof(types); i++)
		for (uint64_t n = 0; n < spri_countof(v); n++) {
			fill(v, n, n % KIND_COUNT, n);
			check_both(&g, v, n, types[i]);
		}
	remote_close(&g);
}

/* Each pattern as the upper half of a single and as a half, and the singles beside both. */
Test(gpu_half, every_boundary)
{
	enum { PATTERNS = 65536, NEAR = 7 };
	struct remote_gpu g = remote_open();
	float *v = malloc(PATTERNS * NEAR * sizeof *v);

	for (uint32_t bits = 0; bits < PATTERNS; bits++) {
		uint32_t half = bits_of(spri_widen_one((uint16_t)bits, SPR_F16));

		v[bits * NEAR] = from_bits(bits << 16);
		v[bits * NEAR + 1] = from_bits((bits << 16) + 0x7fff);
		v[bits * NEAR + 2] = from_bits((bits << 16) + 0x8000);
		v[bits * NEAR + 3] = from_bits((bits << 16) + 0x8001);
		v[bits * NEAR + 4] = from_bits(half + 0xfff);
		v[bits * NEAR + 5] = from_bits(half + 0x1000);
		v[bits * NEAR + 6] = from_bits(half + 0x1001);
	}
	for (unsigned i = 0; i < spri_countof(types); i++)
		check_both(&g, v, PATTERNS * NEAR - 1, types[i]);
	free(v);
	remote_close(&g);
}

/* Of the halves that narrowing never makes: NaN of every payload. */
Test(gpu_half, every_pattern)
{
	struct remote_gpu g = remote_open();

	for (unsigned i = 0; i < spri_countof(types); i++) {
		struct remote in = remote_make(&g, 65536 * 2, 2);
		struct remote out = remote_make(&g, 65536 * 4, 4);
		uint16_t *patterns = remote_here(&in);
		const float *got = remote_here(&out);

		for (uint32_t bits = 0; bits < 65536; bits++)
			patterns[bits] = (uint16_t)bits;
		remote_send(&in);
		expect(spri_gpu_widen(g.stream, remote_there(&out), remote_there(&in), 65536,
				      types[i]) == 0,
		       "widen is queued");
		remote_fetch(&out);
		for (uint32_t bits = 0; bits < 65536; bits++)
			expect(bits_of(got[bits]) ==
				       bits_of(spri_widen_one((uint16_t)bits, types[i])),
			       "type %d: %04x is %08x", (int)types[i], bits, bits_of(got[bits]));
		expect(remote_end(&in) && remote_end(&out), "widen writes where it should");
	}
	remote_close(&g);
}
