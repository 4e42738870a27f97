/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Registered memory, host's or GPU's: counted, with a cache of what comes again and again. */
#ifndef SPRI_REGISTRATION_H
#define SPRI_REGISTRATION_H

#include <context.h>
#include <ladder.h>
#include <staging.h>

/* Positive result of spri_memory_get: a NIC does not reach it, it has to be staged. */
#define SPRI_STAGE 2

struct spri_registration {
	struct spri_region *region;	/* owned */
	struct spri_gpu *gpu;		/* whose memory it is, opened; NULL: the host's */
	enum spri_rung rung;		/* for GPU memory */
	uint64_t buffer_id;		/* of the GPU's allocation: its address may come again */
	uint32_t users;			/* gets without a put; 0: kept for the next get */
	struct spri_registration *next; /* in the context's list */
};

/*
 * Registers memory with the context's transport, or finds that it is registered. Source memory
 * (SPRI_ACCESS_LOCAL) of a GPU stays registered after its last put, as long as its allocation
 * lives, for a while; nothing else does, since a peer must not reach what was unregistered, and
 * since the host may put other pages behind an address. Lock held.
 *
 * Returns: 0; SPRI_STAGE: GPU memory that no direct rung takes, `text` has the reasons (under
 * SPR_GPUDIRECT=require that is SPR_EUNSUPPORTED); SPR_EARGUMENT: not all of it is one
 * allocation's; negative errno, SPR_EDEVICE. Failures have a text, too.
 */
int spri_memory_get(struct spr_context *context, void *base, size_t bytes, unsigned access,
		    struct spri_registration **out, struct spri_text *text) SPRI_MUST;
/* Accepts NULL. No write may be using it. Lock held. */
void spri_memory_put(struct spr_context *context, struct spri_registration *registration);
/* Ends what is kept without a user: before the port goes. Lock held. */
void spri_memory_forget(struct spr_context *context);
/* The one log line of a context that stages, whatever it stages. Lock held. */
void spri_memory_staged(struct spr_context *context, const struct spri_text *why);
/*
 * What NICs wrote to memory of this GPU before is visible to kernels launched after. Before a
 * completion is handed out. Returns 0 or SPR_EDEVICE.
 */
int spri_memory_flush(struct spri_gpu *gpu) SPRI_MUST;

/* Host memory of the library's own; the log has the text of a failure. Undone by unregister. */
int spri_memory_host(struct spr_context *context, void *base, size_t bytes, unsigned access,
		     struct spri_region **out) SPRI_MUST;

/* What stands behind the public name. */
struct spr_memory {
	struct spr_context *context;
	struct spri_registration *registration; /* NULL: staged */
	struct spri_staging *staging;		/* owned; NULL: not staged */
	struct spri_region *region;		/* its */
};

#endif
