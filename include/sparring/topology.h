/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the machine looks like, and which GPU, NIC, NUMA node and CPUs each local rank uses, with
 * the reasons. Behind spr_info --topology; the rules are in docs/affinity.md.
 */
#ifndef SPARRING_TOPOLOGY_H
#define SPARRING_TOPOLOGY_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum spr_topology_kind {
	SPR_TOPOLOGY_MACHINE = 0, /* the first row */
	SPR_TOPOLOGY_PACKAGE = 1, /* a processor */
	SPR_TOPOLOGY_NODE = 2,	  /* a NUMA node */
	SPR_TOPOLOGY_BRIDGE = 3,  /* of PCI: a host bridge or a switch */
	SPR_TOPOLOGY_GPU = 4,
	SPR_TOPOLOGY_NIC = 5,
	SPR_TOPOLOGY_RANK = 6, /* a local rank; the four decisions about it follow as: */
	SPR_TOPOLOGY_CHOICE = 7,
	SPR_TOPOLOGY_ERROR = 8 /* why there is no more; the last row */
};

/* One object or decision; strings are borrowed during the call. */
struct spr_topology_row {
	enum spr_topology_kind kind;
	int depth;	    /* it is in or below the nearest row before it that has a lower one */
	const char *name;   /* "NUMA node 0", "GPU 3", "mlx5_0"; choices: "GPU", "NIC", ... */
	const char *value;  /* PCI address, CPUs; choices: the name or CPUs chosen; "": none */
	const char *detail; /* more about it; choices and errors: why */
};

typedef void (*spr_topology_fn)(void *arg, const struct spr_topology_row *row);

/* Zero-initialise, set `size` to sizeof, then set what should differ. */
struct spr_topology_options {
	size_t size;
	const char *xml; /* NULL: this machine; else a file as hwloc's lstopo writes it */
	int local_size;	 /* ranks to decide for; 0: the environment's, else one for each GPU */
};

/*
 * Calls fn for every row. SPR_DEVICE, SPR_BIND, SPR_RDMA_DEVICE and SPR_TCP_IF count as they do in
 * a context. `options` may be NULL. Returns: 0; SPR_EARGUMENT (also a file that cannot be read),
 * SPR_EENVIRONMENT, SPR_EUNSUPPORTED (a file, in a build without hwloc), negative errno.
 */
SPR_API int spr_topology_list(const struct spr_topology_options *options, spr_topology_fn fn,
			      void *arg);

#ifdef __cplusplus
}
#endif
#endif
