/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The trace of SPR_TRACE: what a rank did with every chunk, and when, for the viewers of Chrome and
 * Perfetto.
 *
 *   1. a context opens it: the directory is looked at, memory is taken once
 *   2. a communicator joins: its rank names the file, FILE.RANK
 *   3. whoever does something adds an event: no allocation, no lock, no writing
 *   4. the context closes it: the file is written beside an old one, and renamed
 *
 * A context without a trace has NULL in its place, and every caller asks for that before it looks
 * at the clock.
 */
#ifndef SPRI_TIMELINE_H
#define SPRI_TIMELINE_H

#include <codec/codec.h>
#include <internal/compiler.h>
#include <internal/error.h>

/* What fits: 5 MiB, of which only what is written costs memory. */
#define SPRI_TIMELINE_EVENTS 65536u

struct spri_timeline;

enum spri_timeline_kind {
	SPRI_TIMELINE_SELECT, /* a piece of a part: until the network was looked at, or the end */
	SPRI_TIMELINE_POST,   /* a chunk: encoding and posting it */
	SPRI_TIMELINE_ARRIVE, /* a chunk: its notification was taken; no time passes */
	SPRI_TIMELINE_MERGE,  /* a chunk, or what is due at the end of a round */
	SPRI_TIMELINE_COMMIT, /* a step */
};

/* What a header says of a chunk. */
struct spri_timeline_chunk {
	uint32_t peer, round, block, entries;
	uint32_t bytes;	 /* header and payload */
	uint32_t number; /* chunks before it on its lane and in its direction */
};

struct spri_timeline_event {
	enum spri_timeline_kind kind;
	uint8_t algo;  /* id */
	uint8_t lane;  /* post, arrive, merge */
	uint16_t comm; /* likewise: what joining returned */
	uint32_t rank; /* likewise: this one in that communicator */
	uint64_t start_ns, end_ns;
	uint64_t number;  /* of the operation; select, commit: of the step */
	uint64_t entries; /* select: found so far in the part; commit: in the sums */
	uint32_t part;	  /* select */
	/* post, arrive, merge: the chunk taken last; peer SPRI_NO_RANK: there is none */
	struct spri_timeline_chunk chunk;
};

/*
 * Opens the trace that SPR_TRACE asks for; *out stays as it is when it asks for none. Returns 0;
 * SPR_EENVIRONMENT with a text when the file cannot be written; -ENOMEM.
 */
int spri_timeline_open(struct spri_timeline **out, struct spri_text *text) SPRI_MUST;
/* What the trace says of a chunk to or from a peer, which is number `number` of its lane. */
struct spri_timeline_chunk spri_timeline_chunk(uint32_t peer, uint32_t number,
					       const struct spri_chunk *chunk);
/* Names the rank; the first communicator decides. Returns the number of this one. */
uint16_t spri_timeline_join(struct spri_timeline *timeline, uint32_t rank, uint32_t n_ranks);
/* Appends an event; counts it when there is no room. Threads: any, without a lock. */
void spri_timeline_add(struct spri_timeline *timeline, const struct spri_timeline_event *event);
/*
 * Writes the file, when a communicator ever joined, and frees the trace. Failures go to the log.
 * Accepts NULL. Blocks: until the disk has it. clock: what the times are of.
 */
void spri_timeline_close(struct spri_timeline *timeline, const char *clock);

#endif
