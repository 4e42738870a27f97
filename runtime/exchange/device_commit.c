/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What an exchange on a GPU does under the context's lock: fetching values of a mask, and commits.
 * Lists are copied in pieces to the *stage*, mapped memory from where the device reads them. Its
 * length is fixed, so that a commit, which no other rank would hear fail, needs no memory; what
 * waits for the device is fetching, and a list too long for the stage.
 *
 * Failures: the first of a commit is noted, told to the log, and returned by update.
 */
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <string.h>

#include "device.h"

#define PIECE SPRI_STAGE_PIECE
#define PIECE_BYTES (PIECE * (sizeof(uint64_t) + sizeof(float)))
#define STAGE_PIECES SPRI_STAGE_PIECES

/* Notes the first failure of a commit, with the driver's words. */
static void note(struct spr_exchange *exchange, int r)
{
	struct exchange_device *d = exchange->device;

	if (r >= 0 || d->failed)
		return;
	d->failed = r;
	spri_logf(SPR_LOG_ERROR, "exchange: GPU %u: %s", spri_gpu_number(d->gpu),
		  r == SPR_EDEVICE ? spri_device_words(d) : spr_strerror(r));
}

const char *spri_device_words(const struct exchange_device *d)
{
	const char *select = spri_gpu_stream_error(d->select);

	return *select ? select : spri_gpu_stream_error(d->side);
}

/* The last commit is over, and the caller's stream has come so far. Lock held. */
int spri_device_begin(struct spr_exchange *exchange)
{
	struct exchange_device *d = exchange->device;
	int r;

	d->staged = 0;
	d->failed = 0;
	d->told = false;
	r = spri_gpu_idle(d->select);
	if (r == SPRI_AGAIN) /* of a step that was given up */
		return spri_trace(SPR_ETIMEOUT);
	if (r == 0)
		r = spri_gpu_sync(d->side);
	if (r == 0)
		r = spri_gpu_after(d->side, d->theirs);
	note(exchange, r);
	d->failed = 0;
	return spri_trace(r);
}

/* ---- commit, and what else is under the lock ---- */

/* Some entries of a list, on their way: the same arrays here and there. */
struct piece {
	uint64_t *index;
	float *value;
	uint64_t *index_there;
	float *value_there;
};

/* The next piece of the stage. Waits for the side when all are in use. */
static int next_piece(struct exchange_device *d, struct piece *out)
{
	size_t at = d->staged;
	int r = 0;

	if (at == STAGE_PIECES) {
		r = spri_gpu_sync(d->side);
		at = 0;
	}
	if (r < 0)
		return spri_trace(r);
	d->staged = at + 1;
	at *= PIECE_BYTES;
	out->index = (void *)(d->stage.host + at);
	out->index_there = (void *)(d->stage.there + at);
	out->value = (float *)(out->index + PIECE);
	out->value_there = (float *)(out->index_there + PIECE);
	return 0;
}

/* What is done with a list: with n entries of it, from `at` on, in a piece. */
struct use {
	int (*piece)(struct spr_exchange *exchange, const struct use *use,
		     const struct piece *piece, uint64_t at, uint64_t n);
	float *vector;		    /* (device) what the indices count in */
	float factor;		    /* update */
	float *to;		    /* gather: where the values go */
	struct exchange_part *part; /* take_out */
};

/* A list goes piece by piece to its use; value NULL: indices alone. */
static int use_list(struct spr_exchange *exchange, const struct spri_list *list,
		    const struct use *use)
{
	struct piece piece;
	int r = 0;

	for (uint64_t at = 0; at < list->count && r == 0; at += PIECE) {
		uint64_t n = spri_min_u64(list->count - at, PIECE);

		r = next_piece(exchange->device, &piece);
		if (r < 0)
			break;
		memcpy(piece.index, list->index + at, n * sizeof *piece.index);
		if (list->value)
			memcpy(piece.value, list->value + at, n * sizeof *piece.value);
		r = use->piece(exchange, use, &piece, at, n);
	}
	return spri_trace(r);
}

/* The piece's values become those of the vector at its indices. */
static int fetch_values(struct exchange_device *d, const struct use *use, const struct piece *piece,
			uint64_t n)
{
	int r = spri_gpu_gather(d->side, piece->value_there, use->vector, piece->index_there, n);

	return r == 0 ? spri_gpu_sync(d->side) : spri_trace(r);
}

static int gather_piece(struct spr_exchange *exchange, const struct use *use,
			const struct piece *piece, uint64_t at, uint64_t n)
{
	int r = fetch_values(exchange->device, use, piece, n);

	if (r == 0)
		memcpy(use->to + at, piece->value, n * sizeof *use->to);
	return spri_trace(r);
}

int spri_device_gather(struct spri_op *op, const uint64_t *index, uint64_t n, float *to)
{
	const struct spri_list list = {.index = (uint64_t *)(uintptr_t)index, .count = n};
	const struct use use = {
		.piece = gather_piece, .vector = (float *)(uintptr_t)op->in, .to = to};
	struct spr_exchange *exchange = op->on_done_arg;
	int r = use_list(exchange, &list, &use);

	note(exchange, r);
	return spri_trace(r);
}

/* Leaves residual and, factor masking, velocity. */
static int take_piece(struct spr_exchange *exchange, const struct use *use,
		      const struct piece *piece, uint64_t at, uint64_t n)
{
	struct spri_gpu_stream *side = exchange->device->side;
	struct exchange_part *part = use->part;
	int r = fetch_values(exchange->device, use, piece, n);

	(void)at;
	for (uint64_t i = 0; i < n && r == 0; i++)
		part->now.sent_squares += (double)piece->value[i] * (double)piece->value[i];
	if (r == 0)
		r = spri_gpu_scatter(side, use->vector, piece->index_there, NULL, n, 0);
	if (r == 0 && exchange->velocity)
		r = spri_gpu_scatter(side, exchange->velocity + part->offset, piece->index_there,
				     NULL, n, 0);
	return spri_trace(r);
}

void spri_device_take_out(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct spri_list indices = {.index = part->op->sum.index,
					  .count = part->op->sum.count};
	const struct use use = {
		.piece = take_piece, .vector = exchange->residual + part->offset, .part = part};

	note(exchange, use_list(exchange, &indices, &use));
}

/* The device reads them where it wrote them. */
void spri_device_put_back(struct spr_exchange *exchange, struct exchange_part *part)
{
	note(exchange,
	     spri_gpu_scatter(exchange->device->side, exchange->residual + part->offset,
			      part->there.index, part->there.value, part->selected.count, 1));
}

static int adopt_piece(struct spr_exchange *exchange, const struct use *use,
		       const struct piece *piece, uint64_t at, uint64_t n)
{
	(void)at;
	return spri_gpu_adopt(exchange->device->side, use->vector, piece->index_there,
			      piece->value_there, n, exchange->policy);
}

void spri_device_adopt(struct spr_exchange *exchange, struct exchange_part *part)
{
	const struct use use = {.piece = adopt_piece, .vector = exchange->residual + part->offset};

	note(exchange, use_list(exchange, &part->op->adopted, &use));
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

static int update_piece(struct spr_exchange *exchange, const struct use *use,
			const struct piece *piece, uint64_t at, uint64_t n)
{
	(void)at;
	return spri_gpu_scatter(exchange->device->side, use->vector, piece->index_there,
				piece->value_there, n, use->factor);
}

static int update_sparse(struct spr_exchange *exchange, float factor)
{
	const struct use use = {
		.piece = update_piece, .vector = exchange->update, .factor = factor};
	int r = spri_gpu_zero(exchange->device->side, exchange->update,
			      exchange->n * sizeof *exchange->update);

	return r == 0 ? use_list(exchange, &exchange->sum, &use) : spri_trace(r);
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
