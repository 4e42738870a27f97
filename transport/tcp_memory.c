/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Regions and grants of tcp. Memory needs no registration for sockets: a region is the
 * bookkeeping against which writes are checked. Addresses on the wire are offsets into the
 * region, so that a peer learns nothing about this process's address space; the key, 128 random
 * bits, says which region, and is looked up among the grants of the one connection it came by.
 */
#include "rows.h"
#include "tcp.h"

#include <internal/alloc.h>

#include <errno.h>
#include <string.h>

#define GRANTS_FIRST 4 /* room for grants at first; then doubled */

int spri_tcp_register(struct spri_port *base, const struct spri_memory *memory,
		      struct spri_region **out, struct spri_text *text)
{
	struct tcp_port *p = (struct tcp_port *)base;
	struct tcp_region *region;

	if (memory->device)
		return spri_transport_no_device(base, text);
	region = spri_zalloc(sizeof *region);
	if (!region)
		return spri_trace(-ENOMEM);
	region->base.port = base;
	region->base.base = memory->base;
	region->base.bytes = memory->bytes;
	region->base.access = memory->access;
	region->base.landed = memory->landed;
	region->base.landed_arg = memory->landed_arg;
	p->n_regions++;
	*out = &region->base;
	return 0;
}

void spri_tcp_unregister(struct spri_region *base)
{
	struct tcp_region *region = (struct tcp_region *)base;
	struct tcp_port *p;

	if (!region)
		return;
	p = (struct tcp_port *)base->port;
	for (struct tcp_link *l = p->conns.next; l != &p->conns; l = l->next) {
		struct tcp_conn *c = spri_container_of(l, struct tcp_conn, all);

		for (unsigned i = 0; i < c->n_grants; i++)
			if (c->grants[i].region == region)
				c->grants[i].region = NULL;
		if (!c->receive.open || c->receive.region != region)
			continue;
		if (c->receive.left > 0)
			spri_tcp_refuse(c, SPR_EACCESS, SPRI_REFUSED_WITHDRAWN);
		c->receive.region = NULL; /* all of it is there, and nobody is told */
	}
	p->n_regions--;
	spri_free(region);
}

/* A free entry of the connection's table, or NULL. */
static struct tcp_grant *grant_slot(struct tcp_conn *c)
{
	struct tcp_grant *more;
	unsigned max;

	for (unsigned i = 0; i < c->n_grants; i++)
		if (!c->grants[i].region)
			return &c->grants[i];
	if (c->n_grants < c->max_grants)
		return &c->grants[c->n_grants++];
	max = c->max_grants ? 2 * c->max_grants : GRANTS_FIRST;
	more = spri_calloc(max, sizeof *more);
	if (!more)
		return NULL;
	if (c->n_grants)
		memcpy(more, c->grants, c->n_grants * sizeof *more);
	spri_free(c->grants);
	c->grants = more;
	c->max_grants = max;
	return &c->grants[c->n_grants++];
}

int spri_tcp_grant(struct spri_conn *base, struct spri_region *region, struct spri_remote *out)
{
	struct tcp_conn *c = (struct tcp_conn *)base;
	struct spri_remote remote = {.address = 0};
	struct tcp_grant *grant;
	int r;

	assert(region->port == base->port);
	r = spri_random_bytes(remote.key, sizeof remote.key);
	if (r < 0)
		return spri_trace(r);
	grant = grant_slot(c);
	if (!grant)
		return spri_trace(-ENOMEM);
	memcpy(grant->key, remote.key, sizeof grant->key);
	grant->region = (struct tcp_region *)region;
	*out = remote;
	return 0;
}

/* Takes the same time whichever bytes differ. */
static bool key_equal(const uint8_t *a, const uint8_t *b)
{
	unsigned differ = 0;

	for (unsigned i = 0; i < SPRI_KEY_BYTES; i++)
		differ |= (unsigned)(a[i] ^ b[i]);
	return differ == 0;
}

uint32_t spri_tcp_check_write(const struct tcp_conn *c, const struct spri_frame *f,
			      struct tcp_region **region, uint8_t **to)
{
	struct tcp_region *found = NULL;

	/* A write of no bytes touches no memory: it needs no key, as in RDMA. */
	if (f->length == 0)
		return 0;
	for (unsigned i = 0; i < c->n_grants; i++)
		if (key_equal(c->grants[i].key, f->key) && c->grants[i].region)
			found = c->grants[i].region;
	if (!found)
		return SPRI_REFUSED_KEY;
	if (!(found->base.access & SPRI_ACCESS_REMOTE_WRITE))
		return SPRI_REFUSED_PERMISSION;
	if (f->address > found->base.bytes || f->length > found->base.bytes - f->address)
		return SPRI_REFUSED_BOUNDS;
	*region = found;
	*to = (uint8_t *)found->base.base + f->address;
	return 0;
}
