/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The front header of the kernels: operations on vectors in host memory. They know pointers and
 * counts; no peers, sockets, files or clocks.
 *
 * Two levels. *Primitives* exist once per instruction set, in a table (kernel.c); the scalar C row
 * is the definition, every other row gives the same bits. *Operations* (select, merge, trim) are
 * written once on top of the primitives of the row in use.
 *
 * Numeric contract, for all of them: round to nearest, denormals kept (each operation sets and
 * restores the control register), no contraction (-ffp-contract=off), additions in the order
 * written here, every NaN that leaves is 0x7fc00000 (SPRI_NAN_BITS). The total order is: larger |v|
 * by its bits first, then smaller index; so NaN > infinity > finite, and ±0 are not entries of a
 * sparse list.
 *
 * Non-finite values (enum spr_nonfinite): found at no extra pass. Under ERROR an operation
 * finishes, and reports the lowest index; the caller throws the outputs away. Under PROPAGATE NaN
 * and infinity are ordinary values of the order. Under DROP a non-finite input and a non-finite sum
 * both count as zero.
 *
 * Common rules: pointers are borrowed; no alignment beyond the element's is required; arrays do not
 * overlap unless the function allows it by name; n = 0 is allowed everywhere. Threads: pure
 * functions, call them from anywhere.
 */
#ifndef SPRI_KERNEL_H
#define SPRI_KERNEL_H

#include <internal/compiler.h>
#include <sparring/types.h>

#include <cpu.h>
#include <gpu.h>
#include <half.h>
#include <importance.h>

#define SPRI_NO_INDEX UINT64_MAX /* "there was none" */

/* ---- what operations report about non-finite values ---- */
struct spri_finite {
	/* lowest index of a non-finite input or sum; SPRI_NO_INDEX when there was none */
	uint64_t bad_index;
	uint64_t dropped; /* elements at which something was counted as zero (DROP) */
};

/* ---- primitives: one row per instruction set ---- */

/*
 * Scan: for i in [0, n): a = scale · gradient[i] + residual[i], the product rounded, then the sum;
 * shadow[i] = a; when key(a) ≥ threshold (and a ≠ 0), append (base + i, a) to the candidates, in
 * order. Appending stops when `capacity` is reached, the scan goes on and counts all that would
 * qualify.
 */
struct spri_scan {
	const float *gradient;
	const float *residual; /* NULL: zeros */
	float scale;	       /* factor on the gradient; 1: none, exactly */
	float *shadow; /* NULL: not written. Written with streaming stores where that helps. */
	uint64_t n;
	uint64_t base;	    /* added to indices */
	uint32_t threshold; /* a key (|v| bits), ≥ 1 */
	uint64_t *index;    /* capacity entries */
	float *value;	    /* capacity entries */
	uint64_t capacity;
	uint64_t n_candidates; /* out: written entries, ≤ capacity */
	uint64_t n_qualified;  /* out: how many qualified */
	bool nonfinite;	       /* out: some a was not finite */
};

struct spri_kernel_row {
	enum spri_isa isa;
	void (*scan)(struct spri_scan *s);
	/*
	 * out[i] = a[i] + b[i]; out may equal a or b. Returns true when some sum was not finite.
	 * NaN is canonical.
	 */
	bool (*reduce)(float *out, const float *a, const float *b, uint64_t n);
	/*
	 * Adds to bins[key(v[i]) >> shift] (n_bins = (0x7fffffff >> shift) + 1 bins) for every v[i]
	 * ≠ 0.
	 */
	void (*histogram)(const float *v, uint64_t n, unsigned shift, uint64_t *bins);
	/* out[index[i] - base] = value[i] * factor; indices are in [base, base + size of out). */
	void (*scatter)(float *out, uint64_t base, const uint64_t *index, const float *value,
			uint64_t n, float factor);
	/* out[i] = in[i] * factor; may be in place. NaN is canonical. */
	void (*scale)(float *out, const float *in, uint64_t n, float factor);
	/*
	 * out[i] = a * x[i] + b * y[i], both products rounded, then the sum; out may equal x or y.
	 * Returns true when some result was not finite. NaN is canonical.
	 */
	bool (*axpby)(float *out, float a, const float *x, float b, const float *y, uint64_t n);
	void (*weigh)(struct spri_weigh *s); /* this and the next: importance.h */
	void (*draw)(struct spri_draw *s);
};

/* Rows of the table, best first; NULL past the last. For tests and listings. */
const struct spri_kernel_row *spri_kernel_row(unsigned i);

/* The row in use: the best that spri_isa_used() allows. */
const struct spri_kernel_row *spri_kernels(void);

/* ---- operations ---- */

/* A sorted sparse list in memory of the caller's. */
struct spri_list {
	uint64_t *index;
	float *value;
	uint64_t count;
	uint64_t capacity;
};

/*
 * Exact top-k of |scale · gradient + residual| with the rest kept in shadow, in one pass over
 * memory when the carried threshold holds, or when there is none; one pass more when it was too
 * high (`repaired`).
 *
 *   1. scan against `threshold` into the candidates
 *   2. no more room: cut them to the k best, and go on with a higher threshold
 *   3. fewer than k qualified in the end: a second pass, over the sums, from the smallest key on
 *   4. exact cut among the candidates; the k best, in index order, to index/value
 *   5. shadow[index of each] = +0
 *   6. next threshold: such that about 1.25 k would qualify on the same data
 *
 * Fewer than k non-zeros: all of them. k = 0: none. NaN/infinity by policy, on a rare second path
 * (scalar definition), with the same results on every row: DROP: a = residual when scale · gradient
 * is not finite, and zero when the sum is not.
 * Scratch: spri_select_capacity(n, k) entries each at index and value (the result is in their first
 * `count`).
 */
struct spri_select {
	const float *gradient; /* n */
	const float *residual; /* n, or NULL for zeros */
	float scale;	       /* factor on the gradient, as in the scan */
	float *shadow; /* n, or NULL when the rest is not wanted; must not overlap the inputs */
	uint64_t n;
	uint64_t base; /* index of element 0 */
	uint64_t k;
	enum spr_nonfinite policy;
	uint32_t threshold; /* in: carried from the last step, 0: none; out: for the next */
	uint64_t *index;    /* capacity entries */
	float *value;
	uint64_t capacity; /* ≥ spri_select_capacity(n, k) */
	uint64_t count;	   /* out: entries selected, ascending by index */
	/*
	 * out: the cut. Selected are the entries whose key is above cut_key, and those that equal
	 * it up to index cut_index. Fewer than k non-zeros, or k ≥ n: 1 and UINT64_MAX. k = 0:
	 * UINT32_MAX and 0.
	 */
	uint32_t cut_key;
	uint64_t cut_index;
	bool repaired;		   /* out: a second pass was needed */
	struct spri_finite finite; /* out */
};

uint64_t spri_select_capacity(uint64_t n, uint64_t k);
void spri_select(struct spri_select *s);

/*
 * Select in parts, for who sends candidates while the scan goes on: begin, some until it returns
 * false, end; the same bits as spri_select, however it is divided. Between two calls the caller may
 * read the fields down to `pruned`, and write none.
 */
struct spri_select_walk {
	struct spri_list found; /* candidates in select->index, ->value: ascending, appended to */
	uint64_t scanned;	/* elements done */
	/*
	 * Key that was asked of every candidate from the beginning: the carried threshold; 0: none
	 * was carried; 1 when k ≥ n, since all non-zeros will be selected.
	 */
	uint32_t floor;
	uint32_t pruned; /* how often the pile was cut to its k best; entries move, some vanish */

	struct spri_select *select; /* borrowed until the end */
	const struct spri_kernel_row *row;
	const float *gradient; /* or the shadow, in a second walk */
	const float *residual;
	float *shadow; /* NULL: not written */
	float scale;
	uint32_t threshold; /* rises with each prune */
	bool crowded;	    /* the last block was so dense that the next must fit for certain */
	struct spri_finite finite;
};

void spri_select_begin(struct spri_select *s, struct spri_select_walk *walk);

/*
 * Scans n elements more, rounded up to whole blocks (at most 65536). False when all are scanned.
 */
bool spri_select_some(struct spri_select_walk *walk, uint64_t n);

/*
 * Steps 3 to 6, when all are scanned. `repaired`: candidates of the first walk are all selected,
 * and stand among the others.
 */
void spri_select_end(struct spri_select_walk *walk);

/*
 * out += a ∪ b, appended behind out->count: sorted union, a's value + b's where both have the
 * index. Zero sums are left out. a and b strictly ascending; out has room for na + nb more; out's
 * arrays must not overlap a or b. finite (in/out) collects over calls; start it with
 * SPRI_FINITE_NONE. Used chunk by chunk: see runtime/coll.
 */
void spri_merge(struct spri_list *out, const uint64_t *ai, const float *av, uint64_t na,
		const uint64_t *bi, const float *bv, uint64_t nb, enum spr_nonfinite policy,
		struct spri_finite *finite);

#define SPRI_FINITE_NONE ((struct spri_finite){.bad_index = SPRI_NO_INDEX})

/*
 * Keeps the k largest of list (by the total order), in place and still sorted by index; appends the
 * others, sorted by index, to trimmed (NULL: thrown away; room for list->count − k more). Exact.
 * O(count), no allocation.
 */
void spri_trim(struct spri_list *list, uint64_t k, struct spri_list *trimmed);

/*
 * The cut among n values: the key of the k-th largest in the total order, and how many entries
 * whose key equals it belong to the k best (those of smallest index). 1 ≤ k ≤ n.
 */
void spri_cut(const float *value, uint64_t n, uint64_t k, uint32_t *key, uint64_t *n_equal);

/*
 * Dense sum under a policy: out = a + b like the primitive, with the lowest bad index (base + i) in
 * finite, and zeroes under DROP (a non-finite input counts as zero, so does a non-finite sum). out
 * may equal a or b. finite (in/out) collects, as in spri_merge.
 */
void spri_reduce(float *out, const float *a, const float *b, uint64_t n, uint64_t base,
		 enum spr_nonfinite policy, struct spri_finite *finite);

/*
 * Checks a vector by itself (P = 1, first contributions): as spri_reduce with b = 0. In place
 * allowed.
 */
void spri_check(float *out, const float *in, uint64_t n, uint64_t base, enum spr_nonfinite policy,
		struct spri_finite *finite);

/* Euclidean norm in double over a fixed tree of blocks: the same bits on every row and run. */
double spri_norm2(const float *v, uint64_t n);

#endif
