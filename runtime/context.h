/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The library object behind include/sparring/context.h, and the one progress loop. */
#ifndef SPRI_CONTEXT_H
#define SPRI_CONTEXT_H

#include <internal/compiler.h>
#include <internal/error.h>
#include <internal/log.h>
#include <pthread.h>
#include <sparring/context.h>

#include <kernel.h>
#include <ladder.h>
#include <seat.h>
#include <transport.h>

/* Who hears of the events of a connection: its `user` points to one of these. */
struct spri_listener {
	/* Takes one event. The context's lock is held. */
	void (*take)(struct spri_listener *listener, const struct spri_event *event);
};

#define SPRI_GPUS_MOST 64

struct spr_context {
	struct spri_log log;
	struct spri_text text;		/* of the last failure that no longer-lived object keeps */
	struct spri_timeline *timeline; /* of SPR_TRACE, owned; NULL: no trace */
	const struct spri_transport *transport;
	struct spri_port *port; /* owned */
	bool automatic;	  /* the transport was chosen, not asked for: it may fall back to tcp */
	uint32_t n_users; /* endpoints and registered memory: they tie the context to its port */
	struct spri_registration *registrations; /* registration.h, owned */
	enum spri_gpudirect gpudirect;
	bool told_staged; /* the log has the line about staging */
	const char *root; /* tests: where sys/ and proc/ are, instead of "/" */
	uint64_t timeout_ns;
	uint64_t landing_bytes;		       /* cap per communicator */
	struct spri_gpu *gpus[SPRI_GPUS_MOST]; /* by number, owned; NULL: not asked for */
	struct spr_sim *sim;		       /* borrowed; NULL outside simulations */
	uint32_t sim_rank;
	struct spri_seat seat; /* where this rank belongs; nowhere in simulations */

	pthread_mutex_t
		lock; /* guards all objects of the context; nothing else is taken under it */
	pthread_cond_t changed; /* an operation ended, or the poller stopped sleeping */
	bool poller; /* some thread sleeps in the transport's wait; others wait for `changed` */
	pthread_t thread;	/* progress thread, when threaded */
	bool threaded;		/* it runs and makes the progress */
	bool has_thread;	/* it was started and is to be joined */
	bool stopping;		/* tells the progress thread to return */
	struct spr_comm *comms; /* all communicators, linked by their `next` */
};

/* Scope of one public call: the lock is held, the log hook set. Pair within one function. */
static inline const struct spri_log *spri_context_enter(struct spr_context *context)
{
	pthread_mutex_lock(&context->lock);
	return spri_log_enter(&context->log);
}

static inline void spri_context_leave(struct spr_context *context, const struct spri_log *before)
{
	spri_log_enter(before);
	pthread_mutex_unlock(&context->lock);
}

/*
 * Copies an options struct of the caller's, which begins with its size, over a zeroed one of
 * ours: what the caller's version lacks stays zero. Returns 0; SPR_EARGUMENT for a size of 0 or
 * one larger than ours (text names both). options NULL: nothing to copy.
 */
int spri_options_take(void *ours, size_t our_bytes, const void *options, const char *what,
		      struct spri_text *text) SPRI_MUST;

/*
 * Chooses the transport (`name`, NULL: SPR_TRANSPORT and SPR_RDMA decide) and opens its port.
 * Returns 0; SPR_EUNSUPPORTED, SPR_EENVIRONMENT, or what listen() returned; the text says why.
 */
int spri_context_open_port(struct spr_context *context, const char *name) SPRI_MUST;
/* The instruction set that SPR_ISA allows. Returns 0; SPR_EENVIRONMENT with a text. */
int spri_context_isa(enum spri_isa *out, struct spri_text *text) SPRI_MUST;
/* May it go over to tcp because other ranks have no RDMA? Only while nothing else uses its port. */
bool spri_context_can_fall_back(const struct spr_context *context);
/*
 * Goes over to tcp, and says why. Returns 0, or what listen() returned: nothing has changed then.
 */
int spri_context_fall_back(struct spr_context *context, const char *why) SPRI_MUST;

/*
 * A GPU (`device` as in the public structs), borrowed until the context is closed (buffer.c).
 * Returns 0; SPR_EARGUMENT, SPR_EUNSUPPORTED, -ENOMEM with a text. Lock held.
 */
int spri_context_gpu(struct spr_context *context, int device, struct spri_gpu **out) SPRI_MUST;
void spri_context_close_gpus(struct spr_context *context);

/* The context's clock. */
uint64_t spri_context_now(const struct spr_context *context);

/*
 * Takes events and steps operations until nothing more can be done now. Lock held. Returns 0, or
 * negative when the port is broken (every communicator is then failed).
 */
int spri_progress(struct spr_context *context) SPRI_MUST;
/* The same, but asks the transport once only. Returns the number of events. */
int spri_progress_once(struct spr_context *context) SPRI_MUST;

/* The earliest deadline of an operation in flight, SPRI_NEVER when there is none. Lock held. */
uint64_t spri_next_deadline(const struct spr_context *context);

/*
 * Makes progress until done(arg) or the deadline. Lock held at entry and exit, not while asleep.
 * Returns 0 when done; SPR_ETIMEOUT; negative when the port is broken.
 */
int spri_progress_until(struct spr_context *context, bool (*done)(void *arg), void *arg,
			uint64_t deadline_ns) SPRI_MUST;

#endif
