/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The network inside this machine; the contract is in netbed.h.
 *
 * Path: make one anonymous namespace for the bridge and one per rank and hold their descriptors;
 * then run `ip` and `tc` in them: a veth pair per rank, one end on the bridge, addresses, a token
 * bucket (tbf) on both ends. The bucket holds 32 KB, so that no more than a quarter of a
 * millisecond of 1 Gbit/s is won by a burst; segments that the kernel builds are kept at half of
 * that, since tbf would have to cut larger ones up. The queue takes 20 ms, so that TCP finds the
 * rate without losing packets all the time.
 * Failures: the first command that fails is shown with its error, and everything is let go.
 */
#include "netbed.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BURST_BYTES 32000
#define SEGMENT_BYTES 16000
#define QUEUE_SECONDS 0.02
#define QUEUE_BYTES_MIN (256 * 1024)

struct perf_netbed {
	const char *tool; /* name for messages; borrowed for life */
	int n_ranks;
	char shape[96]; /* tbf's parameters */
	int bridge_fd;	/* namespace of the bridge, owned */
	int *rank_fds;	/* n_ranks namespaces, owned; -1: not made */
};

/* A new namespace, held by a descriptor alone. Returns it, or -1 with a message. */
static int namespace_create(const char *tool)
{
	int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int fd = -1, back;

	if (own >= 0 && unshare(CLONE_NEWNET) == 0) {
		fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		back = setns(own, CLONE_NEWNET);
		if (back < 0 && fd >= 0) {
			close(fd);
			fd = -1;
		}
	}
	if (fd < 0)
		fprintf(stderr, "%s: netbed: cannot make a network namespace: %s\n", tool,
			strerror(errno));
	if (own >= 0)
		close(own);
	return fd;
}

/* The child: becomes the command, inside the namespace. */
static void become(int namespace_fd, char *const argv[], int error_fd)
{
	const char *path = getenv("PATH");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char *wide;

	if (setns(namespace_fd, CLONE_NEWNET) < 0 || null < 0 || dup2(null, 0) < 0 ||
	    dup2(null, 1) < 0 || dup2(error_fd, 2) < 0)
		_exit(127);
	if (asprintf(&wide, "%s:/usr/sbin:/sbin", path ? path : "/usr/bin:/bin") >= 0)
		setenv("PATH", wide, 1);
	execvp(argv[0], argv);
	dprintf(2, "cannot run %s: %s (Debian package iproute2)", argv[0], strerror(errno));
	_exit(127);
}

/*
 * Runs the words of `line` (cut at single blanks) in a namespace. Returns 0, or -1 with a
 * message.
 */
static int command(const struct perf_netbed *netbed, int namespace_fd, const char *line)
{
	char copy[320], said[400] = "", *words[40], *save = NULL;
	size_t n = 0, got = 0;
	int fds[2], status = 0;
	pid_t pid;

	snprintf(copy, sizeof copy, "%s", line);
	for (char *w = strtok_r(copy, " ", &save); w && n + 1 < spri_countof(words);
	     w = strtok_r(NULL, " ", &save))
		words[n++] = w;
	words[n] = NULL;
	if (pipe2(fds, O_CLOEXEC) < 0) {
		fprintf(stderr, "%s: netbed: pipe: %s\n", netbed->tool, strerror(errno));
		return -1;
	}
	pid = fork();
	if (pid == 0)
		become(namespace_fd, words, fds[1]);
	close(fds[1]);
	while (pid > 0 && got + 1 < sizeof said) {
		ssize_t r = read(fds[0], said + got, sizeof said - 1 - got);

		if (r > 0)
			got += (size_t)r;
		else if (r == 0 || errno != EINTR)
			break;
	}
	close(fds[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	while (got && (said[got - 1] == '\n' || said[got - 1] == ' '))
		said[--got] = '\0';
	fprintf(stderr, "%s: netbed: '%s' failed: %s\n", netbed->tool, line,
		got ? said : "no reason given");
	return -1;
}

/* printf, then command. */
static int commandf(const struct perf_netbed *netbed, int namespace_fd, const char *format, ...)
	SPRI_PRINTF(3, 4);
static int commandf(const struct perf_netbed *netbed, int namespace_fd, const char *format, ...)
{
	char line[320];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof line, format, ap);
	va_end(ap);
	return command(netbed, namespace_fd, line);
}

/* One rank's link. Short-circuits at the first failure. */
static int rank_link(struct perf_netbed *netbed, int rank)
{
	int bridge = netbed->bridge_fd, own = namespace_create(netbed->tool);

	netbed->rank_fds[rank] = own;
	if (own < 0)
		return -1;
	if (commandf(netbed, bridge,
		     "ip link add port%d type veth peer name eth0 netns /proc/%d/fd/%d", rank,
		     (int)getpid(), own) < 0 ||
	    commandf(netbed, bridge,
		     "ip link set port%d gso_max_size %d gro_max_size %d master bridge up", rank,
		     SEGMENT_BYTES, SEGMENT_BYTES) < 0 ||
	    commandf(netbed, bridge, "tc qdisc add dev port%d root tbf %s", rank, netbed->shape) <
		    0 ||
	    commandf(netbed, own, "ip link set lo up") < 0 ||
	    commandf(netbed, own, "ip address add 10.87.0.%d/24 dev eth0", rank + 1) < 0 ||
	    commandf(netbed, own, "ip link set eth0 gso_max_size %d gro_max_size %d up",
		     SEGMENT_BYTES, SEGMENT_BYTES) < 0 ||
	    commandf(netbed, own, "tc qdisc add dev eth0 root tbf %s", netbed->shape) < 0)
		return -1;
	return 0;
}

int perf_netbed_create(const char *tool, int n_ranks, double bytes_per_s, struct perf_netbed **out)
{
	double queue = bytes_per_s * QUEUE_SECONDS;
	struct perf_netbed *netbed;

	assert(n_ranks >= 1 && n_ranks <= PERF_NETBED_MAX_RANKS);
	if (geteuid() != 0) {
		fprintf(stderr,
			"%s: --netbed makes network namespaces and needs root; run it as root, or "
			"leave it "
			"out to use 127.0.0.1\n",
			tool);
		return -1;
	}
	netbed = calloc(1, sizeof *netbed);
	if (!netbed)
		goto out_of_memory;
	netbed->tool = tool;
	netbed->n_ranks = n_ranks;
	netbed->bridge_fd = -1;
	netbed->rank_fds = malloc((size_t)n_ranks * sizeof *netbed->rank_fds);
	if (!netbed->rank_fds)
		goto out_of_memory;
	for (int i = 0; i < n_ranks; i++)
		netbed->rank_fds[i] = -1;
	if (queue < QUEUE_BYTES_MIN)
		queue = QUEUE_BYTES_MIN;
	snprintf(netbed->shape, sizeof netbed->shape, "rate %.0fbit burst %d limit %.0f",
		 bytes_per_s * 8, BURST_BYTES, queue + BURST_BYTES);
	netbed->bridge_fd = namespace_create(tool);
	if (netbed->bridge_fd < 0 ||
	    command(netbed, netbed->bridge_fd, "ip link add bridge type bridge") < 0 ||
	    command(netbed, netbed->bridge_fd, "ip link set bridge up") < 0)
		goto destroy;
	for (int rank = 0; rank < n_ranks; rank++)
		if (rank_link(netbed, rank) < 0)
			goto destroy;
	*out = netbed;
	return 0;

out_of_memory:
	fprintf(stderr, "%s: netbed: %s\n", tool, strerror(ENOMEM));
destroy:
	perf_netbed_destroy(netbed);
	return -1;
}

int perf_netbed_namespace(const struct perf_netbed *netbed, int rank)
{
	assert(rank >= 0 && rank < netbed->n_ranks);
	return netbed->rank_fds[rank];
}

void perf_netbed_destroy(struct perf_netbed *netbed)
{
	if (!netbed)
		return;
	for (int i = 0; netbed->rank_fds && i < netbed->n_ranks; i++)
		if (netbed->rank_fds[i] >= 0)
			close(netbed->rank_fds[i]);
	if (netbed->bridge_fd >= 0)
		close(netbed->bridge_fd);
	free(netbed->rank_fds);
	free(netbed);
}
