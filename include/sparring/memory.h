/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Registered memory: what endpoints (endpoint.h) write from and into; the host's or a GPU's. */
#ifndef SPARRING_MEMORY_H
#define SPARRING_MEMORY_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct spr_memory;

/* What a registration allows. */
enum spr_access {
	SPR_ACCESS_LOCAL = 0,	    /* source of this process's writes */
	SPR_ACCESS_REMOTE_WRITE = 1 /* peers that were granted it may write to it, too */
};

/*
 * Registers `bytes` bytes at `base` with the context's transport. The memory is lent until
 * spr_memory_unregister. `base` may be a CUDA device pointer. RDMA: if the NIC reaches GPU memory,
 * by dma-buf or by the module nvidia_peermem; spr_info says whether, and why not. tcp: through a
 * pinned copy of its length; posts then block while their bytes are copied. The CUDA context of the
 * calling thread stays as it is. Ownership: *out is given. Blocks: no.
 * Returns: 0; SPR_EARGUMENT (also: GPU memory of more than one allocation); SPR_EUNSUPPORTED: no
 * NIC reaches this GPU memory; -ENOMEM (on RDMA devices also: the locked-memory limit), negative
 * errno. spr_context_error has the reasons.
 */
SPR_API int spr_memory_register(struct spr_context *context, void *base, size_t bytes,
				enum spr_access access, struct spr_memory **out);

/*
 * Ends a registration (a GPU's source memory may stay mapped for the NIC until the next one, or the
 * context's end); no write posted here may be using it. What was granted of it is void: later
 * writes by peers are refused. Accepts NULL.
 */
SPR_API void spr_memory_unregister(struct spr_memory *memory);

/*
 * Zeroed (host) or uninitialised memory (GPU: SPR_GPU(number) as `device`, 0: this rank's), for
 * tools and tests; programs have their own allocators, whose memory is as good. Ownership: *out is
 * given: spr_memory_free, with the same bytes, before the context is closed. Returns: 0;
 * SPR_EARGUMENT; SPR_EUNSUPPORTED (no such GPU, and why: spr_context_error); -ENOMEM.
 */
SPR_API int spr_memory_alloc(struct spr_context *context, enum spr_memory_kind kind, int device,
			     size_t bytes, void **out);
/* Accepts NULL. */
SPR_API void spr_memory_free(struct spr_context *context, void *p, size_t bytes);

/*
 * Copies between memory of any kinds, behind what the GPU's default stream was given before.
 * Blocks: until it is done. Returns: 0; SPR_EARGUMENT, SPR_EUNSUPPORTED, SPR_EDEVICE.
 */
SPR_API int spr_memory_copy(struct spr_context *context, void *to, const void *from, size_t bytes);

/*
 * How it is reached: "host", or for the memory of a GPU "dma-buf", "peer memory" or "staging".
 * Static storage.
 */
SPR_API const char *spr_memory_path(const struct spr_memory *memory);

#ifdef __cplusplus
}
#endif
#endif
