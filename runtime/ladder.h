/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The ladder of GPU memory: the best way for a NIC to reach it, and why not a better one.
 *
 *   dma-buf       the driver exports the pages, the NIC's driver imports them
 *   peer memory   a module of the GPU's driver answers when the NIC's asks for the pages
 *   staging       the NIC sees pinned host memory only, and the GPU copies
 */
#ifndef SPRI_LADDER_H
#define SPRI_LADDER_H

#include <internal/error.h>
#include <kernel.h>
#include <transport.h>

enum spri_rung { SPRI_RUNG_DMA_BUF, SPRI_RUNG_PEER, SPRI_RUNG_STAGING };
/* "dma-buf", "peer memory", "staging"; static. */
const char *spri_rung_name(enum spri_rung rung);

/* SPR_GPUDIRECT, in the order of its words. */
enum spri_gpudirect { SPRI_GPUDIRECT_PREFER, SPRI_GPUDIRECT_REQUIRE, SPRI_GPUDIRECT_FORBID };
/* Returns 0; SPR_EENVIRONMENT with a text. */
int spri_gpudirect(enum spri_gpudirect *out, struct spri_text *text) SPRI_MUST;

/*
 * Whoever takes the memory: a port, or the trial of one NIC for listings. As register_ of a
 * transport; what it returns ends the climb when it is 0.
 */
typedef int (*spri_take_fn)(void *arg, const struct spri_memory *memory, struct spri_text *text);

struct spri_ladder {
	const char *transport; /* its name */
	bool takes_devices;    /* SPRI_CAP_DEVICE_MEMORY */
	enum spri_gpudirect gpudirect;
	const char *root;  /* where sys/ and proc/ are: "", or a directory of a test's */
	spri_take_fn take; /* asked for a rung that nothing else speaks against */
	void *arg;
};

struct spri_climbed {
	enum spri_rung rung;
	/* why not: for each direct rung above the one taken; "" for the others */
	struct spri_text why[SPRI_RUNG_STAGING];
};

/* Tries the rungs from the best down. [base, base + bytes) is memory of the GPU. */
void spri_ladder_climb(const struct spri_ladder *ladder, struct spri_gpu *gpu, void *base,
		       size_t bytes, unsigned access, struct spri_climbed *out);
/* "dma-buf: ...; peer memory: ..." */
void spri_climbed_text(const struct spri_climbed *climbed, struct spri_text *out);

#endif
