/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* A transfer layer that hands out a script; see coll_alone.h. */
#include "coll_alone.h"

#include <check.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <stdlib.h>
#include <string.h>

struct script script;

/* ---- the transfer layer ---- */

void spri_outcome_combine(struct spri_outcome *into, const struct spri_outcome *other)
{
	if (into->status == 0)
		*into = *other;
}

void spri_op_report(struct spri_op *op, int status, uint32_t rank, uint64_t index)
{
	op->outcome = (struct spri_outcome){status, rank, index};
}

void spri_op_report_finite(struct spri_op *op, const struct spri_finite *finite, uint32_t rank)
{
	if (op->policy == SPR_NONFINITE_ERROR && finite->bad_index != SPRI_NO_INDEX)
		spri_op_report(op, SPR_ENONFINITE, rank, finite->bad_index);
}

uint64_t spri_op_now(const struct spri_op *op)
{
	(void)op;
	return 0;
}

void spri_op_merged(struct spri_op *op, uint64_t start_ns)
{
	op->stats.merge_ns += spri_op_now(op) - start_ns;
}

uint32_t spri_transfer_room(const struct spri_op *op, uint8_t codec)
{
	return (op->comm->chunk_bytes - SPRI_CHUNK_HEADER) / (codec == SPRI_CODEC_RAW32	  ? 8
							      : codec == SPRI_CODEC_DENSE ? 4
											  : 1);
}

/* Reads all that is to be sent, so that a list of the wrong length shows. */
static uint64_t seen;
static int look_at(const struct spri_op *op, const struct spri_block *block)
{
	for (uint64_t i = 0; i < block->count && !spri_op_failed(op); i++) {
		seen += block->index ? block->index[i] : 0;
		seen += block->bytes ? block->bytes[i] : 0;
		seen += block->value ? spri_f32_bits(block->value[i]) : 0;
	}
	return 0;
}

int spri_transfer_send(struct spri_op *op, uint32_t to, uint32_t round, uint8_t codec,
		       const struct spri_block *blocks, uint32_t n_blocks,
		       struct spri_sending *sending)
{
	(void)to;
	(void)round;
	(void)codec;
	for (uint32_t i = 0; i < n_blocks && !sending->done; i++)
		look_at(op, &blocks[i]);
	sending->done = true;
	return 0;
}

int spri_transfer_send_part(struct spri_op *op, uint32_t to, uint32_t round, uint8_t codec,
			    const struct spri_block *block, uint64_t position, uint32_t n,
			    bool last)
{
	struct spri_block part = {.value = block->value ? block->value + position : NULL,
				  .count = n};

	(void)to;
	(void)round;
	(void)codec;
	(void)last;
	return look_at(op, &part);
}

int spri_transfer_receive(struct spri_op *op, uint32_t from, uint32_t round,
			  struct spri_chunk *chunk)
{
	(void)op;
	(void)from;
	(void)round;
	cr_assert_not(script.held, "a chunk is released before the next is asked for");
	if (script.taken == script.n)
		return SPRI_AGAIN;
	*chunk = script.chunks[script.taken++];
	script.held = true;
	return 0;
}

bool spri_transfer_sent(const struct spri_op *op)
{
	(void)op;
	return true; /* what is sent here is copied */
}

void spri_transfer_release(struct spri_op *op, uint32_t from)
{
	(void)op;
	(void)from;
	cr_assert(script.held, "only what was received is released");
	script.held = false;
}

/* ---- operations ---- */

const struct spri_algo *const algos[N_ALGOS] = {&spri_algo_dense_ring, &spri_algo_gtopk,
						&spri_algo_gtopk_tree, &spri_algo_topk_allgather,
						&spri_algo_prune_ring, &spri_algo_iwp_ring,
						&spri_algo_allgather};

void begin(struct fixture *f, const struct spri_algo *algo, uint32_t rank, uint32_t n_ranks)
{
	int r;

	memset(f, 0, sizeof *f);
	memset(&script, 0, sizeof script);
	f->comm = (struct spr_comm){.rank = rank, .n_ranks = n_ranks, .chunk_bytes = CHUNK_BYTES};
	f->index = calloc(K, sizeof *f->index);
	f->value = calloc(K, sizeof *f->value);
	f->in = calloc(COUNT, sizeof *f->in);
	f->out = calloc(COUNT, sizeof *f->out);
	f->bytes = calloc(COUNT, 1);
	f->all = calloc(n_ranks, COUNT);
	for (uint32_t i = 0; i < K; i++) {
		f->index[i] = 3 * i;
		f->value[i] = 1.0f + (float)i;
	}
	f->op = (struct spri_op){
		.comm = &f->comm,
		.algo = algo,
		.in = f->in,
		.out = f->out,
		.in_bytes = f->bytes,
		.out_bytes = f->all,
		.count = COUNT,
		.in_list = {K, f->index, f->value},
		.k = K,
		.length = COUNT,
		.mask = f->index,
		.n_mask = K,
		.n_broadcasters = n_ranks - n_ranks / 3,
		.note_bytes = NOTE,
		.list_codec = SPRI_CODEC_RAW32,
	};
	r = algo->start(&f->op);
	cr_assert_eq(r, 0, "%s starts", algo->name);
}

void end(struct fixture *f)
{
	f->op.algo->finish(&f->op);
	free(f->index);
	free(f->value);
	free(f->in);
	free(f->out);
	free(f->bytes);
	free(f->all);
}

struct spri_chunk *add(uint8_t codec, uint32_t block, uint64_t base, uint32_t n, uint32_t step,
		       uint8_t flags)
{
	struct spri_chunk *chunk = &script.chunks[script.n];
	uint8_t *payload = script.payload[script.n++];

	*chunk = (struct spri_chunk){
		.codec = codec,
		.flags = flags,
		.block = block,
		.count = n,
		.base = base,
		.payload_bytes = (uint32_t)spri_codec_find(codec)->bound(n, SPR_F32),
		.payload = payload,
	};
	for (uint32_t i = 0; codec == SPRI_CODEC_RAW32 && i < n; i++) {
		spri_put_u32(payload + 4 * i, i * step);
		spri_put_u32(payload + 4 * (n + i), spri_f32_bits(2.0f));
	}
	return chunk;
}

void add_mask(uint8_t codec, uint32_t block, uint64_t base, uint32_t n, uint32_t step,
	      uint8_t flags)
{
	uint8_t *payload = script.payload[script.n];
	struct spri_chunk *chunk = add(codec, block, base, n, step, flags);
	uint64_t index[COUNT];

	for (uint32_t i = 0; i < n; i++)
		index[i] = base + (uint64_t)i * step;
	chunk->payload_bytes = spri_codec_find(codec)->encode(payload, index, NULL, n, SPR_F32);
}

void add_head(uint64_t n, uint32_t bytes)
{
	spri_put_u64(script.payload[script.n], n);
	add(SPRI_CODEC_BYTES, 1, 0, bytes, 0, SPRI_CHUNK_LAST_OF_BLOCK);
}

int run(const struct spri_algo *algo, uint32_t rank, uint32_t n_ranks, void (*write_script)(void),
	const char *what, int expected)
{
	struct fixture f;
	int r;

	begin(&f, algo, rank, n_ranks);
	write_script();
	r = algo->step(&f.op);
	cr_assert_eq(r, expected, "%s, %s: expected %d, got %d (%s)", algo->name, what, expected, r,
		     f.op.text.s);
	cr_assert_eq(f.op.text.s[0] != '\0', r < 0, "%s, %s: a text for a refusal, got \"%s\"",
		     algo->name, what, f.op.text.s);
	end(&f);
	return r;
}
