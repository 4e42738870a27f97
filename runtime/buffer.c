/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Memory of a kind, for tools, tests and bindings. A context opens a GPU when it is first asked
 * for, and keeps it until it is closed: memory would not outlive the GPU.
 *
 * Failures: a GPU that cannot be opened is told to the log and to the context's text.
 */
#include <affinity.h>
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <sparring/memory.h>
#include <string.h>

/* The number of the GPU that the topology gives this rank; 0 in simulations. */
static int own_gpu(const struct spr_context *context)
{
	const struct spri_seat *seat = &context->seat;
	int number;

	if (context->sim || seat->gpu < 0)
		return 0;
	number = spri_affinity_machine()->objects[seat->gpu].number;
	return number > 0 ? number : 0;
}

int spri_context_gpu(struct spr_context *context, int device, struct spri_gpu **out)
{
	struct spri_text *text = &context->text;
	int number = device > 0 ? device - 1 : own_gpu(context);
	int r;

	if (device < 0 || number >= SPRI_GPUS_MOST) {
		spri_text_set(text, "device is %d, must be 0 or SPR_GPU(number), at most %d",
			      device, SPRI_GPUS_MOST);
		return SPR_EARGUMENT;
	}
	if (!context->gpus[number]) {
		r = spri_gpu_open((unsigned)number, &context->gpus[number], text);
		if (r < 0) {
			context->gpus[number] = NULL;
			spri_logf(SPR_LOG_ERROR, "context: %s", text->s);
			return spri_trace(r);
		}
	}
	*out = context->gpus[number];
	return 0;
}

void spri_context_close_gpus(struct spr_context *context)
{
	for (unsigned i = 0; i < SPRI_GPUS_MOST; i++)
		spri_gpu_close(context->gpus[i]);
}

static int alloc_on(struct spr_context *context, int device, size_t bytes, void **out)
{
	struct spri_gpu *gpu;
	int r = spri_context_gpu(context, device, &gpu);

	if (r < 0)
		return r;
	r = spri_gpu_alloc(gpu, bytes, out);
	if (r < 0)
		spri_text_set(&context->text, "GPU %u: %zu bytes: %s", spri_gpu_number(gpu), bytes,
			      spr_strerror(r));
	return r;
}

int spr_memory_alloc(struct spr_context *context, enum spr_memory_kind kind, int device,
		     size_t bytes, void **out)
{
	const struct spri_log *before;
	int r = 0;

	if (!context || !out || bytes == 0 || (unsigned)kind > SPR_MEMORY_CUDA)
		return SPR_EARGUMENT;
	before = spri_context_enter(context);
	if (kind == SPR_MEMORY_CUDA) {
		r = alloc_on(context, device, bytes, out);
	} else {
		*out = spri_alloc_pages(bytes);
		r = *out ? 0 : -ENOMEM;
	}
	spri_context_leave(context, before);
	return spri_trace(r);
}

void spr_memory_free(struct spr_context *context, void *p, size_t bytes)
{
	const struct spri_log *before;
	struct spri_gpu_pointer at;
	struct spri_gpu *gpu;

	if (!context || !p)
		return;
	before = spri_context_enter(context);
	spri_gpu_pointer(p, &at);
	if (!at.on_gpu)
		spri_free_pages(p, bytes);
	else if (spri_context_gpu(context, (int)at.device + 1, &gpu) == 0)
		spri_gpu_free(gpu, p);
	spri_context_leave(context, before);
}

static int copy_by(struct spr_context *context, unsigned device, void *to, const void *from,
		   size_t bytes)
{
	struct spri_gpu_stream *stream = NULL;
	struct spri_gpu *gpu;
	int r = spri_context_gpu(context, (int)device + 1, &gpu);

	if (r == 0)
		r = spri_gpu_stream_create(gpu, &stream);
	if (r == 0)
		r = spri_gpu_after(stream, NULL);
	if (r == 0)
		r = spri_gpu_copy(stream, to, from, bytes);
	if (r == 0)
		r = spri_gpu_sync(stream);
	if (r == SPR_EDEVICE)
		spri_text_set(&context->text, "copying: %s",
			      stream ? spri_gpu_stream_error(stream) : "no stream");
	spri_gpu_stream_destroy(stream);
	return spri_trace(r);
}

int spr_memory_copy(struct spr_context *context, void *to, const void *from, size_t bytes)
{
	struct spri_gpu_pointer at_to, at_from;
	const struct spri_log *before;
	int r = 0;

	if (!context || (bytes && (!to || !from)))
		return SPR_EARGUMENT;
	if (bytes == 0)
		return 0;
	before = spri_context_enter(context);
	spri_gpu_pointer(to, &at_to);
	spri_gpu_pointer(from, &at_from);
	if (at_to.on_gpu || at_from.on_gpu)
		r = copy_by(context, at_to.on_gpu ? at_to.device : at_from.device, to, from, bytes);
	else
		memmove(to, from, bytes);
	spri_context_leave(context, before);
	return spri_trace(r);
}
