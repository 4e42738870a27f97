/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Times the kernels, every row of the table that this CPU runs side by side, against a copy of
 * as many bytes measured in the same run. Happy path:
 *
 *   1. for each size: two vectors that look like a gradient and a residual; the time of memcpy
 *   2. dense kernels per row: scan, reduce, axpby, importance (with and without a choice); per
 *      density: select from no threshold (first) and from the carried one (steady)
 *   3. sparse kernels per list length: merge of two lists, cut, trim
 *   4. select's result is folded into a number that has to be the same on every row
 *
 * Links the static kernels, not the library: it sees what users do not. Failures: a refused
 * command line (2), no memory or rows that differ (1).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/philox.h>

#include <json.h>
#include <kernel.h>
#include <options.h>
#include <stats.h>
#include <table.h>

#define MAX_DENSITIES 16
#define MAX_ITERATIONS 1000

static struct {
	uint64_t min_count, max_count, factor, iterations;
	const char *densities;
	const char *json;
} config = {1 << 16, 1 << 24, 16, 9, "0.001,0.01", NULL};

static const struct perf_option option_table[] = {
	{'b', "min-count", PERF_OPT_SIZE, "N", "fewest elements", &config.min_count, 1, 1u << 30},
	{'e', "max-count", PERF_OPT_SIZE, "N", "most elements", &config.max_count, 1, 1u << 30},
	{'f', "factor", PERF_OPT_U64, "F", "from one size to the next", &config.factor, 2, 1 << 20},
	{'n', "iterations", PERF_OPT_U64, "N", "runs of each; the median is printed",
	 &config.iterations, 1, MAX_ITERATIONS},
	{'D', "density", PERF_OPT_STRING, "D,...", "densities: k = max(1, D times elements)",
	 &config.densities, 0, 0},
	{0, "json", PERF_OPT_STRING, "FILE", "write the records there too; -: standard output",
	 &config.json, 0, 0},
};

static const struct perf_options options = {
	"spr_kernel_perf",
	"times selection, importance, merge, trim and sums against memory bandwidth",
	"[OPTIONS]",
	"GB/s counts the bytes that a kernel must move; copy is memcpy's GB/s.",
	option_table,
	spri_countof(option_table),
	false};

static const struct perf_column columns[] = {
	{"kernel", NULL, -14}, {"isa", NULL, -7},   {"count", "", 10},	{"k", "", 9},
	{"time", "us", 10},    {"rate", "GB/s", 8}, {"entry", "ns", 8}, {"copy", "ratio", 7},
};

/* Memory of the largest size. */
struct field {
	float *gradient, *residual, *weight, *shadow;
	uint64_t *index[4]; /* two inputs, merged, trimmed */
	float *value[4];
};

struct report {
	struct perf_table *table;
	struct perf_json *json; /* NULL: none */
	double copy_rate;	/* bytes per second of the copy at this size */
	uint64_t digest;	/* of select, from the first row; 0: none yet */
	int wrong;		/* results that differ between rows */
};

/* What is being timed. */
struct job {
	const struct spri_kernel_row *row;
	struct field *field;
	uint64_t n, k;
	uint32_t threshold; /* carried from run to run */
	uint64_t count;	    /* of the result */
	uint64_t entries;   /* that the time is divided by */
	float mean;	    /* importance, of the run before */
	uint64_t digest;    /* of the result */
};

typedef void (*job_fn)(struct job *job);

/* ---- jobs ---- */

static void run_copy(struct job *job)
{
	memcpy(job->field->shadow, job->field->gradient, job->n * sizeof(float));
}

static void run_scan(struct job *job)
{
	struct spri_scan s = {.gradient = job->field->gradient,
			      .residual = job->field->residual,
			      .scale = 1,
			      .shadow = job->field->shadow,
			      .n = job->n,
			      .threshold = 0x7fffffff};

	job->row->scan(&s);
}

static void run_select(struct job *job)
{
	struct spri_select s = {.gradient = job->field->gradient,
				.residual = job->field->residual,
				.scale = 1,
				.shadow = job->field->shadow,
				.n = job->n,
				.k = job->k,
				.threshold = job->threshold,
				.index = job->field->index[2],
				.value = job->field->value[2],
				.capacity = spri_select_capacity(job->n, job->k)};

	spri_select(&s);
	job->threshold = s.threshold;
	job->count = s.count;
}

static void run_first(struct job *job)
{
	job->threshold = 0;
	run_select(job);
}

static void run_reduce(struct job *job)
{
	job->row->reduce(job->field->shadow, job->field->shadow, job->field->gradient, job->n);
}

/* Momentum: in place, like the training step. */
static void run_axpby(struct job *job)
{
	job->row->axpby(job->field->shadow, 0.9f, job->field->shadow, 0.1f, job->field->gradient,
			job->n);
}

/* One rank's pass: weighs, and chooses about one element in 64. */
static void run_choose(struct job *job, bool choose)
{
	struct field *f = job->field;
	struct spri_importance s = {.gradient = f->gradient,
				    .residual = f->residual,
				    .weight = f->weight,
				    .shadow = f->shadow,
				    .n = job->n,
				    .scale = 1,
				    .floor = 1e-3f,
				    .choose = choose,
				    .threshold = 64 * job->mean,
				    .key = 1,
				    .index = f->index[2],
				    .capacity = job->n};

	spri_importance(&s);
	job->mean = (float)(s.sum / (double)job->n);
	job->count = s.count;
	job->digest = spri_mix64((uint64_t)(s.sum * 0x1p20) ^ (uint64_t)(s.sum_squares * 0x1p40));
	for (uint64_t i = 0; i < s.count; i++)
		job->digest = spri_mix64(job->digest ^ s.index[i]);
}

static void run_weigh(struct job *job)
{
	run_choose(job, false);
}

static void run_weigh_draw(struct job *job)
{
	run_choose(job, true);
}

static void run_norm(struct job *job)
{
	job->count = spri_norm2(job->field->gradient, job->n) > 0;
}

static void run_merge(struct job *job)
{
	struct field *f = job->field;
	struct spri_list out = {f->index[2], f->value[2], 0, 2 * job->k};
	struct spri_finite finite = SPRI_FINITE_NONE;

	spri_merge(&out, f->index[0], f->value[0], job->k, f->index[1], f->value[1], job->k,
		   SPR_NONFINITE_ERROR, &finite);
	job->entries = job->count = out.count;
}

static void run_cut(struct job *job)
{
	uint64_t n_equal;

	spri_cut(job->field->value[2], job->entries, job->k, &job->threshold, &n_equal);
}

static void run_trim(struct job *job)
{
	struct field *f = job->field;
	struct spri_list list = {f->index[2], f->value[2], job->entries, job->entries};
	struct spri_list trimmed = {f->index[3], f->value[3], 0, job->entries};

	spri_trim(&list, job->k, &trimmed);
}

/* ---- timing and printing ---- */

/* Median nanoseconds of fn; `before` (or NULL) runs ahead of each, outside the time. */
static double time_ns(job_fn before, job_fn fn, struct job *job)
{
	double ns[MAX_ITERATIONS];

	if (before)
		before(job);
	fn(job); /* pages and caches */
	for (uint64_t i = 0; i < config.iterations; i++) {
		uint64_t start;

		if (before)
			before(job);
		start = spri_now_ns();
		fn(job);
		ns[i] = (double)(spri_now_ns() - start);
	}
	return perf_stats_median_of(ns, config.iterations);
}

/* bytes 0: no rate; entries 0: no time per entry. */
static void report_line(struct report *r, const char *kernel, const struct job *job, double ns,
			double bytes, uint64_t entries)
{
	const char *isa = job->row ? spri_isa_name(job->row->isa) : "all";
	double rate = bytes / ns;

	perf_table_cell(r->table, "%s", kernel);
	perf_table_cell(r->table, "%s", isa);
	perf_table_cell(r->table, "%llu", (unsigned long long)job->n);
	perf_table_cell(r->table, "%llu", (unsigned long long)job->k);
	perf_table_cell(r->table, "%.1f", ns * 1e-3);
	perf_table_cell(r->table, bytes > 0 ? "%.2f" : "-", rate);
	perf_table_cell(r->table, entries ? "%.3f" : "-", ns / (double)(entries ? entries : 1));
	perf_table_cell(r->table, bytes > 0 ? "%.2f" : "-", rate * 1e9 / r->copy_rate);
	if (!r->json)
		return;
	perf_json_begin_object(r->json, NULL);
	perf_json_string(r->json, "kernel", kernel);
	perf_json_string(r->json, "isa", isa);
	perf_json_u64(r->json, "count", job->n);
	perf_json_u64(r->json, "k", job->k);
	perf_json_double(r->json, "time_ns", ns);
	perf_json_double(r->json, "bytes", bytes);
	perf_json_u64(r->json, "entries", entries);
	perf_json_double(r->json, "copy_bytes_per_s", r->copy_rate);
	perf_json_end_object(r->json);
}

/* ---- one size ---- */

/*
 * Gradient-like: many small, few large; the sum of twelve uniforms would be the same for twice the
 * work.
 */
static void fill(float *v, uint64_t n, uint64_t key)
{
	for (uint64_t i = 0; i < n; i++) {
		double u = ((double)(spri_philox(key, i) >> 11) + 1) * 0x1p-53;

		v[i] = (float)(log(u) * (spri_philox(key, i) & 1 ? 1e-3 : -1e-3));
	}
}

static void check_digest(struct report *r, const struct job *job)
{
	uint64_t digest = spri_mix64(job->count);

	for (uint64_t i = 0; i < job->count; i++)
		digest = spri_mix64(digest ^ job->field->index[2][i] << 32 ^
				    spri_f32_bits(job->field->value[2][i]));
	if (r->digest == 0)
		r->digest = digest;
	if (digest == r->digest && job->count == job->k)
		return;
	fprintf(stderr,
		"spr_kernel_perf: %s selects %llu of %llu entries, or others than the best row\n",
		spri_isa_name(job->row->isa), (unsigned long long)job->count,
		(unsigned long long)job->k);
	r->wrong++;
}

static void measure_dense(struct report *r, struct field *field, uint64_t n)
{
	struct job job = {.field = field, .n = n};
	const struct spri_kernel_row *row;
	double bytes = (double)n * 12, ns;

	ns = time_ns(NULL, run_copy, &job);
	r->copy_rate = (double)n * 8 / ns * 1e9;
	report_line(r, "copy", &job, ns, (double)n * 8, n);
	for (unsigned i = 0; (row = spri_kernel_row(i)); i++) {
		if (row->isa > spri_cpu_isa())
			continue;
		job.row = row;
		report_line(r, "scan", &job, time_ns(NULL, run_scan, &job), bytes, n);
		report_line(r, "reduce", &job, time_ns(NULL, run_reduce, &job), bytes, n);
		report_line(r, "axpby", &job, time_ns(NULL, run_axpby, &job), bytes, n);
	}
	job.row = NULL;
	report_line(r, "norm", &job, time_ns(NULL, run_norm, &job), (double)n * 4, n);
}

static void measure_importance(struct report *r, struct field *field, uint64_t n)
{
	const struct spri_kernel_row *row;
	uint64_t digest = 0;

	for (unsigned i = 0; (row = spri_kernel_row(i)); i++) {
		struct job job = {.row = row, .field = field, .n = n};
		double ns;

		if (row->isa > spri_cpu_isa())
			continue;
		spri_isa_allow(row->isa);
		ns = time_ns(NULL, run_weigh, &job);
		report_line(r, "importance", &job, ns, (double)n * 16, n);
		ns = time_ns(NULL, run_weigh_draw, &job);
		job.k = job.count;
		report_line(r, "and choice", &job, ns, (double)n * 16, n);
		digest = digest ? digest : job.digest;
		if (digest != job.digest) {
			fprintf(stderr, "spr_kernel_perf: %s chooses others than the best row\n",
				spri_isa_name(row->isa));
			r->wrong++;
		}
	}
	spri_isa_allow(SPRI_ISA_COUNT - 1);
}

static void measure_select(struct report *r, struct field *field, uint64_t n, uint64_t k)
{
	const struct spri_kernel_row *row;

	r->digest = 0;
	for (unsigned i = 0; (row = spri_kernel_row(i)); i++) {
		struct job job = {.row = row, .field = field, .n = n, .k = k};
		double ns;

		if (row->isa > spri_cpu_isa())
			continue;
		spri_isa_allow(row->isa);
		ns = time_ns(NULL, run_first, &job);
		report_line(r, "select first", &job, ns, (double)n * 12, n);
		check_digest(r, &job);
		run_select(&job);
		ns = time_ns(NULL, run_select, &job);
		report_line(r, "select steady", &job, ns, (double)n * 12, n);
		check_digest(r, &job);
	}
	spri_isa_allow(SPRI_ISA_COUNT - 1);
}

/* Two lists of k entries at random places of n. */
static void measure_sparse(struct report *r, struct field *field, uint64_t n, uint64_t k)
{
	struct job job = {.field = field, .n = n, .k = k};
	uint64_t gap = n / k, at[2] = {0, 0};
	double ns;

	for (uint64_t i = 0; i < k; i++) {
		for (unsigned side = 0; side < 2; side++) {
			at[side] += 1 + spri_philox(side, i) % (2 * gap);
			field->index[side][i] = at[side];
			field->value[side][i] = field->gradient[(i + side * k) % n];
		}
	}
	ns = time_ns(NULL, run_merge, &job);
	report_line(r, "merge", &job, ns, 0, job.entries);
	ns = time_ns(NULL, run_cut, &job);
	report_line(r, "cut", &job, ns, 0, job.entries);
	ns = time_ns(run_merge, run_trim, &job);
	report_line(r, "trim", &job, ns, 0, job.entries);
}

/* ---- the run ---- */

static int parse_densities(double *density, unsigned *n)
{
	char text[256], *rest = text, *word;

	*n = 0;
	snprintf(text, sizeof text, "%s", config.densities);
	while ((word = strsep(&rest, ","))) {
		if (*n == MAX_DENSITIES || !perf_parse_double(word, &density[*n]) ||
		    !(density[*n] > 0 && density[*n] <= 1))
			return perf_options_refuse(&options,
						   "--density %s: expected at most %d numbers "
						   "above 0 and at most 1, with commas between",
						   config.densities, MAX_DENSITIES);
		++*n;
	}
	return 0;
}

static void field_free(struct field *f)
{
	free(f->gradient);
	free(f->residual);
	free(f->weight);
	free(f->shadow);
	for (unsigned i = 0; i < 4; i++) {
		free(f->index[i]);
		free(f->value[i]);
	}
}

/* Room for n elements and lists of all of them. Returns false when memory is out. */
static bool field_alloc(struct field *f, uint64_t n)
{
	uint64_t bytes = spri_align_up(n * sizeof(float), 64);
	bool whole = true;

	f->gradient = aligned_alloc(64, bytes);
	f->residual = aligned_alloc(64, bytes);
	f->weight = aligned_alloc(64, bytes);
	f->shadow = aligned_alloc(64, bytes);
	for (unsigned i = 0; i < 4; i++) {
		f->index[i] = malloc(2 * n * sizeof(uint64_t)); /* untouched pages cost nothing */
		f->value[i] = malloc(2 * n * sizeof(float));
		whole = whole && f->index[i] && f->value[i];
	}
	return whole && f->gradient && f->residual && f->weight && f->shadow;
}

static void measure(struct report *report, struct field *field, const double *density,
		    unsigned n_densities)
{
	for (uint64_t n = config.min_count; n <= config.max_count; n *= config.factor) {
		fill(field->gradient, n, 1);
		fill(field->residual, n, 2);
		fill(field->weight, n, 3);
		memset(field->shadow, 0, n * sizeof(float));
		measure_dense(report, field, n);
		measure_importance(report, field, n);
		for (unsigned i = 0; i < n_densities; i++) {
			uint64_t k = spri_max_u64((uint64_t)((double)n * density[i]), 1);

			measure_select(report, field, n, k);
			measure_sparse(report, field, n, k);
		}
	}
}

int main(int argc, char **argv)
{
	double density[MAX_DENSITIES];
	struct report report = {0};
	struct field field = {0};
	unsigned n_densities;
	int first, r = perf_options_parse(&options, argc, argv, &first);

	if (r)
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	if (parse_densities(density, &n_densities) < 0)
		return PERF_EXIT_USAGE;
	if (config.min_count > config.max_count) {
		perf_options_refuse(&options, "-e is below -b");
		return PERF_EXIT_USAGE;
	}
	report.table = perf_table_create(stdout, columns, spri_countof(columns), true);
	if (!report.table || !field_alloc(&field, config.max_count)) {
		fprintf(stderr, "spr_kernel_perf: no memory for %llu elements\n",
			(unsigned long long)config.max_count);
		field_free(&field);
		perf_table_destroy(report.table);
		return 1;
	}
	if (config.json) {
		report.json = perf_json_create(config.json);
		perf_json_begin_object(report.json, NULL);
		perf_json_string(report.json, "schema", "sparring.kernel_perf");
		perf_json_u64(report.json, "version", 1);
		perf_json_machine(report.json, "machine");
		perf_json_begin_array(report.json, "records");
	}
	perf_table_header(report.table);
	measure(&report, &field, density, n_densities);
	field_free(&field);
	perf_table_destroy(report.table);
	if (config.json) {
		perf_json_end_array(report.json);
		perf_json_end_object(report.json);
		r = perf_json_commit(report.json);
		if (r < 0)
			fprintf(stderr, "spr_kernel_perf: %s: %s\n", config.json, strerror(-r));
	}
	return r < 0 || report.wrong ? 1 : 0;
}
