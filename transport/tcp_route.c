/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * How tcp would reach a peer, for listings: the kernel is asked for its route by connecting a
 * datagram socket, which sends nothing. Failures: no route is a row that says so.
 */
#include "transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define INTERFACES 256

/* Reads a numeric address. Returns its family, 0 when it is none. */
static int read_host(const char *host, struct sockaddr_storage *out, socklen_t *bytes)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof *out);
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_port = htons(1);
		*bytes = sizeof *v4;
		return out->ss_family = AF_INET;
	}
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_port = htons(1);
		*bytes = sizeof *v6;
		return out->ss_family = AF_INET6;
	}
	return 0;
}

/* The source address that the kernel takes. Returns 0, negative errno. */
static int ask_kernel(const struct sockaddr_storage *to, socklen_t bytes, struct spri_route *out)
{
	struct sockaddr_storage from = {0};
	socklen_t n = sizeof from;
	int fd = socket(to->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = 0;
	const void *host;

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)to, bytes) < 0 ||
	    getsockname(fd, (struct sockaddr *)&from, &n) < 0)
		r = -errno;
	close(fd);
	host = from.ss_family == AF_INET ? (const void *)&((struct sockaddr_in *)&from)->sin_addr
					 : (const void *)&((struct sockaddr_in6 *)&from)->sin6_addr;
	if (r == 0 && !inet_ntop(from.ss_family, host, out->from, sizeof out->from))
		r = -errno;
	return r;
}

int spri_tcp_route(const char *interfaces, const char *host, struct spri_route *out,
		   struct spri_text *text)
{
	struct spri_interface rows[INTERFACES];
	struct sockaddr_storage to;
	socklen_t bytes = 0;
	int n, r;

	memset(out, 0, sizeof *out);
	if (!read_host(host, &to, &bytes)) {
		spri_text_set(text, "'%s' is no numeric address", host);
		return SPR_EARGUMENT;
	}
	n = spri_interfaces(interfaces, rows, INTERFACES, text);
	if (n < 0)
		return n;
	r = ask_kernel(&to, bytes, out);
	if (r < 0) {
		snprintf(out->text, sizeof out->text, "%s", spr_strerror(r));
		return 0;
	}
	out->usable = true;
	snprintf(out->via, sizeof out->via, "?");
	for (int i = 0; i < n && i < INTERFACES; i++) {
		if (strcmp(rows[i].address, out->from) != 0)
			continue;
		snprintf(out->via, sizeof out->via, "%s", rows[i].name);
		if (!rows[i].used)
			snprintf(out->text, sizeof out->text,
				 "the kernel's route; tcp listens elsewhere (%.40s)",
				 rows[i].reason);
	}
	return 0;
}
