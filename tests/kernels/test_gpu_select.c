/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Select on a GPU against spri_select, bit for bit: all kinds of vectors, policies, counts around
 * segments and parts, aligned or not, no threshold, the carried one, one too high, one too low;
 * over steps; and what flags promise to whoever polls them.
 */
#include <internal/bits.h>
#include <pthread.h>

#include "remote.h"

#define SEGMENT 2048 /* of the kernels */

/* ---- one selection ---- */

struct select_case {
	enum kind kind;
	enum spr_nonfinite policy;
	uint64_t n, k, chunk;
	bool residual;
	unsigned skew; /* floats off alignment, of the gradient */
	float scale;
};

/* Inputs and outputs there, the scalar definition's here. */
struct bench {
	const struct select_case *c;
	struct remote_gpu *g;
	struct remote gradient, residual, shadow, index, value;
	struct spri_gpu_selected *result, *result_there; /* mapped */
	uint32_t *flag, *flag_there;			 /* mapped, n_flags */
	uint64_t n_flags;
	uint32_t sequence;
	struct spri_select want;
};

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

static void bench_open(struct bench *b, struct remote_gpu *g, const struct select_case *c)
{
	uint64_t n = c->n, capacity = spri_select_capacity(n, c->k);
	void *host, *device;

	*b = (struct bench){.c = c, .g = g, .n_flags = c->chunk ? divide_up(c->k, c->chunk) : 0};
	b->gradient = remote_make(g, n * sizeof(float), c->skew * sizeof(float));
	b->residual = remote_make(g, n * sizeof(float), c->skew / 2 * sizeof(float));
	b->shadow = remote_make(g, n * sizeof(float), c->skew / 3 * sizeof(float));
	b->index = remote_make(g, spri_min_u64(n, c->k) * sizeof(uint64_t), 8);
	b->value = remote_make(g, spri_min_u64(n, c->k) * sizeof(float), 4);
	fill(remote_here(&b->gradient), n, c->kind, n + 1);
	fill(remote_here(&b->residual), n, c->kind, n + 1000);
	remote_send(&b->gradient);
	remote_send(&b->residual);
	expect(spri_gpu_alloc_mapped(g->gpu, sizeof *b->result, &host, &device) == 0, "memory");
	b->result = host;
	b->result_there = device;
	expect(spri_gpu_alloc_mapped(g->gpu, (b->n_flags + 1) * 4, &host, &device) == 0, "memory");
	b->flag = host;
	b->flag_there = device;
	b->want = (struct spri_select){
		.gradient = remote_here(&b->gradient),
		.residual = c->residual ? remote_here(&b->residual) : NULL,
		.scale = c->scale,
		.shadow = malloc(n * sizeof(float) + 1),
		.n = n,
		.k = c->k,
		.policy = c->policy,
		.index = malloc(capacity * sizeof(uint64_t) + 1),
		.value = malloc(capacity * sizeof(float) + 1),
		.capacity = capacity,
	};
	expect(b->want.shadow && b->want.index && b->want.value, "expected memory for a test");
	spri_select(&b->want);
}

static void bench_close(struct bench *b)
{
	free(b->want.shadow);
	free(b->want.index);
	free(b->want.value);
	spri_gpu_free_mapped(b->g->gpu, b->result);
	spri_gpu_free_mapped(b->g->gpu, b->flag);
	expect(remote_end(&b->gradient) && remote_end(&b->residual) && remote_end(&b->shadow) &&
		       remote_end(&b->index) && remote_end(&b->value),
	       "n %lu k %lu: expected nothing to be written outside the outputs", b->c->n, b->c->k);
}

/* Chunk c is announced: it has all the entries that k allows. */
static bool is_whole(const struct bench *b, uint64_t c)
{
	return spri_min_u64((c + 1) * b->c->chunk, b->c->k) <= b->want.count;
}

static struct spri_gpu_select request(struct bench *b, uint32_t threshold)
{
	return (struct spri_gpu_select){
		.gradient = remote_there(&b->gradient),
		.residual = b->c->residual ? remote_there(&b->residual) : NULL,
		.shadow = remote_there(&b->shadow),
		.scale = b->c->scale,
		.n = b->c->n,
		.k = b->c->k,
		.policy = b->c->policy,
		.threshold = threshold,
		.index = remote_there(&b->index),
		.value = remote_there(&b->value),
		.chunk = b->c->chunk,
		.flag = b->flag_there,
		.sequence = ++b->sequence,
		.result = b->result_there,
	};
}

static void check_lists(const struct bench *b, const char *what)
{
	const struct spri_select *w = &b->want;
	const uint64_t *index = remote_here(&b->index);
	const float *value = remote_here(&b->value), *shadow = remote_here(&b->shadow);
	uint64_t at;

	for (uint64_t i = 0; i < w->count; i++)
		expect(index[i] == w->index[i] && bits_of(value[i]) == bits_of(w->value[i]),
		       "%s: kind %d n %lu k %lu: entry %lu is (%lu, %08x), expected (%lu, %08x)",
		       what, b->c->kind, b->c->n, b->c->k, i, index[i], bits_of(value[i]),
		       w->index[i], bits_of(w->value[i]));
	at = first_difference(shadow, w->shadow, b->c->n);
	expect(at == b->c->n, "%s: kind %d n %lu k %lu: shadow[%lu] is %08x, expected %08x", what,
	       b->c->kind, b->c->n, b->c->k, at, bits_of(shadow[at]), bits_of(w->shadow[at]));
}

static void check_result(const struct bench *b, const char *what)
{
	const struct spri_select *w = &b->want;
	const struct spri_gpu_selected *r = b->result;

	expect(r->done == b->sequence && r->count == w->count,
	       "%s: kind %d n %lu k %lu: done %u count %lu, expected %u and %lu", what, b->c->kind,
	       b->c->n, b->c->k, r->done, r->count, b->sequence, w->count);
	expect(r->cut_key == w->cut_key && r->cut_index == w->cut_index,
	       "%s: kind %d n %lu k %lu: cut (%08x, %lu), expected (%08x, %lu)", what, b->c->kind,
	       b->c->n, b->c->k, r->cut_key, r->cut_index, w->cut_key, w->cut_index);
	expect(r->bad_index == w->finite.bad_index && r->dropped == w->finite.dropped,
	       "%s: kind %d policy %d n %lu: (%lu, %lu) not finite, expected (%lu, %lu)", what,
	       b->c->kind, b->c->policy, b->c->n, r->bad_index, r->dropped, w->finite.bad_index,
	       w->finite.dropped);
	expect(r->threshold <= r->cut_key, "%s: expected a threshold no higher than the cut", what);
	for (uint64_t c = 0; c < b->n_flags; c++)
		expect((b->flag[c] == b->sequence) == is_whole(b, c), "%s: flag %lu of %lu is %u",
		       what, c, b->n_flags, b->flag[c]);
}

/* Queues it, waits, compares. Returns the threshold for the next step. */
static uint32_t select_once(struct bench *b, uint32_t threshold, const char *what)
{
	struct spri_gpu_select s = request(b, threshold);

	expect(spri_gpu_select(b->g->stream, &s) == 0, "expected it to be queued");
	remote_fetch(&b->index);
	remote_fetch(&b->value);
	remote_fetch(&b->shadow);
	check_result(b, what);
	check_lists(b, what);
	return b->result->threshold;
}

/* How many of the sums reach a key. */
static uint64_t n_reaching(const struct bench *b, uint32_t key)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < b->want.count; i++)
		n += size_of(b->want.value[i]) >= key;
	for (uint64_t i = 0; i < b->c->n; i++)
		n += size_of(b->want.shadow[i]) >= key && size_of(b->want.shadow[i]) > 0;
	return n;
}

/* A second pass is for thresholds that too few or too many reach, and for nothing else. */
static uint32_t select_carried(struct bench *b, uint32_t threshold, const char *what)
{
	const struct select_case *c = b->c;
	uint64_t n = n_reaching(b, threshold);
	uint32_t next = select_once(b, threshold, what);
	bool serves = n <= spri_select_capacity(c->n, c->k) && (n >= c->k || threshold == 1);

	expect(b->result->repaired == (c->k > 0 && c->k < c->n && !serves),
	       "%s: kind %d n %lu k %lu: repaired is %u, %lu reach %08x", what, c->kind, c->n, c->k,
	       b->result->repaired, n, threshold);
	return next;
}

/* From no threshold, then the carried one, one that nothing reaches, one that everything does. */
static void check_select(struct remote_gpu *g, const struct select_case *c)
{
	struct bench b;
	uint32_t carried;

	bench_open(&b, g, c);
	carried = select_once(&b, 0, "no threshold");
	expect(!b.result->repaired, "expected no repair where no threshold was carried");
	expect(n_reaching(&b, carried) >= spri_min_u64(c->k, n_reaching(&b, 1)),
	       "kind %d n %lu k %lu: expected a next threshold that k reach", c->kind, c->n, c->k);
	if (carried > 0)
		select_carried(&b, carried, "carried");
	select_carried(&b, 0x7fffffff, "too high");
	select_carried(&b, 1, "too low");
	bench_close(&b);
}

/* ---- tests ---- */

/* Around warps, segments, parts (eight segments), and many parts. */
static const uint64_t sizes[] = {
	0,    1, 3, 33, 1000, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 7, 8 * SEGMENT + 5,
	40003};

/* The i-th count for a size; SPRI_NO_INDEX past the last. */
static uint64_t count_for(uint64_t n, unsigned i)
{
	const uint64_t counts[] = {0, 1, n / 1000 + 2, n / 20 + 3, n / 2, n ? n - 1 : 0, n, n + 3};

	return i < spri_countof(counts) ? counts[i] : SPRI_NO_INDEX;
}

static void check_kind(enum kind kind)
{
	struct remote_gpu g = remote_open();
	unsigned number = (unsigned)kind;

	for (unsigned i = 0; i < spri_countof(sizes); i++) {
		uint64_t n = sizes[i];

		/* every count for the small ones, some for the large */
		for (unsigned j = n > 5000 ? number % 4 : 0; count_for(n, j) != SPRI_NO_INDEX;
		     j += n > 5000 ? 4 : 1) {
			struct select_case c = {.kind = kind,
						.policy = (enum spr_nonfinite)(number % 3),
						.n = n,
						.k = count_for(n, j),
						.chunk = number % 4 * 13,
						.residual = number % 5 != 0,
						.skew = number % 2 * (1 + number % 7),
						.scale = number % 3 ? 1.0f : 0.625f};

			remote_seed(number++);
			check_select(&g, &c);
		}
	}
	remote_close(&g);
}

#define KIND_TEST(name, kind)                                                                      \
	Test(gpu_select, name)                                                                     \
	{                                                                                          \
		check_kind(kind);                                                                  \
	}
KIND_TEST(small, KIND_SMALL)
KIND_TEST(ties, KIND_TIES)
KIND_TEST(equal, KIND_EQUAL)
KIND_TEST(zero, KIND_ZERO)
KIND_TEST(few, KIND_FEW)
KIND_TEST(rising, KIND_RISING)
KIND_TEST(falling, KIND_FALLING)
KIND_TEST(layers, KIND_LAYERS)
KIND_TEST(denormal, KIND_DENORMAL)
KIND_TEST(nan, KIND_NAN)
KIND_TEST(inf, KIND_INF)
KIND_TEST(huge, KIND_HUGE)
KIND_TEST(all_bits, KIND_ALL_BITS)
#undef KIND_TEST

Test(gpu_select, every_policy)
{
	static const enum kind kinds[] = {KIND_NAN, KIND_INF, KIND_HUGE, KIND_ALL_BITS};
	struct remote_gpu g = remote_open();

	for (unsigned i = 0; i < spri_countof(kinds) * 3 * 2; i++) {
		struct select_case c = {.kind = kinds[i % 4],
					.policy = (enum spr_nonfinite)(i / 4 % 3),
					.n = 5000,
					.k = 300,
					.residual = i >= 12,
					.skew = i % 3,
					.scale = 1.5f};

		remote_seed(i);
		check_select(&g, &c);
	}
	remote_close(&g);
}

Test(gpu_select, the_order_of_threads_does_not_matter)
{
	struct remote_gpu g = remote_open();
	struct select_case c = {.kind = KIND_TIES,
				.n = 19001,
				.k = 2500,
				.chunk = 64,
				.residual = true,
				.scale = 1};
	struct bench b;

	bench_open(&b, &g, &c);
	for (unsigned seed = 0; seed < 20; seed++) {
		remote_seed(seed);
		select_once(&b, seed % 3 ? bits_of(0x1p-9f) + seed % 2 : 0, "same data");
	}
	bench_close(&b);
	remote_close(&g);
}

/* Nine steps of a gradient that keeps its kind: after the first one pass is enough. */
Test(gpu_select, thresholds_serve_over_steps)
{
	struct remote_gpu g = remote_open();
	struct select_case c = {.kind = KIND_SMALL,
				.n = 60000,
				.k = 900,
				.chunk = 100,
				.residual = true,
				.scale = 1};
	uint32_t threshold = 0;
	unsigned repaired = 0;
	struct bench b;

	bench_open(&b, &g, &c);
	memset(remote_here(&b.residual), 0, c.n * sizeof(float));
	for (unsigned step = 0; step < 9; step++) {
		if (step > 0)
			memcpy(remote_here(&b.residual), b.want.shadow, c.n * sizeof(float));
		fill(remote_here(&b.gradient), c.n, c.kind, 77 + step);
		remote_send(&b.gradient);
		remote_send(&b.residual);
		b.want.threshold = 0;
		spri_select(&b.want);
		threshold = select_once(&b, threshold, "step");
		repaired += b.result->repaired;
	}
	cr_assert_leq(repaired, 1, "%u of 9 steps were repaired", repaired);
	bench_close(&b);
	remote_close(&g);
}

/* On the same data the next threshold is passed by 1.1 to 1.6 k. */
Test(gpu_select, the_next_threshold_is_near)
{
	static const enum kind kinds[] = {KIND_SMALL, KIND_LAYERS, KIND_RISING, KIND_DENORMAL};
	struct remote_gpu g = remote_open();

	for (unsigned i = 0; i < spri_countof(kinds); i++) {
		struct select_case c = {.kind = kinds[i], .n = 50000, .k = 2000, .scale = 1};
		struct bench b;
		uint64_t reach = 0;
		uint32_t threshold;

		bench_open(&b, &g, &c);
		threshold = select_once(&b, 0, "no threshold");
		for (uint64_t j = 0; j < c.n; j++)
			reach += size_of(b.want.gradient[j]) >= threshold;
		cr_assert(reach >= c.k + c.k / 10 && reach <= c.k * 8 / 5,
			  "kind %u: %lu reach the next threshold, k is %lu", kinds[i], reach, c.k);
		cr_assert_eq(select_once(&b, threshold, "near"), threshold, "good as it is");
		bench_close(&b);
	}
	remote_close(&g);
}

/* ---- flags ---- */

struct watcher {
	const struct bench *b;
	const uint64_t *index; /* mapped */
	const float *value;
	uint64_t wrong; /* entries that were not there behind their flag */
	bool late;	/* `done` came before a flag or the count, or there is a flag too many */
};

static void look_at_chunk(struct watcher *w, uint64_t c)
{
	const struct bench *b = w->b;
	uint64_t end = spri_min_u64((c + 1) * b->c->chunk, b->want.count);

	for (uint64_t i = c * b->c->chunk; i < end; i++)
		w->wrong += w->index[i] != b->want.index[i] ||
			    bits_of(w->value[i]) != bits_of(b->want.value[i]);
}

static void look_at_result(struct watcher *w)
{
	const struct bench *b = w->b;

	for (uint64_t c = 0; c < b->n_flags; c++)
		w->late |= (b->flag[c] == b->sequence) != is_whole(b, c);
	w->late |= b->result->count != b->want.count;
}

/* Polls as the progress thread does, from another thread. */
static void *watch(void *arg)
{
	struct watcher *w = arg;
	const struct bench *b = w->b;

	for (uint64_t c = 0; c < b->n_flags && is_whole(b, c); c++) {
		while (__atomic_load_n(&b->flag[c], __ATOMIC_ACQUIRE) != b->sequence)
			;
		look_at_chunk(w, c);
	}
	while (__atomic_load_n(&b->result->done, __ATOMIC_ACQUIRE) != b->sequence)
		;
	look_at_result(w);
	return NULL;
}

/* On the emulator: looks when the store is just done, as no poller could be sure to. */
static void look(void *arg, const uint32_t *p, uint32_t v)
{
	struct watcher *w = arg;

	expect(v == w->b->sequence, "expected the sequence, %u was stored", v);
	if (p == &w->b->result->done)
		look_at_result(w);
	else
		look_at_chunk(w, (uint64_t)(p - w->b->flag));
}

static void select_watched(struct remote_gpu *g, const struct spri_gpu_select *s, struct watcher *w)
{
	pthread_t thread;

	if (spri_emu_on_release)
		spri_emu_on_release(look, w);
	else
		expect(pthread_create(&thread, NULL, watch, w) == 0, "expected a thread");
	expect(spri_gpu_select(g->stream, s) == 0, "expected it to be queued");
	if (spri_emu_on_release)
		spri_emu_on_release(NULL, NULL);
	else
		expect(pthread_join(thread, NULL) == 0, "expected the watcher to end");
}

static void check_flags(struct remote_gpu *g, const struct select_case *c)
{
	void *index, *index_there, *value, *value_there;
	struct bench b;

	bench_open(&b, g, c);
	expect(spri_gpu_alloc_mapped(g->gpu, c->k * 8, &index, &index_there) == 0, "memory");
	expect(spri_gpu_alloc_mapped(g->gpu, c->k * 4, &value, &value_there) == 0, "memory");
	for (uint32_t round = 0; round < 4; round++) {
		struct watcher w = {.b = &b, .index = index, .value = value};
		struct spri_gpu_select s = request(&b, round % 2 ? b.result->threshold : 0);

		s.index = index_there;
		s.value = value_there;
		memset(index, 0xa5, c->k * 8);
		b.result->count = UINT64_MAX;
		select_watched(g, &s, &w);
		expect(w.wrong == 0, "chunk %lu: %lu entries were not there behind their flag",
		       c->chunk, w.wrong);
		expect(!w.late, "chunk %lu: done came before a flag", c->chunk);
		expect(spri_gpu_sync(g->stream) == 0, "expected it to end");
		look_at_result(&w);
		expect(!w.late && b.result->done == b.sequence, "expected all flags in the end");
	}
	spri_gpu_free_mapped(g->gpu, index);
	spri_gpu_free_mapped(g->gpu, value);
	bench_close(&b);
}

Test(gpu_select, entries_are_there_behind_their_flags)
{
	static const uint64_t chunks[] = {1, 7, 1000, 100000};
	struct remote_gpu g = remote_open();

	for (unsigned i = 0; i < spri_countof(chunks); i++) {
		struct select_case c = {
			.kind = KIND_SMALL, .n = 40000, .k = 2900, .chunk = chunks[i], .scale = 1};

		remote_seed(i);
		check_flags(&g, &c);
		c.kind = KIND_FEW; /* fewer than k: chunks that stay short */
		check_flags(&g, &c);
	}
	remote_close(&g);
}
