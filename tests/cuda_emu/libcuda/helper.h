/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What the tests over the stand-in driver share. */
#ifndef SPR_TESTS_GPU_HELPER_H
#define SPR_TESTS_GPU_HELPER_H

#include "check.h"

#include <cuda.h>
#include <gpu.h>
#include <stdlib.h>
#include <string.h>

/* Device i, open; skips the test where there is no driver at all. */
struct spri_gpu *open_gpu(unsigned i);
struct spri_gpu_stream *make_stream(struct spri_gpu *gpu);
/* A function of the driver that the library uses, as a user of CUDA calls it. */
void *driver_call(const char *name);
/* The context that is current in this thread. */
CUcontext current_context(void);
/* Copies to the host and waits. */
void fetch(struct spri_gpu_stream *stream, void *to, const void *from, size_t bytes);

#endif
