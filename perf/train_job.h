/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What the parts of spr_train share: the options, the job of one rank, what it measured. */
#ifndef SPR_PERF_TRAIN_JOB_H
#define SPR_PERF_TRAIN_JOB_H

#include "train_data.h"
#include "train_mlp.h"

#include <internal/compiler.h>
#include <progress.h>
#include <sparring/sparring.h>

/* The command line. */
struct train_config {
	const char *algo;
	const char *data;    /* directory */
	const char *json;    /* file, or NULL */
	const char *save;    /* prefix of the checkpoint to write after each epoch, or NULL */
	const char *restore; /* prefix of the checkpoint to start from, or NULL */
	const char *decay;   /* "linear", "cosine", "none" */
	double density;	     /* share of the gradient that is sent */
	double lr;	     /* learning rate at its highest */
	double momentum;     /* of the averaged update */
	uint64_t batch;	     /* images per rank and step */
	uint64_t epochs;
	uint64_t warmup_epochs;	   /* of a density that falls: 0.25, a quarter of that, ... */
	uint64_t warmup_steps;	   /* learning rate: steps over which it rises */
	uint64_t hidden1, hidden2; /* units of the hidden layers */
	uint64_t seed;
};

/* Parts of a step, in the order in which they are shown. */
enum train_part { TRAIN_COMPUTE, TRAIN_SELECT, TRAIN_EXCHANGE, TRAIN_STEP, TRAIN_N_PARTS };

/* One epoch, the same on every rank. */
struct train_epoch {
	double train_loss; /* mean over the epoch's batches of all ranks */
	double test_loss;
	double test_accuracy; /* percent */
	double seconds;	      /* of the slowest rank, evaluation left out */
	double density;	      /* asked for in its last step */
	uint64_t bytes;	      /* sent in it by all ranks */
};

/* Means over the ranks of what each measured in all steps; times in milliseconds. */
struct train_summary {
	double bytes_per_step;	     /* and rank; all bytes on the wire */
	double value_bytes_per_step; /* of these, values alone */
	double bytes_busiest;	     /* bytes_per_step of the rank that sent most */
	double median_ms[TRAIN_N_PARTS];
	double total_ms[TRAIN_N_PARTS];
	double merge_ms, commit_ms; /* of the exchange's total */
	double seconds;		    /* the job, evaluation included, on rank 0 */
	uint64_t repairs;	    /* selections of all ranks that took another pass */
};

/* The job of this rank; zero-initialised it holds nothing, and train_job_fini accepts it. */
struct train_job {
	struct train_config config;
	struct train_data data;
	struct train_mlp mlp;
	struct spr_context *context;   /* owned */
	struct spr_comm *comm;	       /* owned */
	struct spr_exchange *exchange; /* owned */
	int rank, n_ranks;
	uint64_t steps_per_epoch;
	uint64_t first_epoch; /* where training starts: 0, or behind the checkpoint */
	uint64_t step;	      /* steps of this run, done */
	float *params;	      /* n_params; owned, as are the next five */
	float *velocity;      /* momentum's state */
	float *gradient;
	float *update;
	uint32_t *order;	       /* a permutation of the training images */
	uint8_t *labels;	       /* of the batch */
	double *sample[TRAIN_N_PARTS]; /* milliseconds of each step; owned */
	struct train_epoch *epochs;    /* config.epochs; owned */
	uint64_t wire_bytes, value_bytes, merge_ns, commit_ns, repairs; /* of all steps */
	uint64_t digest; /* of the weights after the last epoch, the same on every rank */
	uint64_t start_ns;
	struct train_summary summary;
	struct perf_progress bar;
};

/* One line on stderr, "spr_train: rank R: text". Returns -1. */
int train_fail(const struct train_job *job, const char *format, ...) SPRI_PRINTF(2, 3);

/* Names of a step's parts, by enum train_part. */
extern const char *const train_part_names[TRAIN_N_PARTS];

/* All epochs; fills job->epochs and job->summary. Returns: 0; negative after a message. */
int train_job_run(struct train_job *job) SPRI_MUST;

/* After an epoch: for people, on stdout; on rank 0 alone. */
void train_report_epoch(struct train_job *job, uint64_t epoch);
void train_report_summary(const struct train_job *job);

/* Writes config.json. Returns: 0; negative after a message. */
int train_report_json(const struct train_job *job) SPRI_MUST;

/*
 * Checkpoints: one file of weights per job, one of residuals per rank.
 * Return: 0; negative after a message.
 */
int train_checkpoint_save(const struct train_job *job, uint64_t epochs_done) SPRI_MUST;
int train_checkpoint_restore(struct train_job *job) SPRI_MUST;

#endif
