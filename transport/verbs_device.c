/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The devices and addresses of a port. The way in is the address: rdma_cm speaks in IP addresses on
 * InfiniBand (IPoIB), RoCE and iWARP alike, and knows the device and port behind each of them.
 *
 *   1. Interface addresses as tcp chooses them (the same filter).
 *   2. rdma_cm binds to each: the kernel says which device and port has it, or that none has.
 *   3. SPR_RDMA_DEVICE, an active port, and SPR_RDMA_GID decide about each.
 *   4. The device is opened (once), the address listened on.
 *
 * The device is opened anew, beside the one that librdmacm keeps: its events then are of this
 * port's queue pairs alone.
 *
 * Failures: an address that is of no use is left out, with a line in the log; none left fails
 * listen(), with the last reason.
 */
#include "tcp_interfaces.h"
#include "verbs.h"

#include <internal/clock.h>
#include <internal/log.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define INTERFACES 64
#define BACKLOG 1024
#define RXE_VENDOR 0xffffff
#define LISTEN_TRIES 8 /* iWARP shares port numbers with TCP */

void spri_verbs_sockaddr(const struct spri_verbs_address *a, uint16_t port,
			 struct sockaddr_storage *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof *out);
	if (a->family == 4) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, a->host, 4);
	} else {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		memcpy(&v6->sin6_addr, a->host, 16);
	}
}

static bool same_place(const struct verbs_place *place, const struct rdma_cm_id *cm)
{
	const struct sockaddr *at = rdma_get_local_addr((struct rdma_cm_id *)(uintptr_t)cm);
	const void *host = at->sa_family == AF_INET
				   ? (const void *)&((const struct sockaddr_in *)at)->sin_addr
				   : (const void *)&((const struct sockaddr_in6 *)at)->sin6_addr;

	return at->sa_family == (place->address.family == 4 ? AF_INET : AF_INET6) &&
	       memcmp(host, place->address.host, place->address.family == 4 ? 4 : 16) == 0;
}

struct verbs_place *spri_verbs_place(struct verbs_port *p, const struct rdma_cm_id *cm)
{
	const char *name = cm->verbs ? ibv_get_device_name(cm->verbs->device) : NULL;
	struct verbs_place *other = NULL;

	for (unsigned i = 0; i < p->n_places && name; i++) {
		struct verbs_place *place = &p->places[i];

		if (place->device->gone || place->port != cm->port_num ||
		    strcmp(place->device->name, name) != 0)
			continue;
		if (same_place(place, cm))
			return place;
		other = place;
	}
	return other;
}

/* ---- devices ---- */

static int nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return spri_trace(-errno);
	return 0;
}

static void close_device(struct verbs_device *d)
{
	if (d->channel && ibv_destroy_comp_channel(d->channel) != 0)
		spri_logf(SPR_LOG_WARN, "verbs: %s: its completion channel is in use", d->name);
	if (d->pd && ibv_dealloc_pd(d->pd) != 0)
		spri_logf(SPR_LOG_WARN, "verbs: %s: its protection domain is in use", d->name);
	if (d->context && ibv_close_device(d->context) != 0)
		spri_logf(SPR_LOG_WARN, "verbs: %s: it is in use", d->name);
	memset(d, 0, sizeof *d);
}

/* Fills an open device. What was made is undone by close_device(). */
static int set_up_device(struct verbs_port *p, struct verbs_device *d)
{
	int r = spri_verbs_value(ibv_query_device(d->context, &d->attr));

	if (r < 0)
		return spri_trace(r);
	d->iwarp = d->context->device->transport_type == IBV_TRANSPORT_IWARP;
	d->soft = d->attr.vendor_id == RXE_VENDOR;
	d->pd = ibv_alloc_pd(d->context);
	if (!d->pd)
		return spri_trace(spri_verbs_errno());
	d->channel = ibv_create_comp_channel(d->context);
	if (!d->channel)
		return spri_trace(spri_verbs_errno());
	r = nonblocking(d->channel->fd);
	if (r == 0)
		r = nonblocking(d->context->async_fd);
	if (r == 0)
		r = spri_verbs_watch(p, d->channel->fd, &d->completions);
	if (r == 0)
		r = spri_verbs_watch(p, d->context->async_fd, &d->async);
	return spri_trace(r);
}

/* The device behind librdmacm's context, opened if it was not. NULL: `text` says why. */
static struct verbs_device *device_for(struct verbs_port *p, struct ibv_context *theirs,
				       struct spri_text *text)
{
	const char *name = ibv_get_device_name(theirs->device);
	struct verbs_device *d;
	int r;

	for (unsigned i = 0; i < p->n_devices; i++)
		if (strcmp(p->devices[i].name, name) == 0)
			return &p->devices[i];
	if (p->n_devices == VERBS_DEVICES) {
		spri_text_set(text, "%s: %d devices are in use already (SPR_RDMA_DEVICE chooses)",
			      name, VERBS_DEVICES);
		return NULL;
	}
	d = &p->devices[p->n_devices];
	memset(d, 0, sizeof *d);
	d->completions.kind = VERBS_COMPLETIONS;
	d->async.kind = VERBS_ASYNC;
	d->port = p;
	d->index = p->n_devices;
	snprintf(d->name, sizeof d->name, "%s", name);
	d->context = ibv_open_device(theirs->device);
	r = d->context ? set_up_device(p, d) : spri_verbs_errno();
	if (r < 0) {
		spri_text_set(text, "%s: opening it: %s", name, spr_strerror(r));
		close_device(d);
		return NULL;
	}
	p->n_devices++;
	return d;
}

/* ---- places ---- */

/* SPR_RDMA_GID: the GID must exist, and be this address (InfiniBand's is another thing). */
static bool gid_fits(struct verbs_port *p, struct verbs_place *place, const char *device,
		     struct ibv_context *context, struct spri_text *text)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, none[16];
	union ibv_gid gid;
	bool same;

	if (p->settings.gid < 0 || place->address.kind == SPRI_VERBS_IWARP)
		return true;
	if (ibv_query_gid(context, place->port, p->settings.gid, &gid) != 0 ||
	    memcmp(gid.raw, none, sizeof none) == 0) {
		spri_text_set(text, "SPR_RDMA_GID is %d, but %s port %u has no such GID",
			      p->settings.gid, device, place->port);
		return false;
	}
	if (place->address.kind == SPRI_VERBS_IB)
		return true;
	same = place->address.family == 6
		       ? memcmp(gid.raw, place->address.host, 16) == 0
		       : memcmp(gid.raw, mapped, 12) == 0 &&
				 memcmp(gid.raw + 12, place->address.host, 4) == 0;
	if (!same)
		spri_text_set(text, "SPR_RDMA_GID is %d, and that GID of %s port %u is not it",
			      p->settings.gid, device, place->port);
	return same;
}

/* Is the port of use? Fills what it says about itself. */
static bool port_fits(struct verbs_port *p, struct verbs_place *place, struct ibv_context *context,
		      struct spri_text *text)
{
	const char *device = ibv_get_device_name(context->device);
	struct ibv_port_attr attr;
	int r = spri_verbs_value(ibv_query_port(context, place->port, &attr));

	if (r < 0) {
		spri_text_set(text, "%s port %u: %s", device, place->port, spr_strerror(r));
		return false;
	}
	if (!spri_verbs_allowed(p->settings.devices, device, place->port)) {
		spri_text_set(text, "%s port %u: SPR_RDMA_DEVICE is '%s'", device, place->port,
			      p->settings.devices);
		return false;
	}
	if (attr.state != IBV_PORT_ACTIVE) {
		spri_text_set(text, "%s port %u is not active (%s)", device, place->port,
			      ibv_port_state_str(attr.state));
		return false;
	}
	place->mtu = (uint8_t)attr.active_mtu;
	place->max_message = attr.max_msg_sz ? attr.max_msg_sz : 1u << 20;
	place->address.kind = context->device->transport_type == IBV_TRANSPORT_IWARP
				      ? SPRI_VERBS_IWARP
			      : attr.link_layer == IBV_LINK_LAYER_ETHERNET ? SPRI_VERBS_ROCE
									   : SPRI_VERBS_IB;
	return gid_fits(p, place, device, context, text);
}

/* Binds to the address; the kernel chooses the port number when it listens. */
static int bind_place(struct verbs_port *p, struct verbs_place *place)
{
	struct sockaddr_storage at;

	spri_verbs_sockaddr(&place->address, 0, &at);
	if (rdma_create_id(p->cm, &place->listener, &place->source, RDMA_PS_TCP) != 0) {
		place->listener = NULL;
		return spri_trace(spri_verbs_errno());
	}
	if (rdma_bind_addr(place->listener, (struct sockaddr *)&at) != 0)
		return spri_verbs_errno();
	return place->listener->verbs ? 0 : -ENODEV;
}

static void unbind_place(struct verbs_place *place)
{
	if (place->listener)
		rdma_destroy_id(place->listener);
	place->listener = NULL;
}

/* One address. Returns false when it is of no use: `text` says why. */
static bool open_place(struct verbs_port *p, const struct spri_interface *row,
		       struct spri_text *text)
{
	struct verbs_place *place = &p->places[p->n_places];
	int r = 0;

	memset(place, 0, sizeof *place);
	place->source.kind = VERBS_LISTENER;
	place->prefix = row->prefix;
	place->down_until_ns = SPRI_NEVER;
	place->address.family = row->family == AF_INET ? 4 : 6;
	if (spri_interface_bytes(row, place->address.host) == 0)
		return false;
	for (unsigned try = 0; try < LISTEN_TRIES; try++) {
		r = bind_place(p, place);
		if (r == -ENODEV || r == -EADDRNOTAVAIL)
			spri_text_set(text, "no RDMA device has this address");
		else if (r < 0)
			spri_text_set(text, "binding to it: %s", spr_strerror(r));
		if (r < 0)
			break;
		place->port = place->listener->port_num;
		if (!port_fits(p, place, place->listener->verbs, text))
			break;
		place->device = device_for(p, place->listener->verbs, text);
		if (!place->device)
			break;
		if (rdma_listen(place->listener, BACKLOG) == 0) {
			place->address.port = ntohs(rdma_get_src_port(place->listener));
			p->n_places++;
			return true;
		}
		r = spri_verbs_errno();
		spri_text_set(text, "listening on it: %s", spr_strerror(r));
		if (r != -EADDRINUSE)
			break;
		unbind_place(place);
	}
	unbind_place(place);
	return false;
}

/* Counts the device's active ports; names one that is not. */
static unsigned active_ports(struct ibv_device *device, struct spri_text *text)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	unsigned n = 0;

	if (!context)
		return 0;
	if (ibv_query_device(context, &attr) != 0)
		attr.phys_port_cnt = 0;
	for (uint8_t i = 1; i <= attr.phys_port_cnt; i++) {
		if (ibv_query_port(context, i, &port) != 0)
			continue;
		if (port.state == IBV_PORT_ACTIVE)
			n++;
		else
			spri_text_set(text, "no active port: %s port %u is %s",
				      ibv_get_device_name(device), i,
				      ibv_port_state_str(port.state));
	}
	ibv_close_device(context);
	return n;
}

/* When no port of any device is active, that says more than what the addresses lack. */
static void explain(struct spri_text *text)
{
	struct spri_text why = {0};
	struct ibv_device **list = ibv_get_device_list(NULL);
	unsigned n = 0;

	for (unsigned i = 0; list && list[i]; i++)
		n += active_ports(list[i], &why);
	if (list)
		ibv_free_device_list(list);
	if (n == 0 && why.s[0])
		*text = why;
}

/* Puts the last place, whose device is known now, where it belongs in the order. */
static void take_turn(struct verbs_port *p, const char *devices)
{
	unsigned at = p->n_places - 1;
	struct verbs_place *place = &p->places[at];

	place->turn = spri_verbs_turn(devices, place->device->name);
	for (; at > 0 && p->places[p->order[at - 1]].turn > place->turn; at--)
		p->order[at] = p->order[at - 1];
	p->order[at] = (uint8_t)(p->n_places - 1);
}

int spri_verbs_open_places(struct verbs_port *p, const struct spri_port_options *options,
			   struct spri_text *text)
{
	struct spri_interface rows[INTERFACES];
	struct spri_text why = {0};
	int n = spri_interfaces(options->interfaces, rows, INTERFACES, text);

	if (n < 0) {
		explain(text);
		return spri_trace(n);
	}
	spri_text_set(text, "no usable interface address");
	for (int i = 0; i < n; i++) {
		if (!rows[i].used)
			continue;
		if (p->n_places == VERBS_PLACES) {
			spri_logf(SPR_LOG_WARN, "verbs: %s %s is left out: %d addresses are enough",
				  rows[i].name, rows[i].address, VERBS_PLACES);
			continue;
		}
		if (open_place(p, &rows[i], &why)) {
			take_turn(p, options->devices);
			continue;
		}
		spri_text_set(text, "%s %s: %s", rows[i].name, rows[i].address, why.s);
		spri_logf(SPR_LOG_INFO, "verbs: %s", text->s);
	}
	if (p->n_places > 0)
		return 0;
	explain(text);
	return spri_trace(SPR_EUNSUPPORTED);
}

void spri_verbs_shut(struct verbs_port *p)
{
	for (unsigned i = 0; i < p->n_places; i++)
		unbind_place(&p->places[i]);
	p->n_places = 0;
	while (p->n_devices > 0)
		close_device(&p->devices[--p->n_devices]);
}
