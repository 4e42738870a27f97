/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Between lists and vectors on a GPU. */
#include "remote.h"

#define ROOM 50000 /* elements of the vector */

static const uint64_t sizes[] = {0, 1, 2, 3, 31, 257, 10007};

/* n indices that differ, ascending, sent. */
static struct remote make_index(struct remote_gpu *g, uint64_t n, uint64_t seed)
{
	struct remote r = remote_make(g, n * sizeof(uint64_t), seed % 3 * 8);
	uint64_t *index = remote_here(&r), state = seed + 1, stride = n ? ROOM / n : 1;

	for (uint64_t i = 0; i < n; i++)
		index[i] = i * stride + next_random(&state) % stride;
	remote_send(&r);
	return r;
}

static void expect_same(const struct remote *got, const float *want, uint64_t n, const char *what)
{
	uint64_t at;

	remote_fetch(got);
	at = first_difference(remote_here(got), want, n);
	expect(at == n, "%s: element %lu of %lu differs", what, at, n);
}

static void check_scatter(struct remote_gpu *g, enum kind kind, uint64_t n, bool values)
{
	struct remote index = make_index(g, n, n + kind), value = remote_fill(g, n, kind, n);
	struct remote out = remote_fill(g, ROOM, KIND_SMALL, 9);
	float *want = malloc(ROOM * sizeof *want);
	const uint64_t *at = remote_here(&index);

	memcpy(want, remote_here(&out), ROOM * sizeof *want);
	if (values)
		spri_kernels()->scatter(want, 0, at, remote_here(&value), n, -0.3f);
	for (uint64_t i = 0; !values && i < n; i++)
		want[at[i]] = 0.0f;
	expect(spri_gpu_scatter(g->stream, remote_there(&out), remote_there(&index),
				values ? remote_there(&value) : NULL, n, -0.3f) == 0,
	       "scatter is queued");
	expect_same(&out, want, ROOM, "scatter");
	free(want);
	expect(remote_end(&index) && remote_end(&value) && remote_end(&out),
	       "scatter writes where it should");
}

Test(gpu_scatter, scatter)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++)
			check_scatter(&g, kind, sizes[i], (kind + i) % 3 > 0);
	remote_close(&g);
}

Test(gpu_scatter, gather)
{
	struct remote_gpu g = remote_open();

	for (unsigned i = 0; i < spri_countof(sizes); i++) {
		uint64_t n = sizes[i];
		struct remote index = make_index(&g, n, n);
		struct remote in = remote_fill(&g, ROOM, KIND_ALL_BITS, n);
		struct remote out = remote_make(&g, n * sizeof(float), i % 4 * 4);
		const uint64_t *at = remote_here(&index);
		const float *from = remote_here(&in);
		float *want = malloc(n * sizeof *want + 1);

		for (uint64_t j = 0; j < n; j++)
			memcpy(&want[j], &from[at[j]], sizeof *want);
		expect(spri_gpu_gather(g.stream, remote_there(&out), remote_there(&in),
				       remote_there(&index), n) == 0,
		       "gather is queued");
		expect_same(&out, want, n, "gather");
		free(want);
		expect(remote_end(&index) && remote_end(&in) && remote_end(&out),
		       "gather writes where it should");
	}
	remote_close(&g);
}

static void check_adopt(struct remote_gpu *g, enum kind kind, uint64_t n, enum spr_nonfinite policy)
{
	struct remote index = make_index(g, n, n + kind), value = remote_fill(g, n, kind, n);
	struct remote inout = remote_fill(g, ROOM, kind, 10);
	const uint64_t *at = remote_here(&index);
	const float *v = remote_here(&value);
	float *want = malloc(ROOM * sizeof *want);

	memcpy(want, remote_here(&inout), ROOM * sizeof *want);
	for (uint64_t i = 0; i < n; i++) {
		struct spri_finite ignored = SPRI_FINITE_NONE;

		spri_reduce(&want[at[i]], &want[at[i]], &v[i], 1, 0, policy, &ignored);
	}
	expect(spri_gpu_adopt(g->stream, remote_there(&inout), remote_there(&index),
			      remote_there(&value), n, policy) == 0,
	       "adopt is queued");
	expect_same(&inout, want, ROOM, "adopt");
	free(want);
	expect(remote_end(&index) && remote_end(&value) && remote_end(&inout),
	       "adopt writes where it should");
}

Test(gpu_scatter, adopt)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++)
			check_adopt(&g, kind, sizes[i], (enum spr_nonfinite)((kind + i) % 3));
	remote_close(&g);
}
