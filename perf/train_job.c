/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Data-parallel training of one rank. Each epoch:
 *
 *   1. Shuffle all samples from (seed, epoch): the same order on every rank.
 *   2. For each global batch: this rank's share → gradient → spr_exchange_start → wait →
 *      velocity = momentum · velocity + update; weights −= rate · velocity. The last samples that
 *      fill no global batch are left out.
 *   3. Test on this rank's share of the test samples; gather all ranks' counts, losses and a digest
 *      of their weights.
 *
 * Every rank applies the same update to the same weights, so the digests must agree; ranks that
 * drift apart end the job. So does a failed exchange: the outcome is the same on every rank.
 * Simulated ranks share one copy of the weights, which the first to finish a step moves on; the
 * others compare their update with the one that was applied.
 */
#include "train_job.h"

#include <math.h>
#include <stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a rank tells the others after an epoch. */
struct epoch_message {
	uint64_t digest; /* of the weights */
	uint64_t n_correct;
	uint64_t bytes;
	uint64_t n_counted; /* tested */
	uint64_t value_bytes;
	double train_loss; /* mean of this rank's batches */
	double test_loss;  /* sum over what it tested */
	double seconds;
};

/* And after the last one. */
struct final_message {
	double bytes, value_bytes; /* of all steps */
	double median_ms[TRAIN_N_PARTS], total_ms[TRAIN_N_PARTS];
	double merge_ms, commit_ms;
	uint64_t repairs, received;
};

const char *const train_part_names[TRAIN_N_PARTS] = {"compute", "select", "exchange", "step"};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Fisher and Yates; the same on every rank, and made by the first of a simulation. */
static void shuffle(struct train_shared *shared, uint64_t epoch)
{
	uint64_t state = shared->config.seed * 1000003u + epoch;
	size_t n = shared->source.n_train;

	if (shared->ordered_epoch == epoch + 1)
		return;
	shared->ordered_epoch = epoch + 1;
	for (size_t i = 0; i < n; i++)
		shared->order[i] = (uint32_t)i;
	for (size_t i = n - 1; i > 0; i--) {
		size_t j = train_random(&state) % (i + 1);
		uint32_t swap = shared->order[i];

		shared->order[i] = shared->order[j];
		shared->order[j] = swap;
	}
}

/* The learning rate of a step of the whole schedule. */
static float rate_at(const struct train_job *job, uint64_t step)
{
	const struct train_config *c = &job->shared->config;
	double done = (double)step / (double)(c->epochs * job->steps_per_epoch);
	double rate = c->lr;

	if (step < c->warmup_steps)
		rate *= (double)(step + 1) / (double)c->warmup_steps;
	if (strcmp(c->decay, "linear") == 0)
		rate *= 1 - done;
	else if (strcmp(c->decay, "cosine") == 0)
		rate *= 0.5 * (1 + cos(M_PI * done));
	return (float)rate;
}

/* 64 bits that depend on every bit of the values and its place, quickly: four chains at once. */
static uint64_t digest_update(const float *values, size_t n)
{
	uint64_t lane[4] = {1, 2, 3, 4}, digest = n;
	size_t at = 0;

	for (; at + 8 <= n; at += 8) {
		uint64_t word[4];

		memcpy(word, values + at, sizeof(word));
		for (int i = 0; i < 4; i++)
			lane[i] = (lane[i] ^ word[i]) * 0x9e3779b97f4a7c15u;
	}
	for (; at < n; at++) {
		uint32_t bits;

		memcpy(&bits, values + at, sizeof(bits));
		lane[0] = (lane[0] ^ bits) * 0x9e3779b97f4a7c15u;
	}
	for (int i = 0; i < 4; i++)
		digest = (digest ^ lane[i] ^ lane[i] >> 29) * 0xbf58476d1ce4e5b9u;
	return digest;
}

/* The weights before a step → those after it. */
static void move_weights(struct train_shared *shared, const float *restrict update, uint64_t step,
			 float rate)
{
	float momentum = shared->config.momentum_correction ? 0 : (float)shared->config.momentum;
	float *restrict velocity = shared->velocity;
	const float *restrict before = shared->params[step % 2];
	float *restrict after = shared->params[(step + 1) % 2];

	for (size_t i = 0; i < shared->net.n_params; i++) {
		velocity[i] = momentum * velocity[i] + update[i];
		after[i] = before[i] - rate * velocity[i];
	}
	shared->next_step = step + 1;
}

/* Returns: 0; negative after a message when this rank's update is not the one applied. */
static int apply_update(struct train_job *job, uint64_t step)
{
	struct train_shared *shared = job->shared;
	uint64_t digest = job->sim ? digest_update(job->update, shared->net.n_params) : 0;

	if (shared->next_step == step) {
		move_weights(shared, job->update, step, rate_at(job, step));
		shared->update_digest = digest;
	} else if (digest != shared->update_digest) {
		return train_fail(job,
				  "step %llu: the update (digest %016llx) differs from another "
				  "rank's (%016llx)",
				  (unsigned long long)step, (unsigned long long)digest,
				  (unsigned long long)shared->update_digest);
	}
	return 0;
}

/* --mem cuda: to the library's copy of a vector. */
static int push(struct train_job *job, float *to, const float *from, size_t first, size_t n)
{
	return to ? spr_memory_copy(job->context, to + first, from + first, n * sizeof *to) : 0;
}

/* What the net calls when it has finished a layer's gradient. */
static void hand_over(void *arg, size_t layer)
{
	struct train_job *job = arg;
	const struct train_net *net = &job->shared->net;
	int r = push(job, job->gpu_gradient, job->gradient, net->layer[layer].offset,
		     net->layer[layer].count);

	if (r == 0)
		r = spr_exchange_ready(job->exchange, layer);

	if (r < 0 && job->ready_status == 0)
		job->ready_status = r;
}

/* Computes the gradient, hands it over, at its end or layer by layer. Returns: as the library. */
static int start_exchange(struct train_job *job, uint64_t step, double *loss, uint64_t *t_gradient,
			  struct spr_request **request)
{
	struct train_shared *shared = job->shared;
	struct train_net *net = &shared->net;
	const float *params = shared->params[step % 2];
	const float *gradient = job->gpu_gradient ? job->gpu_gradient : job->gradient;
	float *update = job->gpu_update ? job->gpu_update : job->update;
	int r = push(job, job->gpu_weights, params, 0, net->n_params);

	if (r == 0)
		r = spr_exchange_set_weights(job->exchange,
					     job->gpu_weights ? job->gpu_weights : params);
	job->ready_status = 0;
	if (r == 0 && shared->config.layerwise) {
		r = spr_exchange_begin(job->exchange, gradient, update, request);
		net->on_layer = hand_over;
		net->on_layer_arg = job;
	}
	if (r == 0)
		*loss = net->model->gradient(net, params, &shared->batch, job->gradient);
	net->on_layer = NULL;
	*t_gradient = now_ns();
	if (r == 0 && !shared->config.layerwise)
		r = push(job, job->gpu_gradient, job->gradient, 0, net->n_params);
	if (r == 0 && !shared->config.layerwise)
		r = spr_exchange_start(job->exchange, gradient, update, request);
	return r < 0 ? r : job->ready_status;
}

/* The gradient of this rank's batch → the averaged update. */
static int exchange_gradient(struct train_job *job, uint64_t step, double *loss,
			     uint64_t *t_gradient)
{
	struct spr_request *request = NULL;
	int r = start_exchange(job, step, loss, t_gradient, &request);

	if (r < 0) {
		train_fail(job, "step %llu: %s (%s)", (unsigned long long)step, spr_strerror(r),
			   spr_context_error(job->context));
	} else {
		r = spr_request_wait(request);
		if (r == 0 && job->gpu_update)
			r = spr_memory_copy(job->context, job->update, job->gpu_update,
					    job->shared->net.n_params * sizeof *job->update);
		if (r < 0)
			train_fail(job, "step %llu: %s (%s)%s", (unsigned long long)step,
				   spr_strerror(r), spr_request_error(request),
				   r == SPR_ENONFINITE ? "; a smaller --lr may help" : "");
	}
	spr_request_destroy(request);
	return r;
}

/* How dense the result is in each layer of the model. */
static int look_at_layers(struct train_job *job)
{
	const struct train_net *net = &job->shared->net;
	struct spr_layer_stats stats;

	for (size_t l = 0; job->layered && l < net->n_layers; l++) {
		int r = spr_exchange_layer_stats(job->exchange, l, &stats);

		if (r < 0)
			return train_fail(job, "no statistics of layer %zu: %s", l,
					  spr_strerror(r));
		job->layer_density[l] += stats.density;
	}
	return 0;
}

/* One global batch. *loss is this rank's. */
static int run_step(struct train_job *job, uint64_t epoch, uint64_t at, double *loss)
{
	uint64_t step = epoch * job->steps_per_epoch + at, batch = job->shared->config.batch;
	size_t first = (at * (uint64_t)job->n_ranks + (uint64_t)job->rank) * batch;
	uint64_t t_start = now_ns(), t_gradient, t_update, t_end;
	struct train_shared *shared = job->shared;
	struct spr_exchange_stats stats;
	int r;

	train_source_gather(&shared->source, false, shared->order, first, batch, &shared->batch);
	r = exchange_gradient(job, step, loss, &t_gradient);
	if (r < 0)
		return r;
	t_update = now_ns();
	r = apply_update(job, step);
	if (r < 0)
		return r;
	t_end = now_ns();
	r = spr_exchange_stats(job->exchange, &stats);
	if (r < 0)
		return train_fail(job, "step %llu: no statistics: %s", (unsigned long long)step,
				  spr_strerror(r));
	job->sample[TRAIN_SELECT][job->step] = (double)stats.select_ns * 1e-6;
	job->sample[TRAIN_EXCHANGE][job->step] =
		(double)(t_update - t_gradient) * 1e-6 - (double)stats.select_ns * 1e-6;
	job->sample[TRAIN_COMPUTE][job->step] =
		(double)(t_gradient - t_start + t_end - t_update) * 1e-6;
	job->sample[TRAIN_STEP][job->step] = (double)(t_end - t_start) * 1e-6;
	job->wire_bytes += stats.wire_bytes;
	job->value_bytes += stats.value_bytes;
	job->merge_ns += stats.merge_ns;
	job->commit_ns += stats.commit_ns;
	job->repairs = stats.repairs;
	job->received += stats.received;
	job->epochs[epoch].density = stats.density;
	job->step++;
	return epoch + 1 == shared->config.epochs ? look_at_layers(job) : 0;
}

/* Adds up this rank's share of the test samples, with the weights before a step. */
static void evaluate(struct train_job *job, uint64_t step, struct epoch_message *mine)
{
	struct train_shared *shared = job->shared;
	size_t n = shared->source.n_test, n_ranks = (size_t)job->n_ranks, rank = (size_t)job->rank;
	size_t at = n * rank / n_ranks, end = n * (rank + 1) / n_ranks;
	struct train_score score = {0};

	while (at < end) {
		size_t max = shared->net.max_batch, batch = end - at < max ? end - at : max;

		train_source_gather(&shared->source, true, NULL, at, batch, &shared->batch);
		shared->net.model->evaluate(&shared->net, shared->params[step % 2], &shared->batch,
					    &score);
		at += batch;
	}
	mine->test_loss = score.loss;
	mine->n_correct = score.n_correct;
	mine->n_counted = score.n_counted;
}

/* 64 bits that depend on every bit of the weights before a step, and its place. */
static uint64_t digest_params(const struct train_shared *shared, uint64_t step)
{
	uint64_t digest = 0xcbf29ce484222325u;

	for (size_t i = 0; i < shared->net.n_params; i++) {
		uint32_t bits;

		memcpy(&bits, &shared->params[step % 2][i], sizeof(bits));
		digest = (digest ^ bits) * 0x100000001b3u;
	}
	return digest;
}

/* Gathers what every rank has to say; *all is given (free). */
static int gather(struct train_job *job, const void *mine, size_t bytes, void *all_out)
{
	void *all = malloc((size_t)job->n_ranks * bytes);
	int r;

	if (!all)
		return train_fail(job, "no memory");
	r = spr_comm_allgather(job->comm, mine, all, bytes);
	if (r < 0) {
		free(all);
		return train_fail(job, "gathering: %s (%s)", spr_strerror(r),
				  spr_comm_error(job->comm));
	}
	*(void **)all_out = all;
	return 0;
}

/* Puts the ranks' messages together into job->epochs[epoch]. */
static int agree(struct train_job *job, uint64_t epoch, const struct epoch_message *mine)
{
	struct train_epoch *e = &job->epochs[epoch];
	struct epoch_message *all = NULL;
	uint64_t n_correct = 0, n_counted = 0;
	int r = gather(job, mine, sizeof(*mine), &all);

	if (r < 0)
		return r;
	for (int i = 0; i < job->n_ranks; i++) {
		e->train_loss += all[i].train_loss / job->n_ranks;
		e->test_loss += all[i].test_loss;
		e->bytes += all[i].bytes;
		e->value_bytes += all[i].value_bytes;
		n_counted += all[i].n_counted;
		e->seconds = fmax(e->seconds, all[i].seconds);
		n_correct += all[i].n_correct;
		if (all[i].digest != all[0].digest && r == 0)
			r = train_fail(job,
				       "after epoch %llu the weights of rank %d (digest %016llx) "
				       "differ from those of rank 0 (%016llx)",
				       (unsigned long long)(epoch + 1), i,
				       (unsigned long long)all[i].digest,
				       (unsigned long long)all[0].digest);
	}
	e->test_loss /= (double)n_counted;
	e->test_accuracy = 100.0 * (double)n_correct / (double)n_counted;
	free(all);
	return r;
}

static int run_epoch(struct train_job *job, uint64_t epoch)
{
	struct epoch_message mine = {0};
	uint64_t start = now_ns(), bytes = job->wire_bytes, value_bytes = job->value_bytes;
	uint64_t end_step = (epoch + 1) * job->steps_per_epoch;
	char label[48], text[48];
	double loss = 0, sum = 0;
	int r;

	shuffle(job->shared, epoch);
	snprintf(label, sizeof(label), "epoch %llu/%llu", (unsigned long long)epoch + 1,
		 (unsigned long long)job->shared->config.epochs);
	for (uint64_t at = 0; at < job->steps_per_epoch; at++) {
		r = run_step(job, epoch, at, &loss);
		if (r < 0)
			return r;
		sum += loss;
		snprintf(text, sizeof(text), "loss %.3f", sum / (double)(at + 1));
		if (job->rank == 0)
			perf_progress_update(&job->bar, label, at + 1, job->steps_per_epoch, text);
	}
	mine.seconds = (double)(now_ns() - start) * 1e-9;
	mine.bytes = job->wire_bytes - bytes;
	mine.value_bytes = job->value_bytes - value_bytes;
	mine.train_loss = sum / (double)job->steps_per_epoch;
	mine.digest = job->digest = digest_params(job->shared, end_step);
	evaluate(job, end_step, &mine);
	return agree(job, epoch, &mine);
}

/* Means over ranks of each rank's medians and totals. */
static int summarise(struct train_job *job)
{
	struct train_summary *s = &job->summary;
	struct final_message mine = {.bytes = (double)job->wire_bytes,
				     .value_bytes = (double)job->value_bytes,
				     .merge_ms = (double)job->merge_ns * 1e-6,
				     .commit_ms = (double)job->commit_ns * 1e-6,
				     .repairs = job->repairs,
				     .received = job->received};
	struct final_message *all = NULL;
	double steps = (double)job->step, share = 1.0 / job->n_ranks;
	int r;

	for (int part = 0; part < TRAIN_N_PARTS; part++) {
		for (uint64_t i = 0; i < job->step; i++)
			mine.total_ms[part] += job->sample[part][i];
		mine.median_ms[part] = perf_stats_median_of(job->sample[part], job->step);
	}
	r = gather(job, &mine, sizeof(mine), &all);
	if (r < 0)
		return r;
	for (int i = 0; i < job->n_ranks; i++) {
		s->bytes_per_step += all[i].bytes / steps * share;
		s->value_bytes_per_step += all[i].value_bytes / steps * share;
		s->bytes_busiest = fmax(s->bytes_busiest, all[i].bytes / steps);
		s->merge_ms += all[i].merge_ms * share;
		s->commit_ms += all[i].commit_ms * share;
		s->repairs += all[i].repairs;
		s->received_share +=
			(double)all[i].received / steps * share / (double)job->shared->net.n_params;
		for (int part = 0; part < TRAIN_N_PARTS; part++) {
			s->median_ms[part] += all[i].median_ms[part] * share;
			s->total_ms[part] += all[i].total_ms[part] * share;
		}
	}
	s->seconds = (double)(now_ns() - job->start_ns) * 1e-9;
	free(all);
	return 0;
}

int train_job_run(struct train_job *job)
{
	int r;

	job->start_ns = now_ns();
	for (uint64_t epoch = job->first_epoch; epoch < job->shared->config.epochs; epoch++) {
		r = run_epoch(job, epoch);
		perf_progress_clear(&job->bar);
		if (r < 0)
			return r;
		if (job->rank == 0)
			train_report_epoch(job, epoch);
		if (job->shared->config.save) {
			r = train_checkpoint_save(job, epoch + 1);
			if (r < 0)
				return r;
		}
	}
	return job->step > 0 ? summarise(job) : 0;
}
