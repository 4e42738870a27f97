/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The public calls of coll.h and spr_comm_allgather: arguments are checked, an operation is made
 * and launched. What only this rank can know to be wrong (an unsorted list, say) is launched in
 * failed mode, so that the other ranks hear of it instead of waiting.
 */
#include <coll/coll.h>
#include <coll/fetch.h>
#include <context.h>
#include <errno.h>
#include <string.h>

/* An algorithm of the wanted kind by name (NULL: the fallback), or NULL with a text. */
static const struct spri_algo *find_algo(struct spr_comm *comm, const char *name,
					 const char *fallback, int kind)
{
	static const char *const takes[] = {[SPRI_ALGO_DENSE] = "dense vectors",
					    [SPRI_ALGO_SPARSE] = "sparse vectors",
					    [SPRI_ALGO_MASKED] = "masks"};
	const struct spri_algo *algo = spri_algo_find(name ? name : fallback);

	if (algo && (int)algo->kind == kind)
		return algo;
	spri_text_set(&comm->context->text, "algorithm '%s' is unknown or does not take %s",
		      name ? name : fallback, takes[kind]);
	return NULL;
}

int spr_allreduce(struct spr_comm *comm, const struct spr_allreduce_args *args,
		  struct spr_request **out_request)
{
	struct spr_allreduce_args a = {0};
	const struct spri_algo *algo;
	const struct spri_log *before;
	struct spri_op *op;
	int r;

	if (!comm || !args || !out_request)
		return SPR_EARGUMENT;
	before = spri_context_enter(comm->context);
	r = spri_options_take(&a, sizeof a, args, "spr_allreduce_args", &comm->context->text);
	algo = r == 0 ? find_algo(comm, a.algo, "dense_ring", SPRI_ALGO_DENSE) : NULL;
	if (!algo)
		r = SPR_EARGUMENT;
	if (r == 0)
		r = spri_op_create(comm, algo, &op);
	if (r < 0)
		goto leave;
	op->in = a.in;
	op->out = a.out;
	op->count = a.count;
	op->policy = a.nonfinite;
	if (a.count > SPR_MAX_COUNT || (a.count && (!a.in || !a.out)) || a.dtype != SPR_F32 ||
	    a.nonfinite > SPR_NONFINITE_DROP || (unsigned)a.memory > SPR_MEMORY_CUDA)
		r = SPR_EARGUMENT;
	else if (a.memory == SPR_MEMORY_CUDA)
		r = spri_fetch(op, a.device, a.stream);
	spri_op_launch(op, r, SPRI_NO_INDEX);
	*out_request = spri_op_request(op);
	r = 0;
leave:
	spri_context_leave(comm->context, before);
	return spri_trace(r);
}

/* What can be told of a sparse vector without looking into it. */
static int check_shape(const struct spr_sparse *list, uint64_t k, uint64_t length)
{
	return length > SPR_MAX_COUNT || list->count > k ||
			       (list->count && (!list->index || !list->value))
		       ? SPR_EARGUMENT
		       : 0;
}

/*
 * The position of the first entry that breaks the rules of a sparse vector; its index is the
 * one to report.
 */
static int check_list(const struct spr_sparse *list, uint64_t length, uint64_t *bad)
{
	for (uint64_t i = 0; i < list->count; i++) {
		if (list->index[i] < length && list->value[i] != 0 &&
		    (i == 0 || list->index[i] > list->index[i - 1]))
			continue;
		*bad = list->index[i];
		return SPR_EARGUMENT;
	}
	return 0;
}

int spr_allreduce_sparse(struct spr_comm *comm, const struct spr_allreduce_sparse_args *args,
			 struct spr_request **out_request)
{
	struct spr_allreduce_sparse_args a = {0};
	const struct spri_algo *algo;
	const struct spri_log *before;
	struct spri_op *op;
	uint64_t bad = SPRI_NO_INDEX;
	int r;

	if (!comm || !args || !out_request)
		return SPR_EARGUMENT;
	before = spri_context_enter(comm->context);
	r = spri_options_take(&a, sizeof a, args, "spr_allreduce_sparse_args",
			      &comm->context->text);
	algo = r == 0 ? find_algo(comm, a.algo, "gtopk", SPRI_ALGO_SPARSE) : NULL;
	if (!algo)
		r = SPR_EARGUMENT;
	if (r == 0)
		r = spri_op_create(comm, algo, &op);
	if (r < 0)
		goto leave;
	op->k = a.k;
	op->length = a.length;
	op->step = a.step;
	op->dtype = a.wire;
	op->list_codec = spri_list_codec(a.codec);
	op->policy = a.nonfinite;
	op->in_list = a.in;
	r = SPR_EARGUMENT;
	if (a.nonfinite <= SPR_NONFINITE_DROP && a.wire <= SPR_BF16 &&
	    a.codec <= SPR_CODEC_PACKED && (unsigned)a.memory <= SPR_MEMORY_CUDA)
		r = check_shape(&a.in, a.k, a.length);
	if (r == 0 && a.memory == SPR_MEMORY_CUDA)
		r = spri_fetch(op, a.device, a.stream);
	if (r == 0)
		r = check_list(&op->in_list, a.length, &bad);
	if (r < 0)
		op->in_list = (struct spr_sparse){0};
	spri_op_launch(op, r, bad);
	*out_request = spri_op_request(op);
	r = 0;
leave:
	spri_context_leave(comm->context, before);
	return spri_trace(r);
}

/* The first index that breaks the rules of a mask. */
static int check_mask(const uint64_t *mask, uint64_t n, uint64_t count, uint64_t *bad)
{
	for (uint64_t i = 0; i < n; i++) {
		if (mask[i] < count && (i == 0 || mask[i] > mask[i - 1]))
			continue;
		*bad = mask[i];
		return SPR_EARGUMENT;
	}
	return 0;
}

int spr_allreduce_masked(struct spr_comm *comm, const struct spr_allreduce_masked_args *args,
			 struct spr_request **out_request)
{
	struct spr_allreduce_masked_args a = {0};
	const struct spri_algo *algo;
	const struct spri_log *before;
	struct spri_op *op;
	uint64_t bad = SPRI_NO_INDEX;
	int r;

	if (!comm || !args || !out_request)
		return SPR_EARGUMENT;
	before = spri_context_enter(comm->context);
	r = spri_options_take(&a, sizeof a, args, "spr_allreduce_masked_args",
			      &comm->context->text);
	algo = r == 0 ? find_algo(comm, a.algo, "iwp_ring", SPRI_ALGO_MASKED) : NULL;
	if (!algo)
		r = SPR_EARGUMENT;
	if (r == 0)
		r = spri_op_create(comm, algo, &op);
	if (r < 0)
		goto leave;
	op->in = a.in;
	op->count = a.count;
	op->mask = a.mask;
	op->n_mask = a.n_mask;
	op->n_broadcasters = a.broadcasters ? (uint32_t)a.broadcasters : 1;
	op->seed = a.seed;
	op->step = a.step;
	op->dtype = a.wire;
	op->policy = a.nonfinite;
	r = 0;
	if (a.count > SPR_MAX_COUNT || (a.count && !a.in) || a.broadcasters < 0 ||
	    op->n_broadcasters > comm->n_ranks || a.wire > SPR_BF16 ||
	    a.nonfinite > SPR_NONFINITE_DROP || (unsigned)a.memory > SPR_MEMORY_CUDA ||
	    a.n_mask > a.count || (a.n_mask && !a.mask))
		r = SPR_EARGUMENT;
	if (r == 0 && a.memory == SPR_MEMORY_CUDA)
		r = spri_fetch(op, a.device, a.stream);
	if (r == 0)
		r = check_mask(op->mask, a.n_mask, a.count, &bad);
	spri_op_launch(op, r, bad);
	*out_request = spri_op_request(op);
	r = 0;
leave:
	spri_context_leave(comm->context, before);
	return spri_trace(r);
}

static struct spr_sparse view(const struct spri_list *list)
{
	return (struct spr_sparse){
		.count = list->count, .index = list->index, .value = list->value};
}

int spr_allreduce_sparse_result(const struct spr_request *request, struct spr_sparse *sum,
				struct spr_sparse *adopted)
{
	const struct spri_op *op = (const struct spri_op *)(const void *)request;
	const struct spri_log *before;
	int r;

	if (!request || !sum ||
	    (op->algo->kind != SPRI_ALGO_SPARSE && op->algo->kind != SPRI_ALGO_MASKED))
		return SPR_EARGUMENT;
	before = spri_context_enter(op->comm->context);
	r = op->done ? op->status : SPR_EBUSY;
	if (r == 0) {
		*sum = view(&op->sum);
		if (adopted)
			*adopted = view(&op->adopted);
	}
	spri_context_leave(op->comm->context, before);
	return spri_trace(r);
}

#define ALLGATHER_MOST 65536u /* bytes per rank */

int spr_comm_allgather(struct spr_comm *comm, const void *mine, void *all, size_t bytes)
{
	const struct spri_log *before;
	struct spr_request *request;
	struct spri_op *op;
	int r;

	if (!comm || (bytes && (!mine || !all)) || bytes > ALLGATHER_MOST)
		return SPR_EARGUMENT;
	before = spri_context_enter(comm->context);
	r = spri_op_create(comm, &spri_algo_allgather, &op);
	if (r == 0) {
		op->in_bytes = mine;
		op->out_bytes = all;
		op->count = bytes;
		spri_op_launch(op, 0, SPRI_NO_INDEX);
	}
	spri_context_leave(comm->context, before);
	if (r < 0)
		return spri_trace(r);
	request = spri_op_request(op);
	r = spr_request_wait(request);
	spr_request_destroy(request);
	return spri_trace(r);
}

int spr_algo_info(unsigned i, struct spr_algo_info *info)
{
	const struct spri_algo *algo = spri_algo_row(i);

	if (!info || !algo || algo->kind == SPRI_ALGO_BYTES)
		return SPR_EARGUMENT;
	*info = (struct spr_algo_info){.name = algo->name, .about = algo->about};
	if (algo->kind == SPRI_ALGO_SPARSE)
		info->sparse = 1;
	else if (algo->kind == SPRI_ALGO_MASKED)
		info->sparse = 2;
	return 0;
}

int spr_algo_cost(const char *name, int n_ranks, uint64_t count, uint64_t k, double *rounds,
		  double *bytes)
{
	const struct spri_algo *algo = name ? spri_algo_find(name) : NULL;

	if (!algo || algo->kind == SPRI_ALGO_BYTES || n_ranks < 1 || n_ranks > SPR_MAX_RANKS ||
	    !rounds || !bytes)
		return SPR_EARGUMENT;
	*rounds = algo->rounds((uint32_t)n_ranks);
	*bytes = algo->bytes((uint32_t)n_ranks, (double)count, (double)k);
	return 0;
}
