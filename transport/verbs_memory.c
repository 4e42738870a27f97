/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Regions and grants of verbs: the device checks what peers write.
 *
 *   register   one memory region per device of the port; only SPRI_ACCESS_REMOTE_WRITE lets peers
 *              in. Memory of a GPU by its dma-buf, or by its address: then a module of its driver
 *              tells the NIC's where the pages are
 *   grant      address: as in this process; key: for each device i the rkey, u32 at 4 × i. The
 *              hello says which of them counts on a connection.
 *
 * What the device enforces is less than tcp does: an rkey is 32 bits, not secret, and valid on
 * every connection of the port, since all share one protection domain. Bounds and permission are
 * exact.
 *
 * Failures: why memory cannot be registered is said with the limits as they are.
 */
#include "verbs.h"

#include <internal/alloc.h>
#include <internal/bytes.h>
#include <internal/log.h>

#include <errno.h>

/* Undoes what was registered, in reverse. */
static void deregister(struct verbs_region *region)
{
	for (unsigned i = VERBS_DEVICES; i-- > 0;) {
		int r = region->mr[i] ? spri_verbs_value(ibv_dereg_mr(region->mr[i])) : 0;

		if (r < 0)
			spri_logf(SPR_LOG_WARN, "verbs: unregistering memory: %s", spr_strerror(r));
	}
}

struct ibv_mr *spri_verbs_reg_mr(struct ibv_pd *pd, const struct spri_memory *memory)
{
	int flags = memory->access & SPRI_ACCESS_REMOTE_WRITE
			    ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
			    : 0;

	if (memory->device && memory->dma_buf >= 0)
		return ibv_reg_dmabuf_mr(pd, memory->offset, memory->bytes,
					 (uint64_t)(uintptr_t)memory->base, memory->dma_buf, flags);
	return ibv_reg_mr(pd, memory->base, memory->bytes, flags);
}

int spri_verbs_register(struct spri_port *base, const struct spri_memory *memory,
			struct spri_region **out, struct spri_text *text)
{
	struct verbs_port *p = (struct verbs_port *)base;
	struct verbs_region *region = spri_zalloc(sizeof *region);

	if (!region)
		return spri_trace(-ENOMEM);
	region->base.port = base;
	region->base.base = memory->base;
	region->base.bytes = memory->bytes;
	region->base.access = memory->access;
	region->base.device = memory->device;
	for (unsigned i = 0; i < p->n_devices && memory->bytes > 0; i++) {
		int r;

		if (p->devices[i].gone)
			continue;
		region->mr[i] = spri_verbs_reg_mr(p->devices[i].pd, memory);
		if (region->mr[i])
			continue;
		r = spri_verbs_errno();
		spri_verbs_limits(r, p->devices[i].name, memory->bytes, text);
		deregister(region);
		spri_free(region);
		return spri_trace(r);
	}
	p->n_regions++;
	*out = &region->base;
	return 0;
}

void spri_verbs_unregister(struct spri_region *base)
{
	struct verbs_region *region = (struct verbs_region *)base;

	if (!region)
		return;
	deregister(region);
	((struct verbs_port *)base->port)->n_regions--;
	spri_free(region);
}

int spri_verbs_grant(struct spri_conn *base, struct spri_region *region, struct spri_remote *out)
{
	const struct verbs_region *r = (const struct verbs_region *)region;
	struct spri_remote remote = {.address = (uint64_t)(uintptr_t)region->base};

	assert(region->port == base->port);
	(void)base;
	if (!(region->access & SPRI_ACCESS_REMOTE_WRITE))
		return spri_trace(SPR_EARGUMENT);
	for (unsigned i = 0; i < VERBS_DEVICES; i++)
		spri_put_u32(remote.key + 4 * i, r->mr[i] ? r->mr[i]->rkey : 0);
	*out = remote;
	return 0;
}
