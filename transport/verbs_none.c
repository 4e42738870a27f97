/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The row of verbs in a build without libibverbs: probe() declines and says why, so that listings
 * show the transport and its reason. listen() refuses, so there is never a port, region or
 * connection, and the slots that take one are out of reach; they refuse all the same, so that no
 * slot is NULL.
 */
#include "rows.h"

static const char reason[] = "built without libibverbs";

static int probe(struct spri_text *why)
{
	spri_text_set(why, "%s", reason);
	return SPR_EUNSUPPORTED;
}

static int refuse_listen(const struct spri_port_options *options SPRI_UNUSED,
			 struct spri_port **out SPRI_UNUSED, struct spri_text *text)
{
	spri_text_set(text, "verbs: %s", reason);
	return SPR_EUNSUPPORTED;
}

static size_t no_address(struct spri_port *port SPRI_UNUSED, uint8_t *blob SPRI_UNUSED)
{
	return 0;
}

static int refuse_register(struct spri_port *port SPRI_UNUSED,
			   const struct spri_memory *memory SPRI_UNUSED,
			   struct spri_region **out SPRI_UNUSED, struct spri_text *text SPRI_UNUSED)
{
	return SPR_EUNSUPPORTED;
}

static void no_region(struct spri_region *region SPRI_UNUSED) {}

static int refuse_create(struct spri_port *port SPRI_UNUSED, void *user SPRI_UNUSED,
			 struct spri_conn **out SPRI_UNUSED)
{
	return SPR_EUNSUPPORTED;
}

static int refuse_grant(struct spri_conn *conn SPRI_UNUSED, struct spri_region *region SPRI_UNUSED,
			struct spri_remote *out SPRI_UNUSED)
{
	return SPR_EUNSUPPORTED;
}

static int refuse_connect(struct spri_conn *conn SPRI_UNUSED,
			  const struct spri_connect *args SPRI_UNUSED)
{
	return SPR_EUNSUPPORTED;
}

static int refuse_post(struct spri_conn *conn SPRI_UNUSED,
		       const struct spri_write *write SPRI_UNUSED)
{
	return SPR_EUNSUPPORTED;
}

static int refuse_poll(struct spri_port *port SPRI_UNUSED, struct spri_event *events SPRI_UNUSED,
		       unsigned max SPRI_UNUSED)
{
	return SPR_EUNSUPPORTED;
}

static int refuse_wait(struct spri_port *port SPRI_UNUSED, uint64_t deadline_ns SPRI_UNUSED)
{
	return SPR_EUNSUPPORTED;
}

static void no_port(struct spri_port *port SPRI_UNUSED) {}

static uint64_t no_time(struct spri_port *port SPRI_UNUSED)
{
	return 0;
}

static void no_stats(struct spri_port *port SPRI_UNUSED, struct spri_port_stats *out)
{
	*out = (struct spri_port_stats){0};
}

static const char *no_text(struct spri_conn *conn SPRI_UNUSED)
{
	return reason;
}

static void no_conn(struct spri_conn *conn SPRI_UNUSED) {}

static bool always_closed(struct spri_conn *conn SPRI_UNUSED)
{
	return true;
}

const struct spri_transport spri_verbs = {
	.name = "verbs",
	.about = "RDMA through libibverbs and librdmacm",
	.probe = probe,
	.listen = refuse_listen,
	.address = no_address,
	.register_ = refuse_register,
	.unregister = no_region,
	.create = refuse_create,
	.grant = refuse_grant,
	.connect = refuse_connect,
	.post = refuse_post,
	.poll = refuse_poll,
	.wait = refuse_wait,
	.wake = no_port,
	.now = no_time,
	.stats = no_stats,
	.describe = no_text,
	.close = no_conn,
	.closed = always_closed,
	.destroy = no_conn,
	.fini = no_port,
};

int spri_rdma_ports(const char *interfaces SPRI_UNUSED, struct spri_rdma_port *rows SPRI_UNUSED,
		    unsigned max SPRI_UNUSED, struct spri_text *text)
{
	spri_text_set(text, "%s", reason);
	return 0;
}

int spri_rdma_try(const char *device SPRI_UNUSED, const struct spri_memory *memory SPRI_UNUSED,
		  struct spri_text *text)
{
	spri_text_set(text, "%s", reason);
	return SPR_EUNSUPPORTED;
}

int spri_rdma_routes(const char *interfaces SPRI_UNUSED, const char *host SPRI_UNUSED,
		     struct spri_route *rows SPRI_UNUSED, unsigned max SPRI_UNUSED,
		     struct spri_text *text)
{
	spri_text_set(text, "%s", reason);
	return 0;
}
