/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The vectors of an exchange in the memory of a GPU. Contracts: struct exchange_place,
 * kernels/gpu.h.
 *
 *   select   waits for the caller's stream, accumulates and selects on the device. The list comes
 *            to mapped host memory chunk by chunk; a part that streams sends each chunk while the
 *            next is written
 *   merges   are the host's: lists are a thousandth of the vectors
 *   commit   lists go to mapped memory, from where the device adds and scatters them; the caller's
 *            stream waits for the update, the host does not
 *
 * Two streams, since selection goes on without the lock while another part is being gathered or
 * committed under it: `select` is the caller's thread's, `side` is under the lock. What one leaves
 * to the other is finished: selection is waited for here, the side by begin.
 *
 * Failures: SPR_EDEVICE, the driver's words in the log. In selection the step fails on all ranks
 * and nothing has changed; in a commit the other ranks are done, and this one is told so.
 */
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "device.h"

#define CHUNK 4096u /* entries that are announced together */

/* ---- selection ---- */

/* What failed without the lock: the words go to the log, once a step or call. */
static int fail(const struct spr_exchange *exchange, int r)
{
	struct exchange_device *d = exchange->device;
	const struct spri_log *before;

	if (r != SPR_EDEVICE || d->told)
		return spri_trace(r);
	d->told = true;
	before = spri_log_enter(&exchange->comm->context->log);
	spri_logf(SPR_LOG_ERROR, "exchange: GPU %u: %s", spri_gpu_number(d->gpu),
		  spri_device_words(d));
	spri_log_enter(before);
	return spri_trace(r);
}

/* Entries in chunks whose flags are up, from the first on. */
static uint64_t announced(const struct exchange_device *d, uint64_t n_chunks, uint64_t seen)
{
	const _Atomic uint32_t *flag = (const _Atomic uint32_t *)(void *)d->flags.host;

	while (seen < n_chunks &&
	       atomic_load_explicit(&flag[seen], memory_order_acquire) == d->sequence)
		seen++;
	return seen;
}

/*
 * Waits until the device has written *done, making progress; with chunks: hands them on as they
 * come.
 */
static int await(struct spr_exchange *exchange, struct exchange_part *part, const uint32_t *done,
		 uint64_t n_chunks)
{
	struct exchange_device *d = exchange->device;
	struct spr_context *context = exchange->comm->context;
	uint64_t deadline = spri_context_now(context) + context->timeout_ns, seen = 0;
	struct spri_list ready = part->selected;

	for (;;) {
		bool idle = spri_gpu_idle(d->select) != SPRI_AGAIN; /* before the flag is read */
		uint64_t now_seen = announced(d, n_chunks, seen);

		if (atomic_load_explicit((const _Atomic uint32_t *)done, memory_order_acquire) ==
		    d->sequence)
			return 0;
		if (idle) {
			int r = spri_gpu_sync(d->select);

			return fail(exchange, r < 0 ? r : SPR_EDEVICE);
		}
		if (spri_context_now(context) >= deadline)
			return spri_trace(SPR_ETIMEOUT);
		ready.count = spri_min_u64(now_seen * CHUNK, part->now.k);
		spri_exchange_progress(exchange, part, now_seen > seen ? &ready : NULL);
		seen = now_seen;
		sched_yield(); /* a stand-in's device may need this CPU */
	}
}

static uint32_t next_sequence(struct exchange_device *d)
{
	if (++d->sequence == 0)
		d->sequence = 1;
	return d->sequence;
}

static int select_sparse(struct spr_exchange *exchange, struct exchange_part *part,
			 const float *gradient, float scale, uint64_t *index)
{
	struct exchange_device *d = exchange->device;
	struct spri_gpu_selected *result = (void *)d->word.host;
	uint64_t n_chunks = (part->now.k + CHUNK - 1) / CHUNK;
	struct spri_gpu_select s = {
		.gradient = gradient,
		.residual = exchange->residual + part->offset,
		.shadow = exchange->shadow + part->offset,
		.scale = scale,
		.n = part->count,
		.k = part->now.k,
		.policy = exchange->policy,
		.threshold = part->threshold,
		.index = part->there.index,
		.value = part->there.value,
		.near_index = part->near.index,
		.near_value = part->near.value,
		.chunk = CHUNK,
		.flag = (void *)d->flags.there,
		.sequence = next_sequence(d),
		.result = (void *)d->word.there,
	};
	double norm;
	int r = spri_gpu_select(d->select, &s);

	part->now.ahead_key = 1; /* what comes has been cut exactly */
	if (r == 0)
		r = await(exchange, part, &result->done, n_chunks);
	if (r == 0 && exchange->velocity) /* factor masking */
		r = spri_gpu_scatter(d->select, exchange->velocity_shadow + part->offset,
				     part->there.index, NULL, result->count, 0);
	if (r == 0 && exchange->velocity)
		r = spri_gpu_sync(d->select);
	if (r < 0)
		return fail(exchange, r);
	part->selected.count = result->count;
	part->now.cut_key = result->cut_key;
	part->now.cut_index = result->cut_index;
	part->now.threshold = result->threshold;
	part->now.repaired = result->repaired;
	part->now.dropped += result->dropped;
	norm = spri_norm2(part->selected.value, part->selected.count);
	part->now.sent_squares = norm * norm;
	return spri_residual_finite(exchange, result->bad_index, index);
}

static int device_weigh(struct spr_exchange *exchange, struct exchange_part *part,
			struct spri_importance *s)
{
	struct exchange_device *d = exchange->device;
	struct spri_gpu_weighed *result = (void *)d->word.host;
	struct spri_gpu_importance weigh = {
		.gradient = s->gradient,
		.residual = s->residual,
		.weight = s->weight,
		.shadow = s->shadow,
		.n = s->n,
		.scale = s->scale,
		.floor = s->floor,
		.choose = s->choose,
		.threshold = s->threshold,
		.key = s->key,
		.step = s->step,
		.policy = s->policy,
		.index = part->there.index,
		.capacity = part->selected.capacity,
		.sequence = next_sequence(d),
		.result = (void *)d->word.there,
	};
	int r = spri_gpu_importance(d->select, &weigh);

	if (r == 0)
		r = await(exchange, part, &result->done, 0);
	if (r == 0)
		r = spri_gpu_copy(d->select, part->selected.index, part->there.index,
				  result->count * sizeof *part->selected.index);
	if (r == 0)
		r = spri_gpu_sync(d->select);
	if (r < 0)
		return fail(exchange, r);
	part->selected.count = result->count;
	s->sum = result->sum;
	s->sum_squares = result->sum_squares;
	s->weight_squares = result->weight_squares;
	s->bad_index = result->bad_index;
	s->dropped = result->dropped;
	return 0;
}

/* The norm of a vector, by the stream of selection. */
static int norm_of(struct spr_exchange *exchange, const float *v, uint64_t n, double *out)
{
	struct exchange_device *d = exchange->device;
	int r = spri_gpu_norm2(d->select, v, n, (void *)d->word.there);

	if (r == 0)
		r = spri_gpu_sync(d->select);
	if (r < 0)
		return fail(exchange, r);
	memcpy(out, d->word.host, sizeof *out);
	return 0;
}

/*
 * The part's momentum-corrected gradient, in the shadow of the velocity. Dropped values are counted
 * here.
 */
static int correct(struct spr_exchange *exchange, struct exchange_part *part, float scale)
{
	struct exchange_device *d = exchange->device;
	struct spri_gpu_axpby sum = {
		.out = exchange->velocity_shadow + part->offset,
		.a = (float)exchange->momentum,
		.x = exchange->velocity + part->offset,
		.b = scale,
		.y = exchange->gradient + part->offset,
		.n = part->count,
	};
	struct spri_gpu_drop drop = {sum.out, sum.x, sum.a, sum.n, (void *)d->word.there};
	uint64_t dropped = 0;
	int r = spri_gpu_axpby(d->select, &sum);

	if (r < 0 || exchange->policy != SPR_NONFINITE_DROP)
		return fail(exchange, r);
	memset(d->word.host, 0, sizeof dropped);
	r = spri_gpu_drop_velocity(d->select, &drop);
	if (r == 0)
		r = spri_gpu_sync(d->select);
	memcpy(&dropped, d->word.host, sizeof dropped);
	part->now.dropped += dropped;
	return fail(exchange, r);
}

/* What the whole model is selected from has zeros where dense layers are. */
static int leave_out_dense(struct spr_exchange *exchange, float *from)
{
	int r = 0;

	for (size_t i = 1; i < exchange->n_parts && r == 0; i++)
		r = spri_gpu_zero(exchange->device->select, from + exchange->parts[i].offset,
				  exchange->parts[i].count * sizeof *from);
	return fail(exchange, r);
}

/* Nothing is in flight when an exchange is READ: the side's last commit is waited for. */
static int settle(const struct spr_exchange *exchange)
{
	struct exchange_device *d = exchange->device;

	if (exchange->state != EXCHANGE_READING)
		return 0;
	d->told = false;
	return spri_gpu_sync(d->side);
}

static int device_copy(const struct spr_exchange *exchange, float *to, const float *from,
		       uint64_t n)
{
	int r = settle(exchange);

	if (r == 0)
		r = spri_gpu_copy(exchange->device->select, to, from, n * sizeof *to);
	if (r == 0)
		r = spri_gpu_sync(exchange->device->select);
	return fail(exchange, r);
}

/* A dense part is sent from host memory. */
static int fetch_dense(struct spr_exchange *exchange, struct exchange_part *part, float scale)
{
	float *sum = exchange->dense_sum + part->offset;
	int r = device_copy(exchange, sum, exchange->gradient + part->offset, part->count);

	if (r == 0 && exchange->clip > 0)
		spri_kernels()->scale(sum, sum, part->count, scale);
	return spri_trace(r);
}

static int device_select(struct spr_exchange *exchange, struct exchange_part *part, uint64_t *index)
{
	const float *gradient = exchange->gradient + part->offset;
	struct exchange_device *d = exchange->device;
	bool leave_out = spri_residual_leaves_out(exchange, part);
	float scale = 1;
	double norm;
	int r = spri_gpu_after(d->select, d->theirs);

	if (r == 0 && exchange->clip > 0) {
		r = norm_of(exchange, gradient, part->count, &norm);
		if (r == 0)
			scale = spri_residual_clip(exchange, norm);
	}
	if (r < 0)
		return fail(exchange, r);
	if (part->algo->kind == SPRI_ALGO_DENSE)
		return fetch_dense(exchange, part, scale);
	if (exchange->velocity) {
		r = correct(exchange, part, scale);
		gradient = exchange->velocity_shadow + part->offset;
		scale = 1;
		if (r == 0 && leave_out)
			r = leave_out_dense(exchange, exchange->velocity_shadow);
	} else if (leave_out) {
		r = spri_gpu_copy(d->select, exchange->corrected, gradient,
				  part->count * sizeof *gradient);
		if (r == 0)
			r = leave_out_dense(exchange, exchange->corrected);
		gradient = exchange->corrected;
	}
	if (r < 0)
		return fail(exchange, r);
	return part->algo->kind == SPRI_ALGO_MASKED
		       ? spri_importance_select(exchange, part, gradient, scale, index)
		       : select_sparse(exchange, part, gradient, scale, index);
}

/* ---- looking at it ---- */

static int device_norm(struct spr_exchange *exchange, const float *v, uint64_t n, double *out)
{
	int r = settle(exchange);

	return r < 0 ? fail(exchange, r) : norm_of(exchange, v, n, out);
}

static int device_clear(struct spr_exchange *exchange, float *v, uint64_t n)
{
	int r = settle(exchange);

	if (r == 0)
		r = spri_gpu_zero(exchange->device->select, v, n * sizeof *v);
	if (r == 0)
		r = spri_gpu_sync(exchange->device->select);
	return fail(exchange, r);
}

static const struct exchange_place place_device = {
	spri_device_begin,     spri_device_alloc,    spri_device_free,	   spri_device_alloc_host,
	spri_device_free_host, spri_device_fit,	     spri_device_unfit,	   device_select,
	device_weigh,	       spri_device_take_out, spri_device_put_back, spri_device_adopt,
	spri_device_update,    spri_device_gather,   device_norm,	   device_clear,
	device_copy,
};

/* ---- life ---- */

int spri_device_open(struct spr_exchange *exchange, const struct spr_exchange_options *options)
{
	struct exchange_device *d = spri_zalloc(sizeof *d);
	int r = d ? 0 : -ENOMEM;

	if (r < 0)
		return spri_trace(r);
	exchange->device = d;
	exchange->place = &place_device;
	exchange->dense_copied = true;
	d->theirs = options->stream;
	r = spri_context_gpu(exchange->comm->context, options->device, &d->gpu);
	if (r == 0)
		r = spri_gpu_stream_create(d->gpu, &d->select);
	if (r == 0)
		r = spri_gpu_stream_create(d->gpu, &d->side);
	if (r == 0)
		r = spri_mapped_fit(d->gpu, &d->word, 4096);
	if (r == 0)
		r = spri_mapped_fit(d->gpu, &d->stage,
				    SPRI_STAGE_PIECES * SPRI_STAGE_PIECE *
					    (sizeof(uint64_t) + sizeof(float)));
	if (r == 0)
		r = spri_mapped_fit(d->gpu, &d->flags,
				    (exchange->n / CHUNK + 1) * sizeof(uint32_t));
	return spri_trace(r);
}

bool spri_device_is(const struct spr_exchange *exchange, unsigned number)
{
	return exchange->device && spri_gpu_number(exchange->device->gpu) == number;
}

void spri_device_stop(struct spr_exchange *exchange)
{
	struct exchange_device *d = exchange->device;

	if (d && d->select)
		(void)!spri_gpu_sync(d->select);
	if (d && d->side)
		(void)!spri_gpu_sync(d->side);
}

void spri_device_close(struct spr_exchange *exchange)
{
	struct exchange_device *d = exchange->device;

	if (!d)
		return;
	spri_gpu_stream_destroy(d->select);
	spri_gpu_stream_destroy(d->side);
	spri_mapped_free(d->gpu, &d->flags);
	spri_mapped_free(d->gpu, &d->word);
	spri_mapped_free(d->gpu, &d->stage);
	spri_free(d);
	exchange->device = NULL;
}
