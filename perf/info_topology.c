/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_info --topology.
 *
 * Path: the rows are kept as a tree, then printed, indented by depth, with a table for each local
 * rank; or written as JSON; and drawn, if asked for (topology_svg.c). Failures: what the library
 * says is told on stderr, status 1 (2 for a file that is none); what was listed before is printed.
 */
#include "info_topology.h"

#include "json.h"
#include "options.h"
#include "table.h"

#include <sparring/sparring.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
	[SPR_TOPOLOGY_MACHINE] = "machine", [SPR_TOPOLOGY_PACKAGE] = "package",
	[SPR_TOPOLOGY_NODE] = "node",	    [SPR_TOPOLOGY_BRIDGE] = "bridge",
	[SPR_TOPOLOGY_GPU] = "gpu",	    [SPR_TOPOLOGY_NIC] = "nic",
	[SPR_TOPOLOGY_RANK] = "rank",	    [SPR_TOPOLOGY_CHOICE] = "choice",
	[SPR_TOPOLOGY_ERROR] = "error",
};

static bool grow(struct info_topology *t)
{
	size_t capacity = t->capacity ? 2 * t->capacity : 64;
	struct info_object *more;

	if (t->n < t->capacity)
		return true;
	more = realloc(t->objects, capacity * sizeof *more);
	if (!more)
		return false;
	t->objects = more;
	t->capacity = capacity;
	return true;
}

static void keep(void *arg, const struct spr_topology_row *row)
{
	struct info_topology *t = arg;
	struct info_object *o;

	if (t->out_of_memory || !grow(t)) {
		t->out_of_memory = true;
		return;
	}
	o = &t->objects[t->n];
	*o = (struct info_object){.kind = row->kind,
				  .depth = row->depth,
				  .parent = (int)t->n - 1,
				  .name = strdup(row->name),
				  .value = strdup(row->value),
				  .detail = strdup(row->detail)};
	while (o->parent >= 0 && t->objects[o->parent].depth >= o->depth)
		o->parent = t->objects[o->parent].parent;
	t->out_of_memory = !o->name || !o->value || !o->detail;
	t->n++;
}

static void release(struct info_topology *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->objects[i].name);
		free(t->objects[i].value);
		free(t->objects[i].detail);
	}
	free(t->objects);
}

static int print_text(const struct info_topology *t)
{
	static const struct perf_column columns[] = {
		{"", NULL, -16}, {"", NULL, -8}, {"", NULL, -1}};
	struct perf_table *table = perf_table_create(stdout, columns, spri_countof(columns), false);

	if (!table)
		return -1;
	for (size_t i = 0; i < t->n; i++) {
		const struct info_object *o = &t->objects[i];

		if (o->kind == SPR_TOPOLOGY_ERROR)
			continue;
		if (o->kind == SPR_TOPOLOGY_RANK) {
			perf_table_print(table, 0);
			printf("\n%s\n", o->name);
			continue;
		}
		perf_table_cell(table, "%*s%s", 2 * (o->kind == SPR_TOPOLOGY_CHOICE ? 1 : o->depth),
				"", o->name);
		perf_table_cell(table, "%s",
				o->value[0] || o->kind != SPR_TOPOLOGY_CHOICE ? o->value : "-");
		perf_table_cell(table, "%s", o->detail);
	}
	perf_table_print(table, 0);
	perf_table_destroy(table);
	return 0;
}

/* Objects as a flat array with depths, ranks with their choices inside. */
static int print_json(const struct info_topology *t, const char *path)
{
	struct perf_json *json = perf_json_create(path);

	perf_json_begin_object(json, NULL);
	perf_json_string(json, "schema", "sparring.topology");
	perf_json_u64(json, "version", 1);
	perf_json_begin_array(json, "rows");
	for (size_t i = 0; i < t->n; i++) {
		const struct info_object *o = &t->objects[i];

		perf_json_begin_object(json, NULL);
		perf_json_string(json, "kind", kind_names[o->kind]);
		perf_json_i64(json, "depth", o->depth);
		perf_json_string(json, "name", o->name);
		perf_json_string(json, "value", o->value);
		perf_json_string(json, "detail", o->detail);
		perf_json_end_object(json);
	}
	perf_json_end_array(json);
	perf_json_end_object(json);
	return perf_json_commit(json);
}

static const char *error_of(const struct info_topology *t)
{
	const struct info_object *last = t->n ? &t->objects[t->n - 1] : NULL;

	return last && last->kind == SPR_TOPOLOGY_ERROR ? last->detail : NULL;
}

int info_topology(const struct info_topology_options *options)
{
	struct spr_topology_options o = {.size = sizeof o, .xml = options->xml};
	struct info_topology t = {0};
	int status = 0, r;

	o.local_size = (int)options->ranks;
	r = spr_topology_list(&o, keep, &t);
	if (t.out_of_memory)
		r = -ENOMEM;
	if (r < 0) {
		fprintf(stderr, "spr_info: --topology: %s\n",
			r != -ENOMEM && error_of(&t) ? error_of(&t) : spr_strerror(r));
		status = r == SPR_EARGUMENT ? PERF_EXIT_USAGE : 1;
	}
	if (r == 0 && options->svg && info_topology_svg(&t, options->svg) < 0) {
		fprintf(stderr, "spr_info: --svg %s: %s\n", options->svg, strerror(errno));
		status = 1;
	}
	if (t.out_of_memory) {
		release(&t);
		return 1;
	}
	r = options->json ? print_json(&t, options->json) : print_text(&t);
	if (r < 0) {
		fprintf(stderr, "spr_info: %s: %s\n", options->json ? options->json : "--topology",
			strerror(options->json ? -r : ENOMEM));
		status = 1;
	}
	release(&t);
	return status;
}
