/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One rank of an algorithm, over a transfer layer of the test's, which hands out chunks from a
 * script. The algorithms' own files are linked with it; what the real layer checks (header,
 * sequence, round, signature) is right here.
 */
#ifndef COLL_ALONE_H
#define COLL_ALONE_H

#include <coll/coll.h>

enum { CHUNK_BYTES = 1024, COUNT = 600, K = 200, MOST_CHUNKS = 64, N_ALGOS = 7, NOTE = 4 };

/* What the partner sends. */
struct script {
	struct spri_chunk chunks[MOST_CHUNKS];
	uint8_t payload[MOST_CHUNKS][CHUNK_BYTES - SPRI_CHUNK_HEADER];
	unsigned n, taken;
	bool held; /* a chunk is out and not released */
};
extern struct script script;

struct fixture {
	struct spr_comm comm;
	struct spri_op op;
	uint64_t *index;
	float *value, *in, *out;
	uint8_t *bytes, *all;
};

extern const struct spri_algo *const algos[N_ALGOS];

/* A good operation of one rank, all arrays as long as they must be; an empty script. */
void begin(struct fixture *f, const struct spri_algo *algo, uint32_t rank, uint32_t n_ranks);
void end(struct fixture *f);

enum {
	MORE = 0,
	BLOCK = SPRI_CHUNK_LAST_OF_BLOCK,
	ROUND = SPRI_CHUNK_LAST_OF_BLOCK | SPRI_CHUNK_LAST_OF_ROUND
};

/* Adds a chunk of n entries from `base` on, `step` apart, as an honest partner would. */
struct spri_chunk *add(uint8_t codec, uint32_t block, uint64_t base, uint32_t n, uint32_t step,
		       uint8_t flags);
/* Likewise of a mask. */
void add_mask(uint8_t codec, uint32_t block, uint64_t base, uint32_t n, uint32_t step,
	      uint8_t flags);
/* What stands before the mask of rank 1. */
void add_head(uint64_t n, uint32_t bytes);

/* One step of a good operation; a refusal has a text. */
int run(const struct spri_algo *algo, uint32_t rank, uint32_t n_ranks, void (*write_script)(void),
	const char *what, int expected);

#endif
