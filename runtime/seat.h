/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Where a rank belongs: which GPU, which NIC, which NUMA node for its landing slots, which CPUs for
 * its progress thread; each with the sentence that says why. A pure function of the machine and of
 * what is asked for, so that every rank, a listing, and a test on a recorded machine come to the
 * same result. The rules are in docs/affinity.md.
 */
#ifndef SPRI_SEAT_H
#define SPRI_SEAT_H

#include <topo.h>

#define SPRI_SEAT_WHY 224

/* What is asked for. Strings are borrowed. */
struct spri_seat_request {
	uint32_t local_rank;	  /* among the ranks of this machine */
	uint32_t local_size;	  /* how many these are, at least 1 */
	struct spri_cpus allowed; /* CPUs that this process may use */
	const char *device;	  /* SPR_DEVICE; NULL: not set, as the following */
	const char *bind;	  /* SPR_BIND */
	const char *rdma_devices; /* SPR_RDMA_DEVICE: decides about RDMA devices */
	const char *interfaces;	  /* SPR_TCP_IF: decides about NICs without one */
};

struct spri_seat {
	int gpu;	       /* object of the table; -1: none */
	int nic;	       /* object of the table; -1: none, or one that the table lacks */
	int node;	       /* of the system; -1: wherever the first touch puts it */
	bool bind;	       /* the progress thread is bound to `cpus` */
	struct spri_cpus cpus; /* what it may run on; not bound: all allowed */
	/*
	 * RDMA devices for the transport, the best first, with commas; "": all alike, or
	 * SPR_RDMA_DEVICE is set
	 */
	char devices[256];
	char gpu_why[SPRI_SEAT_WHY];
	char nic_why[SPRI_SEAT_WHY];
	char node_why[SPRI_SEAT_WHY];
	char cpus_why[SPRI_SEAT_WHY];
};

/*
 * Decides. Returns 0; SPR_EENVIRONMENT with a text that names the variable, what it is, and what
 * there is to choose from.
 */
int spri_seat_decide(const struct spri_topo *topo, const struct spri_seat_request *request,
		     struct spri_seat *out, struct spri_text *text) SPRI_MUST;

#endif
