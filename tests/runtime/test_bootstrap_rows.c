/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The rows of the bootstrap table by themselves: variables and their texts, the callback, alone. */
#include "meet.h"

#include <arpa/inet.h>
#include <bootstrap/bootstrap.h>
#include <check.h>
#include <errno.h>
#include <internal/clock.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- variables ---- */

Test(bootstrap_rows, variables_are_checked)
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

		meet_set("SPR_RANK", cases[i].rank);
		meet_set("SPR_SIZE", cases[i].size);
		meet_set("SPR_ROOT", cases[i].root);
		meet_set("SPR_ROOT_FD", cases[i].fd);
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

Test(bootstrap_rows, inherited_descriptor_must_listen)
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
		meet_set("SPR_RANK", "0");
		meet_set("SPR_SIZE", "2");
		meet_set("SPR_ROOT_FD", fd);
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

Test(bootstrap_rows, callback_passes_results_on)
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

Test(bootstrap_rows, alone_is_the_last_row)
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
