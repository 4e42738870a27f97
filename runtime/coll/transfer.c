/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Messages: what algorithms are written with. A message of a round is a sequence of blocks, a
 * block a sequence of chunks; the last chunk carries the outcome so far. Sending goes on as
 * credits allow; receiving hands out one checked chunk after the other.
 *
 * Failures: a chunk that cannot be (header, sequence, round, algorithm) ends the operation with
 * SPR_EPROTOCOL or SPR_EMISMATCH, and with it the communicator. A partner that left while it is
 * still needed is lost.
 */
#include <coll/coll.h>
#include <context.h>
#include <internal/bits.h>
#include <internal/log.h>

void spri_outcome_combine(struct spri_outcome *into, const struct spri_outcome *other)
{
	bool take;

	if (other->status == 0)
		return;
	if (into->status == 0)
		take = true;
	else if (into->rank != other->rank)
		take = other->rank < into->rank;
	else if (into->index != other->index)
		take = other->index < into->index;
	else
		take = other->status < into->status;
	if (take)
		*into = *other;
}

void spri_op_report(struct spri_op *op, int status, uint32_t rank, uint64_t index)
{
	struct spri_outcome outcome = {.status = status, .rank = rank, .index = index};

	spri_outcome_combine(&op->outcome, &outcome);
}

void spri_op_report_finite(struct spri_op *op, const struct spri_finite *finite, uint32_t rank)
{
	if (op->policy == SPR_NONFINITE_ERROR && finite->bad_index != SPRI_NO_INDEX)
		spri_op_report(op, SPR_ENONFINITE, rank, finite->bad_index);
}

uint64_t spri_op_now(const struct spri_op *op)
{
	return spri_context_now(op->comm->context);
}

/* One event of the trace: what op did since start_ns with a chunk. */
static void add_event(const struct spri_op *op, enum spri_timeline_kind kind, uint64_t start_ns,
		      const struct spri_timeline_chunk *chunk)
{
	const struct spr_comm *comm = op->comm;
	const struct spri_timeline_event event = {
		.kind = kind,
		.algo = op->algo->id,
		.lane = (uint8_t)op->lane,
		.comm = comm->number,
		.rank = comm->rank,
		.start_ns = start_ns,
		.end_ns = spri_op_now(op),
		.number = op->seq,
		.chunk = *chunk,
	};

	spri_timeline_add(comm->context->timeline, &event);
}

void spri_op_merged(struct spri_op *op, uint64_t start_ns)
{
	op->stats.merge_ns += spri_op_now(op) - start_ns;
	if (op->comm->context->timeline)
		add_event(op, SPRI_TIMELINE_MERGE, start_ns, &op->taken);
}

uint32_t spri_transfer_room(const struct spri_op *op, uint8_t codec)
{
	return spri_codec_find(codec)->most(op->comm->chunk_bytes - SPRI_CHUNK_HEADER, op->dtype);
}

static uint32_t encode(const struct spri_op *op, uint8_t *payload, const struct spri_codec *codec,
		       const struct spri_block *block, uint64_t position, uint32_t n)
{
	const uint64_t *index = block->index ? block->index + position : NULL;
	const void *value = NULL;

	if (block->bytes)
		value = block->bytes + position;
	else if (block->value)
		value = block->value + position;
	return codec->encode(payload, index, value, n, op->dtype);
}

/* The payload of raw32 as it lies in memory of another kind: offsets, then values. */
static unsigned gather_near(const struct spri_block *block, uint64_t position,
			    struct spri_chunk *chunk, struct spri_gather *near)
{
	size_t n = chunk->count;

	near[0] = (struct spri_gather){.base = block->near.index + position,
				       .bytes = n * sizeof *block->near.index,
				       .region = block->near.region};
	near[1] = (struct spri_gather){.base = block->near.value + position,
				       .bytes = n * sizeof *block->near.value,
				       .region = block->near.region};
	chunk->payload_bytes = (uint32_t)(near[0].bytes + near[1].bytes);
	return 2;
}

/*
 * Encodes n entries from position on into a chunk and posts it. Without payload in failed mode
 * (n is 0 then, and block may be NULL).
 */
static int send_chunk(struct spri_op *op, uint32_t to, const struct spri_codec *codec,
		      struct spri_chunk *chunk, const struct spri_block *block, uint64_t position)
{
	struct spri_link *link = spri_comm_link(op->comm, to);
	bool traced = op->comm->context->timeline;
	uint64_t start_ns = traced ? spri_op_now(op) : 0;
	struct spri_gather near[2];
	unsigned n_near = 0;
	const char *why;
	uint8_t *buffer;
	int r;

	assert(link);
	op->waiting_for = to;
	if (link->closed) {
		spri_text_set(&op->text, "rank %u left the communicator", to);
		return SPR_ELOST;
	}
	r = spri_slots_reserve(link, op->lane, &buffer);
	if (r)
		return r;
	if (chunk->count && block->near.region)
		n_near = gather_near(block, position, chunk, near);
	else if (chunk->count)
		chunk->payload_bytes = encode(op, buffer + SPRI_CHUNK_HEADER, codec, block,
					      position, chunk->count);
	chunk->codec = codec->id;
	chunk->dtype = codec->valued ? (uint8_t)op->dtype : 0;
	chunk->algo = op->algo->id;
	chunk->seq = op->seq;
	chunk->signature = op->signature;
	chunk->outcome = op->outcome;
	spri_chunk_pack(buffer, chunk);
	r = spri_slots_send(link, op->lane, op->seq,
			    SPRI_CHUNK_HEADER + (n_near ? 0 : chunk->payload_bytes), near, n_near);
	if (r == 0 && n_near > 0) {
		op->near_used = true;
		op->near_rank = to;
		op->near_sent = link->lanes[op->lane].sent;
		op->stats.direct_bytes += chunk->payload_bytes;
	}
	if (r == 0 && traced) {
		const struct spri_timeline_chunk posted =
			spri_timeline_chunk(to, link->lanes[op->lane].sent - 1, chunk);

		add_event(op, SPRI_TIMELINE_POST, start_ns, &posted);
	}
	if (r == 0 && codec->valued)
		op->stats.value_bytes += (uint64_t)spri_dtype_bytes(op->dtype) * chunk->count;
	if (r < 0) {
		why = link->conn->port->ops->describe(link->conn);
		spri_text_set(&op->text, "to rank %u: %s", to, *why ? why : spr_strerror(r));
		r = spri_comm_lost_status(r);
	}
	return r;
}

bool spri_transfer_sent(const struct spri_op *op)
{
	return !op->near_used ||
	       spri_slots_sent(spri_comm_link(op->comm, op->near_rank), op->lane, op->near_sent);
}

/* How many entries of a block the next chunk takes. */
static uint32_t chunk_entries(const struct spri_op *op, const struct spri_codec *codec,
			      const struct spri_block *block, uint64_t position)
{
	uint64_t left = block->count - position;

	if (left == 0)
		return 0;
	if (codec->indexed)
		return codec->fit(block->index + position, left,
				  op->comm->chunk_bytes - SPRI_CHUNK_HEADER, op->dtype);
	return (uint32_t)spri_min_u64(left, spri_transfer_room(op, codec->id));
}

int spri_transfer_send(struct spri_op *op, uint32_t to, uint32_t round, uint8_t codec_id,
		       const struct spri_block *blocks, uint32_t n_blocks,
		       struct spri_sending *sending)
{
	while (!sending->done) {
		const struct spri_block *block =
			sending->block < n_blocks ? &blocks[sending->block] : NULL;
		const struct spri_codec *codec =
			spri_codec_find(block && block->codec ? block->codec : codec_id);
		struct spri_chunk chunk = {.round = round};
		bool failed = spri_op_failed(op), last_of_block;
		int r;

		if (block && !failed) {
			chunk.block = block->id;
			chunk.count = chunk_entries(op, codec, block, sending->position);
			if (chunk.count)
				chunk.base = codec->indexed ? block->index[sending->position]
							    : block->base + sending->position;
		}
		last_of_block = failed || !block || sending->position + chunk.count == block->count;
		chunk.flags = last_of_block ? SPRI_CHUNK_LAST_OF_BLOCK : 0;
		if (last_of_block && (failed || sending->block + 1 >= n_blocks))
			chunk.flags |= SPRI_CHUNK_LAST_OF_ROUND;
		r = send_chunk(op, to, codec, &chunk, block, sending->position);
		if (r)
			return r;
		sending->position = last_of_block ? 0 : sending->position + chunk.count;
		sending->block += last_of_block;
		sending->done = chunk.flags & SPRI_CHUNK_LAST_OF_ROUND;
	}
	return 0;
}

int spri_transfer_send_part(struct spri_op *op, uint32_t to, uint32_t round, uint8_t codec_id,
			    const struct spri_block *block, uint64_t position, uint32_t n,
			    bool last)
{
	struct spri_chunk chunk = {
		.round = round,
		.block = block->id,
		.flags = last ? SPRI_CHUNK_LAST_OF_BLOCK | SPRI_CHUNK_LAST_OF_ROUND : 0,
		.count = spri_op_failed(op) ? 0 : n,
		.base = block->base + position,
	};

	return send_chunk(op, to, spri_codec_find(codec_id), &chunk, block, position);
}

/* A chunk of this operation: is it the one that the schedule expects? */
static int check_place(struct spri_op *op, uint32_t from, uint32_t round,
		       const struct spri_chunk *chunk)
{
	if (chunk->seq != op->seq) {
		spri_text_set(&op->text, "rank %u is at operation %u, expected %u", from,
			      chunk->seq, op->seq);
		return SPR_EPROTOCOL;
	}
	if (chunk->algo != op->algo->id) {
		spri_text_set(&op->text, "rank %u called another algorithm (id %u, here %u)", from,
			      chunk->algo, op->algo->id);
		return SPR_EMISMATCH;
	}
	if (chunk->round != round) {
		spri_text_set(&op->text, "rank %u is in round %u, expected %u", from, chunk->round,
			      round);
		return SPR_EPROTOCOL;
	}
	return 0;
}

/*
 * The outcome that all ranks share has no room for who differs in what. This line has, together
 * with the one that the partner writes about this rank.
 */
static void report_mismatch(struct spri_op *op, uint32_t from)
{
	if (!spri_op_failed(op))
		spri_logf(SPR_LOG_ERROR,
			  "rank %u: %s: rank %u called with other arguments; here: count %llu, "
			  "k %llu, length %llu, step %llu, policy %d",
			  op->comm->rank, op->algo->name, from, (unsigned long long)op->count,
			  (unsigned long long)op->k, (unsigned long long)op->length,
			  (unsigned long long)op->step, (int)op->policy);
	/* found by several ranks, of several others */
	spri_op_report(op, SPR_EMISMATCH, SPRI_NO_RANK, SPRI_NO_INDEX);
}

int spri_transfer_receive(struct spri_op *op, uint32_t from, uint32_t round,
			  struct spri_chunk *chunk)
{
	struct spri_link *link = spri_comm_link(op->comm, from);
	const uint8_t *buffer;
	int r;

	assert(link);
	for (;;) {
		buffer = spri_slots_peek(link, op->lane);
		if (!buffer) {
			op->waiting_for = from;
			if (!link->closed)
				return SPRI_AGAIN;
			spri_text_set(&op->text, "rank %u left the communicator", from);
			return SPR_ELOST;
		}
		r = spri_chunk_unpack(buffer, op->comm->chunk_bytes, chunk, &op->text);
		if (r < 0) {
			spri_text_prefix(&op->text, "chunk from rank %u", from);
			return spri_trace(r);
		}
		if ((int32_t)(chunk->seq - op->seq) >= 0)
			break;
		spri_slots_release(link, op->lane); /* of an operation that ended early */
	}
	r = check_place(op, from, round, chunk);
	if (r < 0)
		return spri_trace(r);
	if (chunk->signature != op->signature)
		report_mismatch(op, from);
	if (chunk->flags & SPRI_CHUNK_LAST_OF_ROUND)
		spri_outcome_combine(&op->outcome, &chunk->outcome);
	if (!spri_op_failed(op) && spri_codec_find(chunk->codec)->valued &&
	    chunk->dtype != op->dtype) {
		spri_text_set(&op->text, "rank %u sent values of type %u, expected %u", from,
			      chunk->dtype, (unsigned)op->dtype);
		return spri_trace(SPR_EPROTOCOL);
	}
	if (op->comm->context->timeline)
		op->taken = spri_timeline_chunk(from, link->lanes[op->lane].consumed, chunk);
	return 0;
}

void spri_transfer_release(struct spri_op *op, uint32_t from)
{
	spri_slots_release(spri_comm_link(op->comm, from), op->lane);
}
