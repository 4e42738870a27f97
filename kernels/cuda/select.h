/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Between select.c, which queues the selection, and select.cu, which does it. */
#ifndef SPRI_SELECT_H
#define SPRI_SELECT_H

#include <stdint.h>

struct spri_gpu_selected;

#define SPRI_SELECT_THREADS 256u
#define SPRI_SELECT_SEGMENT 2048u /* elements that a warp scans at a time; offsets fit 16 bits */
#define SPRI_SELECT_BINS 2048u	  /* of a digit, at most */
#define SPRI_SELECT_DIGITS 3u	  /* of 11, 10 and 10 bits, from the top of 31 */

/* What the kernels find out, in the order in which they do. Zeroed before. */
struct spri_select_state {
	uint64_t n_qualified; /* in the scan; candidates beyond the capacity are not kept */
	uint64_t bad;	      /* ~ the lowest index of a non-finite sum; 0: none */
	uint64_t dropped;
	uint32_t all; /* fewer than k are not zero */
	/*
	 * The cut is the need-th largest of the keys that begin with prefix; in the end prefix is
	 * the cut, and `need` of its equals are selected.
	 */
	uint32_t prefix;
	uint64_t need;
	uint32_t half_key; /* about the key of rank k / 2, and where about 1.25 k would qualify; */
	uint32_t want_key; /* 0: not among those that were counted */
	uint64_t cut_index;
	uint64_t bins[SPRI_SELECT_DIGITS][SPRI_SELECT_BINS];
	uint32_t through[SPRI_SELECT_DIGITS + 1]; /* blocks that are, in each digit and in write */
};

/* How many entries of a part lie above the cut, and at it. */
struct spri_select_total {
	uint64_t above, equal;
};

/* The arguments of all kernels of select.cu. */
struct spri_select_args {
	const float *gradient, *residual; /* as in struct spri_gpu_select, down to result */
	float *shadow;
	float scale;
	uint32_t drop; /* the policy is DROP */
	uint32_t threshold;
	uint32_t sequence;
	uint64_t n, k;
	uint64_t *index;
	float *value;
	uint32_t *near_index;
	float *near_value;
	uint64_t chunk;
	uint32_t *flag;
	struct spri_gpu_selected *result;
	/* scratch */
	struct spri_select_state *state;
	uint64_t *written;		  /* entries of each chunk that are; zeroed */
	struct spri_select_total *totals; /* of each part */
	uint64_t *first;		  /* candidate of each segment */
	uint16_t *n_candidates;		  /* of each segment */
	uint32_t *n_selected;		  /* of each segment: above the cut | at the cut << 16 */
	float *candidate;		  /* capacity */
	uint16_t *offset;		  /* of the candidates in their segments; capacity */
	uint64_t capacity;
	uint64_t n_segments, part_segments; /* part_segments each, the last may have fewer */
};

#endif
