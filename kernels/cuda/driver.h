/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The CUDA driver, opened at run time: one table of its functions per process. The types are those
 * of NVIDIA's header, so that a call is checked like one of a linked library.
 */
#ifndef SPRI_CUDA_DRIVER_H
#define SPRI_CUDA_DRIVER_H

#include <cuda.h>
#include <gpu.h>

#define SPRI_CUDA_OLDEST 11000 /* the driver's version: what has all of SPRI_CUDA_CALLS */

/* field, function: what every driver since 11.0 has */
#define SPRI_CUDA_CALLS(X)                                                                         \
	X(init, cuInit)                                                                            \
	X(driver_version, cuDriverGetVersion)                                                      \
	X(error_name, cuGetErrorName)                                                              \
	X(error_string, cuGetErrorString)                                                          \
	X(device_count, cuDeviceGetCount)                                                          \
	X(device_get, cuDeviceGet)                                                                 \
	X(device_name, cuDeviceGetName)                                                            \
	X(device_bytes, cuDeviceTotalMem)                                                          \
	X(device_pci, cuDeviceGetPCIBusId)                                                         \
	X(device_attribute, cuDeviceGetAttribute)                                                  \
	X(context_retain, cuDevicePrimaryCtxRetain)                                                \
	X(context_release, cuDevicePrimaryCtxRelease)                                              \
	X(context_push, cuCtxPushCurrent)                                                          \
	X(context_pop, cuCtxPopCurrent)                                                            \
	X(module_load, cuModuleLoadData)                                                           \
	X(module_unload, cuModuleUnload)                                                           \
	X(module_function, cuModuleGetFunction)                                                    \
	X(function_set, cuFuncSetAttribute)                                                        \
	X(launch, cuLaunchKernel)                                                                  \
	X(memory_alloc, cuMemAlloc)                                                                \
	X(memory_free, cuMemFree)                                                                  \
	X(host_alloc, cuMemHostAlloc)                                                              \
	X(host_device, cuMemHostGetDevicePointer)                                                  \
	X(host_free, cuMemFreeHost)                                                                \
	X(pointer_attributes, cuPointerGetAttributes)                                              \
	X(pointer_set, cuPointerSetAttribute)                                                      \
	X(copy, cuMemcpyAsync)                                                                     \
	X(fill, cuMemsetD8Async)                                                                   \
	X(stream_create, cuStreamCreate)                                                           \
	X(stream_destroy, cuStreamDestroy)                                                         \
	X(stream_sync, cuStreamSynchronize)                                                        \
	X(stream_query, cuStreamQuery)                                                             \
	X(stream_wait, cuStreamWaitEvent)                                                          \
	X(event_create, cuEventCreate)                                                             \
	X(event_record, cuEventRecord)                                                             \
	X(event_destroy, cuEventDestroy)

/* What may be NULL: newer than that. */
#define SPRI_CUDA_CALLS_MAYBE(X)                                                                   \
	X(range_handle, cuMemGetHandleForAddressRange) /* 11.7 */                                  \
	X(flush, cuFlushGPUDirectRDMAWrites)	       /* 11.3 */                                  \
	X(event_elapsed, cuEventElapsedTime)	       /* its second version: 12.8 */

#define SPRI_CUDA_FIELD(field, function) __typeof__(function) *field;
struct spri_cuda {
	SPRI_CUDA_CALLS(SPRI_CUDA_FIELD)
	SPRI_CUDA_CALLS_MAYBE(SPRI_CUDA_FIELD)
	int version; /* 1000 · major + 10 · minor */
	int count;   /* devices, ≥ 1 */
};
#undef SPRI_CUDA_FIELD

/*
 * The driver, opened and initialised by the first call. NULL when it is of no use: why (may be
 * NULL) says why. After fork() the child has none: the driver does not survive it. Threads: any.
 */
const struct spri_cuda *spri_cuda_get(struct spri_text *why);
/*
 * The same, but NULL as well when nothing in this process has loaded the driver: then no pointer
 * is a GPU's, and asking must not start it.
 */
const struct spri_cuda *spri_cuda_loaded(void);

/*
 * Turns what a call returned into 0, -ENOMEM (memory of the device) or SPR_EDEVICE, and says
 * "what: NAME: the driver's words" in text (may be NULL).
 */
int spri_cuda_result(CUresult result, const char *what, struct spri_text *text) SPRI_MUST;

/* ---- a device (device.c), for memory.c and stream.c ---- */

struct spri_gpu;

CUdevice spri_gpu_handle(const struct spri_gpu *gpu);
int spri_gpu_attribute(const struct spri_gpu *gpu, CUdevice_attribute attribute); /* 0: unknown */
CUfunction spri_gpu_function(const struct spri_gpu *gpu, unsigned kernel);
/*
 * Makes the device's primary context current in this thread, on top of the caller's; leave puts
 * that back. Returns NULL (nothing to leave) when the driver does not let it, or after fork.
 */
const struct spri_cuda *spri_gpu_enter(const struct spri_gpu *gpu, struct spri_text *text);
void spri_gpu_leave(const struct spri_cuda *cuda);

#endif
