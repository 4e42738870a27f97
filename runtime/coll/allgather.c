/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * allgather: every rank's op->count bytes to every rank, in rank order. Internal, behind
 * spr_comm_allgather.
 *
 *   rounds ⌈log2 P⌉, bytes per rank (P − 1) · count
 *
 * Dissemination straight into the caller's memory; the state is the table of blocks alone.
 */
#include <coll/dissemination.h>
#include <errno.h>
#include <internal/alloc.h>
#include <string.h>

static double allgather_bytes(uint32_t n_ranks, double count, double k)
{
	(void)k;
	return (n_ranks - 1.0) * count;
}

static int allgather_start(struct spri_op *op)
{
	uint32_t n_ranks = op->comm->n_ranks, rank = op->comm->rank;
	struct spri_block *blocks;

	if (spri_op_failed(op))
		return 0; /* nothing will be taken */
	blocks = spri_calloc(n_ranks, sizeof *blocks);
	if (!blocks)
		return spri_trace(-ENOMEM);
	op->state = blocks;
	for (uint32_t j = 0; j < n_ranks; j++) {
		blocks[j].id = (uint32_t)(((uint64_t)rank + j) % n_ranks);
		if (op->count > 0)
			blocks[j].bytes = op->out_bytes + blocks[j].id * op->count;
	}
	if (op->count > 0)
		memmove(op->out_bytes + rank * op->count, op->in_bytes, op->count);
	blocks[0].count = op->count;
	return 0;
}

/* A chunk of a rank's bytes. */
static int take_bytes(struct spri_op *op, uint32_t from, struct spri_block *block,
		      const struct spri_chunk *chunk)
{
	bool last = chunk->flags & SPRI_CHUNK_LAST_OF_BLOCK;
	int r = SPR_EPROTOCOL;

	if (chunk->codec == SPRI_CODEC_BYTES &&
	    (chunk->base == block->count || chunk->count == 0)) {
		void *at = op->count ? op->out_bytes + block->id * op->count + block->count : NULL;

		r = spri_codec_find(SPRI_CODEC_BYTES)
			    ->decode(chunk, NULL, at, SPRI_NO_INDEX, op->count);
	}
	if (r == 0)
		block->count += chunk->count;
	if (r < 0 || last != (block->count == op->count)) {
		spri_text_set(&op->text, "rank %u sent %u bytes at %llu of rank %u's %llu", from,
			      chunk->count, (unsigned long long)chunk->base, block->id,
			      (unsigned long long)op->count);
		return spri_trace(SPR_EPROTOCOL);
	}
	return 0;
}

static int allgather_step(struct spri_op *op)
{
	const struct spri_dissemination how = {SPRI_CODEC_BYTES, op->state,
					       op->state ? op->comm->n_ranks : 0, take_bytes};

	return spri_dissemination_step(op, &how);
}

static void allgather_finish(struct spri_op *op)
{
	spri_free(op->state);
	op->state = NULL;
}

const struct spri_algo spri_algo_allgather = {
	5,
	"allgather",
	"every rank's bytes to every rank",
	SPRI_ALGO_BYTES,
	spri_dissemination_partners,
	spri_dissemination_rounds,
	allgather_bytes,
	allgather_start,
	allgather_step,
	allgather_finish,
};
