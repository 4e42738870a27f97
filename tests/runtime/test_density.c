/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The density schedule of an exchange: which point holds, what k follows, what is refused. */
#include <check.h>
#include <errno.h>
#include <exchange/exchange.h>
#include <internal/alloc.h>
#include <math.h>
#include <string.h>

static int init(struct spr_exchange *exchange, const struct spr_density_point *points, size_t n,
		double density, struct spri_text *text)
{
	struct spr_exchange_options options = {
		.size = sizeof options, .density = density, .schedule = points, .n_schedule = n};

	*exchange = (struct spr_exchange){.n = 1000};
	return spri_density_init(exchange, &options, text);
}

Test(density, the_last_point_not_after_a_step_holds)
{
	static const struct spr_density_point points[] = {
		{0, 0.25}, {1, 0.0725}, {5, 0.015}, {1ull << 40, 0.001}};
	static const struct {
		uint64_t step;
		double density;
	} cases[] = {
		{0, 0.25},
		{1, 0.0725},
		{4, 0.0725},
		{5, 0.015},
		{(1ull << 40) - 1, 0.015},
		{1ull << 40, 0.001},
		{UINT64_MAX, 0.001},
	};
	struct spr_exchange exchange;
	struct spri_text text = {""};

	for (size_t n = 1; n <= spri_countof(points); n++) {
		cr_assert_eq(init(&exchange, points, n, 0, &text), 0, "%zu points: %s", n, text.s);
		for (size_t i = 0; i < spri_countof(cases); i++) {
			double expected = cases[i].density;

			/* The points that are not there do not hold. */
			for (size_t p = spri_countof(points) - 1; p >= n; p--)
				if (expected == points[p].density)
					expected = points[p - 1].density;
			cr_assert(spri_density_at(&exchange, cases[i].step) == expected,
				  "%zu points, step %llu: expected %g, got %g", n,
				  (unsigned long long)cases[i].step, expected,
				  spri_density_at(&exchange, cases[i].step));
		}
		spri_free(exchange.schedule);
	}
}

Test(density, one_density_or_the_default)
{
	struct spr_exchange exchange;
	struct spri_text text = {""};

	cr_assert_eq(init(&exchange, NULL, 0, 0, &text), 0);
	cr_assert(spri_density_at(&exchange, 17) == 0.001, "the default is 0.001");
	spri_free(exchange.schedule);
	cr_assert_eq(init(&exchange, NULL, 0, 1, &text), 0);
	cr_assert(spri_density_at(&exchange, 0) == 1, "1 is allowed");
	spri_free(exchange.schedule);
}

Test(density, k_is_the_floor_and_at_least_one)
{
	static const struct {
		double density;
		uint64_t n, k;
	} cases[] = {
		{0.001, 1, 1},
		{0.001, 1000, 1},
		{0.001, 1999, 1},
		{0.001, 2000, 2},
		{1, 7, 7},
		{0.5, 7, 3},
		{0.25, 4, 1},
		{1e-300, 1ull << 48, 1},
		{1, 1ull << 48, 1ull << 48},
		{0.5, 1ull << 48, 1ull << 47},
	};

	for (size_t i = 0; i < spri_countof(cases); i++)
		cr_assert(spri_density_k(cases[i].density, cases[i].n) == cases[i].k,
			  "density %g of %llu: expected %llu, got %llu", cases[i].density,
			  (unsigned long long)cases[i].n, (unsigned long long)cases[i].k,
			  (unsigned long long)spri_density_k(cases[i].density, cases[i].n));
}

Test(density, schedules_that_make_no_sense_are_refused)
{
	static const struct spr_density_point late[] = {{1, 0.1}},
					      same[] = {{0, 0.1}, {5, 0.2}, {5, 0.3}},
					      down[] = {{0, 0.1}, {5, 0.2}, {4, 0.3}},
					      zero[] = {{0, 0}}, more[] = {{0, 0.5}, {3, 1.0001}},
					      none[] = {{0, NAN}}, less[] = {{0, -0.1}};
	static const struct {
		const struct spr_density_point *points;
		size_t n;
		const char *part;
	} cases[] = {
		{late, 1, "point 0 of the density schedule is at step 1, must be 0"},
		{late, 0, "has no points"},
		{same, 3,
		 "point 2 of the density schedule is at step 5, must be after the one before"},
		{down, 3, "point 2 of the density schedule is at step 4, must be after"},
		{zero, 1, "the density from step 0 on is 0, must be above 0 and at most 1"},
		{more, 2, "the density from step 3 on is 1.0001, must be"},
		{none, 1, "must be above 0 and at most 1"},
		{less, 1, "the density from step 0 on is -0.1, must be"},
	};
	static const double alone[] = {-1, 1.5, NAN, INFINITY};
	struct spr_exchange exchange;
	struct spri_text text = {""};

	for (size_t i = 0; i < spri_countof(cases); i++) {
		cr_assert_eq(init(&exchange, cases[i].points, cases[i].n, 0, &text), SPR_EARGUMENT);
		cr_assert(strstr(text.s, cases[i].part) != NULL, "expected '%s', got '%s'",
			  cases[i].part, text.s);
		cr_assert_null(exchange.schedule);
	}
	for (size_t i = 0; i < spri_countof(alone); i++)
		cr_assert_eq(init(&exchange, NULL, 0, alone[i], &text), SPR_EARGUMENT, "density %g",
			     alone[i]);
}

Test(density, no_memory)
{
	struct spr_exchange exchange;
	struct spri_text text = {""};

	spri_heap_fail_after(0);
	cr_assert_eq(init(&exchange, NULL, 0, 0.5, &text), -ENOMEM);
	cr_assert_null(exchange.schedule);
}
