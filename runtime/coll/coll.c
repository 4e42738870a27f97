/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The table of algorithms, and the life of an operation: create → (arguments) → launch → step … →
 * complete → destroy. An operation is numbered and takes part in the schedule even when it failed
 * on this rank before it began; the others learn why.
 */
#include <coll/coll.h>
#include <coll/fetch.h>
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <stdio.h>
#include <string.h>

/* The public ones first, best first within a kind; internal ones last. */
static const struct spri_algo *const rows[] = {
	&spri_algo_dense_ring,	   &spri_algo_gtopk,	  &spri_algo_gtopk_tree,
	&spri_algo_topk_allgather, &spri_algo_prune_ring, &spri_algo_iwp_ring,
	&spri_algo_allgather,
};

const struct spri_algo *spri_algo_row(unsigned i)
{
	return i < spri_countof(rows) ? rows[i] : NULL;
}

const struct spri_algo *spri_algo_find(const char *name)
{
	for (size_t i = 0; i < spri_countof(rows); i++)
		if (!strcmp(rows[i]->name, name))
			return rows[i];
	return NULL;
}

/* ---- life of an operation ---- */

int spri_op_reserve(struct spr_comm *comm)
{
	if (!comm->spare)
		comm->spare = spri_zalloc(sizeof *comm->spare);
	return comm->spare ? 0 : -ENOMEM;
}

void spri_op_unreserve(struct spr_comm *comm)
{
	spri_free(comm->spare);
	comm->spare = NULL;
}

int spri_op_create(struct spr_comm *comm, const struct spri_algo *algo, struct spri_op **out)
{
	struct spri_op *op;
	int r = spri_op_reserve(comm);

	if (r < 0)
		return spri_trace(r);
	op = comm->spare;
	comm->spare = NULL;
	spri_op_init(op, comm, algo);
	*out = op;
	return 0;
}

void spri_op_init(struct spri_op *op, struct spr_comm *comm, const struct spri_algo *algo)
{
	memset(op, 0, sizeof *op);
	op->comm = comm;
	op->algo = algo;
	op->taken.peer = SPRI_NO_RANK;
}

/* What all ranks must agree on. */
static uint64_t signature(const struct spri_op *op)
{
	uint64_t h = spri_mix64(op->algo->id);

	h = spri_mix64(h + op->count);
	h = spri_mix64(h + op->k);
	h = spri_mix64(h + op->length);
	h = spri_mix64(h + op->streamed);
	h = spri_mix64(h + op->step);
	h = spri_mix64(h + op->n_broadcasters);
	h = spri_mix64(h + op->seed);
	h = spri_mix64(h + op->note_bytes);
	h = spri_mix64(h + (uint64_t)op->dtype);
	h = spri_mix64(h + op->list_codec);
	return spri_mix64(h + (uint64_t)op->policy);
}

void spri_op_launch(struct spri_op *op, int status, uint64_t index)
{
	struct spr_comm *comm = op->comm;
	struct spri_op **at = &comm->ops;
	int r;

	op->seq = comm->next_seq++;
	op->lane = op->seq % SPRI_LANES;
	if (op->list_codec == 0)
		op->list_codec = SPRI_CODEC_RAW32;
	if (op->dtype > SPR_BF16)
		op->dtype = SPR_F32; /* `status` says so, in headers that others can read */
	op->signature = signature(op);
	op->start_ns = spri_op_now(op);
	op->deadline_ns = op->start_ns + comm->context->timeout_ns;
	if (comm->failed) {
		op->text = comm->text;
		spri_op_complete(op, comm->failed);
		return;
	}
	if (status < 0)
		spri_op_report(op, status, comm->rank, index);
	r = op->algo->start(op);
	if (r < 0)
		spri_op_report(op, r, comm->rank, SPRI_NO_INDEX);
	while (*at)
		at = &(*at)->next;
	*at = op;
	if (!comm->context->threaded && !comm->context->poller)
		(void)!spri_progress(comm->context); /* a broken port ends op */
	else
		comm->context->transport->wake(comm->context->port);
}

/* The text of an outcome that all ranks share. */
static void describe_outcome(struct spri_op *op, int status)
{
	const struct spri_outcome *o = &op->outcome;
	char where[48] = "";

	if (o->index != SPRI_NO_INDEX)
		snprintf(where, sizeof where, " (element %llu)", (unsigned long long)o->index);
	if (status == SPR_EMISMATCH)
		spri_text_set(&op->text, "%s: %s", op->algo->name, spr_strerror(status));
	else if (o->rank == SPRI_NO_RANK)
		spri_text_set(&op->text, "%s: in a sum of several ranks: %s%s", op->algo->name,
			      spr_strerror(status), where);
	else
		spri_text_set(&op->text, "%s: rank %u: %s%s", op->algo->name, o->rank,
			      spr_strerror(status), where);
}

void spri_op_complete(struct spri_op *op, int status)
{
	struct spr_comm *comm = op->comm;
	struct spri_op **at = &comm->ops;

	while (*at && *at != op)
		at = &(*at)->next;
	if (*at)
		*at = op->next;
	op->next = NULL;
	op->status = status;
	op->end_ns = spri_op_now(op);
	op->stats.wire_bytes = comm->lane_bytes[op->lane];
	comm->lane_bytes[op->lane] = 0;
	if (status < 0 && comm->failed)
		op->text = comm->text;
	else if (status < 0)
		describe_outcome(op, status);
	op->done = true;
	if (op->on_done)
		op->on_done(op);
	pthread_cond_broadcast(&comm->context->changed);
}

void spri_op_destroy(struct spri_op *op)
{
	struct spr_comm *comm = op->comm;

	op->algo->finish(op);
	spri_fetch_free(op);
	if (comm->spare)
		spri_free(op);
	else
		comm->spare = op;
}
