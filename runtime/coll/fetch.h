/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Operations whose arguments are in a GPU's memory: what they read is fetched to pinned host
 * memory, lists and masks before they start, a dense vector while it is summed already; and a dense
 * result is put back when they end.
 */
#ifndef SPRI_FETCH_H
#define SPRI_FETCH_H

#include <coll/coll.h>

/*
 * For an operation with all arguments set, pointers of GPU `device`, before it is launched: makes
 * them host memory. `theirs` is the caller's stream. Blocks: while a list or a mask is copied.
 * Returns 0; SPR_EARGUMENT, SPR_EUNSUPPORTED, SPR_EDEVICE, -ENOMEM, with which to launch it. Lock
 * held.
 */
int spri_fetch(struct spri_op *op, int device, void *theirs) SPRI_MUST;
/* Copies are under way: the operation is to be stepped again though nothing arrives. */
bool spri_fetch_pending(const struct spri_op *op);
/* What fetch allocated; accepts an operation without. Lock held. */
void spri_fetch_free(struct spri_op *op);

#endif
