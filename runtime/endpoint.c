/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Public endpoints: the transport's connections, with an event queue of
 * their own, because one port serves communicators and endpoints alike.
 *
 * Happy path: the progress loop hands each event of the connection to take(), which queues it;
 * poll() makes progress when the queue is empty and copies out. Failures: LOST is an event as any
 * other; a queue that cannot grow, or a peer that notifies more than QUEUE_MOST times while
 * nobody polls, loses the endpoint.
 */
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <registration.h>
#include <sparring/endpoint.h>
#include <string.h>

#define GPUS_MOST 16u /* GPUs whose memory one endpoint grants */
#define QUEUE_LEAST 64u
#define QUEUE_MOST 65536u /* events that may wait to be polled */

struct spr_endpoint {
	struct spri_listener listener; /* first: the connection's user */
	struct spr_context *context;
	struct spri_conn *conn;	  /* owned */
	struct spr_event *events; /* a ring of `capacity`, a power of two */
	uint32_t capacity, head, n_events;
	/* whose memory the peer may write to, each open */
	struct spri_gpu *gpus[GPUS_MOST];
	uint32_t n_gpus;
	int lost;	       /* 0, or the status of LOST */
	struct spri_text text; /* why */
};

/* ---- events ---- */

static void lose(struct spr_endpoint *endpoint, int status, const char *why)
{
	endpoint->lost = status;
	spri_text_set(&endpoint->text, "%s", why);
}

/* Room for one more. */
static int grow(struct spr_endpoint *endpoint)
{
	uint32_t capacity = endpoint->capacity ? 2 * endpoint->capacity : QUEUE_LEAST;
	struct spr_event *events;

	if (endpoint->n_events < endpoint->capacity)
		return 0;
	if (capacity > QUEUE_MOST)
		return -ENOBUFS;
	events = spri_calloc(capacity, sizeof *events);
	if (!events)
		return -ENOMEM;
	for (uint32_t i = 0; i < endpoint->n_events; i++)
		events[i] = endpoint->events[(endpoint->head + i) & (endpoint->capacity - 1)];
	spri_free(endpoint->events);
	endpoint->events = events;
	endpoint->capacity = capacity;
	endpoint->head = 0;
	return 0;
}

static void push(struct spr_endpoint *endpoint, const struct spr_event *event)
{
	endpoint->events[(endpoint->head + endpoint->n_events++) & (endpoint->capacity - 1)] =
		*event;
}

/* The progress loop hands over an event of the connection. Lock held. */
static void take(struct spri_listener *listener, const struct spri_event *from)
{
	struct spr_endpoint *endpoint = (struct spr_endpoint *)listener;
	const struct spri_transport *transport = endpoint->context->transport;
	struct spr_event event = {
		.kind = (enum spr_event_kind)from->kind,
		.status = from->status,
		.immediate = from->immediate,
		.cookie = from->cookie,
	};

	if (endpoint->lost)
		return;
	if (from->kind == SPRI_EVENT_LOST)
		lose(endpoint, from->status, transport->describe(endpoint->conn));
	if (grow(endpoint) < 0) {
		/* the newest event gives way to the news, so that it is not lost unnoticed */
		lose(endpoint, -ENOBUFS, "more events came than this side polls or has memory for");
		event = (struct spr_event){.kind = SPR_EVENT_LOST, .status = -ENOBUFS};
		endpoint->n_events--;
		transport->close(endpoint->conn);
	}
	push(endpoint, &event);
}

/* ---- endpoints ---- */

_Static_assert((int)SPR_EVENT_CONNECTED == SPRI_EVENT_CONNECTED &&
		       (int)SPR_EVENT_SENT == SPRI_EVENT_SENT &&
		       (int)SPR_EVENT_NOTIFY == SPRI_EVENT_NOTIFY &&
		       (int)SPR_EVENT_CLOSED == SPRI_EVENT_CLOSED &&
		       (int)SPR_EVENT_LOST == SPRI_EVENT_LOST,
	       "the public events are the transport's");
_Static_assert(sizeof(struct spr_remote) == sizeof(struct spri_remote),
	       "the public key is the transport's");
_Static_assert(SPR_ADDRESS_BYTES == SPRI_ADDRESS_BYTES && SPR_GATHER_MOST == SPRI_MAX_GATHER,
	       "the public limits are the transport's");

int spr_endpoint_address(struct spr_context *context, struct spr_endpoint_address *out)
{
	const struct spri_log *before;

	if (!context || !out)
		return SPR_EARGUMENT;
	before = spri_context_enter(context);
	memset(out, 0, sizeof *out);
	out->bytes = (uint32_t)context->transport->address(context->port, out->blob);
	spri_context_leave(context, before);
	return 0;
}

int spr_endpoint_create(struct spr_context *context, struct spr_endpoint **out)
{
	const struct spri_log *before;
	struct spr_endpoint *endpoint;
	int r;

	if (!context || !out)
		return SPR_EARGUMENT;
	endpoint = spri_zalloc(sizeof *endpoint);
	if (!endpoint)
		return -ENOMEM;
	endpoint->listener.take = take;
	endpoint->context = context;
	r = grow(endpoint);
	if (r < 0)
		goto free_endpoint;
	before = spri_context_enter(context);
	r = context->transport->create(context->port, &endpoint->listener, &endpoint->conn);
	context->n_users += r == 0;
	spri_context_leave(context, before);
	if (r < 0)
		goto free_endpoint;
	*out = endpoint;
	return 0;
free_endpoint:
	spri_free(endpoint->events);
	spri_free(endpoint);
	return spri_trace(r);
}

void spr_endpoint_destroy(struct spr_endpoint *endpoint)
{
	const struct spri_log *before;

	if (!endpoint)
		return;
	before = spri_context_enter(endpoint->context);
	endpoint->context->transport->destroy(endpoint->conn);
	endpoint->context->n_users--;
	spri_context_leave(endpoint->context, before);
	while (endpoint->n_gpus > 0)
		spri_gpu_close(endpoint->gpus[--endpoint->n_gpus]);
	spri_free(endpoint->events);
	spri_free(endpoint);
}

/* From now on the GPU whose memory this is is flushed before notifications are handed out. */
static int remember_gpu(struct spr_endpoint *endpoint, const struct spri_registration *registration)
{
	struct spri_gpu *gpu = registration->gpu;
	int r;

	for (uint32_t i = 0; i < endpoint->n_gpus; i++)
		if (endpoint->gpus[i] == gpu)
			return 0;
	if (!gpu)
		return 0;
	if (endpoint->n_gpus == GPUS_MOST)
		return SPR_EUNSUPPORTED;
	r = spri_gpu_open(spri_gpu_number(gpu), &endpoint->gpus[endpoint->n_gpus],
			  &endpoint->context->text);
	endpoint->n_gpus += r == 0;
	return r;
}

int spr_endpoint_grant(struct spr_endpoint *endpoint, struct spr_memory *memory,
		       struct spr_remote *out)
{
	const struct spri_log *before;
	struct spri_remote remote;
	int r;

	if (!endpoint || !memory || memory->context != endpoint->context || !out)
		return SPR_EARGUMENT;
	before = spri_context_enter(endpoint->context);
	r = memory->staging ? 0 : remember_gpu(endpoint, memory->registration);
	if (r == 0)
		r = endpoint->context->transport->grant(endpoint->conn, memory->region, &remote);
	spri_context_leave(endpoint->context, before);
	if (r == 0)
		memcpy(out, &remote, sizeof *out);
	return spri_trace(r);
}

int spr_endpoint_connect(struct spr_endpoint *endpoint, const struct spr_endpoint_address *address,
			 uint64_t id, int active, const char *label)
{
	const struct spri_log *before;
	struct spri_connect args = {
		.id = id, .active = active != 0, .label = label ? label : "peer"};
	int r;

	if (!endpoint || !address || address->bytes > SPR_ADDRESS_BYTES)
		return SPR_EARGUMENT;
	args.address = address->blob;
	args.address_bytes = address->bytes;
	before = spri_context_enter(endpoint->context);
	r = endpoint->context->transport->connect(endpoint->conn, &args);
	spri_context_leave(endpoint->context, before);
	return spri_trace(r);
}

static int fill(struct spri_write *to, const struct spr_write *from)
{
	if (from->size != sizeof *from || from->n_gather > SPR_GATHER_MOST)
		return SPR_EARGUMENT;
	for (unsigned i = 0; i < from->n_gather; i++) {
		const struct spr_gather *piece = &from->gather[i];

		if (piece->bytes && (!piece->memory || !piece->base))
			return SPR_EARGUMENT;
		to->gather[i] = (struct spri_gather){.base = piece->base,
						     .bytes = piece->bytes,
						     .region = piece->memory ? piece->memory->region
									     : NULL};
	}
	to->n_gather = from->n_gather;
	to->address = from->remote.address + from->offset;
	memcpy(to->key, from->remote.key, sizeof to->key);
	to->notify = from->notify != 0;
	to->immediate = from->immediate;
	to->cookie = from->cookie;
	return 0;
}

/* Pieces of staged memory come to where the transport finds them. Lock held. */
static int take_staged(struct spri_write *to, const struct spr_write *from)
{
	for (unsigned i = 0; i < from->n_gather; i++) {
		const struct spr_gather *piece = &from->gather[i];
		int r;

		if (!piece->memory || !piece->memory->staging)
			continue;
		r = spri_staging_take(piece->memory->staging, piece->base, piece->bytes,
				      &to->gather[i].base);
		if (r < 0)
			return spri_trace(r);
	}
	return 0;
}

/* A post may meet the loss before its event was taken. Lock held. */
static void explain(struct spr_endpoint *endpoint)
{
	if (!endpoint->lost)
		spri_text_set(&endpoint->text, "%s",
			      endpoint->context->transport->describe(endpoint->conn));
}

int spr_endpoint_post(struct spr_endpoint *endpoint, const struct spr_write *write)
{
	const struct spri_log *before;
	struct spri_write w; /* as far as fill() fills it: it is large */
	int r;

	if (!endpoint || !write)
		return SPR_EARGUMENT;
	r = fill(&w, write);
	if (r < 0)
		return spri_trace(r);
	before = spri_context_enter(endpoint->context);
	r = endpoint->lost ? endpoint->lost : take_staged(&w, write);
	if (r == 0)
		r = endpoint->context->transport->post(endpoint->conn, &w);
	if (spri_unlikely(r < 0))
		explain(endpoint);
	spri_context_leave(endpoint->context, before);
	return r == SPRI_AGAIN ? SPR_AGAIN : spri_trace(r);
}

/* What arrived in GPU memory is there for kernels launched after. */
static int flush(struct spr_endpoint *endpoint, const struct spr_event *events, int n)
{
	int r = 0;

	for (int i = 0; endpoint->n_gpus > 0 && i < n; i++) {
		if (events[i].kind != SPR_EVENT_NOTIFY)
			continue;
		for (uint32_t j = 0; j < endpoint->n_gpus && r == 0; j++)
			r = spri_memory_flush(endpoint->gpus[j]);
		break; /* one flush is for all that came before it */
	}
	return r;
}

int spr_endpoint_poll(struct spr_endpoint *endpoint, struct spr_event *events, int most)
{
	const struct spri_log *before;
	int n = 0, r = 0;

	if (!endpoint || !events || most < 0)
		return SPR_EARGUMENT;
	before = spri_context_enter(endpoint->context);
	/* not until nothing more comes: what is here is wanted now */
	while (endpoint->n_events == 0 && !endpoint->context->threaded &&
	       !endpoint->context->poller) {
		r = spri_progress_once(endpoint->context);
		if (r <= 0)
			break;
	}
	for (; r >= 0 && n < most && endpoint->n_events > 0; n++) {
		events[n] = endpoint->events[endpoint->head];
		endpoint->head = (endpoint->head + 1) & (endpoint->capacity - 1);
		endpoint->n_events--;
	}
	if (r >= 0)
		r = flush(endpoint, events, n);
	spri_context_leave(endpoint->context, before);
	return r < 0 ? spri_trace(r) : n;
}

static bool has_events(void *arg)
{
	struct spr_endpoint *endpoint = arg;

	return endpoint->n_events > 0;
}

int spr_endpoint_wait(struct spr_endpoint *endpoint, uint64_t deadline_ns)
{
	const struct spri_log *before;
	int r;

	if (!endpoint)
		return SPR_EARGUMENT;
	before = spri_context_enter(endpoint->context);
	r = spri_progress_until(endpoint->context, has_events, endpoint, deadline_ns);
	spri_context_leave(endpoint->context, before);
	return r == SPR_ETIMEOUT ? r : spri_trace(r);
}

void spr_endpoint_close(struct spr_endpoint *endpoint)
{
	const struct spri_log *before;

	if (!endpoint)
		return;
	before = spri_context_enter(endpoint->context);
	endpoint->context->transport->close(endpoint->conn);
	spri_context_leave(endpoint->context, before);
}

int spr_endpoint_closed(const struct spr_endpoint *endpoint)
{
	const struct spri_log *before;
	bool closed;

	if (!endpoint)
		return 1;
	before = spri_context_enter(endpoint->context);
	closed = endpoint->lost || endpoint->context->transport->closed(endpoint->conn);
	spri_context_leave(endpoint->context, before);
	return closed;
}

const char *spr_endpoint_error(const struct spr_endpoint *endpoint)
{
	return endpoint ? endpoint->text.s : "";
}
