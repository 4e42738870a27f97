/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Memory of the stand-in driver: pieces of one memfd per device, first fit, so that an address is
 * soon used again; pointer attributes; dma-bufs by the kernel's udmabuf over the same memfd.
 */
#include "standin.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL_UNIT 512u	    /* where pieces begin that are smaller than LARGE */
#define LARGE (64u << 10)   /* pieces of this and more begin at multiples of it */
#define GARBAGE (16u << 20) /* most bytes of garbage at either end of a new piece */
#define ATTRIBUTES 16

static unsigned long long last_id;
static int n_access; /* standin_access: how deep */

static bool always_accessible(void)
{
	return standin_number("EMU_CUDA_HOST_ACCESS", 0) != 0;
}

/* Opens or closes what is in use of a device's memory. Lock held. */
static void protect(struct device *d)
{
	int prot = n_access > 0 || always_accessible() ? PROT_READ | PROT_WRITE : PROT_NONE;

	if (d->high > 0 && mprotect(d->device, d->high, prot) != 0)
		abort();
}

void standin_access(bool begin)
{
	pthread_mutex_lock(&standin_lock);
	n_access += begin ? 1 : -1;
	if (n_access == (begin ? 1 : 0))
		for (int i = 0; i < MOST_DEVICES; i++)
			if (standin_devices[i].ready)
				protect(&standin_devices[i]);
	pthread_mutex_unlock(&standin_lock);
}

CUresult standin_open_device(struct device *d)
{
	size_t bytes = standin_number("EMU_CUDA_BYTES", 4ull << 30);
	void *device, *host;
	int fd;

	if (d->ready)
		return CUDA_SUCCESS;
	fd = memfd_create("stand-in GPU", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* udmabuf wants to be sure that it does not shrink */
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	device = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (device == MAP_FAILED || host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	d->fd = fd;
	d->bytes = bytes;
	d->device = device;
	d->host = host;
	d->ready = true;
	return CUDA_SUCCESS;
}

struct piece *standin_find(CUdeviceptr p, struct device **out)
{
	for (int i = 0; i < MOST_DEVICES; i++) {
		struct device *d = &standin_devices[i];
		size_t at_device = p - (CUdeviceptr)(uintptr_t)d->device;
		size_t at_host = p - (CUdeviceptr)(uintptr_t)d->host;

		for (struct piece *a = d->ready ? d->pieces : NULL; a; a = a->next)
			if (at_device - a->offset < a->bytes ||
			    (a->mapped && at_host - a->offset < a->bytes)) {
				*out = d;
				return a;
			}
	}
	return NULL;
}

void *standin_reach(CUdeviceptr p)
{
	struct device *d;
	struct piece *a;
	void *reached = (void *)(uintptr_t)p;

	pthread_mutex_lock(&standin_lock);
	a = standin_find(p, &d);
	if (a && p - (CUdeviceptr)(uintptr_t)d->device < d->bytes)
		reached = d->host + (p - (CUdeviceptr)(uintptr_t)d->device);
	pthread_mutex_unlock(&standin_lock);
	return reached;
}

/* A new piece of a device's memory, or NULL. Lock held. */
static struct piece *place(struct device *d, size_t bytes, bool mapped)
{
	size_t unit = bytes < LARGE ? SMALL_UNIT : LARGE, at = 0;
	struct piece **link = &d->pieces, *a;

	/* one unit stays free behind each piece */
	for (; *link; link = &(*link)->next) {
		if (at + bytes + SMALL_UNIT <= (*link)->offset)
			break;
		at = ((*link)->offset + (*link)->bytes + SMALL_UNIT + unit - 1) / unit * unit;
	}
	if (at > d->bytes || bytes > d->bytes - at)
		return NULL;
	a = calloc(1, sizeof *a);
	if (!a)
		return NULL;
	*a = (struct piece){
		.next = *link, .offset = at, .bytes = bytes, .id = ++last_id, .mapped = mapped};
	*link = a;
	if (at + bytes > d->high) {
		size_t page = (size_t)sysconf(_SC_PAGESIZE);

		d->high = (at + bytes + page - 1) / page * page;
		protect(d);
	}
	/*
	 * of a very large piece the ends only: the pages between cost nothing until they are used
	 */
	memset(d->host + at, 0xff, bytes < GARBAGE ? bytes : GARBAGE);
	if (bytes > GARBAGE)
		memset(d->host + at + bytes - GARBAGE, 0xff, GARBAGE);
	return a;
}

static CUresult allocate(const char *call, size_t bytes, bool mapped, char **host, char **device)
{
	CUcontext context;
	CUresult r = standin_begin(call, &context);
	struct device *d;
	struct piece *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	d = &standin_devices[context->device];
	pthread_mutex_lock(&standin_lock);
	a = place(d, bytes, mapped);
	if (a) {
		*host = d->host + a->offset;
		*device = d->device + a->offset;
	}
	pthread_mutex_unlock(&standin_lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Gives back the piece that begins at p. */
static CUresult give_back(const char *call, CUdeviceptr p, bool mapped)
{
	CUcontext context;
	CUresult r = standin_begin(call, &context);
	struct device *d = NULL;
	struct piece *a, **link;
	char *begin;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&standin_lock);
	a = standin_find(p, &d);
	begin = a ? (mapped ? d->host : d->device) + a->offset : NULL;
	if (!a || a->mapped != mapped || begin != (char *)(uintptr_t)p) {
		pthread_mutex_unlock(&standin_lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (link = &d->pieces; *link != a; link = &(*link)->next)
		;
	*link = a->next;
	/* whole pages go back to the system; who pinned them keeps them */
	if (a->bytes >= LARGE)
		fallocate(d->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)a->offset,
			  (off_t)(a->bytes / LARGE * LARGE));
	pthread_mutex_unlock(&standin_lock);
	free(a);
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes)
{
	char *host, *device = NULL;
	CUresult r = allocate(__func__, bytes, false, &host, &device);

	*p = (CUdeviceptr)(uintptr_t)device;
	return r;
}

CUresult cuMemFree(CUdeviceptr p)
{
	return give_back(__func__, p, false);
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
	char *host = NULL, *device;
	CUresult r = allocate(__func__, bytes, true, &host, &device);

	(void)flags;
	*p = host;
	return r;
}

CUresult cuMemFreeHost(void *p)
{
	return give_back(__func__, (CUdeviceptr)(uintptr_t)p, true);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *p, unsigned flags)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);
	struct device *d;
	struct piece *a;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&standin_lock);
	a = standin_find((CUdeviceptr)(uintptr_t)p, &d);
	if (!a || !a->mapped || flags != 0)
		r = CUDA_ERROR_INVALID_VALUE;
	else
		*out = (CUdeviceptr)(uintptr_t)(d->device + ((char *)p - d->host));
	pthread_mutex_unlock(&standin_lock);
	return r;
}

/* ---- pointers ---- */

static CUresult answer(CUpointer_attribute attribute, void *out, const struct device *d,
		       const struct piece *a)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out = !a ? 0 : a->mapped ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)out = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = a ? d->context.device : -2; /* so the header says */
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)out = a ? a->id : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)out = a ? (CUdeviceptr)(uintptr_t)(d->device + a->offset) : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = a ? a->bytes : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned *)out = a && a->synchronous;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **out,
				CUdeviceptr p)
{
	CUresult r = standin_begin(__func__, NULL);
	struct device *d = NULL;
	struct piece *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (n > ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	a = standin_find(p, &d);
	for (unsigned i = 0; i < n && r == CUDA_SUCCESS; i++)
		r = answer(attributes[i], out[i], d, a);
	pthread_mutex_unlock(&standin_lock);
	return r;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr p)
{
	CUresult r = standin_begin(__func__, NULL);
	struct device *d;
	struct piece *a;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&standin_lock);
	a = standin_find(p, &d);
	if (!a || a->mapped || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		r = CUDA_ERROR_INVALID_VALUE;
	else
		a->synchronous = *(const unsigned *)value != 0;
	pthread_mutex_unlock(&standin_lock);
	return r;
}

/* ---- for NICs ---- */

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr p, size_t bytes,
				       CUmemRangeHandleType type, unsigned long long flags)
{
	CUcontext context;
	CUresult r = standin_begin(__func__, &context);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes};
	struct device *d;
	int maker, fd;

	if (r != CUDA_SUCCESS)
		return r;
	if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || bytes == 0 ||
	    p % page != 0 || bytes % page != 0)
		return CUDA_ERROR_INVALID_VALUE;
	d = &standin_devices[context->device];
	create.offset = p - (CUdeviceptr)(uintptr_t)d->device;
	create.memfd = (unsigned)d->fd;
	if (create.offset >= d->high || bytes > d->high - create.offset)
		return CUDA_ERROR_INVALID_VALUE;
	if (standin_number("EMU_CUDA_ANY_FD", 0)) {
		*(int *)handle = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
		return CUDA_SUCCESS;
	}
	maker = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (maker < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	fd = ioctl(maker, UDMABUF_CREATE, &create);
	close(maker);
	if (fd < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
				    CUflushGPUDirectRDMAWritesScope scope)
{
	CUcontext context;

	(void)scope;
	if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX)
		return CUDA_ERROR_INVALID_VALUE;
	return standin_begin(__func__, &context);
}
