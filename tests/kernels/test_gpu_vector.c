/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Whole vectors on a GPU: the bits of the scalar definition for every kind, length and skew. */
#include "remote.h"

/* Around quads, warps, blocks, and more than the emulator's grid takes at once. */
static const uint64_t sizes[] = {0, 1, 2, 3, 4, 7, 33, 1021, 1024, 4099, 30001};
static const enum spr_nonfinite policies[] = {SPR_NONFINITE_ERROR, SPR_NONFINITE_PROPAGATE,
					      SPR_NONFINITE_DROP};

static void expect_same(const struct remote *got, const float *want, uint64_t n, const char *what,
			unsigned kind)
{
	const float *v = remote_here(got);
	uint64_t at;

	remote_fetch(got);
	at = first_difference(v, want, n);
	expect(at == n, "%s, kind %u: element %lu of %lu is %08x, expected %08x", what, kind, at, n,
	       bits_of(v[at]), bits_of(want[at]));
}

static void check_axpby(struct remote_gpu *g, enum kind kind, uint64_t n, bool in_place)
{
	uint64_t expected = 5, zero = 5; /* what was counted before stays */
	struct remote x = remote_fill(g, n, kind, n + kind), y = remote_fill(g, n, kind, n + 1);
	struct remote out = remote_make(g, n * sizeof(float), n % 3 * 4);
	struct remote count = remote_copy(g, &zero, sizeof zero);
	float *want = malloc(n * sizeof *want + 1);
	struct spri_gpu_axpby s = {.out = in_place ? remote_there(&y) : remote_there(&out),
				   .a = 0.9f,
				   .x = remote_there(&x),
				   .b = -1.75f,
				   .y = remote_there(&y),
				   .n = n,
				   .nonfinite = in_place ? NULL : remote_there(&count)};

	spri_kernels()->axpby(want, s.a, remote_here(&x), s.b, remote_here(&y), n);
	for (uint64_t i = 0; i < n; i++)
		expected += is_bad(want[i]);
	expect(spri_gpu_axpby(g->stream, &s) == 0, "axpby is queued");
	expect_same(in_place ? &y : &out, want, n, "axpby", kind);
	remote_fetch(&count);
	memcpy(&zero, remote_here(&count), sizeof zero);
	expect(in_place || zero == expected, "axpby, kind %u: %lu are not finite, expected %lu",
	       kind, zero - 5, expected - 5);
	free(want);
	expect(remote_end(&x) && remote_end(&y) && remote_end(&out) && remote_end(&count),
	       "axpby writes where it should");
}

Test(gpu_vector, axpby)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++)
			check_axpby(&g, kind, sizes[i], (kind + i) % 3 == 0);
	remote_close(&g);
}

Test(gpu_vector, scale)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++) {
			uint64_t n = sizes[i];
			struct remote in = remote_fill(&g, n, kind, n + 7);
			struct remote out = remote_make(&g, n * sizeof(float), i % 4 * 4);
			struct remote *to = i % 2 ? &in : &out;
			float *want = malloc(n * sizeof *want + 1);

			spri_kernels()->scale(want, remote_here(&in), n, 3.3e-3f);
			expect(spri_gpu_scale(g.stream, remote_there(to), remote_there(&in), n,
					      3.3e-3f) == 0,
			       "scale is queued");
			expect_same(to, want, n, "scale", kind);
			free(want);
			expect(remote_end(&in) && remote_end(&out), "scale writes where it should");
		}
	remote_close(&g);
}

/* b of spri_gpu_reduce: a vector, none, or the output, too. */
enum form { FORM_SUM, FORM_CHECK, FORM_IN_PLACE, FORM_COUNT };

static void check_reduce(struct remote_gpu *g, enum kind kind, uint64_t n,
			 enum spr_nonfinite policy, enum form form)
{
	const uint64_t base = FAR_BASE;
	struct spri_finite start = {.bad_index = base + n / 2, .dropped = 3}, expected = start, got;
	struct remote a = remote_fill(g, n, kind, n + kind), b = remote_fill(g, n, kind, n + 2);
	struct remote out = remote_make(g, n * sizeof(float), n % 4 * 4);
	struct remote finite = remote_copy(g, &start, sizeof start);
	struct remote *to = form == FORM_IN_PLACE ? &b : &out;
	float *want = malloc(n * sizeof *want + 1);
	struct spri_gpu_reduce s = {.out = remote_there(to),
				    .a = remote_there(&a),
				    .b = form == FORM_CHECK ? NULL : remote_there(&b),
				    .n = n,
				    .base = base,
				    .policy = policy,
				    .finite = remote_there(&finite)};

	if (form == FORM_CHECK)
		spri_check(want, remote_here(&a), n, base, policy, &expected);
	else
		spri_reduce(want, remote_here(&a), remote_here(&b), n, base, policy, &expected);
	expect(spri_gpu_reduce(g->stream, &s) == 0, "reduce is queued");
	expect_same(to, want, n, "reduce", kind);
	remote_fetch(&finite);
	memcpy(&got, remote_here(&finite), sizeof got);
	expect(got.bad_index == expected.bad_index && got.dropped == expected.dropped,
	       "reduce, kind %u, policy %d: lowest %lu, dropped %lu; expected %lu, %lu", kind,
	       (int)policy, got.bad_index - base, got.dropped, expected.bad_index - base,
	       expected.dropped);
	free(want);
	expect(remote_end(&a) && remote_end(&b) && remote_end(&out) && remote_end(&finite),
	       "reduce writes where it should");
}

Test(gpu_vector, reduce_and_check)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++)
			for (unsigned p = 0; p < spri_countof(policies); p++)
				check_reduce(&g, kind, sizes[i], policies[p],
					     (kind + i + p) % FORM_COUNT);
	remote_close(&g);
}

Test(gpu_vector, reports_can_be_left_out)
{
	struct remote_gpu g = remote_open();
	struct remote v = remote_fill(&g, 100, KIND_NAN, 3);
	struct spri_gpu_reduce s = {.out = remote_there(&v), .a = remote_there(&v), .n = 100};
	float want[100];
	struct spri_finite ignored = SPRI_FINITE_NONE;

	spri_check(want, remote_here(&v), 100, 0, SPR_NONFINITE_ERROR, &ignored);
	cr_assert(ignored.bad_index < 100, "there is something to report");
	cr_assert(spri_gpu_reduce(g.stream, &s) == 0, "reduce is queued");
	expect_same(&v, want, 100, "reduce", KIND_NAN);
	cr_assert(remote_end(&v), "reduce writes where it should");
	remote_close(&g);
}

static void check_drop(struct remote_gpu *g, enum kind kind, uint64_t n, float momentum)
{
	uint64_t expected = 0, got = 0;
	struct remote shadow = remote_fill(g, n, kind, n + 3);
	struct remote velocity = remote_fill(g, n, (kind + 1) % KIND_COUNT, n + 4);
	struct remote dropped = remote_copy(g, &got, sizeof got);
	float *want = malloc(n * sizeof *want + 1);
	struct spri_gpu_drop s = {remote_there(&shadow), remote_there(&velocity), momentum, n,
				  remote_there(&dropped)};

	memcpy(want, remote_here(&shadow), n * sizeof *want);
	for (uint64_t i = 0; i < n; i++) {
		float instead = momentum * ((const float *)remote_here(&velocity))[i];

		if (!is_bad(want[i]))
			continue;
		want[i] = is_bad(instead) ? 0 : instead;
		expected++;
	}
	expect(spri_gpu_drop_velocity(g->stream, &s) == 0, "drop_velocity is queued");
	expect_same(&shadow, want, n, "drop_velocity", kind);
	remote_fetch(&dropped);
	memcpy(&got, remote_here(&dropped), sizeof got);
	expect(got == expected, "drop_velocity, kind %u: %lu, expected %lu", kind, got, expected);
	free(want);
	expect(remote_end(&shadow) && remote_end(&velocity) && remote_end(&dropped),
	       "drop_velocity writes where it should");
}

Test(gpu_vector, drop_velocity)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++)
			check_drop(&g, kind, sizes[i], i % 2 ? 0.9f : 3e38f);
	remote_close(&g);
}
