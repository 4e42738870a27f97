/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The trace of SPR_TRACE; see timeline.h. The file is one JSON object of the Trace Event Format:
 * complete events (ph X), one process for the rank and a thread for selection, for commits and for
 * each lane; and an arrow (ph s, f) from every post to its arrival, whose id both ends compute.
 * Times are microseconds of the context's clock, which is each machine's own.
 *
 * Failures: a directory that cannot be written is found when the context is opened. When the events
 * are more than there is room for, the first ones are kept, and the file and the log say how many
 * are missing. A file that cannot be written after all is an error in the log.
 */
#include <coll/coll.h>
#include <errno.h>
#include <fcntl.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/env.h>
#include <internal/file.h>
#include <internal/log.h>
#include <limits.h>
#include <sparring/info.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <timeline.h>
#include <unistd.h>

#define NS_PER_US 1000u
#define SUFFIX_BYTES 11u /* ".4294967295" */
#define MOST_PUT 512u	 /* bytes that one put() may write */

struct spri_timeline {
	struct spri_timeline_event *events;	/* SPRI_TIMELINE_EVENTS, owned pages */
	atomic_uint_fast64_t n;			/* added, also those without room */
	uint32_t rank, n_ranks;			/* of the first communicator */
	uint16_t n_comms;			/* that joined */
	int directory;				/* descriptor, owned; −1: none */
	char base[NAME_MAX + 1 - SUFFIX_BYTES]; /* the file's name in it, without the rank */
};

/* ---- opening ---- */

/* The directory, and the name in it. */
static int open_place(struct spri_timeline *timeline, const char *path)
{
	const char *base;
	int r = spri_file_directory(path, &base);

	if (r < 0)
		return r;
	timeline->directory = r;
	if (strlen(base) >= sizeof timeline->base)
		return -ENAMETOOLONG;
	strcpy(timeline->base, base);
	return faccessat(timeline->directory, ".", W_OK | X_OK, AT_EACCESS) == 0 ? 0 : -errno;
}

static void free_timeline(struct spri_timeline *timeline)
{
	if (timeline->directory >= 0)
		close(timeline->directory);
	spri_free_pages(timeline->events, SPRI_TIMELINE_EVENTS * sizeof *timeline->events);
	spri_free(timeline);
}

int spri_timeline_open(struct spri_timeline **out, struct spri_text *text)
{
	const char *path = spri_env_get(SPRI_ENV_TRACE);
	struct spri_timeline *timeline;
	int r;

	if (!path)
		return 0;
	timeline = spri_zalloc(sizeof *timeline);
	if (!timeline)
		return spri_trace(-ENOMEM);
	timeline->directory = -1;
	timeline->events = spri_alloc_pages(SPRI_TIMELINE_EVENTS * sizeof *timeline->events);
	r = timeline->events ? open_place(timeline, path) : -ENOMEM;
	if (r == 0) {
		*out = timeline;
		return 0;
	}
	free_timeline(timeline);
	if (r == -ENOMEM)
		return spri_trace(r);
	spri_text_set(text, "SPR_TRACE is '%.200s', but no file can be made there: %s", path,
		      spr_strerror(r));
	return spri_trace(SPR_EENVIRONMENT);
}

struct spri_timeline_chunk spri_timeline_chunk(uint32_t peer, uint32_t number,
					       const struct spri_chunk *chunk)
{
	return (struct spri_timeline_chunk){
		.peer = peer,
		.round = chunk->round,
		.block = chunk->block,
		.entries = chunk->count,
		.bytes = SPRI_CHUNK_HEADER + chunk->payload_bytes,
		.number = number,
	};
}

uint16_t spri_timeline_join(struct spri_timeline *timeline, uint32_t rank, uint32_t n_ranks)
{
	if (timeline->n_comms == 0) {
		timeline->rank = rank;
		timeline->n_ranks = n_ranks;
	}
	return timeline->n_comms++;
}

void spri_timeline_add(struct spri_timeline *timeline, const struct spri_timeline_event *event)
{
	/* the place is the thread's own; who writes the file has joined or locked out all others */
	uint64_t at = atomic_fetch_add_explicit(&timeline->n, 1, memory_order_relaxed);

	if (at < SPRI_TIMELINE_EVENTS)
		timeline->events[at] = *event;
}

/* ---- the file ---- */

/* What is on its way to the file. */
struct output {
	int fd;
	int failed; /* 0, or what the first write that failed returned */
	size_t used;
	char bytes[4096];
};

static void flush(struct output *out)
{
	if (!out->failed)
		out->failed = spri_file_write(out->fd, out->bytes, out->used);
	out->used = 0;
}

static void put(struct output *out, const char *format, ...) SPRI_PRINTF(2, 3);

static void put(struct output *out, const char *format, ...)
{
	va_list args;
	int n;

	if (sizeof out->bytes - out->used < MOST_PUT)
		flush(out);
	va_start(args, format);
	n = vsnprintf(out->bytes + out->used, MOST_PUT, format, args);
	va_end(args);
	assert(n >= 0 && n < (int)MOST_PUT);
	out->used += (size_t)n;
}

/* A time or a duration, as microseconds. */
static void put_time(struct output *out, const char *key, uint64_t ns)
{
	put(out, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / NS_PER_US),
	    (unsigned)(ns % NS_PER_US));
}

/* Threads of the file. */
enum { THREAD_SELECT, THREAD_COMMIT, THREAD_LANE, N_THREADS = THREAD_LANE + SPRI_LANES };

static unsigned thread_of(const struct spri_timeline_event *e)
{
	if (e->kind == SPRI_TIMELINE_SELECT)
		return THREAD_SELECT;
	return e->kind == SPRI_TIMELINE_COMMIT ? THREAD_COMMIT : THREAD_LANE + e->lane;
}

static const char *algo_name(uint8_t id)
{
	const struct spri_algo *row;

	for (unsigned i = 0; (row = spri_algo_row(i)) != NULL; i++)
		if (row->id == id)
			return row->name;
	return "";
}

static void put_names(struct output *out, const struct spri_timeline *timeline)
{
	put(out,
	    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"tid\":0,"
	    "\"args\":{\"name\":\"rank %u\"}},\n"
	    "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%u,\"tid\":0,"
	    "\"args\":{\"sort_index\":%u}}",
	    timeline->rank, timeline->rank, timeline->rank, timeline->rank);
	for (unsigned i = 0; i < N_THREADS; i++) {
		put(out,
		    ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,"
		    "\"args\":{\"name\":",
		    timeline->rank, i);
		if (i < THREAD_LANE)
			put(out, "\"%s\"}}", i == THREAD_SELECT ? "select" : "commit");
		else
			put(out, "\"lane %u\"}}", i - THREAD_LANE);
	}
}

static void put_args(struct output *out, const struct spri_timeline_event *e)
{
	const struct spri_timeline_chunk *chunk = &e->chunk;

	put(out, ",\"args\":{\"algorithm\":\"%s\"", algo_name(e->algo));
	if (e->kind == SPRI_TIMELINE_SELECT || e->kind == SPRI_TIMELINE_COMMIT) {
		put(out, ",\"step\":%llu", (unsigned long long)e->number);
		if (e->kind == SPRI_TIMELINE_SELECT)
			put(out, ",\"part\":%u", e->part);
		put(out, ",\"entries\":%llu}}", (unsigned long long)e->entries);
		return;
	}
	put(out, ",\"operation\":%llu,\"communicator\":%u", (unsigned long long)e->number, e->comm);
	if (chunk->peer != SPRI_NO_RANK)
		put(out,
		    ",\"peer\":%u,\"round\":%u,\"block\":%u,\"entries\":%u,\"bytes\":%u,"
		    "\"chunk\":%u",
		    chunk->peer, chunk->round, chunk->block, chunk->entries, chunk->bytes,
		    chunk->number);
	put(out, "}}");
}

/* The same number at both ends of a chunk's way, exact in a double. */
static uint64_t arrow_id(const struct spri_timeline_event *e, uint32_t from, uint32_t to)
{
	uint64_t id = spri_mix64((uint64_t)e->comm << 1 | e->lane);

	id = spri_mix64(id + ((uint64_t)from << 32 | to));
	return spri_mix64(id + e->chunk.number) >> 11;
}

static void put_event(struct output *out, const struct spri_timeline *timeline,
		      const struct spri_timeline_event *e)
{
	static const char *const names[] = {"select", "post", "arrive", "merge", "commit"};
	bool post = e->kind == SPRI_TIMELINE_POST, arrive = e->kind == SPRI_TIMELINE_ARRIVE;
	uint32_t pid = timeline->rank, peer = e->chunk.peer;
	unsigned thread = thread_of(e);

	put(out, ",\n{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%u,\"tid\":%u",
	    names[e->kind], names[e->kind], pid, thread);
	put_time(out, "ts", e->start_ns);
	/* an arrow needs something to hold on to */
	put_time(out, "dur", spri_max_u64(e->end_ns - e->start_ns, post || arrive ? 1 : 0));
	put_args(out, e);
	if (!post && !arrive)
		return;
	put(out, ",\n{\"ph\":\"%s\",\"name\":\"chunk\",\"cat\":\"chunk\",\"id\":%llu",
	    post ? "s" : "f\",\"bp\":\"e",
	    (unsigned long long)arrow_id(e, post ? e->rank : peer, post ? peer : e->rank));
	put(out, ",\"pid\":%u,\"tid\":%u", pid, thread);
	put_time(out, "ts", e->start_ns);
	put(out, "}");
}

struct writing {
	const struct spri_timeline *timeline;
	const char *clock;
	uint64_t n, dropped;
};

static int write_file(int fd, void *arg)
{
	const struct writing *writing = arg;
	const struct spri_timeline *timeline = writing->timeline;
	struct output out = {.fd = fd};

	put(&out, "{\"traceEvents\":[\n");
	put_names(&out, timeline);
	for (uint64_t i = 0; i < writing->n; i++)
		put_event(&out, timeline, &timeline->events[i]);
	put(&out,
	    "\n],\n\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"version\":\"sparring %s\","
	    "\"rank\":%u,\"ranks\":%u,\"clock\":\"%s\",\"events\":%llu,\"dropped\":%llu}}\n",
	    spr_version(), timeline->rank, timeline->n_ranks, writing->clock,
	    (unsigned long long)writing->n, (unsigned long long)writing->dropped);
	flush(&out);
	return out.failed;
}

void spri_timeline_close(struct spri_timeline *timeline, const char *clock)
{
	struct writing writing = {.timeline = timeline, .clock = clock};
	char name[NAME_MAX + 1];
	int r;

	if (!timeline)
		return;
	if (timeline->n_comms > 0) {
		writing.n = spri_min_u64(timeline->n, SPRI_TIMELINE_EVENTS);
		writing.dropped = timeline->n - writing.n;
		snprintf(name, sizeof name, "%s.%u", timeline->base, timeline->rank);
		r = spri_file_replace(timeline->directory, name, write_file, &writing);
		if (r < 0)
			spri_logf(SPR_LOG_ERROR, "trace: %s: %s", name, spr_strerror(r));
		else if (writing.dropped > 0)
			spri_logf(SPR_LOG_WARN,
				  "trace: %s has the first %llu events; there was no room for "
				  "%llu more",
				  name, (unsigned long long)writing.n,
				  (unsigned long long)writing.dropped);
	}
	free_timeline(timeline);
}
