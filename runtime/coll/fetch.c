/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Arguments in a GPU's memory.
 *
 *   dense    the vector comes to a pinned buffer, segment by segment in the order in which the ring
 *            needs them, while those that are there are sent and summed (op->there); a segment's
 *            flag is cleared by the stream behind its copy. Done: the buffer goes to `out`, and the
 *            caller's stream waits for it
 *   sparse   both arrays of the list come
 *   masked   the mask comes; values are gathered on the device once the union of the masks is
 *            known (op->gather)
 *
 * Failures: SPR_EDEVICE before the start fails the operation on all ranks. After its end only this
 * rank knows: its request ends with it.
 */
#include <coll/fetch.h>
#include <coll/schedule.h>
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <mapped.h>
#include <stdatomic.h>
#include <string.h>

#define SEGMENT ((uint64_t)1 << 16) /* elements that are copied together */

struct spri_fetch {
	struct spri_gpu *gpu; /* the context's */
	struct spri_gpu_stream *stream;
	void *theirs;
	struct spri_mapped first;  /* owned: the vector, indices, the mask */
	struct spri_mapped second; /* owned: flags of segments, values */
	/* dense: segments, in an order that begins before first_segment; n_here are there */
	uint64_t n_segments, first_segment, n_here;
	float *out; /* dense: (device) the caller's */
};

/* Room, and a copy under way. */
static int bring(struct spri_fetch *f, struct spri_mapped *piece, const void *from, uint64_t bytes)
{
	int r = spri_mapped_fit(f->gpu, piece, bytes);

	if (r == 0 && bytes > 0)
		r = spri_gpu_copy(f->stream, piece->host, from, bytes);
	return spri_trace(r);
}

/* The words of a device that failed. */
static int explain(const struct spri_op *op, int r)
{
	if (r == SPR_EDEVICE)
		spri_logf(SPR_LOG_ERROR, "%s: GPU %u: %s", op->algo->name,
			  spri_gpu_number(op->fetch->gpu),
			  spri_gpu_stream_error(op->fetch->stream));
	return spri_trace(r);
}

/* ---- the three kinds ---- */

static void put_back(struct spri_op *op)
{
	struct spri_fetch *f = op->fetch;
	int r;

	if (op->status < 0) { /* before the end of the copies, perhaps: `in` is given back now */
		(void)!spri_gpu_sync(f->stream);
		return;
	}
	r = spri_gpu_copy(f->stream, f->out, f->first.host, op->count * sizeof *op->out);
	if (r == 0)
		r = spri_gpu_before(f->stream, f->theirs);
	if (r < 0) {
		op->status = explain(op, r);
		spri_text_set(&op->text, "putting the sum back: %s", spr_strerror(r));
	}
}

/*
 * Segments come in the order of their numbers, downwards from first_segment and around: the one in
 * place p of that order, and, since it is its own inverse, the place of one.
 */
static uint64_t in_order(const struct spri_fetch *f, uint64_t p)
{
	return (f->first_segment + 2 * f->n_segments - 1 - p) % f->n_segments;
}

/* Are these elements there? What a device that failed will not bring is reported instead. */
static bool there(struct spri_op *op, uint64_t base, uint64_t n)
{
	struct spri_fetch *f = op->fetch;
	const _Atomic uint32_t *flag = (const void *)f->second.host;
	int r;

	if (n == 0 || !spri_fetch_pending(op))
		return true;
	while (spri_fetch_pending(op) &&
	       atomic_load_explicit(&flag[in_order(f, f->n_here)], memory_order_acquire) == 0)
		f->n_here++;
	for (uint64_t i = base / SEGMENT; i <= (base + n - 1) / SEGMENT; i++) {
		if (in_order(f, i) < f->n_here)
			continue;
		r = spri_gpu_idle(f->stream);
		if (r >= 0)
			return false;
		f->n_here = f->n_segments;
		spri_op_report(op, explain(op, r), op->comm->rank, SPRI_NO_INDEX);
		return true;
	}
	return true;
}

/* Queues the copy of segment i, and behind it the end of its flag. */
static int bring_segment(struct spri_op *op, const float *from, uint64_t i)
{
	struct spri_fetch *f = op->fetch;
	uint64_t at = i * SEGMENT, n = spri_min_u64(op->count - at, SEGMENT);
	int r = spri_gpu_copy(f->stream, (void *)(f->first.host + at * sizeof *from), from + at,
			      n * sizeof *from);

	return r == 0 ? spri_gpu_zero(f->stream, (void *)(f->second.there + i * sizeof(uint32_t)),
				      sizeof(uint32_t))
		      : spri_trace(r);
}

static int fetch_dense(struct spri_op *op)
{
	struct spri_fetch *f = op->fetch;
	uint64_t n = (op->count + SEGMENT - 1) / SEGMENT, end;
	const float *from = op->in;
	int r = spri_mapped_fit(f->gpu, &f->first, op->count * sizeof *op->in);

	if (r == 0)
		r = spri_mapped_fit(f->gpu, &f->second, n * sizeof(uint32_t));
	if (r < 0)
		return spri_trace(r);
	memset(f->second.host, 0xff, n * sizeof(uint32_t));
	f->out = op->out;
	op->in = op->out = (void *)f->first.host;
	op->on_done = put_back;
	op->there = there;
	f->n_segments = n;
	/* the ring sends this rank's block, then adds to the one before, and so on downwards */
	end = spri_ring_offset(op->count, op->comm->n_ranks, op->comm->rank + 1);
	f->first_segment = (end + SEGMENT - 1) / SEGMENT;
	for (uint64_t p = 0; p < n && r == 0; p++)
		r = bring_segment(op, from, in_order(f, p));
	/* simulated time would run ahead of the device's */
	if (r == 0 && op->comm->context->sim)
		r = spri_gpu_sync(f->stream);
	return spri_trace(r);
}

bool spri_fetch_pending(const struct spri_op *op)
{
	return op->fetch && op->fetch->n_here < op->fetch->n_segments;
}

static int fetch_list(struct spri_op *op)
{
	struct spr_sparse *list = &op->in_list;
	struct spri_fetch *f = op->fetch;
	int r = bring(f, &f->first, list->index, list->count * sizeof *list->index);

	if (r == 0)
		r = bring(f, &f->second, list->value, list->count * sizeof *list->value);
	list->index = (void *)f->first.host;
	list->value = (void *)f->second.host;
	return spri_trace(r);
}

static int gather(struct spri_op *op, const uint64_t *index, uint64_t n, float *to)
{
	struct spri_fetch *f = op->fetch;
	int r = spri_mapped_fit(f->gpu, &f->first, n * sizeof *index);

	if (r == 0)
		r = spri_mapped_fit(f->gpu, &f->second, n * sizeof *to);
	if (r == 0 && n > 0) {
		memcpy(f->first.host, index, n * sizeof *index);
		r = spri_gpu_gather(f->stream, (void *)f->second.there, op->in,
				    (void *)f->first.there, n);
	}
	if (r == 0)
		r = spri_gpu_sync(f->stream);
	if (r == 0 && n > 0)
		memcpy(to, f->second.host, n * sizeof *to);
	return explain(op, r);
}

/* The mask is copied out: its piece serves gather, too, by when the mask was sent. */
static int fetch_mask(struct spri_op *op)
{
	struct spri_fetch *f = op->fetch;
	int r = bring(f, &f->first, op->mask, op->n_mask * sizeof *op->mask);

	op->mask = (void *)f->first.host;
	op->gather = gather;
	return spri_trace(r);
}

/* Memory of the GPU of the operation; or nothing of it is used. */
static bool is_there(const struct spri_fetch *f, const void *p, uint64_t n)
{
	struct spri_gpu_pointer at;

	if (!p || n == 0)
		return true;
	spri_gpu_pointer(p, &at);
	if (at.on_gpu && at.device == spri_gpu_number(f->gpu))
		return true;
	spri_logf(SPR_LOG_ERROR,
		  "allreduce: a vector is not memory of GPU %u, as memory and device say",
		  spri_gpu_number(f->gpu));
	return false;
}

/* ---- life ---- */

int spri_fetch(struct spri_op *op, int device, void *theirs)
{
	struct spri_fetch *f = spri_zalloc(sizeof *f);
	int r = f ? 0 : -ENOMEM;

	if (r < 0)
		return spri_trace(r);
	op->fetch = f;
	f->theirs = theirs;
	r = spri_context_gpu(op->comm->context, device, &f->gpu);
	if (r == 0)
		r = spri_gpu_stream_create(f->gpu, &f->stream);
	if (r < 0)
		return spri_trace(r);
	if (!is_there(f, op->in, op->count) || !is_there(f, op->out, op->count) ||
	    !is_there(f, op->mask, op->n_mask) ||
	    !is_there(f, op->in_list.index, op->in_list.count) ||
	    !is_there(f, op->in_list.value, op->in_list.count))
		return spri_trace(SPR_EARGUMENT);
	r = spri_gpu_after(f->stream, theirs);
	if (r == 0)
		r = op->algo->kind == SPRI_ALGO_DENSE	 ? fetch_dense(op)
		    : op->algo->kind == SPRI_ALGO_SPARSE ? fetch_list(op)
							 : fetch_mask(op);
	if (r == 0 && !op->there)
		r = spri_gpu_sync(f->stream);
	return explain(op, r);
}

void spri_fetch_free(struct spri_op *op)
{
	struct spri_fetch *f = op->fetch;

	op->fetch = NULL;
	if (!f)
		return;
	spri_gpu_stream_destroy(f->stream);
	spri_mapped_free(f->gpu, &f->first);
	spri_mapped_free(f->gpu, &f->second);
	spri_free(f);
}
