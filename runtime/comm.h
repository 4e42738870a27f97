/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The communicator behind include/sparring/comm.h. Made in comm.c, driven by progress.c. */
#ifndef SPRI_COMM_H
#define SPRI_COMM_H

#include <coll/slots.h>
#include <context.h>
#include <sparring/comm.h>

struct spri_op;
struct spri_meeting;

struct spr_comm {
	struct spr_context *context;
	struct spr_comm *next; /* in context->comms */
	uint32_t rank, n_ranks;
	uint16_t number;      /* of the context's communicators, in the trace; 0 without one */
	uint32_t window;      /* buffers per lane and direction; the same on all ranks */
	uint32_t chunk_bytes; /* of one buffer, header included; the same on all ranks */
	uint32_t n_links;
	struct spri_link *links;    /* n_links, ascending by rank */
	size_t arena_bytes;	    /* of landing, and again of staging */
	uint8_t *landing, *staging; /* whole pages, cut up for the links */
	uint32_t next_seq;	    /* of the next operation */
	struct spri_op *ops;	    /* in flight, oldest first, linked by `next` */
	struct spri_op *spare; /* kept so that a start without memory can still tell the others */
	int failed;	       /* 0, or what broke the communicator */
	int32_t lost_rank;     /* whose loss, or −1 */
	struct spri_text text;
	bool closing; /* destroy() is under way: goodbyes are expected */
	/* sent for the oldest operation of each lane, framing included */
	uint64_t lane_bytes[SPRI_LANES];
	uint32_t abort;	   /* what partners are told once it is broken */
	bool news_pending; /* a credit or that could not be posted; progress tries again */
};

/* The link to a partner; NULL when the rank is none. O(log n_links). */
struct spri_link *spri_comm_link(const struct spr_comm *comm, uint32_t rank);

/*
 * Makes the links of a new communicator and connects them; collective over the meeting. Lock
 * held, released while it meets. Returns as spr_comm_create; what was made is freed with the
 * communicator.
 */
int spri_comm_join(struct spr_comm *comm, struct spri_meeting *meeting) SPRI_MUST;

/* Posts credits and aborts that could not be posted before. Lock held. */
void spri_comm_repeat(struct spr_comm *comm);

/* The listener of links: takes one event of a connection of a communicator. Lock held. */
void spri_comm_event(struct spri_listener *listener, const struct spri_event *event);

/*
 * What a connection's failure means for the communicator: the peer is lost, but for refusals,
 * protocol errors and our own want of memory.
 */
int spri_comm_lost_status(int status);

/*
 * Breaks the communicator (first call wins): every operation in flight ends with `status`, every
 * partner is told which rank is lost (`rank`, −1: nobody) and why, so that all ranks end with the
 * same error. Lock held.
 */
void spri_comm_fail(struct spr_comm *comm, int status, int32_t rank, const char *format, ...)
	SPRI_PRINTF(4, 5);

#endif
