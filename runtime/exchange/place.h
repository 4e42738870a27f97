/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Part of exchange.h. */
#ifndef SPRI_PLACE_H
#define SPRI_PLACE_H

/*
 * Where the vectors of an exchange live, and who computes on them: host.c, device.c. Pointers to
 * vectors mean something to the place alone; lists and what is dense_sum are host memory.
 */
struct exchange_place {
	/* A step begins; lock held. NULL: nothing to do. Returns 0 or SPR_EDEVICE. */
	int (*begin)(struct spr_exchange *exchange);
	/* Zeroed memory for a vector. Returns 0 or -ENOMEM. */
	int (*alloc)(struct spr_exchange *exchange, size_t bytes, float **out);
	void (*free)(struct spr_exchange *exchange, float *v, size_t bytes); /* accepts NULL */
	/* The same of host memory that the place reaches fast. */
	int (*alloc_host)(struct spr_exchange *exchange, size_t bytes, float **out);
	void (*free_host)(struct spr_exchange *exchange, float *v, size_t bytes);
	/*
	 * Room for n entries in part->selected, which select writes; a list four times too long is
	 * given back. Contents are lost when it moves. Returns 0 or -ENOMEM; then it is empty.
	 */
	int (*fit)(struct spr_exchange *exchange, struct exchange_part *part, uint64_t n);
	void (*unfit)(struct spr_exchange *exchange, struct exchange_part *part);
	/*
	 * Clips, applies momentum, accumulates and selects into part->selected and the shadows; for
	 * dense parts, makes what is to be sent. No lock needed. Returns 0; SPR_ENONFINITE with
	 * *index; SPR_EARGUMENT, SPR_EDEVICE.
	 */
	int (*select)(struct spr_exchange *exchange, struct exchange_part *part, uint64_t *index);
	/*
	 * spri_importance on a part, with all that s holds but lists and trees: the chosen go to
	 * part->selected. Makes progress meanwhile. Returns 0 or SPR_EDEVICE.
	 */
	int (*weigh)(struct spr_exchange *exchange, struct exchange_part *part,
		     struct spri_importance *s);
	/*
	 * The four of a commit, after vectors and shadows were exchanged. masked: the sum's entries
	 * leave residual and velocity; their squares go to part->now.sent_squares
	 */
	void (*take_out)(struct spr_exchange *exchange, struct exchange_part *part);
	/* published: part->selected, by now what the sum does not name, returns to the residual */
	void (*put_back)(struct spr_exchange *exchange, struct exchange_part *part);
	/* residual[index] += value for what fell to this rank */
	void (*adopt)(struct spr_exchange *exchange, struct exchange_part *part);
	/* sums, times factor, to the update; returns 0 or SPR_EDEVICE: something of these failed */
	int (*update)(struct spr_exchange *exchange, float factor);
	/* masked: spri_op's; NULL: vectors can be read as they are */
	int (*gather)(struct spri_op *op, const uint64_t *index, uint64_t n, float *to);
	/* Euclidean norm. Returns 0 or SPR_EDEVICE. */
	int (*norm)(struct spr_exchange *exchange, const float *v, uint64_t n, double *out);
	int (*clear)(struct spr_exchange *exchange, float *v, uint64_t n);
	/* Between a vector and host memory, either way. */
	int (*copy)(const struct spr_exchange *exchange, float *to, const float *from, uint64_t n);
};
extern const struct exchange_place spri_place_host;

#endif
