/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * How the two ends of a point-to-point tool find each other.
 *
 *   1. the server listens at its port; SPR_RANK, SPR_SIZE and SPR_ROOT say so to the library
 *   2. a communicator of the two is made; each tells the other its options, its address, and a
 *      grant of its landing area for each endpoint
 *   3. the options that must agree are compared; the communicator is given up
 *   4. endpoints connect, the client being active
 *
 * Failures: a port in use, no server or client in time, options that differ, memory that cannot
 * be had: one line on stderr, at the other end too where it is still there.
 */
#include "ptp.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define COMM_LANDING (1u << 20) /* the communicator moves a few kilobytes */
#define CLOSE_NS 2000000000ull
#define AGREED 12

/* An option that has to be the same at both ends. */
struct agreed {
	char name[16];
	char value[24];
};

/* What one end tells the other. Both are the same program. */
struct told {
	char tool[24];
	char version[16];
	char transport[16];
	struct agreed agreed[AGREED];
	int32_t status; /* of getting ready to connect */
	struct spr_endpoint_address address;
	struct spr_remote remotes[PTP_MAX_QPS];
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

bool ptp_stopped(void)
{
	return stopped;
}

static void watch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void on_log(void *arg, enum spr_log_level level, const char *text)
{
	const struct ptp_link *link = arg;

	/* errors are told where they end the tool, but a context that was not opened has no text */
	if (level == SPR_LOG_WARN || getenv("SPR_LOG") || !link->context)
		fprintf(stderr, "%s: %s\n", link->config->tool, text);
}

/* ---- the meeting's environment ---- */

/* Listens at the port on every address. Returns the descriptor, -1 with a message. */
static int listen_at(const struct ptp_config *config)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
				  .sin6_port = htons((uint16_t)config->port)};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)config->port)};
	const struct sockaddr *address = (const struct sockaddr *)&v6;
	socklen_t bytes = sizeof v6;
	int one = 1, zero = 0, error;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		address = (const struct sockaddr *)&v4;
		bytes = sizeof v4;
	} else {
		(void)!setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	}
	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
	    bind(fd, address, bytes) == 0 && listen(fd, 4) == 0)
		return fd;
	error = errno;
	if (fd >= 0)
		close(fd);
	return ptp_fail(config, "listening at port %u: %s (-p chooses another)",
			(unsigned)config->port, strerror(error));
}

static int set(const struct ptp_config *config, const char *name, const char *value)
{
	if (value ? setenv(name, value, 1) : unsetenv(name))
		return ptp_fail(config, "%s: %s", name, strerror(errno));
	return 0;
}

/* *fd: the server's listening socket, else -1. */
static int set_environment(const struct ptp_config *config, int *fd)
{
	bool v6 = config->host && strchr(config->host, ':') && config->host[0] != '[';
	char root[300], number[16];

	*fd = -1;
	if (set(config, "SPR_SIZE", "2") || set(config, "SPR_RANK", config->host ? "1" : "0"))
		return -1;
	if (!config->host) {
		*fd = listen_at(config);
		snprintf(number, sizeof number, "%d", *fd);
		if (*fd < 0 || set(config, "SPR_ROOT_FD", number))
			return -1;
		return set(config, "SPR_ROOT", NULL);
	}
	if (snprintf(root, sizeof root, v6 ? "[%s]:%u" : "%s:%u", config->host,
		     (unsigned)config->port) >= (int)sizeof root)
		return ptp_fail(config, "the host's name is too long");
	if (set(config, "SPR_ROOT", root))
		return -1;
	return set(config, "SPR_ROOT_FD", NULL);
}

static void note_transport(void *arg, const struct spr_info_row *row)
{
	if (row->chosen)
		snprintf(arg, sizeof((struct told *)NULL)->transport, "%s", row->name);
}

/* ---- what they tell each other ---- */

static void SPRI_PRINTF(4, 5)
	add(struct told *told, unsigned *n, const char *name, const char *format, ...)
{
	struct agreed *a = &told->agreed[(*n)++];
	va_list ap;

	assert(*n <= AGREED);
	snprintf(a->name, sizeof a->name, "%s", name);
	va_start(ap, format);
	vsnprintf(a->value, sizeof a->value, format, ap);
	va_end(ap);
}

static void tell(const struct ptp_config *c, struct told *told)
{
	unsigned n = 0;

	snprintf(told->tool, sizeof told->tool, "%s", c->tool);
	snprintf(told->version, sizeof told->version, "%s", spr_version());
	add(told, &n, "-a", "%s", c->all ? "given" : "not given");
	add(told, &n, "-s", "%llu", (unsigned long long)c->size);
	add(told, &n, "-D", "%llu", (unsigned long long)c->seconds);
	add(told, &n, "-n", "%llu", (unsigned long long)c->iterations);
	add(told, &n, "-q", "%llu", (unsigned long long)c->n_qps);
	add(told, &n, "-b", "%s", c->bidirectional ? "given" : "not given");
	if (c->kind != PTP_CHUNK)
		return;
	add(told, &n, "-t", "%llu", (unsigned long long)c->tx_depth);
	add(told, &n, "--codec", "%s", c->codec);
	add(told, &n, "--density", "%.17g", c->density);
	add(told, &n, "--chunk", "%llu", (unsigned long long)c->chunk);
	add(told, &n, "--seed", "%llu", (unsigned long long)c->seed);
}

/* Names every option that differs. */
static int compare(const struct ptp_config *config, const struct told *mine,
		   const struct told *theirs)
{
	const char *other = config->host ? "server" : "client";
	int r = 0;

	if (memcmp(mine->tool, theirs->tool, sizeof mine->tool))
		return ptp_fail(config, "the %s is %.23s, not %s", other, theirs->tool,
				config->tool);
	if (memcmp(mine->version, theirs->version, sizeof mine->version))
		return ptp_fail(config, "the %s is of version %.15s, this is %s", other,
				theirs->version, mine->version);
	for (unsigned i = 0; i < AGREED && mine->agreed[i].name[0]; i++)
		if (memcmp(mine->agreed[i].value, theirs->agreed[i].value,
			   sizeof mine->agreed[i].value))
			r = ptp_fail(config,
				     "%s must be the same at both ends: %s here, %.23s at the %s",
				     mine->agreed[i].name, mine->agreed[i].value,
				     theirs->agreed[i].value, other);
	if (r == 0 && theirs->status)
		r = ptp_fail(config, "the %s could not get ready: %s", other,
			     spr_strerror(theirs->status));
	return r;
}

/* ---- memory and endpoints ---- */

/* Areas, endpoints and grants. Returns 0 or the library's status, with a message. */
static int prepare(struct ptp_link *link, struct told *told)
{
	int r = ptp_area_open(link);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < link->config->n_qps && r == 0; i++) {
		r = spr_endpoint_create(link->context, &link->ends[i].endpoint);
		link->n_ends += r == 0;
		if (r == 0)
			r = spr_endpoint_grant(link->ends[i].endpoint, link->landing_memory,
					       &told->remotes[i]);
	}
	if (r == 0)
		r = spr_endpoint_address(link->context, &told->address);
	if (r < 0)
		(void)!ptp_fail(link->config, "an endpoint: %s; %s", spr_strerror(r),
				spr_context_error(link->context));
	return r;
}

/* Endpoints connect to the peer's, in order. */
static int connect_all(struct ptp_link *link, const struct told *theirs)
{
	const char *label = link->config->host ? "the server" : "the client";
	int r = 0;

	for (unsigned i = 0; i < link->n_ends && r == 0; i++) {
		link->ends[i].remote = theirs->remotes[i];
		r = spr_endpoint_connect(link->ends[i].endpoint, &theirs->address, i + 1,
					 link->config->host != NULL, label);
		if (r < 0)
			return ptp_fail(link->config, "connecting: %s", spr_strerror(r));
	}
	link->sleeps = true;
	for (unsigned i = 0; i < link->n_ends && r == 0; i++)
		while (r == 0 && !link->ends[i].connected) {
			r = ptp_poll(link, i);
			if (r == 0)
				r = ptp_idle(link, i);
			r = r < 0 ? r : 0;
		}
	link->sleeps = link->config->events;
	return r;
}

/* Tells, compares, connects. */
static int introduce(struct ptp_link *link, struct spr_comm *comm)
{
	const struct ptp_config *config = link->config;
	struct told *told = calloc(3, sizeof *told), *mine = told, *all = told + 1;
	const struct told *theirs = &all[config->host ? 0 : 1];
	int r;

	if (!told)
		return ptp_fail(config, "out of memory");
	tell(config, mine);
	snprintf(mine->transport, sizeof mine->transport, "%s", link->transport);
	mine->status = prepare(link, mine);
	r = spr_comm_allgather(comm, mine, all, sizeof *mine);
	if (r < 0)
		r = ptp_fail(config, "exchanging addresses: %s", spr_comm_error(comm));
	else
		r = compare(config, mine, theirs);
	if (r == 0 && mine->status)
		r = -1;
	/* the library goes back to tcp where one end has no verbs */
	if (r == 0 && !memcmp(theirs->transport, "tcp", 4))
		snprintf(link->transport, sizeof link->transport, "tcp");
	if (r == 0)
		r = connect_all(link, theirs);
	free(told);
	return r;
}

int ptp_link_open(struct ptp_link *link, const struct ptp_config *config, size_t bytes)
{
	struct spr_context_options options = {.size = sizeof options,
					      .timeout_ns = (uint64_t)(config->timeout_s * 1e9),
					      .landing_bytes = COMM_LANDING,
					      .log = on_log,
					      .log_arg = link};
	struct spr_comm *comm = NULL;
	int fd = -1, r;

	*link = (struct ptp_link){.config = config, .area_bytes = PTP_HEAD_BYTES + bytes};
	if (set_environment(config, &fd))
		return -1;
	if (config->transport && strcmp(config->transport, "auto"))
		snprintf(link->transport, sizeof link->transport, "%s", config->transport);
	else
		(void)!spr_info_list(SPR_INFO_TRANSPORTS, note_transport, link->transport);
	r = spr_context_open(&options, &link->context);
	if (r < 0) {
		r = ptp_fail(config, "opening: %s", spr_strerror(r));
	} else {
		r = spr_comm_create(link->context, NULL, &comm);
		watch_signals();
		if (r < 0)
			r = ptp_fail(config, "%s %s, port %u: %s", "meeting",
				     config->host ? config->host : "a client",
				     (unsigned)config->port, spr_context_error(link->context));
	}
	if (fd >= 0)
		close(fd);
	if (r == 0)
		r = introduce(link, comm);
	spr_comm_destroy(comm);
	return r;
}

void ptp_link_close(struct ptp_link *link, bool success)
{
	uint64_t until = ptp_now() + CLOSE_NS;

	link->closing = true;
	for (unsigned i = 0; i < link->n_ends; i++)
		spr_endpoint_close(link->ends[i].endpoint);
	for (unsigned i = 0; i < link->n_ends; i++)
		while (ptp_now() < until && (!spr_endpoint_closed(link->ends[i].endpoint) ||
					     (success && !link->ends[i].closed)))
			if (ptp_poll(link, i) < 0 ||
			    (spr_endpoint_wait(link->ends[i].endpoint,
					       spr_context_now_ns(link->context) + 10000000) < 0 &&
			     ptp_stopped()))
				break;
	for (unsigned i = 0; i < link->n_ends; i++)
		spr_endpoint_destroy(link->ends[i].endpoint);
	spr_memory_unregister(link->source_memory);
	spr_memory_unregister(link->landing_memory);
	ptp_area_close(link);
	spr_context_close(link->context);
	*link = (struct ptp_link){0};
}
