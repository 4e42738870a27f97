/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The emulator itself: right kernels give right results for every seed, kernels without a barrier
 * give a wrong one for some seed, and what no order excuses ends the process with its text.
 */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>
#include <internal/compiler.h>

#include "emu.h"
#include "probes.h"

#define BLOCKS 7
#define N (BLOCKS * PROBE_THREADS)
#define SEEDS 40

static unsigned in[N], out[N];

static void run(const char *name, uint64_t seed, unsigned threads, void **params)
{
	unsigned grid[3] = {BLOCKS, 1, 1}, block[3] = {threads, 1, 1};
	int number = spri_emu_find(name);

	cr_assert_geq(number, 0, "expected a kernel %s", name);
	spri_emu_seed(seed);
	spri_emu_run(number, grid, block, threads * sizeof(unsigned), params);
}

static void fill_input(void)
{
	for (unsigned i = 0; i < N; i++)
		in[i] = i * 2654435761u >> 7;
	memset(out, 0, sizeof out);
}

static bool reversed(const char *name, uint64_t seed)
{
	unsigned *o = out;
	const unsigned *from = in;

	fill_input();
	run(name, seed, PROBE_THREADS, (void *[]){&o, &from});
	for (unsigned i = 0; i < N; i++) {
		unsigned at = i % PROBE_THREADS;

		if (out[i] != in[i - at + PROBE_THREADS - 1 - at])
			return false;
	}
	return true;
}

static unsigned warp_sum(unsigned warp)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < 32; i++)
		sum += in[warp * 32 + i];
	return sum;
}

static bool halved(const char *name, uint64_t seed)
{
	unsigned *o = out;
	const unsigned *from = in;

	fill_input();
	run(name, seed, PROBE_THREADS, (void *[]){&o, &from});
	for (unsigned warp = 0; warp < N / 32; warp++) {
		if (out[warp] != warp_sum(warp))
			return false;
	}
	return true;
}

/* For how many seeds the result was right. */
static unsigned right(bool (*probe)(const char *, uint64_t), const char *name)
{
	unsigned n = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++)
		n += probe(name, seed);
	return n;
}

Test(cuda_emu, a_missing_block_barrier_shows)
{
	unsigned n = right(reversed, "spri_probe_reverse_no_barrier");

	cr_assert_eq(right(reversed, "spri_probe_reverse"), SEEDS);
	cr_assert_lt(n, SEEDS / 2, "right for %u of %u seeds without its barrier", n, SEEDS);
}

Test(cuda_emu, a_missing_warp_barrier_shows)
{
	unsigned n = right(halved, "spri_probe_halve_no_barrier");

	cr_assert_eq(right(halved, "spri_probe_halve"), SEEDS);
	cr_assert_lt(n, SEEDS / 2, "right for %u of %u seeds without its barrier", n, SEEDS);
}

Test(cuda_emu, shuffles_and_votes)
{
	static unsigned says[N];
	unsigned *o = out, *s = says;
	const unsigned *from = in;

	fill_input();
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		run("spri_probe_warp", seed, PROBE_THREADS, (void *[]){&o, &s, &from});
		for (unsigned i = 0; i < N; i++) {
			unsigned warp = i / 32 * 32, ballot = 0, same = 0;

			for (unsigned j = 0; j < 7; j++)
				ballot |= (in[warp + j] & 1) << j;
			for (unsigned j = 7; j < 32; j++)
				same += (in[warp + j] & 1) == (in[i] & 1);
			cr_assert_eq(out[i], warp_sum(i / 32));
			cr_assert_eq(says[i], i % 32 < 7 ? ballot : same, "lane %u says %x", i % 32,
				     says[i]);
		}
	}
}

Test(cuda_emu, atomics_and_parameters)
{
	const unsigned *from = in;
	uint64_t n = N - 5;
	struct probe_factor factor = {.by = 3, .sought = 0};
	struct probe_sum want = {.blocks_with_sought = 1}; /* the last: threads past n */

	fill_input();
	in[0] = 1; /* else a zero */
	for (unsigned i = 0; i < n; i++) {
		unsigned v = in[i] * factor.by;

		want.added += v;
		want.odd += v & 1;
		want.largest = v > want.largest ? v : want.largest;
	}
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct probe_sum sum = {0}, *to = &sum;

		run("spri_probe_add", seed, PROBE_THREADS, (void *[]){&to, &from, &n, &factor});
		cr_assert_eq(sum.added, want.added);
		cr_assert_eq(sum.swapped, want.added);
		cr_assert_eq(sum.odd, want.odd);
		cr_assert_eq(sum.largest, want.largest);
		cr_assert_eq(sum.blocks_with_sought, want.blocks_with_sought);
	}
}

Test(cuda_emu, blocks_with_tickets_wait_for_each_other)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		unsigned turn = 0, ticket = 0, *t = &turn, *of = &ticket;

		run("spri_probe_tickets", seed, 64, (void *[]){&t, &of});
		cr_assert_eq(turn, BLOCKS);
	}
}

Test(cuda_emu, an_unknown_kernel_is_not_found)
{
	cr_assert_eq(spri_emu_find("spri_no_such"), -1);
	cr_assert_neq(spri_emu_find("spri_probe_halve"), spri_emu_find("spri_probe_warp"));
}

/* Runs it in a child. Did that abort? What it said is in text. */
static bool aborts(const char *name, uint64_t seed, void **params, char *text, size_t room)
{
	int ends[2], status;
	size_t length = 0;
	ssize_t got;
	pid_t child;

	if (SPRI_TSAN)
		cr_skip("the thread sanitizer does not follow fibers into a child");
	cr_assert_eq(pipe(ends), 0);
	fflush(NULL);
	child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		run(name, seed, 64, params);
		_exit(0);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + length, room - 1 - length)) > 0)
		length += (size_t)got;
	text[length] = 0;
	close(ends[0]);
	cr_assert_eq(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

Test(cuda_emu, what_is_wrong_is_refused)
{
	static const char *const says[PROBE_WRONG_COUNT] = {
		[PROBE_BARRIER_LEFT_OUT] = "barrier",
		[PROBE_TWO_BARRIERS] = "different barriers",
		[PROBE_LANE_ENDED] = "ended",
		[PROBE_MASKS_DIFFER] = "lane",
		[PROBE_LANE_OUTSIDE] = "outside its mask",
		[PROBE_DEADLOCK] = "deadlock",
	};
	char text[4096];

	for (unsigned which = 0; which < PROBE_WRONG_COUNT; which++) {
		cr_assert(aborts("spri_probe_wrong", which, (void *[]){&which}, text, sizeof text),
			  "%u: expected an abort", which);
		cr_assert(strstr(text, "cuda_emu: spri_probe_wrong, block ") ||
				  which == PROBE_DEADLOCK,
			  "%u: expected the kernel's name in '%s'", which, text);
		/* or who ends before the others come notices it */
		cr_assert(strstr(text, says[which]) || strstr(text, "it ends"),
			  "%u: expected '%s' in '%s'", which, says[which], text);
	}
}

Test(cuda_emu, a_block_that_never_started_is_waited_for_in_vain)
{
	unsigned turn = 0, *t = &turn;
	char text[4096] = "";

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		if (aborts("spri_probe_no_tickets", seed, (void *[]){&t}, text, sizeof text))
			break;
	}
	cr_assert(strstr(text, "it waits for ever"), "expected to hear of it in '%s'", text);
}
