/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Landing slots: how chunks get from rank to rank. For every partner a rank has a *link*; a link
 * has SPRI_LANES lanes; a lane is, in each direction, a window of `window` buffers of
 * `chunk_bytes` bytes that the receiver registered once. The sender fills its staging buffer
 * number s mod window and writes it into the receiver's buffer of the same number; the receiver
 * consumes buffers in order and returns cumulative credits. Operation number q uses lane q mod
 * SPRI_LANES, and operations of one lane run one after the other.
 */
#ifndef SPRI_SLOTS_H
#define SPRI_SLOTS_H

#include <context.h>
#include <internal/compiler.h>
#include <internal/error.h>

#include <transport.h>

#define SPRI_LANES 2u
#define SPRI_MIN_WINDOW 4u
#define SPRI_MAX_WINDOW 32u
#define SPRI_MIN_CHUNK 1024u
#define SPRI_MAX_CHUNK 65536u

/*
 * The immediate: kind (bits 31-30), lane (29-28), operation sequence mod 256 (27-20), number
 * (19-0). docs/wire.md
 */
enum spri_imm_kind {
	SPRI_IMM_CHUNK = 0,  /* number: chunks sent before on this lane */
	SPRI_IMM_CREDIT = 1, /* number: buffers released on this lane since the start */
	SPRI_IMM_ABORT = 2,  /* number: rank (bits 15-0) and reason (19-16) */
};
#define SPRI_IMM_NUMBER 0xfffffu

static inline uint32_t spri_imm(enum spri_imm_kind kind, unsigned lane, uint32_t seq,
				uint32_t number)
{
	return (uint32_t)kind << 30 | (uint32_t)lane << 28 | (seq & 0xffu) << 20 |
	       (number & SPRI_IMM_NUMBER);
}

/*
 * One direction pair of one lane. Counters run from 0 and wrap at 2^32; differences are what
 * counts.
 */
struct spri_lane {
	uint32_t sent;	    /* chunks posted */
	uint32_t completed; /* of these, staging buffers that may be used again (SENT) */
	uint32_t credited;  /* of these, released by the partner */
	uint32_t arrived;   /* chunks notified here */
	uint32_t consumed;  /* of these, released by the operation */
	uint32_t returned;  /* of these, told to the partner */
};

struct spri_link {
	struct spri_listener listener; /* first: the connection's user */
	struct spr_comm *comm;	       /* owner */
	uint32_t rank;		       /* the partner */
	struct spri_conn *conn;	       /* owned; NULL before creation */
	bool connected;
	bool closed;	    /* the partner said goodbye */
	bool abort_pending; /* it is still to be told that the communicator is broken */
	uint8_t *landing;   /* SPRI_LANES × window × chunk_bytes: the partner writes here */
	uint8_t *staging;   /* the same shape: source of our writes */
	struct spri_region *landing_region, *staging_region;
	struct spri_remote remote; /* the partner's landing memory for us */
	struct spri_lane lanes[SPRI_LANES];
};

/*
 * The staging buffer for the next chunk: *buffer, chunk_bytes long. Returns 0; SPRI_AGAIN: no
 * credit or staging still in flight.
 */
int spri_slots_reserve(struct spri_link *link, unsigned lane, uint8_t **buffer) SPRI_MUST;
/*
 * Sends the first `bytes` of the reserved buffer, and behind them n_more pieces of other memory
 * (lent until spri_slots_sent). Returns 0; SPRI_AGAIN: reserve again later
 * (content is kept); negative: the link is lost.
 */
int spri_slots_send(struct spri_link *link, unsigned lane, uint32_t seq, size_t bytes,
		    const struct spri_gather *more, unsigned n_more) SPRI_MUST;
/* Has the transport reported SENT for the first `sent` chunks of a lane? */
bool spri_slots_sent(const struct spri_link *link, unsigned lane, uint32_t sent);
/*
 * The oldest chunk that arrived and is not released; NULL: none. Stays writable by the partner:
 * read each field once.
 */
const uint8_t *spri_slots_peek(struct spri_link *link, unsigned lane);
/*
 * A chunk was notified. Returns 0, or SPR_EPROTOCOL: not the next number, or more than the
 * window.
 */
int spri_slots_arrived(struct spri_link *link, unsigned lane, uint32_t number) SPRI_MUST;
/* A credit was notified. Returns 0, or SPR_EPROTOCOL: more than was sent. */
int spri_slots_credited(struct spri_link *link, unsigned lane, uint32_t number) SPRI_MUST;
/* SENT was reported for a cookie of ours. */
void spri_slots_completed(struct spri_link *link, uint64_t cookie);
/* Posts credits that could not be posted before. */
void spri_slots_flush(struct spr_comm *comm);
/* Posts a notification without bytes (aborts). Returns as the transport's post. */
int spri_slots_notify(struct spri_link *link, uint32_t immediate) SPRI_MUST;
/* Gives the buffer of the oldest chunk back. Credits are returned in batches. */
void spri_slots_release(struct spri_link *link, unsigned lane);

#endif
