/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What this build and machine have, what sparring would use, and why not the rest. Behind the
 * tool spr_info.
 */
#ifndef SPARRING_INFO_H
#define SPARRING_INFO_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum spr_info_kind {
	SPR_INFO_VERSION = 0,	 /* library, compiler, features */
	SPR_INFO_CPU = 1,	 /* instruction sets found, allowed */
	SPR_INFO_KERNELS = 2,	 /* each kernel: the variant in use */
	SPR_INFO_TRANSPORTS = 3, /* each transport: usable or why not */
	SPR_INFO_INTERFACES = 4, /* network interfaces and addresses: which would be used */
	SPR_INFO_ALGORITHMS = 5, /* each algorithm */
	SPR_INFO_VARIABLES = 6,	 /* each SPR_* variable; and unknown ones that are set */
	SPR_INFO_RDMA = 7,	 /* ports of RDMA devices and their GIDs: which would be used */
	/*
	 * each GPU, then for each GPU and RDMA device how the device reaches the GPU's memory
	 * (dma-buf, peer memory, staging), and why not better; it is tried
	 */
	SPR_INFO_GPUDIRECT = 8
};

/* One line of information; strings are borrowed during the call. */
struct spr_info_row {
	const char *name;
	const char *value;  /* "" when there is none */
	const char *source; /* variables: "environment", "default", "unknown"; others: "" */
	const char *detail; /* meaning, reason, or nearest known name */
	int chosen;	    /* 1: this one would be used */
};

typedef void (*spr_info_fn)(void *arg, const struct spr_info_row *row);

/* Calls fn for every row of one kind. Returns: 0; SPR_EARGUMENT, negative errno. */
SPR_API int spr_info_list(enum spr_info_kind kind, spr_info_fn fn, void *arg);

/*
 * How a peer at this numeric address would be reached: calls fn for every way, in the order in
 * which they are tried: the transport, the device or interface, and in detail the source address
 * or why it is of no use. Nothing is sent but what finds the peer's hardware address. Blocks: up
 * to 2.5 s for each RDMA address. Returns: 0; SPR_EARGUMENT, SPR_EENVIRONMENT, negative errno.
 */
SPR_API int spr_info_peer(const char *address, spr_info_fn fn, void *arg);

/* "0.1.0". Static storage. */
SPR_API const char *spr_version(void);

#ifdef __cplusplus
}
#endif
#endif
