/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What both ends of a star use: frames on non-blocking sockets, texts; see star.h. */
#include <internal/bytes.h>
#include <internal/clock.h>

#include "star.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t magic[4] = {'S', 'P', 'R', 'M'};

void spri_star_pack(uint8_t *head, enum star_kind kind, const struct spri_meeting *meeting,
		    int status, uint32_t round, uint64_t bytes)
{
	memcpy(head, magic, sizeof magic);
	spri_put_u16(head + 4, STAR_VERSION);
	spri_put_u16(head + 6, (uint16_t)kind);
	spri_put_u32(head + 8, meeting->rank);
	spri_put_u32(head + 12, meeting->n_ranks);
	spri_put_u32(head + 16, (uint32_t)status);
	spri_put_u32(head + 20, round);
	spri_put_u64(head + 24, bytes);
}

int spri_star_unpack(const uint8_t *head, struct star_head *out)
{
	if (memcmp(head, magic, sizeof magic) != 0)
		return SPR_EPROTOCOL;
	out->version = spri_get_u16(head + 4);
	out->kind = spri_get_u16(head + 6);
	out->rank = spri_get_u32(head + 8);
	out->n_ranks = spri_get_u32(head + 12);
	out->status = (int32_t)spri_get_u32(head + 16);
	out->round = spri_get_u32(head + 20);
	out->bytes = spri_get_u64(head + 24);
	return 0;
}

int spri_star_read(int fd, void *buffer, size_t total, size_t *done)
{
	while (*done < total) {
		ssize_t n = recv(fd, (uint8_t *)buffer + *done, total - *done, 0);

		if (n > 0)
			*done += (size_t)n;
		else if (n == 0)
			return -ECONNRESET;
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			return SPRI_AGAIN;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int spri_star_write(int fd, struct star_frame *frame)
{
	while (frame->done < frame->total) {
		size_t at = frame->done;
		const uint8_t *from = at < STAR_HEAD_BYTES
					      ? frame->head + at
					      : frame->payload + (at - STAR_HEAD_BYTES);
		size_t n = at < STAR_HEAD_BYTES ? STAR_HEAD_BYTES - at : frame->total - at;
		ssize_t sent =
			send(fd, from, n,
			     MSG_NOSIGNAL | (at < STAR_HEAD_BYTES && frame->total > STAR_HEAD_BYTES
						     ? MSG_MORE
						     : 0));

		if (sent >= 0)
			frame->done += (size_t)sent;
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			return SPRI_AGAIN;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

void spri_star_tune(int fd)
{
	int one = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int spri_star_timeout_ms(uint64_t deadline_ns)
{
	uint64_t now = spri_now_ns(), left;

	if (deadline_ns <= now)
		return 0;
	left = (deadline_ns - now) / SPRI_NS_PER_MS + 1;
	return left > 60000 ? 60000 : (int)left;
}

void spri_star_list(char *out, size_t room, uint32_t n_ranks,
		    bool (*absent)(void *arg, uint32_t rank), void *arg)
{
	size_t at = 0;

	out[0] = '\0';
	for (uint32_t first = 0; first < n_ranks;) {
		uint32_t end = first;
		char item[32];
		size_t n;

		while (end < n_ranks && absent(arg, end))
			end++;
		if (end == first) {
			first++;
			continue;
		}
		if (end - first > 2)
			snprintf(item, sizeof item, "%s%u-%u", at ? ", " : "", first, end - 1);
		else if (end - first == 2)
			snprintf(item, sizeof item, "%s%u, %u", at ? ", " : "", first, end - 1);
		else
			snprintf(item, sizeof item, "%s%u", at ? ", " : "", first);
		n = strlen(item);
		if (at + n + sizeof ", ..." > room) {
			memcpy(out + at, ", ...", spri_countof(", ..."));
			return;
		}
		memcpy(out + at, item, n + 1);
		at += n;
		first = end;
	}
}

void spri_star_address(char *out, size_t room, const void *sockaddr, unsigned sockaddr_bytes)
{
	const struct sockaddr *address = sockaddr;
	char host[64], port[16];

	if (getnameinfo(address, sockaddr_bytes, host, sizeof host, port, sizeof port,
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(out, room, "an unknown address");
	else if (address->sa_family == AF_INET6)
		snprintf(out, room, "[%s]:%s", host, port);
	else
		snprintf(out, room, "%s:%s", host, port);
}
