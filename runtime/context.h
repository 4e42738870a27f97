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
#include <stdatomic.h>

#include <transport.h>

struct spr_context {
	struct spri_log log;
	struct spri_text text; /* of the last failure that no longer-lived object keeps */
	const struct spri_transport *transport;
	struct spri_port *port; /* owned */
	uint64_t timeout_ns;
	uint64_t landing_bytes; /* cap per communicator */
	struct spr_sim *sim;    /* borrowed; NULL outside simulations */
	uint32_t sim_rank;

	pthread_mutex_t lock;   /* guards all objects of the context; nothing else is taken under it */
	pthread_cond_t changed; /* an operation ended, or the poller stopped sleeping */
	bool poller;            /* some thread sleeps in the transport's wait; others wait for `changed` */
	pthread_t thread;       /* progress thread, when threaded */
	bool threaded;
	bool stopping;          /* tells the progress thread to return */
	struct spr_comm *comms; /* all communicators, linked by their `next` */
	uint32_t n_comms_made;  /* counts up, part of connection ids */
};

/* Scope of one public call: the lock is held, the log hook set. Pair within one function. */
const struct spri_log *spri_context_enter(struct spr_context *context);
void spri_context_leave(struct spr_context *context, const struct spri_log *before);

/* The context's clock. */
uint64_t spri_context_now(const struct spr_context *context);

/*
 * Takes events and steps operations until nothing more can be done now. Lock held. Returns 0, or negative when the
 * port is broken (every communicator is then failed).
 */
int spri_progress(struct spr_context *context) SPRI_MUST;

/*
 * Makes progress until done(arg) or the deadline. Lock held at entry and exit, not while asleep.
 * Returns 0 when done; SPR_ETIMEOUT; negative when the port is broken.
 */
int spri_progress_until(struct spr_context *context, bool (*done)(void *arg), void *arg, uint64_t deadline_ns)
	SPRI_MUST;

#endif
