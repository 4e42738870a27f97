/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The parts of spr_train:
 *
 *     spr_train.c            start: one process of a job, or a simulation of many ranks
 *     train_options.c        command line
 *     train_setup.c          what the ranks of a process share; meeting; the exchange
 *     train_job.c            one rank's epochs and steps
 *     train_checkpoint.c     --save and --restore
 *     train_report.c         lines and the JSON file (rank 0)
 *     train_model.h          the models, with train_image.c and train_lm.c
 *     train_source.h         samples, with train_data.c and train_text.c
 */
#ifndef SPR_PERF_TRAIN_JOB_H
#define SPR_PERF_TRAIN_JOB_H

#include "train_model.h"
#include "train_source.h"

#include <internal/compiler.h>
#include <progress.h>
#include <sparring/sparring.h>

/* Most epochs whose density differs from --density. */
#define TRAIN_MAX_WARMUP 16

/* Elements from which on a layer is not small. */
#define TRAIN_SMALL 1024

/* The command line; the same on every rank, read-only once training begins. */
struct train_config {
	const struct train_model *model;
	const char *algo;
	const char *data;      /* directory or file, or NULL for the model's default */
	const char *json;      /* file, or NULL */
	const char *save;      /* prefix of the checkpoint to write after each epoch, or NULL */
	const char *restore;   /* prefix of the checkpoint to start from, or NULL */
	const char *decay;     /* "linear", "cosine", "none" */
	const char *transport; /* NULL: the library's choice */
	uint64_t n_sim_ranks;  /* loop: ranks of the simulation; 0: none */
	double density;	       /* share of the gradient that is sent */
	double lr;	       /* learning rate at its highest */
	double momentum;       /* of the averaged update */
	uint64_t batch;	       /* samples per rank and step */
	uint64_t epochs;
	uint64_t samples, test_samples; /* most to use of each part; 0: all */
	uint64_t length;		/* of a piece of text */
	uint64_t warmup_epochs;		/* of a density that falls */
	const double *warmup;		/* its densities, TRAIN_MAX_WARMUP of them */
	const char *warmup_name;
	uint64_t warmup_steps; /* learning rate: steps over which it rises */
	size_t hidden[2];      /* units; 0: the model's default */
	uint64_t seed;
	/* Of the exchange; see struct spr_exchange_options. */
	bool momentum_correction; /* `momentum` is the exchange's, and the trainer has none */
	bool per_layer;
	bool dense_small; /* layers of fewer than TRAIN_SMALL elements are sent whole */
	bool layerwise;	  /* hand over each layer while backpropagation goes on */
	double clip, weight_decay, importance_floor;
	uint64_t broadcasters;
	enum spr_dtype wire;
	enum spr_codec codec;
	enum spr_pipeline pipeline;
	enum spr_trimmed trimmed;
	enum spr_memory_kind memory; /* of what the library is given */
};

/* Names of the last five, by their numbers; each ends with NULL. */
extern const char *const train_wire_names[], *const train_codec_names[],
						     *const train_pipeline_names[],
							     *const train_trimmed_names[],
								     *const train_memory_names[];

/*
 * What the ranks of this process share: all of them in a simulation, one otherwise. They apply the
 * same updates, so they need one copy of the weights; two, in turn: a rank that has finished step s
 * writes the weights of step s + 1 while others may still be reading those of step s. None can
 * write those of step s + 2 before all have begun step s + 1. Everything is owned.
 */
struct train_shared {
	struct train_config config;
	struct train_source source;
	struct train_net net;
	struct train_batch batch;
	float *params[2];	/* n_params each: of even and odd steps */
	float *velocity;	/* momentum's state */
	uint32_t *order;	/* a permutation of the training samples */
	uint64_t ordered_epoch; /* whose order that is, counted from 1; 0: none's */
	uint64_t next_step;	/* of the whole schedule: the steps before are in the weights */
	uint64_t update_digest; /* of the last one of them */
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
	uint64_t value_bytes; /* of these, values alone */
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
	double received_share;	    /* entries of a result / parameters */
};

/* The job of one rank; zero-initialised but for `shared` and `sim` it holds nothing. */
struct train_job {
	struct train_shared *shared;   /* lent */
	struct spr_sim *sim;	       /* lent; NULL: a process of its own */
	struct spr_context *context;   /* owned */
	struct spr_comm *comm;	       /* owned */
	struct spr_exchange *exchange; /* owned */
	int rank, n_ranks;
	uint64_t steps_per_epoch;
	uint64_t first_epoch; /* where training starts: 0, or behind the checkpoint */
	uint64_t step;	      /* steps of this run, done */
	float *gradient;      /* n_params; owned, as the next one */
	float *update;
	/* --mem cuda: copies for the library, in that order the weights too; owned; else NULL */
	float *gpu_gradient, *gpu_update, *gpu_weights;
	double *sample[TRAIN_N_PARTS]; /* milliseconds of each step; owned */
	struct train_epoch *epochs;    /* config.epochs; owned */
	uint64_t wire_bytes, value_bytes, merge_ns, commit_ns, repairs; /* of all steps */
	uint64_t received;			/* entries of the results of all steps */
	bool layered;				/* the exchange knows the model's layers */
	double layer_density[TRAIN_MAX_LAYERS]; /* sums over the steps of the last epoch */
	int ready_status; /* layerwise: the first failure of this step, or 0 */
	uint64_t digest;  /* of the weights after the last epoch, the same on every rank */
	uint64_t start_ns;
	struct train_summary summary;
	struct perf_progress bar;
};

/* One line on stderr, "spr_train: rank R: text". Returns -1. */
int train_fail(const struct train_job *job, const char *format, ...) SPRI_PRINTF(2, 3);

/* Names of a step's parts, by enum train_part. */
extern const char *const train_part_names[TRAIN_N_PARTS];

/* Reads the command line over the defaults in `config`. Returns as perf_options_parse. */
int train_options_parse(struct train_config *config, int argc, char **argv) SPRI_MUST;

/* Samples, network, weights. Returns: 0; -1 after a message. fini accepts what a failure left. */
int train_shared_init(struct train_shared *shared) SPRI_MUST;
void train_shared_fini(struct train_shared *shared);

/* One rank's life, from meeting the others to the report. Returns: 0; negative after a message. */
int train_job_life(struct train_job *job) SPRI_MUST;

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
