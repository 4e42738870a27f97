/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The training step; see exchange.h (public: the formula, private: the states).
 *
 * Happy path of spr_exchange_start:
 *   1. density of this step → k; the lists are made to fit
 *   2. accumulate and select, without the lock, into the shadow
 *   3. an operation of the algorithm over the selected entries is launched
 *   4. when it is done (done(), called by the progress loop under the lock) and well:
 *      commit, else forget
 *
 * Failures. What the other ranks must hear of (a NaN, arguments, no memory for the lists)
 * is launched in failed mode: all ranks end alike. A rank that cannot even do that (no
 * memory for the operation) returns the error; the others end at their deadline. Until
 * commit nothing of the exchange's state has changed.
 */
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/clock.h>

#include "exchange.h"

static int check_options(const struct spr_exchange_options *options, const struct spri_algo **algo,
			 struct spri_text *text)
{
	const char *name = options->algo ? options->algo : "gtopk";

	*algo = spri_algo_find(name);
	if (!*algo || (*algo)->kind == SPRI_ALGO_BYTES) {
		spri_text_set(text, "algorithm '%s' is unknown; spr_info lists them", name);
		return SPR_EARGUMENT;
	}
	if (options->count < 1 || options->count > SPR_MAX_COUNT) {
		spri_text_set(text, "count is %llu, must be 1 to 2^48",
			      (unsigned long long)options->count);
		return SPR_EARGUMENT;
	}
	if ((unsigned)options->nonfinite > SPR_NONFINITE_DROP) {
		spri_text_set(text, "nonfinite is %d, must be an enum spr_nonfinite",
			      (int)options->nonfinite);
		return SPR_EARGUMENT;
	}
	return 0;
}

static void free_exchange(struct spr_exchange *exchange)
{
	spri_residual_fini(exchange);
	spri_free(exchange->schedule);
	spri_free(exchange);
}

/* Lock held. */
static int create(struct spr_comm *comm, const struct spr_exchange_options *options,
		  struct spr_exchange **out)
{
	struct spri_text *text = &comm->context->text;
	struct spr_exchange_options o = {0};
	const struct spri_algo *algo = NULL;
	struct spr_exchange *exchange;
	int r = spri_options_take(&o, sizeof o, options, "spr_exchange_options", text);

	if (r == 0)
		r = check_options(&o, &algo, text);
	if (r < 0)
		return r;
	exchange = spri_zalloc(sizeof *exchange);
	if (!exchange)
		return -ENOMEM;
	exchange->comm = comm;
	exchange->algo = algo;
	exchange->n = o.count;
	exchange->policy = o.nonfinite;
	r = spri_density_init(exchange, &o, text);
	if (r == 0)
		r = spri_residual_init(exchange);
	if (r == 0)
		*out = exchange;
	else
		free_exchange(exchange);
	return r;
}

int spr_exchange_create(struct spr_comm *comm, const struct spr_exchange_options *options,
			struct spr_exchange **out)
{
	struct spri_text *text;
	const struct spri_log *before;
	int r;

	if (!comm || !options || !out)
		return SPR_EARGUMENT;
	text = &comm->context->text;
	before = spri_context_enter(comm->context);
	text->s[0] = '\0';
	r = create(comm, options, out);
	if (r < 0) {
		if (!text->s[0])
			spri_text_set(text, "%s", spr_strerror(r));
		spri_text_prefix(text, "exchange");
		spri_logf(SPR_LOG_ERROR, "%s", text->s);
	}
	spri_context_leave(comm->context, before);
	return spri_trace(r);
}

static bool is_idle(void *arg)
{
	return ((struct spr_exchange *)arg)->state == EXCHANGE_IDLE;
}

/* A step in flight ends: its operation has a deadline, a broken port ends it too. */
static void await_idle(struct spr_exchange *exchange)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before = spri_context_enter(context);

	(void)!spri_progress_until(context, is_idle, exchange, SPRI_NEVER);
	spri_context_leave(context, before);
}

void spr_exchange_destroy(struct spr_exchange *exchange)
{
	if (!exchange)
		return;
	await_idle(exchange);
	free_exchange(exchange);
}

/* ---- the step ---- */

/* The operation is done: all or nothing. Called once, lock held. */
static void done(struct spri_op *op)
{
	struct spr_exchange *exchange = op->on_done_arg;
	struct spr_exchange_stats *stats = &exchange->stats;
	const struct exchange_step *now = &exchange->now;

	stats->density = now->density;
	stats->k = now->k;
	stats->selected = now->selected;
	stats->received = 0;
	stats->adopted = 0;
	stats->dropped = now->dropped;
	stats->select_ns = now->select_ns;
	stats->comm_ns = op->end_ns - op->start_ns;
	stats->merge_ns = op->stats.merge_ns;
	stats->commit_ns = 0;
	stats->wire_bytes = op->stats.wire_bytes;
	stats->value_bytes = op->stats.value_bytes;
	if (op->status == 0) {
		uint64_t before = spri_op_now(op);

		spri_residual_commit(exchange, op);
		exchange->threshold = now->threshold;
		exchange->has_sum = exchange->algo->kind == SPRI_ALGO_SPARSE;
		stats->step = ++exchange->step;
		stats->received = exchange->has_sum ? op->sum.count : exchange->n;
		stats->adopted = op->adopted.count;
		stats->repairs += now->repaired;
		stats->commit_ns = spri_op_now(op) - before;
	}
	exchange->state = EXCHANGE_IDLE;
}

/* Steps 1 and 2; without the lock. Returns 0, or what to launch in failed mode. */
static int prepare(struct spr_exchange *exchange, const float *gradient, float *update,
		   uint64_t *index)
{
	struct exchange_step *now = &exchange->now;
	uint64_t before = spri_context_now(exchange->comm->context);
	int r;

	*now = (struct exchange_step){.update = update, .threshold = exchange->threshold};
	*index = SPRI_NO_INDEX;
	exchange->has_sum = false;
	exchange->selected.count = 0;
	if (exchange->algo->kind == SPRI_ALGO_DENSE) {
		now->density = 1;
		now->k = now->selected = exchange->n;
		return gradient && update ? 0 : SPR_EARGUMENT;
	}
	now->density = spri_density_at(exchange, exchange->step);
	now->k = spri_density_k(now->density, exchange->n);
	if (!gradient)
		return SPR_EARGUMENT;
	r = spri_residual_reserve(exchange, now->k);
	if (r == 0)
		r = spri_residual_select(exchange, gradient, now->k, index);
	now->select_ns = spri_context_now(exchange->comm->context) - before;
	return r;
}

/* Step 3. Lock held. */
static int launch(struct spr_exchange *exchange, const float *gradient, int status, uint64_t index,
		  struct spr_request **out_request)
{
	struct spri_op *op;
	int r = spri_op_create(exchange->comm, exchange->algo, &op);

	if (r < 0) {
		exchange->state = EXCHANGE_IDLE;
		return r;
	}
	op->policy = exchange->policy;
	if (exchange->algo->kind == SPRI_ALGO_DENSE) {
		op->in = gradient;
		op->out = exchange->dense_sum;
		op->count = exchange->n;
	} else {
		op->k = exchange->now.k;
		op->length = exchange->n;
		op->in_list = (struct spr_sparse){
			.count = status == 0 ? exchange->selected.count : 0,
			.index = exchange->selected.index,
			.value = exchange->selected.value,
		};
	}
	op->on_done = done;
	op->on_done_arg = exchange;
	exchange->state = EXCHANGE_IN_FLIGHT;
	spri_op_launch(op, status, index); /* may be done already */
	*out_request = spri_op_request(op);
	return 0;
}

int spr_exchange_start(struct spr_exchange *exchange, const float *gradient, float *update,
		       struct spr_request **out_request)
{
	const struct spri_log *before;
	struct spr_context *context;
	uint64_t index;
	int r, status;

	if (!exchange || !out_request)
		return SPR_EARGUMENT;
	context = exchange->comm->context;
	before = spri_context_enter(context);
	r = exchange->state == EXCHANGE_IDLE ? 0 : SPR_EBUSY;
	if (r == 0) {
		exchange->state = EXCHANGE_SELECTING;
		spri_context_leave(context, before);
		status = prepare(exchange, gradient, update, &index);
		before = spri_context_enter(context);
		r = launch(exchange, gradient, status, index, out_request);
	}
	spri_context_leave(context, before);
	return spri_trace(r);
}

/* ---- looking at it ---- */

int spr_exchange_result(const struct spr_exchange *exchange, struct spr_sparse *sum)
{
	const struct spri_log *before;
	int r = 0;

	if (!exchange || !sum)
		return SPR_EARGUMENT;
	if (exchange->algo->kind == SPRI_ALGO_DENSE)
		return SPR_EUNSUPPORTED;
	before = spri_context_enter(exchange->comm->context);
	if (exchange->state == EXCHANGE_SELECTING || exchange->state == EXCHANGE_IN_FLIGHT)
		r = SPR_EBUSY;
	else if (!exchange->has_sum)
		r = SPR_EARGUMENT;
	else
		*sum = (struct spr_sparse){.count = exchange->sum.count,
					   .index = exchange->sum.index,
					   .value = exchange->sum.value};
	spri_context_leave(exchange->comm->context, before);
	return spri_trace(r);
}

const float *spr_exchange_residual(const struct spr_exchange *exchange)
{
	return exchange ? exchange->residual : NULL;
}

int spri_exchange_claim(struct spr_exchange *exchange)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before = spri_context_enter(context);
	int r = exchange->state == EXCHANGE_IDLE ? 0 : SPR_EBUSY;

	if (r == 0)
		exchange->state = EXCHANGE_READING;
	spri_context_leave(context, before);
	return spri_trace(r);
}

void spri_exchange_release(struct spr_exchange *exchange)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before = spri_context_enter(context);

	exchange->state = EXCHANGE_IDLE;
	spri_context_leave(context, before);
}
