/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Queues what importance.cu does. */
#include <cuda/args.h>
#include <cuda/grid.h>

/* Where everything lies in scratch memory; NULL: only counts. Returns its bytes. */
static size_t lay_out(struct spri_gpu_weigh *w, void *scratch)
{
	uint64_t tiles = SPRI_GPU_TILES(w->s.n);
	size_t used = 0;

	w->state = spri_gpu_take(scratch, &used, sizeof *w->state);
	w->sum = spri_gpu_take(scratch, &used, 3 * tiles * sizeof *w->sum);
	w->chosen = spri_gpu_take(scratch, &used, tiles * sizeof *w->chosen);
	w->map = spri_gpu_take(scratch, &used, tiles * (SPRI_GPU_TILE / 8));
	return used;
}

/* The chosen, from bits to indices. */
static int list_chosen(struct spri_gpu_stream *stream, const struct spri_gpu_weigh *w)
{
	struct spri_gpu_bits bits = {.map = w->map,
				     .n = w->s.n,
				     .before = w->chosen,
				     .index = w->s.index,
				     .capacity = w->s.capacity};
	void *params[] = {&bits};

	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_mask_write,
			       spri_gpu_blocks(stream, SPRI_GPU_TILES(w->s.n) * SPRI_GPU_WARP),
			       SPRI_GPU_THREADS, 0, params);
}

static int weigh(struct spri_gpu_stream *stream, struct spri_gpu_weigh *w)
{
	uint64_t threads = SPRI_GPU_TILES(w->s.n) * SPRI_GPU_THREADS;
	void *params[] = {w};
	int r = spri_gpu_zero(stream, w->state, sizeof *w->state);

	if (r < 0)
		return spri_trace(r);
	r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_weigh, spri_gpu_blocks(stream, threads),
			    SPRI_GPU_THREADS, 0, params);
	if (r < 0)
		return spri_trace(r);
	r = spri_gpu_launch(stream, SPRI_GPU_KERNEL_weigh_totals, w->s.choose ? 4 : 3,
			    SPRI_GPU_SCAN_THREADS, 0, params);
	if (r < 0)
		return spri_trace(r);
	if (w->s.choose)
		r = list_chosen(stream, w);
	if (r < 0)
		return spri_trace(r);
	return spri_gpu_launch(stream, SPRI_GPU_KERNEL_weigh_finish, 1, 1, 0, params);
}

int spri_gpu_importance(struct spri_gpu_stream *stream, const struct spri_gpu_importance *s)
{
	struct spri_gpu_weigh w = {.s = *s};
	void *scratch;
	int r;

	assert(s->floor > 0);
	r = spri_gpu_scratch(stream, lay_out(&w, NULL), &scratch);
	if (r < 0)
		return spri_trace(r);
	lay_out(&w, scratch);
	return weigh(stream, &w);
}
