/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the point-to-point tools print and write: heading, table, JSON document.
 *
 * Path: the document is written beside its place, whole, then linked to its name, which fails when
 * the name is taken: no file is ever overwritten, none appears half. Failures: a file that exists
 * or cannot be written is refused before anything is measured.
 */
#include "ptp.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The document's final name; NULL: none is wanted. *own is to be freed. */
static const char *json_name(const struct ptp_config *config, char **own)
{
	*own = NULL;
	if (config->json_path || !config->json)
		return config->json_path;
	if (asprintf(own, "%s.json", config->tool) < 0)
		*own = NULL;
	return *own ? *own : config->tool;
}

int ptp_report_create(struct ptp_report *report, const struct ptp_config *config,
		      const struct perf_column *columns, size_t n_columns)
{
	const char *name = json_name(config, &report->name);
	int r;

	report->config = config;
	report->table = perf_table_create(stdout, columns, n_columns, true);
	if (!report->table)
		return ptp_fail(config, "out of memory");
	if (!name)
		return 0;
	if (!report->name)
		report->name = strdup(name);
	if (!report->name || asprintf(&report->part, "%s.part.%d", name, (int)getpid()) < 0) {
		report->part = NULL;
		return ptp_fail(config, "out of memory");
	}
	if (access(name, F_OK) == 0)
		return ptp_fail(config, "%s exists, and is not overwritten", name);
	report->json = perf_json_create(report->part);
	r = perf_json_error(report->json);
	return r < 0 ? ptp_fail(config, "%s: %s", name, strerror(-r)) : 0;
}

void ptp_report_destroy(struct ptp_report *report)
{
	perf_json_abandon(report->json);
	perf_table_destroy(report->table);
	free(report->part);
	free(report->name);
	*report = (struct ptp_report){0};
}

static void json_head(struct ptp_report *report, const struct ptp_link *link)
{
	const struct ptp_config *c = report->config;
	struct perf_json *json = report->json;
	char schema[48];

	snprintf(schema, sizeof schema, "sparring.%s", c->tool + strlen("spr_"));
	perf_json_begin_object(json, NULL);
	perf_json_string(json, "schema", schema);
	perf_json_u64(json, "version", 1);
	perf_json_string(json, "library", spr_version());
	perf_json_machine(json, "machine");
	perf_json_begin_array(json, "arguments");
	for (int i = 1; i < c->argc; i++)
		perf_json_string(json, NULL, c->argv[i]);
	perf_json_end_array(json);
	perf_json_string(json, "role", c->host ? "client" : "server");
	perf_json_string(json, "transport", link->transport);
	perf_json_string(json, "device", c->device);
	perf_json_string(json, "memory", spr_memory_path(link->landing_memory));
	perf_json_u64(json, "endpoints", c->n_qps);
	if (c->kind != PTP_LAT)
		perf_json_u64(json, "tx_depth", c->tx_depth);
	perf_json_bool(json, "bidirectional", c->bidirectional);
	perf_json_bool(json, "events", c->events);
	perf_json_begin_array(json, "records");
}

void ptp_report_begin(struct ptp_report *report, const struct ptp_link *link)
{
	const struct ptp_config *c = report->config;
	static const char line[] =
		"# ---------------------------------------------------------------"
		"-------------------------------";

	printf("%s\n# %s %s: %s\n", line, c->tool, spr_version(), c->about);
	printf("# %-15s: %-12s %-15s: %s\n", "Role", c->host ? "client" : "server", "Peer",
	       c->host ? c->host : "the client");
	printf("# %-15s: %-12s %-15s: %s\n", "Transport", link->transport, "Device",
	       c->device ? c->device : "by route");
	printf("# %-15s: %-12" PRIu64 " %-15s: %s\n", "Endpoints", c->n_qps, "Completions",
	       c->events ? "events" : "polling");
	if (c->kind != PTP_LAT)
		printf("# %-15s: %-12" PRIu64 " %-15s: %s\n", "TX depth", c->tx_depth, "Direction",
		       c->bidirectional ? "both" : "client to server");
	if (c->cuda != PTP_UNSET)
		printf("# %-15s: %-12" PRIu64 " %-15s: %s\n", "GPU", c->cuda, "Reached by",
		       spr_memory_path(link->landing_memory));
	printf("%s\n", line);
	perf_table_header(report->table);
	fflush(stdout);
	if (report->json)
		json_head(report, link);
}

/* Puts the document in place. Returns 0 or -1 with a message. */
static int put_json(struct ptp_report *report)
{
	int r;

	perf_json_end_array(report->json);
	perf_json_u64(report->json, "wrong", report->wrong);
	perf_json_end_object(report->json);
	r = perf_json_commit(report->json);
	report->json = NULL;
	if (r == 0 && link(report->part, report->name) < 0)
		r = -errno;
	(void)!unlink(report->part);
	if (r == -EEXIST)
		return ptp_fail(report->config, "%s has come to exist, and is not overwritten",
				report->name);
	return r < 0 ? ptp_fail(report->config, "%s: %s", report->name, strerror(-r)) : 0;
}

int ptp_report_end(struct ptp_report *report)
{
	int r = 0;

	if (report->wrong)
		(void)!ptp_fail(report->config, "%" PRIu64 " wrong at the receiving end",
				report->wrong);
	if (report->json)
		r = put_json(report);
	if (fflush(stdout) != 0 && r == 0)
		r = ptp_fail(report->config, "standard output: %s", strerror(errno));
	if (r < 0)
		return PTP_EXIT_FAILED;
	return report->wrong ? PTP_EXIT_WRONG : 0;
}

int ptp_main(struct ptp_config *config, int argc, char **argv, const struct ptp_tool *tool)
{
	struct ptp_report report = {0};
	struct ptp_link link = {0};
	int r = ptp_options_read(config, argc, argv), status;

	if (r)
		return r > 0 ? 0 : PTP_EXIT_USAGE;
	status = PTP_EXIT_USAGE;
	if (ptp_report_create(&report, config, config->gbits ? tool->gbit_columns : tool->columns,
			      tool->n_columns) == 0) {
		status = PTP_EXIT_FAILED;
		r = ptp_link_open(&link, config, tool->area_bytes(config));
		if (r == 0) {
			ptp_report_begin(&report, &link);
			r = tool->run(&link, &report);
		}
		ptp_link_close(&link, r == 0);
		if (r == 0)
			status = ptp_report_end(&report);
		else if (ptp_stopped())
			status = PTP_EXIT_INTERRUPTED;
	}
	ptp_report_destroy(&report);
	return status;
}
