/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A small network inside this machine, for root: one namespace per rank, joined by a bridge, each
 * link shaped to a rate in both directions. Nothing in it has a name outside this process: the
 * namespaces live as long as the descriptors and the processes in them, so the kernel removes all
 * of it when they end, however they end.
 *
 *     rank 0: eth0 10.87.0.1/24 ──veth── port0 ┐
 *     rank 1: eth0 10.87.0.2/24 ──veth── port1 ┼ bridge      tbf on both ends of every veth pair
 *     ...
 */
#ifndef PERF_NETBED_H
#define PERF_NETBED_H

#include <internal/compiler.h>

#define PERF_NETBED_MAX_RANKS 250
#define PERF_NETBED_ROOT "10.87.0.1:29500" /* for SPR_ROOT */

struct perf_netbed; /* netbed.c */

/*
 * Builds the network at `bytes_per_s` each way. Writes its reason to stderr when it cannot: not
 * root, no ip or tc, or the command that failed and what it said. Ownership: *out is given:
 * perf_netbed_destroy. Blocks: about 20 ms per rank.
 * Returns: 0, or -1 with nothing left behind.
 */
int perf_netbed_create(const char *tool, int n_ranks, double bytes_per_s,
		       struct perf_netbed **out) SPRI_MUST;

/* The namespace of a rank, for setns(fd, CLONE_NEWNET); close-on-exec, owned by the netbed. */
int perf_netbed_namespace(const struct perf_netbed *netbed, int rank);

/* Lets go of the namespaces; those without processes vanish. Accepts NULL. */
void perf_netbed_destroy(struct perf_netbed *netbed);

#endif
