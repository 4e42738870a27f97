/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What recorded steps are held to; see expect.h. */
#include "expect.h"

#include <check.h>
#include <internal/bits.h>
#include <stdlib.h>
#include <string.h>

/* One label for messages. */
const char *label(const struct run *run)
{
	static char s[160];
	const struct run_options *o = &run->options;

	snprintf(s, sizeof s, "%s, %d ranks, n %llu, density %g, seed %llu, policy %d", o->algo,
		 o->n_ranks, (unsigned long long)o->n, o->density, (unsigned long long)o->seed,
		 (int)o->policy);
	return s;
}

void expect_all_well(const struct run *run)
{
	for (int rank = 0; rank < run->options.n_ranks; rank++) {
		cr_assert(run->statuses[rank] == 0, "%s: rank %d ended with %s", label(run), rank,
			  spr_error_name(run->statuses[rank]));
		for (int step = 0; step < run->options.n_steps; step++) {
			const struct step_record *record = run_record(run, rank, step);

			cr_assert(record->status == 0 && record->result_status == 0,
				  "%s: rank %d, step %d: %s: %s", label(run), rank, step,
				  spr_error_name(record->status), record->text);
			cr_assert(record->stats.step == (uint64_t)step + 1,
				  "%s: rank %d: step %d counts as %llu", label(run), rank, step,
				  (unsigned long long)record->stats.step);
		}
	}
}

/* sum is sorted, without zeros; update is sum / P, zero elsewhere; both are rank 0's. */
void expect_result_form(const struct run *run)
{
	for (int step = 0; step < run->options.n_steps; step++) {
		const struct step_record *first = run_record(run, 0, step);

		for (int rank = 0; rank < run->options.n_ranks; rank++) {
			const struct step_record *r = run_record(run, rank, step);
			float factor = (float)(1.0 / run->options.n_ranks);
			uint64_t at = 0;

			cr_assert(r->sum_count == first->sum_count,
				  "%s: rank %d has %llu entries, rank 0 %llu", label(run), rank,
				  (unsigned long long)r->sum_count,
				  (unsigned long long)first->sum_count);
			cr_assert(!memcmp(r->sum_index, first->sum_index,
					  r->sum_count * sizeof *r->sum_index) &&
					  !memcmp(r->sum_value, first->sum_value,
						  r->sum_count * sizeof *r->sum_value),
				  "%s: rank %d has another sum than rank 0", label(run), rank);
			for (uint64_t i = 0; i < run->options.n; i++) {
				bool in = at < r->sum_count && r->sum_index[at] == i;
				float expected = in ? r->sum_value[at] * factor : 0;

				if (in && !is_masked(run->options.algo))
					cr_assert(r->sum_value[at] != 0, "%s: no zero entries",
						  label(run));
				at += in;
				cr_assert(spri_f32_bits(r->update[i]) == spri_f32_bits(expected),
					  "%s: rank %d, update[%llu] is %a, expected %a",
					  label(run), rank, (unsigned long long)i, r->update[i],
					  expected);
			}
			cr_assert(at == r->sum_count, "%s: entries in ascending order, below n",
				  label(run));
		}
	}
}

void expect_mass(const struct run *run)
{
	double *before = calloc(run->options.n, sizeof *before),
	       *after = calloc(run->options.n, sizeof *after);

	for (int step = 0; step < run->options.n_steps; step++) {
		const struct step_record *r = run_record(run, 0, step);

		memset(before, 0, run->options.n * sizeof *before);
		memset(after, 0, run->options.n * sizeof *after);
		for (uint64_t i = 0; i < r->sum_count; i++)
			after[r->sum_index[i]] = (double)r->sum_value[i];
		for (int rank = 0; rank < run->options.n_ranks; rank++) {
			r = run_record(run, rank, step);
			for (uint64_t i = 0; i < run->options.n; i++) {
				before[i] += (double)r->before[i] + (double)r->gradient[i];
				after[i] += (double)r->after[i];
			}
		}
		for (uint64_t i = 0; i < run->options.n; i++)
			cr_assert(before[i] == after[i],
				  "%s: step %d, element %llu: %.10g went in, %.10g came out",
				  label(run), step, (unsigned long long)i, before[i], after[i]);
	}
	free(before);
	free(after);
}

void expect_same(const struct run *run, const struct run *base, const char *what)
{
	expect_all_well(run);
	for (int rank = 0; rank < base->options.n_ranks; rank++)
		for (int step = 0; step < base->options.n_steps; step++)
			cr_assert(record_digest(run, rank, step) == record_digest(base, rank, step),
				  "%s: rank %d, step %d: other bits with %s", label(base), rank,
				  step, what);
}

/* Step `step` failed on every rank with this status, and everything is as before. */
void expect_none(const struct run *run, int step, int status, const char *part)
{
	for (int rank = 0; rank < run->options.n_ranks; rank++) {
		const struct step_record *r = run_record(run, rank, step);

		cr_assert(r->start_status == 0 && r->status == status,
			  "%s: rank %d, step %d: expected %s, got %s: %s", label(run), rank, step,
			  spr_error_name(status), spr_error_name(r->status), r->text);
		cr_assert(strstr(r->text, part) != NULL,
			  "%s: rank %d: expected a text with '%s', got '%s'", label(run), rank,
			  part, r->text);
		if (r->before)
			cr_assert(!memcmp(r->before, r->after, run->options.n * sizeof *r->before),
				  "%s: rank %d: the residual is as before", label(run), rank);
		for (uint64_t i = 0; i < run->options.n; i++)
			cr_assert(r->update[i] == -12345, "%s: rank %d: the update is untouched",
				  label(run), rank);
		cr_assert(r->stats.step == (uint64_t)step, "%s: rank %d: the step does not count",
			  label(run), rank);
	}
}

/* The step after a failed one does what it would have done in its place. */
void expect_as_if_nothing(const struct run_options *o, const struct run *run, int failed)
{
	struct run_options clean = *o;
	struct run *base;

	clean.gradient = gradient_integers;
	clean.n_steps = failed;
	base = run_steps(&clean);
	for (int rank = 0; rank < o->n_ranks; rank++) {
		for (int step = 0; step < failed; step++)
			cr_assert(record_digest(run, rank, step) == record_digest(base, rank, step),
				  "%s: rank %d: steps before are the same", label(run), rank);
		cr_assert(run_record(run, rank, failed + 1)->status == 0,
			  "%s: rank %d: the next step works: %s", label(run), rank,
			  run_record(run, rank, failed + 1)->text);
	}
	run_free(base);
}
