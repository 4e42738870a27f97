/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The parts of spr_allreduce_perf:
 *
 *     spr_allreduce_perf.c   command line, and one process or a simulation of many ranks
 *     allreduce_bench.c      one rank: every size with every algorithm; checks
 *     allreduce_time.c       timed iterations, and the probe for α and β
 *     allreduce_report.c     table lines and JSON records (rank 0)
 */
#ifndef PERF_ALLREDUCE_H
#define PERF_ALLREDUCE_H

#include "json.h"
#include "oracle.h"
#include "table.h"

#include <sparring/sparring.h>

#define AR_MAX_ALGOS 16
#define AR_TOOL "spr_allreduce_perf"
#define AR_MASK_SEED 1 /* draws broadcasters, whatever the seed of the data */

/* What was asked for; the same on every rank, read-only after the command line. */
struct ar_config {
	uint64_t *counts; /* owned: elements of each size */
	size_t n_counts;
	struct spr_algo_info algos[AR_MAX_ALGOS];
	size_t n_algos;
	uint64_t iterations, warmups;
	uint64_t check;	       /* 1: compare with the oracle */
	bool digest;	       /* print digests */
	bool random;	       /* random inputs: digests only */
	double density;	       /* when k is 0 */
	uint64_t k;	       /* 0: by density */
	uint64_t broadcasters; /* of masks */
	enum spr_dtype wire;
	enum spr_codec codec;
	enum spr_memory_kind memory; /* of what the library is given */
	int device;		     /* of a GPU, as the library takes it */
	uint64_t seed;
	double timeout_s;      /* 0: the library's */
	const char *transport; /* NULL: the library's choice */
	uint64_t n_sim_ranks;  /* loop: ranks of the simulation; 0: none */
	uint64_t alpha_ns;     /* loop: latency */
	double bytes_per_s;    /* loop: 1/β */
	const char *json_path; /* NULL: none */
	int argc;	       /* for the JSON file */
	char **argv;
};

/* One size with one algorithm. */
struct ar_case {
	uint64_t count;
	const struct spr_algo_info *algo;
	uint64_t k;	/* entries asked for */
	double density; /* that makes an exchange ask for them */
};

/* Times of an iteration, in nanoseconds; each is the maximum over the ranks, but comm. */
enum ar_metric {
	AR_TIME,   /* the whole operation, from a barrier on */
	AR_SELECT, /* accumulate and select (exchange); choose a mask */
	AR_COMM,   /* the all-reduce alone, from a barrier on, entries or mask chosen before */
	AR_WAIT,   /* exchange: from the end of selection on, slower ranks included */
	AR_MERGE,  /* exchange: of that, merging and trimming */
	AR_COMMIT, /* exchange: residual swap, adoption, scatter */
	AR_METRICS
};

/* What one rank measured in one iteration; exchanged by value. */
struct ar_sample {
	double ns[AR_METRICS];
	uint64_t wire_bytes, value_bytes, direct_bytes, rounds, received;
	uint64_t digest; /* of the result; 0: not taken */
	uint64_t mass;	 /* brought, less adopted, on rank 0 less the result; 0: not taken */
};

/* Iterations of one case. Arrays owned. */
struct ar_series {
	size_t n;
	double *ns[AR_METRICS]; /* per iteration, maximum over the ranks */
	/* of the last iteration, maximum over the ranks */
	uint64_t wire_bytes, value_bytes, direct_bytes;
	uint64_t rounds, received; /* likewise */
	uint64_t digest;	   /* of rank 0, the first one taken */
	uint64_t deviations;	   /* digests, over ranks and iterations, that differ from it */
	uint64_t astray; /* iterations after which the masses of all ranks are not 0 together */
};

/* A line of the table. */
struct ar_line {
	const struct ar_case *what;
	double time_us, time_min_us, time_max_us; /* median and extremes */
	double select_us, comm_us, comm_min_us, comm_max_us, wait_us, merge_us, commit_us;
	double floor_us;     /* α-β bound of comm (sparse) or time (dense) */
	double algbw, busbw; /* GB/s of the dense vector's bytes */
	uint64_t wire_bytes, value_bytes, direct_bytes, rounds, received, wrong, digest;
};

/* The words of --wire and --codec, by enum spr_dtype and enum spr_codec (spr_allreduce_perf.c). */
extern const char *const ar_wire_names[], *const ar_codec_names[];

struct ar_report; /* allreduce_report.c */

/* One rank at work. */
struct ar_bench {
	const struct ar_config *config; /* lent */
	struct spr_sim *sim;		/* lent; NULL: a process of its own */
	int rank, n_ranks;
	struct spr_context *context; /* owned, as all below */
	struct spr_comm *comm;
	struct ar_sample *samples;     /* n_ranks, for gathering */
	char *marks;		       /* n_ranks, for barriers */
	float *in, *out;	       /* the vector of the current size, its result or update */
	struct perf_list own;	       /* the k largest of `in` */
	float *lib_in, *lib_out;       /* what the library is given: in, out or their copies */
	struct perf_list lib_own;      /* likewise; its count is own's */
	enum spr_memory_kind memory;   /* of these three; host memory while probing */
	int *broadcasters;	       /* config->broadcasters ranks that propose masks */
	struct perf_oracle oracle;     /* rank 0, when results are checked */
	struct spr_exchange *exchange; /* of the current case */
	struct perf_list result;       /* copy of the last sparse result */
	double alpha_ns, beta_ns;      /* per round and per byte */
	struct ar_report *report;      /* rank 0, lent */
	uint64_t wrong;		       /* over all lines */
};

/* allreduce_bench.c: a rank's life. Returns 0, or a negative error that was printed. */
int ar_bench_run(struct ar_bench *bench) SPRI_MUST;

/*
 * allreduce_memory.c: in, out and own for the library, in config->memory. push, pull: to the
 * library's copy, and back. Each returns 0 or a negative error that was printed.
 */
int ar_lend(struct ar_bench *bench, uint64_t count) SPRI_MUST;
void ar_take_back(struct ar_bench *bench, uint64_t count);
int ar_pull_out(struct ar_bench *bench, uint64_t count) SPRI_MUST;
int ar_push(struct ar_bench *bench, void *to, const void *from, size_t bytes) SPRI_MUST;

/* Prints what failed on this rank, with the library's text, and returns r. */
int ar_fail(const struct ar_bench *bench, const char *what, int r, const char *text);

/* allreduce_time.c. Each returns 0 or a negative error that was printed. */
enum ar_way {
	AR_DENSE,
	AR_EXCHANGE,
	AR_SPARSE,
	AR_MASKED,	/* broadcasters choose their masks in time */
	AR_MASKED_ALONE /* they have */
};
int ar_time(struct ar_bench *bench, const struct ar_case *what, enum ar_way way, uint64_t warmups,
	    uint64_t iterations, struct ar_series *series) SPRI_MUST;
void ar_series_fini(struct ar_series *series);
/*
 * Sets alpha_ns and beta_ns by measuring small gtopk and a dense_ring of at most 16 MiB; from the
 * options on loop.
 */
int ar_probe(struct ar_bench *bench) SPRI_MUST;
int ar_barrier(struct ar_bench *bench) SPRI_MUST;

/* allreduce_report.c. create returns NULL with a message when the JSON file cannot be made. */
struct ar_report *ar_report_create(const struct ar_config *config);
void ar_report_begin(struct ar_report *report, const struct ar_bench *bench);
void ar_report_line(struct ar_report *report, const struct ar_bench *bench,
		    const struct ar_line *line);
/* Ends the table and puts the JSON file in place. Returns 0, or -1 with a message. */
int ar_report_end(struct ar_report *report, const struct ar_bench *bench) SPRI_MUST;
void ar_report_destroy(struct ar_report *report); /* accepts NULL */

#endif
