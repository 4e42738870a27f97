/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Requests: the public face of operations in flight (coll/coll.h). */
#include <coll/coll.h>
#include <context.h>
#include <internal/clock.h>

static bool op_done(void *arg)
{
	return ((struct spri_op *)arg)->done;
}

int spr_request_test(struct spr_request *request)
{
	struct spri_op *op = spri_request_op(request);
	struct spr_context *context;
	const struct spri_log *before;
	int done;

	if (!request)
		return SPR_EARGUMENT;
	context = op->comm->context;
	before = spri_context_enter(context);
	if (!op->done && !context->threaded && !context->poller)
		(void)!spri_progress(context); /* a broken port ends op */
	done = op->done;
	spri_context_leave(context, before);
	return done;
}

int spr_request_wait(struct spr_request *request)
{
	struct spri_op *op = spri_request_op(request);
	const struct spri_log *before;
	int r;

	if (!request)
		return SPR_EARGUMENT;
	before = spri_context_enter(op->comm->context);
	r = op->open ? SPR_EBUSY : spri_progress_until(op->comm->context, op_done, op, SPRI_NEVER);
	if (op->done)
		r = op->status;
	spri_context_leave(op->comm->context, before);
	return spri_trace(r);
}

const char *spr_request_error(const struct spr_request *request)
{
	const struct spri_op *op = (const struct spri_op *)(const void *)request;
	const struct spri_log *before;
	const char *text;

	if (!request)
		return "";
	before = spri_context_enter(op->comm->context);
	text = op->done ? op->text.s : ""; /* it does not change any more */
	spri_context_leave(op->comm->context, before);
	return text;
}

void spr_request_stats(const struct spr_request *request, struct spr_request_stats *stats)
{
	const struct spri_op *op = (const struct spri_op *)(const void *)request;
	const struct spri_log *before = spri_context_enter(op->comm->context);

	*stats = op->stats;
	stats->wall_ns = op->done ? op->end_ns - op->start_ns : 0;
	spri_context_leave(op->comm->context, before);
}

void spr_request_destroy(struct spr_request *request)
{
	struct spri_op *op = spri_request_op(request);
	struct spr_context *context;
	const struct spri_log *before;

	if (!request)
		return;
	context = op->comm->context;
	before = spri_context_enter(context);
	if (op->open)
		op->abandon(op);
	(void)!spri_progress_until(
		context, op_done, op,
		SPRI_NEVER); /* ends: op has a deadline, a broken port ends it too */
	spri_op_destroy(op);
	spri_context_leave(context, before);
}
