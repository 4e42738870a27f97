/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Public endpoints, between two virtual ranks that meet in a communicator and then talk beside it.
 */
#include <check.h>
#include <internal/alloc.h>
#include <sparring/sparring.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 5000, WRITES = 200 };

/* What one end has, and what it tells the other. */
struct end {
	struct spr_context *context;
	struct spr_comm *comm;
	struct spr_memory *source, *landing;
	struct spr_endpoint *endpoint;
	uint8_t out[BYTES], in[BYTES];
	struct spr_remote remote; /* the peer's landing memory */
};

struct told {
	struct spr_endpoint_address address;
	struct spr_remote remote;
};

/* One rank's task; its result is the line that went wrong, or 0. */
typedef int (*task_fn)(struct end *end, int rank);

#define EXPECT(x)                                                                                  \
	do {                                                                                       \
		if (!(x))                                                                          \
			result = __LINE__;                                                         \
	} while (0)

/* The next event, whatever it is; kind 0 when none came in time. */
static struct spr_event next(struct end *end)
{
	struct spr_event event = {0};

	if (spr_endpoint_wait(end->endpoint, spr_context_now_ns(end->context) + 1000000000) == 0)
		(void)!spr_endpoint_poll(end->endpoint, &event, 1);
	return event;
}

static int open_end(struct end *end, struct spr_sim *sim, int rank)
{
	struct spr_context_options options = {.size = sizeof options, .sim = sim, .sim_rank = rank};
	struct told mine = {0}, all[2];
	int result = 0;

	EXPECT(spr_context_open(&options, &end->context) == 0);
	EXPECT(spr_comm_create(end->context, NULL, &end->comm) == 0);
	EXPECT(spr_memory_register(end->context, end->out, BYTES, SPR_ACCESS_LOCAL, &end->source) ==
	       0);
	EXPECT(spr_memory_register(end->context, end->in, BYTES, SPR_ACCESS_REMOTE_WRITE,
				   &end->landing) == 0);
	EXPECT(spr_endpoint_create(end->context, &end->endpoint) == 0);
	if (result)
		return result;
	EXPECT(spr_endpoint_address(end->context, &mine.address) == 0);
	EXPECT(spr_endpoint_grant(end->endpoint, end->landing, &mine.remote) == 0);
	EXPECT(spr_comm_allgather(end->comm, &mine, all, sizeof mine) == 0);
	end->remote = all[1 - rank].remote;
	EXPECT(spr_endpoint_connect(end->endpoint, &all[1 - rank].address, 77, rank == 0,
				    "other") == 0);
	EXPECT(next(end).kind == SPR_EVENT_CONNECTED);
	return result;
}

static void close_end(struct end *end)
{
	spr_endpoint_destroy(end->endpoint);
	spr_memory_unregister(end->source);
	spr_memory_unregister(end->landing);
	spr_comm_destroy(end->comm);
	spr_context_close(end->context);
}

static int body(struct spr_sim *sim, int rank, void *arg)
{
	struct end *end = spri_zalloc(sizeof *end);
	task_fn task = *(task_fn *)arg;
	int result;

	if (!end)
		return __LINE__;
	result = open_end(end, sim, rank);
	if (result == 0)
		result = task(end, rank);
	close_end(end);
	spri_free(end);
	return result;
}

static void run(task_fn task)
{
	struct spr_sim_options options = {
		.size = sizeof options, .n_ranks = 2, .latency_ns = 1000, .bytes_per_s = 1e9};
	long live = spri_heap_live();
	struct spr_sim *sim;
	int statuses[2];

	cr_assert_eq(spr_sim_create(&options, &sim), 0);
	cr_assert_eq(spr_sim_run(sim, body, &task, statuses), 0);
	for (int i = 0; i < 2; i++)
		cr_assert(statuses[i] == 0, "rank %d went wrong at line %d", i, statuses[i]);
	spr_sim_destroy(sim);
	cr_assert(spri_heap_live() == live, "%ld allocations are left", spri_heap_live() - live);
}

static struct spr_write write_of(const struct end *end, size_t offset, size_t bytes,
				 uint32_t immediate)
{
	return (struct spr_write){
		.size = sizeof(struct spr_write),
		.gather = {{.base = end->out + offset, .bytes = bytes, .memory = end->source}},
		.n_gather = 1,
		.remote = end->remote,
		.offset = offset,
		.notify = 1,
		.immediate = immediate,
		.cookie = immediate + 1000,
	};
}

/* ---- data arrive before their notification, in order ---- */

static int send_all(struct end *end)
{
	uint64_t sent = 0;
	int result = 0;

	memset(end->out, 0xab, BYTES);
	for (uint32_t i = 0; i < WRITES; i++) {
		struct spr_write w = write_of(end, i * 20, 20, i);
		int r;

		while ((r = spr_endpoint_post(end->endpoint, &w)) == SPR_AGAIN) {
			EXPECT(next(end).cookie == 1000 + sent++);
			if (result)
				return result;
		}
		EXPECT(r == 0);
	}
	while (sent < WRITES && result == 0)
		EXPECT(next(end).cookie == 1000 + sent++);
	return result;
}

static int receive_all(struct end *end)
{
	int result = 0;

	for (uint32_t i = 0; i < WRITES && result == 0; i++) {
		struct spr_event event = next(end);

		EXPECT(event.kind == SPR_EVENT_NOTIFY && event.immediate == i);
		EXPECT(end->in[i * 20] == 0xab && end->in[i * 20 + 19] == 0xab);
	}
	return result;
}

static int close_and_see(struct end *end)
{
	int result = 0;

	spr_endpoint_close(end->endpoint);
	EXPECT(next(end).kind == SPR_EVENT_CLOSED);
	EXPECT(spr_endpoint_closed(end->endpoint));
	return result;
}

static int stream(struct end *end, int rank)
{
	int result = rank == 0 ? send_all(end) : receive_all(end);

	return result ? result : close_and_see(end);
}

Test(endpoint, stream)
{
	run(stream);
}

/* ---- a write past the granted memory loses the endpoint at both ends ---- */

static int trespass(struct end *end, int rank)
{
	struct spr_write w = write_of(end, 10, BYTES - 10, 1);
	struct spr_event event;
	int result = 0;

	w.offset = 11;
	if (rank == 0)
		EXPECT(spr_endpoint_post(end->endpoint, &w) == 0);
	event = next(end);
	EXPECT(event.kind == SPR_EVENT_LOST && event.status == SPR_EACCESS);
	EXPECT(spr_endpoint_error(end->endpoint)[0] != '\0');
	EXPECT(spr_endpoint_closed(end->endpoint) == 1);
	EXPECT(spr_endpoint_post(end->endpoint, &w) == SPR_EACCESS);
	for (size_t i = 0; i < BYTES; i++)
		EXPECT(end->in[i] == 0);
	return result;
}

Test(endpoint, trespass)
{
	run(trespass);
}

/*
 * ---- a post that meets the loss says why ----
 *
 * Over sockets. More writes have left than one poll reports, so that the transport knows of the
 * loss behind them before the endpoint does.
 */

enum { PENDING = 100 };

static void open_sides(struct spr_context *contexts[2], struct spr_endpoint *endpoints[2])
{
	struct spr_context_options options = {.size = sizeof options, .transport = "tcp"};
	struct spr_endpoint_address addresses[2];
	bool connected[2] = {false, false};

	setenv("SPR_TCP_IF", "lo", 1);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(spr_context_open(&options, &contexts[i]), 0);
		cr_assert_eq(spr_endpoint_create(contexts[i], &endpoints[i]), 0);
		cr_assert_eq(spr_endpoint_address(contexts[i], &addresses[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		cr_assert_eq(spr_endpoint_connect(endpoints[i], &addresses[1 - i], 1, i, "other"),
			     0);
	for (int i = 0; !connected[0] || !connected[1]; i = 1 - i) {
		struct spr_event event;

		if (spr_endpoint_poll(endpoints[i], &event, 1) == 1) {
			cr_assert_eq(event.kind, SPR_EVENT_CONNECTED);
			connected[i] = true;
		}
	}
}

/* Posts and takes an event each time, until a post fails. Returns how. */
static int post_until_lost(struct spr_endpoint *endpoint)
{
	struct spr_write write = {.size = sizeof write, .notify = 1};
	struct spr_event event;
	int r;

	do {
		cr_assert_geq(spr_endpoint_poll(endpoint, &event, 1), 0);
		r = spr_endpoint_post(endpoint, &write);
	} while (r >= 0);
	return r;
}

Test(endpoint, meet_loss)
{
	struct spr_write write = {.size = sizeof write, .notify = 1};
	struct spr_context *contexts[2];
	struct spr_endpoint *endpoints[2];
	int r;

	open_sides(contexts, endpoints);
	for (int i = 0; i < PENDING; i++)
		cr_assert_eq(spr_endpoint_post(endpoints[0], &write), 0);
	spr_endpoint_destroy(endpoints[1]);
	r = post_until_lost(endpoints[0]);
	cr_assert(strncmp(spr_endpoint_error(endpoints[0]), "other: ", 7) == 0, "%s: \"%s\"",
		  spr_strerror(r), spr_endpoint_error(endpoints[0]));
	spr_endpoint_destroy(endpoints[0]);
	spr_context_close(contexts[0]);
	spr_context_close(contexts[1]);
}

/* ---- arguments ---- */

static int arguments(struct end *end, int rank)
{
	struct spr_write w = write_of(end, 0, 1, 0);
	struct spr_memory *memory;
	int result = 0;

	if (rank == 1) /* connected first; the peer's goodbye cannot be here yet */
		EXPECT(spr_endpoint_wait(end->endpoint, spr_context_now_ns(end->context)) ==
		       SPR_ETIMEOUT);
	EXPECT(spr_memory_register(end->context, NULL, 1, SPR_ACCESS_LOCAL, &memory) ==
	       SPR_EARGUMENT);
	EXPECT(spr_memory_register(end->context, end->out, 0, SPR_ACCESS_LOCAL, &memory) ==
	       SPR_EARGUMENT);
	w.n_gather = SPR_GATHER_MOST + 1;
	EXPECT(spr_endpoint_post(end->endpoint, &w) == SPR_EARGUMENT);
	w.n_gather = 1;
	w.size = 0;
	EXPECT(spr_endpoint_post(end->endpoint, &w) == SPR_EARGUMENT);
	w.size = sizeof w;
	w.gather[0].memory = NULL;
	EXPECT(spr_endpoint_post(end->endpoint, &w) == SPR_EARGUMENT);
	return result ? result : close_and_see(end);
}

Test(endpoint, arguments)
{
	run(arguments);
}
