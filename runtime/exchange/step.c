/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The training step; see exchange.h (public: the formula, private: the states).
 *
 * Happy path:
 *   1. begin: density of this step → k of each part; the lists are made to fit, and the operations
 *      of all parts are made ready
 *   2. ready: when a part's layers are there, it is accumulated and selected from, without the
 *      lock, into the shadows; its operation is launched
 *   3. when the last operation is done (part_done(), called by the progress loop under the lock)
 *      and all are well: commit, else forget; the request is done
 *
 * Without pipelining every part is selected from before the first operation is launched.
 *
 * Failures. What the other ranks must hear of (a NaN, arguments, no memory for the lists)
 * is launched in failed mode: all ranks end alike. A rank that cannot even do that (no
 * memory for the request) returns the error; the others end at their deadline. Until
 * commit nothing of the exchange's state has changed.
 */
#include <context.h>
#include <errno.h>
#include <internal/bits.h>
#include <internal/clock.h>

#include "exchange.h"

/* ---- the request: an operation that is never stepped ---- */

static void request_finish(struct spri_op *op)
{
	struct spr_exchange *exchange = op->on_done_arg;

	if (exchange)
		exchange->request = NULL;
}

static const struct spri_algo request_row = {
	.name = "exchange",
	.about = "the request of a step",
	.kind = SPRI_ALGO_BYTES,
	.finish = request_finish,
};

static void request_abandon(struct spri_op *op)
{
	spri_step_abandon(op->on_done_arg);
}

void spri_step_reap(struct spr_exchange *exchange)
{
	for (size_t i = 0; i < exchange->n_parts; i++) {
		struct exchange_part *part = &exchange->parts[i];

		if (part->op->algo)
			part->algo->finish(part->op);
		part->op->algo = NULL;
	}
}

/* ---- the end ---- */

static void add_stats(struct spr_exchange *exchange, struct spri_op *request)
{
	struct spr_exchange_stats *stats = &exchange->stats;
	uint64_t step = stats->step, repairs = stats->repairs;

	*stats = (struct spr_exchange_stats){
		.step = step, .repairs = repairs, .density = exchange->density};
	stats->comm_ns = spri_context_now(exchange->comm->context) - exchange->launched_ns;
	for (size_t i = 0; i < exchange->n_parts; i++) {
		const struct exchange_part *part = &exchange->parts[i];
		const struct spri_op *op = part->op;

		stats->k += part->now.k;
		stats->selected += part->algo->kind == SPRI_ALGO_MASKED	  ? op->sum.count
				   : part->algo->kind == SPRI_ALGO_SPARSE ? part->selected.count
									  : part->count;
		stats->select_ns += part->now.select_ns;
		stats->dropped += part->now.dropped;
		stats->merge_ns += op->stats.merge_ns;
		stats->wire_bytes += op->stats.wire_bytes;
		stats->value_bytes += op->stats.value_bytes;
		stats->direct_bytes += op->stats.direct_bytes;
		stats->excess += op->excess;
		if (!request)
			continue;
		request->stats.merge_ns += op->stats.merge_ns;
		request->stats.wire_bytes += op->stats.wire_bytes;
		request->stats.value_bytes += op->stats.value_bytes;
		request->stats.direct_bytes += op->stats.direct_bytes;
		request->stats.rounds += op->stats.rounds;
	}
}

static int commit(struct spr_exchange *exchange)
{
	struct spr_context *context = exchange->comm->context;
	struct spr_exchange_stats *stats = &exchange->stats;
	uint64_t before = spri_context_now(context);
	int r = spri_residual_commit(exchange);

	exchange->has_sum = exchange->algo->kind != SPRI_ALGO_DENSE;
	exchange->has_committed = true;
	stats->step = ++exchange->step;
	for (size_t i = 0; i < exchange->n_parts; i++) {
		const struct exchange_part *part = &exchange->parts[i];

		stats->received +=
			part->algo->kind == SPRI_ALGO_DENSE ? part->count : part->op->sum.count;
		stats->adopted += part->op->adopted.count;
		stats->repairs += part->now.repaired;
	}
	stats->commit_ns = spri_context_now(context) - before;
	if (context->timeline)
		spri_timeline_add(context->timeline, &(struct spri_timeline_event){
							     .kind = SPRI_TIMELINE_COMMIT,
							     .algo = exchange->algo->id,
							     .start_ns = before,
							     .end_ns = before + stats->commit_ns,
							     .number = exchange->step - 1,
							     .entries = stats->received,
						     });
	return spri_trace(r);
}

/* All parts are done: all or nothing. Lock held. */
static void end_step(struct spr_exchange *exchange)
{
	struct spri_op *request = exchange->request;
	const struct spri_op *failed = NULL;
	int r = 0;

	for (size_t i = 0; i < exchange->n_parts && !failed; i++)
		if (exchange->parts[i].op->status < 0)
			failed = exchange->parts[i].op;
	add_stats(exchange, request);
	if (!failed)
		r = commit(exchange);
	exchange->state = EXCHANGE_IDLE;
	if (!request)
		return;
	request->status = failed ? failed->status : r;
	if (failed)
		request->text = failed->text;
	else if (r < 0)
		spri_text_set(&request->text, "committing the step: %s", spr_strerror(r));
	request->end_ns = spri_op_now(request);
	request->open = false;
	request->done = true;
	pthread_cond_broadcast(&exchange->comm->context->changed);
}

/* Called once per operation, lock held. */
static void part_done(struct spri_op *op)
{
	struct spr_exchange *exchange = op->on_done_arg;

	exchange->n_done++;
	/* a lost communicator ends an operation whose entries are still being selected, too */
	if (exchange->n_done == exchange->n_parts && exchange->state != EXCHANGE_SELECTING)
		end_step(exchange);
}

/* ---- launching ---- */

static void fill_op(const struct spr_exchange *exchange, struct exchange_part *part, int status)
{
	struct spri_op *op = part->op;

	op->policy = exchange->policy;
	op->step = exchange->step;
	op->on_done = part_done;
	op->on_done_arg = (void *)(uintptr_t)exchange;
	if (part->algo->kind == SPRI_ALGO_DENSE) {
		op->count = part->count;
		op->out = exchange->dense_sum + part->offset;
		op->in = exchange->dense_copied || !exchange->gradient
				 ? op->out
				 : exchange->gradient + part->offset;
		return;
	}
	op->dtype = exchange->wire;
	op->list_codec = spri_list_codec(exchange->codec);
	if (part->algo->kind == SPRI_ALGO_SPARSE) {
		op->k = part->now.k;
		op->length = part->count;
		op->streamed = spri_part_streams(exchange, part);
		if (op->streamed && status == 0) {
			part->stream.open = true;
			part->stream.near = part->near;
			part->stream.found.count = 0;
			op->stream = &part->stream;
			return;
		}
		op->in_list = (struct spr_sparse){
			.count = status == 0 ? part->selected.count : 0,
			.index = part->selected.index,
			.value = part->selected.value,
		};
		return;
	}
	op->count = part->count;
	op->k = part->now.k; /* not used, and yet to be agreed on */
	op->in = exchange->shadow + part->offset;
	op->gather = exchange->place->gather;
	op->mask = part->selected.index;
	op->n_mask = status == 0 ? part->selected.count : 0;
	op->n_broadcasters = exchange->n_broadcasters;
	op->seed = exchange->seed;
	op->note_bytes = EXCHANGE_NOTE_BYTES;
	op->in_bytes = part->note;
	op->out_bytes = part->notes;
}

/* Everything is selected and launched. Lock held. */
static void note_last(struct spr_exchange *exchange)
{
	if (exchange->n_launched < exchange->n_parts)
		return;
	exchange->state = EXCHANGE_IN_FLIGHT;
	exchange->launched_ns = spri_context_now(exchange->comm->context);
	if (exchange->request)
		exchange->request->open = false;
}

/* Step 3 of a part. Lock held. The step may be over afterwards. */
static void launch(struct spr_exchange *exchange, struct exchange_part *part, int status,
		   uint64_t index)
{
	fill_op(exchange, part, status);
	exchange->n_launched++;
	if (!part->op->stream)
		note_last(exchange);
	spri_op_launch(part->op, status, index); /* may be done already */
}

/* ---- streams ---- */

/* Least elements of a part that streams: below, a part is selected from in one go anyway. */
#define STREAM_LEAST ((uint64_t)1 << 18)

bool spri_part_streams(const struct spr_exchange *exchange, const struct exchange_part *part)
{
	/* 16-bit values could fall on the other side of the cut when they are rounded */
	return exchange->pipeline && part->algo->streams && exchange->wire == SPR_F32 &&
	       part->count >= STREAM_LEAST;
}

/*
 * Appends those of `from` that come behind the last one and whose key is `least` at least; at most
 * `most` in all.
 */
static void append_behind(struct spri_list *to, const struct spri_list *from, uint32_t least,
			  uint64_t most)
{
	uint64_t i = from->count;

	/* new ones stand at the end */
	while (i > 0 && (to->count == 0 || from->index[i - 1] > to->index[to->count - 1]))
		i--;
	for (; i < from->count && to->count < most; i++) {
		if (spri_f32_key(from->value[i]) < least)
			continue;
		to->index[to->count] = from->index[i];
		to->value[to->count++] = from->value[i];
	}
}

/* Selection is over: the rest, the late ones, the cut. Lock held. */
static void close_stream(struct spr_exchange *exchange, struct exchange_part *part, int status,
			 uint64_t index)
{
	struct spri_stream *stream = &part->stream;
	const struct spri_list *selected = &part->selected;
	uint64_t last = stream->found.count ? stream->found.index[stream->found.count - 1] : 0;
	bool any = stream->found.count > 0;

	if (status < 0)
		spri_op_report(part->op, status, exchange->comm->rank, index);
	stream->late.count = 0;
	for (uint64_t i = 0; any && i < selected->count; i++) {
		if (selected->index[i] > last)
			break;
		if (spri_f32_key(selected->value[i]) >= part->now.ahead_key)
			continue; /* went ahead */
		stream->late.index[stream->late.count] = selected->index[i];
		stream->late.value[stream->late.count++] = selected->value[i];
	}
	append_behind(&stream->found, selected, 0, UINT64_MAX);
	stream->cut_key = part->now.cut_key;
	stream->cut_index = part->now.cut_index;
	part->op->in_list = (struct spr_sparse){
		.count = selected->count, .index = selected->index, .value = selected->value};
	stream->open = false;
}

/* A piece of selection is over: `entries` of the part were found so far. */
static void end_piece(const struct spr_exchange *exchange, const struct exchange_part *part,
		      uint64_t entries)
{
	struct spr_context *context = exchange->comm->context;

	if (context->timeline)
		spri_timeline_add(context->timeline,
				  &(struct spri_timeline_event){
					  .kind = SPRI_TIMELINE_SELECT,
					  .algo = part->algo->id,
					  .start_ns = part->now.piece_ns,
					  .end_ns = spri_context_now(context),
					  .number = exchange->step,
					  .entries = entries,
					  .part = (uint32_t)(part - exchange->parts),
				  });
}

void spri_exchange_progress(struct spr_exchange *exchange, struct exchange_part *part,
			    const struct spri_list *candidates)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before;

	if (!exchange->pipeline || exchange->n_launched == 0)
		return;
	if (candidates || !exchange->device) /* who waits for a GPU comes by often */
		end_piece(exchange, part, candidates ? candidates->count : part->selected.count);
	before = spri_context_enter(context);
	if (part->op->streamed && candidates)
		append_behind(&part->stream.found, candidates, part->now.ahead_key,
			      spri_stream_ahead(part->now.k));
	if (!context->threaded && !context->poller)
		(void)!spri_progress(context); /* a broken port ends the operations */
	else if (part->op->streamed && candidates)
		context->transport->wake(context->port); /* whoever sleeps there sends them */
	spri_context_leave(context, before);
	if (context->timeline && (candidates || !exchange->device))
		part->now.piece_ns = spri_context_now(context);
}

/* Step 2 of a part; without the lock. Returns 0, or what to launch in failed mode. */
static int select_part(struct spr_exchange *exchange, struct exchange_part *part, uint64_t *index)
{
	uint64_t before = spri_context_now(exchange->comm->context);
	int r = exchange->status;

	*index = SPRI_NO_INDEX;
	part->selected.count = 0;
	part->now.piece_ns = before;
	if (r == 0 && !exchange->gradient)
		r = SPR_EARGUMENT;
	if (r == 0)
		r = spri_residual_select(exchange, part, index);
	end_piece(exchange, part, part->selected.count);
	part->now.select_ns = spri_context_now(exchange->comm->context) - before;
	return r;
}

/* Closes the stream of a part that was launched before it was selected from. Lock held. */
static void end_stream(struct spr_exchange *exchange, struct exchange_part *part)
{
	struct spr_context *context = exchange->comm->context;

	if (!part->op->done)
		close_stream(exchange, part, part->now.failed, part->now.bad_index);
	note_last(exchange);
	if (exchange->n_done == exchange->n_parts)
		end_step(exchange); /* the communicator was lost meanwhile */
	else if (!context->threaded && !context->poller)
		(void)!spri_progress(context); /* a broken port ends the operations */
	else
		context->transport->wake(context->port);
}

/*
 * Selects from the parts and launches them; part by part, or all of the first before any of the
 * second. Lock held at entry and exit; not while selecting.
 */
static const struct spri_log *run_parts(struct spr_exchange *exchange, const size_t *parts,
					size_t n, const struct spri_log *log)
{
	struct spr_context *context = exchange->comm->context;

	for (size_t i = 0; i < n; i++) {
		struct exchange_part *part = &exchange->parts[parts[i]];

		bool streams = spri_part_streams(exchange, part) && exchange->status == 0 &&
			       exchange->gradient;

		exchange->state = EXCHANGE_SELECTING;
		if (streams)
			launch(exchange, part, 0, SPRI_NO_INDEX);
		spri_context_leave(context, log);
		part->now.failed = select_part(exchange, part, &part->now.bad_index);
		log = spri_context_enter(context);
		exchange->state = EXCHANGE_OPEN;
		if (streams)
			end_stream(exchange, part);
		else if (exchange->pipeline)
			launch(exchange, part, part->now.failed, part->now.bad_index);
	}
	return log;
}

/* Without pipelining: all parts, in the order in which they became ready. Lock held. */
static void launch_all(struct spr_exchange *exchange)
{
	size_t n = exchange->n_parts; /* the step may be over after the last one */

	for (size_t i = 0; i < n; i++) {
		struct exchange_part *part = &exchange->parts[exchange->order[i]];

		launch(exchange, part, part->now.failed, part->now.bad_index);
	}
}

/* A layer is there. Lock held at entry and exit. */
static const struct spri_log *hand_over(struct spr_exchange *exchange, size_t layer,
					const struct spri_log *log)
{
	size_t parts[2], n;

	exchange->handed[layer] = true;
	exchange->n_ready++;
	n = spri_parts_of_layer(exchange, layer, parts);
	for (size_t i = 0; i < n; i++)
		exchange->order[exchange->n_ordered++] = parts[i];
	log = run_parts(exchange, parts, n, log);
	if (!exchange->pipeline && exchange->n_ordered == exchange->n_parts)
		launch_all(exchange);
	return log;
}

void spri_step_abandon(struct spr_exchange *exchange)
{
	if (exchange->state != EXCHANGE_OPEN)
		return;
	exchange->status = SPR_EARGUMENT;
	for (size_t i = exchange->n_layers; i-- > 0;) { /* as start does */
		size_t parts[2], n;

		if (exchange->handed[i])
			continue;
		exchange->handed[i] = true;
		exchange->n_ready++;
		n = spri_parts_of_layer(exchange, i, parts);
		for (size_t j = 0; j < n; j++) {
			exchange->order[exchange->n_ordered++] = parts[j];
			exchange->parts[parts[j]].now.failed = SPR_EARGUMENT;
			exchange->parts[parts[j]].now.bad_index = SPRI_NO_INDEX;
			if (exchange->pipeline)
				launch(exchange, &exchange->parts[parts[j]], SPR_EARGUMENT,
				       SPRI_NO_INDEX);
		}
	}
	if (!exchange->pipeline)
		launch_all(exchange);
}

/* ---- the public calls ---- */

/* Who proposes a mask in this step. */
static void draw(struct spr_exchange *exchange)
{
	exchange->proposes = false;
	if (spr_mask_broadcasters((int)exchange->comm->n_ranks, (int)exchange->n_broadcasters,
				  exchange->seed, exchange->step, exchange->drawn) < 0)
		return; /* checked when the exchange was made */
	for (uint32_t i = 0; i < exchange->n_broadcasters; i++)
		exchange->proposes |= (uint32_t)exchange->drawn[i] == exchange->comm->rank;
}

/*
 * Where the cut is expected; never below the threshold of the scan: what a repair selects below it
 * has not gone ahead.
 */
static uint32_t key_ahead(const struct exchange_part *part)
{
	int64_t key = (int64_t)part->last_cut + part->rise;

	if (key < part->threshold)
		key = part->threshold;
	return key < 1 ? 1 : key > UINT32_MAX ? UINT32_MAX : (uint32_t)key;
}

static void begin_part(struct spr_exchange *exchange, struct exchange_part *part)
{
	part->now = (struct part_step){.threshold = part->threshold};
	if (part->last_cut > 0)
		part->now.ahead_key = key_ahead(part);
	part->now.k = part->algo->kind == SPRI_ALGO_DENSE
			      ? part->count
			      : spri_density_k(exchange->density, part->count);
	spri_op_init(part->op, exchange->comm, part->algo);
}

/* Step 1. Lock held. */
static int begin(struct spr_exchange *exchange, const float *gradient, float *update)
{
	struct spri_op *request;
	int r;

	if (exchange->state != EXCHANGE_IDLE)
		return SPR_EBUSY;
	r = spri_op_create(exchange->comm, &request_row, &request);
	if (r < 0)
		return r;
	spri_step_reap(exchange);
	if (exchange->request)
		exchange->request->on_done_arg = NULL; /* of the last step, not yet destroyed */
	exchange->request = request;
	request->on_done_arg = exchange;
	request->abandon = request_abandon;
	request->open = true;
	request->start_ns = spri_op_now(request);
	exchange->gradient = gradient;
	exchange->update = update;
	exchange->n_ready = exchange->n_launched = exchange->n_done = exchange->n_ordered = 0;
	exchange->has_sum = false;
	exchange->has_committed = false;
	exchange->density = exchange->algo->kind == SPRI_ALGO_DENSE
				    ? 1
				    : spri_density_at(exchange, exchange->step);
	if (exchange->algo->kind == SPRI_ALGO_MASKED)
		draw(exchange);
	for (size_t i = 0; i < exchange->n_layers; i++)
		exchange->handed[i] = false;
	for (size_t i = 0; i < exchange->n_parts; i++)
		begin_part(exchange, &exchange->parts[i]);
	exchange->status = spri_residual_check(exchange);
	if (exchange->status == 0)
		exchange->status = spri_residual_reserve(exchange);
	exchange->state = EXCHANGE_OPEN;
	return 0;
}

/* Begins a step, and hands over all layers when `all` is set. */
static int begin_step(struct spr_exchange *exchange, const float *gradient, float *update, bool all,
		      struct spr_request **out_request)
{
	const struct spri_log *before;
	int r;

	if (!exchange || !out_request)
		return SPR_EARGUMENT;
	before = spri_context_enter(exchange->comm->context);
	r = begin(exchange, gradient, update);
	if (r == 0) {
		*out_request = spri_op_request(exchange->request);
		for (size_t i = all ? exchange->n_layers : 0; i > 0; i--)
			before = hand_over(exchange, i - 1, before);
	}
	spri_context_leave(exchange->comm->context, before);
	return spri_trace(r);
}

int spr_exchange_begin(struct spr_exchange *exchange, const float *gradient, float *update,
		       struct spr_request **out_request)
{
	return begin_step(exchange, gradient, update, false, out_request);
}

int spr_exchange_ready(struct spr_exchange *exchange, size_t layer)
{
	const struct spri_log *before;
	int r = 0;

	if (!exchange)
		return SPR_EARGUMENT;
	before = spri_context_enter(exchange->comm->context);
	if (exchange->state == EXCHANGE_SELECTING)
		r = SPR_EBUSY;
	else if (exchange->state != EXCHANGE_OPEN || layer >= exchange->n_layers ||
		 exchange->handed[layer])
		r = SPR_EARGUMENT;
	else
		before = hand_over(exchange, layer, before);
	spri_context_leave(exchange->comm->context, before);
	return spri_trace(r);
}

int spr_exchange_start(struct spr_exchange *exchange, const float *gradient, float *update,
		       struct spr_request **out_request)
{
	return begin_step(exchange, gradient, update, true, out_request);
}
