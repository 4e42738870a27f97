/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A meeting over TCP sockets in the shape of a star: rank 0 (star_root.c) listens, all
 * others (star_leaf.c) connect to it. Private to bootstrap/. Frames are little-endian;
 * docs/wire.md, "Meeting":
 *
 *   offset size name
 *        0    4 magic    "SPRM"
 *        4    2 version  of this protocol; what follows is read only when it is ours
 *        6    2 kind     enum star_kind
 *        8    4 rank     of the sender
 *       12    4 n_ranks  that the sender expects
 *       16    4 status   ERROR, REFUSED: negative, else 0
 *       20    4 round    GATHER, ALL: number of the allgather, from 0
 *       24    8 bytes    of the payload that follows
 *
 * leaf → root: HELLO (payload: u64, nanoseconds until its deadline), then per allgather one GATHER.
 * root → leaf: HERE at once, WELCOME when all are here, then per allgather one ALL; or
 * REFUSED / ERROR (payload: text) and the end.
 */
#ifndef SPRI_STAR_H
#define SPRI_STAR_H

#include <bootstrap/bootstrap.h>

#define STAR_VERSION 1u
#define STAR_HEAD_BYTES 32u
#define STAR_HELLO_BYTES 8u
#define STAR_MAX_TEXT 383u /* bytes of a text on the wire */
#define STAR_GOODBYE_NS                                                                            \
	(500ull * 1000000) /* rank 0 waits so long at most for its last words to be read */

enum star_kind {
	STAR_HELLO = 1,
	STAR_HERE = 2,
	STAR_WELCOME = 3,
	STAR_REFUSED = 4,
	STAR_GATHER = 5,
	STAR_ALL = 6,
	STAR_ERROR = 7,
};

/* A frame's header, unpacked. */
struct star_head {
	uint16_t version;
	uint16_t kind;
	uint32_t rank, n_ranks;
	int32_t status;
	uint32_t round;
	uint64_t bytes;
};

/* Where and as what to meet. */
struct star_options {
	uint32_t rank, n_ranks;
	char host[256]; /* name or number, without brackets; "" when listen_fd is given */
	uint16_t port;
	int listen_fd; /* inherited by rank 0, stays open; −1: none */
};

/* A frame on its way in or out of a non-blocking socket. */
struct star_frame {
	uint8_t head[STAR_HEAD_BYTES];
	const uint8_t *payload; /* out: borrowed until sent */
	size_t done;		/* bytes moved, header included */
	size_t total;		/* out: header and payload */
};

/*
 * The state of a meeting is one of these. Each open accepts a zeroed meeting->state; close
 * accepts what a failed open left.
 */
int spri_star_root_open(struct spri_meeting *meeting, const struct star_options *options) SPRI_MUST;
int spri_star_root_allgather(struct spri_meeting *meeting, const void *mine, void *all,
			     size_t bytes) SPRI_MUST;
void spri_star_root_close(struct spri_meeting *meeting);
int spri_star_leaf_open(struct spri_meeting *meeting, const struct star_options *options) SPRI_MUST;
int spri_star_leaf_allgather(struct spri_meeting *meeting, const void *mine, void *all,
			     size_t bytes) SPRI_MUST;
void spri_star_leaf_close(struct spri_meeting *meeting);

/* ---- star.c ---- */

void spri_star_pack(uint8_t *head, enum star_kind kind, const struct spri_meeting *meeting,
		    int status, uint32_t round, uint64_t bytes);
/*
 * Returns 0; SPR_EPROTOCOL: the magic is another. The version is the caller's to check,
 * before it reads the other fields.
 */
int spri_star_unpack(const uint8_t *head, struct star_head *out) SPRI_MUST;

/*
 * Reads until *done = total. Returns 0; SPRI_AGAIN; -ECONNRESET at the end of the stream,
 * other negative errno.
 */
int spri_star_read(int fd, void *buffer, size_t total, size_t *done) SPRI_MUST;
/* Sends what is left of a frame. Returns 0 when all of it went; SPRI_AGAIN; negative errno. */
int spri_star_write(int fd, struct star_frame *frame) SPRI_MUST;

/* Makes a socket (of accept or connect) ready: NODELAY. Failures do not matter. */
void spri_star_tune(int fd);
/* poll()'s timeout until a deadline, rounded up, in milliseconds; at least 0, at most a minute. */
int spri_star_timeout_ms(uint64_t deadline_ns);
/* "2, 5-7" out of the ranks for which absent(arg, rank); cut when long. */
void spri_star_list(char *out, size_t room, uint32_t n_ranks,
		    bool (*absent)(void *arg, uint32_t rank), void *arg);
/* "[fe80::1]:80" of a socket address. */
void spri_star_address(char *out, size_t room, const void *sockaddr, unsigned sockaddr_bytes);

#endif
