/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Masks: who broadcasts, how masks travel, and their union; see mask.h.
 *
 *   1. the broadcasters are drawn from the seed and the step: every rank knows them
 *   2. dissemination of their heads and masks; whoever passes one on takes the codec it came in
 *   3. the union: neighbours in pairs, level by level, into memory of the two together
 *
 * Failures: no memory for a mask, or for a union, is the operation's outcome; the rounds that
 * follow tell it to all. A head that announces too much, a mask of another length or codec, or one
 * that does not ascend is SPR_EPROTOCOL.
 */
#include <coll/dissemination.h>
#include <coll/mask.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <internal/philox.h>
#include <string.h>

#define HEAD_BYTES 8u /* before the note */

/*
 * Floyd's sample: of 0 … j, for j = P − r … P − 1, one is drawn; when it is taken, j itself is new.
 * 48 bits of each draw, times j + 1 ≤ 2^16, fill 64.
 */
int spr_mask_broadcasters(int n_ranks, int r, uint64_t seed, uint64_t step, int *ranks)
{
	uint64_t taken[SPR_MAX_RANKS / 64];
	int n = 0;

	if (n_ranks < 1 || n_ranks > SPR_MAX_RANKS || r < 1 || r > n_ranks || !ranks)
		return spri_trace(SPR_EARGUMENT);
	memset(taken, 0, ((size_t)n_ranks + 63) / 64 * sizeof *taken);
	for (int j = n_ranks - r; j < n_ranks; j++) {
		uint32_t bits[4];
		uint64_t drawn;

		spri_philox4(seed, step, (uint64_t)j, bits);
		drawn = ((uint64_t)bits[1] << 16 | bits[0] >> 16) * ((uint64_t)j + 1) >> 48;
		if (taken[drawn / 64] >> drawn % 64 & 1)
			drawn = (uint64_t)j;
		taken[drawn / 64] |= (uint64_t)1 << drawn % 64;
	}
	for (int word = 0; word * 64 < n_ranks; word++)
		for (uint64_t w = taken[word]; w; w &= w - 1)
			ranks[n++] = word * 64 + __builtin_ctzll(w);
	return 0;
}

/* ---- start and end ---- */

size_t spri_masks_bytes(const struct spri_op *op)
{
	size_t each = 2 * sizeof(struct spri_block) + sizeof(uint64_t *) + sizeof(int) +
		      HEAD_BYTES + op->note_bytes;

	return each * op->n_broadcasters;
}

/* gaps, unless they need more bytes than the bitmap has. */
static uint8_t choose_codec(const uint64_t *index, uint64_t n)
{
	uint64_t bytes = n > 0 ? (index[n - 1] - index[0]) / 8 + 1 : 0;

	if (spri_codec_find(SPRI_CODEC_GAPS)->fit(index, n, bytes, SPR_F32) == n)
		return SPRI_CODEC_GAPS;
	return SPRI_CODEC_BITMAP;
}

void spri_masks_init(struct spri_masks *masks, struct spri_op *op, void *memory)
{
	uint32_t n = op->n_broadcasters, first = 0, rank = op->comm->rank;
	int *ranks, r;

	masks->n = n;
	masks->head_bytes = HEAD_BYTES + op->note_bytes;
	masks->blocks = memory;
	masks->memory = (uint64_t **)(void *)(masks->blocks + 2 * (size_t)n);
	ranks = (int *)(void *)(masks->memory + n);
	masks->heads = (uint8_t *)(ranks + n);
	memset(memory, 0, spri_masks_bytes(op));
	r = spr_mask_broadcasters((int)op->comm->n_ranks, (int)n, op->seed, op->step, ranks);
	assert(r == 0);
	(void)r;
	while (first < n && (uint32_t)ranks[first] < rank)
		first++;
	for (uint32_t i = 0; i < n; i++) {
		struct spri_block *head = &masks->blocks[2 * (size_t)i], *mask = head + 1;

		head->id = mask->id = (uint32_t)ranks[(first + i) % n];
		head->codec = SPRI_CODEC_BYTES;
		head->bytes = masks->heads + (size_t)i * masks->head_bytes;
	}
	if (masks->blocks[0].id != rank)
		return;
	spri_put_u64(masks->heads, op->n_mask);
	if (op->note_bytes > 0)
		memcpy(masks->heads + HEAD_BYTES, op->in_bytes, op->note_bytes);
	masks->blocks[0].count = masks->head_bytes;
	masks->blocks[1].index = op->mask;
	masks->blocks[1].count = op->n_mask;
	masks->blocks[1].codec = choose_codec(op->mask, op->n_mask);
}

void spri_masks_fini(struct spri_masks *masks)
{
	for (uint32_t i = 0; i < masks->n; i++)
		spri_free(masks->memory[i]);
	masks->n = 0;
}

/* ---- rounds ---- */

static int malformed(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk)
{
	spri_text_set(&op->text, "rank %u sent a malformed mask of rank %u (%u indices from %llu)",
		      from, chunk->block, chunk->count, (unsigned long long)chunk->base);
	return spri_trace(SPR_EPROTOCOL);
}

/* A chunk of head i; after the last one there is memory for the mask. */
static int take_head(struct spri_op *op, struct spri_masks *masks, uint32_t i, uint32_t from,
		     const struct spri_chunk *chunk)
{
	struct spri_block *head = &masks->blocks[2 * (size_t)i];
	uint8_t *at = masks->heads + (size_t)i * masks->head_bytes;
	void *end = at + head->count;
	bool last = chunk->flags & SPRI_CHUNK_LAST_OF_BLOCK;
	uint64_t n;
	int r;

	if (chunk->codec != SPRI_CODEC_BYTES || chunk->count > masks->head_bytes - head->count ||
	    (chunk->count > 0 && chunk->base != head->count))
		return malformed(op, from, chunk);
	r = spri_codec_find(SPRI_CODEC_BYTES)
		    ->decode(chunk, NULL, end, SPRI_NO_INDEX, masks->head_bytes);
	if (r < 0)
		return malformed(op, from, chunk);
	head->count += chunk->count;
	if (last != (head->count == masks->head_bytes))
		return malformed(op, from, chunk);
	n = spri_get_u64(at);
	if (last && n > op->count)
		return malformed(op, from, chunk);
	if (!last || n == 0)
		return 0;
	masks->memory[i] = spri_alloc(n * sizeof **masks->memory);
	if (!masks->memory[i])
		spri_op_report(op, -ENOMEM, op->comm->rank, SPRI_NO_INDEX);
	head[1].index = masks->memory[i];
	return 0;
}

static int take_mask(struct spri_op *op, struct spri_masks *masks, uint32_t i, uint32_t from,
		     const struct spri_chunk *chunk)
{
	struct spri_block *mask = &masks->blocks[2 * (size_t)i + 1];
	uint64_t n = spri_get_u64(masks->heads + (size_t)i * masks->head_bytes);
	bool last = chunk->flags & SPRI_CHUNK_LAST_OF_BLOCK;
	int r;

	if ((chunk->codec != SPRI_CODEC_GAPS && chunk->codec != SPRI_CODEC_BITMAP) ||
	    (mask->codec && mask->codec != chunk->codec) || chunk->count > n - mask->count)
		return malformed(op, from, chunk);
	r = spri_codec_find(chunk->codec)
		    ->decode(chunk, n > 0 ? masks->memory[i] + mask->count : NULL, NULL,
			     mask->count > 0 ? mask->index[mask->count - 1] : SPRI_NO_INDEX,
			     op->count);
	if (r < 0)
		return malformed(op, from, chunk);
	mask->codec = chunk->codec;
	mask->count += chunk->count;
	return last != (mask->count == n) ? malformed(op, from, chunk) : 0;
}

static int take(struct spri_op *op, uint32_t from, struct spri_block *block,
		const struct spri_chunk *chunk)
{
	struct spri_masks *masks = op->state; /* the algorithm's state begins with them */
	uint32_t at = (uint32_t)(block - masks->blocks);

	return at % 2 == 0 ? take_head(op, masks, at / 2, from, chunk)
			   : take_mask(op, masks, at / 2, from, chunk);
}

int spri_masks_step(struct spri_op *op, struct spri_masks *masks)
{
	const struct spri_dissemination how = {SPRI_CODEC_BYTES, masks ? masks->blocks : NULL,
					       masks ? 2 * masks->n : 0, take};

	return spri_dissemination_step(op, &how);
}

/* ---- union ---- */

/* Ascending union of a and b, to out, which has room for both. Returns its length. */
static uint64_t merge(uint64_t *out, const struct spri_block *a, const struct spri_block *b)
{
	uint64_t i = 0, j = 0, n = 0;

	while (i < a->count && j < b->count) {
		uint64_t x = a->index[i], y = b->index[j];

		out[n++] = x < y ? x : y;
		i += x <= y;
		j += y <= x;
	}
	for (; i < a->count; i++)
		out[n++] = a->index[i];
	for (; j < b->count; j++)
		out[n++] = b->index[j];
	return n;
}

/* Mask i takes mask j in. Returns 0 or -ENOMEM. */
static int unite_two(struct spri_masks *masks, uint32_t i, uint32_t j)
{
	struct spri_block *a = &masks->blocks[2 * (size_t)i + 1];
	struct spri_block *b = &masks->blocks[2 * (size_t)j + 1];
	uint64_t *out;

	if (b->count == 0)
		return 0;
	out = spri_alloc((a->count + b->count) * sizeof *out);
	if (!out)
		return spri_trace(-ENOMEM);
	a->count = merge(out, a, b);
	a->index = out;
	spri_free(masks->memory[i]);
	spri_free(masks->memory[j]);
	masks->memory[i] = out;
	masks->memory[j] = NULL;
	b->count = 0;
	return 0;
}

/* What is left is a list of `count` indices that is the caller's to keep. Returns 0 or -ENOMEM. */
static int own_union(const struct spri_op *op, struct spri_masks *masks, uint64_t **index,
		     uint64_t *count)
{
	const struct spri_block *all = &masks->blocks[1];
	bool dense = all->count > op->count / 2;
	uint64_t n = dense ? op->count : all->count;

	*count = n;
	*index = dense ? NULL : masks->memory[0];
	if (*index || n == 0) {
		masks->memory[0] = NULL;
		return 0;
	}
	*index = spri_alloc(n * sizeof **index);
	if (!*index)
		return spri_trace(-ENOMEM);
	for (uint64_t i = 0; i < n; i++)
		(*index)[i] = dense ? i : all->index[i];
	return 0;
}

static void hand_over_notes(struct spri_op *op, const struct spri_masks *masks)
{
	uint32_t first = 0;

	while (first < masks->n && masks->blocks[2 * (size_t)first].id >= op->comm->rank)
		first++;
	for (uint32_t i = 0; i < masks->n && op->note_bytes > 0; i++) {
		uint32_t from = (first + i) % masks->n; /* by ascending rank */

		memcpy(op->out_bytes + (size_t)i * op->note_bytes,
		       masks->heads + (size_t)from * masks->head_bytes + HEAD_BYTES,
		       op->note_bytes);
	}
}

int spri_masks_unite(struct spri_op *op, struct spri_masks *masks, uint64_t **index,
		     uint64_t *count)
{
	uint64_t start_ns = spri_op_now(op);
	uint32_t n = masks->n;
	int r = 0;

	hand_over_notes(op, masks);
	for (uint32_t step = 1; step < n && r == 0; step *= 2)
		for (uint32_t i = 0; i + step < n && r == 0; i += 2 * step)
			r = unite_two(masks, i, i + step);
	if (r == 0)
		r = own_union(op, masks, index, count);
	spri_op_merged(op, start_ns);
	return r;
}
