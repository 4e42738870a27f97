/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The door of a star's root: the listener, and strangers until they are a rank; see
 * star_root.c for the whole.
 *
 * Happy path: listen, accept, read a HELLO, check it, answer HERE. Failures: star_root.c
 * lists them.
 */
#include <internal/bits.h>
#include <internal/bytes.h>
#include <internal/log.h>

#include "star_root.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int listen_on(const struct sockaddr *address, socklen_t bytes, int *out)
{
	int one = 1, zero = 0, r = 0;
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (address->sa_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	if (bind(fd, address, bytes) != 0 || listen(fd, 4096) != 0)
		r = -errno;
	if (r < 0)
		close(fd);
	else
		*out = fd;
	return r;
}

static int listen_everywhere(int family, uint16_t port, int *out)
{
	struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
	struct sockaddr_in v4 = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_ANY)}};
	int r = -EAFNOSUPPORT;

	if (family != AF_INET)
		r = listen_on((const struct sockaddr *)&v6, sizeof v6, out);
	/* A machine without IPv6, or asked for IPv4. */
	if (family == AF_INET || (family == AF_UNSPEC && r < 0 && r != -EADDRINUSE))
		r = listen_on((const struct sockaddr *)&v4, sizeof v4, out);
	return r;
}

int spri_star_door_open(struct spri_meeting *meeting, const struct star_options *options)
{
	struct root *root = meeting->state;
	const char *host = strcmp(options->host, "localhost") == 0 ? "127.0.0.1" : options->host;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST},
			*list = NULL;
	char port[8];
	int r;

	if (options->listen_fd >= 0) {
		int flags = fcntl(options->listen_fd, F_GETFL);

		if (flags < 0 || fcntl(options->listen_fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
		    fcntl(options->listen_fd, F_SETFD, FD_CLOEXEC) < 0)
			return -errno;
		root->listener = options->listen_fd;
		root->inherited = true;
		return 0;
	}
	snprintf(port, sizeof port, "%u", options->port);
	if (getaddrinfo(host, port, &hints, &list) == 0) {
		int family = list->ai_family;

		r = listen_on(list->ai_addr, list->ai_addrlen, &root->listener);
		freeaddrinfo(list);
		if (r == -EADDRNOTAVAIL)
			r = listen_everywhere(family, options->port, &root->listener);
	} else {
		r = listen_everywhere(AF_UNSPEC, options->port, &root->listener);
	}
	if (r < 0)
		spri_text_set(&meeting->text, "rank 0 cannot listen on %s port %u: %s",
			      options->host, options->port, spr_strerror(r));
	return r;
}

void spri_star_door_drop(struct stranger *stranger)
{
	close(stranger->fd);
	stranger->fd = -1;
}

/* Tells a stranger why not, and keeps it until it hung up. */
static void refuse(struct spri_meeting *meeting, struct stranger *stranger, int status,
		   const struct spri_text *why)
{
	struct root *root = meeting->state;
	size_t bytes = strnlen(why->s, STAR_MAX_TEXT);
	struct star_frame last = {.payload = (const uint8_t *)why->s,
				  .total = STAR_HEAD_BYTES + bytes};

	spri_star_pack(last.head, STAR_REFUSED, meeting, status, 0, bytes);
	(void)!spri_star_write(stranger->fd, &last);
	(void)shutdown(stranger->fd, SHUT_WR);
	stranger->refused = true;
	stranger->until_ns = spri_now_ns() + STAR_GOODBYE_NS;
	snprintf(root->refused, sizeof root->refused, "%.*s", (int)sizeof root->refused - 1,
		 why->s);
	spri_logf(SPR_LOG_WARN, "meeting: refused: %s", why->s);
}

/* A complete HELLO: from now on it is that rank, or it is refused. */
static void admit(struct spri_meeting *meeting, struct stranger *stranger,
		  const struct star_head *hello)
{
	struct root *root = meeting->state;
	struct spri_text why = {""};
	uint64_t left = spri_get_u64(stranger->hello + STAR_HEAD_BYTES), margin,
		 now = spri_now_ns();
	struct star_frame here = {.total = STAR_HEAD_BYTES};
	struct peer *peer;

	if (hello->n_ranks != meeting->n_ranks) {
		spri_text_set(&why, "%s has SPR_SIZE %u, rank 0 has SPR_SIZE %u", stranger->from,
			      hello->n_ranks, meeting->n_ranks);
		refuse(meeting, stranger, SPR_EMISMATCH, &why);
		return;
	}
	if (hello->rank == 0 || hello->rank >= meeting->n_ranks ||
	    root->peers[hello->rank].fd >= 0) {
		spri_text_set(&why, "%s has SPR_RANK %u, which %s%s", stranger->from, hello->rank,
			      hello->rank == 0 || hello->rank >= meeting->n_ranks
				      ? "is out of range"
				      : "is taken by ",
			      hello->rank >= meeting->n_ranks ? "" : root->peers[hello->rank].from);
		refuse(meeting, stranger, SPR_EBOOTSTRAP, &why);
		return;
	}
	spri_star_pack(here.head, STAR_HERE, meeting, 0, 0, 0);
	if (spri_star_write(stranger->fd, &here) != 0) {
		spri_star_door_drop(stranger);
		return;
	}
	/* Its deadline is everybody's, less what it takes to tell it. */
	margin = spri_min_u64(left / 10, 200 * SPRI_NS_PER_MS);
	if (left - margin < SPRI_NEVER - now)
		root->deadline_ns = spri_min_u64(root->deadline_ns, now + left - margin);
	peer = &root->peers[hello->rank];
	peer->fd = stranger->fd;
	memcpy(peer->from, stranger->from, sizeof peer->from);
	stranger->fd = -1;
	root->n_here++;
}

void spri_star_door_hear(struct spri_meeting *meeting, struct stranger *stranger, short events)
{
	struct star_head head;
	struct spri_text why;
	int r;

	if (stranger->refused) {
		uint8_t waste[256];
		ssize_t got = recv(stranger->fd, waste, sizeof waste, 0);

		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			spri_star_door_drop(stranger);
		return;
	}
	r = spri_star_read(stranger->fd, stranger->hello, sizeof stranger->hello, &stranger->got);
	if (r < 0) {
		/* A HELLO of another version may be shorter; it gets its answer below. */
		if (stranger->got < STAR_HEAD_BYTES) {
			spri_star_door_drop(stranger);
			return;
		}
	}
	if (stranger->got >= 4 && memcmp(stranger->hello, "SPRM", 4) != 0) {
		spri_star_door_drop(stranger);
		return;
	}
	if (stranger->got < 8)
		return;
	if (spri_star_unpack(stranger->hello, &head) < 0) {
		spri_star_door_drop(stranger);
	} else if (head.version != STAR_VERSION) {
		spri_text_set(&why, "%s speaks version %u of the meeting, rank 0 version %u",
			      stranger->from, head.version, STAR_VERSION);
		refuse(meeting, stranger, SPR_EVERSION, &why);
	} else if (r == 0 && head.kind == STAR_HELLO && head.bytes == STAR_HELLO_BYTES) {
		/* One that has hung up already is left over from a meeting that failed. */
		if (events & (POLLRDHUP | POLLHUP | POLLERR))
			spri_star_door_drop(stranger);
		else
			admit(meeting, stranger, &head);
	} else if (r <= 0) {
		spri_star_door_drop(stranger);
	}
}

int spri_star_door_take(struct spri_meeting *meeting)
{
	struct root *root = meeting->state;

	for (;;) {
		struct sockaddr_storage address;
		socklen_t bytes = sizeof address;
		struct stranger *place = NULL;
		int fd = accept4(root->listener, (struct sockaddr *)&address, &bytes,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			       errno == ENOBUFS || errno == EBADF || errno == EINVAL)) {
			int r = -errno;

			spri_text_set(&meeting->text,
				      "rank 0 cannot accept more ranks, %u of %u are here: %s",
				      root->n_here + 1, meeting->n_ranks, spr_strerror(r));
			return r;
		}
		if (fd < 0) /* the connection's own trouble */
			continue;
		/* The one that has been silent for longest gives way. */
		for (unsigned i = 0; i < MAX_STRANGERS; i++) {
			struct stranger *s = &root->strangers[i];

			if (s->fd < 0 || (place && place->fd < 0)) {
				place = s->fd < 0 ? s : place;
				continue;
			}
			if (!place || s->until_ns < place->until_ns)
				place = s;
		}
		if (place->fd >= 0)
			spri_star_door_drop(place);
		*place = (struct stranger){.fd = fd, .until_ns = spri_now_ns() + STRANGER_NS};
		spri_star_address(place->from, sizeof place->from, &address, bytes);
		spri_star_tune(fd);
	}
}
