/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The state of a star's root, which star_root.c (the ranks) and star_door.c (who is not one
 * yet) share.
 */
#ifndef SPRI_STAR_ROOT_H
#define SPRI_STAR_ROOT_H

#include <internal/clock.h>

#include "star.h"

#include <poll.h>

#define MAX_STRANGERS 64u
#define STRANGER_NS (10 * SPRI_NS_PER_S) /* for a HELLO to arrive in full */

/* A rank that said HELLO. */
struct peer {
	int fd;	    /* −1: not here, or lost */
	bool have;  /* its GATHER of this round is complete */
	size_t got; /* bytes of it, header included */
	uint8_t head[STAR_HEAD_BYTES];
	struct star_frame out;
	char from[80]; /* its address, for texts */
};

/* A connection that said nothing yet, or has been refused and is to read why. */
struct stranger {
	int fd; /* −1: free */
	bool refused;
	uint64_t until_ns; /* dropped then */
	size_t got;
	uint8_t hello[STAR_HEAD_BYTES + STAR_HELLO_BYTES];
	char from[80];
};

struct root {
	int listener;	 /* −1: closed */
	bool inherited;	 /* the listener stays open */
	uint32_t n_here; /* other ranks that are here */
	uint32_t round;	 /* number of the next allgather */
	uint64_t start_ns;
	uint64_t deadline_ns; /* the earliest of all ranks' */
	struct peer *peers;   /* n_ranks; 0 unused */
	struct pollfd *polls; /* room for all */
	struct stranger strangers[MAX_STRANGERS];
	char refused[160]; /* the last refusal, "" */
};

/* ---- star_door.c ---- */

/* Sets root->listener. Returns 0; negative with the meeting's text. */
int spri_star_door_open(struct spri_meeting *meeting, const struct star_options *options) SPRI_MUST;
/* Takes what the listener has. Returns 0, or negative (with the text) when it cannot go on. */
int spri_star_door_take(struct spri_meeting *meeting) SPRI_MUST;
/* Something happened on a stranger's socket: it becomes a rank, is refused, or is dropped. */
void spri_star_door_hear(struct spri_meeting *meeting, struct stranger *stranger, short events);
void spri_star_door_drop(struct stranger *stranger);

#endif
