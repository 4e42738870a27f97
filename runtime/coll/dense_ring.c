/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * dense_ring: ring reduce-scatter, then ring allgather, both chunk by chunk (ring.c).
 *
 *   rounds 2(P − 1), bytes per rank 2(P − 1)/P · count · 4
 *
 * In place (in = out) is allowed. Failures: no memory for a chunk; what ring.c finds.
 */
#include <coll/ring.h>
#include <errno.h>
#include <internal/alloc.h>

static double dense_bytes(uint32_t n_ranks, double count, double k)
{
	(void)k;
	return spri_ring_rounds(n_ranks) / n_ranks * count * 4;
}

static int dense_start(struct spri_op *op)
{
	size_t chunk_bytes = sizeof(float) * spri_transfer_room(op, SPRI_CODEC_DENSE);

	if (spri_op_failed(op) || op->comm->n_ranks == 1)
		return 0;
	op->state = spri_alloc(chunk_bytes); /* one received chunk */
	return op->state ? 0 : spri_trace(-ENOMEM);
}

/* P = 1: the vector itself. */
static int copy_alone(struct spri_op *op)
{
	struct spri_finite finite = SPRI_FINITE_NONE;

	if (op->there && !op->there(op, 0, op->count))
		return SPRI_AGAIN;
	if (spri_op_failed(op))
		return 0;
	spri_check(op->out, op->in, op->count, 0, op->policy, &finite);
	spri_op_report_finite(op, &finite, op->comm->rank);
	return 0;
}

static int dense_step(struct spri_op *op)
{
	const struct spri_ring ring = {
		.count = op->count,
		.first = op->in,
		.out = op->out,
		.received = op->state,
	};

	return op->comm->n_ranks == 1 ? copy_alone(op) : spri_ring_step(op, &ring);
}

static void dense_finish(struct spri_op *op)
{
	spri_free(op->state);
	op->state = NULL;
}

const struct spri_algo spri_algo_dense_ring = {
	1,
	"dense_ring",
	"dense sum: ring reduce-scatter and allgather, chunk by chunk",
	SPRI_ALGO_DENSE,
	spri_ring_partners,
	spri_ring_rounds,
	dense_bytes,
	dense_start,
	dense_step,
	dense_finish,
};
