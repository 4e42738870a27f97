/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Mapped memory that grows: for whoever hands lists, flags and results to a GPU or has them from
 * it.
 */
#include <internal/bits.h>
#include <mapped.h>

#define LEAST 64 /* bytes: an address for lists without entries, too */

void spri_mapped_free(struct spri_gpu *gpu, struct spri_mapped *mapped)
{
	if (mapped->host)
		spri_gpu_free_mapped(gpu, mapped->host);
	*mapped = (struct spri_mapped){0};
}

int spri_mapped_fit(struct spri_gpu *gpu, struct spri_mapped *mapped, size_t bytes)
{
	size_t room = spri_max_u64(bytes, LEAST);
	void *host, *there;
	int r;

	if (mapped->bytes >= room)
		return 0;
	spri_mapped_free(gpu, mapped);
	r = spri_gpu_alloc_mapped(gpu, room, &host, &there);
	if (r < 0)
		return spri_trace(r);
	*mapped = (struct spri_mapped){host, there, room};
	return 0;
}
