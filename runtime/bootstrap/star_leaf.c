/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A star's leaf: every rank but 0.
 *
 * Happy path: connect to rank 0 (each address of its name in turn), HELLO, HERE comes back,
 * wait for WELCOME; per allgather send GATHER and wait for ALL. One request is under way at
 * a time.
 *
 * Failures. Nobody listens yet, the network is not up, or what listened was the end of an
 * earlier meeting (the stream ends before any answer): tried again with growing pauses
 * until the deadline, since rank 0 may start later. A name that does not resolve: at once,
 * unless the resolver asks to try again. (getaddrinfo blocks for the resolver's own time
 * limits; numbers never ask it.) REFUSED and ERROR end the meeting with rank 0's text. The
 * stream ends in mid-meeting: SPR_ELOST, rank 0 is gone. The deadline: SPR_ETIMEOUT.
 */
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <internal/clock.h>

#include "star.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_PAUSE_NS (5 * SPRI_NS_PER_MS)
#define LONGEST_PAUSE_NS (250 * SPRI_NS_PER_MS)
#define ONE_TRY_NS (5 * SPRI_NS_PER_S) /* most for one address, so that the others get their turn */

struct leaf {
	int fd;		   /* to rank 0; −1: none */
	uint32_t round;	   /* number of the next allgather */
	uint64_t start_ns; /* of the meeting */
	char root[300];	   /* host:port as given, for texts */
};

/*
 * Waits for events on fd. Returns 0, or SPR_ETIMEOUT at the deadline; poll's own errors
 * show at the next call on fd.
 */
static int await(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = fd, .events = events};

	for (;;) {
		int n = poll(&p, 1, spri_star_timeout_ms(deadline_ns));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (spri_now_ns() >= deadline_ns)
			return SPR_ETIMEOUT;
	}
}

/* Connects to one address. Returns 0 with *fd, or negative. */
static int connect_one(const struct addrinfo *address, uint64_t deadline_ns, int *fd)
{
	int s = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
	    error = 0, r;
	socklen_t error_bytes = sizeof error;

	if (s < 0)
		return -errno;
	if (connect(s, address->ai_addr, address->ai_addrlen) != 0) {
		r = errno == EINPROGRESS || errno == EINTR ? 0 : -errno;
		if (r == 0)
			r = await(s, POLLOUT, deadline_ns);
		if (r == 0 && getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
			r = -errno;
		if (r == 0 && error)
			r = -error;
		if (r < 0) {
			close(s);
			return r == SPR_ETIMEOUT ? -ETIMEDOUT : r;
		}
	}
	spri_star_tune(s);
	*fd = s;
	return 0;
}

/*
 * Reads one frame header and, for REFUSED and ERROR, turns it into a failure. `got` says
 * how far it came.
 */
static int read_head(struct spri_meeting *meeting, struct leaf *leaf, struct star_head *head,
		     size_t *got)
{
	uint8_t bytes[STAR_HEAD_BYTES];
	char text[STAR_MAX_TEXT + 1];
	size_t done = 0;
	int r;

	*got = 0;
	while ((r = spri_star_read(leaf->fd, bytes, sizeof bytes, got)) == SPRI_AGAIN)
		if ((r = await(leaf->fd, POLLIN, meeting->deadline_ns)) < 0)
			return r;
	if (r < 0)
		return r;
	if (spri_star_unpack(bytes, head) < 0) {
		spri_text_set(&meeting->text,
			      "what listens at %s is not rank 0 of a sparring program", leaf->root);
		return SPR_EBOOTSTRAP;
	}
	if (head->kind != STAR_REFUSED && head->kind != STAR_ERROR) {
		if (head->version == STAR_VERSION)
			return 0;
		spri_text_set(&meeting->text,
			      "rank 0 at %s speaks version %u of the meeting, rank %u version %u",
			      leaf->root, head->version, meeting->rank, STAR_VERSION);
		return SPR_EVERSION;
	}
	/* A last word has this form in every version. */
	head->bytes = spri_min_u64(head->bytes, STAR_MAX_TEXT);
	while ((r = spri_star_read(leaf->fd, text, (size_t)head->bytes, &done)) == SPRI_AGAIN)
		if (await(leaf->fd, POLLIN, meeting->deadline_ns) < 0)
			break;
	text[done] = '\0';
	spri_text_set(&meeting->text, "%s", text);
	return head->status < 0 ? head->status : SPR_EBOOTSTRAP;
}

static int send_frame(struct spri_meeting *meeting, struct leaf *leaf, struct star_frame *frame)
{
	int r;

	while ((r = spri_star_write(leaf->fd, frame)) == SPRI_AGAIN)
		if ((r = await(leaf->fd, POLLOUT, meeting->deadline_ns)) < 0)
			return r;
	return r;
}

static int lost_root(struct spri_meeting *meeting, const struct leaf *leaf)
{
	spri_text_set(&meeting->text, "rank 0 at %s left during the meeting", leaf->root);
	return SPR_ELOST;
}

/*
 * HELLO, and the answer when all ranks are here. *answered: rank 0 said something, so
 * trying again is no use.
 */
static int say_hello(struct spri_meeting *meeting, struct leaf *leaf, bool *answered)
{
	uint8_t left[STAR_HELLO_BYTES];
	struct star_frame frame = {.payload = left, .total = STAR_HEAD_BYTES + sizeof left};
	struct star_head head;
	uint64_t now = spri_now_ns();
	size_t got = 0;
	int r;

	spri_put_u64(left, meeting->deadline_ns > now ? meeting->deadline_ns - now : 0);
	spri_star_pack(frame.head, STAR_HELLO, meeting, 0, 0, sizeof left);
	r = send_frame(meeting, leaf, &frame);
	if (r == SPR_ETIMEOUT)
		return r;
	/* A write that failed may hide a last word. */
	r = read_head(meeting, leaf, &head, &got);
	*answered = got > 0;
	if (r == 0 && head.kind == STAR_HERE)
		r = read_head(meeting, leaf, &head, &got);
	if (r == 0 && head.kind != STAR_WELCOME) {
		spri_text_set(&meeting->text, "rank 0 at %s sent frame %u instead of a welcome",
			      leaf->root, head.kind);
		return SPR_EPROTOCOL;
	}
	return r;
}

/*
 * One try over all addresses. Returns 0 when the meeting is open; SPRI_AGAIN with *why when
 * a later try may do; negative.
 */
static int try_once(struct spri_meeting *meeting, struct leaf *leaf, const struct addrinfo *list,
		    int *why)
{
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		uint64_t until = spri_min_u64(meeting->deadline_ns, spri_now_ns() + ONE_TRY_NS);
		bool answered = false;
		int r = connect_one(a, until, &leaf->fd);

		if (r < 0) {
			*why = r;
			continue;
		}
		meeting->text.s[0] = '\0';
		r = say_hello(meeting, leaf, &answered);
		if (r == 0)
			return 0;
		close(leaf->fd);
		leaf->fd = -1;
		if (r == SPR_ETIMEOUT && !meeting->text.s[0])
			spri_text_set(
				&meeting->text,
				"rank 0 at %s did not say within %.3g s that all ranks are here",
				leaf->root, 1e-9 * (double)(spri_now_ns() - leaf->start_ns));
		if (answered && r == -ECONNRESET)
			r = lost_root(meeting, leaf);
		if (answered || r == SPR_ETIMEOUT)
			return r;
		*why = r;
	}
	return SPRI_AGAIN;
}

static int resolve(struct spri_meeting *meeting, struct leaf *leaf,
		   const struct star_options *options, struct addrinfo **list)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
	char port[8];
	int r;

	snprintf(port, sizeof port, "%u", options->port);
	r = getaddrinfo(options->host, port, &hints, list);
	if (r == EAI_NONAME) {
		hints.ai_flags = AI_NUMERICSERV;
		r = getaddrinfo(options->host, port, &hints, list);
	}
	if (r == 0)
		return 0;
	spri_text_set(&meeting->text, "the address of rank 0, %s, does not resolve: %s", leaf->root,
		      gai_strerror(r));
	return r == EAI_AGAIN ? SPRI_AGAIN : SPR_EBOOTSTRAP;
}

static void pause_until(uint64_t until_ns)
{
	while (spri_now_ns() < until_ns)
		(void)poll(NULL, 0, spri_star_timeout_ms(until_ns));
}

int spri_star_leaf_open(struct spri_meeting *meeting, const struct star_options *options)
{
	struct leaf *leaf = spri_zalloc(sizeof *leaf);
	uint64_t pause = FIRST_PAUSE_NS;
	int r, why = 0;

	if (!leaf)
		return spri_trace(-ENOMEM);
	meeting->state = leaf;
	leaf->fd = -1;
	leaf->start_ns = spri_now_ns();
	snprintf(leaf->root, sizeof leaf->root, strchr(options->host, ':') ? "[%s]:%u" : "%s:%u",
		 options->host, options->port);
	for (;;) {
		struct addrinfo *list = NULL;

		r = resolve(meeting, leaf, options, &list);
		if (r == 0) {
			r = try_once(meeting, leaf, list, &why);
			freeaddrinfo(list);
		}
		if (r <= 0)
			return spri_trace(r);
		if (spri_now_ns() + pause >= meeting->deadline_ns)
			break;
		pause_until(spri_now_ns() + pause);
		pause = spri_min_u64(2 * pause, LONGEST_PAUSE_NS);
	}
	if (why)
		spri_text_set(&meeting->text, "rank 0 at %s could not be reached within %.3g s: %s",
			      leaf->root, 1e-9 * (double)(meeting->deadline_ns - leaf->start_ns),
			      spr_strerror(why));
	return spri_trace(SPR_ETIMEOUT);
}

int spri_star_leaf_allgather(struct spri_meeting *meeting, const void *mine, void *all,
			     size_t bytes)
{
	struct leaf *leaf = meeting->state;
	struct star_frame frame = {.payload = mine, .total = STAR_HEAD_BYTES + bytes};
	struct star_head head;
	size_t got, done = 0, whole = bytes * meeting->n_ranks;
	int r;

	spri_star_pack(frame.head, STAR_GATHER, meeting, 0, leaf->round, bytes);
	r = send_frame(meeting, leaf, &frame);
	if (r != SPR_ETIMEOUT)
		r = read_head(meeting, leaf, &head, &got);
	if (r == 0 && (head.kind != STAR_ALL || head.round != leaf->round || head.bytes != whole)) {
		spri_text_set(&meeting->text,
			      "rank 0 at %s sent frame %u of round %u, %llu bytes, in round %u of "
			      "%zu bytes",
			      leaf->root, head.kind, head.round, (unsigned long long)head.bytes,
			      leaf->round, whole);
		return spri_trace(SPR_EPROTOCOL);
	}
	while (r == 0 && (r = spri_star_read(leaf->fd, all, whole, &done)) == SPRI_AGAIN)
		r = await(leaf->fd, POLLIN, meeting->deadline_ns);
	leaf->round++;
	if (r == SPR_ETIMEOUT && !meeting->text.s[0])
		spri_text_set(&meeting->text,
			      "rank 0 at %s did not answer in the meeting before its deadline",
			      leaf->root);
	if (r == -ECONNRESET || r == -EPIPE)
		r = lost_root(meeting, leaf);
	return spri_trace(r);
}

void spri_star_leaf_close(struct spri_meeting *meeting)
{
	struct leaf *leaf = meeting->state;

	if (!leaf)
		return;
	if (leaf->fd >= 0)
		close(leaf->fd);
	spri_free(leaf);
	meeting->state = NULL;
}
