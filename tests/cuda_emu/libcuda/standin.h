/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The stand-in for the CUDA driver: a libcuda.so.1 for tests, found by LD_LIBRARY_PATH, that serves
 * the calls the library makes on machines without a GPU.
 *
 *   memory    a memfd per device, mapped twice: where device pointers point, no access but while a
 *             kernel runs (whoever reads device memory on the host dies of SIGSEGV), and once for
 *             the stand-in itself. New memory is full of 0xff, freed memory is used again first.
 *             Mapped host memory is the second mapping; its device pointer differs from it
 *   streams   a thread each, in order, with random small delays; kernels by the emulator (emu.h)
 *   contexts  a stack per thread; calls that need one refuse without
 *   fork      any call in a child ends it: the real driver's behaviour is then undefined
 *
 * It is stricter than the driver: events and streams of different contexts do not mix. It lacks the
 * default stream's implicit order with others.
 *
 * Environment, read at each use:
 *   EMU_CUDA_DEVICES=N         devices, 1; 0: cuInit finds none
 *   EMU_CUDA_VERSION=V         of the driver, as 12040
 *   EMU_CUDA_BYTES=N           of each device's memory, 4 GiB
 *   EMU_CUDA_PCI=ID,ID         their bus ids
 *   EMU_CUDA_ATTRIBUTES=A=V,.. device attributes by number
 *   EMU_CUDA_HOST_ACCESS=1     device memory is always accessible: a NIC's driver pins its pages
 *   EMU_CUDA_ANY_FD=1          a dma-buf is some descriptor: where nothing will look into it
 *   EMU_CUDA_SEED=N            of the delays and the emulator
 *   EMU_CUDA_FAIL=CALL:N:CODE  the N-th CALL (0: each) returns CODE; "run": the N-th work queued
 *                              fails when it runs, and the context with it
 */
#ifndef SPR_TESTS_STANDIN_H
#define SPR_TESTS_STANDIN_H

#include <cuda.h>
#include <internal/compiler.h>
#include <pthread.h>

enum { MOST_DEVICES = 16, MOST_CONTEXTS = 32 };

/* One piece of a device's memory. */
struct piece {
	struct piece *next; /* by offset */
	size_t offset, bytes;
	unsigned long long id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
	bool mapped;	       /* host memory */
	bool synchronous;      /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS was set */
};

struct CUctx_st {
	int device;
	int users;	 /* cuDevicePrimaryCtxRetain less Release */
	CUresult sticky; /* what broke it */
	CUstream none;	 /* the default stream, made by its first use */
};

struct device {
	struct CUctx_st context;
	int fd; /* of its memory */
	bool ready;
	size_t bytes, high; /* of the memory; end of what was ever in use */
	char *device;	    /* where device pointers point */
	char *host;	    /* the same memory, always accessible */
	struct piece *pieces;
};

/* Guards all of the stand-in's state. */
extern pthread_mutex_t standin_lock;
extern struct device standin_devices[MOST_DEVICES];

/* A variable as a number. */
unsigned long long standin_number(const char *variable, unsigned long long fallback);
/*
 * What every call begins with: fork, initialisation, the failure asked for. `call` is __func__
 * ("_v2" is cut off); context: the current one is wanted.
 */
CUresult standin_begin(const char *call, CUcontext *context);
/* Is this call (or "run") to fail now? */
bool standin_fails(const char *call, CUresult *code);

/* ---- memory ---- */

CUresult standin_open_device(struct device *d);
/* The piece that holds an address of either mapping, and its device; NULL. Lock held. */
struct piece *standin_find(CUdeviceptr p, struct device **d);
/* Where the stand-in itself reaches an address: device memory by the second mapping. */
void *standin_reach(CUdeviceptr p);
/* Device pointers may be used from begin to end, which nest. */
void standin_access(bool begin);

/* ---- streams ---- */

void standin_close_stream(CUstream stream);

#endif
