/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Virtual ranks, and what they are held to; see coll_world.h. Failures of the test's own memory end
 * it.
 */
#include "coll_world.h"

#include <check.h>
#include <internal/alloc.h>
#include <internal/philox.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- inputs ---- */

struct world *world_create(int n_ranks)
{
	struct world *w = need(calloc(1, sizeof *w));

	w->n_ranks = n_ranks;
	w->seed = 1;
	w->killed = -1;
	w->statuses = need(calloc((size_t)n_ranks, sizeof *w->statuses));
	w->lost = need(calloc((size_t)n_ranks, sizeof *w->lost));
	return w;
}

void world_destroy(struct world *w)
{
	for (unsigned i = 0; i < w->n_calls; i++) {
		for (int r = 0; r < w->n_ranks; r++) {
			struct call_rank *rank = &w->calls[i].ranks[r];

			pairs_fini(&rank->in);
			pairs_fini(&rank->sum);
			pairs_fini(&rank->adopted);
			free(rank->dense);
			free(rank->out);
		}
		free(w->calls[i].ranks);
	}
	free(w->statuses);
	free(w->lost);
	free(w);
}

static bool is_dense(const struct call *c)
{
	return !strcmp(c->algo, "dense_ring");
}

static bool is_masked(const struct call *c)
{
	return !strcmp(c->algo, "iwp_ring");
}

struct call *world_call(struct world *w, const char *algo, uint64_t count, uint64_t k)
{
	struct call *c = &w->calls[w->n_calls++];

	cr_assert_leq(w->n_calls, WORLD_CALLS, "at most %d calls", WORLD_CALLS);
	*c = (struct call){.algo = algo,
			   .count = count,
			   .k = k,
			   .n_ranks = w->n_ranks,
			   .broadcasters = 1 + w->n_ranks / 4,
			   .seed = 1};
	c->ranks = need(calloc((size_t)w->n_ranks, sizeof *c->ranks));
	for (int r = 0; r < w->n_ranks; r++) {
		struct call_rank *rank = &c->ranks[r];

		rank->k = k;
		rank->count = count;
		rank->fail_allocation = -1;
		if (is_dense(c) || is_masked(c))
			rank->dense = need(calloc(count + 1, sizeof *rank->dense));
		if (is_dense(c))
			rank->out = need(calloc(count + 1, sizeof *rank->out));
	}
	return c;
}

static float exact(uint64_t key, uint64_t counter)
{
	return (float)((int)(spri_philox(key, counter) % 8191) - 4095) / 1024;
}

static float rough(uint64_t key, uint64_t counter)
{
	uint64_t bits = spri_philox(key, counter);

	return ldexpf((float)(int32_t)(bits & 0xffffffff), (int)(bits >> 32) % 40 - 50);
}

/* About n indices of a vector of `count`: half of them from a few that all ranks draw from. */
static uint64_t draw_index(uint64_t count, uint64_t n, uint64_t shared, uint64_t own, uint64_t i)
{
	if (i % 2 == 0)
		return spri_philox(shared, spri_philox(own, i) % (n + 1)) % count;
	return spri_philox(own, i) % count;
}

static void draw(struct call *c, uint64_t n, uint64_t seed, float (*value)(uint64_t, uint64_t))
{
	for (int r = 0; r < c->n_ranks; r++) {
		struct call_rank *rank = &c->ranks[r];
		uint64_t own = seed * 1000 + (uint64_t)r + 1;
		struct pairs drawn = {0};
		const struct pairs *part = &drawn;

		for (uint64_t i = 0; rank->dense && i < c->count; i++)
			rank->dense[i] = value(own, i);
		if (is_dense(c))
			continue;
		for (uint64_t i = 0; i < n && c->count > 0; i++)
			pairs_add(&drawn, draw_index(c->count, n, seed, own, i), value(own, n + i));
		pairs_sum(&rank->in, &part, 1);
		pairs_cut(&rank->in, c->k);
		pairs_fini(&drawn);
	}
}

void call_draw(struct call *c, uint64_t n, uint64_t seed)
{
	draw(c, n, seed, exact);
}

void call_draw_rough(struct call *c, uint64_t n, uint64_t seed)
{
	draw(c, n, seed, rough);
}

void call_set_step(struct call *c, uint64_t step)
{
	for (int r = 0; r < c->n_ranks; r++)
		c->ranks[r].step = step;
}

/* ---- running ---- */

static int start_masked(struct spr_comm *comm, const struct call *c, const struct call_rank *rank,
			struct spr_request **request)
{
	struct spr_allreduce_masked_args args = {
		.size = sizeof args,
		.algo = c->algo,
		.in = rank->dense,
		.count = rank->count,
		.mask = rank->in.index,
		.n_mask = rank->in.count,
		.broadcasters = c->broadcasters,
		.seed = c->seed,
		.step = rank->step,
		.nonfinite = c->nonfinite,
		.wire = c->wire,
	};

	return spr_allreduce_masked(comm, &args, request);
}

static int start(struct spr_comm *comm, const struct call *c, struct call_rank *rank,
		 struct spr_request **request)
{
	int r;

	spri_heap_fail_after(rank->fail_allocation);
	if (is_masked(c)) {
		r = start_masked(comm, c, rank, request);
	} else if (is_dense(c)) {
		struct spr_allreduce_args args = {
			.size = sizeof args,
			.algo = c->algo,
			.in = rank->in_place ? rank->out : rank->dense,
			.out = rank->out,
			.count = rank->count,
			.dtype = SPR_F32,
			.nonfinite = c->nonfinite,
		};

		if (rank->in_place)
			memcpy(rank->out, rank->dense, c->count * sizeof *rank->out);
		r = spr_allreduce(comm, &args, request);
	} else {
		struct spr_allreduce_sparse_args args = {
			.size = sizeof args,
			.algo = c->algo,
			.in = {rank->in.count, rank->in.index, rank->in.value},
			.k = rank->k,
			.length = rank->count,
			.nonfinite = c->nonfinite,
			.wire = c->wire + rank->other_wire,
			.codec = c->codec + rank->other_codec,
			.step = rank->step,
		};

		r = spr_allreduce_sparse(comm, &args, request);
	}
	spri_heap_fail_after(-1);
	return r;
}

static void copy_pairs(struct pairs *to, const struct spr_sparse *from)
{
	for (uint64_t i = 0; i < from->count; i++)
		pairs_add(to, from->index[i], from->value[i]);
}

/* Waits for a request and keeps what it brought. */
static void finish(const struct call *c, struct call_rank *rank, struct spr_request *request)
{
	struct spr_sparse sum, adopted;

	rank->status = rank->started;
	if (rank->started < 0)
		return;
	rank->status = spr_request_wait(request);
	snprintf(rank->text, sizeof rank->text, "%s", spr_request_error(request));
	spr_request_stats(request, &rank->stats);
	if (!is_dense(c) && spr_allreduce_sparse_result(request, &sum, &adopted) == 0) {
		copy_pairs(&rank->sum, &sum);
		copy_pairs(&rank->adopted, &adopted);
	}
	spr_request_destroy(request);
}

static void run_calls(struct world *w, struct spr_sim *sim, struct spr_comm *comm, int rank)
{
	struct spr_request *requests[WORLD_CALLS] = {NULL};

	for (unsigned i = 0; i < w->n_calls; i++) {
		struct call_rank *mine = &w->calls[i].ranks[rank];

		if (rank == w->killed && i == w->kill_before)
			spr_sim_kill(sim, rank);
		mine->started = start(comm, &w->calls[i], mine, &requests[i]);
		if (!w->at_once)
			finish(&w->calls[i], mine, requests[i]);
	}
	for (unsigned i = 0; w->at_once && i < w->n_calls; i++)
		finish(&w->calls[i], &w->calls[i].ranks[rank], requests[i]);
}

/*
 * 8 KiB for each partner is the least; there are at most 2·log2 P of dissemination, log2 P of the
 * bracket, 4.
 */
static size_t least_landing(int n_ranks)
{
	int partners = 4;

	for (int d = 1; d < n_ranks; d *= 2)
		partners += 3;
	return 8192 * (size_t)(partners < n_ranks - 1 ? partners : n_ranks > 1 ? n_ranks - 1 : 1);
}

static int body(struct spr_sim *sim, int rank, void *arg)
{
	struct world *w = arg;
	struct spr_context_options options = {
		.size = sizeof options,
		.sim = sim,
		.sim_rank = rank,
		.landing_bytes = w->landing ? w->landing : least_landing(w->n_ranks),
		.timeout_ns = w->timeout_ns,
	};
	struct spr_context *context;
	struct spr_comm *comm = NULL;
	int r = spr_context_open(&options, &context);

	if (r < 0)
		return r;
	r = spr_comm_create(context, NULL, &comm);
	if (r == 0) {
		run_calls(w, sim, comm, rank);
		w->lost[rank] = spr_comm_lost_rank(comm);
	}
	spr_comm_destroy(comm);
	spr_context_close(context);
	return r;
}

void world_run(struct world *w)
{
	struct spr_sim_options options = {
		.size = sizeof options,
		.n_ranks = w->n_ranks,
		.latency_ns = 1000,
		.bytes_per_s = 1e9,
		.jitter_ns = w->jitter_ns,
		.seed = w->seed,
	};
	struct spr_sim *sim;
	int r = spr_sim_create(&options, &sim);

	cr_assert_eq(r, 0, "the simulation is made, got %s", spr_error_name(r));
	r = spr_sim_run(sim, body, w, w->statuses);
	spr_sim_destroy(sim);
	cr_assert_eq(r, 0, "the simulation runs, got %s", spr_error_name(r));
	for (int i = 0; i < w->n_ranks; i++)
		cr_assert(w->statuses[i] == 0 || i == w->killed, "rank %d of %d joins, got %s", i,
			  w->n_ranks, spr_error_name(w->statuses[i]));
}

/* ---- checking ---- */

static void check_dense(const struct call *c, const struct call_rank *rank, int r,
			const float *want)
{
	for (uint64_t i = 0; i < c->count; i++)
		cr_assert(rank->out[i] == want[i],
			  "%s: rank %d of %d, element %llu: expected %g, got %g", c->algo, r,
			  c->n_ranks, (unsigned long long)i, (double)want[i], (double)rank->out[i]);
}

void call_masked_sum(const struct call *c, struct pairs *out)
{
	int *ranks = need(calloc((size_t)c->broadcasters, sizeof *ranks));
	uint8_t *mask = need(calloc(c->count + 1, 1));
	uint64_t n = 0;

	cr_assert_eq(spr_mask_broadcasters(c->n_ranks, c->broadcasters, c->seed, c->ranks[0].step,
					   ranks),
		     0, "broadcasters are drawn");
	for (int b = 0; b < c->broadcasters; b++)
		for (uint64_t i = 0; i < c->ranks[ranks[b]].in.count; i++) {
			n += !mask[c->ranks[ranks[b]].in.index[i]];
			mask[c->ranks[ranks[b]].in.index[i]] = 1;
		}
	out->count = 0;
	for (uint64_t i = 0; i < c->count; i++) {
		double sum = 0;

		if (!mask[i] && n <= c->count / 2)
			continue;
		for (int r = 0; r < c->n_ranks; r++)
			sum += (double)c->ranks[r].dense[i];
		pairs_add(out, i, (float)sum);
	}
	free(mask);
	free(ranks);
}

/* What rounding took off is adopted by someone: over all ranks, inputs = sum + adopted. */
static void check_masked(const struct call *c, const struct pairs *want)
{
	double *left = need(calloc(c->count + 1, sizeof *left));

	cr_assert_eq(c->ranks[0].sum.count, want->count, "%s, %d ranks: expected %llu, got %llu",
		     c->algo, c->n_ranks, (unsigned long long)want->count,
		     (unsigned long long)c->ranks[0].sum.count);
	for (uint64_t i = 0; i < want->count; i++)
		cr_assert_eq(c->ranks[0].sum.index[i], want->index[i], "%s: the mask", c->algo);
	for (uint64_t i = 0; i < want->count; i++)
		left[want->index[i]] = (double)want->value[i] - (double)c->ranks[0].sum.value[i];
	for (int r = 0; r < c->n_ranks; r++) {
		const struct call_rank *rank = &c->ranks[r];

		if (c->wire == SPR_F32)
			cr_assert(pairs_equal(&rank->sum, want),
				  "%s: rank %d of %d: the oracle's sums", c->algo, r, c->n_ranks);
		cr_assert(pairs_equal(&rank->sum, &c->ranks[0].sum), "%s: rank 0's sums", c->algo);
		for (uint64_t i = 0; i < rank->adopted.count; i++) {
			cr_assert(i == 0 || rank->adopted.index[i] > rank->adopted.index[i - 1],
				  "%s: adopted entries ascend", c->algo);
			left[rank->adopted.index[i]] -= (double)rank->adopted.value[i];
		}
	}
	for (uint64_t i = 0; i < c->count; i++)
		cr_assert(left[i] == 0, "%s, %d ranks: element %llu: %g is lost", c->algo,
			  c->n_ranks, (unsigned long long)i, left[i]);
	free(left);
}

static void check_sparse(const struct call *c, const struct pairs *want)
{
	struct pairs before = {0}, after = {0};
	unsigned n = (unsigned)c->n_ranks;
	const struct pairs **in = need(malloc((n + 1) * sizeof *in));
	const struct pairs **out = need(malloc((n + 1) * sizeof *out));

	for (unsigned r = 0; r < n; r++) {
		const struct call_rank *rank = &c->ranks[r];

		cr_assert_eq(rank->sum.count, want->count,
			     "%s: rank %u of %u: expected %llu entries, got %llu", c->algo, r, n,
			     (unsigned long long)want->count, (unsigned long long)rank->sum.count);
		cr_assert(pairs_equal(&rank->sum, want), "%s: rank %u of %u: the oracle's entries",
			  c->algo, r, n);
		for (uint64_t i = 1; i < rank->adopted.count; i++)
			cr_assert_lt(rank->adopted.index[i - 1], rank->adopted.index[i],
				     "%s: rank %u of %u: adopted entries ascend", c->algo, r, n);
		in[r] = &rank->in;
		out[r] = &rank->adopted;
	}
	out[n] = want;
	pairs_sum(&before, in, n);
	pairs_sum(&after, out, n + 1);
	cr_assert(pairs_equal(&before, &after), "%s, %u ranks: inputs = sum + adopted", c->algo, n);
	pairs_fini(&before);
	pairs_fini(&after);
	free(in);
	free(out);
}

static void check_call(const struct call *c)
{
	unsigned n = (unsigned)c->n_ranks;
	struct pairs want = {0};
	float *dense = is_dense(c) ? need(calloc(c->count + 1, sizeof *dense)) : NULL;

	for (unsigned r = 0; r < n; r++) {
		cr_assert_eq(c->ranks[r].status, 0,
			     "%s: rank %u of %u: expected success, got %s (%s)", c->algo, r, n,
			     spr_error_name(c->ranks[r].status), c->ranks[r].text);
		for (uint64_t i = 0; dense && i < c->count; i++)
			dense[i] += c->ranks[r].dense[i];
	}
	for (unsigned r = 0; dense && r < n; r++)
		check_dense(c, &c->ranks[r], (int)r, dense);
	if (is_masked(c)) {
		call_masked_sum(c, &want);
		check_masked(c, &want);
	} else if (!dense) {
		call_sparse_sum(c, &want);
		check_sparse(c, &want);
	}
	pairs_fini(&want);
	free(dense);
}

void world_check(const struct world *w)
{
	for (unsigned i = 0; i < w->n_calls; i++)
		check_call(&w->calls[i]);
}

const char *call_failed_alike(const struct call *c, int status)
{
	const char *text = c->ranks[0].text;

	for (int r = 0; r < c->n_ranks; r++) {
		const struct call_rank *rank = &c->ranks[r];

		cr_assert_eq(rank->status, status, "%s: rank %d of %d: expected %s, got %s (%s)",
			     c->algo, r, c->n_ranks, spr_error_name(status),
			     spr_error_name(rank->status), rank->text);
		cr_assert_str_eq(rank->text, text, "%s: rank %d of %d: expected \"%s\", got \"%s\"",
				 c->algo, r, c->n_ranks, text, rank->text);
		cr_assert_eq(rank->sum.count + rank->adopted.count, 0,
			     "%s: a failed call has no result", c->algo);
	}
	return text;
}
