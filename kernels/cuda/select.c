/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Queues a selection: see select.cu for what the kernels do. Nothing here waits; whether the
 * candidates do, or everything has to be looked through again, the kernels find out by themselves.
 */
#include <string.h>

#include <cuda/launch.h>
#include <cuda/select.h>
#include <internal/bits.h>
#include <kernel.h>

#define BLOCKS_PER_PROCESSOR 8 /* of 256 threads: all that fit */
#define FEWEST_SEGMENTS 8      /* of a part: one per warp */
#define DIGIT_BLOCKS 512       /* at least, when n is large: a block counts in 32 bits */

/* Takes bytes from the scratch memory, or only counts them while that is NULL. */
static void *take(unsigned char *scratch, uint64_t *used, uint64_t bytes)
{
	uint64_t at = *used;

	*used = spri_align_up(at + bytes, 16);
	return scratch ? scratch + at : NULL;
}

/* Where everything lies. Returns its size; *n_zeroed of it must be zero at first. */
static uint64_t lay_out(struct spri_select_args *s, unsigned char *scratch, uint64_t n_parts,
			uint64_t *n_zeroed)
{
	uint64_t n_chunks = s->chunk ? s->k / s->chunk + 1 : 0;
	uint64_t used = 0;

	s->state = take(scratch, &used, sizeof *s->state);
	s->written = take(scratch, &used, n_chunks * sizeof *s->written);
	*n_zeroed = used;
	s->totals = take(scratch, &used, n_parts * sizeof *s->totals);
	s->first = take(scratch, &used, s->n_segments * sizeof *s->first);
	s->n_candidates = take(scratch, &used, s->n_segments * sizeof *s->n_candidates);
	s->n_selected = take(scratch, &used, s->n_segments * sizeof *s->n_selected);
	s->candidate = take(scratch, &used, s->capacity * sizeof *s->candidate);
	s->offset = take(scratch, &used, s->capacity * sizeof *s->offset);
	return used;
}

static int launch(struct spri_gpu_stream *stream, enum spri_gpu_kernel kernel, uint64_t blocks,
		  void **params)
{
	return spri_gpu_launch(stream, kernel, (uint32_t)spri_max_u64(blocks, 1),
			       SPRI_SELECT_THREADS, 0, params);
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

static int queue(struct spri_gpu_stream *stream, struct spri_select_args *s, uint64_t n_parts)
{
	uint64_t most = (uint64_t)spri_gpu_processors(stream) * BLOCKS_PER_PROCESSOR;
	uint64_t warps = SPRI_SELECT_THREADS / 32;
	uint64_t blocks = spri_min_u64(most, divide_up(s->n_segments, warps));
	int r = launch(stream, SPRI_GPU_KERNEL_select_scan, blocks, (void *[]){s});

	blocks = spri_min_u64(spri_max_u64(most, DIGIT_BLOCKS), divide_up(s->n_segments, 2));
	for (uint32_t digit = 0; r == 0 && s->k > 0 && s->k < s->n && digit < SPRI_SELECT_DIGITS;
	     digit++)
		r = launch(stream, SPRI_GPU_KERNEL_select_digit, blocks, (void *[]){s, &digit});
	if (r == 0 && s->k > 0)
		r = launch(stream, SPRI_GPU_KERNEL_select_count, n_parts, (void *[]){s});
	if (r == 0)
		r = launch(stream, SPRI_GPU_KERNEL_select_write, n_parts, (void *[]){s});
	return r;
}

int spri_gpu_select(struct spri_gpu_stream *stream, const struct spri_gpu_select *select)
{
	struct spri_select_args s = {
		.gradient = select->gradient,
		.residual = select->residual,
		.shadow = select->shadow,
		.scale = select->scale,
		.drop = select->policy == SPR_NONFINITE_DROP,
		.threshold = select->threshold,
		.sequence = select->sequence,
		.n = select->n,
		.k = select->k,
		.index = select->index,
		.value = select->value,
		.near_index = select->near_index,
		.near_value = select->near_value,
		.chunk = select->chunk,
		.flag = select->flag,
		.result = select->result,
		.n_segments = divide_up(select->n, SPRI_SELECT_SEGMENT),
	};
	uint64_t parts = (uint64_t)spri_gpu_processors(stream) * BLOCKS_PER_PROCESSOR;
	uint64_t bytes, zeroed;
	void *scratch;
	int r;

	assert(select->n < UINT64_C(1) << 40);
	s.part_segments = spri_max_u64(divide_up(s.n_segments, parts), FEWEST_SEGMENTS);
	parts = spri_max_u64(divide_up(s.n_segments, s.part_segments), 1);
	/* without a threshold, and where all non-zeros are selected, none is kept */
	if (s.k > 0 && s.k < s.n && s.threshold > 0)
		s.capacity = spri_select_capacity(s.n, s.k);
	bytes = lay_out(&s, NULL, parts, &zeroed);
	r = spri_gpu_scratch(stream, bytes, &scratch);
	if (r < 0)
		return r;
	lay_out(&s, scratch, parts, &zeroed);
	r = spri_gpu_zero(stream, scratch, zeroed);
	return r < 0 ? r : queue(stream, &s, parts);
}
