/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Pinned memory that a GPU sees, too: the same bytes here and there. Zeroed: there is none. */
#ifndef SPRI_MAPPED_H
#define SPRI_MAPPED_H

#include <kernel.h>

struct spri_mapped {
	uint8_t *host; /* owned */
	uint8_t *there;
	size_t bytes;
};

/*
 * Room for so many bytes, at least some. Contents are lost when it moves; nothing on the device may
 * be using it. Returns 0 or -ENOMEM: there is none then.
 */
int spri_mapped_fit(struct spri_gpu *gpu, struct spri_mapped *mapped, size_t bytes) SPRI_MUST;
void spri_mapped_free(struct spri_gpu *gpu, struct spri_mapped *mapped);

#endif
