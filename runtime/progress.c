/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The one progress loop.
 *
 *   1. take events from the port and hand each to its communicator (arrivals, credits, losses)
 *   2. step every operation that may run: the oldest of each lane
 *   3. repeat while there were events
 *
 * An operation past its deadline breaks its communicator: SPR_ETIMEOUT, with the rank it was
 * waiting for. A port that breaks breaks every communicator. One thread at a time sleeps in the
 * transport (the poller); others wait for its word.
 */
#include <coll/coll.h>
#include <coll/fetch.h>
#include <comm.h>
#include <context.h>
#include <errno.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <time.h>

#define EVENTS_PER_POLL 64
#define FETCH_NS 20000 /* between two looks at what a GPU copies */

/*
 * Steps one operation. The communicator may be broken afterwards, and the operation gone from
 * the list.
 */
static void step(struct spri_op *op)
{
	int r = op->algo->step(op);

	if (r == 0)
		spri_op_complete(op, op->outcome.status);
	else if (r < 0)
		spri_comm_fail(op->comm, r, r == SPR_ELOST ? (int32_t)op->waiting_for : -1,
			       "%s: %s", op->algo->name,
			       op->text.s[0] ? op->text.s : spr_strerror(r));
	else if (spri_op_now(op) >= op->deadline_ns)
		spri_comm_fail(op->comm, SPR_ETIMEOUT, -1,
			       "%s: still waiting for rank %u after %.3f s", op->algo->name,
			       op->waiting_for, (double)(spri_op_now(op) - op->start_ns) * 1e-9);
}

/* Steps what may run: of each lane the oldest. */
static void step_all(struct spr_comm *comm)
{
	unsigned busy = 0; /* lanes with an operation that is not done */
	struct spri_op *next;

	if (comm->news_pending)
		spri_comm_repeat(comm);
	for (struct spri_op *op = comm->ops; op && !comm->failed; op = next) {
		next = op->next;
		if (busy & 1u << op->lane)
			continue;
		step(op);
		if (!comm->failed && !op->done)
			busy |= 1u << op->lane;
	}
}

static void fail_all(struct spr_context *context, int status)
{
	for (struct spr_comm *comm = context->comms; comm; comm = comm->next)
		spri_comm_fail(comm, status, -1, "transport %s: %s", context->transport->name,
			       spr_strerror(status));
}

int spri_progress_once(struct spr_context *context)
{
	struct spri_event events[EVENTS_PER_POLL];
	int n = context->transport->poll(context->port, events, EVENTS_PER_POLL);

	if (n < 0) {
		fail_all(context, n);
		return spri_trace(n);
	}
	for (int i = 0; i < n; i++) {
		struct spri_listener *listener = events[i].conn->user;

		listener->take(listener, &events[i]);
	}
	for (struct spr_comm *comm = context->comms; comm; comm = comm->next)
		step_all(comm);
	return n;
}

int spri_progress(struct spr_context *context)
{
	int n;

	do
		n = spri_progress_once(context);
	while (n > 0);
	return n;
}

uint64_t spri_next_deadline(const struct spr_context *context)
{
	uint64_t least = SPRI_NEVER;

	for (struct spr_comm *comm = context->comms; comm; comm = comm->next) {
		for (struct spri_op *op = comm->ops; op; op = op->next) {
			least = spri_min_u64(least, op->deadline_ns);
			if (spri_fetch_pending(op)) /* a GPU's copy wakes nobody */
				least = spri_min_u64(least, spri_context_now(context) + FETCH_NS);
		}
	}
	return least;
}

/*
 * Waits for the poller's word, at most until the deadline (real time: simulations have one
 * thread).
 */
static void await_poller(struct spr_context *context, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / SPRI_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % SPRI_NS_PER_S),
	};

	pthread_cond_timedwait(&context->changed, &context->lock, &until);
}

/* Becomes the poller and sleeps in the transport. Returns 0 or negative: the port is broken. */
static int sleep_as_poller(struct spr_context *context, uint64_t deadline_ns)
{
	const struct spri_log *log;
	int r;

	context->poller = true;
	log = spri_log_enter(NULL);
	pthread_mutex_unlock(&context->lock);
	r = context->transport->wait(context->port, deadline_ns);
	pthread_mutex_lock(&context->lock);
	spri_log_enter(log);
	context->poller = false;
	pthread_cond_broadcast(&context->changed);
	if (r < 0)
		fail_all(context, r);
	return spri_trace(r);
}

int spri_progress_until(struct spr_context *context, bool (*done)(void *arg), void *arg,
			uint64_t deadline_ns)
{
	bool told = false;

	while (!done(arg)) {
		uint64_t until = spri_min_u64(deadline_ns, spri_next_deadline(context));
		int r = 0;

		if (spri_context_now(context) >= deadline_ns)
			return SPR_ETIMEOUT;
		if (context->threaded || context->poller) {
			/* What was just begun (a goodbye, say) is the poller's to carry on. */
			if (!told)
				context->transport->wake(context->port);
			told = true;
			await_poller(context, spri_min_u64(until, spri_context_now(context) +
									  SPRI_NS_PER_S));
			continue;
		}
		r = spri_progress(context);
		if (r < 0)
			return spri_trace(r);
		if (done(arg))
			break;
		until = spri_min_u64(deadline_ns, spri_next_deadline(context));
		r = sleep_as_poller(context, until);
		if (r < 0)
			return done(arg) ? 0 : spri_trace(r);
	}
	return 0;
}
