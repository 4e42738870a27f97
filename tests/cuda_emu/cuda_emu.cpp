/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The scheduler of the emulator (emu.h, cuda_emu.h).
 *
 *   1. the blocks of a kernel start in a drawn order, up to MOST_BLOCKS at once
 *   2. at a point a thread goes on, or (drawn) another one does: mostly of its block, sometimes of
 *      another, whose shared memory then takes the place of this one's
 *   3. at a barrier it waits for its block, at a shuffle for the lanes of the mask; who comes last
 *      makes the others runnable again
 *   4. when all threads of a block have ended, the next block starts
 *
 * How often threads change is drawn per kernel, so that some runs are nearly in order and others
 * change at every point; in every other block one warp runs only when the others cannot. What
 * cannot be right aborts, with a text: see emu.h. A kernel in which nothing ends and no barrier is
 * passed for MOST_IDLE points counts as stuck.
 */
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "emu.h"
#include "fiber.h"

#define EMU_UNIT none
#include "cuda_emu.h"

namespace
{
const unsigned MOST_BLOCKS = 6;
const unsigned MOST_THREADS = 2048; /* in flight */
const size_t STACK_BYTES = 128u << 10;
const uint64_t MOST_IDLE = 20u * 1000 * 1000;
const unsigned WARP = 32;

struct block;

struct thread : emu::place {
	emu_fiber *fiber = nullptr;
	block *home = nullptr;
	unsigned number = 0; /* in the block */
	enum { runs, at_barrier, at_meeting, ended } state = runs;
	unsigned at_runnable = 0; /* where it stands in the block's list */
	/* while it waits: for what */
	emu::op kind = emu::op::sync;
	unsigned mask = 0, from = 0;
	uint64_t value = 0, result = 0;
	int line = 0;
};

struct warp {
	unsigned waiting = 0; /* lanes that do, at a meeting */
};

struct block {
	std::vector<warp> warps;
	unsigned starved = ~0u; /* this warp runs only when others cannot; ~0: none */
	std::vector<thread *> threads, runnable;
	unsigned n_ended = 0;
	/* at the barrier: how many wait, whose predicates held, at which one */
	unsigned n_waiting = 0, held = 0;
	emu::op kind = emu::op::sync;
	int line = 0;
	std::vector<char> shared; /* while another block is in its place */
	std::unique_ptr<char[]> dynamic;
};

/* All of the emulator, never freed; the mutex guards the rest, from a kernel's start to its end. */
struct machine {
	std::mutex mutex;
	uint64_t random = 1;
	emu::kernel *kernel = nullptr;
	void **params = nullptr;
	emu_fiber *main = nullptr;
	std::vector<std::unique_ptr<thread>> all; /* every thread there ever was */
	std::vector<thread *> idle;
	std::vector<block *> flight;
	block *resident = nullptr; /* its shared memory is in place */
	block *over = nullptr;	   /* has just ended */
	unsigned change_mask = 0;
	uint64_t idle_points = 0;
	void (*on_release)(void *arg, const uint32_t *p, uint32_t v) = nullptr;
	void *on_release_arg = nullptr;
} &m = *new machine;

emu::kernel *first_kernel; /* set before main */

thread *self()
{
	return static_cast<thread *>(emu::here);
}

/* xorshift64*, the upper half. */
uint32_t draw()
{
	m.random ^= m.random >> 12;
	m.random ^= m.random << 25;
	m.random ^= m.random >> 27;
	return (uint32_t)(m.random * 0x2545f4914f6cdd1du >> 32);
}

uint32_t draw_below(size_t n)
{
	return (uint32_t)((uint64_t)draw() * n >> 32);
}

const char *state_text(const thread *t)
{
	static const char *const text[] = {"runs", "waits at a barrier", "waits for its warp",
					   "has ended"};

	return text[t->state];
}

[[noreturn]] void stuck(const char *what)
{
	unsigned shown = 0;

	for (block *b : m.flight) {
		for (thread *t : b->threads) {
			if (t->state == thread::ended || shown++ >= 8)
				continue;
			std::fprintf(stderr, "cuda_emu: block %u thread %u %s, line %d\n",
				     t->block_at.x, t->number, state_text(t), t->line);
		}
	}
	emu::fail(what);
}

/* ---- runnable threads ---- */

void make_runnable(thread *t)
{
	t->state = thread::runs;
	t->at_runnable = (unsigned)t->home->runnable.size();
	t->home->runnable.push_back(t);
}

void take_out(thread *t)
{
	std::vector<thread *> &list = t->home->runnable;

	list[t->at_runnable] = list.back();
	list[t->at_runnable]->at_runnable = t->at_runnable;
	list.pop_back();
}

thread *pick_of(block *b)
{
	thread *t = b->runnable[draw_below(b->runnable.size())];

	for (int tries = 0; tries < 16 && t->number / WARP == b->starved; tries++)
		t = b->runnable[draw_below(b->runnable.size())];
	return t;
}

/* Mostly of the same block, which is cheaper. */
thread *pick(block *preferred)
{
	size_t n = m.flight.size(), start;

	if (preferred && !preferred->runnable.empty() && draw() % 16 != 0)
		return pick_of(preferred);
	start = draw_below(n);
	for (size_t i = 0; i < n; i++) {
		block *b = m.flight[(start + i) % n];

		if (!b->runnable.empty())
			return pick_of(b);
	}
	stuck("deadlock: no thread can go on");
}

/* ---- changing ---- */

void bring_shared(block *b)
{
	char *place = m.kernel->shared;
	size_t bytes = (size_t)(m.kernel->shared_end - place);

	if (b == m.resident)
		return;
	if (m.resident)
		m.resident->shared.assign(place, place + bytes);
	if (bytes > 0)
		std::memcpy(place, b->shared.data(), bytes);
	m.resident = b;
}

void change(emu_fiber *from, thread *to)
{
	bring_shared(to->home);
	emu::here = to;
	emu_fiber_change(from, to->fiber);
}

void let_others_run()
{
	thread *me = self(), *next = pick(me->home);

	if (next != me)
		change(me->fiber, next);
}

/* ---- lanes that meet ---- */

thread *lane_of(thread *t, unsigned lane)
{
	unsigned number = t->number / WARP * WARP + lane;

	return number < t->home->threads.size() ? t->home->threads[number] : nullptr;
}

/* Fails when a lane can never come, or waits for something else. */
void check_lane(const thread *me, unsigned lane)
{
	const thread *t = lane_of(const_cast<thread *>(me), lane);

	if (!t || t->state == thread::ended)
		emu::fail("a mask names a lane that has ended, or never was");
	if (t->state == thread::at_meeting &&
	    (t->mask != me->mask || t->kind != me->kind || t->line != me->line))
		emu::fail("lanes of one mask meet at different places or masks");
}

/* Is everyone there? */
bool all_met(const thread *me)
{
	const warp &w = me->home->warps[me->number / WARP];
	unsigned missing = me->mask & ~w.waiting;

	if (!(me->mask >> me->number % WARP & 1))
		emu::fail("a lane that is not in its own mask");
	if (missing) { /* one of them is enough to look at until all are there */
		check_lane(me, (unsigned)__builtin_ctz(missing));
		return false;
	}
	for (unsigned lane = 0; lane < WARP; lane++) {
		if (me->mask >> lane & 1)
			check_lane(me, lane);
	}
	return true;
}

uint64_t result_for(thread *t)
{
	uint64_t bits = 0;

	if (t->kind == emu::op::warp)
		return 0;
	if (t->kind == emu::op::shuffle) {
		if (t->from >= WARP || !(t->mask >> t->from & 1))
			emu::fail("a shuffle reads from a lane outside its mask");
		return lane_of(t, t->from)->value;
	}
	for (unsigned lane = 0; lane < WARP; lane++) {
		thread *other = t->mask >> lane & 1 ? lane_of(t, lane) : nullptr;

		if (other &&
		    (t->kind == emu::op::ballot ? other->value != 0 : other->value == t->value))
			bits |= UINT64_C(1) << lane;
	}
	return bits;
}

void check_nobody_waits_for(thread *t)
{
	if (t->home->n_waiting > 0)
		emu::fail("it ends, others wait for it at a barrier");
	for (unsigned left = t->home->warps[t->number / WARP].waiting; left; left &= left - 1) {
		if (lane_of(t, (unsigned)__builtin_ctz(left))->mask >> t->number % WARP & 1)
			emu::fail("it ends, lanes of its warp wait for it");
	}
}

/* ---- the life of a thread and a block ---- */

[[noreturn]] void fiber_main()
{
	for (;;) {
		thread *me = self();
		block *b = me->home;

		m.kernel->call(m.kernel->function, m.params);
		check_nobody_waits_for(me);
		take_out(me);
		me->state = thread::ended;
		m.idle_points = 0;
		if (++b->n_ended == b->threads.size()) {
			m.over = b;
			emu_fiber_change(me->fiber, m.main);
		} else {
			change(me->fiber, pick(b));
		}
		/* here again as a thread of another block */
	}
}

thread *get_thread()
{
	if (m.idle.empty()) {
		std::unique_ptr<thread> made(new thread);

		made->fiber = emu_fiber_create(STACK_BYTES, fiber_main);
		if (!made->fiber)
			emu::fail("no memory for a stack");
		m.idle.push_back(made.get());
		m.all.push_back(std::move(made));
	}
	thread *t = m.idle.back();
	m.idle.pop_back();
	return t;
}

emu::triple unfold(uint64_t i, const unsigned size[3])
{
	return {(unsigned)(i % size[0]), (unsigned)(i / size[0] % size[1]),
		(unsigned)(i / size[0] / size[1])};
}

void start_block(uint64_t number, const unsigned grid[3], const unsigned size[3], size_t shared)
{
	std::unique_ptr<block> b(new block);
	unsigned n = size[0] * size[1] * size[2];

	b->shared.assign((size_t)(m.kernel->shared_end - m.kernel->shared), (char)0xa5);
	b->dynamic.reset(new char[shared]);
	std::memset(b->dynamic.get(), 0xa5, shared);
	b->warps.resize((n + WARP - 1) / WARP);
	if (draw() % 2)
		b->starved = draw_below(b->warps.size());
	for (unsigned i = 0; i < n; i++) {
		thread *t = get_thread();

		t->thread_at = unfold(i, size);
		t->block_at = unfold(number, grid);
		t->block_size = {size[0], size[1], size[2]};
		t->grid_size = {grid[0], grid[1], grid[2]};
		t->home = b.get();
		t->number = i;
		t->line = 0;
		b->threads.push_back(t);
		make_runnable(t);
	}
	m.flight.push_back(b.release());
}

void end_block(block *b)
{
	for (size_t i = 0; i < m.flight.size(); i++) {
		if (m.flight[i] == b) {
			m.flight[i] = m.flight.back();
			m.flight.pop_back();
			break;
		}
	}
	m.idle.insert(m.idle.end(), b->threads.begin(), b->threads.end());
	if (m.resident == b)
		m.resident = nullptr;
	delete b;
}

/* A drawn order of the numbers below n. */
std::vector<uint64_t> shuffled(uint64_t n)
{
	std::vector<uint64_t> order(n);

	for (uint64_t i = 0; i < n; i++) {
		uint32_t j = draw_below(i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	return order;
}

void run_blocks(const unsigned grid[3], const unsigned size[3], size_t shared)
{
	unsigned n_threads = size[0] * size[1] * size[2];
	std::vector<uint64_t> waiting = shuffled((uint64_t)grid[0] * grid[1] * grid[2]);
	size_t most = 1 + draw_below(MOST_BLOCKS);

	if (most * n_threads > MOST_THREADS)
		most = MOST_THREADS / n_threads;
	while (!waiting.empty() || !m.flight.empty()) {
		while (!waiting.empty() && m.flight.size() < most) {
			start_block(waiting.back(), grid, size, shared);
			waiting.pop_back();
		}
		change(m.main, pick(nullptr));
		end_block(m.over);
	}
}
} /* namespace */

/* ---- for kernels ---- */

namespace emu
{
place *here;

void add(kernel *k)
{
	k->next = first_kernel;
	first_kernel = k;
}

void fail(const char *what)
{
	const thread *t = self();

	if (t)
		std::fprintf(stderr, "cuda_emu: %s, block %u, thread %u: ", m.kernel->name,
			     t->block_at.x, t->number);
	std::fprintf(stderr, "%s\n", what);
	std::abort();
}

void point()
{
	if (++m.idle_points > MOST_IDLE)
		stuck("no thread ends, no barrier is passed: it waits for ever");
	if ((draw() & m.change_mask) == 0)
		let_others_run();
}

unsigned barrier(op kind, bool predicate, int line)
{
	thread *me = self();
	block *b = me->home;

	me->line = line;
	if (b->n_ended > 0)
		fail("a barrier that a thread of the block, which has ended, will not reach");
	if (b->n_waiting == 0) {
		b->held = 0;
		b->kind = kind;
		b->line = line;
	}
	if (b->kind != kind || b->line != line)
		fail("threads of a block wait at different barriers");
	b->held += predicate;
	b->n_waiting++;
	me->state = thread::at_barrier;
	take_out(me);
	if (b->n_waiting == b->threads.size()) {
		b->n_waiting = 0;
		m.idle_points = 0;
		for (thread *t : b->threads) {
			t->result = b->held;
			make_runnable(t);
		}
	}
	let_others_run();
	return (unsigned)me->result;
}

uint64_t meet(op kind, unsigned mask, uint64_t value, unsigned from, int line)
{
	thread *me = self();

	me->kind = kind;
	me->mask = mask;
	me->value = value;
	me->from = from;
	me->line = line;
	me->state = thread::at_meeting;
	me->home->warps[me->number / WARP].waiting |= 1u << me->number % WARP;
	take_out(me);
	if (all_met(me)) {
		for (unsigned lane = 0; lane < WARP; lane++) {
			if (mask >> lane & 1)
				lane_of(me, lane)->result = result_for(lane_of(me, lane));
		}
		for (unsigned lane = 0; lane < WARP; lane++) {
			if (mask >> lane & 1)
				make_runnable(lane_of(me, lane));
		}
		me->home->warps[me->number / WARP].waiting &= ~mask;
		m.idle_points = 0;
	}
	let_others_run();
	return me->result;
}

void tell_release(const uint32_t *p, uint32_t v)
{
	if (m.on_release)
		m.on_release(m.on_release_arg, p, v);
}

unsigned lane()
{
	return self()->number % WARP;
}

void *dynamic_shared()
{
	return self()->home->dynamic.get();
}
} /* namespace emu */

/* ---- for those who launch ---- */

int spri_emu_find(const char *name)
{
	int number = 0;

	for (emu::kernel *k = first_kernel; k; k = k->next, number++) {
		if (std::strcmp(k->name, name) == 0)
			return number;
	}
	return -1;
}

size_t spri_emu_parameter(int kernel, unsigned i)
{
	const emu::kernel *k = first_kernel;

	while (kernel-- > 0)
		k = k->next;
	for (unsigned j = 0; j < i; j++)
		if (k->parameters[j] == 0)
			return 0;
	return k->parameters[i];
}

void spri_emu_seed(uint64_t seed)
{
	std::lock_guard<std::mutex> hold(m.mutex);

	m.random = (seed + 1) * 0x9e3779b97f4a7c15u | 1;
}

void spri_emu_on_release(void (*hook)(void *arg, const uint32_t *p, uint32_t v), void *arg)
{
	std::lock_guard<std::mutex> hold(m.mutex);

	m.on_release = hook;
	m.on_release_arg = arg;
}

void spri_emu_run(int number, const unsigned grid[3], const unsigned size[3], size_t shared,
		  void **params)
{
	static const unsigned masks[] = {0, 1, 7, 63};
	std::lock_guard<std::mutex> hold(m.mutex);
	std::fenv_t env;

	m.kernel = first_kernel;
	for (int i = 0; i < number; i++)
		m.kernel = m.kernel->next;
	if ((uint64_t)size[0] * size[1] * size[2] - 1 >= 1024 || shared > 232448)
		emu::fail("a launch beyond the limits of a block");
	std::fegetenv(&env);
	std::fesetenv(FE_DFL_ENV);
	m.params = params;
	m.main = emu_fiber_of_thread();
	m.change_mask = masks[draw() % 4];
	m.idle_points = 0;
	run_blocks(grid, size, shared);
	emu_fiber_destroy(m.main);
	m.main = nullptr;
	m.resident = nullptr;
	emu::here = nullptr;
	std::fesetenv(&env);
}
