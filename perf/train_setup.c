/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A rank's life: read the data, meet the others and see that all were started alike, make the
 * exchange with its density schedule, draw the weights or restore them, train, report.
 */
#include "train_job.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Samples tested at a time. */
#define TEST_BATCH 128

/* The library's warnings. */
static void log_line(void *arg, enum spr_log_level level, const char *text)
{
	const struct train_job *job = arg;

	(void)level;
	fprintf(stderr, "spr_train: rank %d: %s\n", job->rank, text);
}

static int allocate_shared(struct train_shared *shared, const struct train_job *speaker)
{
	const struct train_config *c = &shared->config;
	size_t max_batch = c->batch > TEST_BATCH ? c->batch : TEST_BATCH, n;
	int r = train_net_init(&shared->net, c->model, &shared->source.shape, c->hidden, max_batch);

	if (r < 0)
		return train_fail(speaker, "cannot make the network: %s", strerror(-r));
	n = shared->net.n_params;
	r = train_batch_init(&shared->batch, &shared->source, max_batch);
	shared->params[0] = calloc(n, sizeof(float));
	shared->params[1] = calloc(n, sizeof(float));
	shared->velocity = calloc(n, sizeof(float));
	shared->order = calloc(shared->source.n_train, sizeof(*shared->order));
	if (r < 0 || !shared->params[0] || !shared->params[1] || !shared->velocity ||
	    !shared->order)
		return train_fail(speaker, "no memory for %zu parameters", n);
	return 0;
}

int train_shared_init(struct train_shared *shared)
{
	const struct train_config *c = &shared->config;
	struct train_source *source = &shared->source;
	const char *rank = getenv("SPR_RANK");
	struct train_job speaker = {.rank = rank ? atoi(rank) : 0};
	char error[4400];
	int r = train_source_load(source, c->model->kind, c->data, c->length, error, sizeof(error));

	if (r < 0)
		return train_fail(&speaker, "%s", error);
	if (c->samples && c->samples < source->n_train)
		source->n_train = c->samples;
	if (c->test_samples && c->test_samples < source->n_test)
		source->n_test = c->test_samples;
	r = allocate_shared(shared, &speaker);
	if (r == 0)
		c->model->draw(&shared->net, shared->params[0], c->seed);
	return r;
}

void train_shared_fini(struct train_shared *shared)
{
	free(shared->params[0]);
	free(shared->params[1]);
	free(shared->velocity);
	free(shared->order);
	train_batch_fini(&shared->batch);
	train_net_fini(&shared->net);
	train_source_fini(&shared->source);
}

/* A training run that cannot leave its result is better refused at its beginning. */
static int check_json_place(const struct train_job *job)
{
	char *copy;
	int r = 0;

	if (!job->shared->config.json || job->rank != 0 ||
	    strcmp(job->shared->config.json, "-") == 0)
		return 0;
	copy = strdup(job->shared->config.json);
	if (!copy)
		return train_fail(job, "no memory");
	if (access(dirname(copy), W_OK) < 0)
		r = train_fail(job, "--json %s: cannot write there: %s", job->shared->config.json,
			       strerror(errno));
	free(copy);
	return r;
}

/* Every rank must train the same thing, or the weights drift apart without a word. */
static int check_alike(const struct train_job *job)
{
	const struct train_config *c = &job->shared->config;
	const char *names[] = {"--density",
			       "--epochs",
			       "--batch",
			       "--lr",
			       "--momentum",
			       "--lr-warmup",
			       "--warmup-epochs",
			       "--seed",
			       "number of parameters",
			       "number of training samples",
			       "number of test samples",
			       "--momentum-correction",
			       "--clip",
			       "--weight-decay",
			       "--per-layer",
			       "--dense-small",
			       "--layerwise",
			       "--warmup",
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
			 (double)job->shared->net.n_params,
			 (double)job->shared->source.n_train,
			 (double)job->shared->source.n_test,
			 c->momentum_correction,
			 c->clip,
			 c->weight_decay,
			 c->per_layer,
			 c->dense_small,
			 c->layerwise,
			 c->warmup_epochs ? c->warmup[1] : 0,
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
	struct spr_context_options options = {.size = sizeof(options),
					      .transport = job->shared->config.transport,
					      .log = log_line,
					      .log_arg = job,
					      .sim = job->sim,
					      .sim_rank = job->rank};
	int r = spr_context_open(&options, &job->context);

	if (r < 0)
		return train_fail(job, "cannot open a context: %s", spr_strerror(r));
	r = spr_comm_create(job->context, NULL, &job->comm);
	if (r < 0)
		return train_fail(job, "cannot meet the other ranks: %s (%s)", spr_strerror(r),
				  spr_context_error(job->context));
	job->rank = spr_comm_rank(job->comm);
	job->n_ranks = spr_comm_size(job->comm);
	job->steps_per_epoch =
		job->shared->source.n_train / ((uint64_t)job->n_ranks * job->shared->config.batch);
	if (job->steps_per_epoch == 0)
		return train_fail(job, "%zu samples are too few for %d ranks with --batch %llu",
				  job->shared->source.n_train, job->n_ranks,
				  (unsigned long long)job->shared->config.batch);
	/* Each rank of a simulation finds the same. */
	if (job->shared->config.warmup_steps == UINT64_MAX)
		job->shared->config.warmup_steps = job->steps_per_epoch / 4;
	return check_alike(job);
}

/* The model's layers, when the exchange has to know them. Returns how many it must know. */
static size_t list_layers(const struct train_job *job, struct spr_layer *layers)
{
	const struct train_config *c = &job->shared->config;
	const struct train_net *net = &job->shared->net;

	if (!c->per_layer && !c->dense_small && !c->layerwise && strcmp(c->algo, "iwp_ring") != 0)
		return 0;
	for (size_t l = 0; l < net->n_layers; l++)
		layers[l] = (struct spr_layer){
			net->layer[l].offset, net->layer[l].count,
			c->dense_small && net->layer[l].count < TRAIN_SMALL ? SPR_LAYER_DENSE : 0};
	return net->n_layers;
}

static int make_exchange(struct train_job *job)
{
	const struct train_config *c = &job->shared->config;
	struct spr_density_point schedule[TRAIN_MAX_WARMUP + 1];
	struct spr_layer layers[TRAIN_MAX_LAYERS];
	struct spr_exchange_options options = {.size = sizeof(options),
					       .count = job->shared->net.n_params,
					       .algo = c->algo,
					       .schedule = schedule,
					       .layers = layers,
					       .n_layers = list_layers(job, layers),
					       .per_layer = c->per_layer,
					       .clip = c->clip,
					       .weight_decay = c->weight_decay,
					       .wire = c->wire,
					       .codec = c->codec,
					       .pipeline = c->pipeline,
					       .trimmed = c->trimmed,
					       .broadcasters = (int)c->broadcasters,
					       .seed = c->seed,
					       .importance_floor = c->importance_floor,
					       .memory = c->memory};
	int r;

	job->layered = options.n_layers > 0;
	if (!job->layered)
		options.layers = NULL;
	if (c->momentum_correction)
		options.momentum = c->momentum;
	for (uint64_t e = 0; e < c->warmup_epochs && c->warmup[e] > c->density; e++)
		schedule[options.n_schedule++] =
			(struct spr_density_point){e * job->steps_per_epoch, c->warmup[e]};
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
	size_t n = job->shared->net.n_params;

	job->gradient = calloc(n, sizeof(float));
	job->update = calloc(n, sizeof(float));
	job->epochs = calloc(job->shared->config.epochs, sizeof(*job->epochs));
	if (!job->gradient || !job->update || !job->epochs)
		return train_fail(job, "no memory for %zu parameters", n);
	for (int part = 0; part < TRAIN_N_PARTS; part++) {
		job->sample[part] = calloc(job->shared->config.epochs * job->steps_per_epoch,
					   sizeof(*job->sample[part]));
		if (!job->sample[part])
			return train_fail(job, "no memory");
	}
	return 0;
}

/* What the library is given with --mem cuda, on this rank's GPU. */
static int allocate_gpu(struct train_job *job)
{
	float **all[] = {&job->gpu_gradient, &job->gpu_update, &job->gpu_weights};
	size_t bytes = job->shared->net.n_params * sizeof(float);

	for (size_t i = 0; i < spri_countof(all); i++) {
		void *p;
		int r = spr_memory_alloc(job->context, job->shared->config.memory, 0, bytes, &p);

		if (r < 0)
			return train_fail(job, "--mem: %s (%s)", spr_strerror(r),
					  spr_context_error(job->context));
		*all[i] = p;
	}
	return 0;
}

static int set_up_and_train(struct train_job *job)
{
	int r = meet(job);

	if (r == 0)
		r = check_json_place(job);
	if (r == 0)
		r = allocate(job);
	if (r == 0 && job->shared->config.memory != SPR_MEMORY_HOST)
		r = allocate_gpu(job);
	if (r == 0)
		r = make_exchange(job);
	if (r == 0 && job->shared->config.restore)
		r = train_checkpoint_restore(job);
	if (r == 0)
		r = train_job_run(job);
	if (r < 0 || job->rank != 0)
		return r;
	train_report_summary(job);
	return job->shared->config.json ? train_report_json(job) : 0;
}

int train_job_life(struct train_job *job)
{
	size_t bytes = job->shared->net.n_params * sizeof(float);
	int r;

	perf_progress_init(&job->bar);
	r = set_up_and_train(job);
	spr_exchange_destroy(job->exchange);
	spr_comm_destroy(job->comm);
	spr_memory_free(job->context, job->gpu_gradient, bytes);
	spr_memory_free(job->context, job->gpu_update, bytes);
	spr_memory_free(job->context, job->gpu_weights, bytes);
	spr_context_close(job->context);
	for (int part = 0; part < TRAIN_N_PARTS; part++)
		free(job->sample[part]);
	free(job->gradient);
	free(job->update);
	free(job->epochs);
	return r;
}
