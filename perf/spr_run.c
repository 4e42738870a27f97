/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_run: starts the ranks of a job on this machine.
 *
 * Path: bind the meeting place (a listening socket that rank 0 inherits, so that no port can be
 * lost in between) or build the netbed; start a guard, then the ranks, each in a process group of
 * its own; then one loop over the ends of ranks, their output and signals, until all have ended.
 * Failures: the first rank that fails gives the exit status and the others are ended (SIGTERM,
 * after 2 s SIGKILL); so do a signal (forwarded; status 128 + signal), the timeout (124) and a
 * broken output pipe (141). When spr_run itself is killed, the kernel kills the ranks and the
 * guard what they started.
 */
#include "netbed.h"
#include "options.h"
#include "run_rank.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS 1024
#define STATUS_TIMEOUT 124 /* as timeout(1) */
#define STATUS_OWN 125	   /* spr_run could not do its part */
#define TERM_NS 2000000000u
#define DRAIN_NS 1000000000u
#define NEVER UINT64_MAX

struct run {
	struct run_plan plan;
	struct run_rank *ranks;	    /* owned, plan.n_ranks */
	struct perf_netbed *netbed; /* owned; NULL: none */
	pid_t guard_pid;
	int guard_fd;	  /* owned */
	int signal_fd;	  /* owned */
	int status;	  /* what spr_run will return; 0 while all is well */
	bool by_exit;	  /* it is that of a rank that ended by itself */
	bool killing;	  /* SIGKILL was sent */
	bool ending;	  /* the ranks were told to end */
	uint64_t end_at;  /* when they are told; NEVER */
	uint64_t kill_at; /* when SIGKILL follows; NEVER */
	uint64_t timeout_at;
	uint64_t grace_ns;
	struct pollfd *polls; /* owned, 1 + 3 per rank */
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void signal_all(const struct run *run, int signal)
{
	for (int i = 0; i < run->plan.n_ranks; i++)
		run_rank_signal(&run->ranks[i], signal);
}

/* Begins the end: `signal` now, SIGKILL after two seconds. */
static void end_all(struct run *run, int signal)
{
	run->ending = true;
	run->end_at = NEVER;
	run->kill_at = now_ns() + TERM_NS;
	signal_all(run, signal);
}

/* Starts every rank. On failure the status is set, and what runs is left to the caller. */
static void start_all(struct run *run)
{
	for (int i = 0; i < run->plan.n_ranks; i++) {
		int namespace_fd = run->netbed ? perf_netbed_namespace(run->netbed, i) : -1;
		const char *what;
		int error = run_rank_start(&run->ranks[i], &run->plan, namespace_fd, &what);

		if (error) {
			fprintf(stderr, "spr_run: rank %d: cannot %s '%s': %s\n", i, what,
				run->plan.argv[0], strerror(error));
			run->status = error == ENOENT			    ? 127
				      : error == EACCES || error == ENOEXEC ? 126
									    : STATUS_OWN;
			return;
		}
		run_guard_add(run->guard_fd, run->ranks[i].pid);
		if (i == 0 && run->plan.root_fd >= 0) {
			close(run->plan.root_fd);
			run->plan.root_fd = -1;
		}
	}
}

static void rank_ended(struct run *run, struct run_rank *rank)
{
	const char *then = run->plan.n_ranks == 1 ? ""
			   : run->grace_ns	  ? "; the others may finish"
						  : "; ending the others";

	/*
	 * A killed rank's sockets close before its process ends, so that others may fail and be
	 * seen first: it takes the place of their status. (What this program sends first is
	 * SIGTERM.)
	 */
	bool cause = run->by_exit && !run->killing && rank->status > 128 &&
		     rank->status != 128 + SIGTERM;

	if (rank->status == 0 || (!cause && (run->status || run->ending)))
		return;
	run->status = rank->status;
	run->by_exit = rank->status <= 128;
	if (rank->status > 128)
		fprintf(stderr, "spr_run: rank %d (pid %d) was killed by signal %d (%s)%s\n",
			rank->rank, (int)rank->pid, rank->status - 128,
			strsignal(rank->status - 128), then);
	else
		fprintf(stderr, "spr_run: rank %d (pid %d) ended with status %d%s\n", rank->rank,
			(int)rank->pid, rank->status, then);
	if (run->end_at == NEVER)
		run->end_at = now_ns() + run->grace_ns;
}

static void take_signal(struct run *run)
{
	struct signalfd_siginfo info;

	if (read(run->signal_fd, &info, sizeof info) != sizeof info)
		return;
	if (run->ending) { /* asked twice */
		run->killing = true;
		signal_all(run, SIGKILL);
		return;
	}
	if (!run->status)
		run->status = 128 + (int)info.ssi_signo;
	end_all(run, (int)info.ssi_signo);
}

/* Output that cannot be written any more ends the run, as SIGPIPE would. */
static void read_stream(struct run *run, struct run_stream *stream, int rank)
{
	if (run_stream_read(stream, rank) == 0)
		return;
	if (!run->status)
		run->status = 128 + SIGPIPE;
	if (!run->ending)
		end_all(run, SIGTERM);
}

/*
 * Who has ended? Of those seen at once the killed come first: that a rank was killed is why the
 * others fail.
 */
static void look_at_all(struct run *run)
{
	for (int i = 0; i < run->plan.n_ranks; i++)
		run_rank_look(&run->ranks[i]);
	for (int killed = 1; killed >= 0; killed--)
		for (int i = 0; i < run->plan.n_ranks; i++)
			if (run->ranks[i].ended && (run->ranks[i].status > 128) == killed)
				rank_ended(run, &run->ranks[i]);
}

static void add_poll(struct run *run, nfds_t *n, int fd)
{
	if (fd >= 0)
		run->polls[(*n)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* Waits for the next event, at most until `until`, and handles what there is. */
static void wait_once(struct run *run, uint64_t until)
{
	uint64_t now = now_ns();
	uint64_t left_ms = until == NEVER ? 60000 : until <= now ? 0 : (until - now) / 1000000 + 1;
	bool some_ended = false;
	nfds_t n = 0;

	/* only what is open: poll refuses more entries than there may be descriptors */
	run->polls[n++] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
	for (int i = 0; i < run->plan.n_ranks; i++) {
		add_poll(run, &n, run->ranks[i].pid_fd);
		for (int s = 0; s < 2; s++)
			add_poll(run, &n, run->ranks[i].streams[s].fd);
	}
	if (poll(run->polls, n, left_ms > 60000 ? 60000 : (int)left_ms) <= 0)
		return;
	n = 1;
	for (int i = 0; i < run->plan.n_ranks; i++) {
		bool open[2] = {run->ranks[i].streams[0].fd >= 0, run->ranks[i].streams[1].fd >= 0};

		if (run->ranks[i].pid_fd >= 0)
			some_ended = run->polls[n++].revents || some_ended;
		for (int s = 0; s < 2; s++)
			if (open[s] && run->polls[n++].revents)
				read_stream(run, &run->ranks[i].streams[s], i);
	}
	if (some_ended)
		look_at_all(run);
	if (run->polls[0].revents)
		take_signal(run);
}

/* Acts on the times that have come. Returns the next one. */
static uint64_t check_times(struct run *run)
{
	uint64_t now = now_ns();

	if (now >= run->timeout_at && !run->ending) {
		fprintf(stderr, "spr_run: the time is over; ending all ranks\n");
		run->status = STATUS_TIMEOUT;
		end_all(run, SIGTERM);
	}
	if (now >= run->end_at && !run->ending)
		end_all(run, SIGTERM);
	if (now >= run->kill_at) {
		run->killing = true;
		signal_all(run, SIGKILL);
		run->kill_at = NEVER;
	}
	if (run->ending)
		return run->kill_at;
	return run->end_at < run->timeout_at ? run->end_at : run->timeout_at;
}

static bool all_ended(const struct run *run)
{
	for (int i = 0; i < run->plan.n_ranks; i++)
		if (run->ranks[i].pid && !run->ranks[i].ended)
			return false;
	return true;
}

static bool streams_open(const struct run *run)
{
	for (int i = 0; i < run->plan.n_ranks; i++)
		if (run->ranks[i].streams[0].fd >= 0 || run->ranks[i].streams[1].fd >= 0)
			return true;
	return false;
}

/* From the first rank's start to the last one's end. */
static void run_all(struct run *run)
{
	uint64_t drain;

	start_all(run);
	if (run->status)
		end_all(run, SIGKILL);
	while (!all_ended(run))
		wait_once(run, check_times(run));
	signal_all(run, SIGKILL); /* what ranks left in their groups */
	drain = now_ns() + DRAIN_NS;
	while (streams_open(run) && now_ns() < drain)
		wait_once(run, drain);
	for (int i = 0; i < run->plan.n_ranks; i++)
		run_rank_reap(&run->ranks[i]);
}

/* A listening socket on 127.0.0.1; its address goes to `text`. Returns it or -1. */
static int listen_here(char *text, size_t size)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(fd, SOMAXCONN) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &length) < 0) {
		fprintf(stderr, "spr_run: cannot listen on 127.0.0.1: %s\n", strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	snprintf(text, size, "127.0.0.1:%d", ntohs(address.sin_port));
	return fd;
}

/*
 * Signals to the descriptor, more descriptors, memory, the guard. Returns 0 or -1 with a message.
 */
static int prepare(struct run *run)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct rlimit limit;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < spri_countof(signals); i++)
		sigaddset(&set, signals[i]);
	run->guard_fd = run->signal_fd = -1;
	run->ranks = calloc((size_t)run->plan.n_ranks, sizeof *run->ranks);
	run->polls = calloc(1 + 3 * (size_t)run->plan.n_ranks, sizeof *run->polls);
	if (!run->ranks || !run->polls) {
		fprintf(stderr, "spr_run: %s\n", strerror(ENOMEM));
		return -1;
	}
	for (int i = 0; i < run->plan.n_ranks; i++) {
		run->ranks[i].rank = i;
		run->ranks[i].pid_fd = run->ranks[i].streams[0].fd = run->ranks[i].streams[1].fd =
			-1;
	}
	getrlimit(RLIMIT_NOFILE, &run->plan.n_files);
	limit = run->plan.n_files;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, &run->plan.mask);
	run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	run->guard_fd = run->signal_fd < 0 ? -1 : run_guard_start(&run->guard_pid);
	if (run->guard_fd < 0) {
		fprintf(stderr, "spr_run: cannot start: %s\n", strerror(errno));
		return -1;
	}
	return 0;
}

static void finish(struct run *run)
{
	if (run->guard_fd >= 0)
		run_guard_stop(run->guard_fd, run->guard_pid);
	if (run->signal_fd >= 0)
		close(run->signal_fd);
	if (run->plan.root_fd >= 0)
		close(run->plan.root_fd);
	perf_netbed_destroy(run->netbed);
	free(run->ranks);
	free(run->polls);
}

static const char epilog[] =
	"Each rank finds SPR_RANK, SPR_SIZE, SPR_LOCAL_RANK, SPR_LOCAL_SIZE and "
	"SPR_ROOT in its environment, and\n"
	"/dev/null as its input; outside a netbed also SPR_TCP_IF=lo, unless that "
	"is set or RDMA is asked for.\n"
	"Exit status: that of the first rank that fails (128 + signal when it "
	"was killed); the others are then ended.\n"
	"124 when the time is over, 125 when spr_run cannot do its part, 126 "
	"or 127 when PROG cannot be run.\n";

int main(int argc, char **argv)
{
	uint64_t n_ranks = 0;
	double rate = 0, timeout = 0, grace = 0;
	bool tag = false;
	const struct perf_option table[] = {
		{'n', "ranks", PERF_OPT_U64, "P", "how many ranks", &n_ranks, 1, MAX_RANKS},
		{0, "netbed", PERF_OPT_RATE, "RATE",
		 "each rank in a network namespace of its own, on links\nof this rate (1gbit, "
		 "100mbit); needs root",
		 &rate, 8e3, 125e9},
		{0, "timeout", PERF_OPT_DOUBLE, "S", "end all ranks after S seconds, status 124",
		 &timeout, 0.001, 1e6},
		{0, "grace", PERF_OPT_DOUBLE, "S",
		 "after a failure let the others run on for S seconds (0)", &grace, 0, 1e6},
		{0, "tag", PERF_OPT_FLAG, NULL, "put '[rank] ' before each line of output", &tag, 0,
		 0},
	};
	const struct perf_options options = {"spr_run",
					     "Runs P ranks of PROG on this machine.",
					     "-n P [OPTIONS] -- PROG [ARGUMENTS]",
					     epilog,
					     table,
					     spri_countof(table),
					     true};
	struct run run = {
		.plan.root_fd = -1, .end_at = NEVER, .kill_at = NEVER, .timeout_at = NEVER};
	char root[40] = PERF_NETBED_ROOT;
	int first, r;

	r = perf_options_parse(&options, argc, argv, &first);
	if (r)
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	if (!n_ranks)
		return perf_options_refuse(&options, "-n P is missing: how many ranks?"),
		       PERF_EXIT_USAGE;
	if (first == argc)
		return perf_options_refuse(&options, "no program to run; put it behind --"),
		       PERF_EXIT_USAGE;
	if (rate > 0 && n_ranks > PERF_NETBED_MAX_RANKS)
		return perf_options_refuse(&options, "-n is %llu, with --netbed at most %d",
					   (unsigned long long)n_ranks, PERF_NETBED_MAX_RANKS),
		       PERF_EXIT_USAGE;
	run.plan.argv = argv + first;
	run.plan.n_ranks = (int)n_ranks;
	run.plan.tag = tag;
	run.plan.root = root;
	run.grace_ns = (uint64_t)(grace * 1e9);
	run.status = STATUS_OWN;
	if (prepare(&run) == 0 &&
	    (rate == 0 || perf_netbed_create("spr_run", (int)n_ranks, rate, &run.netbed) == 0)) {
		if (rate == 0)
			run.plan.root_fd = listen_here(root, sizeof root);
		if (rate > 0 || run.plan.root_fd >= 0) {
			run.status = 0;
			if (timeout > 0)
				run.timeout_at = now_ns() + (uint64_t)(timeout * 1e9);
			run_all(&run);
		}
	}
	finish(&run);
	return run.status;
}
