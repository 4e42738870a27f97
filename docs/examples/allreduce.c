/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The smallest program: every rank brings a vector, every rank gets the sum.
 *
 *     cc allreduce.c $(pkg-config --cflags --libs sparring) -o allreduce
 *     spr_run -n 4 -- ./allreduce
 */
#include <sparring/sparring.h>
#include <stdio.h>

#define COUNT 1000

static int failed(const char *what, int error, const char *detail)
{
	fprintf(stderr, "%s: %s (%s)\n", what, spr_strerror(error), detail);
	return 1;
}

static int sum_over_ranks(struct spr_context *context, struct spr_comm *comm)
{
	static float vector[COUNT];
	struct spr_allreduce_args args = {.size = sizeof(args),
					  .algo = "dense_ring",
					  .in = vector,
					  .out = vector,
					  .count = COUNT,
					  .dtype = SPR_F32};
	struct spr_request *request;
	struct spr_request_stats stats;
	int rank = spr_comm_rank(comm), n_ranks = spr_comm_size(comm), r;

	for (int i = 0; i < COUNT; i++)
		vector[i] = (float)(rank + 1);

	r = spr_allreduce(comm, &args, &request);
	if (r < 0)
		return failed("spr_allreduce", r, spr_context_error(context));
	/* The vector belongs to sparring now; anything else could be computed here. */
	r = spr_request_wait(request);
	if (r < 0)
		failed("spr_request_wait", r, spr_request_error(request));
	spr_request_stats(request, &stats);
	spr_request_destroy(request);
	if (r < 0)
		return 1;

	printf("rank %d of %d: each element is %g, %llu bytes sent\n", rank, n_ranks,
	       (double)vector[0], (unsigned long long)stats.wire_bytes);
	return vector[COUNT - 1] == (float)(n_ranks * (n_ranks + 1) / 2) ? 0 : 1;
}

/* The library prints nothing by itself: this is where its warnings and errors go. */
static void to_stderr(void *arg, enum spr_log_level level, const char *text)
{
	(void)arg;
	(void)level;
	fprintf(stderr, "sparring: %s\n", text);
}

int main(void)
{
	struct spr_context_options options = {.size = sizeof(options), .log = to_stderr};
	struct spr_context *context;
	struct spr_comm *comm;
	int r = spr_context_open(&options, &context), status;

	if (r < 0)
		return failed("spr_context_open", r, "");
	r = spr_comm_create(context, NULL, &comm);
	if (r < 0) {
		status = failed("spr_comm_create", r, spr_context_error(context));
		spr_context_close(context);
		return status;
	}
	status = sum_over_ranks(context, comm);
	spr_comm_destroy(comm);
	spr_context_close(context);
	return status;
}
