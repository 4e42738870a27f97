/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Training steps on the simulator, recorded: every rank opens a context, joins, makes an exchange
 * and does a few steps with residuals that evolve. Nothing is asserted on the ranks' stacks;
 * tests look at the records afterwards.
 */
#ifndef SPR_TESTS_STEPS_H
#define SPR_TESTS_STEPS_H

#include <internal/compiler.h>
#include <sparring/sparring.h>

/* What one rank did in one step. */
struct step_record {
	int start_status;      /* of spr_exchange_start */
	int status;	       /* of the request */
	char text[384];	       /* of the request */
	int lost_rank;	       /* of the communicator, afterwards */
	float *gradient;       /* n each; owned */
	float *before, *after; /* residual; NULL for dense_ring */
	float *update;
	uint64_t sum_count;
	uint64_t *sum_index;
	float *sum_value;
	int result_status; /* of spr_exchange_result */
	struct spr_exchange_stats stats;
	bool finished; /* the rank came to the end of this step */
};

struct run;

/* How to run. Zero-initialise, set n_ranks, algo, n, density, n_steps. */
struct run_options {
	int n_ranks;
	const char *algo;
	uint64_t n;
	double density;
	int n_steps;
	enum spr_nonfinite policy;
	uint64_t landing_bytes;
	uint64_t jitter_ns, seed;
	uint64_t timeout_ns; /* 0: 10 s of virtual time */
	/* Fills g; NULL: gradient_integers. May be told apart by arg. */
	void (*gradient)(const struct run *run, int rank, int step, float *g);
	const void *arg;
	int rounding;  /* fesetround() of the ranks, when not 0 */
	int kill_rank; /* killed at kill_ns, when that is not 0 */
	uint64_t kill_ns;
	int poor_rank; /* its heap fails in step poor_step, after poor_after allocations */
	int poor_step; /* −1: never; 0 is the first step, so set −1 */
	long poor_after;
	bool null_gradient; /* rank poor_rank passes NULL in step poor_step */
	/* Changes the exchange's options; NULL: as they are. */
	void (*tune)(const struct run *run, int rank, struct spr_exchange_options *options);
	/* begin, then every layer of the table, instead of start */
	size_t ready_layers;
	/*
	 * Before this step the exchange is saved to save_path + rank, destroyed, made again and
	 * restored; 0: never.
	 */
	int restore_step;
	const char *save_path;
	enum spr_memory_kind memory; /* of vectors; records are host memory */
};

#define RUN_OPTIONS(...) ((struct run_options){.poor_step = -1, __VA_ARGS__})

struct run {
	struct run_options options;
	int *statuses;	/* of every rank's body: 0 unless something before the steps failed */
	float *weights; /* n, for algorithms that want them; no zeros */
	struct step_record *records; /* n_ranks × n_steps */
	uint64_t joined_ns, end_ns; /* virtual time: the last rank had its exchange; all was over */
};

/* Aborts the program (not a test failure) only when the machine has no memory. */
struct run *run_steps(const struct run_options *options);
void run_free(struct run *run);
struct step_record *run_record(const struct run *run, int rank, int step);

/* Integers × 2^-10, at most 1023 × 2^-10, about one in eight zero: sums are exact. */
void gradient_integers(const struct run *run, int rank, int step, float *g);
/* All magnitudes, denormals included, both signs. */
void gradient_floats(const struct run *run, int rank, int step, float *g);

/* A hash of all updates, sums and residuals of a step on a rank. */
uint64_t record_digest(const struct run *run, int rank, int step);

/* Ranks that the promises are tested for; ends with 0. */
extern const int promise_ranks[];
/* The i-th sparse algorithm's name; NULL past the last. */
const char *sparse_algo(unsigned i);
/* The i-th algorithm that keeps a residual: sparse or masked. */
const char *residual_algo(unsigned i);
/* Masked: the sum has every index of a mask, zeros included. */
bool is_masked(const char *algo);

#endif
