/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The five promises of docs/architecture.md, each a test of its name, over every sparse
 * algorithm of the table and many numbers of ranks, with residuals that evolve over several
 * steps.
 */
#include "expect.h"

#include <check.h>
#include <cpu.h>
#include <errno.h>
#include <fenv.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <kernel.h>
#include <stdlib.h>
#include <string.h>

/*
 * Lengths and densities worth trying: one element, fewer than ranks, k = 1, k = n, more
 * than a chunk.
 */
static const struct {
	uint64_t n;
	double density;
} shapes[] = {{1, 1}, {5, 0.2}, {7, 1}, {64, 0.001}, {1000, 0.05}, {3000, 0.4}};

Test(promises, mass_conservation, .timeout = 500)
{
	for (unsigned a = 0; residual_algo(a); a++) {
		for (const int *p = promise_ranks; *p; p++)
			for (size_t s = 0; s < spri_countof(shapes); s++) {
				struct run_options o =
					RUN_OPTIONS(.n_ranks = *p, .algo = residual_algo(a),
						    .n = shapes[s].n, .density = shapes[s].density,
						    .n_steps = 4);
				struct run *run = run_steps(&o);

				expect_all_well(run);
				expect_result_form(run);
				expect_mass(run);
				run_free(run);
			}
		struct run_options many = RUN_OPTIONS(.n_ranks = 96, .algo = residual_algo(a),
						      .n = 200, .density = 0.05, .n_steps = 3);
		struct run *run = run_steps(&many);

		expect_all_well(run);
		expect_result_form(run);
		expect_mass(run);
		run_free(run);
	}
}

/* ---- same bits ---- */

static void same_bits_of(const struct run_options *o)
{
	struct run *base = run_steps(o), *run;
	struct run_options other;

	expect_all_well(base);
	expect_result_form(base); /* all ranks alike */
	run = run_steps(o);
	expect_same(run, base, "another run");
	run_free(run);
	for (uint64_t seed = 1; seed <= 3; seed++) {
		other = *o;
		other.seed = seed;
		other.jitter_ns = 20000;
		run = run_steps(&other);
		expect_same(run, base, "other arrival times");
		run_free(run);
	}
	for (int isa = 0; isa <= (int)spri_cpu_isa(); isa++) {
		spri_isa_allow((enum spri_isa)isa);
		run = run_steps(o);
		expect_same(run, base, spri_isa_name((enum spri_isa)isa));
		run_free(run);
	}
	spri_isa_allow(spri_cpu_isa());
	other = *o;
	other.landing_bytes = 16 << 20;
	run = run_steps(&other);
	expect_same(run, base, "larger landing memory");
	run_free(run);
	other.landing_bytes = 0x20000;
	run = run_steps(&other);
	expect_same(run, base, "smaller landing memory");
	run_free(run);
	other = *o;
	other.rounding = FE_UPWARD;
	run = run_steps(&other);
	expect_same(run, base, "the caller's rounding mode upward");
	run_free(run);
	run_free(base);
}

Test(promises, same_bits, .timeout = 500)
{
	for (unsigned a = 0; residual_algo(a); a++)
		for (const int *p = promise_ranks; *p; p++) {
			struct run_options o = RUN_OPTIONS(.n_ranks = *p, .algo = residual_algo(a),
							   .n = 2000, .density = 0.1, .n_steps = 3,
							   .gradient = gradient_floats);

			same_bits_of(&o);
		}
}

/* ---- exactly k ---- */

static void gradient_equal(const struct run *run, int rank, int step, float *g)
{
	(void)rank;
	(void)step;
	for (uint64_t i = 0; i < run->options.n; i++)
		g[i] = 0.5f;
}

static void gradient_positive(const struct run *run, int rank, int step, float *g)
{
	gradient_integers(run, rank, step, g);
	for (uint64_t i = 0; i < run->options.n; i++)
		g[i] = (g[i] < 0 ? -g[i] : g[i]) + 1.0f / 1024;
}

/* Rank r has three non-zero values, at 10 r, 10 r + 1 and 500. */
static void gradient_few(const struct run *run, int rank, int step, float *g)
{
	memset(g, 0, run->options.n * sizeof *g);
	if (step > 0)
		return;
	g[10 * rank] = 1;
	g[10 * rank + 1] = -2;
	g[500] = 3;
}

static bool keeps_k(const char *algo)
{
	return !strncmp(algo, "gtopk", 5);
}

static void expect_k(struct run_options o, uint64_t expected, uint64_t expected_all)
{
	struct run *run = run_steps(&o);

	expect_all_well(run);
	expect_result_form(run);
	expect_mass(run);
	for (int rank = 0; rank < o.n_ranks; rank++) {
		const struct step_record *r = run_record(run, rank, 0);

		if (keeps_k(o.algo))
			cr_assert(r->sum_count == expected,
				  "%s: expected exactly %llu entries, got %llu", label(run),
				  (unsigned long long)expected, (unsigned long long)r->sum_count);
		else if (!strcmp(o.algo, "prune_ring"))
			cr_assert(r->sum_count <= expected,
				  "%s: expected at most %llu entries, got %llu", label(run),
				  (unsigned long long)expected, (unsigned long long)r->sum_count);
		else
			cr_assert(r->sum_count >= expected && r->sum_count <= expected_all,
				  "%s: expected %llu to %llu entries, got %llu", label(run),
				  (unsigned long long)expected, (unsigned long long)expected_all,
				  (unsigned long long)r->sum_count);
		cr_assert(r->stats.received == r->sum_count && r->stats.selected <= r->stats.k,
			  "%s: statistics agree", label(run));
	}
	run_free(run);
}

Test(promises, exactly_k, .timeout = 500)
{
	for (unsigned a = 0; sparse_algo(a); a++)
		for (const int *p = promise_ranks; *p; p++) {
			struct run_options o =
				RUN_OPTIONS(.n_ranks = *p, .algo = sparse_algo(a), .n = 1000,
					    .density = 0.033, .n_steps = 2);
			uint64_t few = 2 * (uint64_t)*p + 1;

			/* Without cancellation every merge has at least k non-zeros. */
			o.gradient = gradient_positive;
			expect_k(o, 33, 33 * (uint64_t)*p);
			/* All equal: the smallest indices win, on every rank alike. */
			o.gradient = gradient_equal;
			expect_k(o, 33, 33);
			/* Fewer non-zeros than k: all of them. */
			o.gradient = gradient_few;
			o.density = 0.1;
			expect_k(o, few, few);
			/* The one and only. */
			o.gradient = gradient_positive;
			o.density = 0.0001;
			expect_k(o, 1, (uint64_t)*p);
		}
}

/* ---- NaN and infinity ---- */

/* What to put where: values[i] at (rank[i], step[i], index[i]); ends with rank −1. */
struct spot {
	int rank, step;
	uint64_t index;
	uint32_t bits;
};

static void gradient_spots(const struct run *run, int rank, int step, float *g)
{
	gradient_integers(run, rank, step, g);
	for (const struct spot *s = run->options.arg; s->rank >= 0; s++)
		if (s->rank == rank && s->step == step)
			g[s->index] = spri_f32_from_bits(s->bits);
}

#define HUGE_BITS 0x7f61b1e6u /* 3e38 */
#define INF_BITS 0x7f800000u
#define OTHER_NAN_BITS 0xffc12345u

static void nonfinite_input(const char *algo, int n_ranks, int rank, uint32_t bits)
{
	const struct spot spots[] = {{rank, 1, 17, bits}, {rank, 1, 400, bits}, {.rank = -1}};
	struct run_options o =
		RUN_OPTIONS(.n_ranks = n_ranks, .algo = algo, .n = 500, .density = 0.05,
			    .n_steps = 3, .gradient = gradient_spots, .arg = spots);
	char part[64];
	struct run *run, *clean;
	struct run_options zeroed;
	const struct spot zeros[] = {{rank, 1, 17, 0}, {rank, 1, 400, 0}, {.rank = -1}};

	run = run_steps(&o);
	snprintf(part, sizeof part, "%s: rank %d: a value is NaN or infinite (element 17)", algo,
		 rank);
	expect_none(run, 1, SPR_ENONFINITE, part);
	expect_as_if_nothing(&o, run, 1);
	run_free(run);

	/* Dropped: as if it had been zero. */
	o.policy = SPR_NONFINITE_DROP;
	run = run_steps(&o);
	zeroed = o;
	zeroed.arg = zeros;
	clean = run_steps(&zeroed);
	expect_same(run, clean, "zeros in place of what was dropped");
	expect_result_form(run);
	cr_assert(run_record(run, rank, 1)->stats.dropped == 2,
		  "%s: expected 2 dropped values, got %llu", label(run),
		  (unsigned long long)run_record(run, rank, 1)->stats.dropped);
	run_free(run);
	run_free(clean);
}

/* Propagated: first in the order, NaN with one pattern, the same on all ranks. */
static void nonfinite_propagated(const char *algo, int n_ranks, int rank, uint32_t bits)
{
	const struct spot spots[] = {{rank, 1, 17, bits}, {rank, 1, 400, bits}, {.rank = -1}};
	struct run_options o =
		RUN_OPTIONS(.n_ranks = n_ranks, .algo = algo, .n = 500, .density = 0.05,
			    .n_steps = 3, .gradient = gradient_spots, .arg = spots,
			    .policy = SPR_NONFINITE_PROPAGATE);
	struct run *run = run_steps(&o);

	for (int i = 0; i < n_ranks; i++) {
		const struct step_record *r = run_record(run, i, 1);
		uint32_t expected = bits == OTHER_NAN_BITS ? SPRI_NAN_BITS : bits;

		cr_assert(r->status == 0, "%s: rank %d: %s", label(run), i, r->text);
		cr_assert(spri_f32_bits(r->update[17]) == expected &&
				  spri_f32_bits(r->update[400]) == expected,
			  "%s: rank %d: expected %08x at 17 and 400, got %08x and %08x", label(run),
			  i, expected, spri_f32_bits(r->update[17]), spri_f32_bits(r->update[400]));
		cr_assert(!memcmp(r->update, run_record(run, 0, 1)->update, o.n * sizeof(float)),
			  "%s: rank %d has rank 0's update", label(run), i);
	}
	run_free(run);
}

/* Two finite values whose sum is not. */
static void nonfinite_sum(const char *algo, int n_ranks, int one, int other)
{
	const struct spot spots[] = {
		{one, 1, 33, HUGE_BITS}, {other, 1, 33, HUGE_BITS}, {.rank = -1}};
	struct run_options o =
		RUN_OPTIONS(.n_ranks = n_ranks, .algo = algo, .n = 500, .density = 0.05,
			    .n_steps = 3, .gradient = gradient_spots, .arg = spots);
	struct run *run = run_steps(&o);

	expect_none(run, 1, SPR_ENONFINITE,
		    "in a sum of several ranks: a value is NaN or infinite (element 33)");
	expect_as_if_nothing(&o, run, 1);
	run_free(run);
	for (int policy = SPR_NONFINITE_PROPAGATE; policy <= SPR_NONFINITE_DROP; policy++) {
		uint32_t expected = policy == SPR_NONFINITE_DROP ? 0 : INF_BITS;

		o.policy = (enum spr_nonfinite)policy;
		run = run_steps(&o);
		expect_all_well(run);
		expect_result_form(run);
		cr_assert(spri_f32_bits(run_record(run, 0, 1)->update[33]) == expected,
			  "%s: expected %08x, got %08x", label(run), expected,
			  spri_f32_bits(run_record(run, 0, 1)->update[33]));
		run_free(run);
	}
}

/*
 * Gradient and residual are finite, their sum is not: found by the selection, with rank and
 * index.
 */
static void nonfinite_accumulation(const char *algo, int n_ranks, int rank)
{
	const struct spot spots[] = {{rank, 0, 3, HUGE_BITS},
				     {rank, 0, 5, HUGE_BITS + 1},
				     {rank, 1, 3, HUGE_BITS},
				     {.rank = -1}};
	struct run_options o =
		RUN_OPTIONS(.n_ranks = n_ranks, .algo = algo, .n = 500, .density = 0.001,
			    .n_steps = 2, .gradient = gradient_spots, .arg = spots);
	struct run *run = run_steps(&o);
	char part[64];

	snprintf(part, sizeof part, "rank %d: a value is NaN or infinite (element 3)", rank);
	expect_none(run, 1, SPR_ENONFINITE, part);
	run_free(run);
}

Test(promises, nonfinite, .timeout = 500)
{
	static const uint32_t bits[] = {INF_BITS, INF_BITS | 1u << 31, OTHER_NAN_BITS};

	for (unsigned a = 0; residual_algo(a); a++)
		for (size_t p = 0; promise_ranks[p]; p++) {
			int n = promise_ranks[p], stride = n > 9 ? 5 : n > 4 ? 3 : 1;

			for (int rank = 0; rank < n; rank += stride) {
				nonfinite_input(residual_algo(a), n, rank, bits[rank % 3]);
				if (is_masked(residual_algo(a)))
					continue; /* what is sent, others say: test_coll */
				nonfinite_propagated(residual_algo(a), n, rank, bits[rank % 3]);
				nonfinite_accumulation(residual_algo(a), n, rank);
				if (rank > 0)
					nonfinite_sum(residual_algo(a), n, rank, rank / 2);
			}
		}
}

/* ---- all or nothing ---- */

/* Step 1 of each rank is either as without the failure, or nothing of it has happened. */
static void expect_either(const struct run *run, const struct run *base)
{
	for (int rank = 0; rank < run->options.n_ranks; rank++) {
		const struct step_record *r = run_record(run, rank, 1);

		if (r->status == 0) {
			cr_assert(record_digest(run, rank, 1) == record_digest(base, rank, 1),
				  "%s: rank %d committed other bits", label(run), rank);
			continue;
		}
		cr_assert(!memcmp(r->before, r->after, run->options.n * sizeof *r->before),
			  "%s: rank %d: %s: the residual is as before", label(run), rank, r->text);
		cr_assert(r->update[0] == -12345, "%s: rank %d: the update is untouched",
			  label(run), rank);
	}
}

/*
 * One rank has no memory for the n-th allocation of a step. Our own: all fail alike. The
 * transport's (loop keeps its messages on the heap): the communicator breaks.
 */
static void poor_heap(const char *algo, int n_ranks, int rank)
{
	struct run_options o = RUN_OPTIONS(.n_ranks = n_ranks, .algo = algo, .n = 300,
					   .density = 0.1, .n_steps = 3, .poor_rank = rank);
	struct run *base = run_steps(&o), *run;
	bool ended = false, alike = false;
	char part[64];

	snprintf(part, sizeof part, "%s: rank %d: Cannot allocate memory", algo, rank);
	o.poor_step = 1;
	for (long n = 0; !ended; n++) {
		const struct step_record *r;

		cr_assert(n < 100, "%s: a step has fewer than 100 allocations", label(base));
		o.poor_after = n;
		run = run_steps(&o);
		r = run_record(run, rank, 1);
		ended = r->status == 0;
		if (ended) {
			expect_all_well(run);
			expect_mass(run);
		} else if (strstr(r->text, ": to rank ")) {
			expect_either(run, base);
		} else {
			expect_none(run, 1, -ENOMEM, part);
			expect_as_if_nothing(&o, run, 1);
			alike = true;
		}
		run_free(run);
	}
	cr_assert(alike, "%s: some allocation of a step was failed", label(base));
	run_free(base);
}

/* An argument that only one rank can know to be wrong. */
static void poor_argument(const char *algo, int n_ranks, int rank)
{
	struct run_options o =
		RUN_OPTIONS(.n_ranks = n_ranks, .algo = algo, .n = 300, .density = 0.1,
			    .n_steps = 3, .poor_rank = rank, .null_gradient = true);
	struct run *run;
	char part[32];

	o.poor_step = 1;
	run = run_steps(&o);
	snprintf(part, sizeof part, "%s: rank %d: ", algo, rank);
	expect_none(run, 1, SPR_EARGUMENT, part);
	if (strcmp(algo, "dense_ring"))
		expect_as_if_nothing(&o, run, 1);
	run_free(run);
}

/*
 * After a kill: each survivor has committed a step as it would have been, or nothing of it
 * has happened.
 */
static void expect_whole_steps(const struct run *run, const struct run *base)
{
	int dead = run->options.kill_rank;

	for (int rank = 0; rank < run->options.n_ranks; rank++) {
		bool broken = false;

		if (rank == dead)
			continue;
		cr_assert(run->statuses[rank] == 0, "%s: rank %d: %s", label(run), rank,
			  spr_error_name(run->statuses[rank]));
		for (int step = 0; step < run->options.n_steps; step++) {
			const struct step_record *r = run_record(run, rank, step);
			char name[24];

			cr_assert(r->finished, "%s: rank %d came to the end of step %d", label(run),
				  rank, step);
			if (r->status == 0) {
				cr_assert(!broken,
					  "%s: rank %d: no step succeeds after one that was lost",
					  label(run), rank);
				cr_assert(record_digest(run, rank, step) ==
						  record_digest(base, rank, step),
					  "%s: kill of %d at %llu: rank %d committed step %d with "
					  "other bits",
					  label(run), dead,
					  (unsigned long long)run->options.kill_ns, rank, step);
				continue;
			}
			broken = true;
			cr_assert(r->status == SPR_ELOST,
				  "%s: kill of %d at %llu: rank %d, step %d: expected SPR_ELOST, "
				  "got %s: %s",
				  label(run), dead, (unsigned long long)run->options.kill_ns, rank,
				  step, spr_error_name(r->status), r->text);
			snprintf(name, sizeof name, "rank %d ", dead);
			cr_assert(strstr(r->text, name) != NULL,
				  "%s: rank %d: expected a text that names %s, got '%s'",
				  label(run), rank, name, r->text);
			cr_assert(r->lost_rank == dead,
				  "%s: rank %d: expected lost rank %d, got %d", label(run), rank,
				  dead, r->lost_rank);
			if (r->before)
				cr_assert(!memcmp(r->before, r->after,
						  run->options.n * sizeof *r->before),
					  "%s: kill of %d at %llu: rank %d: the residual is as "
					  "before step %d",
					  label(run), dead,
					  (unsigned long long)run->options.kill_ns, rank, step);
			for (uint64_t i = 0; i < run->options.n; i++)
				cr_assert(r->update[i] == -12345,
					  "%s: rank %d: the update is untouched", label(run), rank);
		}
	}
}

/* A rank dies at many moments between the beginning of the first step and the end of the last. */
static void death(const char *algo, int n_ranks, int dead, int n_moments)
{
	struct run_options o = RUN_OPTIONS(.n_ranks = n_ranks, .algo = algo, .n = 600,
					   .density = 0.1, .n_steps = 2, .seed = 3);
	struct run *base = run_steps(&o);
	uint64_t span = base->end_ns - base->joined_ns;

	o.kill_rank = dead;
	for (int i = 0; i < n_moments; i++) {
		struct run *run;

		o.kill_ns = base->joined_ns + 1 + span * (uint64_t)i / (uint64_t)n_moments;
		run = run_steps(&o);
		expect_whole_steps(run, base);
		run_free(run);
	}
	run_free(base);
}

Test(promises, all_or_nothing, .timeout = 500)
{
	static const int ranks[] = {2, 3, 4, 5, 8, 9};
	struct spr_algo_info info;

	for (unsigned a = 0; spr_algo_info(a, &info) == 0; a++)
		for (size_t p = 0; p < spri_countof(ranks); p++)
			for (int rank = 0; rank<ranks[p]; rank += ranks[p]> 4 ? 3 : 1) {
				poor_argument(info.name, ranks[p], rank);
				if (info.sparse)
					poor_heap(info.name, ranks[p], rank);
				death(info.name, ranks[p], rank, 40);
			}
}
