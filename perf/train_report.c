/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What spr_train says: a line per epoch, the summary, the JSON file. Rank 0 alone speaks.
 *
 * The JSON file has the schema "sparring.train", version 2: config, epochs, totals, step_median_ms.
 * A reader ignores names that it does not know; a name keeps its meaning within a version.
 */
#include "train_job.h"

#include <json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void train_report_epoch(struct train_job *job, uint64_t epoch)
{
	const struct train_epoch *e = &job->epochs[epoch];

	printf("epoch %llu/%llu: train loss %.4f, test loss %.4f, test accuracy %.2f %%",
	       (unsigned long long)epoch + 1, (unsigned long long)job->shared->config.epochs,
	       e->train_loss, e->test_loss, e->test_accuracy);
	if (job->shared->config.model->kind == TRAIN_TEXT)
		printf(", %.4f bits a character", e->test_loss / M_LN2);
	printf(", %.1f s\n", e->seconds);
	fflush(stdout);
}

/* "1,234,567" */
static const char *grouped(double value, char *out, size_t bytes)
{
	char digits[32];
	size_t n = (size_t)snprintf(digits, sizeof(digits), "%.0f", value), at = 0;

	for (size_t i = 0; i < n && at + 2 < bytes; i++) {
		if (i > 0 && (n - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = '\0';
	return out;
}

/* The accuracy after the last epoch; −1 when this run had none. */
static double last_accuracy(const struct train_job *job)
{
	return job->step > 0 ? job->epochs[job->shared->config.epochs - 1].test_accuracy : -1;
}

void train_report_summary(const struct train_job *job)
{
	const struct train_summary *s = &job->summary;
	const double *ms = s->median_ms;
	char bytes[48];

	if (job->step == 0) {
		printf("nothing to do: the checkpoint has all %llu epochs\n",
		       (unsigned long long)job->shared->config.epochs);
		return;
	}
	printf("\n%s", job->shared->config.algo);
	if (strcmp(job->shared->config.algo, "dense_ring") != 0)
		printf(" at density %g", job->epochs[job->shared->config.epochs - 1].density);
	printf(", %d rank%s, %zu parameters, %llu steps\n", job->n_ranks,
	       job->n_ranks > 1 ? "s" : "", job->shared->net.n_params,
	       (unsigned long long)job->step);
	printf("  test accuracy            %.2f %%\n", last_accuracy(job));
	printf("  bytes per step and rank  %s\n", grouped(s->bytes_per_step, bytes, sizeof(bytes)));
	printf("  time per step (median)   %.2f ms: compute %.2f, select %.2f, exchange %.2f\n",
	       ms[TRAIN_STEP], ms[TRAIN_COMPUTE], ms[TRAIN_SELECT], ms[TRAIN_EXCHANGE]);
	printf("  total                    %.1f s\n", s->seconds);
	fflush(stdout);
}

static void write_config(struct perf_json *json, const struct train_job *job)
{
	const struct train_config *c = &job->shared->config;

	perf_json_begin_object(json, "config");
	perf_json_string(json, "model", c->model->name);
	perf_json_string(json, "algo", c->algo);
	perf_json_double(json, "density", strcmp(c->algo, "dense_ring") ? c->density : 1);
	perf_json_u64(json, "warmup_epochs", c->warmup_epochs);
	perf_json_string(json, "warmup", c->warmup_name);
	perf_json_bool(json, "simulated", job->sim != NULL);
	perf_json_i64(json, "ranks", job->n_ranks);
	perf_json_u64(json, "batch_per_rank", c->batch);
	perf_json_u64(json, "epochs", c->epochs);
	perf_json_double(json, "lr", c->lr);
	perf_json_string(json, "lr_decay", c->decay);
	perf_json_u64(json, "lr_warmup_steps", c->warmup_steps);
	perf_json_double(json, "momentum", c->momentum);
	perf_json_u64(json, "seed", c->seed);
	perf_json_bool(json, "momentum_correction", c->momentum_correction);
	perf_json_double(json, "clip", c->clip);
	perf_json_double(json, "weight_decay", c->weight_decay);
	perf_json_bool(json, "per_layer", c->per_layer);
	perf_json_bool(json, "dense_small", c->dense_small);
	perf_json_bool(json, "layerwise", c->layerwise);
	perf_json_string(json, "trimmed", train_trimmed_names[c->trimmed]);
	perf_json_string(json, "wire", train_wire_names[c->wire]);
	perf_json_string(json, "codec", train_codec_names[c->codec]);
	perf_json_string(json, "pipeline", train_pipeline_names[c->pipeline]);
	perf_json_u64(json, "broadcasters", c->broadcasters);
	perf_json_begin_array(json, "layer_table");
	for (size_t l = 0; l < job->shared->net.n_layers; l++) {
		perf_json_begin_object(json, NULL);
		perf_json_string(json, "name", job->shared->net.layer[l].name);
		perf_json_u64(json, "parameters", job->shared->net.layer[l].count);
		if (job->layered) /* of the result, mean over the steps of the last epoch */
			perf_json_double(json, "density",
					 job->layer_density[l] / (double)job->steps_per_epoch);
		perf_json_end_object(json);
	}
	perf_json_end_array(json);
	perf_json_u64(json, "parameters", job->shared->net.n_params);
	perf_json_u64(json, "train_samples", job->shared->source.n_train);
	perf_json_u64(json, "test_samples", job->shared->source.n_test);
	perf_json_u64(json, "steps_per_epoch", job->steps_per_epoch);
	perf_json_end_object(json);
}

static void write_epochs(struct perf_json *json, const struct train_job *job)
{
	perf_json_begin_array(json, "epochs");
	for (uint64_t i = job->first_epoch; i < job->shared->config.epochs; i++) {
		const struct train_epoch *e = &job->epochs[i];

		perf_json_begin_object(json, NULL);
		perf_json_u64(json, "epoch", i + 1);
		perf_json_double(json, "train_loss", e->train_loss);
		perf_json_double(json, "test_loss", e->test_loss);
		perf_json_double(json, "test_accuracy", e->test_accuracy);
		if (job->shared->config.model->kind == TRAIN_TEXT)
			perf_json_double(json, "test_bits", e->test_loss / M_LN2);
		perf_json_double(json, "seconds", e->seconds);
		perf_json_double(json, "density", e->density);
		perf_json_u64(json, "bytes_all_ranks", e->bytes);
		perf_json_u64(json, "value_bytes_all_ranks", e->value_bytes);
		perf_json_end_object(json);
	}
	perf_json_end_array(json);
}

static void write_totals(struct perf_json *json, const struct train_job *job)
{
	const struct train_summary *s = &job->summary;
	char digest[24], name[32];

	perf_json_begin_object(json, "totals");
	perf_json_u64(json, "steps", job->step);
	if (job->step > 0) {
		perf_json_double(json, "test_accuracy", last_accuracy(job));
		perf_json_double(json, "bytes_per_step", s->bytes_per_step);
		perf_json_double(json, "value_bytes_per_step", s->value_bytes_per_step);
		perf_json_double(json, "bytes_per_step_busiest_rank", s->bytes_busiest);
		perf_json_double(json, "received_share", s->received_share);
	}
	perf_json_double(json, "seconds", s->seconds);
	for (int part = 0; part < TRAIN_N_PARTS; part++) {
		snprintf(name, sizeof(name), "%s_seconds", train_part_names[part]);
		perf_json_double(json, name, s->total_ms[part] * 1e-3);
	}
	perf_json_double(json, "merge_seconds", s->merge_ms * 1e-3);
	perf_json_double(json, "commit_seconds", s->commit_ms * 1e-3);
	perf_json_u64(json, "selection_repairs", s->repairs);
	snprintf(digest, sizeof(digest), "%016llx", (unsigned long long)job->digest);
	perf_json_string(json, "weights_digest", digest);
	perf_json_end_object(json);
	perf_json_begin_object(json, "step_median_ms");
	for (int part = 0; part < TRAIN_N_PARTS; part++)
		perf_json_double(json, train_part_names[part], s->median_ms[part]);
	perf_json_end_object(json);
}

int train_report_json(const struct train_job *job)
{
	struct perf_json *json = perf_json_create(job->shared->config.json);
	int r;

	perf_json_begin_object(json, NULL);
	perf_json_string(json, "schema", "sparring.train");
	perf_json_u64(json, "version", 2);
	perf_json_string(json, "sparring", spr_version());
	perf_json_machine(json, "machine");
	write_config(json, job);
	write_epochs(json, job);
	write_totals(json, job);
	perf_json_end_object(json);
	r = perf_json_commit(json);
	if (r < 0)
		return train_fail(job, "%s: %s", job->shared->config.json, spr_strerror(r));
	return 0;
}
