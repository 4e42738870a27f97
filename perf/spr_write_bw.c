/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_write_bw: bandwidth of one-sided writes, in the manner of perftest's ib_write_bw.
 *
 * Path, per size: both ends poison their landing areas and fill their sources; the client (both
 * ends with -b) keeps --tx-depth writes under way on each endpoint, over a ring of slots, none of
 * them notified but the last of each endpoint; who has all the last ones replies; the clock stops
 * at the reply and at the completion of every write. Then the receiving end compares the slots
 * with what was sent, and each end tells the other what it measured.
 * Failures: wrong bytes are counted, exit status 1; the rest as ptp.h says.
 */
#include "ptp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RING_BYTES (64u << 10) /* of an endpoint; more where two slots take more */
#define PEAK_WINDOW 512	       /* writes */
#define PEAK_MOST 4000000u     /* writes of which times are kept */
#define MB 1048576.0

/* What the values of a report are. */
enum { ELAPSED_NS, WRITES, WRONG, PEAK_PS };

/* One size. */
struct bench {
	struct ptp_link *link;
	const struct ptp_config *config;
	uint64_t size, stride, slots;  /* of a ring */
	uint64_t n[PTP_MAX_QPS];       /* posted in this size */
	bool ended[PTP_MAX_QPS];       /* the last write is posted */
	uint64_t until_ns;	       /* of -D; 0: by iterations */
	bool replied;		       /* the peer's writes are all here, and it knows */
	uint64_t *posted_ns, *done_ns; /* owned; by cookie; NULL: no peak */
	uint64_t total;
};

static uint64_t ring_slots(uint64_t size)
{
	uint64_t slots = RING_BYTES / ptp_stride(size);

	return slots < 2 ? 2 : slots;
}

static size_t area_bytes(const struct ptp_config *config)
{
	uint64_t most = 0, size;

	for (unsigned at = 0; ptp_size(config, at, &size); at++) {
		uint64_t ring = ring_slots(size) * ptp_stride(size);

		most = ring > most ? ring : most;
	}
	return (size_t)(most * config->n_qps);
}

static uint64_t slot_offset(const struct bench *b, unsigned end, uint64_t number)
{
	return (end * b->slots + number % b->slots) * b->stride;
}

/* Slots of the ring that the peer's writes reached. */
static uint64_t used_slots(const struct bench *b, unsigned end)
{
	uint64_t writes = b->link->ends[end].argument[PTP_END];

	return writes < b->slots ? writes : b->slots;
}

static uint64_t seed_of(const struct bench *b, bool client, unsigned end, uint64_t slot)
{
	return b->size << 32 ^ (uint64_t)end << 20 ^ slot << 1 ^ client;
}

static bool sends(const struct ptp_config *config)
{
	return config->host || config->bidirectional;
}

static bool receives(const struct ptp_config *config)
{
	return !config->host || config->bidirectional;
}

static void prepare(struct bench *b)
{
	uint8_t *source = ptp_source(b->link), *landing = ptp_landing(b->link);

	for (unsigned end = 0; end < b->link->n_ends; end++) {
		for (uint64_t i = 0; i < b->slots; i++) {
			uint64_t at = slot_offset(b, end, i);

			if (sends(b->config))
				ptp_pattern_fill(source + at, b->size,
						 seed_of(b, b->config->host, end, i));
			ptp_pattern_fill(landing + at, b->size,
					 seed_of(b, !b->config->host, end, i));
			for (uint64_t k = 0; k < b->size; k++) /* every byte is wrong */
				landing[at + k] = (uint8_t)~landing[at + k];
		}
	}
}

/* Bytes of the landing area that differ from what the peer sent. */
static uint64_t wrong_bytes(struct bench *b)
{
	const uint8_t *landing = ptp_landing(b->link);
	uint64_t wrong = 0;

	for (unsigned end = 0; end < b->link->n_ends; end++)
		for (uint64_t i = 0; i < used_slots(b, end); i++)
			wrong += ptp_pattern_wrong(landing + slot_offset(b, end, i), b->size,
						   seed_of(b, !b->config->host, end, i));
	return wrong;
}

/* ---- traffic ---- */

static void on_sent(void *arg, uint64_t cookie)
{
	struct bench *b = arg;

	if (cookie < b->total)
		b->done_ns[cookie] = ptp_now();
}

/* Answers when the peer's last write of every endpoint is here. Returns 0, -1. */
static int answer(struct bench *b)
{
	for (unsigned end = 0; end < b->link->n_ends; end++)
		if (b->link->ends[end].got[PTP_END] < b->link->rounds)
			return 0;
	b->replied = true;
	return ptp_send(b->link, 0, 0, 0, PTP_REPLY, 0);
}

static bool is_last(const struct bench *b, unsigned end)
{
	if (b->until_ns)
		return ptp_now() >= b->until_ns;
	return b->n[end] + 1 == b->config->iterations;
}

/* As many writes as the endpoint may have under way. Returns 0, -1. */
static int fill(struct bench *b, unsigned end)
{
	struct ptp_endpoint *e = &b->link->ends[end];

	while (!b->ended[end] && e->posted - e->sent < b->config->tx_depth) {
		bool last = is_last(b, end);
		uint64_t cookie = PTP_NO_COOKIE;
		int r;

		if (b->posted_ns) {
			cookie = b->total;
			b->posted_ns[cookie] = ptp_now();
		}
		r = ptp_post(b->link, end, slot_offset(b, end, b->n[end]), b->size,
			     last ? PTP_END : PTP_WORDS,
			     b->n[end] < b->slots ? (uint32_t)b->n[end] + 1 : (uint32_t)b->slots,
			     cookie);
		if (r == SPR_AGAIN)
			return 0;
		if (r < 0)
			return -1;
		b->n[end]++;
		b->total++;
		b->ended[end] = last;
	}
	return 0;
}

/* Nothing of this size is left to post or to wait for at this endpoint. */
static bool is_done(const struct bench *b, unsigned end)
{
	const struct ptp_endpoint *e = &b->link->ends[end];

	return b->ended[end] && e->sent == e->posted;
}

static bool all_done(const struct bench *b)
{
	for (unsigned end = 0; end < b->link->n_ends; end++)
		if (!is_done(b, end))
			return false;
	return true;
}

/* Writes all, and answers the peer's. Returns 0, -1. */
static int send_all(struct bench *b)
{
	struct ptp_link *link = b->link;
	bool done = false;
	int r;

	while (!done) {
		for (unsigned end = 0; end < link->n_ends; end++) {
			if (fill(b, end) < 0)
				return -1;
			r = ptp_poll(link, end);
			if (r == 0 && (!is_done(b, end) || (end == 0 && all_done(b))))
				r = ptp_idle(link, end);
			if (r < 0)
				return -1;
		}
		if (b->config->bidirectional && !b->replied && answer(b) < 0)
			return -1;
		done = all_done(b) && link->ends[0].got[PTP_REPLY] >= link->rounds &&
		       (b->replied || !b->config->bidirectional);
	}
	return 0;
}

/* Waits for the peer's last writes, asleep: the machine is the sender's. Returns 0, -1. */
static int receive_all(struct bench *b)
{
	struct ptp_link *link = b->link;
	int r = 0;

	link->sleeps = true;
	for (unsigned end = 0; end < link->n_ends && r == 0; end++)
		r = ptp_await(link, end, PTP_END, link->rounds);
	if (r == 0)
		r = answer(b);
	link->sleeps = b->config->events;
	return r;
}

/*
 * The least time per write, in picoseconds, from the post of one write until it and at least so
 * many after it as may be under way are complete; 0: not asked for. Shorter runs would tell how
 * fast buffers are.
 */
static uint64_t peak_ps(const struct bench *b)
{
	uint64_t least = b->config->tx_depth * b->config->n_qps, best = 0;

	if (least > b->total)
		least = b->total;
	for (uint64_t i = 0; b->posted_ns && i + least <= b->total; i++) {
		uint64_t end = i + least + PEAK_WINDOW, done = 0;

		for (uint64_t j = i; j < b->total && j < end; j++) {
			uint64_t ps;

			done = b->done_ns[j] > done ? b->done_ns[j] : done;
			ps = (done - b->posted_ns[i]) * 1000 / (j - i + 1);
			if (j + 1 >= i + least && (best == 0 || ps < best))
				best = ps;
		}
	}
	return best;
}

/* ---- results ---- */

static double rate(const struct ptp_config *config, double bytes, double ns)
{
	if (ns <= 0)
		return 0;
	return config->gbits ? bytes * 8 / ns : bytes / MB / (ns / 1e9);
}

static void print(struct ptp_report *report, const struct bench *b, const uint64_t *mine,
		  const uint64_t *theirs)
{
	const struct ptp_config *config = b->config;
	const uint64_t *ends[] = {mine, theirs};
	double average = 0, peak = 0, mpps = 0, ns = 0;
	uint64_t wrong = mine[WRONG] + theirs[WRONG], writes = 0;

	for (int i = 0; i < 2; i++) {
		const uint64_t *v = ends[i];

		if (!v[ELAPSED_NS])
			continue;
		average += rate(config, (double)(v[WRITES] * b->size), (double)v[ELAPSED_NS]);
		peak += rate(config, (double)b->size, (double)v[PEAK_PS] / 1000);
		mpps += (double)v[WRITES] * 1e3 / (double)v[ELAPSED_NS];
		ns = (double)v[ELAPSED_NS] > ns ? (double)v[ELAPSED_NS] : ns;
		writes += v[WRITES];
	}
	report->wrong += wrong;
	perf_table_cell(report->table, "%" PRIu64, b->size);
	perf_table_cell(report->table, "%" PRIu64, writes);
	perf_table_cell(report->table, "%.2f", peak);
	perf_table_cell(report->table, "%.2f", average);
	perf_table_cell(report->table, "%.6f", mpps);
	if (!report->json)
		return;
	perf_json_begin_object(report->json, NULL);
	perf_json_u64(report->json, "size", b->size);
	perf_json_u64(report->json, "iterations", writes);
	perf_json_double(report->json, "seconds", ns / 1e9);
	perf_json_string(report->json, "unit", config->gbits ? "Gb/s" : "MiB/s");
	if (peak > 0)
		perf_json_double(report->json, "bw_peak", peak);
	else
		perf_json_null(report->json, "bw_peak");
	perf_json_double(report->json, "bw_average", average);
	perf_json_double(report->json, "msg_rate_mpps", mpps);
	perf_json_u64(report->json, "wrong", wrong);
	perf_json_end_object(report->json);
}

/* Arrays for the peak, where it is wanted and of bounded size. Returns 0, -1. */
static int keep_times(struct bench *b)
{
	uint64_t n = b->config->iterations * b->config->n_qps;

	if (b->config->no_peak || n == 0 || n > PEAK_MOST || !sends(b->config))
		return 0;
	b->posted_ns = calloc(n, sizeof *b->posted_ns);
	b->done_ns = calloc(n, sizeof *b->done_ns);
	if (!b->posted_ns || !b->done_ns)
		return ptp_fail(b->config, "out of memory for %" PRIu64 " times (-N needs none)",
				n);
	b->link->on_sent = on_sent;
	b->link->on_sent_arg = b;
	return 0;
}

static int measure(struct bench *b, struct ptp_report *report)
{
	uint64_t mine[PTP_VALUES] = {0}, theirs[PTP_VALUES] = {0}, start;
	int r;

	prepare(b);
	if (ptp_link_ready(b->link) < 0)
		return -1;
	start = ptp_now();
	if (b->config->seconds)
		b->until_ns = start + b->config->seconds * 1000000000;
	r = sends(b->config) ? send_all(b) : receive_all(b);
	if (r < 0)
		return -1;
	if (sends(b->config)) {
		mine[ELAPSED_NS] = ptp_now() - start;
		mine[WRITES] = b->total;
		mine[PEAK_PS] = peak_ps(b);
	}
	if (receives(b->config)) {
		if (ptp_landed(b->link) < 0)
			return -1;
		mine[WRONG] = wrong_bytes(b);
	}
	if (ptp_link_report(b->link, mine, theirs) < 0)
		return -1;
	print(report, b, mine, theirs);
	return 0;
}

static int run(struct ptp_link *link, struct ptp_report *report)
{
	uint64_t size;
	int r = 0;

	for (unsigned at = 0; r == 0 && ptp_size(link->config, at, &size); at++) {
		struct bench b = {.link = link,
				  .config = link->config,
				  .size = size,
				  .stride = ptp_stride(size),
				  .slots = ring_slots(size)};

		r = keep_times(&b);
		if (r == 0)
			r = measure(&b, report);
		link->on_sent = NULL;
		free(b.posted_ns);
		free(b.done_ns);
	}
	return r;
}

int main(int argc, char **argv)
{
	static const struct perf_column mib[] = {{"bytes", NULL, 10},
						 {"#iterations", NULL, 12},
						 {"BW peak[MiB/sec]", NULL, 18},
						 {"BW average[MiB/sec]", NULL, 20},
						 {"MsgRate[Mpps]", NULL, 14}};
	static const struct perf_column gbit[] = {{"bytes", NULL, 10},
						  {"#iterations", NULL, 12},
						  {"BW peak[Gb/sec]", NULL, 18},
						  {"BW average[Gb/sec]", NULL, 20},
						  {"MsgRate[Mpps]", NULL, 14}};
	struct ptp_config config = {
		.tool = "spr_write_bw", .about = "bandwidth of one-sided writes", .kind = PTP_BW};
	const struct ptp_tool tool = {mib, gbit, spri_countof(mib), area_bytes, run};

	return ptp_main(&config, argc, argv, &tool);
}
