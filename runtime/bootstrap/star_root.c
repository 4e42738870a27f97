/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A star's root: rank 0. One poll() serves every socket, so nobody can make the others wait.
 *
 * Happy path: listen (on the address of SPR_ROOT when it is a number of this machine or
 * "localhost", else on every address, because /etc/hosts likes to lie about this machine's
 * own name; or take the inherited socket); accept; a HELLO whose version, size and rank are
 * right makes the stranger that rank and is answered with HERE; when all are here the
 * listener is closed (an inherited one stays open) and everybody gets WELCOME. Per
 * allgather: one GATHER from each, then ALL to each, out of one buffer.
 *
 * Failures. A stranger that sends something else, nothing for STRANGER_NS, or is one too
 * many is dropped. Another version, another size, a rank out of range or taken: REFUSED
 * with the reason; the last such reason is put behind the text of a deadline that passes. A
 * rank that leaves: SPR_ELOST. The deadline (the earliest of all ranks'): SPR_ETIMEOUT
 * naming who is missing. Both go to everybody as ERROR before the sockets are closed.
 */
#include <internal/alloc.h>
#include <internal/bits.h>

#include "star_root.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_absent(void *arg, uint32_t rank)
{
	const struct root *root = arg;

	return rank > 0 && root->peers[rank].fd < 0;
}

static bool is_silent(void *arg, uint32_t rank)
{
	const struct root *root = arg;

	return rank > 0 && !root->peers[rank].have;
}

/* ---- the end ---- */

static void close_all(struct spri_meeting *meeting)
{
	struct root *root = meeting->state;

	for (uint32_t i = 0; root->peers && i < meeting->n_ranks; i++) {
		if (root->peers[i].fd >= 0)
			close(root->peers[i].fd);
		root->peers[i].fd = -1;
	}
	for (unsigned i = 0; i < MAX_STRANGERS; i++) {
		if (root->strangers[i].fd >= 0)
			close(root->strangers[i].fd);
		root->strangers[i].fd = -1;
	}
	if (root->listener >= 0 && !root->inherited)
		close(root->listener);
	root->listener = -1;
}

/*
 * Tells everybody why the meeting is over, waits a little until they have read it (closing
 * a socket with unread input would throw away what is on its way out), and closes. Returns
 * status.
 */
static int fail(struct spri_meeting *meeting, int status)
{
	struct root *root = meeting->state;
	uint64_t until = spri_now_ns() + STAR_GOODBYE_NS;
	size_t bytes = strnlen(meeting->text.s, STAR_MAX_TEXT);
	uint32_t n;

	for (uint32_t i = 1; i < meeting->n_ranks; i++) {
		struct peer *peer = &root->peers[i];
		struct star_frame last = {.payload = (const uint8_t *)meeting->text.s,
					  .total = STAR_HEAD_BYTES + bytes};

		if (peer->fd < 0)
			continue;
		spri_star_pack(last.head, STAR_ERROR, meeting, status, root->round, bytes);
		/*
		 * In the middle of another frame there is no place for it; the end of the
		 * stream has to do.
		 */
		if (peer->out.done == peer->out.total)
			(void)!spri_star_write(peer->fd, &last);
		(void)shutdown(peer->fd, SHUT_WR);
	}
	do {
		n = 0;
		for (uint32_t i = 1; i < meeting->n_ranks; i++)
			if (root->peers[i].fd >= 0)
				root->polls[n++] =
					(struct pollfd){.fd = root->peers[i].fd, .events = POLLIN};
		if (n == 0 || poll(root->polls, n, spri_star_timeout_ms(until)) < 0)
			continue;
		for (uint32_t i = 1; i < meeting->n_ranks; i++) {
			uint8_t waste[4096];
			ssize_t got;

			if (root->peers[i].fd < 0)
				continue;
			got = recv(root->peers[i].fd, waste, sizeof waste, 0);
			if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
				continue;
			close(root->peers[i].fd);
			root->peers[i].fd = -1;
		}
	} while (n > 0 && spri_now_ns() < until);
	close_all(meeting);
	return status;
}

static int lost_peer(struct spri_meeting *meeting, uint32_t rank)
{
	struct root *root = meeting->state;

	spri_text_set(&meeting->text, "rank %u (%s) left during the meeting", rank,
		      root->peers[rank].from);
	close(root->peers[rank].fd);
	root->peers[rank].fd = -1;
	return fail(meeting, SPR_ELOST);
}

static int timed_out(struct spri_meeting *meeting, bool (*absent)(void *arg, uint32_t rank),
		     const char *what)
{
	struct root *root = meeting->state;
	char list[160];

	spri_star_list(list, sizeof list, meeting->n_ranks, absent, root);
	spri_text_set(&meeting->text, "rank %s of %u %s within %.3g s%s%s", list, meeting->n_ranks,
		      what, 1e-9 * (double)(root->deadline_ns - root->start_ns),
		      root->refused[0] ? "; refused: " : "", root->refused);
	return fail(meeting, SPR_ETIMEOUT);
}

/* ---- opening ---- */

/* One turn of waiting for ranks. Returns 0, or negative. */
static int gather_ranks(struct spri_meeting *meeting)
{
	struct root *root = meeting->state;
	struct pollfd *p = root->polls;
	uint32_t n_peers = 0, at = 0;
	uint64_t until = root->deadline_ns;
	int r = 0;

	p[at++] = (struct pollfd){.fd = root->listener, .events = POLLIN};
	for (unsigned i = 0; i < MAX_STRANGERS; i++) {
		struct stranger *s = &root->strangers[i];

		p[at++] = (struct pollfd){.fd = s->fd, .events = POLLIN | POLLRDHUP};
		if (s->fd >= 0)
			until = spri_min_u64(until, s->until_ns);
	}
	for (uint32_t rank = 1; rank < meeting->n_ranks; rank++, n_peers++)
		p[at++] = (struct pollfd){.fd = root->peers[rank].fd, .events = POLLRDHUP};
	if (poll(p, at, spri_star_timeout_ms(until)) < 0 && errno != EINTR)
		return fail(meeting, -errno);
	for (uint32_t i = 0; i < n_peers; i++)
		if (p[1 + MAX_STRANGERS + i].fd >= 0 && p[1 + MAX_STRANGERS + i].revents)
			return lost_peer(meeting, i + 1);
	for (unsigned i = 0; i < MAX_STRANGERS; i++) {
		struct stranger *s = &root->strangers[i];

		if (s->fd >= 0 && p[1 + i].revents)
			spri_star_door_hear(meeting, s, p[1 + i].revents);
		if (s->fd >= 0 && spri_now_ns() >= s->until_ns)
			spri_star_door_drop(s);
	}
	if (p[0].revents)
		r = spri_star_door_take(meeting);
	return r < 0 ? fail(meeting, r) : 0;
}

/*
 * Sends every peer's out frame, as they take it. A peer that is gone is noted in *lost.
 * Returns 0, or SPR_ETIMEOUT.
 */
static int flush(struct spri_meeting *meeting, uint32_t *lost)
{
	struct root *root = meeting->state;

	for (;;) {
		uint32_t n = 0;

		for (uint32_t rank = 1; rank < meeting->n_ranks; rank++) {
			struct peer *peer = &root->peers[rank];
			int r = peer->fd < 0 ? 0 : spri_star_write(peer->fd, &peer->out);

			if (r == SPRI_AGAIN)
				root->polls[n++] =
					(struct pollfd){.fd = peer->fd, .events = POLLOUT};
			if (r >= 0)
				continue;
			close(peer->fd);
			peer->fd = -1;
			*lost = rank;
		}
		if (n == 0)
			return 0;
		if (spri_now_ns() >= root->deadline_ns)
			return SPR_ETIMEOUT;
		(void)poll(root->polls, n, spri_star_timeout_ms(root->deadline_ns));
	}
}

/* Sends one frame to everybody. */
static int tell_all(struct spri_meeting *meeting, enum star_kind kind, const void *payload,
		    size_t bytes)
{
	struct root *root = meeting->state;
	uint32_t lost = 0;
	int r;

	for (uint32_t rank = 1; rank < meeting->n_ranks; rank++) {
		struct star_frame *out = &root->peers[rank].out;

		*out = (struct star_frame){.payload = payload, .total = STAR_HEAD_BYTES + bytes};
		spri_star_pack(out->head, kind, meeting, 0, root->round, bytes);
	}
	r = flush(meeting, &lost);
	if (r < 0) {
		spri_text_set(&meeting->text, "some rank did not read what rank 0 sent it in the "
					      "meeting before the deadline");
		return fail(meeting, r);
	}
	if (lost) {
		spri_text_set(&meeting->text, "rank %u (%s) left during the meeting", lost,
			      root->peers[lost].from);
		return fail(meeting, SPR_ELOST);
	}
	return 0;
}

int spri_star_root_open(struct spri_meeting *meeting, const struct star_options *options)
{
	struct root *root = spri_zalloc(sizeof *root);
	int r;

	if (!root)
		return spri_trace(-ENOMEM);
	meeting->state = root;
	root->listener = -1;
	root->start_ns = spri_now_ns();
	root->deadline_ns = meeting->deadline_ns;
	for (unsigned i = 0; i < MAX_STRANGERS; i++)
		root->strangers[i].fd = -1;
	root->peers = spri_calloc(meeting->n_ranks, sizeof *root->peers);
	for (uint32_t i = 0; root->peers && i < meeting->n_ranks; i++)
		root->peers[i].fd = -1;
	root->polls =
		spri_calloc((size_t)meeting->n_ranks + MAX_STRANGERS + 1, sizeof *root->polls);
	if (!root->peers || !root->polls)
		return spri_trace(-ENOMEM);
	if (meeting->n_ranks == 1)
		return 0;
	r = spri_star_door_open(meeting, options);
	while (r == 0 && root->n_here < meeting->n_ranks - 1) {
		r = gather_ranks(meeting);
		if (r == 0 && root->n_here < meeting->n_ranks - 1 &&
		    spri_now_ns() >= root->deadline_ns)
			r = timed_out(meeting, is_absent, "did not come to the meeting");
	}
	if (r < 0)
		return spri_trace(r);
	if (!root->inherited)
		close(root->listener);
	root->listener = -1;
	return spri_trace(tell_all(meeting, STAR_WELCOME, NULL, 0));
}

/* ---- allgather ---- */

/* Reads what a rank has sent of its GATHER. Returns 0, SPRI_AGAIN, negative. */
static int take(struct spri_meeting *meeting, uint32_t rank, uint8_t *to, size_t bytes)
{
	struct root *root = meeting->state;
	struct peer *peer = &root->peers[rank];
	struct star_head head;
	size_t done;
	int r;

	if (peer->got < STAR_HEAD_BYTES) {
		r = spri_star_read(peer->fd, peer->head, STAR_HEAD_BYTES, &peer->got);
		if (r != 0)
			return r < 0 ? lost_peer(meeting, rank) : r;
		if (spri_star_unpack(peer->head, &head) < 0 || head.version != STAR_VERSION ||
		    head.kind != STAR_GATHER || head.rank != rank || head.round != root->round ||
		    head.bytes != bytes) {
			spri_text_set(&meeting->text,
				      "rank %u (%s) sent a frame that is not %zu bytes for round "
				      "%u of the meeting",
				      rank, peer->from, bytes, root->round);
			return fail(meeting, SPR_EPROTOCOL);
		}
	}
	done = peer->got - STAR_HEAD_BYTES;
	r = spri_star_read(peer->fd, to, bytes, &done);
	peer->got = STAR_HEAD_BYTES + done;
	if (r < 0)
		return lost_peer(meeting, rank);
	peer->have = r == 0;
	return r;
}

int spri_star_root_allgather(struct spri_meeting *meeting, const void *mine, void *all,
			     size_t bytes)
{
	struct root *root = meeting->state;
	uint32_t n_have = 1;
	int r;

	for (uint32_t rank = 1; rank < meeting->n_ranks; rank++) {
		root->peers[rank].have = false;
		root->peers[rank].got = 0;
		if (root->peers[rank].fd < 0) /* an earlier call failed */
			return spri_trace(SPR_EBOOTSTRAP);
	}
	if (bytes)
		memcpy(all, mine, bytes);
	while (n_have < meeting->n_ranks) {
		for (uint32_t rank = 1; rank < meeting->n_ranks; rank++)
			root->polls[rank - 1] = (struct pollfd){
				.fd = root->peers[rank].fd,
				.events = root->peers[rank].have ? POLLRDHUP : POLLIN | POLLRDHUP,
			};
		if (spri_now_ns() >= root->deadline_ns)
			return spri_trace(
				timed_out(meeting, is_silent, "did not answer in the meeting"));
		if (poll(root->polls, meeting->n_ranks - 1,
			 spri_star_timeout_ms(root->deadline_ns)) < 0 &&
		    errno != EINTR)
			return spri_trace(-errno);
		for (uint32_t rank = 1; rank < meeting->n_ranks; rank++) {
			if (!root->polls[rank - 1].revents)
				continue;
			if (root->peers[rank].have)
				return spri_trace(lost_peer(meeting, rank));
			r = take(meeting, rank, (uint8_t *)all + (size_t)rank * bytes, bytes);
			if (r < 0)
				return spri_trace(r);
			n_have += r == 0;
		}
	}
	r = tell_all(meeting, STAR_ALL, all, bytes * meeting->n_ranks);
	root->round++;
	return spri_trace(r);
}

void spri_star_root_close(struct spri_meeting *meeting)
{
	struct root *root = meeting->state;

	if (!root)
		return;
	close_all(meeting);
	spri_free(root->peers);
	spri_free(root->polls);
	spri_free(root);
	meeting->state = NULL;
}
