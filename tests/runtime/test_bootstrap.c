/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Meetings: the star of sockets behind SPR_RANK, SPR_SIZE, SPR_ROOT and SPR_ROOT_FD, with one
 * process per rank on loopback; the callback row. Each rank leaves what happened to it in shared
 * memory, the test compares.
 */
#include <bootstrap/bootstrap.h>
#include <check.h>
#include <internal/alloc.h>
#include <internal/bytes.h>
#include <internal/clock.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 40
#define LONG_S 50 /* a deadline that no test waits for */

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

static const size_t sizes[] = {0, 1, 1000, 100000};

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
	for (unsigned round = 0; r == 0 && round < spri_countof(sizes); round++) {
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
		run->phase = spri_countof(sizes);
	run->status = r;
	snprintf(run->text, sizeof run->text, "%s", meeting.text.s);
	spri_bootstrap_env.close(&meeting);
}

static void set(const char *name, const char *value)
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
	set("SPR_RANK", run->rank);
	set("SPR_SIZE", run->size);
	set("SPR_ROOT", run->root);
	snprintf(fd, sizeof fd, "%d", run->root_fd);
	set("SPR_ROOT_FD", run->root_fd >= 0 ? fd : NULL);
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

static struct rank_run *new_runs(void)
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

static void start(struct rank_run *run)
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

static void finish(struct rank_run *run)
{
	int status = 0;

	while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
		;
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		  "rank %s ended with wait status 0x%x", run->rank, (unsigned)status);
}

/* A listening socket on a free port of 127.0.0.1; *root becomes its address. */
static int listener(char *root, size_t room)
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

static void free_root(char *root, size_t room)
{
	close(listener(root, room));
}

static void set_all(struct rank_run *runs, int n, const char *root)
{
	for (int i = 0; i < n; i++) {
		snprintf(runs[i].numbers[0], sizeof runs[i].numbers[0], "%d", i);
		snprintf(runs[i].numbers[1], sizeof runs[i].numbers[1], "%d", n);
		runs[i].rank = runs[i].numbers[0];
		runs[i].size = runs[i].numbers[1];
		runs[i].root = root;
	}
}

static void start_all(struct rank_run *runs, int n)
{
	for (int i = 0; i < n; i++)
		start(&runs[i]);
}

static void finish_all(struct rank_run *runs, int n)
{
	for (int i = 0; i < n; i++)
		finish(&runs[i]);
}

static void expect_good(const struct rank_run *runs, int n)
{
	for (int i = 0; i < n; i++) {
		cr_assert(runs[i].status == 0 && runs[i].phase == (int)spri_countof(sizes),
			  "rank %d of %d: phase %d, %s: %s", i, n, runs[i].phase,
			  spr_error_name(runs[i].status), runs[i].text);
		cr_assert(runs[i].wrong == 0, "rank %d of %d: %d wrong bytes", i, n, runs[i].wrong);
	}
}

static void expect(const struct rank_run *run, int status, const char *part)
{
	cr_assert(run->status == status, "rank %s: expected %s, got %s: %s", run->rank,
		  spr_error_name(status), spr_error_name(run->status), run->text);
	cr_assert(strstr(run->text, part) != NULL, "rank %s: expected a text with '%s', got '%s'",
		  run->rank, part, run->text);
	cr_assert(run->wrong == 0, "rank %s: %d wrong", run->rank, run->wrong);
}

Test(bootstrap, any_number_meets_by_root)
{
	static const int counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 33};

	for (size_t c = 0; c < spri_countof(counts); c++) {
		struct rank_run *runs = new_runs();
		char root[64];

		free_root(root, sizeof root);
		set_all(runs, counts[c], root);
		start_all(runs, counts[c]);
		finish_all(runs, counts[c]);
		expect_good(runs, counts[c]);
	}
}

Test(bootstrap, one_rank_needs_no_root)
{
	struct rank_run *runs = new_runs();

	set_all(runs, 1, NULL);
	start_all(runs, 1);
	finish_all(runs, 1);
	expect_good(runs, 1);
}

Test(bootstrap, meetings_follow_each_other)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 4, root);
	for (int i = 0; i < 4; i++)
		runs[i].meetings = 20;
	start_all(runs, 4);
	finish_all(runs, 4);
	expect_good(runs, 4);
}

Test(bootstrap, inherited_listener_serves_every_meeting)
{
	struct rank_run *runs = new_runs();
	char root[64];
	int fd = listener(root, sizeof root);

	set_all(runs, 4, root);
	runs[0].root = NULL;
	runs[0].root_fd = fd;
	for (int i = 0; i < 4; i++)
		runs[i].meetings = 10;
	start_all(runs, 4);
	finish_all(runs, 4);
	expect_good(runs, 4);
	close(fd);
}

Test(bootstrap, root_may_start_last)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 4, root);
	runs[0].late_ms = 400;
	start_all(runs, 4);
	finish_all(runs, 4);
	expect_good(runs, 4);
}

Test(bootstrap, names_and_ipv6)
{
	static const char *const hosts[] = {"localhost", "[::1]", "127.0.0.1"};

	for (size_t h = 0; h < spri_countof(hosts); h++) {
		struct rank_run *runs = new_runs();
		char free_port[64], root[64];
		int probe = socket(AF_INET6, SOCK_STREAM, 0);
		struct sockaddr_in6 a = {.sin6_family = AF_INET6,
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT};
		bool has_v6 = probe >= 0 && bind(probe, (struct sockaddr *)&a, sizeof a) == 0;

		close(probe);
		if (!has_v6 && hosts[h][0] == '[') {
			printf("no IPv6 loopback here: [::1] was not tried\n");
			continue;
		}
		free_root(free_port, sizeof free_port);
		snprintf(root, sizeof root, "%s%s", hosts[h], strrchr(free_port, ':'));
		set_all(runs, 3, root);
		start_all(runs, 3);
		finish_all(runs, 3);
		expect_good(runs, 3);
	}
}

Test(bootstrap, missing_ranks_are_named_on_every_rank)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 9, root);
	for (int i = 0; i < 9; i++)
		runs[i].timeout_ms = i == 3 ? 1000 : 1000 * LONG_S;
	for (int i = 0; i < 9; i++)
		if (i != 2 && i < 5)
			start(&runs[i]);
	for (int i = 0; i < 9; i++)
		if (i != 2 && i < 5) {
			finish(&runs[i]);
			expect(&runs[i], SPR_ETIMEOUT,
			       "rank 2, 5-8 of 9 did not come to the meeting");
		}
}

Test(bootstrap, nobody_listens)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 2, root);
	runs[1].timeout_ms = 300;
	start(&runs[1]);
	finish(&runs[1]);
	expect(&runs[1], SPR_ETIMEOUT, "could not be reached within 0.3 s: Connection refused");
	expect(&runs[1], SPR_ETIMEOUT, root);
}

Test(bootstrap, root_that_never_answers)
{
	struct rank_run *runs = new_runs();
	char root[64];
	int fd = listener(root, sizeof root);

	set_all(runs, 2, root);
	runs[1].timeout_ms = 300;
	start(&runs[1]);
	finish(&runs[1]);
	expect(&runs[1], SPR_ETIMEOUT, "did not say within");
	close(fd);
}

Test(bootstrap, another_size_is_refused)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 3, root);
	runs[2].size = "5";
	runs[0].timeout_ms = 1000;
	start_all(runs, 3);
	finish_all(runs, 3);
	expect(&runs[2], SPR_EMISMATCH, "has SPR_SIZE 5, rank 0 has SPR_SIZE 3");
	expect(&runs[0], SPR_ETIMEOUT, "rank 2 of 3 did not come to the meeting");
	expect(&runs[0], SPR_ETIMEOUT, "refused: 127.0.0.1:");
	expect(&runs[1], SPR_ETIMEOUT, "rank 2 of 3 did not come to the meeting");
}

Test(bootstrap, taken_rank_is_refused)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 3, root);
	runs[3] = runs[1];
	start(&runs[0]);
	start(&runs[1]);
	start(&runs[3]);
	/* One of the two is refused; only then the last rank comes. */
	for (int refused = 0; !refused; poll(NULL, 0, 5))
		refused = runs[1].status || runs[3].status;
	start(&runs[2]);
	finish_all(runs, 4);
	expect_good(&runs[0], 1);
	expect_good(&runs[2], 1);
	cr_assert((runs[1].status == 0) != (runs[3].status == 0),
		  "one of two ranks 1 meets: %d and %d", runs[1].status, runs[3].status);
	expect(runs[1].status ? &runs[1] : &runs[3], SPR_EBOOTSTRAP,
	       "has SPR_RANK 1, which is taken by 127.0.0.1:");
}

static int connect_to(const char *root)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr = {htonl(INADDR_LOOPBACK)},
				.sin_port = htons((uint16_t)atoi(strrchr(root, ':') + 1))};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	cr_assert(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect to %s: %s", root,
		  strerror(errno));
	return fd;
}

static size_t read_all(int fd, uint8_t *buffer, size_t room)
{
	size_t got = 0;

	for (;;) {
		ssize_t n = recv(fd, buffer + got, room - got, 0);

		if (n <= 0)
			return got;
		got += (size_t)n;
	}
}

/* The first 32 bytes of a HELLO as docs/wire.md has them, written without the library. */
static void hello(uint8_t *h, uint16_t version, uint32_t rank, uint32_t size)
{
	memset(h, 0, 40);
	memcpy(h, "SPRM", 4);
	h[4] = (uint8_t)version;
	h[6] = 1;
	h[8] = (uint8_t)rank;
	h[12] = (uint8_t)size;
	h[24] = 8;
	memset(h + 32, 0xff, 7);
}

Test(bootstrap, another_version_is_told_both)
{
	struct rank_run *runs = new_runs();
	uint8_t out[40], in[512] = {0};
	char root[64];
	int fd = listener(root, sizeof root), raw;
	size_t got;

	set_all(runs, 2, root);
	runs[0].root_fd = fd;
	start(&runs[0]);
	raw = connect_to(root);
	hello(out, 7, 1, 2);
	cr_assert(send(raw, out, 32, 0) == 32, "send");
	got = read_all(raw, in, sizeof in - 1);
	cr_assert(got > 32 && in[6] == 4, "expected a REFUSED frame, got %zu bytes of kind %d", got,
		  in[6]);
	cr_assert_eq((int32_t)spri_get_u32(in + 16), SPR_EVERSION);
	cr_assert(strstr((char *)in + 32, "speaks version 7 of the meeting, rank 0 version 1") !=
			  NULL,
		  "got '%s'", (char *)in + 32);
	close(raw);
	start(&runs[1]); /* the meeting goes on without it */
	finish_all(runs, 2);
	expect_good(runs, 2);
	close(fd);
}

Test(bootstrap, root_of_another_version_or_kind)
{
	static const struct {
		uint8_t version;
		const char *magic, *part;
		int status;
	} cases[] = {
		{9, "SPRM", "speaks version 9 of the meeting, rank 1 version 1", SPR_EVERSION},
		{1, "HTTP", "is not rank 0 of a sparring program", SPR_EBOOTSTRAP},
	};

	for (size_t c = 0; c < spri_countof(cases); c++) {
		struct rank_run *runs = new_runs();
		uint8_t frame[32] = {0}, in[64];
		char root[64];
		int fd = listener(root, sizeof root), raw;

		set_all(runs, 2, root);
		start(&runs[1]);
		raw = accept(fd, NULL, NULL);
		cr_assert(recv(raw, in, 40, MSG_WAITALL) == 40, "a HELLO of 40 bytes");
		cr_assert_arr_eq(in, "SPRM\1\0\1\0\1\0\0\0\2\0\0\0", 16);
		memcpy(frame, cases[c].magic, 4);
		frame[4] = cases[c].version;
		frame[6] = 2;
		cr_assert(send(raw, frame, 32, 0) == 32, "send");
		finish(&runs[1]);
		expect(&runs[1], cases[c].status, cases[c].part);
		close(raw);
		close(fd);
	}
}

Test(bootstrap, strangers_do_no_harm)
{
	struct rank_run *runs = new_runs();
	uint8_t out[40], noise[4096], in[64];
	char root[64];
	int fd = listener(root, sizeof root), silent[100], raw;

	set_all(runs, 3, root);
	runs[0].root_fd = fd;
	start(&runs[0]);
	for (size_t i = 0; i < spri_countof(silent); i++)
		silent[i] = connect_to(root);
	for (size_t i = 0; i < sizeof noise; i++)
		noise[i] = (uint8_t)(i * 37 + 11);
	raw = connect_to(root);
	send(raw, noise, sizeof noise, MSG_NOSIGNAL);
	cr_assert_eq(read_all(raw, in, sizeof in), 0, "noise gets no answer");
	close(raw);
	raw = connect_to(root);
	send(raw, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
	cr_assert_eq(read_all(raw, in, sizeof in), 0, "a browser gets no answer");
	close(raw);
	/* One that hangs up in the middle, and one right after a whole HELLO. */
	hello(out, 1, 1, 3);
	raw = connect_to(root);
	send(raw, out, 20, MSG_NOSIGNAL);
	close(raw);
	start(&runs[1]);
	start(&runs[2]);
	finish_all(runs, 3);
	expect_good(runs, 3);
	for (size_t i = 0; i < spri_countof(silent); i++)
		close(silent[i]);
	close(fd);
}

Test(bootstrap, rank_of_a_failed_meeting_is_not_counted)
{
	struct rank_run *runs = new_runs();
	uint8_t out[40];
	char root[64];
	int fd = listener(root, sizeof root), raw = connect_to(root);

	hello(out, 1, 1, 2);
	cr_assert(send(raw, out, 40, 0) == 40, "send");
	close(raw); /* in the backlog, gone before rank 0 looks */
	set_all(runs, 2, root);
	runs[0].root_fd = fd;
	start_all(runs, 2);
	finish_all(runs, 2);
	expect_good(runs, 2);
	close(fd);
}

/* Who dies before which allgather; all others learn it long before the deadline. */
Test(bootstrap, dead_rank_is_told_to_all)
{
	for (int round = 0; round < (int)spri_countof(sizes); round++)
		for (int dead = 0; dead < 4; dead += 3) {
			struct rank_run *runs = new_runs();
			char root[64], part[64];

			free_root(root, sizeof root);
			set_all(runs, 4, root);
			runs[dead].dies = round;
			start_all(runs, 4);
			finish_all(runs, 4);
			snprintf(part, sizeof part,
				 dead ? "rank %d (127.0.0.1:" : "rank %d at 127.0.0.1:", dead);
			for (int i = 0; i < 4; i++)
				if (i != dead)
					expect(&runs[i], SPR_ELOST, part);
			cr_assert(strstr(runs[1].text, "left during the meeting") != NULL,
				  "got '%s'", runs[1].text);
		}
}

/* A rank that dies before the others are here: the meeting ends at once. */
Test(bootstrap, death_before_all_are_here)
{
	struct rank_run *runs = new_runs();
	uint8_t out[40], in[64];
	char root[64];
	int fd = listener(root, sizeof root), raw;

	set_all(runs, 4, root);
	runs[0].root_fd = fd;
	start(&runs[0]);
	start(&runs[2]);
	raw = connect_to(root);
	hello(out, 1, 1, 4);
	cr_assert(send(raw, out, 40, 0) == 40, "send");
	cr_assert(recv(raw, in, 32, MSG_WAITALL) == 32 && in[6] == 2, "expected HERE, got kind %d",
		  in[6]);
	close(raw);
	finish(&runs[0]);
	expect(&runs[0], SPR_ELOST, "rank 1 (127.0.0.1:");
	close(fd);
	kill(runs[2].pid, SIGKILL); /* it may have come too late to hear of it */
	while (waitpid(runs[2].pid, NULL, 0) < 0 && errno == EINTR)
		;
}

Test(bootstrap, blobs_of_two_sizes_are_refused)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 3, root);
	runs[2].odd_bytes = 12;
	start_all(runs, 3);
	finish_all(runs, 3);
	for (int i = 0; i < 3; i++)
		expect(&runs[i], SPR_EPROTOCOL, "rank 2 (127.0.0.1:");
}

Test(bootstrap, no_memory_on_one_rank_ends_all)
{
	for (int poor = 0; poor < 2; poor++)
		for (long n = 0; n < 10; n++) {
			struct rank_run *runs = new_runs();
			char root[64];

			free_root(root, sizeof root);
			set_all(runs, 3, root);
			runs[poor].fail_after = n;
			if (poor == 0)
				runs[1].timeout_ms = runs[2].timeout_ms = 500;
			else
				runs[0].timeout_ms = 500;
			start_all(runs, 3);
			finish_all(runs, 3);
			for (int i = 0; i < 3; i++)
				cr_assert(runs[i].wrong == 0, "rank %d: %d", i, runs[i].wrong);
			if (runs[poor].status == 0) {
				cr_assert(n > 0, "some allocation was failed");
				expect_good(runs, 3);
				break;
			}
			cr_assert_eq(runs[poor].status, -ENOMEM);
			cr_assert(runs[2].status < 0, "expected rank 2 to fail too");
		}
}

/* ---- variables ---- */

Test(bootstrap, variables_are_checked)
{
	static const struct {
		const char *rank, *size, *root, *fd, *part;
	} cases[] = {
		{"1", NULL, NULL, NULL,
		 "SPR_SIZE is not set, must be the number of ranks when SPR_RANK is"},
		{NULL, "2", NULL, NULL,
		 "SPR_RANK is not set, must be this process's rank when SPR_SIZE is"},
		{NULL, NULL, "a:1", NULL, "SPR_RANK is not set"},
		{"4", "4", "a:1", NULL, "SPR_RANK is '4', must be a whole number from 0 to 3"},
		{"-1", "4", "a:1", NULL, "SPR_RANK is '-1', must be"},
		{"0", "0", "a:1", NULL, "SPR_SIZE is '0', must be a whole number from 1 to 65536"},
		{"0", "65537", "a:1", NULL, "SPR_SIZE is '65537'"},
		{"x", "4", "a:1", NULL, "SPR_RANK is 'x'"},
		{"1", "4", NULL, NULL, "SPR_ROOT is not set, must be HOST:PORT"},
		{"1", "4", NULL, "3", "SPR_ROOT is not set, must be HOST:PORT"},
		{"1", "4", "host", NULL, "SPR_ROOT is 'host', must be HOST:PORT or [IPV6]:PORT"},
		{"1", "4", "host:", NULL, "SPR_ROOT is 'host:'"},
		{"1", "4", ":17", NULL, "SPR_ROOT is ':17'"},
		{"1", "4", "host:0", NULL, "SPR_ROOT is 'host:0'"},
		{"1", "4", "host:65536", NULL, "SPR_ROOT is 'host:65536'"},
		{"1", "4", "host:+7", NULL, "SPR_ROOT is 'host:+7'"},
		{"1", "4", "::1:7", NULL, "SPR_ROOT is '::1:7'"},
		{"1", "4", "[::1]7", NULL, "SPR_ROOT is '[::1]7'"},
		{"1", "4", "[::1", NULL, "SPR_ROOT is '[::1'"},
		{"0", "4", NULL, "999",
		 "SPR_ROOT_FD is '999', must be a listening TCP socket that rank 0 inherits: "
		 "descriptor 999 is not open"},
		{"0", "4", NULL, "z", "SPR_ROOT_FD is 'z', must be"},
	};

	for (size_t i = 0; i < spri_countof(cases); i++) {
		struct spri_meeting meeting = {.deadline_ns = spri_now_ns() + SPRI_NS_PER_S};
		int r;

		set("SPR_RANK", cases[i].rank);
		set("SPR_SIZE", cases[i].size);
		set("SPR_ROOT", cases[i].root);
		set("SPR_ROOT_FD", cases[i].fd);
		cr_assert(spri_bootstrap_env.fits(NULL, NULL), "case %zu fits", i);
		r = spri_bootstrap_env.open(&meeting, NULL, NULL);
		cr_assert(r == SPR_EENVIRONMENT, "case %zu: expected SPR_EENVIRONMENT, got %s: %s",
			  i, spr_error_name(r), meeting.text.s);
		cr_assert(strstr(meeting.text.s, cases[i].part) != NULL,
			  "case %zu: expected '%s', got '%s'", i, cases[i].part, meeting.text.s);
		spri_bootstrap_env.close(&meeting);
	}
	unsetenv("SPR_RANK");
	unsetenv("SPR_SIZE");
	unsetenv("SPR_ROOT");
	unsetenv("SPR_ROOT_FD");
	cr_assert(!spri_bootstrap_env.fits(NULL, NULL), "nothing set: does not fit");
}

Test(bootstrap, inherited_descriptor_must_listen)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int pipes[2], silent = socket(AF_INET, SOCK_STREAM, 0),
		      datagram = socket(AF_INET, SOCK_DGRAM, 0);
	struct {
		int fd;
		const char *part;
	} cases[3];

	cr_assert(pipe(pipes) == 0 && bind(silent, (struct sockaddr *)&a, sizeof a) == 0, "set up");
	cases[0].fd = pipes[0];
	cases[0].part = "is not a socket";
	cases[1].fd = silent;
	cases[1].part = "does not listen";
	cases[2].fd = datagram;
	cases[2].part = "is not a TCP socket";
	for (size_t i = 0; i < spri_countof(cases); i++) {
		struct spri_meeting meeting = {.deadline_ns = spri_now_ns() + SPRI_NS_PER_S};
		char fd[16];

		snprintf(fd, sizeof fd, "%d", cases[i].fd);
		set("SPR_RANK", "0");
		set("SPR_SIZE", "2");
		set("SPR_ROOT_FD", fd);
		cr_assert_eq(spri_bootstrap_env.open(&meeting, NULL, NULL), SPR_EENVIRONMENT);
		cr_assert(strstr(meeting.text.s, cases[i].part) != NULL, "expected '%s', got '%s'",
			  cases[i].part, meeting.text.s);
		spri_bootstrap_env.close(&meeting);
	}
}

/* ---- callback ---- */

static int answer; /* what the next call returns */

static int copy_self(void *arg, const void *mine, void *all, size_t bytes)
{
	(*(int *)arg)++;
	memcpy(all, mine, bytes);
	return answer;
}

Test(bootstrap, callback_passes_results_on)
{
	int calls = 0;
	struct spr_comm_options options = {.size = sizeof options,
					   .rank = 0,
					   .n_ranks = 1,
					   .allgather = copy_self,
					   .allgather_arg = &calls};
	static const int ranks[][2] = {{-1, 1}, {1, 1}, {0, 0}, {0, -4}, {0, SPR_MAX_RANKS + 1}};
	struct spri_meeting meeting = {.deadline_ns = SPRI_NEVER};
	char in[3] = "ab", out[3] = "";

	cr_assert(spri_bootstrap_callback.fits(NULL, &options), "a function: fits");
	cr_assert(!spri_bootstrap_callback.fits(NULL, NULL), "no options: does not fit");
	cr_assert_eq(spri_bootstrap_callback.open(&meeting, NULL, &options), 0);
	cr_assert_eq(meeting.n_ranks, 1);
	answer = 0;
	cr_assert_eq(spri_bootstrap_callback.allgather(&meeting, in, out, 3), 0);
	cr_assert_str_eq(out, "ab");
	answer = -EIO;
	cr_assert_eq(spri_bootstrap_callback.allgather(&meeting, in, out, 3), -EIO);
	cr_assert(strstr(meeting.text.s, "allgather of 3 bytes returned -5 (Input/output error)") !=
			  NULL,
		  "got '%s'", meeting.text.s);
	answer = 4;
	cr_assert_eq(spri_bootstrap_callback.allgather(&meeting, in, out, 3), SPR_EBOOTSTRAP);
	cr_assert_eq(calls, 3);
	spri_bootstrap_callback.close(&meeting);
	for (size_t i = 0; i < spri_countof(ranks); i++) {
		options.rank = ranks[i][0];
		options.n_ranks = ranks[i][1];
		cr_assert_eq(spri_bootstrap_callback.open(&meeting, NULL, &options), SPR_EARGUMENT);
		cr_assert(strstr(meeting.text.s, "must be") != NULL, "got '%s'", meeting.text.s);
		spri_bootstrap_callback.close(&meeting);
	}
}

Test(bootstrap, alone_is_the_last_row)
{
	struct spri_meeting meeting = {.deadline_ns = SPRI_NEVER};
	char in = 'x', out = 0;

	cr_assert(spri_bootstrap_alone.fits(NULL, NULL), "fits always");
	cr_assert_eq(spri_bootstrap_alone.open(&meeting, NULL, NULL), 0);
	cr_assert(meeting.rank == 0 && meeting.n_ranks == 1, "rank 0 of 1");
	cr_assert_eq(spri_bootstrap_alone.allgather(&meeting, &in, &out, 1), 0);
	cr_assert_eq(out, 'x');
	spri_bootstrap_alone.close(&meeting);
}
