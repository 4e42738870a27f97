/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Times selection on a GPU beside a copy on the same GPU that moves as many bytes, and compares
 * its results with the scalar definition. For perf/gpu_check. Happy path:
 *
 *   1. opens the GPU (77 and the reason when there is none)
 *   2. for each size: a gradient and a residual that no two blocks have in common
 *   3. per density, in turns: the copy, selection without a threshold (first), with the carried
 *      one (steady), and that with its list in mapped host memory, chunk by chunk (mapped); all
 *      by events of the device
 *   4. first and steady against spri_select with the scalar row, on the same vectors, bit for bit
 *
 * A selection reads 8 bytes per element and writes 4; the copy reads 6 and writes 6. Lists are not
 * counted. Links the static kernels, not the library: it sees what users do not.
 *
 * Failures: a size that memory does not hold is left out, and said so; a refused command line (2);
 * results that differ, or a GPU that fails (1).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <internal/bits.h>
#include <internal/philox.h>

#include <json.h>
#include <kernel.h>
#include <options.h>
#include <stats.h>
#include <table.h>

#define EXIT_SKIPPED 77
#define MOST_WORDS 32
#define MOST_ITERATIONS 1000
#define BLOCK (UINT64_C(1) << 20) /* elements that the host makes; the GPU makes others of them */
#define CHUNK 4096u		  /* entries that are announced together, as exchanges do */

static struct {
	uint64_t gpu, iterations;
	const char *sizes, *densities, *json;
	bool probe;
} config = {0, 11, "1M,4M,16M,64M,256M", "0.1,0.01,0.001", NULL, false};

static const struct perf_option option_table[] = {
	{0, "gpu", PERF_OPT_U64, "N", "which (0)", &config.gpu, 0, 63},
	{0, "sizes", PERF_OPT_STRING, "N,...", "elements (1M,4M,16M,64M,256M)", &config.sizes, 0,
	 0},
	{'D', "density", PERF_OPT_STRING, "D,...", "k = max(1, D times elements) (0.1,0.01,0.001)",
	 &config.densities, 0, 0},
	{'n', "iterations", PERF_OPT_U64, "N", "of each; the median is printed (11)",
	 &config.iterations, 1, MOST_ITERATIONS},
	{0, "probe", PERF_OPT_FLAG, NULL, "only say which GPU there is", &config.probe, 0, 0},
	{0, "json", PERF_OPT_STRING, "FILE", "write the records there too; -: standard output",
	 &config.json, 0, 0},
};

static const struct perf_options options = {
	"gpu_bench",  "times selection on a GPU beside a copy of as many bytes",
	"[OPTIONS]",  "GB/s counts 12 bytes per element; ratio is that to the copy's.",
	option_table, spri_countof(option_table),
	false};

static const struct perf_column columns[] = {
	{"count", "", 10},	{"k", "", 9},	       {"copy", "GB/s", 8},
	{"first", "GB/s", 8},	{"steady", "GB/s", 8}, {"steady", "us", 10},
	{"steady", "ratio", 7}, {"mapped", "us", 10},  {"bits", "", 6},
};

/* ---- what is measured ---- */

enum { COPY, FIRST, STEADY, MAPPED, N_KINDS };

/* A size and a density. */
struct cell {
	uint64_t n, k;
	double density;
	double ns[N_KINDS]; /* medians */
	uint32_t threshold; /* carried */
	bool repaired;	    /* a steady selection needed a second pass */
	bool checked;	    /* false: the host has no memory for it */
	bool differs;
};

/* Vectors there, and lists there and in mapped host memory. */
struct field {
	struct spri_gpu *gpu;
	struct spri_gpu_stream *stream;
	void *inputs; /* gradient, residual, each `vector_bytes` */
	void *output; /* the shadow; room for the copy */
	size_t vector_bytes;
	void *index, *mapped_index, *mapped_index_host;
	void *value, *mapped_value, *mapped_value_host;
	void *flag, *flag_host;		  /* mapped */
	struct spri_gpu_selected *result; /* mapped */
	void *result_there;
	uint32_t sequence;
};

/* What the host compares with. */
struct host {
	float *gradient, *residual, *shadow, *got_shadow;
	uint64_t *index, *got_index;
	float *value, *got_value;
};

/* ---- memory ---- */

static void field_free_lists(struct field *f)
{
	spri_gpu_free(f->gpu, f->index);
	spri_gpu_free(f->gpu, f->value);
	if (f->mapped_index_host)
		spri_gpu_free_mapped(f->gpu, f->mapped_index_host);
	if (f->mapped_value_host)
		spri_gpu_free_mapped(f->gpu, f->mapped_value_host);
	if (f->flag_host)
		spri_gpu_free_mapped(f->gpu, f->flag_host);
	f->index = f->mapped_index_host = f->value = f->mapped_value_host = f->flag_host = NULL;
}

static int field_alloc_lists(struct field *f, uint64_t k)
{
	int r = spri_gpu_alloc(f->gpu, k * sizeof(uint64_t), &f->index);

	if (r == 0)
		r = spri_gpu_alloc(f->gpu, k * sizeof(float), &f->value);
	if (r == 0)
		r = spri_gpu_alloc_mapped(f->gpu, k * sizeof(uint64_t), &f->mapped_index_host,
					  &f->mapped_index);
	if (r == 0)
		r = spri_gpu_alloc_mapped(f->gpu, k * sizeof(float), &f->mapped_value_host,
					  &f->mapped_value);
	if (r == 0)
		r = spri_gpu_alloc_mapped(f->gpu, (k / CHUNK + 1) * sizeof(uint32_t), &f->flag_host,
					  &f->flag);
	return r;
}

static void field_free_vectors(struct field *f)
{
	spri_gpu_free(f->gpu, f->inputs);
	spri_gpu_free(f->gpu, f->output);
	f->inputs = f->output = NULL;
}

static int field_alloc_vectors(struct field *f, uint64_t n)
{
	int r;

	f->vector_bytes = spri_align_up(n * sizeof(float), 512);
	r = spri_gpu_alloc(f->gpu, 2 * f->vector_bytes, &f->inputs);
	return r < 0 ? r : spri_gpu_alloc(f->gpu, f->vector_bytes / 2 * 3, &f->output);
}

static void host_free(struct host *h)
{
	free(h->gradient);
	free(h->residual);
	free(h->shadow);
	free(h->got_shadow);
	free(h->index);
	free(h->got_index);
	free(h->value);
	free(h->got_value);
}

/* Returns false when memory is out; to be freed all the same. */
static bool host_alloc(struct host *h, uint64_t n, uint64_t k)
{
	uint64_t capacity = spri_select_capacity(n, k);

	*h = (struct host){
		.gradient = malloc(n * sizeof(float)),
		.residual = malloc(n * sizeof(float)),
		.shadow = malloc(n * sizeof(float)),
		.got_shadow = malloc(n * sizeof(float)),
		.index = malloc(capacity * sizeof(uint64_t)),
		.got_index = malloc(k * sizeof(uint64_t)),
		.value = malloc(capacity * sizeof(float)),
		.got_value = malloc(k * sizeof(float)),
	};
	return h->gradient && h->residual && h->shadow && h->got_shadow && h->index &&
	       h->got_index && h->value && h->got_value;
}

/* ---- data ---- */

/* Gradient-like: many small, few large. */
static void fill(float *v, uint64_t n, uint64_t key)
{
	for (uint64_t i = 0; i < n; i++) {
		double u = ((double)(spri_philox(key, i) >> 11) + 1) * 0x1p-53;

		v[i] = (float)(log(u) * (spri_philox(key, i) & 1 ? 1e-3 : -1e-3));
	}
}

/* A vector: the host's block times another factor each. */
static int spread(struct field *f, float *to, uint64_t n, uint64_t key)
{
	uint64_t length = spri_min_u64(n, BLOCK);
	float *block = calloc(length, sizeof *block);
	int r;

	if (!block)
		return -ENOMEM;
	fill(block, length, key);
	r = spri_gpu_copy(f->stream, to, block, length * sizeof *block);
	for (uint64_t at = length; r == 0 && at < n; at += length)
		r = spri_gpu_scale(f->stream, to + at, to, spri_min_u64(length, n - at),
				   1.0f + (float)(at / length) * 0x1p-10f);
	if (r == 0)
		r = spri_gpu_sync(f->stream);
	free(block);
	return r;
}

static float *gradient_of(const struct field *f)
{
	return f->inputs;
}

static float *residual_of(const struct field *f)
{
	return gradient_of(f) + f->vector_bytes / sizeof(float);
}

/* ---- one selection or copy ---- */

static int queue_select(struct field *f, const struct cell *c, uint32_t threshold, bool mapped)
{
	struct spri_gpu_select s = {
		.gradient = gradient_of(f),
		.residual = residual_of(f),
		.shadow = f->output,
		.scale = 1,
		.n = c->n,
		.k = c->k,
		.threshold = threshold,
		.index = mapped ? f->mapped_index : f->index,
		.value = mapped ? f->mapped_value : f->value,
		.chunk = mapped ? CHUNK : 0,
		.flag = f->flag,
		.sequence = ++f->sequence,
		.result = f->result_there,
	};

	return spri_gpu_select(f->stream, &s);
}

/* *ns may be NULL: not timed, and only queued. */
static int run(struct field *f, struct cell *c, unsigned kind, double *ns)
{
	int r = ns ? spri_gpu_time_begin(f->stream) : 0;

	if (r == 0 && kind == COPY)
		r = spri_gpu_copy(f->stream, f->output, f->inputs, f->vector_bytes / 2 * 3);
	else if (r == 0)
		r = queue_select(f, c, kind == FIRST ? 0 : c->threshold, kind == MAPPED);
	if (r == 0 && ns)
		r = spri_gpu_time_end(f->stream, ns);
	if (r == 0 && ns && kind != COPY) {
		c->repaired |= kind != FIRST && f->result->repaired;
		c->threshold = f->result->threshold;
	}
	return r;
}

/* All kinds in turns, so that what changes with time meets all of them. */
static int time_all(struct field *f, struct cell *c)
{
	static double ns[N_KINDS][MOST_ITERATIONS];
	double warm;
	int r = 0;

	for (unsigned kind = 0; r == 0 && kind < N_KINDS; kind++)
		r = run(f, c, kind, &warm);
	c->repaired = false;
	for (uint64_t i = 0; i < config.iterations; i++)
		for (unsigned kind = 0; r == 0 && kind < N_KINDS; kind++)
			r = run(f, c, kind, &ns[kind][i]);
	for (unsigned kind = 0; r == 0 && kind < N_KINDS; kind++)
		c->ns[kind] = perf_stats_median_of(ns[kind], config.iterations);
	return r;
}

/* ---- the same bits as the definition ---- */

/* The definition's result for this cell; its inputs are those on the GPU. */
static int define(struct field *f, struct host *h, const struct cell *c, struct spri_select *s)
{
	int r = spri_gpu_copy(f->stream, h->gradient, gradient_of(f), c->n * sizeof(float));

	if (r == 0)
		r = spri_gpu_copy(f->stream, h->residual, residual_of(f), c->n * sizeof(float));
	if (r == 0)
		r = spri_gpu_sync(f->stream);
	if (r < 0)
		return r;
	*s = (struct spri_select){.gradient = h->gradient,
				  .residual = h->residual,
				  .scale = 1,
				  .shadow = h->shadow,
				  .n = c->n,
				  .k = c->k,
				  .index = h->index,
				  .value = h->value,
				  .capacity = spri_select_capacity(c->n, c->k)};
	spri_isa_allow(SPRI_ISA_C);
	spri_select(s);
	return 0;
}

static int compare(struct field *f, struct host *h, struct cell *c, const struct spri_select *want,
		   unsigned kind)
{
	const void *index = kind == MAPPED ? f->mapped_index : f->index;
	const void *value = kind == MAPPED ? f->mapped_value : f->value;
	uint64_t n = want->count;
	int r = spri_gpu_zero(f->stream, f->output, c->n * sizeof(float));

	if (r == 0)
		r = run(f, c, kind, NULL);
	if (r == 0)
		r = spri_gpu_copy(f->stream, h->got_index, index, n * sizeof(uint64_t));
	if (r == 0)
		r = spri_gpu_copy(f->stream, h->got_value, value, n * sizeof(float));
	if (r == 0)
		r = spri_gpu_copy(f->stream, h->got_shadow, f->output, c->n * sizeof(float));
	if (r == 0)
		r = spri_gpu_sync(f->stream);
	if (r < 0)
		return r;
	c->differs |= f->result->count != n || f->result->cut_key != want->cut_key ||
		      f->result->cut_index != want->cut_index ||
		      memcmp(h->got_index, h->index, n * sizeof(uint64_t)) != 0 ||
		      memcmp(h->got_value, h->value, n * sizeof(float)) != 0 ||
		      memcmp(h->got_shadow, h->shadow, c->n * sizeof(float)) != 0;
	return 0;
}

static int check(struct field *f, struct cell *c)
{
	struct spri_select want;
	struct host h;
	int r = 0;

	c->checked = host_alloc(&h, c->n, c->k);
	if (c->checked)
		r = define(f, &h, c, &want);
	for (unsigned kind = FIRST; r == 0 && c->checked && kind < N_KINDS; kind++)
		r = compare(f, &h, c, &want, kind);
	host_free(&h);
	return r;
}

/* ---- printing ---- */

static double rate(const struct cell *c, unsigned kind)
{
	return 12 * (double)c->n / c->ns[kind];
}

static void report_cell(struct perf_table *table, struct perf_json *json, const struct cell *c)
{
	static const char *const names[N_KINDS] = {"copy_ns", "first_ns", "steady_ns", "mapped_ns"};

	perf_table_cell(table, "%llu", (unsigned long long)c->n);
	perf_table_cell(table, "%llu", (unsigned long long)c->k);
	perf_table_cell(table, "%.1f", rate(c, COPY));
	perf_table_cell(table, "%.1f", rate(c, FIRST));
	perf_table_cell(table, "%.1f", rate(c, STEADY));
	perf_table_cell(table, "%.1f", c->ns[STEADY] * 1e-3);
	perf_table_cell(table, "%.2f", c->ns[COPY] / c->ns[STEADY]);
	perf_table_cell(table, "%.1f", c->ns[MAPPED] * 1e-3);
	perf_table_cell(table, "%s", c->differs ? "WRONG" : c->checked ? "same" : "-");
	perf_json_begin_object(json, NULL);
	perf_json_u64(json, "count", c->n);
	perf_json_double(json, "density", c->density);
	perf_json_u64(json, "k", c->k);
	perf_json_u64(json, "bytes", 12 * c->n);
	for (unsigned kind = 0; kind < N_KINDS; kind++)
		perf_json_double(json, names[kind], c->ns[kind]);
	perf_json_bool(json, "repaired", c->repaired);
	perf_json_bool(json, "checked", c->checked);
	perf_json_bool(json, "differs", c->differs);
	perf_json_end_object(json);
}

static void report_skipped(struct perf_json *json, uint64_t n, const char *why)
{
	printf("# skip %llu elements: %s\n", (unsigned long long)n, why);
	perf_json_begin_object(json, NULL);
	perf_json_u64(json, "count", n);
	perf_json_string(json, "skipped", why);
	perf_json_end_object(json);
}

static void report_gpu(struct perf_json *json, const struct spri_gpu_info *info)
{
	printf("# GPU %llu: %s, compute capability %d.%d, %.4g GiB, driver of CUDA %d.%d\n",
	       (unsigned long long)config.gpu, info->name, info->major, info->minor,
	       (double)info->bytes / (double)(1 << 30), info->driver / 1000,
	       info->driver % 1000 / 10);
	perf_json_string(json, "schema", "sparring.gpu_bench");
	perf_json_u64(json, "version", 1);
	perf_json_machine(json, "machine");
	perf_json_begin_object(json, "gpu");
	perf_json_string(json, "name", info->name);
	perf_json_u64(json, "major", (uint64_t)info->major);
	perf_json_u64(json, "minor", (uint64_t)info->minor);
	perf_json_u64(json, "bytes", info->bytes);
	perf_json_u64(json, "driver", (uint64_t)info->driver);
	perf_json_end_object(json);
	perf_json_u64(json, "iterations", config.iterations);
	perf_json_begin_array(json, "records");
}

/* ---- the run ---- */

struct plan {
	uint64_t size[MOST_WORDS];
	double density[MOST_WORDS];
	unsigned n_sizes, n_densities;
};

static int parse_plan(struct plan *p)
{
	char text[512], *rest = text, *word;

	snprintf(text, sizeof text, "%s", config.sizes);
	for (p->n_sizes = 0; (word = strsep(&rest, ",")); p->n_sizes++)
		if (p->n_sizes == MOST_WORDS || !perf_parse_size(word, &p->size[p->n_sizes]) ||
		    p->size[p->n_sizes] < 1 || p->size[p->n_sizes] > UINT64_C(1) << 36)
			return perf_options_refuse(
				&options, "--sizes has '%s', must be at most %d whole numbers",
				word, MOST_WORDS);
	snprintf(text, sizeof text, "%s", config.densities);
	rest = text;
	for (p->n_densities = 0; (word = strsep(&rest, ",")); p->n_densities++)
		if (p->n_densities == MOST_WORDS ||
		    !perf_parse_double(word, &p->density[p->n_densities]) ||
		    !(p->density[p->n_densities] > 0 && p->density[p->n_densities] <= 1))
			return perf_options_refuse(
				&options,
				"--density has '%s', must be at most %d numbers above 0 and at "
				"most 1",
				word, MOST_WORDS);
	return 0;
}

/* One density. Returns as measure_size. */
static int measure_cell(struct field *f, struct cell *c, struct perf_table *table,
			struct perf_json *json)
{
	int r = field_alloc_lists(f, c->k);

	if (r == 0)
		r = time_all(f, c);
	if (r == 0)
		r = check(f, c);
	field_free_lists(f);
	if (r == 0)
		report_cell(table, json, c);
	return r < 0 ? r : c->differs;
}

/* Returns how many cells are wrong, or negative. A size that does not fit is no failure. */
static int measure_size(struct field *f, const struct plan *plan, uint64_t n,
			struct perf_table *table, struct perf_json *json)
{
	int r = field_alloc_vectors(f, n), wrong = 0;

	if (r == 0)
		r = spread(f, gradient_of(f), n, 1);
	if (r == 0)
		r = spread(f, residual_of(f), n, 2);
	for (unsigned i = 0; r >= 0 && i < plan->n_densities; i++) {
		double density = plan->density[i];
		struct cell c = {.n = n,
				 .k = spri_max_u64((uint64_t)((double)n * density), 1),
				 .density = density};

		r = measure_cell(f, &c, table, json);
		wrong += r > 0;
	}
	field_free_vectors(f);
	if (r == -ENOMEM)
		report_skipped(json, n, "no memory for it");
	else if (r < 0)
		fprintf(stderr, "gpu_bench: %llu elements: %s (%s)\n", (unsigned long long)n,
			spri_gpu_stream_error(f->stream), spr_strerror(r));
	return r < 0 && r != -ENOMEM ? r : wrong;
}

static int open_field(struct field *f, struct spri_text *why)
{
	void *host, *there;
	int r = spri_gpu_open((unsigned)config.gpu, &f->gpu, why);

	if (r == 0)
		r = spri_gpu_stream_create(f->gpu, &f->stream);
	if (r == 0)
		r = spri_gpu_alloc_mapped(f->gpu, sizeof *f->result, &host, &there);
	if (r < 0)
		return r;
	f->result = host;
	f->result_there = there;
	return 0;
}

static void close_field(struct field *f)
{
	if (f->result)
		spri_gpu_free_mapped(f->gpu, f->result);
	spri_gpu_stream_destroy(f->stream);
	spri_gpu_close(f->gpu);
}

static int measure(struct field *f, const struct plan *plan, struct perf_json *json)
{
	struct perf_table *table = perf_table_create(stdout, columns, spri_countof(columns), true);
	int r = table ? 0 : -ENOMEM, wrong = 0;

	if (table)
		perf_table_header(table);
	for (unsigned i = 0; r >= 0 && i < plan->n_sizes; i++) {
		r = measure_size(f, plan, plan->size[i], table, json);
		wrong += r > 0 ? r : 0;
	}
	perf_table_destroy(table);
	return r < 0 ? r : wrong;
}

int main(int argc, char **argv)
{
	struct spri_gpu_info info;
	struct spri_text why = {""};
	struct perf_json *json = NULL;
	struct field field = {0};
	struct plan plan;
	int first, r = perf_options_parse(&options, argc, argv, &first);

	if (r)
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	if (parse_plan(&plan) < 0)
		return PERF_EXIT_USAGE;
	if (spri_gpu_probe(&why) < 0 || spri_gpu_info((unsigned)config.gpu, &info, &why) < 0) {
		fprintf(stderr, "gpu_bench: no GPU %llu: %s\n", (unsigned long long)config.gpu,
			why.s);
		return EXIT_SKIPPED;
	}
	if (config.json)
		json = perf_json_create(config.json);
	perf_json_begin_object(json, NULL);
	report_gpu(json, &info);
	if (!config.probe) {
		r = open_field(&field, &why);
		if (r < 0)
			fprintf(stderr, "gpu_bench: %s (%s)\n", why.s, spr_strerror(r));
		else
			r = measure(&field, &plan, json);
		close_field(&field);
	}
	perf_json_end_array(json);
	perf_json_end_object(json);
	if (config.json && perf_json_commit(json) < 0) {
		fprintf(stderr, "gpu_bench: %s cannot be written\n", config.json);
		return 1;
	}
	return r ? 1 : 0;
}
