/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the point-to-point tools share: spr_write_bw, spr_write_lat, spr_chunk_bw.
 *
 *   1. ptp_options_read   command line in the manner of perftest; SPR_* variables set from it
 *   2. ptp_report_create  refuses a JSON file that exists
 *   3. ptp_link_open      server and client meet as ranks 0 and 1, tell each other options,
 *                         addresses and grants, compare, connect; then they talk over the
 *                         endpoints alone
 *   4. the tool's loop    per size: ptp_link_ready, its traffic, ptp_link_report
 *   5. ptp_link_close, ptp_report_end
 *
 * Failures print one line on stderr where they are found and come back as -1. Nothing waits
 * longer than --timeout without progress. SIGINT and SIGTERM end every loop and say goodbye.
 */
#ifndef PTP_H
#define PTP_H

#include "json.h"
#include "table.h"

#include <sparring/sparring.h>

#define PTP_UNSET UINT64_MAX
#define PTP_MAX_QPS 64
#define PTP_NO_COOKIE UINT64_MAX
#define PTP_HEAD_BYTES 4096u /* of an area: the values; the rest of it begins on a page */
#define PTP_VALUES 8	     /* numbers that one end tells the other after each size */

#define PTP_EXIT_WRONG 1
#define PTP_EXIT_USAGE 2
#define PTP_EXIT_FAILED 3
#define PTP_EXIT_INTERRUPTED 130

enum ptp_kind { PTP_BW, PTP_LAT, PTP_CHUNK };

struct ptp_config {
	const char *tool;
	const char *about; /* of the measurement, for the heading */
	enum ptp_kind kind;
	int argc;
	char **argv;
	const char *host; /* NULL: this is the server */
	uint64_t port;
	uint64_t size, iterations, seconds; /* seconds 0: by iterations */
	uint64_t n_qps, tx_depth;
	bool all, bidirectional, no_peak, events, histogram, gbits, json;
	const char *json_path; /* NULL: none */
	/* verbs */
	const char *device;
	uint64_t ib_port, gid, mtu, qp_timeout, service_level, tos;
	uint64_t cuda; /* the GPU; PTP_UNSET: host memory */
	bool cuda_dmabuf, rdma_cm, cpu_freq, version;
	const char *transport; /* verbs, tcp, auto; NULL: SPR_TRANSPORT's */
	double timeout_s;
	/* spr_chunk_bw */
	double density;
	const char *codec;
	uint64_t chunk, seed;
};

/* ---- ptp_options.c ---- */
/*
 * Fills the config, whose tool, about, kind and defaults are set, and sets SPR_* variables.
 * Returns 0; 1 when there is nothing more to do; -1 when the line was refused.
 */
int ptp_options_read(struct ptp_config *config, int argc, char **argv) SPRI_MUST;
/* The sizes to measure, ascending; `at` from 0. Returns false behind the last. */
bool ptp_size(const struct ptp_config *config, unsigned at, uint64_t *size);
uint64_t ptp_size_most(const struct ptp_config *config);

/* ---- ptp_link.c, ptp_meet.c ---- */
/* What a notification says; the kind stands in the top byte of the immediate. */
enum ptp_word {
	PTP_READY,  /* the landing memory is prepared, the sources are filled */
	PTP_DATA,   /* a write that wants no more than to be counted */
	PTP_END,    /* the last write of a size on this endpoint */
	PTP_REPLY,  /* every END, and so every byte, has arrived */
	PTP_REPORT, /* the values are in place */
	PTP_WORDS
};

struct ptp_endpoint {
	struct spr_endpoint *endpoint; /* owned */
	struct spr_remote remote;      /* the peer's landing memory */
	bool connected, closed;	       /* closed: by the peer, or lost */
	uint64_t posted, sent;	       /* writes, since the start */
	uint64_t got[PTP_WORDS];       /* notifications, since the start */
	uint32_t argument[PTP_WORDS];  /* what came with the newest of each */
};

struct ptp_link {
	const struct ptp_config *config; /* lent */
	struct spr_context *context;	 /* owned, as all below */
	struct spr_memory *source_memory, *landing_memory;
	uint8_t *source, *landing; /* values first, then the tool's bytes */
	void *from, *to;	   /* the same, where endpoints see them: there, or on a GPU */
	size_t area_bytes;	   /* of each, values included */
	struct ptp_endpoint ends[PTP_MAX_QPS];
	unsigned n_ends;
	void (*on_sent)(void *arg, uint64_t cookie); /* called for each SENT, when set */
	void *on_sent_arg;
	uint64_t rounds; /* sizes begun */
	uint64_t idle;	 /* polls since something came */
	uint64_t idle_since_ns;
	bool sleeps;  /* waits in the kernel instead of polling */
	bool closing; /* the other end may close, too */
	char transport[16];
};

/* Opens, meets, connects; the areas are `bytes` bytes behind the values. Returns 0, -1. */
int ptp_link_open(struct ptp_link *link, const struct ptp_config *config, size_t bytes) SPRI_MUST;
/*
 * After success both ends close and see the other do so; then everything is freed. Accepts a
 * zeroed link.
 */
void ptp_link_close(struct ptp_link *link, bool success);
/* ---- ptp_area.c ---- */
/* Gets and registers the areas. Returns 0 or the library's status, with a message. */
int ptp_area_open(struct ptp_link *link) SPRI_MUST;
/* Their registrations are gone. */
void ptp_area_close(struct ptp_link *link);
/*
 * With a GPU: the first bytes of the source to it, the landing area to it, and back. Return 0, -1
 * with a message.
 */
int ptp_area_give(struct ptp_link *link, size_t bytes) SPRI_MUST;
int ptp_area_reset(struct ptp_link *link) SPRI_MUST;
int ptp_area_fetch(struct ptp_link *link, size_t bytes) SPRI_MUST;
/* The tool's bytes of the two areas: set before ptp_link_ready, looked at after ptp_landed. */
uint8_t *ptp_source(struct ptp_link *link);
uint8_t *ptp_landing(struct ptp_link *link);

/*
 * Posts bytes of the source to the same place of the peer's landing area. `word` PTP_WORDS: no
 * notification. Returns 0, SPR_AGAIN, -1.
 */
int ptp_post(struct ptp_link *link, unsigned end, uint64_t offset, size_t bytes, enum ptp_word word,
	     uint32_t argument, uint64_t cookie) SPRI_MUST;
/* The same, polling while the queue is full. Returns 0, -1. */
int ptp_send(struct ptp_link *link, unsigned end, uint64_t offset, size_t bytes, enum ptp_word word,
	     uint32_t argument) SPRI_MUST;
/* Takes what came for one endpoint. Returns the number of events, -1. */
int ptp_poll(struct ptp_link *link, unsigned end) SPRI_MUST;
/* After a poll without events: sleeps, if the link does, and minds the deadline. Returns 0, -1. */
int ptp_idle(struct ptp_link *link, unsigned end) SPRI_MUST;
/* Polls until the endpoint got so many such words. Returns 0, -1. */
int ptp_await(struct ptp_link *link, unsigned end, enum ptp_word word, uint64_t n) SPRI_MUST;
/* Both ends are prepared for the next size. Returns 0, -1. */
int ptp_link_ready(struct ptp_link *link) SPRI_MUST;
/* What arrived can be looked at. Returns 0, -1. */
int ptp_landed(struct ptp_link *link) SPRI_MUST;
/* Values to the peer, and the peer's to `theirs`. Returns 0, -1. */
int ptp_link_report(struct ptp_link *link, const uint64_t mine[PTP_VALUES],
		    uint64_t theirs[PTP_VALUES]) SPRI_MUST;

/* Bytes from one slot to the next. */
static inline uint64_t ptp_stride(uint64_t size)
{
	return (size + 63) & ~63ull;
}

/* Real time in nanoseconds. */
uint64_t ptp_now(void);
/* One line on stderr with the tool's name. Returns -1. */
int ptp_fail(const struct ptp_config *config, const char *format, ...) SPRI_PRINTF(2, 3);
/* SIGINT or SIGTERM came. */
bool ptp_stopped(void);

/* Bytes that depend on place and seed; and how many differ from them. */
void ptp_pattern_fill(uint8_t *at, size_t bytes, uint64_t seed);
uint64_t ptp_pattern_wrong(const uint8_t *at, size_t bytes, uint64_t seed);

/* ---- ptp_report.c ---- */
struct ptp_report {
	const struct ptp_config *config; /* lent */
	struct perf_table *table;	 /* owned */
	struct perf_json *json;		 /* owned; NULL: none wanted */
	char *name, *part; /* owned; of the JSON file, and where it is written first */
	uint64_t wrong;	   /* bytes or entries, all sizes */
};

/* Returns 0, -1 with a message; then ptp_report_destroy. */
int ptp_report_create(struct ptp_report *report, const struct ptp_config *config,
		      const struct perf_column *columns, size_t n_columns) SPRI_MUST;
/* Heading lines, and the head of the JSON document. */
void ptp_report_begin(struct ptp_report *report, const struct ptp_link *link);
/* Puts the JSON file in place, if there is none. Returns the exit status. */
int ptp_report_end(struct ptp_report *report);
void ptp_report_destroy(struct ptp_report *report);

/* What the tools differ in. */
struct ptp_tool {
	const struct perf_column *columns, *gbit_columns; /* the latter for --report_gbits */
	size_t n_columns;
	size_t (*area_bytes)(const struct ptp_config *config);
	/* All sizes: a line of the table and a record for each. Returns 0, -1. */
	int (*run)(struct ptp_link *link, struct ptp_report *report);
};

/* The whole program, from the command line to the exit status. */
int ptp_main(struct ptp_config *config, int argc, char **argv, const struct ptp_tool *tool);

#endif
