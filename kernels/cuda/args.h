/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Arguments of kernels that work on scratch memory, as one structure each: what the host's side
 * (.c) queues is what the device's (.cu) takes.
 */
#ifndef SPRI_ARGS_H
#define SPRI_ARGS_H

#include <kernel.h>
#include <tree.h>

#define SPRI_GPU_TILE SPRI_TREE_BLOCK /* elements, or bits, whose outputs are counted together */
#define SPRI_GPU_SCAN_THREADS 512     /* of the one block that adds up what all have counted */

/* Of n elements. A macro, since both sides need it. */
#define SPRI_GPU_TILES(n) (((n) + SPRI_GPU_TILE - 1) / SPRI_GPU_TILE)

/* ---- norm.cu ---- */

struct spri_gpu_norm {
	const float *v; /* n */
	uint64_t n;
	double *sum; /* one per tile: of its squares, then inner nodes of the tree */
	double *out;
};

/* ---- mask.cu ---- */

/* From bits to indices. */
struct spri_gpu_bits {
	const uint32_t *map; /* n bits in whole words */
	uint64_t n;
	uint64_t *before; /* per tile: bits set in it; then, in all tiles before it */
	uint64_t *index;
	uint64_t capacity; /* of index: what goes beyond is left out */
	uint64_t *count;   /* of bits set in all */
};

/* ---- importance.cu ---- */

/* What all blocks add to; zeroed before. */
struct spri_gpu_weigh_state {
	double sum[3]; /* of importance, of its squares, of weights' squares */
	uint64_t n_chosen;
	uint64_t bad_mirror; /* UINT64_MAX − the lowest bad index; so 0: none */
	uint64_t dropped;
};

struct spri_gpu_weigh {
	struct spri_gpu_importance s;
	struct spri_gpu_weigh_state *state;
	double *sum;	  /* one per tile, for the sums of the state one after the other */
	uint32_t *map;	  /* n bits: chosen */
	uint64_t *chosen; /* per tile: how many */
};

/* ---- merge.cu, cut.cu ---- */

#define SPRI_GPU_MERGE_TILE 1024 /* entries of both lists that a block merges together */
#define SPRI_GPU_CUT_TILE 512	 /* entries of the union whose fates a warp counts */
#define SPRI_GPU_CUT_TILES(n) (((n) + SPRI_GPU_CUT_TILE - 1) / SPRI_GPU_CUT_TILE)
#define SPRI_GPU_DIGITS 3  /* of a key: bits 20 to 30, 10 to 19, 0 to 9 */
#define SPRI_GPU_BINS 2048 /* of the first; the others need half */

/* Zeroed before. */
struct spri_gpu_cut_state {
	uint64_t bins[SPRI_GPU_DIGITS][SPRI_GPU_BINS];
	uint64_t need;	  /* of the entries whose key begins with prefix, so many stay */
	uint32_t prefix;  /* digits known of the cut's key */
	uint32_t settled; /* the key is known before its last digit: none has to leave, or all */
	uint32_t arrived[SPRI_GPU_DIGITS + 1]; /* blocks that are done, per kernel */
};

/* The union of two lists, an entry for each of theirs; value 0: left out. */
struct spri_gpu_cut {
	struct spri_gpu_merge s;
	struct spri_gpu_cut_state *state;
	uint64_t *index; /* na + nb */
	float *value;	 /* na + nb */
	/* per tile: entries above the cut, at it, and all that are not 0; then before the tile */
	uint64_t *above, *equal, *entries;
};

#endif
