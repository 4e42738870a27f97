/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Checkpoints of spr_train. PREFIX.weights, written by rank 0, holds what all ranks share: a head,
 * the weights, the momentum's velocity, in the byte order of the machine (which the head tells).
 * PREFIX.R.exchange, written by each rank R through spr_exchange_save, holds its residual and step.
 *
 * Each file is written beside its place, then renamed over it. A crash between the files of one
 * checkpoint leaves files of different steps; restore compares the steps and refuses. It refuses
 * too what is no such file, is cut or damaged, or belongs to another network, seed or algorithm
 * (that one spr_exchange_restore finds).
 */
#include "train_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x31304e5254525053u /* "SPRTRN01" in little-endian order */

struct head {
	uint64_t magic;
	uint64_t n_params;
	uint64_t epochs_done;
	uint64_t step; /* of the exchange */
	uint64_t seed;
	uint64_t digest; /* of all floats that follow */
};

static uint64_t digest_floats(uint64_t digest, const float *values, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &values[i], sizeof(bits));
		digest = (digest ^ bits) * 0x100000001b3u;
	}
	return digest;
}

/* Of the weights before a step of the whole schedule, and of the velocity. */
static uint64_t digest_state(const struct train_job *job, uint64_t step)
{
	const struct train_shared *shared = job->shared;
	size_t n = shared->net.n_params;
	uint64_t digest = digest_floats(0xcbf29ce484222325u, shared->params[step % 2], n);

	return digest_floats(digest, shared->velocity, n);
}

/* PREFIX.weights, or PREFIX.R.exchange. Given: free. NULL when memory is out. */
static char *path_of(const char *prefix, int rank, const char *suffix)
{
	char *path = NULL;
	int n = rank < 0 ? asprintf(&path, "%s.%s", prefix, suffix)
			 : asprintf(&path, "%s.%d.%s", prefix, rank, suffix);

	return n < 0 ? NULL : path;
}

static int write_all(FILE *file, const struct head *head, const struct train_job *job)
{
	size_t n = job->shared->net.n_params;

	if (fwrite(head, sizeof(*head), 1, file) != 1 ||
	    fwrite(job->shared->params[head->step % 2], sizeof(float), n, file) != n ||
	    fwrite(job->shared->velocity, sizeof(float), n, file) != n || fflush(file) != 0 ||
	    fsync(fileno(file)) != 0)
		return -errno;
	return 0;
}

static int save_weights(const struct train_job *job, const struct head *head)
{
	char *path = path_of(job->shared->config.save, -1, "weights");
	char *beside = path_of(job->shared->config.save, -1, "weights.new");
	FILE *file = NULL;
	int r = -ENOMEM;

	if (path && beside) {
		file = fopen(beside, "wbe");
		r = file ? write_all(file, head, job) : -errno;
		if (file && fclose(file) != 0 && r == 0)
			r = -errno;
		if (r == 0 && rename(beside, path) < 0)
			r = -errno;
		if (r < 0 && file)
			unlink(beside);
	}
	if (r < 0)
		train_fail(job, "%s.weights: cannot save: %s", job->shared->config.save,
			   spr_strerror(r));
	free(path);
	free(beside);
	return r;
}

int train_checkpoint_save(const struct train_job *job, uint64_t epochs_done)
{
	uint64_t step = epochs_done * job->steps_per_epoch;
	struct head head = {.magic = MAGIC,
			    .n_params = job->shared->net.n_params,
			    .epochs_done = epochs_done,
			    .step = step,
			    .seed = job->shared->config.seed,
			    .digest = digest_state(job, step)};
	char *path = path_of(job->shared->config.save, job->rank, "exchange");
	int r;

	if (!path)
		return train_fail(job, "no memory");
	r = spr_exchange_save(job->exchange, path);
	if (r < 0)
		train_fail(job, "%s: cannot save: %s", path, spr_strerror(r));
	free(path);
	if (r < 0 || job->rank != 0)
		return r;
	return save_weights(job, &head);
}

static int check_head(const struct train_job *job, const struct head *head, const char *path)
{
	if (head->magic != MAGIC)
		return train_fail(job,
				  "%s: no weights of spr_train, or of a machine with another "
				  "byte order",
				  path);
	if (head->n_params != job->shared->net.n_params)
		return train_fail(job, "%s: has %llu parameters, expected %zu", path,
				  (unsigned long long)head->n_params, job->shared->net.n_params);
	if (head->seed != job->shared->config.seed)
		return train_fail(job, "%s: was trained with --seed %llu, not %llu", path,
				  (unsigned long long)head->seed,
				  (unsigned long long)job->shared->config.seed);
	if (head->step != head->epochs_done * job->steps_per_epoch)
		return train_fail(job,
				  "%s: has done %llu steps in %llu epochs, expected %llu steps "
				  "an epoch (same --batch and number of ranks)",
				  path, (unsigned long long)head->step,
				  (unsigned long long)head->epochs_done,
				  (unsigned long long)job->steps_per_epoch);
	return 0;
}

static int read_weights(struct train_job *job, FILE *file, const char *path)
{
	size_t n = job->shared->net.n_params;
	struct head head;
	int r;

	if (fread(&head, sizeof(head), 1, file) != 1)
		return train_fail(job, "%s: ends inside its head", path);
	r = check_head(job, &head, path);
	if (r < 0)
		return r;
	if (fread(job->shared->params[head.step % 2], sizeof(float), n, file) != n ||
	    fread(job->shared->velocity, sizeof(float), n, file) != n || fgetc(file) != EOF)
		return train_fail(job, "%s: is not of the length that its head announces", path);
	if (digest_state(job, head.step) != head.digest)
		return train_fail(job, "%s: is damaged: the digest does not match", path);
	job->first_epoch = head.epochs_done;
	job->shared->next_step = head.step;
	return 0;
}

/* The exchange's own part, and whether it is of the same step. */
static int restore_exchange(struct train_job *job)
{
	uint64_t expected = job->first_epoch * job->steps_per_epoch;
	char *path = path_of(job->shared->config.restore, job->rank, "exchange");
	struct spr_exchange_stats stats;
	int r;

	if (!path)
		return train_fail(job, "no memory");
	r = spr_exchange_restore(job->exchange, path);
	if (r < 0) {
		train_fail(job, "%s: %s (%s)", path, spr_strerror(r),
			   spr_context_error(job->context));
		goto free_path;
	}
	r = spr_exchange_stats(job->exchange, &stats);
	if (r < 0)
		train_fail(job, "%s: %s", path, spr_strerror(r));
	else if (stats.step != expected)
		r = train_fail(job, "%s: has %llu steps, expected %llu, as in %s.weights", path,
			       (unsigned long long)stats.step, (unsigned long long)expected,
			       job->shared->config.restore);
free_path:
	free(path);
	return r;
}

int train_checkpoint_restore(struct train_job *job)
{
	char *path = path_of(job->shared->config.restore, -1, "weights");
	FILE *file;
	int r;

	if (!path)
		return train_fail(job, "no memory");
	file = fopen(path, "rbe");
	r = file ? read_weights(job, file, path)
		 : train_fail(job, "%s: cannot open: %s", path, strerror(errno));
	if (file)
		fclose(file);
	free(path);
	return r < 0 ? r : restore_exchange(job);
}
