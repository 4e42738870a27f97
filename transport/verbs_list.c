/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * RDMA devices and routes for listings, by the very code that a port uses: what is listed as used
 * is what a port, opened for the purpose, did take.
 *
 *   devices   every port of every device with its GIDs; then a port is opened, and those of its
 *             places are marked
 *   try       a region on a device, made and ended
 *   routes    each of the places resolves the peer's address by rdma_cm, as a connection would;
 *             nothing is asked of the peer but its hardware address
 *
 * Failures: a device that cannot be opened or asked is a row that says so.
 */
#include "rows.h"
#include "tcp_interfaces.h"
#include "verbs.h"

#include <internal/clock.h>

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define RESOLVE_MS 2000

static const char *link_text(const struct ibv_context *context, uint8_t link_layer)
{
	if (context->device->transport_type == IBV_TRANSPORT_IWARP)
		return "iWARP";
	return link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

static const char *gid_type_text(const struct ibv_context *context, uint32_t type)
{
	if (context->device->transport_type == IBV_TRANSPORT_IWARP)
		return "iWARP";
	return type == IBV_GID_TYPE_ROCE_V2   ? "RoCE v2"
	       : type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1"
					      : "InfiniBand";
}

static void list_gids(struct ibv_context *context, int n_entries, struct spri_rdma_port *row)
{
	for (int i = 0; i < n_entries && row->n_gids < SPRI_RDMA_GIDS; i++) {
		struct spri_rdma_gid *out = &row->gids[row->n_gids];
		struct ibv_gid_entry entry;

		if (ibv_query_gid_ex(context, row->port, (uint32_t)i, &entry, 0) != 0)
			continue;
		out->index = (unsigned)i;
		out->type = gid_type_text(context, entry.gid_type);
		if (!inet_ntop(AF_INET6, entry.gid.raw, out->text, sizeof out->text))
			continue;
		if (entry.ndev_ifindex == 0 || !if_indextoname(entry.ndev_ifindex, out->interface))
			out->interface[0] = '\0';
		row->n_gids++;
	}
}

static void list_port(struct ibv_context *context, const struct ibv_device_attr *device,
		      struct spri_rdma_port *row)
{
	struct ibv_port_attr attr;
	int r = spri_verbs_value(ibv_query_port(context, (uint8_t)row->port, &attr));

	if (r < 0) {
		snprintf(row->reason, sizeof row->reason, "asking the port: %s", spr_strerror(r));
		return;
	}
	snprintf(row->state, sizeof row->state, "%s", ibv_port_state_str(attr.state));
	row->link = link_text(context, attr.link_layer);
	row->active = attr.state == IBV_PORT_ACTIVE;
	row->mtu = 128u << attr.active_mtu;
	row->max_message = attr.max_msg_sz;
	row->max_qp = device->max_qp;
	row->max_qp_wr = device->max_qp_wr;
	row->max_cqe = device->max_cqe;
	row->max_mr = device->max_mr;
	row->max_mr_bytes = device->max_mr_size;
	list_gids(context, attr.gid_tbl_len, row);
}

/* All ports of one device. Returns how many rows there are then. */
static unsigned list_device(struct ibv_device *device, struct spri_rdma_port *rows, unsigned n,
			    unsigned max)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr = {.phys_port_cnt = 1};
	int r = context ? spri_verbs_value(ibv_query_device(context, &attr)) : spri_verbs_errno();

	for (unsigned port = 1; port <= attr.phys_port_cnt && n < max; port++) {
		struct spri_rdma_port *row = &rows[n++];

		memset(row, 0, sizeof *row);
		snprintf(row->device, sizeof row->device, "%s", ibv_get_device_name(device));
		row->port = port;
		row->link = "?";
		snprintf(row->state, sizeof row->state, "?");
		if (r < 0)
			snprintf(row->reason, sizeof row->reason, "opening the device: %s",
				 spr_strerror(r));
		else
			list_port(context, &attr, row);
	}
	if (context)
		(void)!ibv_close_device(context);
	return n;
}

/* Which rows would be used, and why not the others. */
static void mark(struct spri_rdma_port *row, const struct verbs_port *p, const char *why)
{
	for (unsigned i = 0; p && i < p->n_places && !row->used; i++)
		row->used = p->places[i].port == row->port &&
			    strcmp(p->places[i].device->name, row->device) == 0;
	if (row->used || row->reason[0])
		return;
	if (!row->active)
		snprintf(row->reason, sizeof row->reason, "the port is not active");
	else if (!p)
		snprintf(row->reason, sizeof row->reason, "%s", why);
	else if (!spri_verbs_allowed(p->settings.devices, row->device, row->port))
		snprintf(row->reason, sizeof row->reason, "SPR_RDMA_DEVICE is '%s'",
			 p->settings.devices);
	else
		snprintf(row->reason, sizeof row->reason,
			 "no interface address in use is its own (SPR_TCP_IF, SPR_RDMA_GID)");
}

/* A port as a context would open it; NULL with a reason. */
static struct verbs_port *open_port(const char *interfaces, struct spri_text *why)
{
	struct spri_port_options options = {.timeout_ns = SPRI_NS_PER_S, .interfaces = interfaces};
	struct spri_port *port = NULL;

	/* Asks first what can be told without librdmacm, which would print. */
	if (spri_verbs.listen(&options, &port, why) < 0)
		return NULL;
	return (struct verbs_port *)port;
}

int spri_rdma_ports(const char *interfaces, struct spri_rdma_port *rows, unsigned max,
		    struct spri_text *text)
{
	int n_devices = 0;
	struct ibv_device **list = ibv_get_device_list(&n_devices);
	struct spri_text why = {""};
	struct verbs_port *p;
	unsigned n = 0;

	if (!list || n_devices == 0) {
		int r = list || errno == ENOSYS ? 0 : spri_verbs_errno();

		if (list)
			ibv_free_device_list(list);
		spri_text_set(text, "%s", r ? spr_strerror(r) : "this machine has no RDMA device");
		return r;
	}
	for (int i = 0; i < n_devices; i++)
		n = list_device(list[i], rows, n, max);
	ibv_free_device_list(list);
	p = open_port(interfaces, &why);
	for (unsigned i = 0; i < n; i++)
		mark(&rows[i], p, why.s);
	if (p)
		spri_verbs_fini(&p->base);
	return (int)n;
}

/* ---- routes ---- */

/* Waits for rdma_cm's answer about an address. Returns 0, negative errno. */
static int await(struct rdma_event_channel *channel)
{
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	int r = poll(&ready, 1, RESOLVE_MS + 500);

	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	if (rdma_get_cm_event(channel, &event) != 0)
		return spri_verbs_errno();
	r = event->event == RDMA_CM_EVENT_ADDR_RESOLVED ? 0
	    : event->status < 0				? event->status
							: -EHOSTUNREACH;
	if (rdma_ack_cm_event(event) != 0 && r == 0)
		r = spri_verbs_errno();
	return r;
}

/* Does this place reach the peer? Returns 0, negative errno. */
static int resolve(const struct verbs_place *place, const struct spri_verbs_address *peer)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage from, to;
	struct rdma_cm_id *id = NULL;
	int r = channel ? 0 : spri_verbs_errno();

	spri_verbs_sockaddr(&place->address, 0, &from);
	spri_verbs_sockaddr(peer, 1, &to);
	if (r == 0 && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
		r = spri_verbs_errno();
	if (r == 0 && rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to,
					RESOLVE_MS) != 0)
		r = spri_verbs_errno();
	if (r == 0)
		r = await(channel);
	if (id)
		rdma_destroy_id(id);
	if (channel)
		rdma_destroy_event_channel(channel);
	return r;
}

static void list_route(const struct verbs_place *place, const struct spri_verbs_address *peer,
		       struct spri_route *row)
{
	int r;

	memset(row, 0, sizeof *row);
	snprintf(row->via, sizeof row->via, "%s port %u", place->device->name, place->port);
	if (!inet_ntop(place->address.family == 4 ? AF_INET : AF_INET6, place->address.host,
		       row->from, sizeof row->from))
		row->from[0] = '\0';
	r = place->address.family == peer->family ? resolve(place, peer) : -EAFNOSUPPORT;
	row->usable = r == 0;
	if (r == 0)
		snprintf(row->text, sizeof row->text, "%s, MTU %u",
			 place->address.kind == SPRI_VERBS_IWARP  ? "iWARP"
			 : place->address.kind == SPRI_VERBS_ROCE ? "RoCE"
								  : "InfiniBand",
			 128u << place->mtu);
	else
		snprintf(row->text, sizeof row->text, "from %s: %s", row->from, spr_strerror(r));
}

int spri_rdma_routes(const char *interfaces, const char *host, struct spri_route *rows,
		     unsigned max, struct spri_text *text)
{
	struct spri_verbs_address peer = {.family = 4};
	struct verbs_port *p;
	unsigned n = 0;

	if (inet_pton(AF_INET, host, peer.host) != 1) {
		peer.family = 6;
		if (inet_pton(AF_INET6, host, peer.host) != 1) {
			spri_text_set(text, "'%s' is no numeric address", host);
			return SPR_EARGUMENT;
		}
	}
	p = open_port(interfaces, text);
	if (!p)
		return 0;
	/* As a connection tries them: near ones first. */
	for (int near = 1; near >= 0; near--) {
		for (unsigned i = 0; i < p->n_places && n < max; i++) {
			const struct verbs_place *place = &p->places[p->order[i]];
			bool is = place->address.family == peer.family &&
				  spri_prefix_equal(place->address.host, peer.host, place->prefix);

			if (is == (near == 1))
				list_route(place, &peer, &rows[n++]);
		}
	}
	spri_verbs_fini(&p->base);
	return (int)n;
}

static int try_open(struct ibv_context *context, const char *name, const struct spri_memory *memory,
		    struct spri_text *text)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = pd ? spri_verbs_reg_mr(pd, memory) : NULL;
	int r = mr ? 0 : spri_verbs_errno();

	if (r < 0)
		spri_verbs_limits(r, name, memory->bytes, text);
	if (mr)
		(void)!ibv_dereg_mr(mr);
	if (pd)
		(void)!ibv_dealloc_pd(pd);
	return r;
}

int spri_rdma_try(const char *name, const struct spri_memory *memory, struct spri_text *text)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int r = devices ? -ENODEV : spri_verbs_errno();

	for (unsigned i = 0; devices && devices[i] && !context; i++) {
		if (strcmp(ibv_get_device_name(devices[i]), name) != 0)
			continue;
		context = ibv_open_device(devices[i]);
		r = context ? try_open(context, name, memory, text) : spri_verbs_errno();
	}
	if (!context)
		spri_text_set(text, "opening %s: %s", name, spr_strerror(r));
	if (context)
		(void)!ibv_close_device(context);
	if (devices)
		ibv_free_device_list(devices);
	return spri_trace(r);
}
