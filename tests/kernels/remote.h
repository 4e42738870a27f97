/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the tests of GPU kernels share: a stream, and arrays in the GPU's memory with an image on
 * the host, guarded on both sides. The same programs run on the emulator and, linked with the
 * library's device, on a GPU.
 */
#ifndef SPR_TESTS_REMOTE_H
#define SPR_TESTS_REMOTE_H

#include "vectors.h"

#define REMOTE_GUARD 64 /* bytes on either side */

/* The emulator's; NULL on a GPU, which needs no help to be unpredictable. */
__attribute__((weak)) void spri_emu_seed(uint64_t seed);
__attribute__((weak)) void
spri_emu_on_release(void (*hook)(void *arg, const uint32_t *p, uint32_t v), void *arg);

struct remote_gpu {
	struct spri_gpu *gpu;
	struct spri_gpu_stream *stream;
};

/* Marks the test skipped where there is no GPU. */
static inline struct remote_gpu remote_open(void)
{
	struct remote_gpu g = {NULL, NULL};
	struct spri_text why = {""};

	if (spri_gpu_probe(&why) < 0 || spri_gpu_open(0, &g.gpu, &why) < 0)
		cr_skip("no GPU: %s", why.s);
	expect(spri_gpu_stream_create(g.gpu, &g.stream) == 0, "expected a stream");
	return g;
}

static inline void remote_close(struct remote_gpu *g)
{
	spri_gpu_stream_destroy(g->stream);
	spri_gpu_close(g->gpu);
}

static inline void remote_seed(uint64_t seed)
{
	if (spri_emu_seed)
		spri_emu_seed(seed);
}

struct remote {
	struct remote_gpu *g;
	unsigned char *image; /* the guard, skew, data, the guard */
	unsigned char *base;  /* the same in the GPU's memory */
	size_t bytes, skew;
};

/* `skew` bytes off a cache line; all bytes are 0xa5 here and there. */
static inline struct remote remote_make(struct remote_gpu *g, size_t bytes, size_t skew)
{
	struct remote r = {.g = g, .bytes = bytes, .skew = skew};
	size_t all = bytes + skew + 2 * REMOTE_GUARD;
	void *base = NULL;

	r.image = aligned_alloc(64, (all + 63) / 64 * 64);
	expect(r.image && spri_gpu_alloc(g->gpu, all, &base) == 0, "expected memory for a test");
	memset(r.image, 0xa5, all);
	r.base = base;
	expect(spri_gpu_copy(g->stream, base, r.image, all) == 0, "expected a copy");
	expect(spri_gpu_sync(g->stream) == 0, "expected the copy to end");
	return r;
}

/* Its data on the host. */
static inline void *remote_here(const struct remote *r)
{
	return r->image + REMOTE_GUARD + r->skew;
}

/* Its data on the GPU. */
static inline void *remote_there(const struct remote *r)
{
	return r->base + REMOTE_GUARD + r->skew;
}

static inline void remote_send(const struct remote *r)
{
	expect(spri_gpu_copy(r->g->stream, remote_there(r), remote_here(r), r->bytes) == 0 &&
		       spri_gpu_sync(r->g->stream) == 0,
	       "expected a copy to the GPU");
}

/* Waits for what is queued, too. */
static inline void remote_fetch(const struct remote *r)
{
	size_t all = r->bytes + r->skew + 2 * REMOTE_GUARD;

	expect(spri_gpu_copy(r->g->stream, r->image, r->base, all) == 0 &&
		       spri_gpu_sync(r->g->stream) == 0,
	       "expected a copy from the GPU: %s", spri_gpu_stream_error(r->g->stream));
}

/* Fetches and frees it; false when something wrote before or behind it. */
static inline bool remote_end(struct remote *r)
{
	const unsigned char *behind = (unsigned char *)remote_here(r) + r->bytes;
	bool whole = true;

	remote_fetch(r);
	for (size_t i = 0; i < REMOTE_GUARD + r->skew; i++)
		whole = whole && r->image[i] == 0xa5;
	for (size_t i = 0; i < REMOTE_GUARD; i++)
		whole = whole && behind[i] == 0xa5;
	spri_gpu_free(r->g->gpu, r->base);
	free(r->image);
	return whole;
}

/* A vector of n singles of that kind, sent. */
static inline struct remote remote_fill(struct remote_gpu *g, uint64_t n, enum kind kind,
					uint64_t seed)
{
	struct remote r = remote_make(g, n * sizeof(float), seed % 5 * 4);

	fill(remote_here(&r), n, kind, seed);
	remote_send(&r);
	return r;
}

/* n bytes that the device counts in, from a start value. */
static inline struct remote remote_copy(struct remote_gpu *g, const void *from, size_t bytes)
{
	struct remote r = remote_make(g, bytes, 0);

	memcpy(remote_here(&r), from, bytes);
	remote_send(&r);
	return r;
}

/* The first place where two vectors differ; n: none. */
static inline uint64_t first_difference(const float *a, const float *b, uint64_t n)
{
	uint64_t i = 0;

	while (i < n && bits_of(a[i]) == bits_of(b[i]))
		i++;
	return i;
}

#endif
