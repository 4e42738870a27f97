/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
#include "helper.h"

#include <dlfcn.h>

struct spri_gpu *open_gpu(unsigned i)
{
	struct spri_text text = {""};
	struct spri_gpu *gpu = NULL;
	int r;

	if (spri_gpu_probe(&text) < 0)
		cr_skip("%s", text.s);
	r = spri_gpu_open(i, &gpu, &text);
	cr_assert_eq(r, 0, "GPU %u: %d: %s", i, r, text.s);
	return gpu;
}

struct spri_gpu_stream *make_stream(struct spri_gpu *gpu)
{
	struct spri_gpu_stream *stream = NULL;

	cr_assert_eq(spri_gpu_stream_create(gpu, &stream), 0);
	return stream;
}

void *driver_call(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *call;

	cr_assert_not_null(library, "the driver is not loaded");
	call = dlsym(library, name);
	cr_assert_not_null(call, "%s", name);
	dlclose(library);
	return call;
}

CUcontext current_context(void)
{
	__typeof__(cuCtxGetCurrent) *get;
	CUcontext context = NULL;

	*(void **)&get = driver_call("cuCtxGetCurrent");
	cr_assert_eq(get(&context), CUDA_SUCCESS);
	return context;
}

void fetch(struct spri_gpu_stream *stream, void *to, const void *from, size_t bytes)
{
	cr_assert_eq(spri_gpu_copy(stream, to, from, bytes), 0);
	cr_assert_eq(spri_gpu_sync(stream), 0, "%s", spri_gpu_stream_error(stream));
}
