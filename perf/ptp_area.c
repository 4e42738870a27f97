/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The source and landing areas of the point-to-point tools. In host memory they are what endpoints
 * write from and into. With --use_cuda those are in the memory of a GPU, and the host's areas are
 * copies: given to the GPU before a size begins, fetched from it before bytes are looked at.
 *
 * Failures: one line, with the library's reasons.
 */
#include "ptp.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static uint8_t *map(size_t bytes)
{
	void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	return area == MAP_FAILED ? NULL : area;
}

static int fail(const struct ptp_link *link, const char *what, int r)
{
	const char *why = spr_context_error(link->context);

	(void)!ptp_fail(link->config, "%s (%zu bytes): %s%s%s", what, link->area_bytes,
			spr_strerror(r), *why ? "; " : "", why);
	return r;
}

static int get_memory(struct ptp_link *link)
{
	int device = SPR_GPU((int)link->config->cuda), r;

	link->source = map(link->area_bytes);
	link->landing = map(link->area_bytes);
	if (!link->source || !link->landing)
		return -ENOMEM;
	link->from = link->source;
	link->to = link->landing;
	if (link->config->cuda == PTP_UNSET)
		return 0;
	link->from = link->to = NULL;
	r = spr_memory_alloc(link->context, SPR_MEMORY_CUDA, device, link->area_bytes, &link->from);
	if (r == 0)
		r = spr_memory_alloc(link->context, SPR_MEMORY_CUDA, device, link->area_bytes,
				     &link->to);
	return r;
}

int ptp_area_open(struct ptp_link *link)
{
	int r = get_memory(link);

	if (r < 0)
		return fail(link, "memory", r);
	r = spr_memory_register(link->context, link->from, link->area_bytes, SPR_ACCESS_LOCAL,
				&link->source_memory);
	if (r == 0)
		r = spr_memory_register(link->context, link->to, link->area_bytes,
					SPR_ACCESS_REMOTE_WRITE, &link->landing_memory);
	if (r < 0)
		return fail(link, "registering memory", r);
	if (!link->config->cuda_dmabuf || !strcmp(spr_memory_path(link->landing_memory), "dma-buf"))
		return 0;
	(void)!ptp_fail(link->config, "--use_cuda_dmabuf: the NIC reaches the GPU by %s only",
			spr_memory_path(link->landing_memory));
	return SPR_EUNSUPPORTED;
}

void ptp_area_close(struct ptp_link *link)
{
	if (link->config && link->config->cuda != PTP_UNSET) {
		spr_memory_free(link->context, link->from, link->area_bytes);
		spr_memory_free(link->context, link->to, link->area_bytes);
	}
	if (link->source)
		munmap(link->source, link->area_bytes);
	if (link->landing)
		munmap(link->landing, link->area_bytes);
}

static int copy(struct ptp_link *link, void *to, const void *from, size_t bytes)
{
	int r = link->config->cuda == PTP_UNSET ? 0
						: spr_memory_copy(link->context, to, from, bytes);

	return r < 0 ? fail(link, "copying", r) : 0;
}

int ptp_area_give(struct ptp_link *link, size_t bytes)
{
	return copy(link, link->from, link->source, bytes) < 0 ? -1 : 0;
}

int ptp_area_reset(struct ptp_link *link)
{
	return copy(link, link->to, link->landing, link->area_bytes) < 0 ? -1 : 0;
}

int ptp_area_fetch(struct ptp_link *link, size_t bytes)
{
	return copy(link, link->landing, link->to, bytes) < 0 ? -1 : 0;
}
