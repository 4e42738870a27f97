/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_info: what this build and machine have, what sparring would use (marked *), and why not the
 * rest.
 *
 * Path: every kind of spr_info_list as a titled table, or as one JSON object; with --peer, the ways
 * to one address instead; with --topology, the machine and its local ranks (info_topology.c).
 * Failures: a kind that cannot be listed is named on stderr, and the exit
 * status is 1. SPR_* variables that nothing reads are warned about: a misspelt one would otherwise
 * go unnoticed.
 */
#include "info_topology.h"
#include "json.h"
#include "options.h"
#include "table.h"

#include <sparring/sparring.h>

#include <stdio.h>
#include <string.h>

static const struct {
	enum spr_info_kind kind;
	const char *title;
	const char *key; /* in JSON */
} kinds[] = {
	{SPR_INFO_VERSION, "Version", "build"},
	{SPR_INFO_CPU, "Processor", "cpu"},
	{SPR_INFO_KERNELS, "Kernels", "kernels"},
	{SPR_INFO_TRANSPORTS, "Transports", "transports"},
	{SPR_INFO_INTERFACES, "Network interfaces", "interfaces"},
	{SPR_INFO_RDMA, "RDMA devices", "rdma"},
	{SPR_INFO_GPUDIRECT, "GPUs and NICs", "gpudirect"},
	{SPR_INFO_ALGORITHMS, "Algorithms", "algorithms"},
	{SPR_INFO_VARIABLES, "Environment variables", "variables"},
};

/* Where rows go. */
struct sink {
	struct perf_table *table; /* NULL: JSON */
	struct perf_json *json;
	unsigned rows;
};

static void row_to_table(void *arg, const struct spr_info_row *row)
{
	struct sink *sink = arg;

	sink->rows++;
	perf_table_cell(sink->table, "%s", row->chosen ? "*" : " ");
	perf_table_cell(sink->table, "%s", row->name);
	perf_table_cell(sink->table, "%s", row->value);
	perf_table_cell(sink->table, "%s", row->source);
	perf_table_cell(sink->table, "%s", row->detail);
}

static void row_to_json(void *arg, const struct spr_info_row *row)
{
	struct sink *sink = arg;

	sink->rows++;
	perf_json_begin_object(sink->json, NULL);
	perf_json_string(sink->json, "name", row->name);
	perf_json_string(sink->json, "value", row->value);
	perf_json_string(sink->json, "source", row->source);
	perf_json_string(sink->json, "detail", row->detail);
	perf_json_bool(sink->json, "chosen", row->chosen);
	perf_json_end_object(sink->json);
}

/* Warns about variables that nothing reads. */
static void warn_unknown(void *arg, const struct spr_info_row *row)
{
	unsigned *warnings = arg;

	if (strcmp(row->source, "unknown"))
		return;
	++*warnings;
	fprintf(stderr,
		"spr_info: warning: %s is set, but sparring knows no such variable; the nearest "
		"one is %s\n",
		row->name, row->detail);
}

/* Lists one kind. Returns 0, or -1 with a message. */
static int list(enum spr_info_kind kind, const char *title, spr_info_fn fn, void *arg)
{
	int r = spr_info_list(kind, fn, arg);

	if (r < 0)
		fprintf(stderr, "spr_info: %s cannot be listed: %s\n", title, spr_strerror(r));
	return r < 0 ? -1 : 0;
}

/* Lists the ways to a peer. Returns 0, or an exit status with a message. */
static int list_peer(const char *peer, spr_info_fn fn, void *arg)
{
	int r = spr_info_peer(peer, fn, arg);

	if (r == SPR_EARGUMENT)
		fprintf(stderr,
			"spr_info: --peer is '%s', must be a numeric address, IPv4 or IPv6\n",
			peer);
	else if (r < 0)
		fprintf(stderr, "spr_info: --peer %s: %s\n", peer, spr_strerror(r));
	return r == SPR_EARGUMENT ? PERF_EXIT_USAGE : r < 0;
}

static int print_tables(const char *peer)
{
	static const struct perf_column columns[] = {{"", NULL, -1},
						     {"name", NULL, -16},
						     {"value", NULL, -8},
						     {"source", NULL, -1},
						     {"meaning", NULL, -1}};
	struct sink sink = {
		.table = perf_table_create(stdout, columns, spri_countof(columns), false)};
	int status = 0;

	if (!sink.table)
		return 1;
	if (peer) {
		status = list_peer(peer, row_to_table, &sink);
		perf_table_print(sink.table, 0);
	}
	for (size_t i = 0; i < spri_countof(kinds) && !peer; i++) {
		printf("%s%s\n", i ? "\n" : "", kinds[i].title);
		sink.rows = 0;
		if (list(kinds[i].kind, kinds[i].title, row_to_table, &sink) < 0)
			status = 1;
		if (sink.rows == 0)
			printf("  (none)\n");
		perf_table_print(sink.table, 0);
	}
	perf_table_destroy(sink.table);
	return status;
}

static int print_json(const char *path, const char *peer)
{
	struct sink sink = {.json = perf_json_create(path)};
	int status = 0, r;

	perf_json_begin_object(sink.json, NULL);
	perf_json_string(sink.json, "schema", "sparring.info");
	perf_json_u64(sink.json, "version", 1);
	if (peer) {
		perf_json_string(sink.json, "peer", peer);
		perf_json_begin_array(sink.json, "routes");
		status = list_peer(peer, row_to_json, &sink);
		perf_json_end_array(sink.json);
	}
	for (size_t i = 0; i < spri_countof(kinds) && !peer; i++) {
		perf_json_begin_array(sink.json, kinds[i].key);
		if (list(kinds[i].kind, kinds[i].title, row_to_json, &sink) < 0)
			status = 1;
		perf_json_end_array(sink.json);
	}
	perf_json_end_object(sink.json);
	r = perf_json_commit(sink.json);
	if (r < 0) {
		fprintf(stderr, "spr_info: --json %s: %s\n", path, strerror(-r));
		status = 1;
	}
	return status;
}

int main(int argc, char **argv)
{
	const char *json_path = NULL, *peer = NULL;
	struct info_topology_options topology = {0};
	bool show_topology = false;
	const struct perf_option table[] = {
		{0, "json", PERF_OPT_STRING, "FILE",
		 "write JSON there instead; - is standard output", &json_path, 0, 0},
		{0, "peer", PERF_OPT_STRING, "ADDRESS",
		 "only: how this peer would be reached, and why not otherwise", &peer, 0, 0},
		{0, "topology", PERF_OPT_FLAG, NULL,
		 "only: the machine, and the GPU, NIC, node and CPUs of\neach local rank, with the "
		 "reasons",
		 &show_topology, 0, 0},
		{0, "ranks", PERF_OPT_U64, "N",
		 "of --topology: local ranks (the launcher's, else one\nfor each GPU)",
		 &topology.ranks, 1, SPR_MAX_RANKS},
		{0, "xml", PERF_OPT_STRING, "FILE",
		 "of --topology: a machine as lstopo writes it, not this one", &topology.xml, 0, 0},
		{0, "svg", PERF_OPT_STRING, "FILE", "of --topology: draw it there, too",
		 &topology.svg, 0, 0},
	};
	const struct perf_options options = {"spr_info",
					     "Prints what this machine has and what sparring would "
					     "use (*), and why not the rest.",
					     "[OPTIONS]",
					     NULL,
					     table,
					     spri_countof(table),
					     false};
	unsigned warnings = 0;
	int first;
	int r = perf_options_parse(&options, argc, argv, &first);

	if (r)
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	if (!show_topology && (topology.xml || topology.svg || topology.ranks))
		return perf_options_refuse(&options, "--xml, --svg and --ranks go with --topology"),
		       PERF_EXIT_USAGE;
	topology.json = json_path;
	if (show_topology)
		r = info_topology(&topology);
	else
		r = json_path ? print_json(json_path, peer) : print_tables(peer);
	fflush(stdout);
	(void)!spr_info_list(SPR_INFO_VARIABLES, warn_unknown, &warnings);
	return r;
}
