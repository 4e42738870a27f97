/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Streams: what is queued on one runs in order, beside the host and beside other streams.
 *
 *   create   a stream that does not wait for the default one, and an event to order others by
 *   queue    launch, copy, zero; after and before: the event, recorded on one side, waited for on
 *            the other (a wait takes the event as it is then, so that one event serves them all)
 *   sync     or idle: has all of it been done?
 *
 * Failures: SPR_EDEVICE and the driver's words as the stream's text. A kernel that faults shows
 * in the first call after it and in all later ones: the context is broken then.
 */
#include "driver.h"
#include "launch.h"

#include <errno.h>
#include <internal/alloc.h>
#include <internal/log.h>

#define SHARED_FREE (48u << 10) /* dynamic shared memory that a kernel has without being asked */
#define SCRATCH_LEAST ((size_t)64 << 10)

struct spri_gpu_stream {
	struct spri_gpu *gpu; /* borrowed: outlives the stream */
	CUstream stream;
	CUevent event;	  /* for after and before */
	CUevent timed[2]; /* of time_begin and time_end; NULL before the first time_begin */
	void *scratch;	  /* (device) NULL before it was asked for */
	size_t scratch_bytes;
	struct spri_text text; /* why the last call failed */
};

/* What a call on a stream returns: the contract knows SPR_EDEVICE only. */
static int device_error(int r)
{
	return spri_trace(r < 0 ? SPR_EDEVICE : r);
}

static const struct spri_cuda *enter(struct spri_gpu_stream *stream)
{
	return spri_gpu_enter(stream->gpu, &stream->text);
}

static int result(struct spri_gpu_stream *stream, CUresult r, const char *what)
{
	return spri_cuda_result(r, what, &stream->text);
}

int spri_gpu_stream_create(struct spri_gpu *gpu, struct spri_gpu_stream **out)
{
	struct spri_gpu_stream *stream = spri_zalloc(sizeof *stream);
	const struct spri_cuda *cuda;
	int r = SPR_EDEVICE;

	if (!stream)
		return spri_trace(-ENOMEM);
	stream->gpu = gpu;
	cuda = enter(stream);
	if (!cuda)
		goto free_stream;
	r = result(stream, cuda->stream_create(&stream->stream, CU_STREAM_NON_BLOCKING),
		   "cuStreamCreate");
	if (r == 0)
		r = result(stream, cuda->event_create(&stream->event, CU_EVENT_DISABLE_TIMING),
			   "cuEventCreate");
	if (r < 0 && stream->stream)
		cuda->stream_destroy(stream->stream);
	spri_gpu_leave(cuda);
	if (r < 0)
		goto free_stream;
	*out = stream;
	return 0;
free_stream:
	spri_logf(SPR_LOG_ERROR, "GPU %u: %s", spri_gpu_number(gpu), stream->text.s);
	spri_free(stream);
	return spri_trace(r);
}

void spri_gpu_stream_destroy(struct spri_gpu_stream *stream)
{
	const struct spri_cuda *cuda = stream ? enter(stream) : NULL;

	if (cuda) {
		/* what is wrong with it was told when it was waited for */
		cuda->stream_sync(stream->stream);
		spri_gpu_free(stream->gpu, stream->scratch);
		cuda->event_destroy(stream->event);
		for (unsigned i = 0; i < spri_countof(stream->timed); i++)
			if (stream->timed[i])
				cuda->event_destroy(stream->timed[i]);
		cuda->stream_destroy(stream->stream);
		spri_gpu_leave(cuda);
	}
	spri_free(stream);
}

/* `second` waits for what is queued on `first` now. */
static int order(struct spri_gpu_stream *stream, CUstream first, CUstream second)
{
	const struct spri_cuda *cuda = enter(stream);
	int r;

	if (!cuda)
		return device_error(SPR_EDEVICE);
	r = result(stream, cuda->event_record(stream->event, first), "cuEventRecord");
	if (r == 0)
		r = result(stream, cuda->stream_wait(second, stream->event, 0),
			   "cuStreamWaitEvent");
	spri_gpu_leave(cuda);
	return device_error(r);
}

int spri_gpu_after(struct spri_gpu_stream *stream, void *theirs)
{
	return order(stream, theirs, stream->stream);
}

int spri_gpu_before(struct spri_gpu_stream *stream, void *theirs)
{
	return order(stream, stream->stream, theirs);
}

int spri_gpu_copy(struct spri_gpu_stream *stream, void *to, const void *from, size_t bytes)
{
	const struct spri_cuda *cuda = enter(stream);
	int r = 0;

	if (!cuda)
		return device_error(SPR_EDEVICE);
	if (bytes > 0)
		r = result(stream,
			   cuda->copy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
				      bytes, stream->stream),
			   "cuMemcpyAsync");
	spri_gpu_leave(cuda);
	return device_error(r);
}

int spri_gpu_zero(struct spri_gpu_stream *stream, void *to, size_t bytes)
{
	const struct spri_cuda *cuda = enter(stream);
	int r = 0;

	if (!cuda)
		return device_error(SPR_EDEVICE);
	if (bytes > 0)
		r = result(stream, cuda->fill((CUdeviceptr)(uintptr_t)to, 0, bytes, stream->stream),
			   "cuMemsetD8Async");
	spri_gpu_leave(cuda);
	return device_error(r);
}

int spri_gpu_sync(struct spri_gpu_stream *stream)
{
	const struct spri_cuda *cuda = enter(stream);
	int r;

	if (!cuda)
		return device_error(SPR_EDEVICE);
	r = result(stream, cuda->stream_sync(stream->stream), "cuStreamSynchronize");
	spri_gpu_leave(cuda);
	return device_error(r);
}

int spri_gpu_idle(struct spri_gpu_stream *stream)
{
	const struct spri_cuda *cuda = enter(stream);
	CUresult state;
	int r;

	if (!cuda)
		return device_error(SPR_EDEVICE);
	state = cuda->stream_query(stream->stream);
	r = state == CUDA_ERROR_NOT_READY ? SPRI_AGAIN : result(stream, state, "cuStreamQuery");
	spri_gpu_leave(cuda);
	return device_error(r);
}

/* ---- time ---- */

int spri_gpu_time_begin(struct spri_gpu_stream *stream)
{
	const struct spri_cuda *cuda = enter(stream);
	int r = 0;

	if (!cuda)
		return device_error(SPR_EDEVICE);
	for (unsigned i = 0; r == 0 && i < spri_countof(stream->timed); i++)
		if (!stream->timed[i])
			r = result(stream, cuda->event_create(&stream->timed[i], CU_EVENT_DEFAULT),
				   "cuEventCreate");
	if (r == 0)
		r = result(stream, cuda->event_record(stream->timed[0], stream->stream),
			   "cuEventRecord");
	spri_gpu_leave(cuda);
	return device_error(r);
}

int spri_gpu_time_end(struct spri_gpu_stream *stream, double *ns)
{
	const struct spri_cuda *cuda = enter(stream);
	float ms = 0;
	int r;

	assert(stream->timed[1]);
	if (!cuda)
		return device_error(SPR_EDEVICE);
	if (!cuda->event_elapsed) {
		spri_gpu_leave(cuda);
		return spri_trace(SPR_EUNSUPPORTED);
	}
	r = result(stream, cuda->event_record(stream->timed[1], stream->stream), "cuEventRecord");
	if (r == 0)
		r = result(stream, cuda->stream_sync(stream->stream), "cuStreamSynchronize");
	if (r == 0)
		r = result(stream, cuda->event_elapsed(&ms, stream->timed[0], stream->timed[1]),
			   "cuEventElapsedTime");
	spri_gpu_leave(cuda);
	if (r == 0)
		*ns = (double)ms * 1e6;
	return device_error(r);
}

const char *spri_gpu_stream_error(const struct spri_gpu_stream *stream)
{
	return stream->text.s;
}

/* ---- launch.h ---- */

int spri_gpu_launch(struct spri_gpu_stream *stream, enum spri_gpu_kernel kernel, uint32_t blocks,
		    uint32_t threads, uint32_t shared, void **params)
{
	CUfunction function = spri_gpu_function(stream->gpu, kernel);
	const struct spri_cuda *cuda = enter(stream);
	int r = 0;

	if (!cuda)
		return device_error(SPR_EDEVICE);
	if (shared > SHARED_FREE)
		r = result(stream,
			   cuda->function_set(function,
					      CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					      (int)shared),
			   "cuFuncSetAttribute");
	if (r == 0)
		r = result(stream,
			   cuda->launch(function, blocks, 1, 1, threads, 1, 1, shared,
					stream->stream, params, NULL),
			   "cuLaunchKernel");
	spri_gpu_leave(cuda);
	return device_error(r);
}

int spri_gpu_scratch(struct spri_gpu_stream *stream, size_t bytes, void **out)
{
	size_t grown = stream->scratch_bytes ? stream->scratch_bytes : SCRATCH_LEAST;
	void *larger;
	int r;

	while (grown < bytes)
		grown *= 2;
	if (!stream->scratch || grown > stream->scratch_bytes) {
		/*
		 * work that uses the old one is waited for; if it failed, so does what comes next
		 */
		r = stream->scratch ? spri_gpu_sync(stream) : 0;
		if (r < 0)
			return spri_trace(r);
		r = spri_gpu_alloc(stream->gpu, grown, &larger);
		if (r < 0)
			return spri_trace(-ENOMEM);
		spri_gpu_free(stream->gpu, stream->scratch);
		stream->scratch = larger;
		stream->scratch_bytes = grown;
	}
	*out = stream->scratch;
	return 0;
}

uint32_t spri_gpu_processors(const struct spri_gpu_stream *stream)
{
	int n = spri_gpu_attribute(stream->gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

	return n > 0 ? (uint32_t)n : 1;
}
