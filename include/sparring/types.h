/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Types that several headers share, and limits. */
#ifndef SPARRING_TYPES_H
#define SPARRING_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what libsparring.so exports. */
#define SPR_API __attribute__((visibility("default")))

#define SPR_VERSION_MAJOR 0
#define SPR_VERSION_MINOR 1
#define SPR_VERSION_PATCH 0

struct spr_context;  /* context.h */
struct spr_comm;     /* comm.h */
struct spr_request;  /* request.h */
struct spr_exchange; /* exchange.h */
struct spr_sim;	     /* sim.h */

/* Largest number of ranks in a communicator. */
#define SPR_MAX_RANKS 65536
/* Largest number of elements of a vector: 2^48. Every count is 64 bits. */
#define SPR_MAX_COUNT ((uint64_t)1 << 48)

/*
 * Value types. In memory values are always SPR_F32; the others are for the wire, where a value is
 * rounded to nearest (ties to even) and a finite one too large becomes the largest there is.
 */
enum spr_dtype {
	SPR_F32 = 0, /* IEEE 754 single, 4 bytes */
	SPR_F16 = 1, /* IEEE 754 half, 2 bytes */
	SPR_BF16 = 2 /* the upper half of a single, 2 bytes */
};

/* Where vectors live. */
enum spr_memory_kind {
	SPR_MEMORY_HOST = 0,
	SPR_MEMORY_CUDA = 1 /* a CUDA device's; SPR_EUNSUPPORTED where there is none */
};

/* A GPU by its number, where a `device` is asked for; 0: the one that is this rank's. */
#define SPR_GPU(number) ((number) + 1)

/* How the indices of sparse lists travel; the result does not depend on it. */
enum spr_codec {
	SPR_CODEC_AUTO = 0,  /* the library's choice, the same on all ranks */
	SPR_CODEC_RAW = 1,   /* 4 bytes per index: least work */
	SPR_CODEC_PACKED = 2 /* gaps, as few bits as they need: fewest bytes */
};

/* What to do with NaN and infinity, in inputs and where sums make them. */
enum spr_nonfinite {
	SPR_NONFINITE_ERROR = 0,     /* fail on every rank with SPR_ENONFINITE; no state changes */
	SPR_NONFINITE_PROPAGATE = 1, /* carry on; they sort first, every NaN becomes 0x7fc00000 */
	SPR_NONFINITE_DROP = 2	     /* a non-finite value counts as zero, wherever it appears */
};

/*
 * A sparse vector: `count` pairs (index[i], value[i]), strictly ascending by index, no zero
 * values. Indices are 64 bits wide and below SPR_MAX_COUNT; on the wire they take 4 bytes each.
 */
struct spr_sparse {
	uint64_t count;	       /* pairs in use */
	const uint64_t *index; /* count indices */
	const float *value;    /* count values */
};

#ifdef __cplusplus
}
#endif
#endif
