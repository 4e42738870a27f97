/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What a machine looks like, as a plain table: who is in or below what, and which CPUs are near.
 * Read by hwloc (topo.c), from this machine or from a file; topo_none.c answers in builds without.
 * seat.c decides by it, info_topology.c shows it.
 */
#ifndef SPRI_TOPO_H
#define SPRI_TOPO_H

#include <cpus.h>
#include <internal/error.h>

#define SPRI_TOPO_OBJECTS 320

enum spri_topo_kind {
	SPRI_TOPO_PACKAGE,
	SPRI_TOPO_NODE,	  /* NUMA node */
	SPRI_TOPO_BRIDGE, /* PCI: host bridge, or a bridge or switch with more than one child */
	SPRI_TOPO_GPU,
	SPRI_TOPO_NIC, /* a PCI function, or a device without one */
};

struct spri_topo_object {
	enum spri_topo_kind kind;
	int parent;	       /* what it is in or below, an earlier object; -1: the machine */
	unsigned depth;	       /* how many objects it is in or below */
	int number;	       /* package, node: the system's; GPU: the driver's, -1: not usable */
	char name[64];	       /* NIC: of the RDMA device, or else of an interface; GPU: model */
	char interfaces[64];   /* NIC: its network interfaces, with commas; "": none */
	char pci[16];	       /* GPU, NIC, bridge: 0000:3b:00.0; "": none */
	bool rdma;	       /* NIC: it has an RDMA device */
	bool down;	       /* NIC: an RDMA device without an active port */
	bool allowed;	       /* node: memory may be taken from it */
	struct spri_cpus cpus; /* GPU, NIC: those near; empty: not known */
	int node;	       /* GPU, NIC: nearest NUMA node; -1: not known */
};

struct spri_topo {
	struct spri_topo_object objects[SPRI_TOPO_OBJECTS]; /* each before what is in it */
	unsigned n;
	unsigned left_out;	 /* objects beyond the table */
	unsigned n_nodes;	 /* NUMA nodes */
	struct spri_cpus cpus;	 /* all */
	struct spri_cpus usable; /* all but those that a cgroup forbids */
	char source[96];	 /* where it comes from, or why there is so little */
};

/*
 * Reads the machine: this one (xml NULL), or a file as hwloc writes it (lstopo FILE.xml). GPUs of
 * this machine are not usable yet (number -1): affinity.c asks the driver; those of a file are
 * numbered by their place on the bus. Blocks: some 10 ms. Returns 0; SPR_EUNSUPPORTED (a file in a
 * build without hwloc), SPR_EARGUMENT (no such file, or it says something else), negative errno,
 * with a text.
 */
int spri_topo_read(const char *xml, struct spri_topo *out, struct spri_text *text) SPRI_MUST;

/*
 * A new object in or below `parent` (-1: the machine); NULL, and counted, when the table is full.
 */
struct spri_topo_object *spri_topo_add(struct spri_topo *topo, enum spri_topo_kind kind,
				       int parent) SPRI_MUST;
/* The nearest PCI bridge that two objects are below; -1: there is none. */
int spri_topo_bridge(const struct spri_topo *topo, int a, int b);
/* "switch 0000:17:00.0", "GPU 3 (0000:8a:00.0)": what it is called in sentences. */
void spri_topo_name(const struct spri_topo_object *object, char *out, size_t bytes);
/* The next object of a kind, from `from` on; -1: none. */
int spri_topo_next(const struct spri_topo *topo, enum spri_topo_kind kind, int from);

#endif
