/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Table lines and JSON records of the benchmark. The columns are those of nccl-tests, and ours.
 * Lines appear as they are measured; the JSON file appears when all is done.
 */
#include "allreduce.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ar_report {
	struct perf_table *table; /* owned */
	struct perf_json *json;	  /* owned; NULL: none wanted */
	const char *json_path;	  /* borrowed */
	bool digest, check;
};

static const struct perf_column columns[] = {
	{"size", "(B)", 11},	{"count", "(elements)", 11}, {"type", NULL, 6},
	{"algo", NULL, 15},	{"k", "(entries)", 10},	     {"time", "(us)", 11},
	{"algbw", "(GB/s)", 8}, {"busbw", "(GB/s)", 8},	     {"select", "(us)", 10},
	{"comm", "(us)", 11},	{"floor", "(us)", 11},	     {"wireB", "(B)", 11},
	{"#wrong", NULL, 7},	{"digest", NULL, 17},
};

struct ar_report *ar_report_create(const struct ar_config *config)
{
	struct ar_report *report = calloc(1, sizeof *report);
	size_t n = spri_countof(columns) - !config->digest;
	int r = 0;

	if (report)
		report->table = perf_table_create(stdout, columns, n, true);
	if (!report || !report->table) {
		fprintf(stderr, "%s: out of memory\n", AR_TOOL);
		free(report);
		return NULL;
	}
	report->digest = config->digest;
	report->check = config->check && !config->random;
	report->json_path = config->json_path;
	if (config->json_path) {
		report->json = perf_json_create(config->json_path);
		r = perf_json_error(report->json);
	}
	if (r < 0) {
		fprintf(stderr, "%s: --json %s: %s\n", AR_TOOL, config->json_path, strerror(-r));
		ar_report_destroy(report);
		return NULL;
	}
	return report;
}

void ar_report_destroy(struct ar_report *report)
{
	if (!report)
		return;
	perf_json_abandon(report->json);
	perf_table_destroy(report->table);
	free(report);
}

/* Notes the transport that would be chosen. */
static void note_transport(void *arg, const struct spr_info_row *row)
{
	char *name = arg;

	if (row->chosen)
		snprintf(name, 24, "%s", row->name);
}

void ar_report_begin(struct ar_report *report, const struct ar_bench *bench)
{
	const struct ar_config *config = bench->config;
	double rate = bench->beta_ns > 0 ? 1e9 / bench->beta_ns : 0;
	struct perf_json *json = report->json;
	char transport[24] = "?";

	if (config->transport)
		snprintf(transport, sizeof transport, "%s", config->transport);
	else
		(void)!spr_info_list(SPR_INFO_TRANSPORTS, note_transport, transport);
	printf("# %s %s: %d ranks over %s%s, %" PRIu64 " iterations after %" PRIu64
	       ", seed %" PRIu64 "\n",
	       AR_TOOL, spr_version(), bench->n_ranks, transport,
	       config->n_sim_ranks ? " (virtual time)" : "", config->iterations, config->warmups,
	       config->seed);
	printf("# alpha %.3f us per round, beta %.6f ns per byte (%.1f MB/s)%s\n",
	       bench->alpha_ns / 1e3, bench->beta_ns, rate / 1e6,
	       config->n_sim_ranks  ? ", as given"
	       : bench->n_ranks > 1 ? ", measured"
				    : "");
	printf("# time: median of the slowest rank; select and comm: parts, timed apart; floor: "
	       "rounds x alpha + bytes x "
	       "beta\n");
	perf_table_header(report->table);
	if (!json)
		return;
	perf_json_begin_object(json, NULL);
	perf_json_string(json, "schema", "sparring.allreduce_perf");
	perf_json_u64(json, "version", 1);
	perf_json_string(json, "library", spr_version());
	perf_json_machine(json, "machine");
	perf_json_begin_array(json, "arguments");
	for (int i = 1; i < config->argc; i++)
		perf_json_string(json, NULL, config->argv[i]);
	perf_json_end_array(json);
	perf_json_i64(json, "ranks", bench->n_ranks);
	perf_json_string(json, "transport", transport);
	perf_json_bool(json, "virtual_time", config->n_sim_ranks > 0);
	perf_json_u64(json, "iterations", config->iterations);
	perf_json_u64(json, "warmups", config->warmups);
	perf_json_u64(json, "seed", config->seed);
	perf_json_string(json, "data", config->random ? "random" : "exact");
	perf_json_string(json, "wire", ar_wire_names[config->wire]);
	perf_json_string(json, "memory", config->memory == SPR_MEMORY_CUDA ? "cuda" : "host");
	perf_json_string(json, "codec", ar_codec_names[config->codec]);
	perf_json_u64(json, "broadcasters", config->broadcasters);
	perf_json_double(json, "alpha_us", bench->alpha_ns / 1e3);
	perf_json_double(json, "beta_ns_per_byte", bench->beta_ns);
	perf_json_begin_array(json, "records");
}

static void json_line(const struct ar_report *report, const struct ar_line *line,
		      const char *digest)
{
	struct perf_json *json = report->json;
	const struct ar_case *what = line->what;
	bool sparse = what->algo->sparse;
	double reference = sparse ? line->comm_us : line->time_us;

	perf_json_begin_object(json, NULL);
	perf_json_u64(json, "size", what->count * sizeof(float));
	perf_json_u64(json, "count", what->count);
	perf_json_string(json, "type", "float");
	perf_json_string(json, "algo", what->algo->name);
	if (sparse) {
		perf_json_u64(json, "k", what->k);
		perf_json_double(json, "density", what->density);
	}
	perf_json_double(json, "time_us", line->time_us);
	perf_json_double(json, "time_min_us", line->time_min_us);
	perf_json_double(json, "time_max_us", line->time_max_us);
	perf_json_double(json, "algbw_gb_per_s", line->algbw);
	perf_json_double(json, "busbw_gb_per_s", line->busbw);
	perf_json_double(json, "select_us", line->select_us);
	perf_json_double(json, "comm_us", line->comm_us);
	perf_json_double(json, "comm_min_us", line->comm_min_us);
	perf_json_double(json, "comm_max_us", line->comm_max_us);
	if (sparse && what->count) {
		perf_json_double(json, "exchange_wait_us", line->wait_us);
		perf_json_double(json, "exchange_commit_us", line->commit_us);
	}
	perf_json_double(json, "merge_us", line->merge_us);
	perf_json_double(json, "floor_us", line->floor_us);
	perf_json_double(json, "over_floor", line->floor_us > 0 ? reference / line->floor_us : 0);
	perf_json_u64(json, "wire_bytes", line->wire_bytes);
	perf_json_u64(json, "value_bytes", line->value_bytes);
	perf_json_u64(json, "direct_bytes", line->direct_bytes);
	perf_json_u64(json, "rounds", line->rounds);
	perf_json_u64(json, "received", line->received);
	if (report->check)
		perf_json_u64(json, "wrong", line->wrong);
	else
		perf_json_null(json, "wrong");
	if (report->digest)
		perf_json_string(json, "digest", digest);
	perf_json_end_object(json);
}

void ar_report_line(struct ar_report *report, const struct ar_bench *bench,
		    const struct ar_line *line)
{
	const struct ar_case *what = line->what;
	struct perf_table *table = report->table;
	char digest[24];

	(void)bench;
	snprintf(digest, sizeof digest, "%016" PRIx64, line->digest);
	perf_table_cell(table, "%" PRIu64, (uint64_t)(what->count * sizeof(float)));
	perf_table_cell(table, "%" PRIu64, what->count);
	perf_table_cell(table, "float");
	perf_table_cell(table, "%s", what->algo->name);
	if (what->algo->sparse)
		perf_table_cell(table, "%" PRIu64, what->k);
	else
		perf_table_cell(table, "-");
	perf_table_cell(table, "%.1f", line->time_us);
	perf_table_cell(table, "%.3f", line->algbw);
	perf_table_cell(table, "%.3f", line->busbw);
	if (what->algo->sparse)
		perf_table_cell(table, "%.1f", line->select_us);
	else
		perf_table_cell(table, "-");
	perf_table_cell(table, "%.1f", line->comm_us);
	perf_table_cell(table, "%.1f", line->floor_us);
	perf_table_cell(table, "%" PRIu64, line->wire_bytes);
	if (report->check ||
	    line->wrong) /* digests that differ are wrong, whatever was asked for */
		perf_table_cell(table, "%" PRIu64, line->wrong);
	else
		perf_table_cell(table, "N/A");
	if (report->digest)
		perf_table_cell(table, "%s", digest);
	if (report->json)
		json_line(report, line, digest);
}

int ar_report_end(struct ar_report *report, const struct ar_bench *bench)
{
	int r;

	if (report->check || bench->wrong)
		printf("# wrong: %" PRIu64 " %s\n", bench->wrong, bench->wrong ? "FAILED" : "OK");
	else
		printf("# not checked\n");
	fflush(stdout);
	if (!report->json)
		return 0;
	perf_json_end_array(report->json);
	perf_json_u64(report->json, "wrong", bench->wrong);
	perf_json_end_object(report->json);
	r = perf_json_commit(report->json);
	report->json = NULL;
	if (r < 0)
		fprintf(stderr, "%s: --json %s: %s\n", AR_TOOL, report->json_path, strerror(-r));
	return r < 0 ? -1 : 0;
}
