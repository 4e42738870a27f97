/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The smallest trainer. The loss of rank r is the sum of (w[i] − target[i] − noise_r[i])² / 2; the
 * ranks look for the weights whose mean loss is smallest. Each sends one gradient in fifty and
 * keeps the rest for later steps.
 *
 *     cc training_step.c $(pkg-config --cflags --libs sparring) -lm -o training_step
 *     spr_run -n 4 -- ./training_step
 */
#include <math.h>
#include <sparring/sparring.h>
#include <stdio.h>

#define COUNT 5000
#define STEPS 400
#define RATE 0.01f

static float weights[COUNT], gradient[COUNT], update[COUNT];

static float target(int i)
{
	return sinf((float)i);
}

static float noise(int i, int rank)
{
	return sinf((float)(i * (rank + 7)));
}

static int failed(const char *what, int error, const char *detail)
{
	fprintf(stderr, "%s: %s (%s)\n", what, spr_strerror(error), detail);
	return -1;
}

/* Root of the mean square distance from where the ranks' losses together are smallest. */
static double distance(int n_ranks)
{
	double sum = 0;

	for (int i = 0; i < COUNT; i++) {
		double d = (double)(weights[i] - target(i));

		for (int rank = 0; rank < n_ranks; rank++)
			d -= (double)noise(i, rank) / n_ranks;
		sum += d * d;
	}
	return sqrt(sum / COUNT);
}

/* One step: own gradient, exchange, update. */
static int step(struct spr_exchange *exchange, int rank)
{
	struct spr_request *request;
	int r;

	for (int i = 0; i < COUNT; i++)
		gradient[i] = weights[i] - target(i) - noise(i, rank);
	r = spr_exchange_start(exchange, gradient, update, &request);
	if (r < 0)
		return failed("spr_exchange_start", r, "nothing was started");
	r = spr_request_wait(request);
	if (r < 0)
		failed("spr_request_wait", r, spr_request_error(request));
	spr_request_destroy(request);
	for (int i = 0; i < COUNT && r == 0; i++)
		weights[i] -= RATE * update[i];
	return r;
}

static int train(struct spr_context *context, struct spr_comm *comm)
{
	struct spr_exchange_options options = {
		.size = sizeof(options), .count = COUNT, .algo = "gtopk", .density = 0.02};
	struct spr_exchange *exchange;
	struct spr_exchange_stats stats;
	double before = distance(spr_comm_size(comm)), after;
	int r = spr_exchange_create(comm, &options, &exchange);

	if (r < 0)
		return failed("spr_exchange_create", r, spr_context_error(context));
	for (int i = 0; i < STEPS && r == 0; i++)
		r = step(exchange, spr_comm_rank(comm));
	if (r == 0)
		r = spr_exchange_stats(exchange, &stats);
	spr_exchange_destroy(exchange);
	if (r < 0)
		return r;
	after = distance(spr_comm_size(comm));
	if (spr_comm_rank(comm) == 0)
		printf("distance %.3f, after %llu steps %.3f; the last step sent %llu bytes\n",
		       before, (unsigned long long)stats.step, after,
		       (unsigned long long)stats.wire_bytes);
	return after < before / 2 ? 0 : -1;
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
	struct spr_context *context = NULL;
	struct spr_comm *comm = NULL;
	int r = spr_context_open(&options, &context);

	if (r < 0)
		return failed("spr_context_open", r, "") ? 1 : 0;
	r = spr_comm_create(context, NULL, &comm);
	if (r < 0)
		failed("spr_comm_create", r, spr_context_error(context));
	else
		r = train(context, comm);
	spr_comm_destroy(comm); /* accepts NULL */
	spr_context_close(context);
	return r < 0 ? 1 : 0;
}
