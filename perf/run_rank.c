/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One rank of spr_run; the contract is in run_rank.h.
 *
 * Path: fork; the child makes itself a process group, asks the kernel to be killed with its
 * parent, enters its namespace, sets descriptors and environment, and execs; a close-on-exec pipe
 * tells the parent that it did, or which step failed. Ended ranks stay zombies until the very end
 * of the run, so that their pid, and the group of the same number, cannot become somebody else's
 * while signals may still be sent.
 */
#include "run_rank.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child that could not exec tells its parent. */
struct verdict {
	int error;
	int step;
};

enum { STEP_PREPARE, STEP_NAMESPACE, STEP_EXEC };
static const char *const step_texts[] = {"prepare the process", "enter the network namespace",
					 "run"};

static void set_number(const char *name, long value)
{
	char text[24];

	snprintf(text, sizeof text, "%ld", value);
	setenv(name, text, 1);
}

/* Runs in the child; returns only with the verdict on a failure. */
static struct verdict become_rank(const struct run_rank *rank, const struct run_plan *plan,
				  int namespace_fd, const int outputs[2], pid_t parent)
{
	const char *transport;
	int null;

	setpgid(0, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return (struct verdict){errno, STEP_PREPARE};
	if (getppid() != parent)
		_exit(128 + SIGKILL);
	if (namespace_fd >= 0 && setns(namespace_fd, CLONE_NEWNET) < 0)
		return (struct verdict){errno, STEP_NAMESPACE};
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0)
		return (struct verdict){errno, STEP_PREPARE};
	for (int i = 0; i < 2 && plan->tag; i++)
		if (dup2(outputs[i], 1 + i) < 0)
			return (struct verdict){errno, STEP_PREPARE};
	set_number("SPR_RANK", rank->rank);
	set_number("SPR_SIZE", plan->n_ranks);
	set_number("SPR_LOCAL_RANK", rank->rank);
	set_number("SPR_LOCAL_SIZE", plan->n_ranks);
	setenv("SPR_ROOT", plan->root, 1);
	/* All ranks are here: no traffic on a network, unless RDMA was asked for. */
	transport = getenv("SPR_TRANSPORT");
	if (namespace_fd < 0 && !getenv("SPR_RDMA") && (!transport || !strcmp(transport, "tcp")))
		setenv("SPR_TCP_IF", "lo", 0);
	unsetenv("SPR_ROOT_FD");
	if (plan->root_fd >= 0 && rank->rank == 0) {
		if (fcntl(plan->root_fd, F_SETFD, 0) < 0)
			return (struct verdict){errno, STEP_PREPARE};
		set_number("SPR_ROOT_FD", plan->root_fd);
	}
	setrlimit(RLIMIT_NOFILE, &plan->n_files);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &plan->mask, NULL);
	execvp(plan->argv[0], plan->argv);
	return (struct verdict){errno, STEP_EXEC};
}

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Waits for the exec or the verdict. Returns 0 or the error. */
static int await_exec(int fd, const char **what)
{
	struct verdict verdict;
	ssize_t r;

	do
		r = read(fd, &verdict, sizeof verdict);
	while (r < 0 && errno == EINTR);
	if (r != sizeof verdict)
		return 0;
	*what = step_texts[verdict.step];
	return verdict.error;
}

int run_rank_start(struct run_rank *rank, const struct run_plan *plan, int namespace_fd,
		   const char **what)
{
	int fds[6] = {-1, -1, -1, -1, -1, -1}; /* verdict, stdout, stderr: read end, write end */
	pid_t parent = getpid(), pid;
	int error;

	*what = "make pipes for";
	for (int i = 0; i < (plan->tag ? 3 : 1); i++) {
		if (pipe2(fds + 2 * i, O_CLOEXEC) < 0) {
			error = errno;
			goto close_pipes;
		}
	}
	*what = "fork";
	pid = fork();
	if (pid < 0) {
		error = errno;
		goto close_pipes;
	}
	if (pid == 0) {
		int outputs[2] = {fds[3], fds[5]};
		struct verdict verdict = become_rank(rank, plan, namespace_fd, outputs, parent);

		(void)!write(fds[1], &verdict, sizeof verdict);
		_exit(127);
	}
	setpgid(pid, pid); /* both sides do, so that it is done for both */
	close_all(fds + 1, 1);
	error = await_exec(fds[0], what);
	if (error)
		goto reap;
	rank->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (rank->pid_fd < 0) {
		error = errno;
		*what = "watch";
		goto reap;
	}
	fcntl(rank->pid_fd, F_SETFD, FD_CLOEXEC);
	rank->pid = pid;
	for (int i = 0; i < 2 && plan->tag; i++) {
		rank->streams[i].fd = fds[2 + 2 * i];
		rank->streams[i].out_fd = 1 + i;
		fcntl(rank->streams[i].fd, F_SETFL, O_NONBLOCK);
		fds[2 + 2 * i] = -1;
	}
	close_all(fds, spri_countof(fds));
	return 0;

reap:
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
close_pipes:
	close_all(fds, spri_countof(fds));
	return error;
}

void run_rank_look(struct run_rank *rank)
{
	siginfo_t info = {0};

	if (!rank->pid || rank->ended)
		return;
	if (waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOWAIT | WNOHANG) < 0 ||
	    info.si_pid != rank->pid)
		return;
	rank->ended = true;
	rank->status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
	close(rank->pid_fd);
	rank->pid_fd = -1;
}

void run_rank_signal(const struct run_rank *rank, int signal)
{
	if (rank->pid)
		kill(-rank->pid, signal);
}

void run_rank_reap(struct run_rank *rank)
{
	if (rank->pid)
		while (waitpid(rank->pid, NULL, 0) < 0 && errno == EINTR)
			;
	rank->pid = 0;
	if (rank->pid_fd >= 0)
		close(rank->pid_fd);
	rank->pid_fd = -1;
	for (int i = 0; i < 2; i++)
		if (rank->streams[i].fd >= 0)
			close(rank->streams[i].fd);
	rank->streams[0].fd = rank->streams[1].fd = -1;
}

/* Writes all of it. Returns 0 or errno. */
static int put(int fd, const char *data, size_t n)
{
	while (n) {
		ssize_t r = write(fd, data, n);

		if (r < 0 && errno != EINTR)
			return errno;
		if (r > 0) {
			data += r;
			n -= (size_t)r;
		}
	}
	return 0;
}

/* One line, or the next part of a very long one, in a single write. */
static int put_line(struct run_stream *stream, int rank, const char *text, size_t n, bool complete)
{
	char out[sizeof stream->line + 32];
	size_t at = 0;

	if (!stream->open)
		at = (size_t)snprintf(out, sizeof out, "[%d] ", rank);
	memcpy(out + at, text, n);
	at += n;
	if (complete)
		out[at++] = '\n';
	stream->open = !complete;
	return put(stream->out_fd, out, at);
}

int run_stream_read(struct run_stream *stream, int rank)
{
	ssize_t got =
		read(stream->fd, stream->line + stream->used, sizeof stream->line - stream->used);
	size_t start = 0;
	int error = 0;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (got > 0)
		stream->used += (size_t)got;
	while (!error) {
		char *end = memchr(stream->line + start, '\n', stream->used - start);

		if (!end)
			break;
		error = put_line(stream, rank, stream->line + start,
				 (size_t)(end - stream->line) - start, true);
		start = (size_t)(end - stream->line) + 1;
	}
	if (start == 0 && stream->used == sizeof stream->line &&
	    !error) { /* longer than the buffer */
		error = put_line(stream, rank, stream->line, stream->used, false);
		start = stream->used;
	}
	memmove(stream->line, stream->line + start, stream->used - start);
	stream->used -= start;
	if (got > 0)
		return error;
	if ((stream->used || stream->open) && !error) /* the last line lacks its end */
		error = put_line(stream, rank, stream->line, stream->used, true);
	stream->used = 0;
	close(stream->fd);
	stream->fd = -1;
	return error;
}

/* The guard's life: learn groups until the pipe ends; a 0 says that all is well. */
static void guard(int fd)
{
	pid_t *groups = NULL, message;
	size_t n = 0;

	while (read(fd, &message, sizeof message) == sizeof message) {
		pid_t *more;

		if (message == 0)
			_exit(0);
		more = realloc(groups, (n + 1) * sizeof *groups);
		if (!more)
			break;
		groups = more;
		groups[n++] = message;
	}
	for (size_t i = 0; i < n; i++)
		kill(-groups[i], SIGKILL);
	_exit(0);
}

int run_guard_start(pid_t *pid)
{
	int fds[2], null;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	*pid = fork();
	if (*pid == 0) {
		sigset_t all;

		setpgid(0, 0);
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all,
			    NULL); /* nobody ends it before its time, short of SIGKILL */
		prctl(PR_SET_NAME, "spr_run_guard");
		close(fds[1]);
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		for (int i = 0; i < 3 && null >= 0;
		     i++) /* holds no terminal or pipe of the caller open */
			dup2(null, i);
		guard(fds[0]);
	}
	close(fds[0]);
	if (*pid < 0) {
		close(fds[1]);
		return -1;
	}
	return fds[1];
}

void run_guard_add(int fd, pid_t group)
{
	(void)!write(fd, &group, sizeof group);
}

void run_guard_stop(int fd, pid_t pid)
{
	pid_t done = 0;

	(void)!write(fd, &done, sizeof done);
	close(fd);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}
