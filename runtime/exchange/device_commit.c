/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What an exchange on a GPU does under the context's lock: fetching values of a mask, and commits.
 * Lists are copied to the *stage*, mapped memory from where the device reads them; nothing but
 * fetching waits for the device.
 *
 * Failures: the first of a commit is noted, told to the log, and returned by update.
 */
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <string.h>

#include "device.h"

#define STAGE_LEAST ((size_t)1 << 16)

/* Notes the first failure of a commit, with the driver's words. */
static void note(struct spr_exchange *exchange, int r)
{
	struct exchange_device *d = exchange->device;

	if (r >= 0 || d->failed)
		return;
	d->failed = r;
	spri_logf(SPR_LOG_ERROR, "exchange: GPU %u: %s", spri_gpu_number(d->gpu),
		  r == SPR_EDEVICE ? spri_gpu_stream_error(d->side) : spr_strerror(r));
}

/* The last commit is over, and the caller's stream has come so far. Lock held. */
int spri_device_begin(struct spr_exchange *exchange)
{
	struct exchange_device *d = exchange->device;
	int r = spri_gpu_sync(d->side);

	d->staged = 0;
	d->failed = 0;
	d->told = false;
	if (r == 0)
		r = spri_gpu_after(d->side, d->theirs);
	return spri_trace(r);
}

/* ---- commit, and what else is under the lock ---- */

/* Room on the stage. Waits for the side when it must grow. */
static int stage(struct spr_exchange *exchange, size_t bytes, struct area *out)
{
	struct exchange_device *d = exchange->device;
	size_t room = (bytes + 63) & ~(size_t)63;
	int r = 0;

	if (d->stage.bytes - d->staged < room) {
		r = spri_gpu_sync(d->side);
		d->staged = 0;
		if (r == 0)
			r = spri_area_fit(d, &d->stage,
					  room > STAGE_LEAST ? 2 * room : STAGE_LEAST);
	}
	if (r < 0)
		return spri_trace(r);
	*out = (struct area){d->stage.host + d->staged, d->stage.there + d->staged, bytes};
	d->staged += room;
	return 0;
}

/* A list as the device reads it; there->value is NULL when the list has none. */
static int stage_list(struct spr_exchange *exchange, const uint64_t *index, const float *value,
		      uint64_t n, struct spri_list *there)
{
	struct area area;
	int r = stage(exchange, n * (sizeof *index + sizeof *value), &area);

	if (r < 0)
		return spri_trace(r);
	if (n > 0)
		memcpy(area.host, index, n * sizeof *index);
	if (n > 0 && value)
		memcpy(area.host + n * sizeof *index, value, n * sizeof *value);
	there->index = (void *)area.there;
	there->value = value ? (void *)(area.there + n * sizeof *index) : NULL;
	there->count = there->capacity = n;
	return 0;
}

static int gather_from(struct spr_exchange *exchange, const float *from, const uint64_t *index,
		       uint64_t n, float *to)
{
	struct exchange_device *d = exchange->device;
	struct spri_list there;
	struct area out;
	int r;

	if (n == 0)
		return 0;
	/* one piece of stage: a second could move the first */
	r = stage(exchange, n * (sizeof *index + sizeof *to), &out);
	if (r < 0)
		return spri_trace(r);
	memcpy(out.host, index, n * sizeof *index);
	there = (struct spri_list){(void *)out.there, (void *)(out.there + n * sizeof *index), n,
				   n};
	r = spri_gpu_gather(d->side, there.value, from, there.index, n);
	if (r == 0)
		r = spri_gpu_sync(d->side);
	if (r == 0)
		memcpy(to, out.host + n * sizeof *index, n * sizeof *to);
	return spri_trace(r);
}

int spri_device_gather(struct spri_op *op, const uint64_t *index, uint64_t n, float *to)
{
	struct spr_exchange *exchange = op->on_done_arg;
	int r = gather_from(exchange, op->in, index, n, to);

	note(exchange, r);
	return spri_trace(r);
}

void spri_device_take_out(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct spri_list *sum = &part->op->sum;
	struct exchange_device *d = exchange->device;
	float *values = spri_calloc(sum->count + 1, sizeof *values);
	struct spri_list there;
	int r = values ? 0 : -ENOMEM;

	if (r == 0)
		r = gather_from(exchange, exchange->residual + part->offset, sum->index, sum->count,
				values);
	for (uint64_t i = 0; r == 0 && i < sum->count; i++)
		part->now.sent_squares += (double)values[i] * (double)values[i];
	spri_free(values);
	if (r == 0)
		r = stage_list(exchange, sum->index, NULL, sum->count, &there);
	if (r == 0)
		r = spri_gpu_scatter(d->side, exchange->residual + part->offset, there.index, NULL,
				     sum->count, 0);
	if (r == 0 && exchange->velocity) /* factor masking */
		r = spri_gpu_scatter(d->side, exchange->velocity + part->offset, there.index, NULL,
				     sum->count, 0);
	note(exchange, r);
}

void spri_device_put_back(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct spri_list *sent = &part->selected, *sum = &part->op->sum;
	struct exchange_device *d = exchange->device;
	struct spri_list back = {0}, there;
	uint64_t j = 0;
	int r = spri_list_fit(&back, sent->count + 1);

	for (uint64_t i = 0; r == 0 && i < sent->count; i++) {
		while (j < sum->count && sum->index[j] < sent->index[i])
			j++;
		if (j < sum->count && sum->index[j] == sent->index[i])
			continue;
		back.index[back.count] = sent->index[i];
		back.value[back.count++] = sent->value[i];
	}
	if (r == 0)
		r = stage_list(exchange, back.index, back.value, back.count, &there);
	if (r == 0)
		r = spri_gpu_scatter(d->side, exchange->residual + part->offset, there.index,
				     there.value, back.count, 1);
	spri_list_free(&back);
	note(exchange, r);
}

void spri_device_adopt(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct spri_list *adopted = &part->op->adopted;
	struct spri_list there;
	int r;

	if (adopted->count == 0)
		return;
	r = stage_list(exchange, adopted->index, adopted->value, adopted->count, &there);
	if (r == 0)
		r = spri_gpu_adopt(exchange->device->side, exchange->residual + part->offset,
				   there.index, there.value, adopted->count, exchange->policy);
	note(exchange, r);
}

/* The average of a dense part, with momentum, straight to the update. */
static int update_dense(struct spr_exchange *exchange, const struct exchange_part *part,
			float factor)
{
	struct spri_gpu_stream *side = exchange->device->side;
	float *update = exchange->update + part->offset;
	size_t bytes = part->count * sizeof *update;
	int r = spri_gpu_copy(side, update, exchange->dense_sum + part->offset, bytes);

	if (r == 0)
		r = spri_gpu_scale(side, update, update, part->count, factor);
	if (r == 0 && exchange->velocity) {
		/* the shadow is that of before the step now */
		struct spri_gpu_axpby sum = {
			.out = exchange->velocity + part->offset,
			.a = (float)exchange->momentum,
			.x = exchange->velocity_shadow + part->offset,
			.b = 1,
			.y = update,
			.n = part->count,
		};

		r = spri_gpu_axpby(side, &sum);
		if (r == 0)
			r = spri_gpu_copy(side, update, sum.out, bytes);
	}
	return spri_trace(r);
}

static int update_sparse(struct spr_exchange *exchange, float factor)
{
	struct spri_gpu_stream *side = exchange->device->side;
	const struct spri_list *sum = &exchange->sum;
	struct spri_list there;
	int r = spri_gpu_zero(side, exchange->update, exchange->n * sizeof *exchange->update);

	if (r == 0 && sum->count > 0)
		r = stage_list(exchange, sum->index, sum->value, sum->count, &there);
	if (r == 0 && sum->count > 0)
		r = spri_gpu_scatter(side, exchange->update, there.index, there.value, sum->count,
				     factor);
	return spri_trace(r);
}

int spri_device_update(struct spr_exchange *exchange, float factor)
{
	struct exchange_device *d = exchange->device;
	struct spri_gpu_axpby decay = {
		.out = exchange->update,
		.a = 1,
		.x = exchange->update,
		.b = (float)exchange->weight_decay,
		.y = exchange->weights,
		.n = exchange->n,
	};
	int r = 0;

	if (exchange->update && exchange->algo->kind != SPRI_ALGO_DENSE)
		r = update_sparse(exchange, factor);
	for (size_t i = 0; exchange->update && i < exchange->n_parts && r == 0; i++)
		if (exchange->parts[i].algo->kind == SPRI_ALGO_DENSE)
			r = update_dense(exchange, &exchange->parts[i], factor);
	if (exchange->update && exchange->weight_decay > 0 && r == 0)
		r = spri_gpu_axpby(d->side, &decay);
	if (r == 0)
		r = spri_gpu_before(d->side, d->theirs);
	note(exchange, r);
	return spri_trace(d->failed);
}
