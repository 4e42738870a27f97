/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Endpoints: one connection to one peer, at the level of RDMA verbs, over whatever transport the
 * context uses. Register memory (memory.h), tell the peer where it may write, post one-sided writes
 * with or without a notification, poll completions.
 *
 *   1. both: spr_endpoint_create; spr_endpoint_grant on memory that the peer may write to
 *   2. both: exchange spr_endpoint_address and the grants by a way of your own (spr_comm_allgather,
 *      say); spr_endpoint_connect with the peer's address and an id that both know
 *   3. spr_endpoint_poll until SPR_EVENT_CONNECTED
 *   4. spr_endpoint_post; SPR_EVENT_SENT: the source may be used again; at the peer
 *      SPR_EVENT_NOTIFY: the bytes of this and all earlier writes of the endpoint are in place
 *   5. spr_endpoint_close, poll until SPR_EVENT_CLOSED or the deadline; spr_endpoint_destroy
 *
 * Notifications arrive in the order of the posts. Nothing is said about bytes that were not
 * notified: do not poll data memory. Every failure ends in SPR_EVENT_LOST, once.
 */
#ifndef SPARRING_ENDPOINT_H
#define SPARRING_ENDPOINT_H

#include <sparring/memory.h>
#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct spr_endpoint;

#define SPR_ADDRESS_BYTES 512 /* most bytes of an address */
#define SPR_GATHER_MOST 8     /* most pieces of one write */

/* Positive result of spr_endpoint_post: nothing was taken; poll and repeat. */
#define SPR_AGAIN 1

/* Where a peer may write. Plain bytes: send it as it is. */
struct spr_remote {
	uint64_t address; /* of the memory's first byte, in the terms of the transport */
	uint8_t key[16];  /* valid on one endpoint */
};

/* How this context's endpoints are reached. Plain bytes: send it as it is. */
struct spr_endpoint_address {
	uint32_t bytes; /* of `blob` in use */
	uint8_t blob[SPR_ADDRESS_BYTES];
};

struct spr_gather {
	const void *base;	   /* lent from post until SENT or LOST */
	size_t bytes;		   /* may be 0 */
	struct spr_memory *memory; /* holds them; may be NULL when bytes is 0 */
};

struct spr_write {
	size_t size; /* sizeof(struct spr_write) */
	struct spr_gather gather[SPR_GATHER_MOST];
	unsigned n_gather;	  /* 0: no bytes, only the notification */
	struct spr_remote remote; /* as the peer told it */
	uint64_t offset;	  /* of the destination in it */
	int notify;		  /* 1: the peer is to see SPR_EVENT_NOTIFY */
	uint32_t immediate;	  /* goes with the notification */
	uint64_t cookie;	  /* comes back with SENT */
};

enum spr_event_kind {
	SPR_EVENT_CONNECTED = 1,
	SPR_EVENT_SENT = 2,   /* cookie */
	SPR_EVENT_NOTIFY = 3, /* immediate */
	SPR_EVENT_CLOSED = 4, /* the peer closed */
	SPR_EVENT_LOST = 5    /* status; spr_endpoint_error has the text */
};

struct spr_event {
	enum spr_event_kind kind;
	int status;
	uint32_t immediate;
	uint64_t cookie;
};

/* The address of this context's endpoints. Returns: 0; SPR_EARGUMENT. */
SPR_API int spr_endpoint_address(struct spr_context *context, struct spr_endpoint_address *out);

/*
 * Ownership: *out is given: spr_endpoint_destroy, before its context's. Returns: 0, negative
 * errno.
 */
SPR_API int spr_endpoint_create(struct spr_context *context, struct spr_endpoint **out);

/*
 * Accepts NULL. Writes that were not sent are dropped; the peer sees CLOSED after a finished
 * close, else LOST.
 */
SPR_API void spr_endpoint_destroy(struct spr_endpoint *endpoint);

/*
 * Allows the peer of this endpoint to write to memory; *out is to be told to it. Before or after
 * connect. Returns: 0; SPR_EARGUMENT, negative errno.
 */
SPR_API int spr_endpoint_grant(struct spr_endpoint *endpoint, struct spr_memory *memory,
			       struct spr_remote *out);

/*
 * Starts connecting. `id` is the same at both ends and unique between the two contexts; exactly
 * one end is active. `label` (copied, may be NULL) names the peer in texts. CONNECTED or LOST
 * follows within the context's timeout. Blocks: no. Returns: 0; SPR_EARGUMENT, negative errno.
 */
SPR_API int spr_endpoint_connect(struct spr_endpoint *endpoint,
				 const struct spr_endpoint_address *address, uint64_t id,
				 int active, const char *label);

/*
 * Posts a write. Blocks: no.
 * Returns: 0; SPR_AGAIN (1): the queue is full, poll and repeat; SPR_EARGUMENT; -ENOTCONN before
 * CONNECTED and after close; the status of LOST.
 */
SPR_API int spr_endpoint_post(struct spr_endpoint *endpoint, const struct spr_write *write);

/*
 * Makes progress and takes up to `most` events of this endpoint. Blocks: no. What NOTIFY tells of
 * is visible to the caller and, in GPU memory, to kernels launched afterwards.
 * Returns: their number; negative when the context is broken (SPR_EDEVICE: a GPU that was to see
 * what arrived).
 */
SPR_API int spr_endpoint_poll(struct spr_endpoint *endpoint, struct spr_event *events, int most);

/*
 * Sleeps until spr_endpoint_poll has events or the deadline (of spr_context_now_ns) passed.
 * Returns: 0 when there are events; SPR_ETIMEOUT; negative when the context is broken.
 */
SPR_API int spr_endpoint_wait(struct spr_endpoint *endpoint, uint64_t deadline_ns);

/* Refuses new posts; what was posted is sent, then the peer sees CLOSED. Polling drives it. */
SPR_API void spr_endpoint_close(struct spr_endpoint *endpoint);

/* 1 when a closed endpoint has nothing left to send, or is lost. */
SPR_API int spr_endpoint_closed(const struct spr_endpoint *endpoint);

/* Why it was lost; "" when it was not. Borrowed until destroy. */
SPR_API const char *spr_endpoint_error(const struct spr_endpoint *endpoint);

#ifdef __cplusplus
}
#endif
#endif
