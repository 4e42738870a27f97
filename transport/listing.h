/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What RDMA devices there are, and how a peer would be reached: for listings alone. */
#ifndef SPRI_LISTING_H
#define SPRI_LISTING_H

#include <internal/compiler.h>
#include <internal/error.h>

/* ---- RDMA devices (verbs_list.c; none in a build without verbs), for listings ---- */

#define SPRI_RDMA_GIDS 16

struct spri_rdma_gid {
	unsigned index;
	const char *type;   /* "RoCE v2"; static */
	char text[48];	    /* as an IPv6 address */
	char interface[16]; /* "" when there is none */
};

/* A port of a device. What could not be asked is 0. */
struct spri_rdma_port {
	char device[64];
	unsigned port;
	char state[24];	  /* of libibverbs: "PORT_ACTIVE" */
	const char *link; /* "RoCE", "InfiniBand", "iWARP"; static */
	bool active;
	unsigned mtu;	      /* active, bytes */
	uint32_t max_message; /* bytes */
	int max_qp, max_qp_wr, max_cqe, max_mr;
	uint64_t max_mr_bytes;
	unsigned n_gids; /* the first SPRI_RDMA_GIDS that are set */
	struct spri_rdma_gid gids[SPRI_RDMA_GIDS];
	bool used;	  /* verbs would listen on it */
	char reason[160]; /* why it is not used; "" when it is */
};

/*
 * Lists the ports of RDMA devices; `interfaces` as in spri_port_options. Writes at most max rows.
 * Blocks: while devices are opened. Returns the number of rows (0: the text says why there are
 * none), negative errno.
 */
int spri_rdma_ports(const char *interfaces, struct spri_rdma_port *rows, unsigned max,
		    struct spri_text *text);

struct spri_memory;
/*
 * Would this device take this memory? Registers it and ends that again. Blocks: while the device
 * is opened. Returns as register_ of a transport, with a text.
 */
int spri_rdma_try(const char *device, const struct spri_memory *memory, struct spri_text *text);

/* ---- how a peer would be reached, for listings ---- */

struct spri_route {
	bool usable;
	char via[80];	/* "rxe0 port 1", "eth0" */
	char from[64];	/* source address, numeric */
	char text[160]; /* more about it, or why it is not usable */
};

/*
 * verbs' routes to a numeric address, in the order in which they are tried. Blocks: up to 2.5 s
 * for each. Returns the number of rows (0: the text says why there are none), SPR_EARGUMENT,
 * negative errno.
 */
int spri_rdma_routes(const char *interfaces, const char *host, struct spri_route *rows,
		     unsigned max, struct spri_text *text);
/* tcp's, as the kernel has it (tcp_route.c). Returns 0, SPR_EARGUMENT, SPR_EENVIRONMENT. */
int spri_tcp_route(const char *interfaces, const char *host, struct spri_route *out,
		   struct spri_text *text);

#endif
