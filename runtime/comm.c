/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Communicators: made of a meeting (bootstrap/) and its links (comm_join.c), driven by events,
 * ended with goodbyes.
 *
 * Events keep the links' counters; a lost partner breaks the communicator and is
 * passed on to all partners (SPRI_IMM_ABORT), so that ranks which do not talk to the lost one end
 * with the same error.
 */
#include <bootstrap/bootstrap.h>
#include <coll/coll.h>
#include <comm.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bytes.h>
#include <internal/clock.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <timeline.h>

/*
 * Why a communicator breaks, as partners tell each other: the place in this table. Ids are not
 * reused.
 */
static const int abort_statuses[] = {
	SPR_ELOST,   SPR_ETIMEOUT, SPR_EPROTOCOL, SPR_EMISMATCH,
	SPR_EACCESS, SPR_EVERSION, -ENOMEM,	  -EIO,
};
#define ABORT_NOBODY 8u /* no rank is named */

/* How long the end of a communicator that is of no use waits for its goodbyes. */
#define BROKEN_PATIENCE_NS SPRI_NS_PER_S

struct spri_link *spri_comm_link(const struct spr_comm *comm, uint32_t rank)
{
	uint32_t low = 0, high = comm->n_links;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (comm->links[middle].rank < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low < comm->n_links && comm->links[low].rank == rank ? &comm->links[low] : NULL;
}

/* ---- breaking ---- */

/* Tells a partner, now or, when its queue is full, from the progress loop. */
static void tell_partner(struct spri_link *link)
{
	link->abort_pending = link->connected && !link->closed &&
			      spri_slots_notify(link, link->comm->abort) == SPRI_AGAIN;
	if (link->abort_pending)
		link->comm->news_pending = true;
}

static void tell_partners(struct spr_comm *comm, int status, int32_t rank)
{
	uint32_t reason = 0, last = spri_countof(abort_statuses) - 1;

	while (reason < last && abort_statuses[reason] != status)
		reason++;
	if (rank < 0)
		reason |= ABORT_NOBODY;
	comm->abort = spri_imm(SPRI_IMM_ABORT, 0, 0,
			       reason << 16 | (rank < 0 ? 0 : (uint32_t)rank & 0xffffu));
	for (uint32_t i = 0; i < comm->n_links; i++)
		tell_partner(&comm->links[i]);
}

void spri_comm_repeat(struct spr_comm *comm)
{
	comm->news_pending = false;
	spri_slots_flush(comm);
	for (uint32_t i = 0; i < comm->n_links; i++)
		if (comm->links[i].abort_pending)
			tell_partner(&comm->links[i]);
}

void spri_comm_fail(struct spr_comm *comm, int status, int32_t rank, const char *format, ...)
{
	va_list args;

	if (comm->failed || comm->closing)
		return;
	comm->failed = status;
	comm->lost_rank = rank;
	va_start(args, format);
	vsnprintf(comm->text.s, sizeof comm->text.s, format, args);
	va_end(args);
	spri_logf(SPR_LOG_ERROR, "rank %u: %s", comm->rank, comm->text.s);
	tell_partners(comm, status, rank);
	while (comm->ops)
		spri_op_complete(comm->ops, status);
	pthread_cond_broadcast(&comm->context->changed);
}

/* A partner tells why the communicator is broken. Returns 0, or SPR_EPROTOCOL: no such rank. */
static int take_abort(struct spri_link *link, uint32_t number)
{
	uint32_t reason = number >> 16, lost = number & 0xffffu;
	int status = abort_statuses[reason & 7u];

	if (reason & ABORT_NOBODY && link->comm->ops)
		spri_comm_fail(link->comm, status, -1,
			       "rank %u gave up: %s; this rank was waiting for rank %u", link->rank,
			       spr_strerror(status), link->comm->ops->waiting_for);
	else if (reason & ABORT_NOBODY)
		spri_comm_fail(link->comm, status, -1, "rank %u gave up: %s", link->rank,
			       spr_strerror(status));
	else if (lost >= link->comm->n_ranks)
		return SPR_EPROTOCOL;
	else
		spri_comm_fail(link->comm, status, (int32_t)lost,
			       "rank %u is lost (as rank %u noticed)", lost, link->rank);
	return 0;
}

static void take_notify(struct spri_link *link, uint32_t immediate)
{
	unsigned lane = immediate >> 28 & 3u;
	uint32_t number = immediate & SPRI_IMM_NUMBER;
	int r = SPR_EPROTOCOL;

	switch (immediate >> 30) {
	case SPRI_IMM_CHUNK:
		r = spri_slots_arrived(link, lane, number);
		break;
	case SPRI_IMM_CREDIT:
		r = spri_slots_credited(link, lane, number);
		break;
	case SPRI_IMM_ABORT:
		r = take_abort(link, number);
		break;
	}
	if (r < 0)
		spri_comm_fail(link->comm, r, -1,
			       "rank %u sent notification 0x%08x, which does not fit", link->rank,
			       immediate);
}

/* The partner's landing memory: rank u32 at 0, address u64 at 8, key at 16. */
static void take_connected(struct spri_link *link, const uint8_t *data)
{
	if (spri_get_u32(data) != link->rank) {
		spri_comm_fail(link->comm, SPR_EPROTOCOL, -1,
			       "rank %u was expected, rank %u connected", link->rank,
			       spri_get_u32(data));
		return;
	}
	link->remote.address = spri_get_u64(data + 8);
	memcpy(link->remote.key, data + 16, sizeof link->remote.key);
	link->connected = true;
}

int spri_comm_lost_status(int status)
{
	bool kept = status == SPR_EACCESS || status == SPR_EPROTOCOL || status == SPR_EVERSION ||
		    status == -ENOMEM;

	return kept ? status : SPR_ELOST;
}

static void take_lost(struct spri_link *link, int status)
{
	const char *why = link->conn->port->ops->describe(link->conn);
	bool goodbye = link->closed;

	link->connected = false;
	link->closed = true;
	/*
	 * It had said goodbye, and what we still wrote (credits) found nobody: no loss. An
	 * operation that needs it yet finds out in transfer.c.
	 */
	if (goodbye && status != SPR_EACCESS && status != SPR_EPROTOCOL)
		return;
	if (spri_comm_lost_status(status) != SPR_ELOST)
		spri_comm_fail(link->comm, status, -1, "%s", why);
	else
		spri_comm_fail(link->comm, SPR_ELOST, (int32_t)link->rank, "rank %u is lost: %s",
			       link->rank, why);
}

void spri_comm_event(struct spri_listener *listener, const struct spri_event *event)
{
	struct spri_link *link = (struct spri_link *)listener;

	switch (event->kind) {
	case SPRI_EVENT_CONNECTED:
		take_connected(link, event->private_data);
		break;
	case SPRI_EVENT_SENT:
		spri_slots_completed(link, event->cookie);
		break;
	case SPRI_EVENT_NOTIFY:
		take_notify(link, event->immediate);
		break;
	case SPRI_EVENT_CLOSED:
		link->closed = true; /* an operation that still needs it finds out in transfer.c */
		break;
	case SPRI_EVENT_LOST:
		take_lost(link, event->status);
		break;
	}
}

/* ---- making and ending ---- */

static void unlink_comm(struct spr_comm *comm)
{
	struct spr_comm **at = &comm->context->comms;

	while (*at && *at != comm)
		at = &(*at)->next;
	if (*at)
		*at = comm->next;
}

static bool all_quiet(void *arg)
{
	struct spr_comm *comm = arg;

	for (uint32_t i = 0; i < comm->n_links; i++)
		if (comm->links[i].conn &&
		    !comm->links[i].conn->port->ops->closed(comm->links[i].conn))
			return false;
	return true;
}

/*
 * Says goodbye, as long as that takes but at most patience_ns, and frees everything. Whoever
 * finishes first must not take with it what its partners still wait for. Lock held.
 */
static void free_comm(struct spr_comm *comm, uint64_t patience_ns)
{
	struct spr_context *context = comm->context;
	const struct spri_transport *t = context->transport;

	if (comm->news_pending)
		spri_comm_repeat(comm);
	comm->closing = true;
	for (uint32_t i = 0; i < comm->n_links; i++)
		if (comm->links[i].conn)
			t->close(comm->links[i].conn);
	(void)!spri_progress_until(context, all_quiet, comm,
				   spri_context_now(context) + patience_ns);
	for (uint32_t i = 0; i < comm->n_links; i++) {
		t->destroy(comm->links[i].conn);
		t->unregister(comm->links[i].landing_region);
		t->unregister(comm->links[i].staging_region);
	}
	unlink_comm(comm);
	spri_op_unreserve(comm);
	spri_free_pages(comm->landing, comm->arena_bytes);
	spri_free_pages(comm->staging, comm->arena_bytes);
	spri_free(comm->links);
	spri_free(comm);
}

static int open_meeting(struct spri_meeting *meeting, struct spr_context *context,
			const struct spr_comm_options *options)
{
	int r;

	for (unsigned i = 0; spri_bootstrap_row(i) && !meeting->ops; i++)
		if (spri_bootstrap_row(i)->fits(context, options))
			meeting->ops = spri_bootstrap_row(i);
	assert(meeting->ops); /* the last row always fits */
	meeting->deadline_ns = spri_context_now(context) + context->timeout_ns;
	pthread_mutex_unlock(&context->lock);
	r = meeting->ops->open(meeting, context, options);
	pthread_mutex_lock(&context->lock);
	spri_log_enter(&context->log);
	if (r == 0 && (meeting->n_ranks < 1 || meeting->n_ranks > SPR_MAX_RANKS ||
		       meeting->rank >= meeting->n_ranks)) {
		spri_text_set(&meeting->text, "rank %u of %u: ranks go from 0 to %d", meeting->rank,
			      meeting->n_ranks, SPR_MAX_RANKS - 1);
		meeting->ops->close(meeting);
		r = SPR_EARGUMENT;
	}
	if (r < 0)
		spri_text_set(&context->text, "%s: %s", meeting->ops->name,
			      meeting->text.s[0] ? meeting->text.s : spr_strerror(r));
	return spri_trace(r);
}

static int create(struct spr_context *context, const struct spr_comm_options *options,
		  struct spr_comm **out)
{
	struct spri_meeting meeting = {0};
	struct spr_comm *comm;
	int r;

	r = open_meeting(&meeting, context, options);
	if (r < 0)
		return r;
	comm = spri_zalloc(sizeof *comm);
	if (!comm) {
		spri_text_set(&context->text, "no memory to join");
		meeting.ops->close(&meeting);
		return -ENOMEM;
	}
	comm->context = context;
	comm->rank = meeting.rank;
	comm->n_ranks = meeting.n_ranks;
	comm->lost_rank = -1;
	comm->next = context->comms;
	context->comms = comm;
	r = spri_comm_join(comm, &meeting);
	meeting.ops->close(&meeting);
	if (r < 0) {
		free_comm(comm, BROKEN_PATIENCE_NS);
		return r;
	}
	if (context->timeline)
		comm->number = spri_timeline_join(context->timeline, comm->rank, comm->n_ranks);
	*out = comm;
	return 0;
}

int spr_comm_create(struct spr_context *context, const struct spr_comm_options *options,
		    struct spr_comm **out)
{
	struct spr_comm_options o = {0};
	const struct spri_log *before;
	int r;

	if (!context || !out)
		return SPR_EARGUMENT;
	before = spri_context_enter(context);
	r = spri_options_take(&o, sizeof o, options, "spr_comm_options", &context->text);
	if (r == 0)
		r = create(context, options ? &o : NULL, out);
	if (r < 0)
		spri_logf(SPR_LOG_ERROR, "communicator: %s", context->text.s);
	spri_context_leave(context, before);
	return spri_trace(r);
}

void spr_comm_destroy(struct spr_comm *comm)
{
	struct spr_context *context;
	const struct spri_log *before;

	if (!comm)
		return;
	context = comm->context;
	before = spri_context_enter(context);
	if (comm->ops)
		spri_logf(SPR_LOG_ERROR,
			  "communicator: not destroyed, it has operations in flight");
	else
		free_comm(comm, comm->failed ? BROKEN_PATIENCE_NS : context->timeout_ns);
	spri_context_leave(context, before);
}

int spr_comm_rank(const struct spr_comm *comm)
{
	return comm ? (int)comm->rank : SPR_EARGUMENT;
}

int spr_comm_size(const struct spr_comm *comm)
{
	return comm ? (int)comm->n_ranks : SPR_EARGUMENT;
}

/* The text is written once, before `failed` can be seen: the lock makes that order. */
const char *spr_comm_error(const struct spr_comm *comm)
{
	const struct spri_log *before;
	const char *text;

	if (!comm)
		return "";
	before = spri_context_enter(comm->context);
	text = comm->failed ? comm->text.s : "";
	spri_context_leave(comm->context, before);
	return text;
}

int spr_comm_lost_rank(const struct spr_comm *comm)
{
	const struct spri_log *before;
	int rank;

	if (!comm)
		return -1;
	before = spri_context_enter(comm->context);
	rank = comm->lost_rank;
	spri_context_leave(comm->context, before);
	return rank;
}
