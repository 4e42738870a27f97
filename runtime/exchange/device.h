/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* An exchange whose vectors are in a GPU's memory. Private to device.c and device_commit.c. */
#ifndef SPRI_DEVICE_H
#define SPRI_DEVICE_H

#include <mapped.h>

#include "exchange.h"

struct exchange_device {
	struct spri_gpu *gpu; /* the context's; below all but theirs are owned */
	struct spri_gpu_stream *select, *side;
	void *theirs;		  /* the caller's stream */
	struct spri_mapped flags; /* of the chunks of a selection */
	struct spri_mapped word;  /* what a kernel tells: a result, a number */
	struct spri_mapped stage; /* lists on their way to the side */
	size_t staged;		  /* pieces of it in use until the next begin */
	uint32_t sequence;	  /* of the last selection */
	int failed;		  /* of this commit */
	bool told;		  /* a failure of this step, or call, is in the log */
};

/* The stage: pieces of so many entries, indices and then values. */
#define SPRI_STAGE_PIECE ((size_t)16384)
#define SPRI_STAGE_PIECES 8

/* What the driver said when one of the streams failed. */
const char *spri_device_words(const struct exchange_device *d);

/* ---- device_memory.c: likewise, slots ---- */

int spri_device_alloc(struct spr_exchange *exchange, size_t bytes, float **out) SPRI_MUST;
void spri_device_free(struct spr_exchange *exchange, float *v, size_t bytes);
int spri_device_alloc_host(struct spr_exchange *exchange, size_t bytes, float **out) SPRI_MUST;
void spri_device_free_host(struct spr_exchange *exchange, float *v, size_t bytes);
void spri_device_unfit(struct spr_exchange *exchange, struct exchange_part *part);
int spri_device_fit(struct spr_exchange *exchange, struct exchange_part *part,
		    uint64_t n) SPRI_MUST;

/* ---- device_commit.c: slots of struct exchange_place that run under the lock ---- */

int spri_device_begin(struct spr_exchange *exchange) SPRI_MUST;
int spri_device_gather(struct spri_op *op, const uint64_t *index, uint64_t n, float *to) SPRI_MUST;
void spri_device_take_out(struct spr_exchange *exchange, struct exchange_part *part);
void spri_device_put_back(struct spr_exchange *exchange, struct exchange_part *part);
void spri_device_adopt(struct spr_exchange *exchange, struct exchange_part *part);
int spri_device_update(struct spr_exchange *exchange, float factor) SPRI_MUST;

#endif
