/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * GPU memory on a transport that moves host memory: a pinned copy of its length is registered in
 * its place. What is sent is copied there before it is posted; what arrives is copied to the GPU
 * before its notification is handed out.
 */
#ifndef SPRI_STAGING_H
#define SPRI_STAGING_H

#include <context.h>

struct spri_staging;

/*
 * For [base, base + bytes) of one GPU's memory. Ownership: *out is given (close). Returns 0;
 * SPR_EUNSUPPORTED: the transport does not tell where a peer wrote; -ENOMEM, SPR_EDEVICE, negative
 * errno, with a text. Lock held.
 */
int spri_staging_open(struct spr_context *context, void *base, size_t bytes, unsigned access,
		      struct spri_staging **out, struct spri_text *text) SPRI_MUST;
/* Accepts NULL. No write may be using it. Lock held. */
void spri_staging_close(struct spri_staging *staging);
/* What is registered. */
struct spri_region *spri_staging_region(const struct spri_staging *staging);
/*
 * Copies [base, base + bytes) of the GPU's memory, and says where it is now. Blocks: until it is
 * copied. Returns 0; SPR_EARGUMENT: not within; SPR_EDEVICE. Lock held.
 */
int spri_staging_take(struct spri_staging *staging, const void *base, size_t bytes,
		      const void **host) SPRI_MUST;

#endif
