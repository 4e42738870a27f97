/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What spr_allreduce_perf lends the library: its own vectors, or (--mem cuda) copies of them in a
 * GPU's memory, which are brought back before a result is looked at.
 */
#include "allreduce.h"

#include <stdlib.h>

int ar_push(struct ar_bench *bench, void *to, const void *from, size_t bytes)
{
	int r = spr_memory_copy(bench->context, to, from, bytes);

	return r < 0 ? ar_fail(bench, "copying", r, "") : 0;
}

/* A copy of `bytes` bytes. */
static int lend(struct ar_bench *bench, const void *from, size_t bytes, void **out)
{
	const struct ar_config *config = bench->config;
	int r = spr_memory_alloc(bench->context, config->memory, config->device, bytes + 1, out);

	if (r < 0)
		return ar_fail(bench, "--mem", r, "");
	return ar_push(bench, *out, from, bytes);
}

int ar_lend(struct ar_bench *bench, uint64_t count)
{
	const struct perf_list *own = &bench->own;
	size_t bytes = (size_t)count * sizeof *bench->in;
	void *in = NULL, *out = NULL, *index = NULL, *value = NULL;
	int r;

	bench->lib_in = bench->in;
	bench->lib_out = bench->out;
	bench->lib_own = bench->own;
	bench->memory = bench->config->memory;
	if (bench->memory == SPR_MEMORY_HOST)
		return 0;
	bench->lib_own.index = NULL; /* for whoever frees what is not there yet */
	bench->lib_own.value = NULL;
	bench->lib_in = bench->lib_out = NULL;
	r = lend(bench, bench->in, bytes, &in);
	if (r == 0)
		r = lend(bench, bench->out, bytes, &out);
	if (r == 0)
		r = lend(bench, own->index, own->count * sizeof *own->index, &index);
	if (r == 0)
		r = lend(bench, own->value, own->count * sizeof *own->value, &value);
	bench->lib_in = in;
	bench->lib_out = out;
	bench->lib_own.index = index;
	bench->lib_own.value = value;
	return r;
}

void ar_take_back(struct ar_bench *bench, uint64_t count)
{
	struct perf_list *own = &bench->lib_own;
	size_t bytes = (size_t)count * sizeof *bench->in;

	if (bench->memory != SPR_MEMORY_HOST) {
		spr_memory_free(bench->context, bench->lib_in, bytes + 1);
		spr_memory_free(bench->context, bench->lib_out, bytes + 1);
		spr_memory_free(bench->context, own->index, own->count * sizeof *own->index + 1);
		spr_memory_free(bench->context, own->value, own->count * sizeof *own->value + 1);
	}
	bench->memory = SPR_MEMORY_HOST;
	bench->lib_in = bench->lib_out = NULL;
	*own = (struct perf_list){0};
}

int ar_pull_out(struct ar_bench *bench, uint64_t count)
{
	if (bench->memory == SPR_MEMORY_HOST)
		return 0;
	return ar_push(bench, bench->out, bench->lib_out, (size_t)count * sizeof *bench->out);
}
