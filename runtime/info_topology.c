/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The machine and the decisions about its local ranks, as rows (include/sparring/topology.h).
 *
 *   1. This machine as contexts know it, or a file.
 *   2. A row for the machine, one for each object of the table, in its order.
 *   3. For each local rank the decision that a context would make, and its four reasons.
 *
 * Failures: a file or a variable that cannot be is a row that says so, and the call's result.
 */
#include <affinity.h>
#include <context.h>
#include <internal/alloc.h>
#include <sparring/topology.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct sink {
	spr_topology_fn fn;
	void *arg;
	const struct spri_topo *topo;
};

static void emit(const struct sink *sink, enum spr_topology_kind kind, int depth, const char *name,
		 const char *value, const char *detail)
{
	struct spr_topology_row row = {
		.kind = kind, .depth = depth, .name = name, .value = value, .detail = detail};

	sink->fn(sink->arg, &row);
}

static int emit_error(const struct sink *sink, int status, const struct spri_text *text)
{
	emit(sink, SPR_TOPOLOGY_ERROR, 0, "", "", text->s[0] ? text->s : spr_strerror(status));
	return status;
}

static void emit_machine(const struct sink *sink, const struct spri_cpus *allowed)
{
	const struct spri_topo *topo = sink->topo;
	char cpus[SPRI_CPUS_TEXT], detail[SPRI_CPUS_TEXT + 160], value[SPRI_CPUS_TEXT + 8];
	size_t used;

	snprintf(value, sizeof value, "CPUs %s", spri_cpus_text(&topo->cpus, cpus));
	snprintf(detail, sizeof detail, "%s", topo->source);
	used = strlen(detail);
	if (topo->left_out)
		used += (size_t)snprintf(detail + used, sizeof detail - used,
					 "; %u objects more than there is room for",
					 topo->left_out);
	if (!spri_cpus_equal(&topo->cpus, allowed))
		snprintf(detail + used, sizeof detail - used, "; allowed: %s",
			 spri_cpus_text(allowed, cpus));
	emit(sink, SPR_TOPOLOGY_MACHINE, 0, "machine", value, detail);
}

/* What is to be said of a GPU or NIC beside its address. */
static void describe(const struct spri_topo_object *o, char *out, size_t bytes)
{
	char cpus[SPRI_CPUS_TEXT], near[SPRI_CPUS_TEXT + 16] = "";

	if (!spri_cpus_empty(&o->cpus))
		snprintf(near, sizeof near, ", near CPUs %s", spri_cpus_text(&o->cpus, cpus));
	if (o->kind == SPRI_TOPO_GPU)
		snprintf(out, bytes, "%s%s%s", o->name, near,
			 o->number < 0 ? ", not usable by this process" : "");
	else
		snprintf(out, bytes, "%s%s%s%s%s", o->rdma ? "RDMA" : "network interface",
			 o->rdma && o->interfaces[0] ? ", " : "", o->rdma ? o->interfaces : "",
			 near, o->down ? ", no active port" : "");
}

static void emit_object(const struct sink *sink, const struct spri_topo_object *o)
{
	static const enum spr_topology_kind kinds[] = {
		[SPRI_TOPO_PACKAGE] = SPR_TOPOLOGY_PACKAGE, [SPRI_TOPO_NODE] = SPR_TOPOLOGY_NODE,
		[SPRI_TOPO_BRIDGE] = SPR_TOPOLOGY_BRIDGE,   [SPRI_TOPO_GPU] = SPR_TOPOLOGY_GPU,
		[SPRI_TOPO_NIC] = SPR_TOPOLOGY_NIC,
	};
	char name[64], cpus[SPRI_CPUS_TEXT], value[SPRI_CPUS_TEXT + 8], detail[256] = "";

	spri_topo_name(o, name, sizeof name);
	if (o->kind == SPRI_TOPO_PACKAGE || o->kind == SPRI_TOPO_NODE)
		snprintf(value, sizeof value, "CPUs %s", spri_cpus_text(&o->cpus, cpus));
	else /* bridges have it in their name */
		snprintf(value, sizeof value, "%s", o->kind == SPRI_TOPO_BRIDGE ? "" : o->pci);
	if (o->kind == SPRI_TOPO_GPU || o->kind == SPRI_TOPO_NIC)
		describe(o, detail, sizeof detail);
	else if (o->kind == SPRI_TOPO_NODE && !o->allowed)
		snprintf(detail, sizeof detail, "memory is not allowed");
	emit(sink, kinds[o->kind], 1 + (int)o->depth, name, value, detail);
}

static void emit_seat(const struct sink *sink, uint32_t rank, const struct spri_seat *seat)
{
	const struct spri_topo_object *o = sink->topo->objects;
	char name[64], cpus[SPRI_CPUS_TEXT], text[SPRI_CPUS_TEXT + 8];

	snprintf(name, sizeof name, "local rank %u", rank);
	emit(sink, SPR_TOPOLOGY_RANK, 1, name, "", "");
	name[0] = '\0';
	if (seat->gpu >= 0)
		spri_topo_name(&o[seat->gpu], name, sizeof name);
	emit(sink, SPR_TOPOLOGY_CHOICE, 2, "GPU", name, seat->gpu_why);
	emit(sink, SPR_TOPOLOGY_CHOICE, 2, "NIC", seat->nic >= 0 ? o[seat->nic].name : "",
	     seat->nic_why);
	snprintf(name, sizeof name, "NUMA node %d", seat->node);
	emit(sink, SPR_TOPOLOGY_CHOICE, 2, "landing slots", seat->node >= 0 ? name : "",
	     seat->node_why);
	snprintf(text, sizeof text, "CPUs %s", spri_cpus_text(&seat->cpus, cpus));
	emit(sink, SPR_TOPOLOGY_CHOICE, 2, "progress thread", text, seat->cpus_why);
}

/* As many as were asked for, or were started here, or as there are GPUs. */
static uint32_t count_ranks(const struct sink *sink, const struct spr_topology_options *options,
			    const struct spri_seat_request *q, const char *from)
{
	uint32_t n = 0;

	if (options->local_size > 0)
		return (uint32_t)options->local_size;
	if (from && !options->xml)
		return q->local_size;
	for (int i = -1; (i = spri_topo_next(sink->topo, SPRI_TOPO_GPU, i + 1)) >= 0;)
		n += sink->topo->objects[i].number >= 0;
	return n ? n : 1;
}

static int list_rows(const struct sink *sink, const struct spr_topology_options *options)
{
	struct spri_text text = {""};
	struct spri_seat_request q;
	struct spri_seat seat;
	const char *from;
	int r = spri_affinity_request(&q, &from, &text);

	if (r < 0)
		return emit_error(sink, r, &text);
	if (options->xml)
		q.allowed = sink->topo->usable;
	emit_machine(sink, &q.allowed);
	for (unsigned i = 0; i < sink->topo->n; i++)
		emit_object(sink, &sink->topo->objects[i]);
	q.local_size = count_ranks(sink, options, &q, from);
	for (q.local_rank = 0; q.local_rank < q.local_size; q.local_rank++) {
		r = spri_seat_decide(sink->topo, &q, &seat, &text);
		if (r < 0)
			return emit_error(sink, r, &text);
		emit_seat(sink, q.local_rank, &seat);
	}
	return 0;
}

int spr_topology_list(const struct spr_topology_options *options, spr_topology_fn fn, void *arg)
{
	struct sink sink = {.fn = fn, .arg = arg};
	struct spr_topology_options o = {0};
	struct spri_text text = {""};
	struct spri_topo *file = NULL;
	int r = spri_options_take(&o, sizeof o, options, "spr_topology_options", &text);

	if (r < 0 || !fn || o.local_size < 0 || o.local_size > SPR_MAX_RANKS)
		return spri_trace(SPR_EARGUMENT);
	if (!o.xml) {
		sink.topo = spri_affinity_machine();
		return spri_trace(list_rows(&sink, &o));
	}
	sink.topo = file = spri_alloc(sizeof *file);
	if (!file)
		return spri_trace(-ENOMEM);
	r = spri_topo_read(o.xml, file, &text);
	r = r < 0 ? emit_error(&sink, r, &text) : list_rows(&sink, &o);
	spri_free(file);
	return spri_trace(r);
}
