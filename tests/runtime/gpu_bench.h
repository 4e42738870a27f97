/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * A GPU of the stand-in driver with a piece of memory, a machine made of a few files, and a NIC
 * that says what a test wants it to say.
 */
#ifndef TESTS_GPU_BENCH_H
#define TESTS_GPU_BENCH_H

#include <ladder.h>

enum { BYTES = 100000 };
#define NO_MODULE "the module nvidia_peermem is not loaded"

extern char root[64];	     /* where the machine's sys/ and proc/ are */
extern struct spri_gpu *gpu; /* number 1 */
extern char *memory;	     /* BYTES of its */
extern struct nic {
	int refuses[2];	  /* by dma-buf, by address: what it returns */
	const char *text; /* and says */
	unsigned n;	  /* how often it was asked */
	struct spri_memory last;
	bool fd_was_open;
} nic;

/* Skips the test where there is no driver. */
void begin(void);
void finish(void);
/* Makes a file below the root, and its directories. */
void put_file(const char *path, const char *content);
/* The NIC, as a ladder asks it. */
int take(void *arg, const struct spri_memory *wanted, struct spri_text *text);

#endif
