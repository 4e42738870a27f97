/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What this build and machine have (include/sparring/info.h): one function per kind, each a
 * reader of the table that the library itself works with, so that a new row is listed without a
 * change here. Failures: a variable with a value it cannot have is listed as a row that says so,
 * and the call returns SPR_EENVIRONMENT.
 */
#include <coll/coll.h>
#include <errno.h>
#include <gpu.h>
#include <internal/alloc.h>
#include <internal/env.h>
#include <kernel.h>
#include <sink.h>
#include <sparring/info.h>
#include <stdio.h>
#include <string.h>

#include <transport.h>

#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)
#define VERSION_TEXT                                                                               \
	TEXT_OF(SPR_VERSION_MAJOR) "." TEXT_OF(SPR_VERSION_MINOR) "." TEXT_OF(SPR_VERSION_PATCH)

#define MAX_INTERFACES 256
#define MAX_RDMA_PORTS 64
#define MAX_ROUTES 16

const char *spr_version(void)
{
	return VERSION_TEXT;
}

static int list_version(const struct spri_sink *sink)
{
	spri_emit(sink, "library", VERSION_TEXT, "", "sparring", true);
	spri_emit(sink, "compiler", __VERSION__, "", "what built it", true);
	spri_emit(sink, "data types", "f32", "", "IEEE 754 single precision", true);
	return 0;
}

/* SPR_ISA as a context would take it. Returns 0, or SPR_EENVIRONMENT after a row; *isa is set. */
static int find_isa(const struct spri_sink *sink, enum spri_isa *isa)
{
	struct spri_text text = {""};
	int r;

	*isa = spri_isa_used();
	r = spri_context_isa(isa, &text);
	if (r < 0)
		spri_emit(sink, "SPR_ISA", spri_env_get(SPRI_ENV_ISA), "environment", text.s,
			  false);
	return r;
}

static int list_cpu(const struct spri_sink *sink)
{
	enum spri_isa used;
	int r = find_isa(sink, &used);

	for (int i = SPRI_ISA_COUNT - 1; i >= 0; i--) {
		enum spri_isa isa = (enum spri_isa)i;
		bool has = isa <= spri_cpu_isa();

		spri_emit(sink, spri_isa_name(isa), has ? "yes" : "no", "",
			  !has	       ? "not supported by this processor or operating system"
			  : isa > used ? "not allowed by SPR_ISA"
				       : "supported",
			  isa == used);
	}
	return r;
}

/* A primitive's name, its function in a row (as bytes, to compare), what it does. */
struct primitive {
	const char *name;
	size_t offset, bytes;
	const char *about;
};

#define PRIMITIVE(field, about)                                                                    \
	{                                                                                          \
#field, offsetof(struct spri_kernel_row, field),                                   \
			sizeof(((struct spri_kernel_row *)NULL)->field), about                     \
	}
static const struct primitive primitives[] = {
	PRIMITIVE(scan, "scaled gradient + residual, candidates above a threshold"),
	PRIMITIVE(reduce, "sum of two vectors"),
	PRIMITIVE(histogram, "how many values of each magnitude"),
	PRIMITIVE(scatter, "sparse result to dense update"),
	PRIMITIVE(scale, "vector times a factor"),
	PRIMITIVE(axpby, "weighted sum of two vectors"),
	PRIMITIVE(weigh, "gradient + residual, importance and its statistics"),
	PRIMITIVE(draw, "random choice by importance"),
};
#undef PRIMITIVE

/* The least advanced row that has the same function: whose it really is. */
static const struct spri_kernel_row *owner(const struct primitive *p,
					   const struct spri_kernel_row *used)
{
	const struct spri_kernel_row *least = used, *row;

	for (unsigned i = 0; (row = spri_kernel_row(i)) != NULL; i++)
		if (row->isa < least->isa && !memcmp((const char *)row + p->offset,
						     (const char *)used + p->offset, p->bytes))
			least = row;
	return least;
}

static int list_kernels(const struct spri_sink *sink)
{
	const struct spri_kernel_row *row;
	struct spri_text why = {""};
	enum spri_isa isa;
	unsigned at = 0;
	int r = find_isa(sink, &isa);

	while (spri_kernel_row(at)->isa > isa) /* ends: the last row is C */
		at++;
	row = spri_kernel_row(at);
	for (size_t i = 0; i < spri_countof(primitives); i++)
		spri_emit(sink, primitives[i].name, spri_isa_name(owner(&primitives[i], row)->isa),
			  "", primitives[i].about, true);
	if (spri_gpu_probe(&why) < 0)
		spri_emit(sink, "gpu", "not usable", "", why.s, false);
	else
		spri_emit(sink, "gpu", "usable", "", "vectors in GPU memory", false);
	return r;
}

/* What choose.c would take, were this one usable: "auto" goes by SPR_RDMA. */
static bool would_take(const char *asked, const char *row)
{
	const char *rdma = spri_env_get(SPRI_ENV_RDMA);

	if (strcmp(asked, "auto") != 0)
		return !strcmp(asked, row);
	if (rdma && !strcmp(rdma, "forbid"))
		return !strcmp(row, "tcp");
	if (rdma && !strcmp(rdma, "require"))
		return !strcmp(row, "verbs");
	return !strcmp(row, "verbs") || !strcmp(row, "tcp");
}

static int list_transports(const struct spri_sink *sink)
{
	const char *asked = spri_env_get(SPRI_ENV_TRANSPORT);
	const char *name = asked ? asked : spri_env_info(SPRI_ENV_TRANSPORT)->value;
	const struct spri_transport *row;
	struct spri_text text = {""};
	bool taken = false;

	for (unsigned i = 0; (row = spri_transport_row(i)) != NULL; i++) {
		bool usable, chosen;

		text.s[0] = '\0';
		usable = row->probe(&text) == 0;
		chosen = usable && !taken && would_take(name, row->name);
		taken = taken || chosen;
		spri_emit(sink, row->name, usable ? "usable" : "not usable", "",
			  usable || !text.s[0] ? row->about : text.s, chosen);
	}
	if (!strcmp(name, "auto") || spri_transport_find(name))
		return 0;
	spri_emit(sink, "SPR_TRANSPORT", name, "environment", "there is no such transport", false);
	return SPR_EENVIRONMENT;
}

static int list_interfaces(const struct spri_sink *sink)
{
	struct spri_interface *rows = spri_calloc(MAX_INTERFACES, sizeof *rows);
	const char *filter = spri_env_get(SPRI_ENV_TCP_IF);
	struct spri_text text = {""};
	int n, r = 0;

	if (!rows)
		return -ENOMEM;
	n = spri_interfaces(filter, rows, MAX_INTERFACES, &text);
	if (n < 0 && filter) {
		/* What there is to choose from is still of interest. */
		spri_emit(sink, "SPR_TCP_IF", filter, "environment",
			  text.s[0] ? text.s : spr_strerror(n), false);
		r = n;
		n = spri_interfaces(NULL, rows, MAX_INTERFACES, &text);
	}
	for (int i = 0; i < n && i < MAX_INTERFACES; i++) {
		const struct spri_interface *row = &rows[i];
		char value[80];

		snprintf(value, sizeof value, "%s/%u", row->address, row->prefix);
		spri_emit(sink, row->name, value, "",
			  row->used	   ? row->loopback ? "loopback" : ""
			  : row->reason[0] ? row->reason
					   : "not used",
			  row->used && r == 0);
	}
	spri_free(rows);
	return n < 0 ? n : r;
}

/* A port and its GIDs. */
static void emit_rdma_port(const struct spri_sink *sink, const struct spri_rdma_port *row)
{
	char name[112], value[24], detail[512];

	snprintf(name, sizeof name, "%s:%u", row->device, row->port);
	snprintf(value, sizeof value, "%s%s",
		 !strncmp(row->state, "PORT_", 5) ? row->state + 5 : row->state,
		 row->used ? ", used" : "");
	if (row->mtu)
		snprintf(detail, sizeof detail,
			 "%s%s%s, MTU %u, messages up to %u bytes; at most %d queue pairs of %d "
			 "requests, completion queues of %d, %d regions of %.4g bytes",
			 row->reason, row->reason[0] ? "; " : "", row->link, row->mtu,
			 row->max_message, row->max_qp, row->max_qp_wr, row->max_cqe, row->max_mr,
			 (double)row->max_mr_bytes);
	else
		snprintf(detail, sizeof detail, "%s", row->reason);
	spri_emit(sink, name, value, "", detail, row->used);
	for (unsigned i = 0; i < row->n_gids; i++) {
		const struct spri_rdma_gid *gid = &row->gids[i];

		snprintf(name, sizeof name, "%s:%u gid %u", row->device, row->port, gid->index);
		snprintf(detail, sizeof detail, "%s%s%s", gid->text,
			 gid->interface[0] ? " on " : "", gid->interface);
		spri_emit(sink, name, gid->type, "", detail, false);
	}
}

static int list_rdma(const struct spri_sink *sink)
{
	struct spri_rdma_port *rows = spri_calloc(MAX_RDMA_PORTS, sizeof *rows);
	struct spri_text text = {""};
	int n;

	if (!rows)
		return -ENOMEM;
	n = spri_rdma_ports(spri_env_get(SPRI_ENV_TCP_IF), rows, MAX_RDMA_PORTS, &text);
	for (int i = 0; i < n; i++)
		emit_rdma_port(sink, &rows[i]);
	if (n == 0)
		spri_emit(sink, "none", "", "", text.s, false);
	spri_free(rows);
	return n < 0 ? n : 0;
}

/* One way to a peer; it is the one that is chosen when none before it was. */
static void emit_route(const struct spri_sink *sink, const char *transport,
		       const struct spri_route *row, bool *taken)
{
	const char *asked = spri_env_get(SPRI_ENV_TRANSPORT);
	bool chosen = row->usable && !*taken && would_take(asked ? asked : "auto", transport);
	char detail[256];

	*taken = *taken || chosen;
	if (row->usable)
		snprintf(detail, sizeof detail, "from %s%s%s", row->from, row->text[0] ? ": " : "",
			 row->text);
	else
		snprintf(detail, sizeof detail, "not usable: %s", row->text);
	spri_emit(sink, transport, row->via, "", detail, chosen);
}

static int list_peer(const struct spri_sink *sink, const char *address)
{
	const char *interfaces = spri_env_get(SPRI_ENV_TCP_IF);
	struct spri_route rows[MAX_ROUTES];
	struct spri_text text = {""};
	bool taken = false;
	int n = spri_rdma_routes(interfaces, address, rows, MAX_ROUTES, &text), r;

	if (n == SPR_EARGUMENT)
		return n;
	for (int i = 0; i < n; i++)
		emit_route(sink, "verbs", &rows[i], &taken);
	if (n <= 0)
		spri_emit(sink, "verbs", "", "", text.s[0] ? text.s : spr_strerror(n), false);
	text.s[0] = '\0';
	r = spri_tcp_route(interfaces, address, &rows[0], &text);
	if (r < 0)
		spri_emit(sink, "tcp", "", "", text.s[0] ? text.s : spr_strerror(r), false);
	else
		emit_route(sink, "tcp", &rows[0], &taken);
	return r;
}

int spr_info_peer(const char *address, spr_info_fn fn, void *arg)
{
	const struct spri_sink sink = {.fn = fn, .arg = arg};

	if (!address || !fn)
		return SPR_EARGUMENT;
	return spri_trace(list_peer(&sink, address));
}

static int list_algorithms(const struct spri_sink *sink)
{
	const struct spri_algo *row;
	const uint32_t n_ranks = 32;

	for (unsigned i = 0; (row = spri_algo_row(i)) != NULL; i++) {
		bool dense = row->kind == SPRI_ALGO_DENSE, masked = row->kind == SPRI_ALGO_MASKED;
		const char *kind = dense ? "dense" : masked ? "masked" : "sparse";
		char detail[256];

		if (row->kind == SPRI_ALGO_BYTES) /* internal */
			continue;
		snprintf(detail, sizeof detail,
			 "%s; among %u ranks %.3g messages in a row and %.4g bytes per %s",
			 row->about, n_ranks, row->rounds(n_ranks),
			 row->bytes(n_ranks, masked ? 64e6 : 1e6, dense ? 0 : 1e6) / 1e6,
			 dense	  ? "element"
			 : masked ? "element of a mask of every 64th"
				  : "selected entry");
		spri_emit(sink, row->name, kind, "", detail, spri_algo_find("gtopk") == row);
	}
	return 0;
}

static void unknown_variable(void *arg, const char *name, const char *nearest)
{
	spri_emit(arg, name, "", "unknown", nearest, false);
}

static int list_variables(const struct spri_sink *sink)
{
	for (int i = 0; i < SPRI_ENV_COUNT; i++) {
		const struct spri_env_info *info = spri_env_info((enum spri_env)i);
		const char *value = spri_env_get((enum spri_env)i);

		spri_emit(sink, info->name, value ? value : info->value,
			  value ? "environment" : "default", info->meaning, value != NULL);
	}
	spri_env_unknown(unknown_variable, (void *)(uintptr_t)sink);
	return 0;
}

int spr_info_list(enum spr_info_kind kind, spr_info_fn fn, void *arg)
{
	static int (*const lists[])(const struct spri_sink *sink) = {
		[SPR_INFO_VERSION] = list_version,	    [SPR_INFO_CPU] = list_cpu,
		[SPR_INFO_KERNELS] = list_kernels,	    [SPR_INFO_TRANSPORTS] = list_transports,
		[SPR_INFO_INTERFACES] = list_interfaces,    [SPR_INFO_ALGORITHMS] = list_algorithms,
		[SPR_INFO_VARIABLES] = list_variables,	    [SPR_INFO_RDMA] = list_rdma,
		[SPR_INFO_GPUDIRECT] = spri_info_gpudirect,
	};
	const struct spri_sink sink = {.fn = fn, .arg = arg};

	if (!fn || (unsigned)kind >= spri_countof(lists))
		return SPR_EARGUMENT;
	return spri_trace(lists[kind](&sink));
}
