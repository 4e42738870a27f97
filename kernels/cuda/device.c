/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The GPUs of this machine, and those in use: the primary context of each (the one that the CUDA
 * runtime and PyTorch use, too, so that their pointers and streams are good here), with the
 * kernels (spri_gpu_images) loaded into it.
 *
 *   probe, count, info   from the driver, without a context
 *   open                 retains the primary context, loads the images, finds every kernel
 *   enter ... leave      around every use, so that the caller's current context stays as it was
 *   close                the last one unloads and releases
 *
 * Failures: texts with the driver's words; an open that fails gives back what it took. After fork
 * nothing is called: a child closes what its parent had opened by forgetting it.
 */
#include "driver.h"
#include "launch.h"

#include <ctype.h>
#include <errno.h>
#include <internal/alloc.h>
#include <pthread.h>
#include <string.h>

#define MOST_DEVICES 64
#define MOST_MODULES 32

struct spri_gpu {
	unsigned number; /* as the driver counts */
	unsigned users;	 /* opens without a close; guarded by the table's lock */
	CUdevice handle;
	CUcontext context;		/* the primary one, retained */
	CUmodule modules[MOST_MODULES]; /* one for each of spri_gpu_images */
	unsigned n_modules;
	CUfunction kernels[SPRI_GPU_KERNEL_COUNT];
};

static struct {
	pthread_mutex_t lock;		       /* guards the table; the driver is called under it */
	struct spri_gpu *device[MOST_DEVICES]; /* open ones; NULL: not */
} open_gpus = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define KERNEL_NAME(name) "spri_" #name,
static const char *const kernel_names[] = {SPRI_GPU_KERNELS(KERNEL_NAME)};
#undef KERNEL_NAME

/* ---- what there is ---- */

int spri_gpu_probe(struct spri_text *why)
{
	return spri_cuda_get(why) ? 0 : SPR_EUNSUPPORTED;
}

unsigned spri_gpu_count(void)
{
	const struct spri_cuda *cuda = spri_cuda_get(NULL);

	if (!cuda)
		return 0;
	return cuda->count < MOST_DEVICES ? (unsigned)cuda->count : MOST_DEVICES;
}

static int attribute(const struct spri_cuda *cuda, CUdevice handle, CUdevice_attribute which)
{
	int value = 0;

	/* a driver that does not know an attribute refuses: then the device does not have it */
	return cuda->device_attribute(&value, which, handle) == CUDA_SUCCESS ? value : 0;
}

static void read_attributes(const struct spri_cuda *cuda, CUdevice handle,
			    struct spri_gpu_info *info)
{
	int options =
		attribute(cuda, handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
	int ordering = attribute(cuda, handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);

	info->major = attribute(cuda, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	info->minor = attribute(cuda, handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	info->driver = cuda->version;
	info->dma_buf = cuda->range_handle &&
			attribute(cuda, handle, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
	info->gpudirect =
		attribute(cuda, handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0;
	info->flush_host = cuda->flush && (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
	info->ordered = ordering >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

int spri_gpu_info(unsigned i, struct spri_gpu_info *info, struct spri_text *text)
{
	const struct spri_cuda *cuda = spri_cuda_get(text);
	struct spri_gpu_info found = {.name = ""};
	CUdevice handle;
	size_t bytes = 0;
	int r;

	if (!cuda)
		return SPR_EUNSUPPORTED;
	if (i >= spri_gpu_count()) {
		spri_text_set(text, "there is no GPU %u: this process may use %u", i,
			      spri_gpu_count());
		return SPR_EARGUMENT;
	}
	r = spri_cuda_result(cuda->device_get(&handle, (int)i), "cuDeviceGet", text);
	if (r == 0)
		r = spri_cuda_result(cuda->device_name(found.name, sizeof found.name, handle),
				     "cuDeviceGetName", text);
	if (r == 0)
		r = spri_cuda_result(cuda->device_pci(found.pci, sizeof found.pci, handle),
				     "cuDeviceGetPCIBusId", text);
	if (r == 0)
		r = spri_cuda_result(cuda->device_bytes(&bytes, handle), "cuDeviceTotalMem", text);
	if (r < 0)
		return SPR_EUNSUPPORTED;
	for (char *c = found.pci; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	found.bytes = bytes;
	read_attributes(cuda, handle, &found);
	*info = found;
	return 0;
}

/* ---- a device ---- */

/* Looks for a kernel in every module. */
static int find_kernel(const struct spri_cuda *cuda, struct spri_gpu *gpu, unsigned kernel,
		       struct spri_text *text)
{
	CUresult found = CUDA_ERROR_NOT_FOUND;

	for (unsigned i = 0; i < gpu->n_modules && found == CUDA_ERROR_NOT_FOUND; i++)
		found = cuda->module_function(&gpu->kernels[kernel], gpu->modules[i],
					      kernel_names[kernel]);
	return spri_cuda_result(found, kernel_names[kernel], text);
}

static int load_kernels(const struct spri_cuda *cuda, struct spri_gpu *gpu, struct spri_text *text)
{
	int r = 0;

	for (unsigned i = 0; spri_gpu_images[i] && r == 0; i++) {
		assert(i < MOST_MODULES);
		r = spri_cuda_result(cuda->module_load(&gpu->modules[i], spri_gpu_images[i]),
				     "loading the kernels", text);
		gpu->n_modules += r == 0;
	}
	for (unsigned i = 0; i < SPRI_GPU_KERNEL_COUNT && r == 0; i++)
		r = find_kernel(cuda, gpu, i, text);
	return r;
}

static void give_back(const struct spri_cuda *cuda, struct spri_gpu *gpu)
{
	if (gpu->n_modules > 0 && cuda->context_push(gpu->context) == CUDA_SUCCESS) {
		while (gpu->n_modules > 0)
			cuda->module_unload(gpu->modules[--gpu->n_modules]);
		spri_gpu_leave(cuda);
	}
	if (gpu->context)
		cuda->context_release(gpu->handle);
}

/* Context and kernels of a device that nobody has open. */
static int take(const struct spri_cuda *cuda, struct spri_gpu *gpu, struct spri_text *text)
{
	const struct spri_cuda *inside;
	int r;

	r = spri_cuda_result(cuda->device_get(&gpu->handle, (int)gpu->number), "cuDeviceGet", text);
	if (r < 0)
		return r;
	r = spri_cuda_result(cuda->context_retain(&gpu->context, gpu->handle),
			     "cuDevicePrimaryCtxRetain", text);
	if (r < 0)
		return r;
	inside = spri_gpu_enter(gpu, text);
	if (!inside)
		return SPR_EDEVICE;
	r = load_kernels(cuda, gpu, text);
	spri_gpu_leave(inside);
	return r;
}

static int open_locked(const struct spri_cuda *cuda, unsigned device, struct spri_gpu **out,
		       struct spri_text *text)
{
	struct spri_gpu *gpu = open_gpus.device[device];
	int r;

	if (!gpu) {
		gpu = spri_zalloc(sizeof *gpu);
		if (!gpu) {
			spri_text_set(text, "%s", spr_strerror(-ENOMEM));
			return -ENOMEM;
		}
		gpu->number = device;
		r = take(cuda, gpu, text);
		if (r < 0) {
			give_back(cuda, gpu);
			spri_free(gpu);
			return r == -ENOMEM ? r : SPR_EUNSUPPORTED;
		}
		open_gpus.device[device] = gpu;
	}
	gpu->users++;
	*out = gpu;
	return 0;
}

int spri_gpu_open(unsigned device, struct spri_gpu **out, struct spri_text *text)
{
	const struct spri_cuda *cuda = spri_cuda_get(text);
	int r;

	if (!cuda)
		return spri_trace(SPR_EUNSUPPORTED);
	if (device >= spri_gpu_count()) {
		spri_text_set(text, "there is no GPU %u: this process may use %u", device,
			      spri_gpu_count());
		return spri_trace(SPR_EUNSUPPORTED);
	}
	pthread_mutex_lock(&open_gpus.lock);
	r = open_locked(cuda, device, out, text);
	pthread_mutex_unlock(&open_gpus.lock);
	if (r < 0)
		spri_text_prefix(text, "GPU %u", device);
	return spri_trace(r);
}

void spri_gpu_close(struct spri_gpu *gpu)
{
	const struct spri_cuda *cuda = spri_cuda_get(NULL);

	/* a child of fork may have inherited the lock as taken, and has no driver to close */
	if (!gpu || !cuda)
		return;
	pthread_mutex_lock(&open_gpus.lock);
	assert(gpu->users > 0);
	if (--gpu->users == 0) {
		open_gpus.device[gpu->number] = NULL;
		give_back(cuda, gpu);
		spri_free(gpu);
	}
	pthread_mutex_unlock(&open_gpus.lock);
}

unsigned spri_gpu_number(const struct spri_gpu *gpu)
{
	return gpu->number;
}

CUdevice spri_gpu_handle(const struct spri_gpu *gpu)
{
	return gpu->handle;
}

CUfunction spri_gpu_function(const struct spri_gpu *gpu, unsigned kernel)
{
	assert(kernel < SPRI_GPU_KERNEL_COUNT);
	return gpu->kernels[kernel];
}

int spri_gpu_attribute(const struct spri_gpu *gpu, CUdevice_attribute which)
{
	const struct spri_cuda *cuda = spri_cuda_get(NULL);

	return cuda ? attribute(cuda, gpu->handle, which) : 0;
}

const struct spri_cuda *spri_gpu_enter(const struct spri_gpu *gpu, struct spri_text *text)
{
	const struct spri_cuda *cuda = spri_cuda_get(text);

	if (!cuda ||
	    spri_cuda_result(cuda->context_push(gpu->context), "cuCtxPushCurrent", text) < 0)
		return NULL;
	return cuda;
}

void spri_gpu_leave(const struct spri_cuda *cuda)
{
	CUcontext ours;

	cuda->context_pop(&ours);
}
