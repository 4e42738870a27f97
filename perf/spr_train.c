/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_train: a real training job over Sparring's public API. Every rank trains a perceptron on its
 * share of the images; the gradients meet in an exchange (train_job.c).
 *
 *   1. Read the command line and the data.
 *   2. Open a context, make a communicator (the SPR_* variables that spr_run sets; without them
 *      one rank), see that all ranks were started alike.
 *   3. Make the exchange with its density schedule; draw the weights or restore them.
 *   4. Train, report, write the JSON file.
 *
 * A failure on a rank is one line on stderr with that rank's number, and exit status 1 (2 for a
 * wrong command line). The others notice that the rank is gone and end in the same way.
 */
#include "train_job.h"

#include <cblas.h>
#include <errno.h>
#include <libgen.h>
#include <options.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most epochs whose density differs from --density. */
#define MAX_WARMUP 16

int train_fail(const struct train_job *job, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "spr_train: rank %d: %s\n", job->rank, text);
	return -1;
}

/* The library's warnings. */
static void log_line(void *arg, enum spr_log_level level, const char *text)
{
	const struct train_job *job = arg;

	(void)level;
	fprintf(stderr, "spr_train: rank %d: %s\n", job->rank, text);
}

static int parse(struct train_config *c, int argc, char **argv)
{
	const struct perf_option table[] = {
		{'a', "algo", PERF_OPT_STRING, "NAME",
		 "dense_ring, topk_allgather, gtopk or gtopk_tree (default gtopk)", &c->algo, 0, 0},
		{'d', "density", PERF_OPT_DOUBLE, "D",
		 "share of the gradient that a rank sends (default 0.01)", &c->density, 1e-9, 1},
		{'e', "epochs", PERF_OPT_U64, "N", "passes over the images (default 5)", &c->epochs,
		 1, 100000},
		{'b', "batch", PERF_OPT_U64, "N", "images per rank and step (default 64)",
		 &c->batch, 1, 65536},
		{'l', "lr", PERF_OPT_DOUBLE, "X", "learning rate (default 0.2)", &c->lr, 1e-12,
		 1e6},
		{'m', "momentum", PERF_OPT_DOUBLE, "X",
		 "momentum of the averaged update (default 0.5)", &c->momentum, 0, 0.9999},
		{0, "lr-decay", PERF_OPT_STRING, "HOW",
		 "how the learning rate falls: linear, cosine or none\n(default linear)", &c->decay,
		 0, 0},
		{0, "lr-warmup", PERF_OPT_U64, "N",
		 "steps over which it rises first (default: a quarter\nof an epoch)",
		 &c->warmup_steps, 0, 1e9},
		{0, "warmup-epochs", PERF_OPT_U64, "N",
		 "epochs with a higher density first: 0.25, 0.0625, ...\n(default 0)",
		 &c->warmup_epochs, 0, MAX_WARMUP},
		{0, "hidden1", PERF_OPT_U64, "N", "units of the first hidden layer (default 1024)",
		 &c->hidden1, 1, 65536},
		{0, "hidden2", PERF_OPT_U64, "N", "units of the second (default 256)", &c->hidden2,
		 1, 65536},
		{'s', "seed", PERF_OPT_U64, "N", "of weights and shuffling (default 1)", &c->seed,
		 0, 0},
		{0, "data", PERF_OPT_STRING, "DIR",
		 "IDX files, plain or gzipped\n(default " TRAIN_DATA_DIR ")", &c->data, 0, 0},
		{0, "json", PERF_OPT_STRING, "FILE", "write what was measured", &c->json, 0, 0},
		{0, "save", PERF_OPT_STRING, "PREFIX", "write a checkpoint after each epoch",
		 &c->save, 0, 0},
		{0, "restore", PERF_OPT_STRING, "PREFIX", "go on from a checkpoint", &c->restore, 0,
		 0},
	};
	static const char epilog[] =
		"Four ranks on this machine:  spr_run -n 4 -- spr_train --algo gtopk\n"
		"Without spr_run it trains on one rank.\n";
	const struct perf_options options = {"spr_train",
					     "Trains on real images, data-parallel, and "
					     "shows what the exchange of gradients costs.",
					     "[OPTIONS]",
					     epilog,
					     table,
					     spri_countof(table),
					     false};
	int first, r = perf_options_parse(&options, argc, argv, &first);

	if (r)
		return r;
	if (strcmp(c->decay, "linear") && strcmp(c->decay, "cosine") && strcmp(c->decay, "none"))
		return perf_options_refuse(&options,
					   "--lr-decay is '%s', must be linear, cosine or "
					   "none",
					   c->decay);
	for (unsigned i = 0;; i++) {
		struct spr_algo_info info;

		if (spr_algo_info(i, &info) < 0)
			return perf_options_refuse(&options,
						   "--algo is '%s', must be one that "
						   "spr_info lists",
						   c->algo);
		if (strcmp(info.name, c->algo) == 0)
			return 0;
	}
}

/* A training run that cannot leave its result is better refused at its beginning. */
static int check_json_place(const struct train_job *job)
{
	char *copy;
	int r = 0;

	if (!job->config.json || job->rank != 0 || strcmp(job->config.json, "-") == 0)
		return 0;
	copy = strdup(job->config.json);
	if (!copy)
		return train_fail(job, "no memory");
	if (access(dirname(copy), W_OK) < 0)
		r = train_fail(job, "--json %s: cannot write there: %s", job->config.json,
			       strerror(errno));
	free(copy);
	return r;
}

/* Every rank must train the same thing, or the weights drift apart without a word. */
static int check_alike(const struct train_job *job)
{
	const struct train_config *c = &job->config;
	const char *names[] = {"--density",
			       "--epochs",
			       "--batch",
			       "--lr",
			       "--momentum",
			       "--lr-warmup",
			       "--warmup-epochs",
			       "--seed",
			       "number of parameters",
			       "number of training images",
			       "number of test images",
			       "--lr-decay",
			       "presence of --restore",
			       "presence of --save"};
	double mine[] = {c->density,
			 (double)c->epochs,
			 (double)c->batch,
			 c->lr,
			 c->momentum,
			 (double)c->warmup_steps,
			 (double)c->warmup_epochs,
			 (double)c->seed,
			 (double)job->mlp.n_params,
			 (double)job->data.train.count,
			 (double)job->data.test.count,
			 (double)c->decay[0],
			 c->restore != NULL,
			 c->save != NULL};
	size_t n = spri_countof(mine);
	double *all = malloc((size_t)job->n_ranks * sizeof(mine));
	int r;

	static_assert(spri_countof(names) == spri_countof(mine), "a name for each value");
	if (!all)
		return train_fail(job, "no memory");
	r = spr_comm_allgather(job->comm, mine, all, sizeof(mine));
	if (r < 0)
		train_fail(job, "comparing options: %s (%s)", spr_strerror(r),
			   spr_comm_error(job->comm));
	for (size_t i = 0; r == 0 && i < n * (size_t)job->n_ranks; i++)
		if (all[i] != all[i % n])
			r = train_fail(job, "rank %zu has another %s than rank 0 (%g, %g)", i / n,
				       names[i % n], all[i], all[i % n]);
	free(all);
	return r;
}

static int meet(struct train_job *job)
{
	struct spr_context_options options = {
		.size = sizeof(options), .log = log_line, .log_arg = job};
	int r = spr_context_open(&options, &job->context);

	if (r < 0)
		return train_fail(job, "cannot open a context: %s", spr_strerror(r));
	r = spr_comm_create(job->context, NULL, &job->comm);
	if (r < 0)
		return train_fail(job, "cannot meet the other ranks: %s (%s)", spr_strerror(r),
				  spr_context_error(job->context));
	job->rank = spr_comm_rank(job->comm);
	job->n_ranks = spr_comm_size(job->comm);
	job->steps_per_epoch = job->data.train.count / ((uint64_t)job->n_ranks * job->config.batch);
	if (job->steps_per_epoch == 0)
		return train_fail(job, "%zu images are too few for %d ranks with --batch %llu",
				  job->data.train.count, job->n_ranks,
				  (unsigned long long)job->config.batch);
	if (job->config.warmup_steps == UINT64_MAX)
		job->config.warmup_steps = job->steps_per_epoch / 4;
	return check_alike(job);
}

static int make_exchange(struct train_job *job)
{
	const struct train_config *c = &job->config;
	struct spr_density_point schedule[MAX_WARMUP + 1];
	struct spr_exchange_options options = {.size = sizeof(options),
					       .count = job->mlp.n_params,
					       .algo = c->algo,
					       .schedule = schedule};
	double warm = 0.25;
	int r;

	for (uint64_t e = 0; e < c->warmup_epochs && warm > c->density; e++, warm /= 4)
		schedule[options.n_schedule++] =
			(struct spr_density_point){e * job->steps_per_epoch, warm};
	schedule[options.n_schedule] =
		(struct spr_density_point){options.n_schedule * job->steps_per_epoch, c->density};
	options.n_schedule++;
	r = spr_exchange_create(job->comm, &options, &job->exchange);
	if (r < 0)
		return train_fail(job, "cannot make the exchange: %s (%s)", spr_strerror(r),
				  spr_context_error(job->context));
	return 0;
}

static int allocate(struct train_job *job)
{
	const struct train_config *c = &job->config;
	const struct train_set *train = &job->data.train;
	size_t width[] = {train->pixels, c->hidden1, c->hidden2, train->n_classes};
	uint64_t max_batch = c->batch > 250 ? c->batch : 250;
	int r = train_mlp_init(&job->mlp, width, 3, max_batch);
	size_t n = job->mlp.n_params;

	if (r < 0)
		return train_fail(job, "cannot make the network: %s", strerror(-r));
	job->params = calloc(n, sizeof(float));
	job->velocity = calloc(n, sizeof(float));
	job->gradient = calloc(n, sizeof(float));
	job->update = calloc(n, sizeof(float));
	job->order = calloc(train->count, sizeof(*job->order));
	job->labels = calloc(max_batch, 1);
	job->epochs = calloc(c->epochs, sizeof(*job->epochs));
	if (!job->params || !job->velocity || !job->gradient || !job->update || !job->order ||
	    !job->labels || !job->epochs)
		return train_fail(job, "no memory for %zu parameters", n);
	return 0;
}

static int allocate_samples(struct train_job *job)
{
	for (int part = 0; part < TRAIN_N_PARTS; part++) {
		job->sample[part] = calloc(job->config.epochs * job->steps_per_epoch,
					   sizeof(*job->sample[part]));
		if (!job->sample[part])
			return train_fail(job, "no memory");
	}
	return 0;
}

static void train_job_fini(struct train_job *job)
{
	spr_exchange_destroy(job->exchange);
	spr_comm_destroy(job->comm);
	spr_context_close(job->context);
	for (int part = 0; part < TRAIN_N_PARTS; part++)
		free(job->sample[part]);
	free(job->params);
	free(job->velocity);
	free(job->gradient);
	free(job->update);
	free(job->order);
	free(job->labels);
	free(job->epochs);
	train_mlp_fini(&job->mlp);
	train_data_fini(&job->data);
}

static int train(struct train_job *job)
{
	char error[4400];
	int r = train_data_load(job->config.data, &job->data, error, sizeof(error));

	if (r < 0)
		return train_fail(job, "%s", error);
	r = allocate(job);
	if (r == 0)
		r = meet(job);
	if (r == 0)
		r = check_json_place(job);
	if (r == 0)
		r = allocate_samples(job);
	if (r == 0)
		r = make_exchange(job);
	if (r < 0)
		return r;
	train_mlp_draw(&job->mlp, job->params, job->config.seed);
	if (job->config.restore)
		r = train_checkpoint_restore(job);
	if (r == 0)
		r = train_job_run(job);
	if (r < 0 || job->rank != 0)
		return r;
	train_report_summary(job);
	return job->config.json ? train_report_json(job) : 0;
}

int main(int argc, char **argv)
{
	struct train_job job = {
		.config = {.algo = "gtopk",
			   .data = TRAIN_DATA_DIR,
			   .decay = "linear",
			   .density = 0.01,
			   .lr = 0.2,
			   .momentum = 0.5,
			   .batch = 64,
			   .epochs = 5,
			   .hidden1 = 1024,
			   .warmup_steps = UINT64_MAX,
			   .hidden2 = 256,
			   .seed = 1},
	};
	const char *rank = getenv("SPR_RANK");
	int r = parse(&job.config, argc, argv);

	if (r)
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	job.rank = rank ? atoi(rank) : 0; /* for messages, until the communicator tells */
	openblas_set_num_threads(1);	  /* the ranks share the cores */
	perf_progress_init(&job.bar);
	r = train(&job);
	train_job_fini(&job);
	return r < 0 ? 1 : 0;
}
