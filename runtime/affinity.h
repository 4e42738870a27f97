/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * This process on this machine: what seat.h needs to know, and what is done with its decision.
 * Threads: any.
 */
#ifndef SPRI_AFFINITY_H
#define SPRI_AFFINITY_H

#include <seat.h>

/*
 * This machine with the GPUs that this process may use; read once per process. Static. A machine
 * that cannot be read is one of which nothing is known; its `source` says why. Blocks: the first
 * time, some 10 ms; longer where a GPU's driver starts.
 */
const struct spri_topo *spri_affinity_machine(void);

/*
 * What the environment and the system say about this process; strings are the environment's.
 * *from as spri_env_local. Returns 0, SPR_EENVIRONMENT with a text.
 */
int spri_affinity_request(struct spri_seat_request *out, const char **from,
			  struct spri_text *text) SPRI_MUST;

/* Decides for this process. Returns 0, SPR_EENVIRONMENT with a text. */
int spri_affinity_decide(struct spri_seat *out, struct spri_text *text) SPRI_MUST;

/* Binds the calling thread as decided; a refusal is logged. */
void spri_affinity_bind(const struct spri_seat *seat);
/*
 * Pages that nobody has touched yet shall come from the node decided on, as long as it has some; a
 * refusal is logged once.
 */
void spri_affinity_pages(const struct spri_seat *seat, void *pages, size_t bytes);

#endif
