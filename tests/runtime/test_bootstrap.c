/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Meetings: the star of sockets behind SPR_RANK, SPR_SIZE, SPR_ROOT and SPR_ROOT_FD, with one
 * process per rank on loopback; the callback row. Each rank leaves what happened to it in shared
 * memory, the test compares.
 */
#include "meet.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <internal/bytes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sparring/error.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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
	int fd = meet_listener(root, sizeof root);

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
			meet_start(&runs[i]);
	for (int i = 0; i < 9; i++)
		if (i != 2 && i < 5) {
			meet_finish(&runs[i]);
			meet_expect(&runs[i], SPR_ETIMEOUT,
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
	meet_start(&runs[1]);
	meet_finish(&runs[1]);
	meet_expect(&runs[1], SPR_ETIMEOUT,
		    "could not be reached within 0.3 s: Connection refused");
	meet_expect(&runs[1], SPR_ETIMEOUT, root);
}

Test(bootstrap, root_that_never_answers)
{
	struct rank_run *runs = new_runs();
	char root[64];
	int fd = meet_listener(root, sizeof root);

	set_all(runs, 2, root);
	runs[1].timeout_ms = 300;
	meet_start(&runs[1]);
	meet_finish(&runs[1]);
	meet_expect(&runs[1], SPR_ETIMEOUT, "did not say within");
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
	meet_expect(&runs[2], SPR_EMISMATCH, "has SPR_SIZE 5, rank 0 has SPR_SIZE 3");
	meet_expect(&runs[0], SPR_ETIMEOUT, "rank 2 of 3 did not come to the meeting");
	meet_expect(&runs[0], SPR_ETIMEOUT, "refused: 127.0.0.1:");
	meet_expect(&runs[1], SPR_ETIMEOUT, "rank 2 of 3 did not come to the meeting");
}

Test(bootstrap, taken_rank_is_refused)
{
	struct rank_run *runs = new_runs();
	char root[64];

	free_root(root, sizeof root);
	set_all(runs, 3, root);
	runs[3] = runs[1];
	meet_start(&runs[0]);
	meet_start(&runs[1]);
	meet_start(&runs[3]);
	/* One of the two is refused; only then the last rank comes. */
	for (int refused = 0; !refused; poll(NULL, 0, 5))
		refused = runs[1].status || runs[3].status;
	meet_start(&runs[2]);
	finish_all(runs, 4);
	expect_good(&runs[0], 1);
	expect_good(&runs[2], 1);
	cr_assert((runs[1].status == 0) != (runs[3].status == 0),
		  "one of two ranks 1 meets: %d and %d", runs[1].status, runs[3].status);
	meet_expect(runs[1].status ? &runs[1] : &runs[3], SPR_EBOOTSTRAP,
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
	int fd = meet_listener(root, sizeof root), raw;
	size_t got;

	set_all(runs, 2, root);
	runs[0].root_fd = fd;
	meet_start(&runs[0]);
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
	meet_start(&runs[1]); /* the meeting goes on without it */
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
		int fd = meet_listener(root, sizeof root), raw;

		set_all(runs, 2, root);
		meet_start(&runs[1]);
		raw = accept(fd, NULL, NULL);
		cr_assert(recv(raw, in, 40, MSG_WAITALL) == 40, "a HELLO of 40 bytes");
		cr_assert_arr_eq(in, "SPRM\1\0\1\0\1\0\0\0\2\0\0\0", 16);
		memcpy(frame, cases[c].magic, 4);
		frame[4] = cases[c].version;
		frame[6] = 2;
		cr_assert(send(raw, frame, 32, 0) == 32, "send");
		meet_finish(&runs[1]);
		meet_expect(&runs[1], cases[c].status, cases[c].part);
		close(raw);
		close(fd);
	}
}

Test(bootstrap, strangers_do_no_harm)
{
	struct rank_run *runs = new_runs();
	uint8_t out[40], noise[4096], in[64];
	char root[64];
	int fd = meet_listener(root, sizeof root), silent[100], raw;

	set_all(runs, 3, root);
	runs[0].root_fd = fd;
	meet_start(&runs[0]);
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
	meet_start(&runs[1]);
	meet_start(&runs[2]);
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
	int fd = meet_listener(root, sizeof root), raw = connect_to(root);

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
	for (int round = 0; round < (int)MEET_ROUNDS; round++)
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
					meet_expect(&runs[i], SPR_ELOST, part);
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
	int fd = meet_listener(root, sizeof root), raw;

	set_all(runs, 4, root);
	runs[0].root_fd = fd;
	meet_start(&runs[0]);
	meet_start(&runs[2]);
	raw = connect_to(root);
	hello(out, 1, 1, 4);
	cr_assert(send(raw, out, 40, 0) == 40, "send");
	cr_assert(recv(raw, in, 32, MSG_WAITALL) == 32 && in[6] == 2, "expected HERE, got kind %d",
		  in[6]);
	close(raw);
	meet_finish(&runs[0]);
	meet_expect(&runs[0], SPR_ELOST, "rank 1 (127.0.0.1:");
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
		meet_expect(&runs[i], SPR_EPROTOCOL, "rank 2 (127.0.0.1:");
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
				runs[1].timeout_ms = runs[2].timeout_ms = 3000;
			else
				runs[0].timeout_ms = 3000;
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
