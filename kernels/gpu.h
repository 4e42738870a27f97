/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Kernels and memory of GPUs, by the CUDA driver API opened at run time. Part of the front header;
 * cuda_none.c answers in builds without nvcc.
 *
 * Pointers marked (device) are addresses in a GPU's memory, or of mapped host memory as the GPU
 * sees it; nothing here reads them on the host. Work is queued on a *stream* and runs in order;
 * every call that queues returns before the work is done, and its outputs are there after
 * spri_gpu_sync or when spri_gpu_idle says so.
 *
 * Operations give the same bits as their namesakes in kernel.h, which are the definition.
 *
 * Threads: a stream is used by one thread at a time; all else from any thread. Nothing blocks but
 * what says so. The context that a thread has current stays as it was. A child of fork() has no
 * GPU: what it inherited can be closed and freed, all else fails.
 */
#ifndef SPRI_GPU_H
#define SPRI_GPU_H

#include <internal/compiler.h>
#include <internal/error.h>
#include <sparring/types.h>

/* ---- what there is ---- */

/*
 * Can this build and machine run kernels on a GPU? Returns 0, or SPR_EUNSUPPORTED with the reason.
 */
int spri_gpu_probe(struct spri_text *why) SPRI_MUST;
/* GPUs that this process may use; 0 when probe fails. */
unsigned spri_gpu_count(void);

struct spri_gpu_info {
	char name[64];
	char pci[16];	  /* 0000:3b:00.0, lower case: where sysfs and hwloc have it */
	int major, minor; /* compute capability */
	int driver;	  /* version, 1000 · major + 10 · minor */
	uint64_t bytes;	  /* of memory */
	bool dma_buf;	  /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
	bool gpudirect;	  /* CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED */
	bool flush_host;  /* cuFlushGPUDirectRDMAWrites may be called */
	bool ordered;	  /* the device orders a NIC's writes itself: no flush is needed */
};
/* Returns 0, SPR_EARGUMENT past the last, SPR_EUNSUPPORTED with a text. */
int spri_gpu_info(unsigned i, struct spri_gpu_info *info, struct spri_text *text) SPRI_MUST;

/* ---- a device ---- */

struct spri_gpu; /* its primary context, and the kernels loaded into it; one per device, counted */

/* Ownership: *out given (close). Returns 0, SPR_EUNSUPPORTED, -ENOMEM, with a text. */
int spri_gpu_open(unsigned device, struct spri_gpu **out, struct spri_text *text) SPRI_MUST;
void spri_gpu_close(struct spri_gpu *gpu); /* accepts NULL */
unsigned spri_gpu_number(const struct spri_gpu *gpu);

/* ---- memory ---- */

struct spri_gpu_pointer {
	bool on_gpu; /* false: host memory, pinned or not; the rest is not set then */
	unsigned device;
	uint64_t buffer_id; /* of the allocation; never used again in this process */
	void *base;	    /* (device) of the allocation */
	size_t bytes;	    /* of the allocation */
};
/* What a pointer points to. No driver, or one that does not know it: host memory. */
void spri_gpu_pointer(const void *p, struct spri_gpu_pointer *out);

/* Returns 0; -ENOMEM, SPR_EDEVICE: the driver's words are in the log. */
int spri_gpu_alloc(struct spri_gpu *gpu, size_t bytes, void **out) SPRI_MUST;
void spri_gpu_free(struct spri_gpu *gpu, void *p); /* accepts NULL; what uses it is over */
/*
 * Pinned host memory, zeroed, that the device sees, too: at *host here, at *device there. Returns
 * as spri_gpu_alloc.
 */
int spri_gpu_alloc_mapped(struct spri_gpu *gpu, size_t bytes, void **host, void **device) SPRI_MUST;
void spri_gpu_free_mapped(struct spri_gpu *gpu, void *host);

/*
 * Asks the driver to keep copies to the allocation that holds p synchronous, which it must be
 * before a NIC has its pages. Returns 0; SPR_EUNSUPPORTED with the driver's words.
 */
int spri_gpu_synchronous(struct spri_gpu *gpu, void *p, struct spri_text *why) SPRI_MUST;
/*
 * A dma-buf of the pages that hold [p, p + bytes): *fd is given (close), p stands at *offset in it.
 * As spri_gpu_synchronous first. Returns 0; SPR_EUNSUPPORTED with the reason.
 */
int spri_gpu_export(struct spri_gpu *gpu, void *p, size_t bytes, int *fd, uint64_t *offset,
		    struct spri_text *why) SPRI_MUST;
/*
 * What NICs wrote to this device's memory before is visible to kernels launched after. Returns 0;
 * SPR_EUNSUPPORTED: this device cannot, the caller flushes in another way.
 */
int spri_gpu_flush(struct spri_gpu *gpu) SPRI_MUST;

/* ---- streams ---- */

struct spri_gpu_stream;

/* Ownership: *out given (destroy). Returns 0, -ENOMEM, SPR_EDEVICE. */
int spri_gpu_stream_create(struct spri_gpu *gpu, struct spri_gpu_stream **out) SPRI_MUST;
/* Accepts NULL. Blocks: until its work is done. */
void spri_gpu_stream_destroy(struct spri_gpu_stream *stream);
/*
 * `theirs` is the caller's CUstream (NULL: the default stream). after: what is queued here from now
 * on waits for what is queued there now. before: the other way round. Return 0 or SPR_EDEVICE.
 */
int spri_gpu_after(struct spri_gpu_stream *stream, void *theirs) SPRI_MUST;
int spri_gpu_before(struct spri_gpu_stream *stream, void *theirs) SPRI_MUST;
/* Copies; either end may be host memory (pinned, or it is slow), which is lent until it is done. */
int spri_gpu_copy(struct spri_gpu_stream *stream, void *to, const void *from,
		  size_t bytes) SPRI_MUST;
int spri_gpu_zero(struct spri_gpu_stream *stream, void *to, size_t bytes) SPRI_MUST;
/* Blocks until all that is queued is done. Returns 0, or SPR_EDEVICE when some of it failed. */
int spri_gpu_sync(struct spri_gpu_stream *stream) SPRI_MUST;
/* Returns 0: all is done; SPRI_AGAIN: not yet; SPR_EDEVICE. */
int spri_gpu_idle(struct spri_gpu_stream *stream) SPRI_MUST;
/*
 * Time on the device, for benchmarks: what passes there between the two places in the stream at
 * which they are called. Blocks: end, until its place is reached. Return 0, SPR_EDEVICE;
 * SPR_EUNSUPPORTED: the driver is older than what this was built with.
 */
int spri_gpu_time_begin(struct spri_gpu_stream *stream) SPRI_MUST;
int spri_gpu_time_end(struct spri_gpu_stream *stream, double *ns) SPRI_MUST;
/* Why the last call on this stream returned SPR_EDEVICE. */
const char *spri_gpu_stream_error(const struct spri_gpu_stream *stream);

/* ---- operations ---- */

/* Written by the device when a selection is done; `done` last. */
struct spri_gpu_selected {
	uint64_t count;
	uint64_t cut_index;
	uint64_t bad_index; /* SPRI_NO_INDEX: none */
	uint64_t dropped;
	uint32_t cut_key;
	uint32_t threshold; /* for the next step */
	uint32_t repaired;
	uint32_t done; /* = sequence */
};

/*
 * As struct spri_select: exact top-k of |scale · gradient + residual|, the k best in index order,
 * zeros where they stood in the shadow; n < 2^40.
 *
 * The list may lie in mapped host memory. It is announced in chunks: when entries [c · chunk,
 * min((c + 1) · chunk, k)) are all written, flag[c] = sequence, with release in system scope:
 * whoever sees the flag sees the entries. A chunk that stays short, since there are fewer than k
 * non-zeros, is announced by the result alone.
 */
struct spri_gpu_select {
	const float *gradient; /* (device) n */
	const float *residual; /* (device) n, or NULL for zeros */
	float *shadow;	       /* (device) n; must not overlap the inputs */
	float scale;
	uint64_t n, k;
	enum spr_nonfinite policy;
	uint32_t threshold; /* carried; 0: none */
	uint64_t *index;    /* (device) k entries */
	float *value;	    /* (device) k entries */
	/*
	 * (device) k entries each, or NULL: the list once more, indices modulo 2^32, for a NIC to
	 * read; there when the flag is up
	 */
	uint32_t *near_index;
	float *near_value;
	uint64_t chunk;			  /* entries, ≥ 1; 0: no flags */
	uint32_t *flag;			  /* (device, mapped) */
	uint32_t sequence;		  /* not what flags and `done` hold before */
	struct spri_gpu_selected *result; /* (device, mapped) */
};
int spri_gpu_select(struct spri_gpu_stream *stream, const struct spri_gpu_select *s) SPRI_MUST;

/* Written by the device; `done` last. The fields are those of struct spri_importance. */
struct spri_gpu_weighed {
	uint64_t count, n_chosen;
	double sum, sum_squares, weight_squares;
	uint64_t bad_index, dropped;
	uint32_t done;
};
/* As struct spri_importance, base 0. */
struct spri_gpu_importance {
	const float *gradient, *residual, *weight; /* (device) n */
	float *shadow;				   /* (device) n */
	uint64_t n;
	float scale, floor;
	bool choose;
	float threshold;
	uint64_t key, step;
	enum spr_nonfinite policy;
	uint64_t *index; /* (device) capacity entries */
	uint64_t capacity;
	uint32_t sequence;
	struct spri_gpu_weighed *result; /* (device, mapped) */
};
int spri_gpu_importance(struct spri_gpu_stream *stream,
			const struct spri_gpu_importance *s) SPRI_MUST;

/* All pointers of the following are (device). */

/*
 * out = a · x + b · y, as the primitive; how many are not finite is added to *nonfinite (or NULL)
 */
struct spri_gpu_axpby {
	float *out;
	float a;
	const float *x;
	float b;
	const float *y;
	uint64_t n;
	uint64_t *nonfinite;
};
int spri_gpu_axpby(struct spri_gpu_stream *stream, const struct spri_gpu_axpby *s) SPRI_MUST;
int spri_gpu_scale(struct spri_gpu_stream *stream, float *out, const float *in, uint64_t n,
		   float factor) SPRI_MUST;
/* out = a + b under a policy (spri_reduce); b NULL: zeros (spri_check). */
struct spri_gpu_reduce {
	float *out;
	const float *a, *b;
	uint64_t n, base;
	enum spr_nonfinite policy;
	void *finite; /* struct spri_finite: collects; NULL: not wanted */
};
int spri_gpu_reduce(struct spri_gpu_stream *stream, const struct spri_gpu_reduce *s) SPRI_MUST;
/*
 * Momentum correction under DROP: shadow[i] that are not finite become momentum · velocity[i], or 0
 * when that is not finite either; *dropped counts them.
 */
struct spri_gpu_drop {
	float *shadow;
	const float *velocity;
	float momentum;
	uint64_t n;
	uint64_t *dropped;
};
int spri_gpu_drop_velocity(struct spri_gpu_stream *stream, const struct spri_gpu_drop *s) SPRI_MUST;
/* out[index[i]] = value[i] * factor; value NULL: 0 (factor masking). */
int spri_gpu_scatter(struct spri_gpu_stream *stream, float *out, const uint64_t *index,
		     const float *value, uint64_t n, float factor) SPRI_MUST;
/* out[i] = in[index[i]] */
int spri_gpu_gather(struct spri_gpu_stream *stream, float *out, const float *in,
		    const uint64_t *index, uint64_t n) SPRI_MUST;
/* inout[index[i]] += value[i], the sum by the policy of spri_reduce; indices differ. */
int spri_gpu_adopt(struct spri_gpu_stream *stream, float *inout, const uint64_t *index,
		   const float *value, uint64_t n, enum spr_nonfinite policy) SPRI_MUST;
/* *out = the Euclidean norm of v, as spri_norm2. */
int spri_gpu_norm2(struct spri_gpu_stream *stream, const float *v, uint64_t n,
		   double *out) SPRI_MUST;
/*
 * As spri_merge on whole lists, then spri_trim: out (room for na + nb, strictly ascending) keeps
 * the k largest, the others go to trimmed (room for na + nb; NULL: thrown away).
 */
struct spri_gpu_list {
	uint64_t *index;
	float *value;
};
struct spri_gpu_merge {
	struct spri_gpu_list out, trimmed, a, b;
	uint64_t na, nb, k;
	enum spr_nonfinite policy;
	uint64_t *counts; /* [0], [1]: lengths of out and trimmed */
	void *finite;	  /* struct spri_finite: collects; NULL: not wanted */
};
int spri_gpu_merge(struct spri_gpu_stream *stream, const struct spri_gpu_merge *s) SPRI_MUST;
/*
 * Bit i of the n-bit map (little-endian octets, in whole 32-bit words, aligned) set for every
 * index, all others zero; and back, ascending: what is behind the n bits is not looked at.
 */
int spri_gpu_mask_pack(struct spri_gpu_stream *stream, uint32_t *map, uint64_t n,
		       const uint64_t *index, uint64_t count) SPRI_MUST;
int spri_gpu_mask_unpack(struct spri_gpu_stream *stream, uint64_t *index, uint64_t *count,
			 const uint32_t *map, uint64_t n) SPRI_MUST;
/* As spri_narrow and spri_widen (half.h): little-endian 16-bit values. */
int spri_gpu_narrow(struct spri_gpu_stream *stream, uint16_t *out, const float *in, uint64_t n,
		    enum spr_dtype dtype) SPRI_MUST;
int spri_gpu_widen(struct spri_gpu_stream *stream, float *out, const uint16_t *in, uint64_t n,
		   enum spr_dtype dtype) SPRI_MUST;

#endif
