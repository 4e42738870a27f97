/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * iwp_ring: importance-weighted pruning (Cheng & Xu 2019, arXiv 1901.01544). A few ranks propose
 * which elements to sum; all ranks sum these in a ring, values alone.
 *
 *   rounds ⌈log2 P⌉ + 2(P − 1), bytes per rank r · |mask| + 2(P − 1)/P · |M| · value
 *
 *   1. the broadcasters' masks and notes go to all ranks (mask.c)
 *   2. M = their union; all indices when it has more than half of them
 *   3. V = in[M], summed by the dense ring (ring.c): gathered chunk by chunk, just before a chunk
 *      is sent or added, so that gathering overlaps transmission
 *   4. the sum is M with the values, zeros included: it says where every rank's values were used up
 *
 * Values of 16 bits: what a rank sends, its own first block and every partial sum, it rounds
 * before, and it adopts what rounding took off. It meets every element of M once, so there is one
 * error for each; final blocks are rounded by the rank that completes them, and stay as they are.
 *
 * An empty M goes through all rounds. Failures: memory for masks and values is taken when their
 * number is known, after the first rounds; when there is none, the 2(P − 1) rounds of the ring tell
 * it to all, as they do whatever the ring finds.
 */
#include <coll/dissemination.h>
#include <coll/mask.h>
#include <coll/ring.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <math.h>
#include <string.h>

enum { MASKS, RING }; /* phases */

struct iwp_ring {
	struct spri_masks masks; /* first: spri_masks_step finds them here */
	uint64_t *index;	 /* M, n elements; owned */
	uint64_t n;
	float *memory;	   /* owned, the five below */
	float *sum;	   /* n */
	float *error;	   /* n, of rounding; NULL for 32 bits */
	float *received;   /* one chunk */
	float *own;	   /* one chunk */
	float *values;	   /* n, of this rank, when they had to be fetched; else NULL */
	uint64_t *adopted; /* n indices of errors; owned; NULL for 32 bits */
};

static unsigned iwp_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out)
{
	unsigned n = spri_dissemination_partners(rank, n_ranks, out);

	return n + spri_ring_partners(rank, n_ranks, out + n);
}

static double iwp_rounds(uint32_t n_ranks)
{
	return spri_dissemination_rounds(n_ranks) + spri_ring_rounds(n_ranks);
}

/*
 * One broadcaster, whose mask of k indices it sends in every round of the dissemination: about
 * log2(count / k) + 1.5 bits for each, or a bit for each element.
 */
static double iwp_bytes(uint32_t n_ranks, double count, double k)
{
	double bits = k > 0 && count > k ? k * (log2(count / k) + 1.5) : 0;

	if (bits > count || k >= count)
		bits = count;
	return spri_dissemination_rounds(n_ranks) * bits / 8 +
	       spri_ring_rounds(n_ranks) / n_ranks * k * 4;
}

static int iwp_start(struct spri_op *op)
{
	struct iwp_ring *t;

	if (spri_op_failed(op))
		return 0; /* nothing will be taken */
	assert(op->n_broadcasters >= 1 && op->n_broadcasters <= op->comm->n_ranks);
	t = spri_alloc(sizeof *t + spri_masks_bytes(op));
	if (!t)
		return spri_trace(-ENOMEM);
	*t = (struct iwp_ring){0};
	spri_masks_init(&t->masks, op, t + 1);
	op->state = t;
	return 0;
}

/* ---- what the ring asks for ---- */

static void gather(const struct spri_op *op, uint64_t base, uint64_t n, float *to)
{
	const struct iwp_ring *t = op->state;
	const uint64_t *index = t->index + base;

	if (t->values)
		memcpy(to, t->values + base, n * sizeof *to);
	for (uint64_t i = 0; !t->values && i < n; i++)
		to[i] = op->in[index[i]];
}

static const float *own_values(struct spri_op *op, uint64_t base, uint32_t n)
{
	struct iwp_ring *t = op->state;

	gather(op, base, n, t->own);
	return t->own;
}

static void settle(struct spri_op *op, uint64_t base, uint32_t n)
{
	struct iwp_ring *t = op->state;

	if (t->error)
		spri_round_dense(t->sum + base, t->error + base, n, op->dtype);
}

static void prepare(struct spri_op *op, uint64_t base, uint32_t n)
{
	struct iwp_ring *t = op->state;

	gather(op, base, n, t->sum + base);
	settle(op, base, n);
}

/* ---- phases ---- */

/* Step 2, memory for step 3, and values that are not in host memory. Returns 0 or negative. */
static int begin_ring(struct spri_op *op)
{
	struct iwp_ring *t = op->state;
	uint64_t room = spri_transfer_room(op, SPRI_CODEC_DENSE), n;
	unsigned lists = 1 + (op->dtype != SPR_F32) + (op->gather != NULL);
	bool narrow = op->dtype != SPR_F32;
	int r = spri_masks_unite(op, &t->masks, &t->index, &n);

	if (r < 0)
		return r;
	t->memory = spri_alloc((lists * n + 2 * room) * sizeof *t->memory);
	if (narrow)
		t->adopted = spri_alloc((n + 1) * sizeof *t->adopted);
	if (!t->memory || (narrow && !t->adopted))
		return spri_trace(-ENOMEM);
	t->received = t->memory;
	t->own = t->received + room;
	t->sum = t->own + room;
	if (narrow)
		t->error = t->sum + n;
	t->n = n;
	if (!op->gather)
		return 0;
	t->values = t->sum + (lists - 1) * n;
	return spri_trace(op->gather(op, t->index, n, t->values));
}

/* P = 1: the values themselves. */
static void sum_alone(struct spri_op *op)
{
	struct spri_finite finite = SPRI_FINITE_NONE;
	struct iwp_ring *t = op->state;

	if (spri_op_failed(op))
		return;
	gather(op, 0, t->n, t->sum);
	spri_check(t->sum, t->sum, t->n, 0, op->policy, &finite);
	if (finite.bad_index != SPRI_NO_INDEX)
		finite.bad_index = t->index[finite.bad_index];
	spri_op_report_finite(op, &finite, op->comm->rank);
	if (t->error)
		spri_round_dense(t->sum, t->error, t->n, op->dtype);
}

static int ring_step(struct spri_op *op)
{
	const struct iwp_ring *t = op->state;
	struct spri_ring ring = {
		.first_round = spri_ceil_log2(op->comm->n_ranks),
		.prepare = prepare,
		.own = own_values,
		.settle = settle,
	};

	if (t) {
		ring.count = t->n;
		ring.first = t->sum;
		ring.out = t->sum;
		ring.received = t->received;
		ring.index = t->index;
	}
	if (op->comm->n_ranks > 1)
		return spri_ring_step(op, &ring);
	sum_alone(op);
	return 0;
}

static void finish_lists(struct spri_op *op)
{
	struct iwp_ring *t = op->state;
	uint64_t n = 0;

	if (spri_op_failed(op))
		return;
	op->sum = (struct spri_list){t->index, t->sum, t->n, t->n};
	for (uint64_t i = 0; t->error && i < t->n; i++) {
		t->adopted[n] = t->index[i];
		t->error[n] = t->error[i];
		n += t->error[n] != 0;
	}
	op->adopted = (struct spri_list){t->adopted, t->error, n, t->n};
}

static int iwp_step(struct spri_op *op)
{
	struct iwp_ring *t = op->state;
	int r;

	if (op->cursor.phase == MASKS) {
		r = spri_masks_step(op, t ? &t->masks : NULL);
		if (r)
			return r;
		r = spri_op_failed(op) ? 0 : begin_ring(op);
		if (r < 0)
			spri_op_report(op, r, op->comm->rank, SPRI_NO_INDEX);
		op->cursor = (struct spri_cursor){.phase = RING};
	}
	r = ring_step(op);
	if (r == 0)
		finish_lists(op);
	return r;
}

static void iwp_finish(struct spri_op *op)
{
	struct iwp_ring *t = op->state;

	if (t) {
		spri_masks_fini(&t->masks);
		spri_free(t->index);
		spri_free(t->memory);
		spri_free(t->adopted);
	}
	spri_free(t);
	op->state = NULL;
	op->sum = (struct spri_list){0};
	op->adopted = (struct spri_list){0};
}

const struct spri_algo spri_algo_iwp_ring = {
	7,
	"iwp_ring",
	"a few ranks propose a mask; a ring sums the values there, without indices",
	SPRI_ALGO_MASKED,
	iwp_partners,
	iwp_rounds,
	iwp_bytes,
	iwp_start,
	iwp_step,
	iwp_finish,
};
