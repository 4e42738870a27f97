/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Queues what merge.cu does. */
#include <cuda/args.h>
#include <cuda/grid.h>

/* Where everything lies in scratch memory; NULL: only counts. Returns its bytes. */
static size_t lay_out(struct spri_gpu_cut *c, void *scratch)
{
	uint64_t n = c->s.na + c->s.nb, tiles = SPRI_GPU_CUT_TILES(n);
	size_t used = 0;

	c->state = spri_gpu_take(scratch, &used, sizeof *c->state);
	c->index = spri_gpu_take(scratch, &used, n * sizeof *c->index);
	c->value = spri_gpu_take(scratch, &used, n * sizeof *c->value);
	c->above = spri_gpu_take(scratch, &used, tiles * sizeof *c->above);
	c->equal = spri_gpu_take(scratch, &used, tiles * sizeof *c->equal);
	c->entries = spri_gpu_take(scratch, &used, tiles * sizeof *c->entries);
	return used;
}

static int cut(struct spri_gpu_stream *stream, struct spri_gpu_cut *c)
{
	uint64_t n = c->s.na + c->s.nb;
	uint32_t blocks = spri_gpu_blocks(stream, SPRI_GPU_CUT_TILES(n) * SPRI_GPU_WARP);
	unsigned digit;
	void *params[] = {c, &digit};
	int r;

	for (digit = 1; digit < SPRI_GPU_DIGITS && c->s.k < n; digit++) {
		r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_cut_digit, spri_gpu_blocks(stream, n),
				    SPRI_GPU_THREADS, 0, params);
		if (r < 0)
			return spri_trace(r);
	}
	r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_cut_count, blocks, SPRI_GPU_THREADS, 0, params);
	if (r < 0)
		return spri_trace(r);
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_cut_write, blocks, SPRI_GPU_THREADS, 0,
			       params);
}

int spri_gpu_merge(struct spri_gpu_stream *stream, const struct spri_gpu_merge *s)
{
	struct spri_gpu_cut c = {.s = *s};
	uint64_t n = s->na + s->nb;
	void *params[] = {&c}, *scratch;
	int r;

	if (n == 0)
		return spri_trace(spri_gpu_zero(stream, s->counts, 2 * sizeof *s->counts));
	r = spri_gpu_scratch(stream, lay_out(&c, NULL), &scratch);
	if (r < 0)
		return spri_trace(r);
	lay_out(&c, scratch);
	r = spri_gpu_zero(stream, c.state, sizeof *c.state);
	if (r < 0)
		return spri_trace(r);
	r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_unite,
			    spri_gpu_blocks(stream, (n + SPRI_GPU_MERGE_TILE - 1) /
							    SPRI_GPU_MERGE_TILE * SPRI_GPU_THREADS),
			    SPRI_GPU_THREADS, 0, params);
	if (r < 0)
		return spri_trace(r);
	return cut(stream, &c);
}
