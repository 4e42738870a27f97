/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Meetings of processes; see meet.h. */
#include "meet.h"

#include <arpa/inet.h>
#include <bootstrap/bootstrap.h>
#include <check.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/clock.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t sizes[MEET_ROUNDS] = {0, 1, 1000, 100000};

static uint8_t byte_of(uint32_t rank, size_t i, unsigned round)
{
	return (uint8_t)(rank * 131u + i * 7u + round * 29u + 5u);
}

static void one_meeting(struct rank_run *run)
{
	struct spri_meeting meeting = {.deadline_ns =
					       spri_now_ns() + run->timeout_ms * SPRI_NS_PER_MS};
	int r = spri_bootstrap_env.open(&meeting, NULL, NULL);

	run->phase = -1;
	for (unsigned round = 0; r == 0 && round < MEET_ROUNDS; round++) {
		size_t bytes = run->odd_bytes ? run->odd_bytes : sizes[round];
		uint8_t *mine = malloc(bytes + 1), *all = malloc(bytes * meeting.n_ranks + 1);

		run->phase = (int)round;
		if (run->dies == (int)round)
			_exit(0);
		for (size_t i = 0; i < bytes; i++)
			mine[i] = byte_of(meeting.rank, i, round);
		r = spri_bootstrap_env.allgather(&meeting, mine, all, bytes);
		for (size_t i = 0; r == 0 && i < bytes * meeting.n_ranks; i++)
			run->wrong += all[i] != byte_of((uint32_t)(i / bytes), i % bytes, round);
		free(mine);
		free(all);
	}
	if (r == 0)
		run->phase = MEET_ROUNDS;
	run->status = r;
	snprintf(run->text, sizeof run->text, "%s", meeting.text.s);
	spri_bootstrap_env.close(&meeting);
}

void meet_set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

static void live(struct rank_run *run)
{
	char fd[16];

	if (run->late_ms)
		poll(NULL, 0, (int)run->late_ms);
	meet_set("SPR_RANK", run->rank);
	meet_set("SPR_SIZE", run->size);
	meet_set("SPR_ROOT", run->root);
	snprintf(fd, sizeof fd, "%d", run->root_fd);
	meet_set("SPR_ROOT_FD", run->root_fd >= 0 ? fd : NULL);
	for (int i = 0; i < run->meetings; i++) {
		long before = spri_heap_live();

		spri_heap_fail_after(run->fail_after);
		one_meeting(run);
		spri_heap_fail_after(-1);
		if (spri_heap_live() != before)
			run->wrong += 1000000;
		if (run->status)
			break;
	}
}

struct rank_run *new_runs(void)
{
	struct rank_run *runs = mmap(NULL, MAX_RANKS * sizeof *runs, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert(runs != MAP_FAILED, "shared memory");
	for (int i = 0; i < MAX_RANKS; i++)
		runs[i] = (struct rank_run){.root_fd = -1,
					    .timeout_ms = 1000 * LONG_S,
					    .meetings = 1,
					    .dies = DIES_NEVER,
					    .fail_after = -1};
	return runs;
}

void meet_start(struct rank_run *run)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	cr_assert(pid >= 0, "fork: %s", strerror(errno));
	if (pid == 0) {
		live(run);
		_exit(0);
	}
	run->pid = pid;
}

void meet_finish(struct rank_run *run)
{
	int status = 0;

	while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
		;
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		  "rank %s ended with wait status 0x%x", run->rank, (unsigned)status);
}

/* A listening socket on a free port of 127.0.0.1; *root becomes its address. */
int meet_listener(char *root, size_t room)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t bytes = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	cr_assert(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 128) == 0 &&
			  getsockname(fd, (struct sockaddr *)&a, &bytes) == 0,
		  "a listener on loopback: %s", strerror(errno));
	snprintf(root, room, "127.0.0.1:%u", ntohs(a.sin_port));
	return fd;
}

/*
 * An address of 127.0.0.1 on which nobody listens, with a port below the range that the kernel
 * hands out by itself, so that nobody takes it before it is used.
 */
void free_root(char *root, size_t room)
{
	static unsigned drawn;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = -1, r = -1;

	for (int tries = 0; tries < 1000 && r < 0; tries++) {
		a.sin_port = htons((uint16_t)(20000 + ((unsigned)getpid() * 31 + drawn++) % 12000));
		fd = socket(AF_INET, SOCK_STREAM, 0);
		r = bind(fd, (struct sockaddr *)&a, sizeof a);
		close(fd);
	}
	cr_assert(r == 0, "a free port on loopback: %s", strerror(errno));
	snprintf(root, room, "127.0.0.1:%u", ntohs(a.sin_port));
}

void set_all(struct rank_run *runs, int n, const char *root)
{
	for (int i = 0; i < n; i++) {
		snprintf(runs[i].numbers[0], sizeof runs[i].numbers[0], "%d", i);
		snprintf(runs[i].numbers[1], sizeof runs[i].numbers[1], "%d", n);
		runs[i].rank = runs[i].numbers[0];
		runs[i].size = runs[i].numbers[1];
		runs[i].root = root;
	}
}

void start_all(struct rank_run *runs, int n)
{
	for (int i = 0; i < n; i++)
		meet_start(&runs[i]);
}

void finish_all(struct rank_run *runs, int n)
{
	for (int i = 0; i < n; i++)
		meet_finish(&runs[i]);
}

void expect_good(const struct rank_run *runs, int n)
{
	for (int i = 0; i < n; i++) {
		cr_assert(runs[i].status == 0 && runs[i].phase == (int)MEET_ROUNDS,
			  "rank %d of %d: phase %d, %s: %s", i, n, runs[i].phase,
			  spr_error_name(runs[i].status), runs[i].text);
		cr_assert(runs[i].wrong == 0, "rank %d of %d: %d wrong bytes", i, n, runs[i].wrong);
	}
}

void meet_expect(const struct rank_run *run, int status, const char *part)
{
	cr_assert(run->status == status, "rank %s: expected %s, got %s: %s", run->rank,
		  spr_error_name(status), spr_error_name(run->status), run->text);
	cr_assert(strstr(run->text, part) != NULL, "rank %s: expected a text with '%s', got '%s'",
		  run->rank, part, run->text);
	cr_assert(run->wrong == 0, "rank %s: %d wrong", run->rank, run->wrong);
}
