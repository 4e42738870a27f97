/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The trace of SPR_TRACE: every chunk has its post and its arrival, as many as rounds and chunks
 * say; the same file from the same simulation; no room, no directory, no variable. That a reader of
 * JSON takes the file is tested with the tools (check_trace).
 */
#include <check.h>
#include <coll/coll.h>
#include <dirent.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/log.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <timeline.h>
#include <unistd.h>

#include "steps.h"

enum { MOST_EVENTS = 4096 };

/* One line of a file that is a complete event. */
struct event {
	char name[16];
	double ts, dur;
	long rank, thread, operation, step, round, peer, chunk, bytes;
};

struct events {
	int n;
	struct event of[MOST_EVENTS];
};

static char directory[64], path[96];

static void set_up(void)
{
	strcpy(directory, "/tmp/spr-timeline-XXXXXX");
	if (!mkdtemp(directory))
		abort();
	snprintf(path, sizeof path, "%s/trace", directory);
	setenv("SPR_TRACE", path, 1);
}

/* Entries of the directory, which are removed. */
static int empty_directory(void)
{
	DIR *d = opendir(directory);
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)) != NULL) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		n++;
		unlinkat(dirfd(d), e->d_name, 0);
	}
	closedir(d);
	return n;
}

static void tear_down(void)
{
	unsetenv("SPR_TRACE");
	empty_directory();
	rmdir(directory);
}

/* The whole file of a rank as a string (to be freed). */
static char *read_file(int rank)
{
	char name[128], *text;
	struct stat st;
	FILE *f;

	snprintf(name, sizeof name, "%s.%d", path, rank);
	f = fopen(name, "r");
	cr_assert(f && fstat(fileno(f), &st) == 0, "the file of rank %d", rank);
	text = calloc(1, (size_t)st.st_size + 1);
	cr_assert_eq(fread(text, 1, (size_t)st.st_size, f), (size_t)st.st_size);
	fclose(f);
	return text;
}

/* The number behind "key": in a line, −1 when it is not there. */
static double number(const char *line, const char *key)
{
	char quoted[32];
	const char *at;

	snprintf(quoted, sizeof quoted, "\"%s\":", key);
	at = strstr(line, quoted);
	return at ? strtod(at + strlen(quoted), NULL) : -1;
}

static void read_events(int rank, struct events *out)
{
	char *text = read_file(rank), *next = NULL;

	out->n = 0;
	for (char *line = strtok_r(text, "\n", &next); line; line = strtok_r(NULL, "\n", &next)) {
		struct event *e = &out->of[out->n];

		if (sscanf(line, "{\"ph\":\"X\",\"name\":\"%15[a-z]\"", e->name) != 1)
			continue;
		e->ts = number(line, "ts");
		e->dur = number(line, "dur");
		e->rank = (long)number(line, "pid");
		e->thread = (long)number(line, "tid");
		e->operation = (long)number(line, "operation");
		e->step = (long)number(line, "step");
		e->round = (long)number(line, "round");
		e->peer = (long)number(line, "peer");
		e->chunk = (long)number(line, "chunk");
		e->bytes = (long)number(line, "bytes");
		cr_assert(++out->n < MOST_EVENTS, "room for the events of the test");
	}
	free(text);
}

static int count(const struct events *events, const char *name)
{
	int n = 0;

	for (int i = 0; i < events->n; i++)
		n += !strcmp(events->of[i].name, name);
	return n;
}

/* The event of this name that rank `peer` is the other end of, on the same lane. */
static const struct event *other_end(const struct events *events, const struct event *of,
				     const char *name)
{
	const struct event *found = NULL;

	for (int i = 0; i < events->n; i++) {
		const struct event *e = &events->of[i];

		if (strcmp(e->name, name) || e->peer != of->rank || e->thread != of->thread ||
		    e->chunk != of->chunk)
			continue;
		cr_assert(!found, "one %s of chunk %ld", name, e->chunk);
		found = e;
	}
	return found;
}

/* Runs, and reads the files of all ranks. */
static struct events *trace_run(const struct run_options *o)
{
	struct events *ranks = calloc((size_t)o->n_ranks, sizeof *ranks);
	struct run *run = run_steps(o);

	for (int r = 0; r < o->n_ranks; r++) {
		cr_assert_eq(run->statuses[r], 0);
		read_events(r, &ranks[r]);
	}
	run_free(run);
	return ranks;
}

/* Every post has its arrival, later, and the other way round. */
static void check_pairs(const struct events *ranks, int n_ranks)
{
	for (int r = 0; r < n_ranks; r++)
		for (int i = 0; i < ranks[r].n; i++) {
			const struct event *e = &ranks[r].of[i], *end;
			bool post = !strcmp(e->name, "post");

			cr_assert_eq(e->rank, r);
			if (!post && strcmp(e->name, "arrive") != 0)
				continue;
			cr_assert(e->peer >= 0 && e->peer < n_ranks && e->peer != r);
			end = other_end(&ranks[e->peer], e, post ? "arrive" : "post");
			cr_assert(end, "rank %d, %s of chunk %ld has another end", r, e->name,
				  e->chunk);
			cr_assert(post ? e->ts < end->ts : e->ts > end->ts,
				  "it arrives after it was posted");
			cr_assert(e->bytes == end->bytes && e->round == end->round &&
					  e->operation == end->operation,
				  "both ends say the same");
		}
}

Test(timeline, as_many_as_rounds_and_chunks, .init = set_up, .fini = tear_down)
{
	enum { RANKS = 4, CHUNKS = 3, STEPS = 2 };
	/* the least window: chunks of 1 KiB, of which the header takes 64 bytes */
	struct run_options o =
		RUN_OPTIONS(.n_ranks = RANKS, .algo = "dense_ring", .n = RANKS * CHUNKS * 240,
			    .density = 0.01, .n_steps = STEPS, .landing_bytes = (RANKS - 1) * 8192);
	struct events *ranks = trace_run(&o);
	int rounds = 2 * (RANKS - 1);

	check_pairs(ranks, RANKS);
	for (int r = 0; r < RANKS; r++) {
		cr_assert_eq(count(&ranks[r], "post"), STEPS * rounds * CHUNKS);
		cr_assert_eq(count(&ranks[r], "arrive"), STEPS * rounds * CHUNKS);
		cr_assert_eq(count(&ranks[r], "merge"), STEPS * rounds * CHUNKS);
		cr_assert_eq(count(&ranks[r], "select"), STEPS);
		cr_assert_eq(count(&ranks[r], "commit"), STEPS);
	}
	free(ranks);
}

/* Whatever the algorithm; selection comes in pieces where the network is looked at meanwhile. */
Test(timeline, every_algorithm, .init = set_up, .fini = tear_down)
{
	struct spr_algo_info info;

	for (unsigned a = 0; spr_algo_info(a, &info) == 0; a++) {
		struct run_options o =
			RUN_OPTIONS(.n_ranks = 3, .algo = info.name, .n = 600000, .density = 0.0005,
				    .n_steps = 3, .gradient = gradient_floats);
		struct events *ranks = trace_run(&o);

		check_pairs(ranks, 3);
		cr_assert_gt(count(&ranks[0], "merge"), 0, "%s: merges", info.name);
		for (int r = 0; r < 3; r++) {
			bool streams = spri_algo_find(info.name)->streams;

			cr_assert_gt(count(&ranks[r], "post"), 0, "%s: posts", info.name);
			cr_assert_eq(count(&ranks[r], "select"), streams ? 15 : 3,
				     "%s: five pieces of 131072 where entries go ahead", info.name);
			cr_assert_eq(count(&ranks[r], "commit"), 3);
		}
		free(ranks);
		cr_assert_eq(empty_directory(), 3, "a file for each rank, and nothing else");
	}
}

Test(timeline, a_simulation_repeats_its_trace, .init = set_up, .fini = tear_down)
{
	struct run_options o = RUN_OPTIONS(.n_ranks = 5, .algo = "gtopk", .n = 5000, .density = 0.1,
					   .n_steps = 3, .jitter_ns = 30000, .seed = 7);
	char *before[5];

	run_free(run_steps(&o));
	for (int r = 0; r < 5; r++)
		before[r] = read_file(r);
	run_free(run_steps(&o));
	for (int r = 0; r < 5; r++) {
		char *after = read_file(r);

		cr_assert(strlen(after) > 1000 && !strcmp(before[r], after), "rank %d", r);
		free(after);
		free(before[r]);
	}
}

Test(timeline, nothing_without_the_variable, .init = set_up, .fini = tear_down)
{
	struct run_options o =
		RUN_OPTIONS(.n_ranks = 2, .algo = "gtopk", .n = 1000, .density = 0.1, .n_steps = 1);

	unsetenv("SPR_TRACE");
	run_free(run_steps(&o));
	cr_assert_eq(empty_directory(), 0, "no file");
	setenv("SPR_TRACE", "", 1);
	run_free(run_steps(&o));
	cr_assert_eq(empty_directory(), 0, "no file when it is empty");
}

/* ---- room and places ---- */

static void hear(void *arg, enum spr_log_level level, const char *text)
{
	char *heard = arg;

	if (level <= SPR_LOG_WARN)
		snprintf(heard + strlen(heard), 400 - strlen(heard), "%s\n", text);
}

Test(timeline, no_room, .init = set_up, .fini = tear_down)
{
	struct spri_timeline_event event = {.kind = SPRI_TIMELINE_COMMIT, .algo = 1};
	struct spri_timeline *timeline = NULL;
	struct spri_text why = {""};
	char heard[400] = "", *text;
	const struct spri_log log = {hear, heard, SPR_LOG_WARN};
	const struct spri_log *before = spri_log_enter(&log);

	cr_assert_eq(spri_timeline_open(&timeline, &why), 0, "%s", why.s);
	cr_assert_eq(spri_timeline_join(timeline, 3, 8), 0);
	cr_assert_eq(spri_timeline_join(timeline, 1, 2), 1, "another communicator's number");
	for (uint64_t i = 0; i < SPRI_TIMELINE_EVENTS + 77; i++) {
		event.number = event.start_ns = event.end_ns = i;
		spri_timeline_add(timeline, &event);
	}
	spri_timeline_close(timeline, "virtual");
	spri_log_enter(before);
	text = read_file(3);
	cr_assert(strstr(text, "\"rank\":3,\"ranks\":8,\"clock\":\"virtual\",\"events\":65536,"
			       "\"dropped\":77}}\n"),
		  "the file says so");
	cr_assert(strstr(text, "\"step\":65535,") && !strstr(text, "\"step\":65536,"),
		  "the first ones are kept");
	cr_assert_str_eq(heard, "trace: trace.3 has the first 65536 events; there was no room for "
				"77 more\n");
	free(text);
}

Test(timeline, without_a_communicator_no_file, .init = set_up, .fini = tear_down)
{
	struct spr_context_options options = {.size = sizeof options, .transport = "tcp"};
	struct spr_context *context = NULL;

	setenv("SPR_TCP_IF", "lo", 1);
	cr_assert_eq(spr_context_open(&options, &context), 0);
	spr_context_close(context);
	cr_assert_eq(empty_directory(), 0);
}

Test(timeline, places_that_do_not_work, .init = set_up, .fini = tear_down)
{
	struct spr_context_options options = {
		.size = sizeof options, .transport = "tcp", .log = hear};
	char bad[3][400] = {"", "", ""}, heard[400], expected[500];
	static const char *const why[] = {"No such file or directory", "Is a directory",
					  "File name too long"};

	snprintf(bad[0], sizeof bad[0], "%s/gone/trace", directory);
	snprintf(bad[1], sizeof bad[1], "%s/", directory);
	snprintf(bad[2], sizeof bad[2], "%s/%0245d", directory, 1);
	options.log_arg = heard;
	for (int i = 0; i < 3; i++) {
		struct spr_context *context = NULL;

		heard[0] = '\0';
		setenv("SPR_TRACE", bad[i], 1);
		cr_assert_eq(spr_context_open(&options, &context), SPR_EENVIRONMENT, "%s", bad[i]);
		cr_assert(!context, "no context");
		snprintf(expected, sizeof expected,
			 "context: SPR_TRACE is '%.200s', but no file can be made there: %s\n",
			 bad[i], why[i]);
		cr_assert_str_eq(heard, expected);
	}
}

Test(timeline, a_directory_that_may_not_be_written, .init = set_up, .fini = tear_down)
{
	struct spri_timeline *timeline = NULL;
	struct spri_text why = {""};

	if (geteuid() == 0)
		cr_skip("root may write everywhere");
	cr_assert_eq(chmod(directory, 0500), 0);
	cr_assert_eq(spri_timeline_open(&timeline, &why), SPR_EENVIRONMENT);
	cr_assert(strstr(why.s, "Permission denied"), "%s", why.s);
	cr_assert_eq(chmod(directory, 0700), 0);
}

/* The directory is gone when the file is to be written: the log says so. */
Test(timeline, a_place_that_stops_working, .init = set_up, .fini = tear_down)
{
	struct spri_timeline *timeline = NULL;
	struct spri_text why = {""};
	char heard[400] = "";
	const struct spri_log log = {hear, heard, SPR_LOG_WARN};
	const struct spri_log *before = spri_log_enter(&log);

	cr_assert_eq(spri_timeline_open(&timeline, &why), 0);
	(void)spri_timeline_join(timeline, 0, 1);
	cr_assert_eq(rmdir(directory), 0);
	spri_timeline_close(timeline, "virtual");
	spri_log_enter(before);
	cr_assert_str_eq(heard, "trace: trace.0: No such file or directory\n");
	cr_assert_eq(mkdir(directory, 0700), 0);
}

Test(timeline, no_memory, .init = set_up, .fini = tear_down)
{
	struct spri_timeline *timeline = NULL;
	struct spri_text why = {""};
	long live = spri_heap_live();
	int r, n = 0;

	do {
		spri_heap_fail_after(n++);
		r = spri_timeline_open(&timeline, &why);
		spri_heap_fail_after(-1);
		if (r < 0)
			cr_assert(r == -ENOMEM && !timeline && spri_heap_live() == live);
	} while (r < 0);
	cr_assert_gt(n, 2, "each allocation failed once");
	spri_timeline_close(timeline, "virtual");
	cr_assert_eq(spri_heap_live(), live);
	spri_timeline_close(NULL, "virtual");
}
