/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Streams of entries; see stream.h. The message of a round that streams:
 *
 *   block 0  the candidates, then the selected entries behind them; in chunks as they are there
 *   block 1  the late ones, mostly none
 *   block 2  the cut, 12 octets: key (4), index (8); ends the round
 *
 * Failures: when selection fails, or this rank hears of another's failure, the end of the round
 * without a cut. More entries than the lists may have, blocks out of order, a cut of another size
 * and more than k entries above the cut are SPR_EPROTOCOL.
 */
#include <coll/coll.h>
#include <coll/sparse.h>
#include <internal/bytes.h>

#define CUT_BYTES 12u
#define LEAST_ENTRIES 256u /* a chunk of fewer waits for more */

enum { FOUND, LATE, CUT };

/*
 * Sends what is there of a list, `least` entries at once at least. Returns 0 when all of it is
 * sent, SPRI_AGAIN, negative.
 */
static int send_list(struct spri_op *op, uint32_t to, uint32_t round, uint32_t id,
		     const struct spri_list *list, uint64_t least)
{
	const struct spri_codec *codec = spri_codec_find(op->list_codec);
	struct spri_sending *sending = &op->cursor.sending;

	while (sending->position < list->count) {
		uint64_t at = sending->position, left = list->count - at;
		struct spri_block block = {.id = id,
					   .index = list->index + at,
					   .value = list->value + at,
					   .count = left,
					   .base = list->index[at]};
		uint32_t n;
		int r;

		if (id == FOUND && op->stream->near.region) {
			block.base = 0;
			block.near = op->stream->near;
			block.near.index += at;
			block.near.value += at;
		}

		if (left < least)
			break;
		n = codec->fit(block.index, left, op->comm->chunk_bytes - SPRI_CHUNK_HEADER,
			       op->dtype);
		r = spri_transfer_send_part(op, to, round, codec->id, &block, 0, n, false);
		if (r)
			return r;
		sending->position += n;
	}
	if (least == 0)
		return 0;
	op->waiting_for = op->comm->rank; /* which is still selecting */
	return SPRI_AGAIN;
}

static int send_cut(struct spri_op *op, uint32_t to, uint32_t round)
{
	uint8_t cut[CUT_BYTES];
	const struct spri_block block = {.id = CUT, .bytes = cut, .count = CUT_BYTES};

	spri_put_u32(cut, op->stream->cut_key);
	spri_put_u64(cut + 4, op->stream->cut_index);
	return spri_transfer_send_part(op, to, round, SPRI_CODEC_BYTES, &block, 0, CUT_BYTES, true);
}

int spri_stream_send(struct spri_op *op, uint32_t to, uint32_t round)
{
	const struct spri_stream *stream = op->stream;
	struct spri_sending *sending = &op->cursor.sending;
	uint64_t least = spri_max_u64(LEAST_ENTRIES, op->k / 8);
	int r;

	while (!sending->done) {
		if (spri_op_failed(op) || !stream)
			return spri_transfer_send(op, to, round, SPRI_CODEC_RAW32, NULL, 0,
						  sending);
		if (sending->block == FOUND)
			r = send_list(op, to, round, FOUND, &stream->found,
				      stream->open ? least : 0);
		else if (sending->block == LATE)
			r = send_list(op, to, round, LATE, &stream->late, 0);
		else
			r = send_cut(op, to, round);
		if (r)
			return r;
		if (sending->block == FOUND)
			op->excess = stream->found.count + stream->late.count - op->in_list.count;
		sending->done = sending->block == CUT;
		sending->block++;
		sending->position = 0;
	}
	return 0;
}

/* Drops what lies below the cut, and zeros. */
static void apply_cut(struct spri_list *found, uint32_t key, uint64_t index)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < found->count; i++) {
		if (found->value[i] == 0 ||
		    !spri_stream_keeps(key, index, found->index[i], found->value[i]))
			continue;
		found->index[kept] = found->index[i];
		found->value[kept++] = found->value[i];
	}
	found->count = kept;
}

static int malformed(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk)
{
	spri_text_set(&op->text, "rank %u sent a chunk of block %u (%u entries) that cannot be",
		      from, chunk->block, chunk->count);
	return spri_trace(SPR_EPROTOCOL);
}

static int take_cut(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk,
		    struct spri_list *found, const struct spri_list *late)
{
	uint8_t cut[CUT_BYTES];
	void *at = cut;
	int r = chunk->count == CUT_BYTES && chunk->base == 0
			? spri_codec_find(SPRI_CODEC_BYTES)
				  ->decode(chunk, NULL, at, SPRI_NO_INDEX, CUT_BYTES)
			: SPR_EPROTOCOL;

	if (r < 0)
		return malformed(op, from, chunk);
	apply_cut(found, spri_get_u32(cut), spri_get_u64(cut + 4));
	return found->count + late->count > spri_sparse_keep(op) ? malformed(op, from, chunk) : 0;
}

/* Blocks come in order, and the cut last. */
static bool out_of_order(const struct spri_chunk *chunk, bool last, const struct spri_list *late)
{
	if (last != (chunk->codec == SPRI_CODEC_BYTES) || last != (chunk->block == CUT))
		return true;
	return !last && (chunk->block > LATE || (chunk->block == FOUND && late->count > 0));
}

int spri_stream_receive(struct spri_op *op, uint32_t from, uint32_t round, struct spri_list *found,
			struct spri_list *late)
{
	struct spri_receiving *receiving = &op->cursor.receiving;
	struct spri_chunk chunk;
	int r;

	while (!receiving->done) {
		bool last;

		r = spri_transfer_receive(op, from, round, &chunk);
		if (r)
			return r;
		last = chunk.flags & SPRI_CHUNK_LAST_OF_ROUND;
		if (spri_op_failed(op))
			r = 0;
		else if (out_of_order(&chunk, last, late))
			r = malformed(op, from, &chunk);
		else if (last)
			r = take_cut(op, from, &chunk, found, late);
		else
			r = spri_sparse_take(op, from, &chunk, chunk.block == FOUND ? found : late);
		spri_transfer_release(op, from);
		if (r < 0)
			return r;
		receiving->done = last;
	}
	return 0;
}
