/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The simulator: one fiber per rank (ucontext), one scheduler, one fabric with virtual time.
 *
 *   1. a fiber runs until it waits: in the transport (on_wait), or in the meeting of ranks
 *      (spri_sim_allgather)
 *   2. the scheduler runs the fibers that have something to do (the fabric tells whose port got
 *      something), in an order drawn from the seed
 *   3. when none has, time moves: to the next event of the fabric, the next deadline, or the next
 *      kill
 *
 * A killed fiber is not run again until the others have ended; then its waits fail at once
 * (SPR_ELOST), so that its body returns and frees what it holds. Its status is SPR_ELOST whatever
 * it returns.
 */
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/error.h>
#include <internal/log.h>
#include <internal/philox.h>
#include <sim.h>
#include <string.h>
#include <ucontext.h>

#if SPRI_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#define DEFAULT_STACK (256u << 10)
#define MAX_SIM_RANKS 4096

enum fiber_state { FIBER_NEW, FIBER_READY, FIBER_WAITS, FIBER_MEETS, FIBER_DONE };

struct fiber {
	ucontext_t context;
	uint8_t *stack; /* stack_bytes, owned */
	void *tsan;	/* ThreadSanitizer's idea of the fiber */
	struct spr_sim *sim;
	uint32_t rank;
	enum fiber_state state;
	bool killed;
	bool listed;	      /* it is in the list of those to run */
	uint64_t kill_at;     /* SPRI_NEVER: not planned */
	uint64_t deadline_ns; /* while it waits or meets */
	uint64_t meetings;    /* it has joined so many */
	int status;
};

/*
 * The meeting under way. Two buffers: a rank may be one meeting ahead of the slowest reader,
 * never two.
 */
struct meeting {
	uint64_t finished; /* meetings all have joined */
	uint32_t joined;   /* ranks in the current one */
	size_t bytes;	   /* of each rank */
	uint8_t *all[2];   /* n_ranks × bytes, by parity of the meeting's number */
};

struct spr_sim {
	struct spri_fabric *fabric;
	uint32_t n_ranks;
	size_t stack_bytes;
	uint64_t seed, draws; /* of the order in which fibers run */
	struct fiber *fibers;
	uint32_t *list; /* ranks that may have something to do, each once */
	uint32_t n_listed;
	uint32_t n_left;	/* fibers that are neither done nor killed */
	uint64_t next_deadline; /* no fiber waits for an earlier time */
	uint64_t next_kill;	/* no kill is planned for an earlier time */
	ucontext_t scheduler;
	void *scheduler_tsan;
	struct fiber *current; /* the one that runs; NULL: the scheduler */
	bool unwinding;	       /* all others ended: killed fibers run to their end */
	bool any_killed;
	struct meeting meeting;
	spr_sim_fn body;
	void *arg;
};

/* ---- switching ---- */

static void *tsan_here(void)
{
#if SPRI_TSAN
	return __tsan_get_current_fiber();
#else
	return NULL;
#endif
}

static void *tsan_create(void)
{
#if SPRI_TSAN
	return __tsan_create_fiber(0);
#else
	return NULL;
#endif
}

static void tsan_destroy(void *fiber SPRI_UNUSED)
{
#if SPRI_TSAN
	if (fiber)
		__tsan_destroy_fiber(fiber);
#endif
}

static void tsan_switch(void *fiber SPRI_UNUSED)
{
#if SPRI_TSAN
	__tsan_switch_to_fiber(fiber, 0);
#endif
}

/*
 * From a fiber to the scheduler, until it is resumed. The log hook is per thread, so it is put
 * back.
 */
static void suspend(struct fiber *fiber)
{
	struct spr_sim *sim = fiber->sim;
	const struct spri_log *log = spri_log_enter(NULL);

	sim->current = NULL;
	tsan_switch(sim->scheduler_tsan);
	swapcontext(&fiber->context, &sim->scheduler);
	spri_log_enter(log);
}

static void resume(struct fiber *fiber)
{
	struct spr_sim *sim = fiber->sim;

	sim->current = fiber;
	tsan_switch(fiber->tsan);
	swapcontext(&sim->scheduler, &fiber->context);
}

/* makecontext passes ints only: the pointer comes in two halves. */
static void fiber_main(unsigned high, unsigned low)
{
	struct fiber *fiber = (struct fiber *)(uintptr_t)((uint64_t)high << 32 | low);
	int status = fiber->sim->body(fiber->sim, (int)fiber->rank, fiber->sim->arg);

	fiber->status = fiber->killed ? SPR_ELOST : status;
	fiber->state = FIBER_DONE;
	if (!fiber->killed)
		fiber->sim->n_left--;
	suspend(fiber);
}

/* ---- waiting ---- */

/* This rank may have something to do. */
static void enlist(struct spr_sim *sim, uint32_t rank)
{
	struct fiber *fiber = &sim->fibers[rank];

	if (fiber->listed)
		return;
	fiber->listed = true;
	sim->list[sim->n_listed++] = rank;
}

/* The fabric's hook: the port of this place has something to report. */
static void on_ready(void *arg, uint32_t place)
{
	enlist(arg, place);
}

static void enlist_meeting(struct spr_sim *sim)
{
	for (uint32_t i = 0; i < sim->n_ranks; i++)
		if (sim->fibers[i].state == FIBER_MEETS)
			enlist(sim, i);
}

/* The fabric's hook: a port of this place waits. */
static int on_wait(void *arg, uint32_t place, uint64_t deadline_ns)
{
	struct spr_sim *sim = arg;
	struct fiber *fiber = &sim->fibers[place];

	assert(sim->current == fiber);
	if (sim->unwinding && fiber->killed)
		return SPR_ELOST;
	if (spri_fabric_ready(sim->fabric, place))
		return 0;
	fiber->state = FIBER_WAITS;
	fiber->deadline_ns = deadline_ns;
	sim->next_deadline = spri_min_u64(sim->next_deadline, deadline_ns);
	suspend(fiber);
	fiber->state = FIBER_READY;
	return fiber->killed ? SPR_ELOST : 0;
}

int spri_sim_allgather(struct spr_sim *sim, uint32_t rank, const void *mine, void *all,
		       size_t bytes, uint64_t deadline_ns)
{
	struct fiber *fiber = &sim->fibers[rank];
	struct meeting *m = &sim->meeting;
	uint64_t number = fiber->meetings++;
	uint8_t **buffer = &m->all[number % 2];

	assert(sim->current == fiber);
	if (sim->any_killed)
		return SPR_ELOST;
	if (m->joined == 0) {
		spri_free(*buffer);
		*buffer = spri_calloc(sim->n_ranks, bytes);
		if (!*buffer) {
			fiber->meetings--;
			return -ENOMEM;
		}
		m->bytes = bytes;
	}
	if (bytes != m->bytes)
		return SPR_EMISMATCH;
	memcpy(*buffer + rank * bytes, mine, bytes);
	if (++m->joined == sim->n_ranks) {
		m->joined = 0;
		m->finished++;
		enlist_meeting(sim);
	}
	while (m->finished <= number) {
		int r = sim->any_killed || fiber->killed ? SPR_ELOST : 0;

		if (r == 0 && spri_fabric_now(sim->fabric) >= deadline_ns)
			r = SPR_ETIMEOUT;
		if (r < 0) { /* it takes its place back, for the next try */
			m->joined--;
			fiber->meetings--;
			return r;
		}
		fiber->state = FIBER_MEETS;
		fiber->deadline_ns = deadline_ns;
		sim->next_deadline = spri_min_u64(sim->next_deadline, deadline_ns);
		suspend(fiber);
		fiber->state = FIBER_READY;
	}
	memcpy(all, *buffer, sim->n_ranks * bytes);
	return 0;
}

/* ---- scheduling ---- */

static bool can_run(const struct spr_sim *sim, const struct fiber *fiber)
{
	if (fiber->killed)
		return false;
	switch (fiber->state) {
	case FIBER_NEW:
	case FIBER_READY:
		return true;
	case FIBER_WAITS:
		return spri_fabric_ready(sim->fabric, fiber->rank) ||
		       spri_fabric_now(sim->fabric) >= fiber->deadline_ns;
	case FIBER_MEETS:
		return sim->meeting.finished >= fiber->meetings || sim->any_killed ||
		       spri_fabric_now(sim->fabric) >= fiber->deadline_ns;
	case FIBER_DONE:
		break;
	}
	return false;
}

static void kill_fiber(struct spr_sim *sim, struct fiber *fiber)
{
	if (fiber->killed || fiber->state == FIBER_DONE)
		return;
	fiber->killed = true;
	sim->any_killed = true;
	sim->n_left--;
	spri_fabric_kill(sim->fabric, fiber->rank);
	enlist_meeting(sim);
}

/* Kills that are due; then the time of the next one. */
static void apply_kills(struct spr_sim *sim)
{
	uint64_t now = spri_fabric_now(sim->fabric);

	if (sim->next_kill > now)
		return;
	sim->next_kill = SPRI_NEVER;
	for (uint32_t i = 0; i < sim->n_ranks; i++) {
		struct fiber *fiber = &sim->fibers[i];

		if (fiber->kill_at <= now)
			kill_fiber(sim, fiber);
		else
			sim->next_kill = spri_min_u64(sim->next_kill, fiber->kill_at);
	}
}

/* Fibers whose deadline passed get a turn; then the time of the next one. */
static void apply_deadlines(struct spr_sim *sim)
{
	uint64_t now = spri_fabric_now(sim->fabric);

	if (sim->next_deadline > now)
		return;
	sim->next_deadline = SPRI_NEVER;
	for (uint32_t i = 0; i < sim->n_ranks; i++) {
		const struct fiber *fiber = &sim->fibers[i];

		if (fiber->killed || (fiber->state != FIBER_WAITS && fiber->state != FIBER_MEETS))
			continue;
		if (fiber->deadline_ns <= now)
			enlist(sim, i);
		else
			sim->next_deadline = spri_min_u64(sim->next_deadline, fiber->deadline_ns);
	}
}

/* Gives every listed fiber a turn, in an order drawn anew each time (Fisher-Yates). */
static void run_listed(struct spr_sim *sim)
{
	while (sim->n_listed > 0) {
		uint32_t at = 0, rank;

		if (sim->n_listed > 1)
			at = (uint32_t)(spri_philox(sim->seed, sim->draws++) % sim->n_listed);
		rank = sim->list[at];
		sim->list[at] = sim->list[--sim->n_listed];
		sim->fibers[rank].listed = false;
		if (can_run(sim, &sim->fibers[rank]))
			resume(&sim->fibers[rank]);
	}
}

static int schedule(struct spr_sim *sim)
{
	for (uint32_t i = 0; i < sim->n_ranks; i++)
		enlist(sim, i);
	for (;;) {
		uint64_t stop;

		apply_kills(sim);
		apply_deadlines(sim);
		if (sim->n_listed > 0) {
			run_listed(sim);
			continue;
		}
		if (sim->n_left == 0)
			return 0;
		stop = spri_min_u64(sim->next_deadline, sim->next_kill);
		if (!spri_fabric_advance(sim->fabric, stop) && stop == SPRI_NEVER)
			return -EDEADLK; /* cannot be: every wait of the library has a deadline */
		/* all that happens in this instant, before any rank is looked at */
		while (spri_fabric_advance(sim->fabric, spri_fabric_now(sim->fabric)))
			;
	}
}

/* Killed fibers that have begun run to their end, one after the other. */
static void unwind(struct spr_sim *sim)
{
	sim->unwinding = true;
	for (uint32_t i = 0; i < sim->n_ranks; i++) {
		struct fiber *fiber = &sim->fibers[i];

		while (fiber->killed && fiber->state != FIBER_DONE && fiber->state != FIBER_NEW)
			resume(fiber);
		if (fiber->killed)
			fiber->status = SPR_ELOST;
	}
	sim->unwinding = false;
}

/* ---- public ---- */

static int init_fiber(struct spr_sim *sim, uint32_t rank)
{
	struct fiber *fiber = &sim->fibers[rank];
	uint64_t p = (uint64_t)(uintptr_t)fiber;

	fiber->sim = sim;
	fiber->rank = rank;
	fiber->state = FIBER_NEW;
	fiber->status = 0;
	fiber->listed = false;
	fiber->meetings = 0;
	fiber->deadline_ns = SPRI_NEVER;
	fiber->stack = spri_alloc_pages(sim->stack_bytes);
	if (!fiber->stack)
		return -ENOMEM;
	if (getcontext(&fiber->context) < 0)
		return -errno;
	fiber->context.uc_stack.ss_sp = fiber->stack;
	fiber->context.uc_stack.ss_size = sim->stack_bytes;
	fiber->context.uc_link = NULL;
	makecontext(&fiber->context, (void (*)(void))fiber_main, 2, (unsigned)(p >> 32),
		    (unsigned)p);
	fiber->tsan = tsan_create();
	return 0;
}

static void fini_fibers(struct spr_sim *sim)
{
	for (uint32_t i = 0; i < sim->n_ranks; i++) {
		struct fiber *fiber = &sim->fibers[i];

		tsan_destroy(fiber->tsan);
		fiber->tsan = NULL;
		spri_free_pages(fiber->stack, sim->stack_bytes);
		fiber->stack = NULL;
	}
	spri_free(sim->meeting.all[0]);
	spri_free(sim->meeting.all[1]);
	memset(&sim->meeting, 0, sizeof sim->meeting);
}

int spr_sim_create(const struct spr_sim_options *options, struct spr_sim **out)
{
	struct spri_fabric_options fabric = {0};
	struct spr_sim *sim;
	int r;

	if (!options || !out || options->size < sizeof *options || options->n_ranks < 1 ||
	    options->n_ranks > MAX_SIM_RANKS || !(options->bytes_per_s >= 0))
		return SPR_EARGUMENT;
	sim = spri_zalloc(sizeof *sim);
	if (!sim)
		return -ENOMEM;
	sim->n_ranks = (uint32_t)options->n_ranks;
	sim->seed = options->seed;
	sim->stack_bytes =
		spri_align_up(options->stack_bytes ? options->stack_bytes : DEFAULT_STACK, 4096);
	sim->fibers = spri_calloc(sim->n_ranks, sizeof *sim->fibers);
	sim->list = spri_calloc(sim->n_ranks, sizeof *sim->list);
	r = sim->fibers && sim->list ? 0 : -ENOMEM;
	if (r < 0)
		goto free_sim;
	for (uint32_t i = 0; i < sim->n_ranks; i++)
		sim->fibers[i].kill_at = SPRI_NEVER;
	sim->next_kill = SPRI_NEVER;
	fabric.n_places = sim->n_ranks;
	fabric.latency_ns = options->latency_ns;
	fabric.bytes_per_s = options->bytes_per_s;
	fabric.jitter_ns = options->jitter_ns;
	fabric.seed = options->seed;
	r = spri_fabric_create(&fabric, &sim->fabric);
	if (r < 0)
		goto free_sim;
	spri_fabric_on_wait(sim->fabric, on_wait, sim);
	spri_fabric_on_ready(sim->fabric, on_ready, sim);
	*out = sim;
	return 0;
free_sim:
	spri_free(sim->list);
	spri_free(sim->fibers);
	spri_free(sim);
	return spri_trace(r);
}

void spr_sim_destroy(struct spr_sim *sim)
{
	if (!sim)
		return;
	spri_fabric_destroy(sim->fabric);
	spri_free(sim->list);
	spri_free(sim->fibers);
	spri_free(sim);
}

int spr_sim_run(struct spr_sim *sim, spr_sim_fn body, void *arg, int *statuses)
{
	int r = 0;

	if (!sim || !body || sim->current)
		return SPR_EARGUMENT;
	sim->body = body;
	sim->arg = arg;
	sim->scheduler_tsan = tsan_here();
	sim->next_deadline = SPRI_NEVER;
	sim->n_listed = 0;
	sim->n_left = 0;
	for (uint32_t i = 0; i < sim->n_ranks; i++)
		sim->n_left += !sim->fibers[i].killed;
	for (uint32_t i = 0; i < sim->n_ranks && r == 0; i++)
		r = init_fiber(sim, i);
	if (r == 0)
		r = schedule(sim);
	if (r == 0)
		unwind(sim);
	for (uint32_t i = 0; i < sim->n_ranks && statuses; i++)
		statuses[i] = sim->fibers[i].status;
	fini_fibers(sim);
	return spri_trace(r);
}

uint64_t spr_sim_now_ns(const struct spr_sim *sim)
{
	return spri_fabric_now(sim->fabric);
}

void spr_sim_kill(struct spr_sim *sim, int rank)
{
	struct fiber *fiber;

	if (rank < 0 || (uint32_t)rank >= sim->n_ranks)
		return;
	fiber = &sim->fibers[rank];
	fiber->kill_at = 0;
	sim->next_kill = 0;
	if (!sim->current)
		return; /* when the run begins */
	kill_fiber(sim, fiber);
	if (sim->current == fiber)
		suspend(fiber);
}

void spr_sim_kill_at(struct spr_sim *sim, int rank, uint64_t at_ns)
{
	if (rank < 0 || (uint32_t)rank >= sim->n_ranks)
		return;
	sim->fibers[rank].kill_at = at_ns;
	sim->next_kill = spri_min_u64(sim->next_kill, at_ns);
}

void spr_sim_delay(struct spr_sim *sim, int from, int to, uint64_t extra_ns)
{
	if (from < 0 || (uint32_t)from >= sim->n_ranks || to < 0 || (uint32_t)to >= sim->n_ranks)
		return;
	spri_fabric_delay(sim->fabric, (uint32_t)from, (uint32_t)to, extra_ns);
}

struct spri_fabric *spri_sim_fabric(struct spr_sim *sim)
{
	return sim->fabric;
}

uint32_t spri_sim_ranks(const struct spr_sim *sim)
{
	return sim->n_ranks;
}
