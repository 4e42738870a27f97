/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The contract of algorithms. One file, one row in coll.c each: a resumable schedule that never
 * blocks. step() does what can be done now and returns; progress.c calls it again when something
 * arrived.
 *
 * Rules that make an operation all or nothing:
 *   - The number and partners of rounds depend on P and the rank only; never on data.
 *   - Every round's message to every partner ends with a chunk flagged LAST_OF_ROUND that carries
 *     the outcome known so far; what arrives is combined (spri_outcome_combine: associative,
 *     commutative, idempotent).
 *   - Once op->outcome.status is not 0, a rank goes on with the schedule but sends only the
 *     LAST_OF_ROUND chunk of each message, and ignores payloads.
 *   - At the end every rank has heard of every other (directly or not) after its last chance to
 *     find something. So all end alike.
 */
#ifndef SPRI_COLL_H
#define SPRI_COLL_H

#include <codec/codec.h>
#include <coll/slots.h>
#include <coll/stream.h>
#include <comm.h>
#include <sparring/coll.h>
#include <sparring/request.h>
#include <timeline.h>

struct spri_op;
struct spri_fetch;

struct spri_algo {
	uint8_t id; /* on the wire; never reused */
	const char *name;
	const char *about;
	enum { SPRI_ALGO_DENSE, SPRI_ALGO_SPARSE, SPRI_ALGO_MASKED, SPRI_ALGO_BYTES } kind;
	/*
	 * The ranks that `rank` talks to, written to out (room for 64), in any order,
	 * duplicates allowed, symmetric. Returns their number.
	 */
	unsigned (*partners)(uint32_t rank, uint32_t n_ranks, uint32_t *out);
	/* Rounds and bytes of the cost formula (spr_algo_cost). */
	double (*rounds)(uint32_t n_ranks);
	double (*bytes)(uint32_t n_ranks, double count, double k);
	/*
	 * Allocates op->state and what the schedule needs. Returns 0 or negative; then the
	 * operation runs in failed mode and step() must cope with what start left (state may be
	 * NULL: see op->failed_start).
	 */
	int (*start)(struct spri_op *op);
	/*
	 * Returns 0 when the schedule is over, SPRI_AGAIN when it waits, negative when the
	 * communicator must break.
	 */
	int (*step)(struct spri_op *op);
	/* Frees what start allocated, whatever the state. */
	void (*finish)(struct spri_op *op);
	bool streams; /* sparse: takes entries while they are selected (op->stream) */
};

/* Where a message stands. Zeroed at the start of each message. */
struct spri_sending {
	uint32_t block;	   /* number of the block in the message */
	uint64_t position; /* entries of it sent */
	bool done;
};

struct spri_receiving {
	uint64_t entries; /* taken so far in this message */
	uint64_t after;	  /* last index taken of this block; valid when any */
	bool any;
	bool done;
};

/* Fixed space for a schedule's position, so that failed mode needs no memory. */
struct spri_cursor {
	uint32_t phase, round;
	struct spri_sending sending;
	struct spri_receiving receiving;
	uint64_t extra[4]; /* the algorithm's own */
};

/* An operation in flight; the inside of struct spr_request. */
struct spri_op {
	struct spr_comm *comm;
	struct spri_op *next; /* in comm->ops */
	const struct spri_algo *algo;
	uint32_t seq;
	unsigned lane;
	uint64_t signature; /* of the arguments that must agree */
	enum spr_nonfinite policy;
	struct spri_outcome outcome;
	struct spri_cursor cursor;
	void *state; /* the algorithm's, freed by finish() */

	/*
	 * arguments; dense: in, out, count. bytes: in_bytes, out_bytes, count. sparse: in_list,
	 * k, length, dtype, list_codec, step
	 */
	const float *in;
	float *out;
	const uint8_t *in_bytes;
	uint8_t *out_bytes;
	uint64_t count;
	struct spr_sparse in_list;
	uint64_t k;
	uint64_t length;
	enum spr_dtype dtype; /* of values on the wire; dense and bytes: SPR_F32 */
	uint8_t list_codec;   /* of sparse lists: SPRI_CODEC_RAW32 or _PACKED */
	uint64_t step;	      /* of the exchange, or the caller's */
	bool streamed;	      /* in_list comes by way of a stream; the same on all ranks */
	/* lent until the operation is done; NULL in failed mode, too */
	const struct spri_stream *stream;
	/*
	 * masked: in, count, dtype, step; this rank's proposals, who proposes, and a note of
	 * note_bytes that goes with each mask: in_bytes is this rank's, out_bytes receives the
	 * n_broadcasters notes, by ascending rank
	 */
	const uint64_t *mask;
	uint64_t n_mask;
	uint32_t n_broadcasters;
	uint64_t seed;
	uint32_t note_bytes;
	/* to[i] = in[index[i]], when `in` is not host memory; else NULL. Returns 0 or negative. */
	int (*gather)(struct spri_op *op, const uint64_t *index, uint64_t n, float *to);

	/*
	 * dense: are elements [base, base + n) of `in` there already? NULL: all are. One that
	 * cannot come is reported, and "there".
	 */
	bool (*there)(struct spri_op *op, uint64_t base, uint64_t n);
	struct spri_fetch *fetch; /* owned; NULL: arguments are host memory (fetch.h) */

	/* results of sparse algorithms; memory of the algorithm's start(), freed by finish() */
	struct spri_list sum;
	struct spri_list adopted; /* strictly ascending */
	uint64_t excess;	  /* entries of the stream that the cut dropped */
	/*
	 * of the stream's near list: whom it went to, and as the how-manieth chunk the last of it
	 */
	uint32_t near_rank, near_sent;
	bool near_used;

	uint64_t start_ns, end_ns, deadline_ns;
	struct spr_request_stats stats;
	uint32_t waiting_for;		  /* the rank that the last SPRI_AGAIN was about */
	struct spri_timeline_chunk taken; /* the last one received, for the trace */
	bool done;
	int status;	       /* when done */
	struct spri_text text; /* when failed */
	/*
	 * Called once under the lock when the operation is done; may be NULL (the exchange
	 * commits here).
	 */
	void (*on_done)(struct spri_op *op);
	void *on_done_arg;
	/*
	 * The request of a step (exchange/step.c), which is never launched: `open` while layers are
	 * missing, so that waiting would be for ever; abandon() then ends it. Lock held.
	 */
	bool open;
	void (*abandon)(struct spri_op *op);
};

/* ---- table ---- */
const struct spri_algo *
spri_algo_row(unsigned i); /* NULL past the last; the public ones come first */
const struct spri_algo *spri_algo_find(const char *name);
extern const struct spri_algo spri_algo_dense_ring, spri_algo_topk_allgather, spri_algo_gtopk,
	spri_algo_gtopk_tree, spri_algo_prune_ring, spri_algo_iwp_ring, spri_algo_allgather;

/* ---- what algorithms are written with (transfer.c) ---- */

/*
 * Keeps the first in a total order: failed before well; then lower rank, lower index, lower
 * status.
 */
void spri_outcome_combine(struct spri_outcome *into, const struct spri_outcome *other);
/* Combines {status, rank, index} into op's outcome. */
void spri_op_report(struct spri_op *op, int status, uint32_t rank, uint64_t index);
/*
 * Reports what a kernel found, by the policy: rank SPRI_NO_RANK for sums that several ranks
 * compute.
 */
void spri_op_report_finite(struct spri_op *op, const struct spri_finite *finite, uint32_t rank);
static inline bool spri_op_failed(const struct spri_op *op)
{
	return op->outcome.status != 0;
}

/* One block of a message. What is used of (index), (value), (bytes) follows from the codec. */
struct spri_block {
	uint32_t id;	       /* goes into the header: the rank it comes from */
	uint8_t codec;	       /* 0: the message's */
	const uint64_t *index; /* lists, masks */
	const float *value;    /* lists, dense */
	const uint8_t *bytes;  /* bytes codec */
	uint64_t count;	       /* entries, elements or bytes */
	uint64_t base;	       /* dense, bytes: index of the first */
	struct spri_near near; /* raw32: the same entries where a NIC reads them; base is 0 then */
};

/*
 * Sends a whole message (n_blocks ≥ 0 blocks, borrowed until done; the same at every call) to a
 * partner, chunk by chunk, as credits allow. In failed mode only the end of it. Returns 0 when
 * all is posted (sending->done), SPRI_AGAIN, negative.
 */
int spri_transfer_send(struct spri_op *op, uint32_t to, uint32_t round, uint8_t codec,
		       const struct spri_block *blocks, uint32_t n_blocks,
		       struct spri_sending *sending) SPRI_MUST;

/*
 * Sends one chunk of a dense or bytes block: elements [position, position + n) of it, n ≤
 * spri_transfer_room(op, codec). last: flags LAST_OF_BLOCK and LAST_OF_ROUND. For schedules that
 * send parts of a block as they become ready. In failed mode the payload is left out. Returns 0,
 * SPRI_AGAIN, negative.
 */
int spri_transfer_send_part(struct spri_op *op, uint32_t to, uint32_t round, uint8_t codec,
			    const struct spri_block *block, uint64_t position, uint32_t n,
			    bool last) SPRI_MUST;

/* No block's near list is being read any more: whoever lent it may have it back. */
bool spri_transfer_sent(const struct spri_op *op);

/*
 * Most elements of a dense (4 or 2 bytes, by op->dtype), raw32 (4 more) or bytes (1) chunk; for
 * other indexed codecs the most that any chunk can carry. The same on all ranks.
 */
uint32_t spri_transfer_room(const struct spri_op *op, uint8_t codec);

/*
 * The next chunk of this round from a partner, checked (header, sequence, round, algorithm; a
 * chunk of an older operation is dropped). The arguments' signature and the outcome are combined
 * into op's. The payload is at chunk->payload until spri_transfer_release. Returns 0, SPRI_AGAIN,
 * negative (SPR_EPROTOCOL breaks the communicator).
 */
int spri_transfer_receive(struct spri_op *op, uint32_t from, uint32_t round,
			  struct spri_chunk *chunk) SPRI_MUST;
void spri_transfer_release(struct spri_op *op, uint32_t from);

/* Time of the context. */
uint64_t spri_op_now(const struct spri_op *op);
/* A merge that began at start_ns is over: it counts in the statistics, and stands in the trace. */
void spri_op_merged(struct spri_op *op, uint64_t start_ns);

/* ---- starting and ending (coll.c, request.c) ---- */

/* The codec of lists that a caller's choice stands for. */
static inline uint8_t spri_list_codec(enum spr_codec codec)
{
	return codec == SPR_CODEC_PACKED ? SPRI_CODEC_PACKED : SPRI_CODEC_RAW32;
}

/*
 * Keeps one operation in store, so that a start without memory can still tell the other ranks.
 * Returns 0 or -ENOMEM.
 */
int spri_op_reserve(struct spr_comm *comm) SPRI_MUST;
void spri_op_unreserve(struct spr_comm *comm);
/*
 * Makes an operation of `algo` with zeroed arguments for the caller to fill. Returns 0 or
 * -ENOMEM. Lock held.
 */
int spri_op_create(struct spr_comm *comm, const struct spri_algo *algo,
		   struct spri_op **out) SPRI_MUST;
/* The same in memory of the caller's, who then ends it with algo->finish() and not destroy. */
void spri_op_init(struct spri_op *op, struct spr_comm *comm, const struct spri_algo *algo);
/*
 * Starts it: numbers it, hashes the signature over the arguments that must agree, calls
 * algo->start, queues it; list_codec 0 becomes raw32. `status` not 0: argument errors found by the
 * caller, at `index`: the operation runs in failed mode. Never fails: failures become the outcome.
 * When the communicator is broken the operation is done at once. Lock held.
 */
void spri_op_launch(struct spri_op *op, int status, uint64_t index);
/*
 * Ends an operation in flight: status and text are its own; calls on_done, wakes waiters. Lock
 * held.
 */
void spri_op_complete(struct spri_op *op, int status);
/* Frees a done operation (or one never launched). Lock held. */
void spri_op_destroy(struct spri_op *op);

/* The public face: struct spr_request is an spri_op. */
static inline struct spri_op *spri_request_op(struct spr_request *request)
{
	return (struct spri_op *)(void *)request;
}
static inline struct spr_request *spri_op_request(struct spri_op *op)
{
	return (struct spr_request *)(void *)op;
}

#endif
