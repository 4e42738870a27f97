/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Registered memory, as the transport contract has it (transport.h). */
#ifndef SPRI_REGION_H
#define SPRI_REGION_H

#include <internal/compiler.h>

struct spri_port;

/* The base of every region; implementations put it first. */
struct spri_region {
	struct spri_port *port;
	void *base; /* first byte, as registered */
	size_t bytes;
	unsigned access; /* SPRI_ACCESS_* */
	bool device;	 /* the processor cannot reach it */
	/* called for what a peer wrote, before its notification; NULL: nobody asks */
	int (*landed)(void *arg, void *at, size_t bytes);
	void *landed_arg;
};

enum {
	SPRI_ACCESS_LOCAL = 0,	      /* source of writes only */
	SPRI_ACCESS_REMOTE_WRITE = 1, /* peers that were granted it may write */
};

/* What to register. Host memory leaves the last three as they are when zeroed. */
struct spri_memory {
	void *base;
	size_t bytes;
	unsigned access; /* SPRI_ACCESS_* */
	/*
	 * It is the memory of a GPU, say: the transport hands it to the NIC and touches it not.
	 * Either a dma-buf holds it (dma_buf ≥ 0, borrowed during register_), base at `offset`, or
	 * the NIC's driver finds the pages of the address by itself (−1).
	 */
	bool device;
	int dma_buf;
	uint64_t offset;
	/*
	 * SPRI_CAP_LANDED: every write by a peer is told, when it is whole and before its NOTIFY.
	 * Returns 0; negative: the connection is lost with it. NULL: nobody asks.
	 */
	int (*landed)(void *arg, void *at, size_t bytes);
	void *landed_arg;
};

#endif
