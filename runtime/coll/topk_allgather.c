/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * topk_allgather: every rank's list to every rank, and there the sum of all.
 *
 *   rounds ⌈log2 P⌉, bytes per rank (P − 1) · k · 8, memory 2 · P · k entries
 *
 *   1. dissemination: after it, all P lists are here
 *   2. the sum, on each rank for itself, in a fixed order: neighbours in pairs, level by level, an
 *      odd one at the end goes up as it is: ((0 + 1) + (2 + 3)) + 4 for P = 5. Zero sums are left
 *      out at every level
 *
 * Nothing is cut. With 16-bit values on the wire each rank rounds its own list before it is sent,
 * and adopts what that takes off; the sum is not rounded.
 *
 * Failures: a sum that is not finite is found by all ranks alike, so it is reported without a rank,
 * and needs no message.
 */
#include <coll/dissemination.h>
#include <coll/schedule.h>
#include <coll/sparse.h>
#include <errno.h>
#include <internal/alloc.h>
#include <string.h>

struct topk_allgather {
	uint64_t keep;		    /* most entries of one list */
	struct spri_list lists;	    /* P places of keep entries: of ranks r, r + 1, … (mod P) */
	struct spri_list sums;	    /* levels of the sum stand here and in lists in turns */
	struct spri_list errors;    /* of rounding this rank's list */
	struct spr_sparse *parts;   /* P: the lists of one level, by rank */
	struct spri_block blocks[]; /* P: what is in lists */
};

static double topk_bytes(uint32_t n_ranks, double count, double k)
{
	(void)count;
	return (n_ranks - 1.0) * k * 8;
}

static int topk_start(struct spri_op *op)
{
	uint32_t n_ranks = op->comm->n_ranks, rank = op->comm->rank;
	size_t blocks = sizeof(struct topk_allgather) + n_ranks * sizeof(struct spri_block);
	uint64_t keep = spri_sparse_keep(op), all = UINT64_MAX;
	uint64_t rounded = op->dtype == SPR_F32 ? 0 : keep;
	struct spri_list lists[3], own;
	struct topk_allgather *t;

	if (spri_op_failed(op))
		return 0; /* nothing will be taken */
	if (keep <= SPR_MAX_COUNT / n_ranks)
		all = keep * n_ranks; /* else there is no such memory */
	t = spri_sparse_alloc(blocks + n_ranks * sizeof *t->parts, (uint64_t[]){all, all, rounded},
			      3, lists);
	if (!t)
		return spri_trace(-ENOMEM);
	op->state = t;
	t->keep = keep;
	t->lists = lists[0];
	t->sums = lists[1];
	t->errors = lists[2];
	t->parts = (struct spr_sparse *)(void *)((uint8_t *)t + blocks);
	for (uint32_t j = 0; j < n_ranks; j++)
		t->blocks[j] = (struct spri_block){
			.id = (uint32_t)(((uint64_t)rank + j) % n_ranks),
			.index = t->lists.index + j * keep,
			.value = t->lists.value + j * keep,
		};
	own = (struct spri_list){t->lists.index, t->lists.value, 0, keep};
	spri_sparse_input(op, &own);
	spri_round(&own, op->dtype, &t->errors);
	t->blocks[0].count = own.count;
	return 0;
}

/* A chunk of a list. */
static int take_list(struct spri_op *op, uint32_t from, struct spri_block *block,
		     const struct spri_chunk *chunk)
{
	struct topk_allgather *t = op->state;
	uint64_t place = (uint64_t)(block - t->blocks) * t->keep;
	struct spri_list list = {t->lists.index + place, t->lists.value + place, block->count,
				 t->keep};
	int r = spri_sparse_take(op, from, chunk, &list);

	block->count = list.count;
	return r;
}

/* One level: parts 2i and 2i + 1 become part i, written to `to`, behind one another. */
static uint32_t sum_level(struct spri_op *op, struct spr_sparse *parts, uint32_t n,
			  const struct spri_list *to, struct spri_finite *finite)
{
	static const struct spr_sparse nothing = {0};
	uint64_t used = 0;

	for (uint32_t i = 0; 2 * i < n; i++) {
		struct spr_sparse a = parts[2 * i], b = 2 * i + 1 < n ? parts[2 * i + 1] : nothing;
		struct spri_list out = {to->index + used, to->value + used, 0, to->capacity - used};

		spri_merge(&out, a.index, a.value, a.count, b.index, b.value, b.count, op->policy,
			   finite);
		parts[i] = (struct spr_sparse){out.count, out.index, out.value};
		used += out.count;
	}
	return (n + 1) / 2;
}

static void sum_all(struct spri_op *op)
{
	struct topk_allgather *t = op->state;
	uint32_t n_ranks = op->comm->n_ranks, n = n_ranks;
	struct spri_finite finite = SPRI_FINITE_NONE;
	const struct spri_list *from = &t->lists, *to = &t->sums;
	uint64_t start_ns = spri_op_now(op);

	for (uint32_t j = 0; j < n_ranks; j++) {
		const struct spri_block *block = &t->blocks[j];

		t->parts[block->id] = (struct spr_sparse){block->count, block->index, block->value};
	}
	while (n > 1) {
		const struct spri_list *swap = from;

		n = sum_level(op, t->parts, n, to, &finite);
		from = to;
		to = swap;
	}
	spri_op_report_finite(op, &finite, SPRI_NO_RANK);
	op->sum = (struct spri_list){from->index, from->value, t->parts[0].count, from->capacity};
	op->adopted = t->errors;
	spri_op_merged(op, start_ns);
}

static int topk_step(struct spri_op *op)
{
	struct topk_allgather *t = op->state;
	const struct spri_dissemination how = {op->list_codec, t ? t->blocks : NULL,
					       t ? op->comm->n_ranks : 0, take_list};
	int r = spri_dissemination_step(op, &how);

	if (r == 0 && !spri_op_failed(op))
		sum_all(op);
	return r;
}

static void topk_finish(struct spri_op *op)
{
	spri_free(op->state);
	op->state = NULL;
	op->sum = (struct spri_list){0};
	op->adopted = (struct spri_list){0};
}

const struct spri_algo spri_algo_topk_allgather = {
	2,
	"topk_allgather",
	"every rank's top-k to every rank, summed there",
	SPRI_ALGO_SPARSE,
	spri_dissemination_partners,
	spri_dissemination_rounds,
	topk_bytes,
	topk_start,
	topk_step,
	topk_finish,
};
