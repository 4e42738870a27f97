/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Meeting by the environment: SPR_RANK, SPR_SIZE, and SPR_ROOT (host:port of rank 0), or
 * SPR_ROOT_FD on rank 0, a listening socket that it inherits. Happy path: the variables are
 * read and checked, then a star (star.h) is opened. Failures: SPR_EENVIRONMENT with a text
 * that names the variable, its value and what would be right; those of the star.
 */
#include <bootstrap/bootstrap.h>
#include <internal/env.h>

#include "star.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool fits(const struct spr_context *context, const struct spr_comm_options *options)
{
	(void)context;
	(void)options;
	return spri_env_get(SPRI_ENV_RANK) || spri_env_get(SPRI_ENV_SIZE) ||
	       spri_env_get(SPRI_ENV_ROOT) || spri_env_get(SPRI_ENV_ROOT_FD);
}

/* "host:port", "[v6]:port" to options. */
static int read_root(struct star_options *options, struct spri_text *text)
{
	const char *value = spri_env_get(SPRI_ENV_ROOT), *host = value, *host_end = NULL,
		   *port = NULL;
	char *end = NULL;
	unsigned long number = 0;
	size_t n;

	if (!value) {
		spri_text_set(text,
			      "SPR_ROOT is not set, must be HOST:PORT or [IPV6]:PORT of rank 0 "
			      "(rank %u of %u needs it)",
			      options->rank, options->n_ranks);
		return SPR_EENVIRONMENT;
	}
	if (*value == '[') {
		host = value + 1;
		host_end = strchr(host, ']');
		port = host_end && host_end[1] == ':' ? host_end + 2 : NULL;
	} else {
		host_end = strrchr(value, ':');
		/* Two colons without brackets: an IPv6 address whose port cannot be told apart. */
		port = host_end && strchr(value, ':') == host_end ? host_end + 1 : NULL;
	}
	if (port && *port >= '0' && *port <= '9')
		number = strtoul(port, &end, 10);
	n = host_end ? (size_t)(host_end - host) : 0;
	if (!port || !end || *end || number < 1 || number > 65535 || n == 0 ||
	    n >= sizeof options->host) {
		spri_text_set(text,
			      "SPR_ROOT is '%s', must be HOST:PORT or [IPV6]:PORT with a port from "
			      "1 to 65535",
			      value);
		return SPR_EENVIRONMENT;
	}
	memcpy(options->host, host, n);
	options->host[n] = '\0';
	options->port = (uint16_t)number;
	return 0;
}

/* The inherited descriptor has to be a listening TCP socket. */
static int read_root_fd(struct star_options *options, struct spri_text *text)
{
	int listening = 0, type = 0, domain = 0;
	socklen_t bytes = sizeof listening;
	const char *why = NULL;
	uint64_t fd;
	int r = spri_env_u64(SPRI_ENV_ROOT_FD, 0, INT32_MAX, 0, &fd, text);

	if (r < 0)
		return r;
	if (getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0)
		why = errno == EBADF ? "is not open" : "is not a socket";
	else if (getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
		 type != SOCK_STREAM ||
		 getsockopt((int)fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 ||
		 (domain != AF_INET && domain != AF_INET6))
		why = "is not a TCP socket";
	else if (!listening)
		why = "does not listen";
	if (why) {
		spri_text_set(text,
			      "SPR_ROOT_FD is '%s', must be a listening TCP socket that rank 0 "
			      "inherits: descriptor %d %s",
			      spri_env_get(SPRI_ENV_ROOT_FD), (int)fd, why);
		return SPR_EENVIRONMENT;
	}
	options->listen_fd = (int)fd;
	return 0;
}

static int read_options(struct star_options *options, struct spri_text *text)
{
	uint64_t rank, size;
	bool has_rank = spri_env_get(SPRI_ENV_RANK), has_size = spri_env_get(SPRI_ENV_SIZE);
	int r;

	if (!has_rank || !has_size) {
		spri_text_set(text, "%s is not set, must be %s when %s is",
			      has_rank ? "SPR_SIZE" : "SPR_RANK",
			      has_rank ? "the number of ranks" : "this process's rank",
			      has_rank	 ? "SPR_RANK"
			      : has_size ? "SPR_SIZE"
					 : "SPR_ROOT or SPR_ROOT_FD");
		return SPR_EENVIRONMENT;
	}
	r = spri_env_u64(SPRI_ENV_SIZE, 1, SPR_MAX_RANKS, 1, &size, text);
	if (r == 0)
		r = spri_env_u64(SPRI_ENV_RANK, 0, size - 1, 0, &rank, text);
	if (r < 0)
		return r;
	options->rank = (uint32_t)rank;
	options->n_ranks = (uint32_t)size;
	if (size == 1)
		return 0;
	if (rank == 0 && spri_env_get(SPRI_ENV_ROOT_FD))
		return read_root_fd(options, text);
	return read_root(options, text);
}

static void close_meeting(struct spri_meeting *meeting)
{
	if (meeting->rank == 0)
		spri_star_root_close(meeting);
	else
		spri_star_leaf_close(meeting);
}

static int open_meeting(struct spri_meeting *meeting, struct spr_context *context,
			const struct spr_comm_options *comm_options)
{
	struct star_options options = {.listen_fd = -1};
	int r = read_options(&options, &meeting->text);

	(void)context;
	(void)comm_options;
	if (r < 0)
		return spri_trace(r);
	meeting->rank = options.rank;
	meeting->n_ranks = options.n_ranks;
	r = options.rank == 0 ? spri_star_root_open(meeting, &options)
			      : spri_star_leaf_open(meeting, &options);
	if (r < 0)
		close_meeting(meeting);
	return r;
}

static int allgather(struct spri_meeting *meeting, const void *mine, void *all, size_t bytes)
{
	return meeting->rank == 0 ? spri_star_root_allgather(meeting, mine, all, bytes)
				  : spri_star_leaf_allgather(meeting, mine, all, bytes);
}

const struct spri_bootstrap spri_bootstrap_env = {
	"env", "SPR_RANK, SPR_SIZE and SPR_ROOT", fits, open_meeting, allgather, close_meeting,
};
