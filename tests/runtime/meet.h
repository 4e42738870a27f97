/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Meetings by the environment, one process per rank on loopback: each rank leaves what happened to
 * it in shared memory, the test compares.
 */
#ifndef SPR_TESTS_MEET_H
#define SPR_TESTS_MEET_H

#include <internal/compiler.h>
#include <sys/types.h>

#define MAX_RANKS 40
#define MEET_ROUNDS 4 /* allgathers of a meeting */
#define LONG_S 50     /* a deadline that no test waits for */

enum { DIES_NEVER = -1, DIES_AFTER_OPEN = 0 };

/* How one rank behaves, and what became of it. */
struct rank_run {
	/* in */
	const char *rank, *size, *root;
	char numbers[2][12]; /* of rank and size, as a rule */
	int root_fd;	     /* −1: none */
	uint64_t late_ms;    /* starts so much later */
	uint64_t timeout_ms;
	int meetings;	  /* one after the other */
	int dies;	  /* before this allgather */
	size_t odd_bytes; /* not 0: bytes of its allgathers */
	long fail_after;  /* allocations that succeed; < 0: all */
	/* out */
	pid_t pid;
	int phase; /* allgathers done in the last meeting; −1: open failed */
	int status;
	int wrong; /* bytes that were not what they should be */
	char text[384];
};

/* MAX_RANKS of them, in shared memory; nothing set but harmless defaults. */
struct rank_run *new_runs(void);
/* Ranks 0 … n − 1 of n, which meet at root (NULL: not set). */
void set_all(struct rank_run *runs, int n, const char *root);
void meet_start(struct rank_run *run);
void meet_finish(struct rank_run *run);
void start_all(struct rank_run *runs, int n);
void finish_all(struct rank_run *runs, int n);
/* Every one of n met and got the right bytes. */
void expect_good(const struct rank_run *runs, int n);
/* It failed so, with a text that has `part`. */
void meet_expect(const struct rank_run *run, int status, const char *part);
/* A listening socket on a free port of 127.0.0.1; *root becomes its address. */
int meet_listener(char *root, size_t room);
/* An address that is free. */
void free_root(char *root, size_t room);
/* setenv, or unsetenv for NULL. */
void meet_set(const char *name, const char *value);

#endif
