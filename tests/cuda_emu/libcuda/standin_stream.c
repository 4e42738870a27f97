/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Streams, events and launches of the stand-in driver. A stream is a queue and a thread that does
 * what is in it, in order, after a random small delay, so that who does not wait sees it. An event
 * points to the newest mark; recording makes a new one, which the stream reaches in its turn, and
 * a wait holds on to the mark that was the newest when it was queued. The thread of a stream, and
 * all who wait, sleep on one condition.
 */
#include "emu.h"
#include "standin.h"

#include <internal/bits.h>
#include <internal/clock.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PARAMETERS 32
#define LONGEST_DELAY_US 200

struct mark {
	int users; /* event, record and waits that point to it */
	bool reached;
	uint64_t at_ns; /* when */
};

struct CUevent_st {
	CUcontext context;
	bool untimed;
	struct mark *newest; /* NULL: never recorded */
};

enum kind { COPY, FILL, LAUNCH, RECORD, WAIT };

struct work {
	struct work *next;
	enum kind kind;
	CUresult fails; /* what it breaks the context with, instead of being done */
	CUdeviceptr to, from;
	size_t bytes;
	unsigned char value;
	struct mark *mark;
	int kernel;
	unsigned grid[3], block[3];
	size_t shared;
	void *params[MOST_PARAMETERS]; /* copies, owned */
};

struct CUstream_st {
	CUcontext context;
	pthread_t thread;
	struct work *first, **last;
	bool busy, ending;
	uint64_t random;
};

struct CUmod_st {
	CUcontext context;
};

struct CUfunc_st {
	int kernel;
};

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t n_streams;

/* Lock held. */
static void drop(struct mark *mark)
{
	if (mark && --mark->users == 0)
		free(mark);
}

static void end(struct work *work)
{
	for (int i = 0; i < MOST_PARAMETERS; i++)
		free(work->params[i]);
	free(work);
}

static void perform(const struct work *work)
{
	switch (work->kind) {
	case COPY:
		memmove(standin_reach(work->to), standin_reach(work->from), work->bytes);
		return;
	case FILL:
		memset(standin_reach(work->to), work->value, work->bytes);
		return;
	case LAUNCH:
		standin_access(true);
		spri_emu_run(work->kernel, work->grid, work->block, work->shared,
			     (void **)(uintptr_t)work->params);
		standin_access(false);
		return;
	default:
		return;
	}
}

/* Lock held, but not while it works. */
static void turn(CUstream stream, struct work *work)
{
	if (work->kind == WAIT)
		while (!work->mark->reached)
			pthread_cond_wait(&changed, &standin_lock);
	if (work->fails != CUDA_SUCCESS && stream->context->sticky == CUDA_SUCCESS)
		stream->context->sticky = work->fails;
	if (stream->context->sticky == CUDA_SUCCESS) {
		uint64_t draw = spri_mix64(stream->random++);

		pthread_mutex_unlock(&standin_lock);
		if (draw % 4 == 0)
			usleep((useconds_t)((draw >> 8) % LONGEST_DELAY_US));
		perform(work);
		pthread_mutex_lock(&standin_lock);
	}
	if (work->kind == RECORD) {
		work->mark->reached = true;
		work->mark->at_ns = spri_now_ns();
	}
	drop(work->mark);
}

static void *run(void *arg)
{
	CUstream stream = arg;
	struct work *work;

	pthread_mutex_lock(&standin_lock);
	while (!stream->ending || stream->first) {
		work = stream->first;
		if (!work) {
			pthread_cond_wait(&changed, &standin_lock);
			continue;
		}
		stream->first = work->next;
		if (!work->next)
			stream->last = &stream->first;
		stream->busy = true;
		turn(stream, work);
		stream->busy = false;
		end(work);
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&standin_lock);
	return NULL;
}

/* ---- streams ---- */

static CUstream make_stream(CUcontext context)
{
	CUstream stream = calloc(1, sizeof *stream);
	uint64_t seed = standin_number("EMU_CUDA_SEED", 1);

	if (!stream)
		return NULL;
	stream->context = context;
	stream->last = &stream->first;
	pthread_mutex_lock(&standin_lock);
	stream->random = spri_mix64(seed + (n_streams++ << 32));
	pthread_mutex_unlock(&standin_lock);
	if (pthread_create(&stream->thread, NULL, run, stream) != 0) {
		free(stream);
		return NULL;
	}
	return stream;
}

void standin_close_stream(CUstream stream)
{
	pthread_mutex_lock(&standin_lock);
	stream->ending = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&standin_lock);
	pthread_join(stream->thread, NULL);
	free(stream);
}

/* The stream that a call names, in the current context. */
static CUresult named(const char *call, CUstream *stream)
{
	CUcontext context;
	CUresult r = standin_begin(call, &context);

	if (r != CUDA_SUCCESS)
		return r;
	if (!*stream && !context->none)
		context->none = make_stream(context);
	if (!*stream)
		*stream = context->none;
	if (!*stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return (*stream)->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult queue(CUstream stream, const struct work *like)
{
	struct work *work = calloc(1, sizeof *work);

	if (!work)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*work = *like;
	if (!standin_fails("run", &work->fails))
		work->fails = CUDA_SUCCESS;
	pthread_mutex_lock(&standin_lock);
	*stream->last = work;
	stream->last = &work->next;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&standin_lock);
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);

	(void)flags;
	if (r != CUDA_SUCCESS)
		return r;
	*stream = make_stream(context);
	return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamDestroy(CUstream stream)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);

	/* also in a broken context: the thread must end */
	if (r == CUDA_ERROR_INVALID_CONTEXT || !stream)
		return CUDA_ERROR_INVALID_HANDLE;
	standin_close_stream(stream);
	return r;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult r = named(__func__, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&standin_lock);
	while (stream->first || stream->busy)
		pthread_cond_wait(&changed, &standin_lock);
	r = stream->context->sticky;
	pthread_mutex_unlock(&standin_lock);
	return r;
}

CUresult cuStreamQuery(CUstream stream)
{
	CUresult r = named(__func__, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&standin_lock);
	r = stream->first || stream->busy ? CUDA_ERROR_NOT_READY : stream->context->sticky;
	pthread_mutex_unlock(&standin_lock);
	return r;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	CUresult r = named(__func__, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	return queue(stream, &(struct work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
	CUresult r = named(__func__, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	return queue(stream,
		     &(struct work){.kind = FILL, .to = to, .value = value, .bytes = bytes});
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);

	if (r != CUDA_SUCCESS)
		return r;
	*event = calloc(1, sizeof **event);
	if (!*event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*event)->context = context;
	(*event)->untimed = flags & CU_EVENT_DISABLE_TIMING;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);

	if (r == CUDA_ERROR_INVALID_CONTEXT || !event)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&standin_lock);
	drop(event->newest);
	pthread_mutex_unlock(&standin_lock);
	free(event);
	return r;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	CUresult r = named(__func__, &stream);
	struct mark *mark;

	if (r != CUDA_SUCCESS)
		return r;
	if (!event || event->context != stream->context)
		return CUDA_ERROR_INVALID_HANDLE;
	mark = calloc(1, sizeof *mark);
	if (!mark)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mark->users = 2;
	pthread_mutex_lock(&standin_lock);
	drop(event->newest);
	event->newest = mark;
	pthread_mutex_unlock(&standin_lock);
	return queue(stream, &(struct work){.kind = RECORD, .mark = mark});
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	CUresult r = named(__func__, &stream);
	struct mark *mark;

	(void)flags;
	if (r != CUDA_SUCCESS)
		return r;
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&standin_lock);
	mark = event->newest;
	if (mark)
		mark->users++;
	pthread_mutex_unlock(&standin_lock);
	return mark ? queue(stream, &(struct work){.kind = WAIT, .mark = mark}) : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent first, CUevent second)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);

	if (r != CUDA_SUCCESS)
		return r;
	if (!first || !second || first->untimed || second->untimed)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&standin_lock);
	if (!first->newest || !second->newest)
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (!first->newest->reached || !second->newest->reached)
		r = CUDA_ERROR_NOT_READY;
	else
		*ms = (float)((double)(second->newest->at_ns - first->newest->at_ns) * 1e-6);
	pthread_mutex_unlock(&standin_lock);
	return r;
}

/* ---- kernels ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);

	if (r != CUDA_SUCCESS)
		return r;
	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	*module = calloc(1, sizeof **module);
	if (!*module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*module)->context = context;
	spri_emu_seed(standin_number("EMU_CUDA_SEED", 1));
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);

	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	free(module);
	return r;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	static struct CUfunc_st functions[256]; /* by the emulator's numbers */
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);
	int kernel;

	if (r != CUDA_SUCCESS)
		return r;
	if (!module || module->context != context)
		return CUDA_ERROR_INVALID_HANDLE;
	kernel = spri_emu_find(name);
	if (kernel < 0 || kernel >= (int)spri_countof(functions))
		return CUDA_ERROR_NOT_FOUND;
	functions[kernel].kernel = kernel;
	*function = &functions[kernel];
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	CUcontext context;

	(void)function;
	(void)value;
	if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	return standin_begin(__func__, &context);
}

/* Copies the parameters: they are the caller's again when cuLaunchKernel returns. */
static bool take_parameters(struct work *work, void **params)
{
	size_t bytes;

	for (unsigned i = 0; (bytes = spri_emu_parameter(work->kernel, i)) > 0; i++) {
		if (i == MOST_PARAMETERS)
			return false;
		work->params[i] = malloc(bytes);
		if (!work->params[i])
			return false;
		memcpy(work->params[i], params[i], bytes);
	}
	return true;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
			unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
			CUstream stream, void **params, void **extra)
{
	CUresult r = named(__func__, &stream);
	struct work work = {.kind = LAUNCH,
			    .grid = {grid_x, grid_y, grid_z},
			    .block = {block_x, block_y, block_z},
			    .shared = shared};

	if (r != CUDA_SUCCESS)
		return r;
	if (!function || extra || grid_x * grid_y * grid_z == 0 ||
	    block_x * block_y * block_z == 0 || block_x * block_y * block_z > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	work.kernel = function->kernel;
	if (!take_parameters(&work, params)) {
		for (int i = 0; i < MOST_PARAMETERS; i++)
			free(work.params[i]);
		return CUDA_ERROR_INVALID_VALUE;
	}
	return queue(stream, &work);
}
