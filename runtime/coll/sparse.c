/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Lists of the sparse algorithms; see sparse.h. Failures: no memory (NULL), a malformed chunk. */
#include <coll/sparse.h>
#include <internal/alloc.h>
#include <string.h>

void *spri_sparse_alloc(size_t head_bytes, const uint64_t *capacities, unsigned n,
			struct spri_list *lists)
{
	size_t bytes = spri_align_up(head_bytes, 8);
	uint8_t *memory, *at;

	for (unsigned i = 0; i < n; i++) {
		size_t list;

		if (capacities[i] > SIZE_MAX / 16 ||
		    __builtin_mul_overflow((size_t)capacities[i], 12, &list) ||
		    __builtin_add_overflow(bytes, spri_align_up(list, 8), &bytes))
			return NULL;
	}
	memory = spri_alloc(bytes);
	if (!memory)
		return NULL;
	memset(memory, 0, head_bytes);
	at = memory + spri_align_up(head_bytes, 8);
	for (unsigned i = 0; i < n; i++) {
		size_t capacity = (size_t)capacities[i];

		lists[i] = (struct spri_list){
			.index = (uint64_t *)(void *)at,
			.value = (float *)(void *)(at + 8 * capacity),
			.capacity = capacity,
		};
		at += spri_align_up(12 * capacity, 8);
	}
	return memory;
}

void spri_sparse_input(struct spri_op *op, struct spri_list *into)
{
	struct spri_finite finite = SPRI_FINITE_NONE;

	assert(into->count == 0 && op->in_list.count <= into->capacity);
	spri_merge(into, op->in_list.index, op->in_list.value, op->in_list.count, NULL, NULL, 0,
		   op->policy, &finite);
	spri_op_report_finite(op, &finite, op->comm->rank);
}

int spri_sparse_decode(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk,
		       uint64_t *index, float *value, uint64_t after)
{
	int r = SPR_EPROTOCOL;

	if (chunk->codec == op->list_codec && chunk->dtype == op->dtype)
		r = spri_codec_find(chunk->codec)->decode(chunk, index, value, after, op->length);
	if (r < 0)
		spri_text_set(&op->text,
			      "rank %u sent a malformed list (%u entries from index %llu)", from,
			      chunk->count, (unsigned long long)chunk->base);
	return spri_trace(r);
}

int spri_sparse_take(struct spri_op *op, uint32_t from, const struct spri_chunk *chunk,
		     struct spri_list *into)
{
	uint64_t after = into->count ? into->index[into->count - 1] : SPRI_NO_INDEX;
	int r;

	if (chunk->count > into->capacity - into->count) {
		spri_text_set(&op->text, "rank %u sent a list of more than %llu entries", from,
			      (unsigned long long)into->capacity);
		return spri_trace(SPR_EPROTOCOL);
	}
	r = spri_sparse_decode(op, from, chunk, into->index + into->count,
			       into->value + into->count, after);
	if (r == 0)
		into->count += chunk->count;
	return r;
}

uint64_t spri_sparse_reach(const uint64_t *index, uint64_t n, uint64_t last)
{
	uint64_t low = 0, step = 1, high;

	while (low + step <= n && index[low + step - 1] <= last) {
		low += step;
		step *= 2;
	}
	high = spri_min_u64(low + step, n + 1) - 1; /* index[high] is above last, if there is one */
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (index[middle] <= last)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
