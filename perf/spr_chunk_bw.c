/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_chunk_bw: throughput of value/index chunks, as gtopk sends them: encode, write, decode.
 *
 * Path: both ends draw the same vector and select its largest entries, once. The client then
 * sends them --iters times: it cuts them into chunks, encodes each into a slot of a ring, and
 * writes it with a notification; the server decodes each into its own arrays as it comes, and gives
 * slots back in batches. The clock stops when the server has decoded the last entry. At the end
 * the server compares its arrays with its own selection.
 *
 * The wire form is that of docs/wire.md, "Chunk" and "Codecs": a header of 64 bytes, of which
 * codec, count, base and payload bytes are filled and read here, then offsets and values (raw32)
 * or values (dense).
 * Failures: entries that differ, exit status 1; a chunk that is none, and the rest as ptp.h says.
 */
#include "oracle.h"
#include "ptp.h"

#include <internal/bytes.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES 64u
#define AT_CODEC 3
#define AT_COUNT 20
#define AT_BASE 24
#define AT_PAYLOAD 56
#define RAW32 1
#define DENSE 2
#define RATE_MB 1048576.0

/* What the values of a report are. */
enum { ELAPSED_NS, ENCODE_NS, DECODE_NS, WRONG, BYTES };

struct bench {
	struct ptp_link *link;
	const struct ptp_config *config;
	struct perf_list list; /* what is sent, and what must arrive */
	uint64_t elements;     /* of the vector */
	uint8_t codec;
	uint64_t per_chunk; /* most entries of one */
	uint64_t *index;    /* owned; decoded */
	float *value;	    /* owned; decoded */
	uint64_t ns, bytes; /* of encoding or decoding; of chunks sent */
};

static size_t area_bytes(const struct ptp_config *config)
{
	return (size_t)(config->tx_depth * ptp_stride(config->chunk));
}

/* ---- the vector ---- */

/* All elements, as a list; zeros too. */
static int list_all(const float *values, uint64_t n, struct perf_list *out)
{
	out->index = calloc(n, sizeof *out->index);
	out->value = calloc(n, sizeof *out->value);
	if (!out->index || !out->value)
		return -1;
	for (uint64_t i = 0; i < n; i++) {
		out->index[i] = i;
		out->value[i] = values[i];
	}
	out->count = n;
	return 0;
}

static int draw(struct bench *b)
{
	const struct ptp_config *c = b->config;
	float *vector;
	uint64_t k;
	int r;

	b->elements = c->size / sizeof *vector;
	b->codec = !strcmp(c->codec, "dense") ? DENSE : RAW32;
	b->per_chunk = (c->chunk - HEAD_BYTES) / (b->codec == DENSE ? 4 : 8);
	k = (uint64_t)ceil((double)b->elements * c->density);
	vector = calloc(b->elements, sizeof *vector);
	if (!vector)
		return ptp_fail(c, "out of memory for the vector");
	perf_input_random(c->seed, 0, 0, b->elements, vector);
	r = b->codec == DENSE ? list_all(vector, b->elements, &b->list)
			      : perf_list_topk(vector, b->elements, k, &b->list);
	free(vector);
	b->index = calloc(b->list.count + 1, sizeof *b->index);
	b->value = calloc(b->list.count + 1, sizeof *b->value);
	if (r < 0 || !b->index || !b->value)
		return ptp_fail(c, "out of memory for the entries");
	return 0;
}

/* ---- the wire form ---- */

/* Writes `n` entries from `first` on. Returns the chunk's bytes. */
static size_t encode(const struct bench *b, uint64_t first, uint64_t n, uint8_t *out)
{
	const uint64_t *index = b->list.index + first;
	uint64_t base = index[0];
	uint8_t *payload = out + HEAD_BYTES;
	size_t offsets = b->codec == RAW32 ? (size_t)n * 4 : 0, bytes = offsets + (size_t)n * 4;

	memset(out, 0, HEAD_BYTES);
	out[0] = 'S';
	out[1] = 'P';
	out[2] = 1;
	out[AT_CODEC] = b->codec;
	spri_put_u32(out + AT_COUNT, (uint32_t)n);
	spri_put_u64(out + AT_BASE, base);
	spri_put_u32(out + AT_PAYLOAD, (uint32_t)bytes);
	for (uint64_t i = 0; offsets && i < n; i++)
		spri_put_u32(payload + 4 * i, (uint32_t)(index[i] - base));
	memcpy(payload + offsets, b->list.value + first, (size_t)n * 4);
	return HEAD_BYTES + bytes;
}

/* Appends the entries of a chunk at `first`. Returns their number, -1 when it is no chunk. */
static int64_t decode(struct bench *b, const uint8_t *in, uint64_t first)
{
	uint64_t n = spri_get_u32(in + AT_COUNT), base = spri_get_u64(in + AT_BASE);
	const uint8_t *payload = in + HEAD_BYTES;
	size_t offsets = b->codec == RAW32 ? (size_t)n * 4 : 0;

	if (in[AT_CODEC] != b->codec || n == 0 || n > b->per_chunk || n > b->list.count - first ||
	    spri_get_u32(in + AT_PAYLOAD) != offsets + n * 4)
		return ptp_fail(b->config, "what arrived is no chunk of this run");
	for (uint64_t i = 0; i < n; i++)
		b->index[first + i] = base + (offsets ? spri_get_u32(payload + 4 * i) : i);
	memcpy(b->value + first, payload + offsets, (size_t)n * 4);
	return (int64_t)n;
}

/* Entries whose index or bits differ. */
static uint64_t wrong_entries(const struct bench *b)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < b->list.count; i++)
		wrong += b->index[i] != b->list.index[i] ||
			 memcmp(&b->value[i], &b->list.value[i], sizeof(float)) != 0;
	return wrong;
}

/* ---- traffic ---- */

/* Slots that the server gave back so far, all told. */
static int await_slot(struct bench *b, uint64_t chunk, uint64_t batch)
{
	uint64_t depth = b->config->tx_depth;

	if (chunk < depth)
		return 0;
	/* slot chunk % depth is free when the server decoded chunk - depth */
	return ptp_await(b->link, 0, PTP_DATA, (chunk - depth) / batch + 1);
}

/* The server gives slots back so many at a time. */
static uint64_t batch_of(const struct ptp_config *config)
{
	return config->tx_depth < 4 ? 1 : config->tx_depth / 4;
}

static int send_lists(struct bench *b)
{
	struct ptp_link *link = b->link;
	uint64_t chunk = 0, batch = batch_of(b->config);

	for (uint64_t i = 0; i < b->config->iterations; i++) {
		for (uint64_t at = 0; at < b->list.count; chunk++) {
			uint64_t left = b->list.count - at;
			uint64_t n = left < b->per_chunk ? left : b->per_chunk;
			uint64_t slot = chunk % b->config->tx_depth * ptp_stride(b->config->chunk);
			bool last = i + 1 == b->config->iterations && n == left;
			uint64_t start;
			size_t bytes;

			if (await_slot(b, chunk, batch) < 0)
				return -1;
			start = ptp_now();
			bytes = encode(b, at, n, ptp_source(link) + slot);
			b->ns += ptp_now() - start;
			b->bytes += bytes;
			if (ptp_send(link, 0, slot, bytes, last ? PTP_END : PTP_DATA, 0) < 0)
				return -1;
			at += n;
		}
	}
	return ptp_await(link, 0, PTP_REPLY, 1);
}

static int receive_lists(struct bench *b)
{
	struct ptp_link *link = b->link;
	uint64_t *got = link->ends[0].got;
	uint64_t chunk = 0, batch = batch_of(b->config), at = 0;
	bool last = false;

	while (!last) {
		int64_t n;
		uint64_t start;

		while (got[PTP_DATA] + got[PTP_END] == chunk) {
			int r = ptp_poll(link, 0);

			if (r == 0)
				r = ptp_idle(link, 0);
			if (r < 0)
				return -1;
		}
		start = ptp_now();
		n = decode(b,
			   ptp_landing(link) +
				   chunk % b->config->tx_depth * ptp_stride(b->config->chunk),
			   at);
		if (n < 0)
			return -1;
		b->ns += ptp_now() - start;
		at = at + (uint64_t)n == b->list.count ? 0 : at + (uint64_t)n;
		chunk++;
		last = got[PTP_END] && got[PTP_DATA] + got[PTP_END] == chunk;
		if (chunk % batch == 0 && ptp_send(link, 0, 0, 0, PTP_DATA, 0) < 0)
			return -1;
	}
	return ptp_send(link, 0, 0, 0, PTP_REPLY, 0);
}

/* ---- results ---- */

static void print(struct ptp_report *report, const struct bench *b, const uint64_t *client,
		  const uint64_t *server)
{
	const struct ptp_config *config = b->config;
	double ns = (double)client[ELAPSED_NS], entries = (double)b->list.count;
	double total = entries * (double)config->iterations, bytes = (double)client[BYTES];
	double rate = config->gbits ? bytes * 8 / ns : bytes / RATE_MB / (ns / 1e9);
	double encode_ns = (double)client[ENCODE_NS] / total;
	double decode_ns = (double)server[DECODE_NS] / total;

	report->wrong += server[WRONG];
	perf_table_cell(report->table, "%" PRIu64, config->size);
	perf_table_cell(report->table, "%" PRIu64, b->list.count);
	perf_table_cell(report->table, "%s", config->codec);
	perf_table_cell(report->table, "%" PRIu64, config->chunk);
	perf_table_cell(report->table, "%" PRIu64, config->iterations);
	perf_table_cell(report->table, "%.3f", total * 1e3 / ns);
	perf_table_cell(report->table, "%.2f", rate);
	perf_table_cell(report->table, "%.3f", encode_ns);
	perf_table_cell(report->table, "%.3f", decode_ns);
	if (!report->json)
		return;
	perf_json_begin_object(report->json, NULL);
	perf_json_u64(report->json, "size", config->size);
	perf_json_u64(report->json, "entries", b->list.count);
	perf_json_string(report->json, "codec", config->codec);
	perf_json_double(report->json, "density", config->density);
	perf_json_u64(report->json, "chunk", config->chunk);
	perf_json_u64(report->json, "iterations", config->iterations);
	perf_json_double(report->json, "seconds", ns / 1e9);
	perf_json_double(report->json, "entries_per_s", total / (ns / 1e9));
	perf_json_string(report->json, "unit", config->gbits ? "Gb/s" : "MiB/s");
	perf_json_double(report->json, "bw_average", rate);
	perf_json_double(report->json, "encode_ns_per_entry", encode_ns);
	perf_json_double(report->json, "decode_ns_per_entry", decode_ns);
	perf_json_u64(report->json, "wrong", server[WRONG]);
	perf_json_end_object(report->json);
}

static int measure(struct bench *b, struct ptp_report *report)
{
	uint64_t mine[PTP_VALUES] = {0}, theirs[PTP_VALUES] = {0}, start;
	bool client = b->config->host != NULL;
	int r;

	if (ptp_link_ready(b->link) < 0)
		return -1;
	start = ptp_now();
	r = client ? send_lists(b) : receive_lists(b);
	if (r < 0)
		return -1;
	if (client) {
		mine[ELAPSED_NS] = ptp_now() - start;
		mine[ENCODE_NS] = b->ns;
		mine[BYTES] = b->bytes;
	} else {
		mine[DECODE_NS] = b->ns;
		mine[WRONG] = wrong_entries(b);
	}
	if (ptp_link_report(b->link, mine, theirs) < 0)
		return -1;
	print(report, b, client ? mine : theirs, client ? theirs : mine);
	return 0;
}

static int run(struct ptp_link *link, struct ptp_report *report)
{
	struct bench b = {.link = link, .config = link->config};
	int r = draw(&b);

	if (r == 0)
		r = measure(&b, report);
	perf_list_fini(&b.list);
	free(b.index);
	free(b.value);
	return r;
}

int main(int argc, char **argv)
{
	static const struct perf_column mib[] = {{"vector", "(B)", 11},
						 {"entries", NULL, 10},
						 {"codec", NULL, 6},
						 {"chunk", "(B)", 8},
						 {"#iterations", NULL, 12},
						 {"rate", "(Mentries/s)", 13},
						 {"BW average", "(MiB/s)", 11},
						 {"encode", "(ns/entry)", 11},
						 {"decode", "(ns/entry)", 11}};
	struct perf_column gbit[spri_countof(mib)];
	struct ptp_config config = {.tool = "spr_chunk_bw",
				    .about = "throughput of value/index chunks",
				    .kind = PTP_CHUNK};
	const struct ptp_tool tool = {mib, gbit, spri_countof(mib), area_bytes, run};

	memcpy(gbit, mib, sizeof gbit);
	gbit[6].unit = "(Gb/s)";
	return ptp_main(&config, argc, argv, &tool);
}
