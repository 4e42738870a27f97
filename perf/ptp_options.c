/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The command line of the point-to-point tools: perftest's letters and names, and ours.
 *
 * Path: one list of all options, each with the tools that have it; what the user gave for verbs
 * is put into SPR_* variables, before the library reads them. Failures: refused with one line
 * that says what would be right.
 */
#include "options.h"
#include "ptp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OPTIONS 48
#define SIZE_MOST (1u << 30)
#define ALL_FIRST 2u
#define ALL_LAST (8u << 20)

#define ANY 7u
#define BW (1u << PTP_BW)
#define LAT (1u << PTP_LAT)
#define CHUNK (1u << PTP_CHUNK)
#define SAME ", symmetric"

static const char epilog[] =
	"Started without HOST it is the server, with it the client of the server there. What is "
	"marked symmetric has to\n"
	"be the same at both ends; a difference is named. Exit status: 0; 1 when data are wrong, "
	"2 for a refused\n"
	"command line, 3 when something failed, 130 after an interrupt.\n";

/* An option and the tools that have it. */
struct row {
	unsigned tools;
	struct perf_option option;
};

static size_t pick(const struct ptp_config *config, const struct row *rows, size_t n,
		   struct perf_option *table, size_t at)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].tools & 1u << config->kind)
			table[at++] = rows[i].option;
	return at;
}

static size_t own_options(struct ptp_config *c, struct perf_option *table)
{
	const struct row rows[] = {
		{ANY,
		 {'p', "port", PERF_OPT_U64, "PORT", "TCP port of the meeting (18515)" SAME,
		  &c->port, 1, 65535}},
		{ANY,
		 {'s', "size", PERF_OPT_SIZE, "BYTES",
		  c->kind == PTP_CHUNK ? "of the dense vector (4M)" SAME
		  : c->kind == PTP_BW  ? "of a write (65536)" SAME
				       : "of a write (2)" SAME,
		  &c->size, c->kind == PTP_CHUNK ? 4 : 1, SIZE_MOST}},
		{BW | LAT,
		 {'a', "all", PERF_OPT_FLAG, NULL, "all sizes, 2 to 8M" SAME, &c->all, 0, 0}},
		{ANY,
		 {'n', "iters", PERF_OPT_U64, "N",
		  c->kind == PTP_LAT  ? "round trips (1000)" SAME
		  : c->kind == PTP_BW ? "writes of each endpoint (5000)" SAME
				      : "how often the vector is sent (100)" SAME,
		  &c->iterations, 1, 1e8}},
		{BW | LAT,
		 {'D', "duration", PERF_OPT_U64, "SECONDS",
		  "instead of -n: so long, for each size" SAME, &c->seconds, 1, 1e6}},
		{BW,
		 {'q', "qp", PERF_OPT_U64, "N", "endpoints (1)" SAME, &c->n_qps, 1, PTP_MAX_QPS}},
		{BW,
		 {'t', "tx-depth", PERF_OPT_U64, "N", "writes under way on each endpoint (128)",
		  &c->tx_depth, 1, 65536}},
		{CHUNK,
		 {'t', "tx-depth", PERF_OPT_U64, "N", "chunks under way (16)" SAME, &c->tx_depth, 1,
		  1024}},
		{BW,
		 {'b', "bidirectional", PERF_OPT_FLAG, NULL, "both ends write" SAME,
		  &c->bidirectional, 0, 0}},
		{BW,
		 {'N', "no_peak", PERF_OPT_FLAG, NULL, "do not find the peak", &c->no_peak, 0, 0}},
		{ANY,
		 {'e', "events", PERF_OPT_FLAG, NULL, "sleep instead of polling", &c->events, 0,
		  0}},
		{LAT,
		 {'H', "report-histogram", PERF_OPT_FLAG, NULL,
		  "print every half round trip, sorted", &c->histogram, 0, 0}},
		{CHUNK,
		 {0, "density", PERF_OPT_DOUBLE, "D",
		  "share of the elements that are sent (0.01)" SAME, &c->density, 1e-9, 1}},
		{CHUNK,
		 {0, "codec", PERF_OPT_STRING, "NAME",
		  "raw32 (offsets and values) or dense (all values)" SAME, &c->codec, 0, 0}},
		{CHUNK,
		 {0, "chunk", PERF_OPT_SIZE, "BYTES",
		  "of a chunk, its header of 64 included (65536)" SAME, &c->chunk, 128, 1 << 24}},
		{CHUNK, {0, "seed", PERF_OPT_U64, "N", "of the vector (1)" SAME, &c->seed, 0, 0}},
		{BW | CHUNK,
		 {0, "report_gbits", PERF_OPT_FLAG, NULL, "Gb/s instead of MiB/s", &c->gbits, 0,
		  0}},
	};

	return pick(c, rows, spri_countof(rows), table, 0);
}

static size_t common_options(struct ptp_config *c, struct perf_option *table, size_t at)
{
	const struct row rows[] = {
		{ANY,
		 {0, "out_json", PERF_OPT_FLAG, NULL, "write the tool's name.json", &c->json, 0,
		  0}},
		{ANY,
		 {0, "out_json_file", PERF_OPT_STRING, "FILE",
		  "write this JSON file, which must not exist", &c->json_path, 0, 0}},
		{ANY,
		 {0, "transport", PERF_OPT_STRING, "NAME",
		  "verbs, tcp or auto (SPR_TRANSPORT, else auto)" SAME, &c->transport, 0, 0}},
		{ANY,
		 {0, "timeout", PERF_OPT_DOUBLE, "S",
		  "deadline of meeting, connecting, and of no progress (30)", &c->timeout_s, 0.001,
		  1e6}},
		{ANY, {'d', "ib-dev", PERF_OPT_STRING, "NAME", "RDMA device", &c->device, 0, 0}},
		{ANY,
		 {'i', "ib-port", PERF_OPT_U64, "N", "its port; needs -d", &c->ib_port, 1, 255}},
		{ANY, {'x', "gid-index", PERF_OPT_U64, "N", "index of the GID", &c->gid, 0, 255}},
		{ANY, {'S', "sl", PERF_OPT_U64, "N", "service level", &c->service_level, 0, 15}},
		{ANY, {'T', "tos", PERF_OPT_U64, "N", "traffic class", &c->tos, 0, 255}},
		{ANY,
		 {'u', "qp-timeout", PERF_OPT_U64, "N", "verbs sends again after 4 us x 2^N (18)",
		  &c->qp_timeout, 1, 31}},
		{ANY,
		 {'m', "mtu", PERF_OPT_U64, "BYTES",
		  "refused: it is the smaller one of the two ports", &c->mtu, 0, 0}},
		{ANY,
		 {'R', "rdma_cm", PERF_OPT_FLAG, NULL, "accepted: rdma_cm always connects",
		  &c->rdma_cm, 0, 0}},
		{ANY,
		 {'F', "CPU-freq", PERF_OPT_FLAG, NULL,
		  "accepted: the CPU's frequency is not looked at", &c->cpu_freq, 0, 0}},
		{BW | LAT,
		 {0, "use_cuda", PERF_OPT_U64, "GPU", "from and into memory of this GPU", &c->cuda,
		  0, 63}},
		{BW | LAT,
		 {0, "use_cuda_dmabuf", PERF_OPT_FLAG, NULL,
		  "with --use_cuda: by dma-buf, or not at all", &c->cuda_dmabuf, 0, 0}},
		{ANY, {'V', NULL, PERF_OPT_FLAG, NULL, "as --version", &c->version, 0, 0}},
	};

	return pick(c, rows, spri_countof(rows), table, at);
}

/* What the table of options cannot check by itself. */
static int check(const struct perf_options *options, struct ptp_config *c)
{
	static const char *const transports[] = {"verbs", "tcp", "auto"};
	bool verbs_only = c->device || c->gid != PTP_UNSET || c->service_level != PTP_UNSET ||
			  c->tos != PTP_UNSET || c->qp_timeout != PTP_UNSET;
	bool known = !c->transport;

	for (size_t i = 0; i < spri_countof(transports); i++)
		known = known || !strcmp(c->transport, transports[i]);
	if (c->transport && !strcmp(c->transport, "shm"))
		return perf_options_refuse(options, "--transport shm is not in this version");
	if (!known)
		return perf_options_refuse(
			options, "--transport is '%s', must be verbs, tcp or auto", c->transport);
	if (c->cuda_dmabuf && c->cuda == PTP_UNSET)
		return perf_options_refuse(options, "--use_cuda_dmabuf needs --use_cuda");
	if (c->mtu != PTP_UNSET)
		return perf_options_refuse(
			options, "-m cannot be set: verbs takes the smaller one of the two "
				 "ports; set the interface's MTU");
	if (c->ib_port != PTP_UNSET && !c->device)
		return perf_options_refuse(options, "-i needs -d");
	if (verbs_only && c->transport && !strcmp(c->transport, "tcp"))
		return perf_options_refuse(options, "-d, -x, -S, -T and -u are for verbs, but "
						    "--transport is tcp");
	if (c->all && c->size != PTP_UNSET)
		return perf_options_refuse(options, "-a and -s exclude each other");
	if (c->seconds && c->iterations != PTP_UNSET)
		return perf_options_refuse(options, "-n and -D exclude each other");
	if (c->kind == PTP_CHUNK && strcmp(c->codec, "raw32") && strcmp(c->codec, "dense"))
		return perf_options_refuse(options, "--codec is '%s', must be raw32 or dense",
					   c->codec);
	if (c->json_path && !strcmp(c->json_path, "-"))
		return perf_options_refuse(options, "--out_json_file must be a file");
	return 0;
}

static int set(const struct perf_options *options, const char *name, const char *value)
{
	if (value && setenv(name, value, 1) < 0)
		return perf_options_refuse(options, "%s cannot be set: %s", name, strerror(errno));
	return 0;
}

static int set_number(const struct perf_options *options, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return value == PTP_UNSET ? 0 : set(options, name, text);
}

static int set_environment(const struct perf_options *options, const struct ptp_config *c)
{
	char device[128] = "";
	int n = 0;

	if (c->device && c->ib_port != PTP_UNSET)
		n = snprintf(device, sizeof device, "%s:%u", c->device, (unsigned)c->ib_port);
	else if (c->device)
		n = snprintf(device, sizeof device, "%s", c->device);
	if (n >= (int)sizeof device)
		return perf_options_refuse(options, "-d is too long");
	if (set(options, "SPR_RDMA_DEVICE", n > 0 ? device : NULL) ||
	    set(options, "SPR_TRANSPORT", c->transport) ||
	    set_number(options, "SPR_RDMA_GID", c->gid) ||
	    set_number(options, "SPR_RDMA_SL", c->service_level) ||
	    set_number(options, "SPR_RDMA_TC", c->tos) ||
	    set_number(options, "SPR_RDMA_TIMEOUT", c->qp_timeout))
		return -1;
	return 0;
}

/* Options and the one operand, in any order. */
static int parse(const struct perf_options *options, struct ptp_config *c, int argc, char **argv)
{
	int at = 0;

	while (at < argc) {
		int first = 0;
		int r = perf_options_parse(options, argc - at, argv + at, &first);

		if (r)
			return r;
		at += first;
		if (at < argc && c->host)
			return perf_options_refuse(options, "two hosts: '%s' and '%s'", c->host,
						   argv[at]);
		if (at < argc && !argv[at][0])
			return perf_options_refuse(options, "the host is empty");
		if (at < argc)
			c->host = argv[at];
	}
	return 0;
}

int ptp_options_read(struct ptp_config *c, int argc, char **argv)
{
	static const uint64_t iterations[] = {[PTP_BW] = 5000, [PTP_LAT] = 1000, [PTP_CHUNK] = 100};
	static const uint64_t sizes[] = {[PTP_BW] = 65536, [PTP_LAT] = 2, [PTP_CHUNK] = 4 << 20};
	struct perf_option table[MOST_OPTIONS];
	struct perf_options options = {c->tool, c->about, "[OPTIONS] [HOST]", epilog, table,
				       0,	true};
	int r;

	c->argc = argc;
	c->argv = argv;
	c->port = 18515;
	c->size = c->iterations = c->ib_port = c->gid = c->mtu = PTP_UNSET;
	c->cuda = c->qp_timeout = c->service_level = c->tos = PTP_UNSET;
	c->n_qps = 1;
	c->tx_depth = c->kind == PTP_CHUNK ? 16 : 128;
	c->timeout_s = 30;
	c->density = 0.01;
	c->codec = "raw32";
	c->chunk = 65536;
	c->seed = 1;
	options.n_options = common_options(c, table, own_options(c, table));
	assert(options.n_options <= MOST_OPTIONS);
	r = parse(&options, c, argc, argv);
	if (r)
		return r;
	if (c->version) {
		printf("%s %s\n", c->tool, spr_version());
		return 1;
	}
	if (check(&options, c) || set_environment(&options, c))
		return -1;
	if (c->size == PTP_UNSET)
		c->size = sizes[c->kind];
	if (c->iterations == PTP_UNSET)
		c->iterations = iterations[c->kind];
	if (c->seconds)
		c->iterations = 0;
	return 0;
}

bool ptp_size(const struct ptp_config *config, unsigned at, uint64_t *size)
{
	*size = config->all ? (uint64_t)ALL_FIRST << at : config->size;
	return config->all ? *size <= ALL_LAST : at == 0;
}

uint64_t ptp_size_most(const struct ptp_config *config)
{
	return config->all ? ALL_LAST : config->size;
}
