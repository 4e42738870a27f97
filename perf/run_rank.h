/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One rank of spr_run: its process, its process group, its output. And the guard, which outlives
 * spr_run for a moment when that is killed, and ends the groups it was told of.
 */
#ifndef PERF_RUN_RANK_H
#define PERF_RUN_RANK_H

#include <internal/compiler.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

/* A pipe from a rank, cut into lines. */
struct run_stream {
	int fd;	     /* owned; -1: not used or ended */
	int out_fd;  /* where complete lines go: 1 or 2 */
	bool open;   /* a line longer than the buffer was begun */
	size_t used; /* bytes in `line` */
	char line[8192];
};

struct run_rank {
	int rank;
	pid_t pid;  /* and its group; 0: not started; a zombie, so still ours, until reaped */
	int pid_fd; /* owned; readable once the process has ended; -1 */
	bool ended; /* its end was seen */
	int status; /* exit status, or 128 + signal */
	struct run_stream streams[2]; /* stdout, stderr, when tagged */
};

/* What all ranks share. */
struct run_plan {
	char **argv; /* program and arguments */
	int n_ranks;
	const char *root;      /* SPR_ROOT */
	int root_fd;	       /* listening socket that rank 0 inherits; -1: none */
	bool tag;	       /* output through pipes */
	sigset_t mask;	       /* signal mask to restore in the ranks */
	struct rlimit n_files; /* limit to restore in the ranks */
};

/*
 * Starts a rank, in the network namespace `namespace_fd` if that is not -1. Blocks until its
 * program runs.
 * Returns: 0; or errno (positive) of the step *what that failed, nothing left running.
 */
int run_rank_start(struct run_rank *rank, const struct run_plan *plan, int namespace_fd,
		   const char **what) SPRI_MUST;

/* Looks whether it has ended, leaving the zombie. Sets ended and status. */
void run_rank_look(struct run_rank *rank);

/* Sends a signal to its whole process group; nothing when it was not started. */
void run_rank_signal(const struct run_rank *rank, int signal);

/* Takes the zombie away and closes what is open. */
void run_rank_reap(struct run_rank *rank);

/*
 * Reads what is there and prints complete lines as "[rank] line". Returns 0, or errno when
 * printing failed.
 */
int run_stream_read(struct run_stream *stream, int rank) SPRI_MUST;

/* The guard. start: returns the descriptor to tell it through, or -1 with errno. */
int run_guard_start(pid_t *pid);
void run_guard_add(int fd, pid_t group);
/* All groups are gone: lets the guard end and takes it away. */
void run_guard_stop(int fd, pid_t pid);

#endif
