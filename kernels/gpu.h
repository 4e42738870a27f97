/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Kernels on the GPU: whether this build has them. cuda_none.c answers in builds without. */
#ifndef SPRI_GPU_H
#define SPRI_GPU_H

#include <internal/compiler.h>
#include <internal/error.h>

/*
 * Can this build and machine run kernels on a GPU? Returns 0, or SPR_EUNSUPPORTED with the reason.
 */
int spri_gpu_probe(struct spri_text *why) SPRI_MUST;

#endif
