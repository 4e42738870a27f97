/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Memory of a GPU, host memory that it sees, what a pointer points to, and what lets a NIC write
 * to it: a dma-buf of its pages, and the flush afterwards. The driver's words of a failure go to
 * the caller's text or, where there is none, to the log.
 */
#include "driver.h"

#include <errno.h>
#include <internal/bits.h>
#include <internal/log.h>
#include <string.h>
#include <unistd.h>

static CUdeviceptr address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

static void *pointer(CUdeviceptr p)
{
	return (void *)(uintptr_t)p;
}

void spri_gpu_pointer(const void *p, struct spri_gpu_pointer *out)
{
	const struct spri_cuda *cuda = spri_cuda_loaded();
	unsigned type = 0, managed = 0;
	int device = 0;
	unsigned long long id = 0;
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUpointer_attribute asked[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_BUFFER_ID,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *answers[] = {&type, &managed, &device, &id, &base, &bytes};

	memset(out, 0, sizeof *out);
	if (!cuda || !p ||
	    cuda->pointer_attributes(spri_countof(asked), asked, answers, address(p)) !=
		    CUDA_SUCCESS)
		return;
	/* managed memory moves to whoever touches it: the host may, and no NIC can have it */
	if (type != CU_MEMORYTYPE_DEVICE || managed)
		return;
	out->on_gpu = true;
	out->device = (unsigned)device;
	out->buffer_id = id;
	out->base = pointer(base);
	out->bytes = bytes;
}

/* For calls without a text: the log has it. */
static int told(int r, const struct spri_gpu *gpu, size_t bytes, const struct spri_text *text)
{
	if (r < 0)
		spri_logf(SPR_LOG_ERROR, "GPU %u: %zu bytes: %s", spri_gpu_number(gpu), bytes,
			  text->s);
	return spri_trace(r);
}

int spri_gpu_alloc(struct spri_gpu *gpu, size_t bytes, void **out)
{
	struct spri_text text = {""};
	const struct spri_cuda *cuda = spri_gpu_enter(gpu, &text);
	CUdeviceptr p = 0;
	int r;

	if (!cuda)
		return told(SPR_EDEVICE, gpu, bytes, &text);
	r = spri_cuda_result(cuda->memory_alloc(&p, bytes ? bytes : 1), "cuMemAlloc", &text);
	spri_gpu_leave(cuda);
	if (r == 0)
		*out = pointer(p);
	return told(r, gpu, bytes, &text);
}

void spri_gpu_free(struct spri_gpu *gpu, void *p)
{
	struct spri_text text = {""};
	const struct spri_cuda *cuda = p ? spri_gpu_enter(gpu, NULL) : NULL;

	if (!cuda)
		return;
	if (spri_cuda_result(cuda->memory_free(address(p)), "cuMemFree", &text) < 0)
		spri_logf(SPR_LOG_WARN, "GPU %u: %s", spri_gpu_number(gpu), text.s);
	spri_gpu_leave(cuda);
}

int spri_gpu_alloc_mapped(struct spri_gpu *gpu, size_t bytes, void **host, void **device)
{
	struct spri_text text = {""};
	const struct spri_cuda *cuda = spri_gpu_enter(gpu, &text);
	size_t least = bytes ? bytes : 1;
	void *here = NULL;
	CUdeviceptr there = 0;
	int r;

	if (!cuda)
		return told(SPR_EDEVICE, gpu, bytes, &text);
	r = spri_cuda_result(cuda->host_alloc(&here, least,
					      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
			     "cuMemHostAlloc", &text);
	if (r < 0)
		goto leave;
	r = spri_cuda_result(cuda->host_device(&there, here, 0), "cuMemHostGetDevicePointer",
			     &text);
	if (r < 0) {
		cuda->host_free(here);
		goto leave;
	}
	memset(here, 0, least);
	*host = here;
	*device = pointer(there);
leave:
	spri_gpu_leave(cuda);
	return told(r, gpu, bytes, &text);
}

void spri_gpu_free_mapped(struct spri_gpu *gpu, void *host)
{
	struct spri_text text = {""};
	const struct spri_cuda *cuda = host ? spri_gpu_enter(gpu, NULL) : NULL;

	if (!cuda)
		return;
	if (spri_cuda_result(cuda->host_free(host), "cuMemFreeHost", &text) < 0)
		spri_logf(SPR_LOG_WARN, "GPU %u: %s", spri_gpu_number(gpu), text.s);
	spri_gpu_leave(cuda);
}

/* ---- for NICs ---- */

int spri_gpu_synchronous(struct spri_gpu *gpu, void *p, struct spri_text *why)
{
	const struct spri_cuda *cuda = spri_gpu_enter(gpu, why);
	unsigned yes = 1;
	int r;

	if (!cuda)
		return SPR_EUNSUPPORTED;
	r = spri_cuda_result(cuda->pointer_set(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address(p)),
			     "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS", why);
	spri_gpu_leave(cuda);
	return r < 0 ? SPR_EUNSUPPORTED : 0;
}

int spri_gpu_export(struct spri_gpu *gpu, void *p, size_t bytes, int *fd, uint64_t *offset,
		    struct spri_text *why)
{
	/* the driver exports whole pages of the host's size */
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = address(p);
	uint64_t first = at & ~(page - 1), end = spri_align_up(at + bytes, page);
	const struct spri_cuda *cuda;
	int r, found = -1;

	if (!spri_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)) {
		spri_text_set(why, "this GPU or its driver has no dma-buf "
				   "(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0)");
		return SPR_EUNSUPPORTED;
	}
	r = spri_gpu_synchronous(gpu, p, why);
	if (r < 0)
		return r;
	cuda = spri_gpu_enter(gpu, why);
	if (!cuda)
		return SPR_EUNSUPPORTED;
	if (!cuda->range_handle) {
		spri_text_set(why, "the CUDA driver has no cuMemGetHandleForAddressRange");
		r = SPR_EUNSUPPORTED;
	} else {
		r = spri_cuda_result(cuda->range_handle(&found, first, end - first,
							CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
				     "cuMemGetHandleForAddressRange", why);
	}
	spri_gpu_leave(cuda);
	if (r < 0)
		return SPR_EUNSUPPORTED;
	*fd = found;
	*offset = at - first;
	return 0;
}

int spri_gpu_flush(struct spri_gpu *gpu)
{
	const struct spri_cuda *cuda;
	struct spri_text text;
	int options, r;

	if (spri_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
	    CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER)
		return 0;
	options = spri_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
	cuda = spri_gpu_enter(gpu, NULL);
	if (!cuda)
		return SPR_EUNSUPPORTED;
	r = SPR_EUNSUPPORTED;
	if (cuda->flush && (options & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST))
		r = spri_cuda_result(cuda->flush(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
						 CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
				     "cuFlushGPUDirectRDMAWrites", &text);
	spri_gpu_leave(cuda);
	if (r < 0 && r != SPR_EUNSUPPORTED)
		spri_logf(SPR_LOG_ERROR, "GPU %u: %s", spri_gpu_number(gpu), text.s);
	return r;
}
