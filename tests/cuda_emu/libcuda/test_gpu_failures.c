/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* gpu.h when the driver, the heap or the device fails: what comes back, and what is left. */
#include "helper.h"

#include <errno.h>
#include <internal/alloc.h>
#include <internal/log.h>
#include <launch.h>

static char logged[1024]; /* all lines since it was cleared */

static void keep(void *arg, enum spr_log_level level, const char *text)
{
	size_t n = strlen(logged);

	(void)arg;
	(void)level;
	snprintf(logged + n, sizeof logged - n, "%s\n", text);
}

static const struct spri_log hook = {.fn = keep, .level = SPR_LOG_WARN};

/* The next call, once: CALL:1:CODE. */
static void fail(const char *order)
{
	logged[0] = '\0';
	spri_log_enter(&hook);
	setenv("EMU_CUDA_FAIL", order, 1);
}

static void fail_no_more(void)
{
	unsetenv("EMU_CUDA_FAIL");
}

Test(gpu_failures, opening)
{
	static const struct {
		const char *order;
		int r;
		const char *text;
	} rows[] = {
		{"cuDeviceGet:1:101", SPR_EUNSUPPORTED,
		 "cuDeviceGet: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal"},
		{"cuDevicePrimaryCtxRetain:1:2", -ENOMEM,
		 "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory"},
		{"cuDevicePrimaryCtxRetain:1:999", SPR_EUNSUPPORTED,
		 "cuDevicePrimaryCtxRetain: an error without a name: the driver has no "
		 "words for it"},
		{"cuCtxPushCurrent:1:201", SPR_EUNSUPPORTED,
		 "cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT: invalid device context"},
		{"cuModuleLoadData:1:209", SPR_EUNSUPPORTED,
		 "loading the kernels: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is "
		 "available for execution on the device"},
		{"cuModuleGetFunction:0:500", SPR_EUNSUPPORTED,
		 ": CUDA_ERROR_NOT_FOUND: named symbol not found"},
	};
	struct spri_text text;
	struct spri_gpu *gpu;
	long live;

	spri_gpu_close(open_gpu(0));
	live = spri_heap_live();
	for (size_t i = 0; i < spri_countof(rows); i++) {
		gpu = NULL;
		fail(rows[i].order);
		cr_assert_eq(spri_gpu_open(0, &gpu, &text), rows[i].r, "%s", rows[i].order);
		cr_assert(!strncmp(text.s, "GPU 0: ", 7) && strstr(text.s, rows[i].text),
			  "\"%s\" should have \"%s\"", text.s, rows[i].text);
		cr_assert_null(gpu);
		cr_assert_eq(spri_heap_live(), live);
		cr_assert_null(current_context());
		fail_no_more();
		spri_gpu_close(open_gpu(0));
	}
	spri_heap_fail_after(0);
	cr_assert_eq(spri_gpu_open(0, &gpu, &text), -ENOMEM);
	spri_heap_fail_after(-1);
	cr_assert_eq(spri_gpu_open(7, &gpu, &text), SPR_EUNSUPPORTED);
	cr_assert_str_eq(text.s, "there is no GPU 7: this process may use 2");
}

Test(gpu_failures, information)
{
	static const char *const calls[] = {"cuDeviceGetName", "cuDeviceGetPCIBusId",
					    "cuDeviceTotalMem"};
	struct spri_gpu_info info;
	struct spri_text text;
	char order[64];

	spri_gpu_close(open_gpu(0));
	for (size_t i = 0; i < spri_countof(calls); i++) {
		snprintf(order, sizeof order, "%s:1:1", calls[i]);
		fail(order);
		cr_assert_eq(spri_gpu_info(0, &info, &text), SPR_EUNSUPPORTED);
		cr_assert_not_null(strstr(text.s, calls[i]), "got: %s", text.s);
	}
	fail_no_more();
}

Test(gpu_failures, memory)
{
	struct spri_gpu *gpu = open_gpu(0);
	void *p = NULL, *host = NULL, *device = NULL;

	fail("cuMemAlloc:1:2");
	cr_assert_eq(spri_gpu_alloc(gpu, 123, &p), -ENOMEM);
	cr_assert_str_eq(logged, "GPU 0: 123 bytes: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of "
				 "memory\n");
	fail("cuMemAlloc:1:719");
	cr_assert_eq(spri_gpu_alloc(gpu, 123, &p), SPR_EDEVICE);
	fail("cuMemHostAlloc:1:2");
	cr_assert_eq(spri_gpu_alloc_mapped(gpu, 123, &host, &device), -ENOMEM);
	fail("cuMemHostGetDevicePointer:1:801");
	cr_assert_eq(spri_gpu_alloc_mapped(gpu, 123, &host, &device), SPR_EDEVICE);
	cr_assert_not_null(strstr(logged, "operation not supported"));
	fail("cuCtxPushCurrent:1:201");
	cr_assert_eq(spri_gpu_alloc(gpu, 123, &p), SPR_EDEVICE);
	fail_no_more();
	cr_assert(!p && !host && !device, "nothing is written on failure");
	cr_assert_eq(spri_gpu_alloc(gpu, (size_t)1 << 50, &p), -ENOMEM);
	spri_gpu_close(gpu);
}

Test(gpu_failures, streams)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = NULL;
	double ns = 0;
	long live = spri_heap_live();
	void *p;

	fail("cuStreamCreate:1:2");
	cr_assert_eq(spri_gpu_stream_create(gpu, &stream), -ENOMEM);
	fail("cuEventCreate:1:999");
	cr_assert_eq(spri_gpu_stream_create(gpu, &stream), SPR_EDEVICE);
	fail_no_more();
	spri_heap_fail_after(0);
	cr_assert_eq(spri_gpu_stream_create(gpu, &stream), -ENOMEM);
	spri_heap_fail_after(-1);
	cr_assert_eq(spri_heap_live(), live);
	stream = make_stream(gpu);
	cr_assert_str_eq(spri_gpu_stream_error(stream), "");
	cr_assert_eq(spri_gpu_alloc(gpu, 100, &p), 0);
	fail("cuMemcpyAsync:1:1");
	cr_assert_eq(spri_gpu_copy(stream, p, "x", 1), SPR_EDEVICE);
	cr_assert_str_eq(spri_gpu_stream_error(stream),
			 "cuMemcpyAsync: CUDA_ERROR_INVALID_VALUE: invalid argument");
	fail("cuMemsetD8Async:1:1");
	cr_assert_eq(spri_gpu_zero(stream, p, 1), SPR_EDEVICE);
	fail("cuEventRecord:1:400");
	cr_assert_eq(spri_gpu_after(stream, NULL), SPR_EDEVICE);
	fail("cuStreamWaitEvent:1:400");
	cr_assert_eq(spri_gpu_before(stream, NULL), SPR_EDEVICE);
	fail("cuStreamSynchronize:1:719");
	cr_assert_eq(spri_gpu_sync(stream), SPR_EDEVICE);
	fail("cuStreamQuery:1:719");
	cr_assert_eq(spri_gpu_idle(stream), SPR_EDEVICE);
	fail("cuEventCreate:1:2");
	cr_assert_eq(spri_gpu_time_begin(stream), SPR_EDEVICE);
	fail("cuEventRecord:2:400");
	cr_assert_eq(spri_gpu_time_begin(stream), 0);
	cr_assert_eq(spri_gpu_time_end(stream, &ns), SPR_EDEVICE);
	cr_assert_eq(spri_gpu_time_begin(stream), 0);
	fail("cuEventElapsedTime:1:600");
	cr_assert_eq(spri_gpu_time_end(stream, &ns), SPR_EDEVICE);
	cr_assert_eq(ns, 0);
	fail("cuMemAlloc:1:2");
	cr_assert_eq(spri_gpu_scratch(stream, 100, &p), -ENOMEM);
	fail_no_more();
	cr_assert_eq(spri_gpu_scratch(stream, 100, &p), 0, "all goes on");
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

/* A kernel faults: what waits for it fails, and so does all that comes later. */
Test(gpu_failures, work_that_faults)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	void *p;

	cr_assert_eq(spri_gpu_alloc(gpu, 100, &p), 0);
	fail("run:2:700");
	cr_assert_eq(spri_gpu_zero(stream, p, 100), 0);
	cr_assert_eq(spri_gpu_zero(stream, p, 100), 0);
	cr_assert_eq(spri_gpu_sync(stream), SPR_EDEVICE);
	cr_assert_str_eq(spri_gpu_stream_error(stream),
			 "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory "
			 "access was encountered");
	fail_no_more();
	cr_assert_eq(spri_gpu_idle(stream), SPR_EDEVICE);
	cr_assert_eq(spri_gpu_alloc(gpu, 100, &p), SPR_EDEVICE);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

Test(gpu_failures, exporting)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_text why = {""};
	uint64_t offset = 77;
	int fd = 77;
	void *p;

	cr_assert_eq(spri_gpu_alloc(gpu, 100000, &p), 0);
	setenv("EMU_CUDA_ATTRIBUTES", "124=0", 1);
	cr_assert_eq(spri_gpu_export(gpu, p, 100, &fd, &offset, &why), SPR_EUNSUPPORTED);
	cr_assert_str_eq(why.s, "this GPU or its driver has no dma-buf "
				"(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0)");
	unsetenv("EMU_CUDA_ATTRIBUTES");
	fail("cuPointerSetAttribute:1:1");
	cr_assert_eq(spri_gpu_export(gpu, p, 100, &fd, &offset, &why), SPR_EUNSUPPORTED);
	cr_assert_str_eq(why.s, "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUDA_ERROR_INVALID_VALUE: "
				"invalid argument");
	fail("cuMemGetHandleForAddressRange:1:801");
	cr_assert_eq(spri_gpu_export(gpu, p, 100, &fd, &offset, &why), SPR_EUNSUPPORTED);
	cr_assert_str_eq(why.s, "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED: "
				"operation not supported");
	fail_no_more();
	cr_assert(fd == 77 && offset == 77);
	cr_assert_eq(spri_gpu_export(gpu, &why, 100, &fd, &offset, &why), SPR_EUNSUPPORTED,
		     "host memory");
	spri_gpu_free(gpu, p);
	spri_gpu_close(gpu);
}

Test(gpu_failures, flushing)
{
	struct spri_gpu *gpu = open_gpu(0);

	fail("cuFlushGPUDirectRDMAWrites:0:801");
	cr_assert_eq(spri_gpu_flush(gpu), SPR_EDEVICE);
	cr_assert_not_null(strstr(logged, "cuFlushGPUDirectRDMAWrites"));
	setenv("EMU_CUDA_ATTRIBUTES", "117=0", 1);
	cr_assert_eq(spri_gpu_flush(gpu), SPR_EUNSUPPORTED, "it is not called then");
	setenv("EMU_CUDA_ATTRIBUTES", "118=100", 1);
	cr_assert_eq(spri_gpu_flush(gpu), 0, "the device orders the writes itself");
	unsetenv("EMU_CUDA_ATTRIBUTES");
	fail_no_more();
	cr_assert_eq(spri_gpu_flush(gpu), 0);
	spri_gpu_close(gpu);
}
