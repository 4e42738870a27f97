/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Importance on a GPU against spri_importance: shadow, choice and sums, to the bit. */
#include "remote.h"

#define FLOOR 0x1p-7f

/* A case: what is asked, beside the vectors. */
struct question {
	enum kind gradient, residual, weight;
	uint64_t n, seed;
	enum spr_nonfinite policy;
	float threshold; /* < 0: nothing is chosen */
	bool in_place;	 /* the residual is the shadow */
	uint64_t capacity;
};

static void expect_report(const struct question *q, const struct spri_gpu_weighed *got,
			  const struct spri_importance *want)
{
	expect(got->done == q->seed + 1, "it says that it is done");
	expect(got->count == want->count && got->n_chosen == want->n_chosen,
	       "%lu elements, seed %lu: %lu of %lu chosen, expected %lu of %lu", q->n, q->seed,
	       got->count, got->n_chosen, want->count, want->n_chosen);
	expect(!memcmp(&got->sum, &want->sum, sizeof got->sum) &&
		       !memcmp(&got->sum_squares, &want->sum_squares, sizeof got->sum) &&
		       !memcmp(&got->weight_squares, &want->weight_squares, sizeof got->sum),
	       "%lu elements, seed %lu: sums %a %a %a, expected %a %a %a", q->n, q->seed, got->sum,
	       got->sum_squares, got->weight_squares, want->sum, want->sum_squares,
	       want->weight_squares);
	expect(got->bad_index == want->bad_index && got->dropped == want->dropped,
	       "%lu elements, seed %lu: lowest %lu, dropped %lu; expected %lu, %lu", q->n, q->seed,
	       got->bad_index, got->dropped, want->bad_index, want->dropped);
}

/* The same on the host; shadow and index are given (free). */
static struct spri_importance ask_host(const struct question *q, const struct remote vectors[3])
{
	struct spri_importance want = {.gradient = remote_here(&vectors[0]),
				       .residual = remote_here(&vectors[1]),
				       .weight = remote_here(&vectors[2]),
				       .shadow = malloc(q->n * sizeof(float) + 1),
				       .n = q->n,
				       .scale = 0.7f,
				       .floor = FLOOR,
				       .choose = q->threshold >= 0,
				       .threshold = q->threshold,
				       .key = q->seed * 0x1234567,
				       .step = 99 + q->seed,
				       .policy = q->policy,
				       .index = malloc(q->capacity * sizeof(uint64_t) + 1),
				       .capacity = q->capacity};

	spri_importance(&want);
	return want;
}

static void ask(struct remote_gpu *g, const struct question *q)
{
	struct remote in[3] = {remote_fill(g, q->n, q->gradient, q->seed),
			       remote_fill(g, q->n, q->residual, q->seed + 1),
			       remote_fill(g, q->n, q->weight, q->seed + 2)};
	struct remote shadow = remote_make(g, q->n * sizeof(float), q->seed % 3 * 4);
	struct remote index = remote_make(g, q->capacity * sizeof(uint64_t), 0);
	struct spri_importance want = ask_host(q, in);
	struct remote *out = q->in_place ? &in[1] : &shadow;
	void *result, *result_there;
	struct spri_gpu_importance s = {.gradient = remote_there(&in[0]),
					.residual = remote_there(&in[1]),
					.weight = remote_there(&in[2]),
					.shadow = remote_there(out),
					.n = q->n,
					.scale = want.scale,
					.floor = FLOOR,
					.choose = want.choose,
					.threshold = q->threshold,
					.key = want.key,
					.step = want.step,
					.policy = q->policy,
					.index = remote_there(&index),
					.capacity = q->capacity,
					.sequence = (uint32_t)q->seed + 1};

	expect(spri_gpu_alloc_mapped(g->gpu, sizeof(struct spri_gpu_weighed), &result,
				     &result_there) == 0,
	       "expected mapped memory");
	s.result = result_there;
	remote_seed(q->seed);
	expect(spri_gpu_importance(g->stream, &s) == 0, "importance is queued");
	remote_fetch(out);
	remote_fetch(&index);
	expect_report(q, result, &want);
	expect(first_difference(remote_here(out), want.shadow, q->n) == q->n,
	       "%lu elements, seed %lu: the shadow", q->n, q->seed);
	expect(want.count == 0 ||
		       !memcmp(remote_here(&index), want.index, want.count * sizeof *want.index),
	       "%lu elements, seed %lu: the chosen", q->n, q->seed);
	spri_gpu_free_mapped(g->gpu, result);
	free(want.shadow);
	free(want.index);
	expect(remote_end(&in[0]) && remote_end(&in[1]) && remote_end(&in[2]) &&
		       remote_end(&shadow) && remote_end(&index),
	       "importance writes where it should");
}

static const uint64_t sizes[] = {0,    1,    2,	   3,	 8,    31,   32,    33,
				 1000, 4095, 4096, 4097, 8192, 9001, 20000, 33 * 4096 - 5};
static const float thresholds[] = {0, 1e-3f, 0.5f, 1e30f, -1};

Test(gpu_importance, every_kind)
{
	struct remote_gpu g = remote_open();

	for (unsigned kind = 0; kind < KIND_COUNT; kind++)
		for (unsigned i = 0; i < spri_countof(sizes); i++) {
			struct question q = {.gradient = kind,
					     .residual = i % 2 ? kind : KIND_SMALL,
					     .weight = (kind + i) % KIND_COUNT,
					     .n = sizes[i],
					     .seed = 100 * kind + i,
					     .policy = (enum spr_nonfinite)((kind + i) % 3),
					     .threshold = thresholds[(kind + i) % 5],
					     .in_place = i % 3 == 0,
					     .capacity = sizes[i]};

			ask(&g, &q);
		}
	remote_close(&g);
}

/* What does not fit is counted, and nothing is written behind the capacity. */
Test(gpu_importance, more_chosen_than_there_is_room_for)
{
	struct remote_gpu g = remote_open();

	for (uint64_t capacity = 0; capacity < 12000; capacity = capacity * 3 + 1) {
		struct question q = {.n = 12000,
				     .seed = capacity,
				     .policy = SPR_NONFINITE_PROPAGATE,
				     .threshold = 0x1p-9f,
				     .capacity = capacity};

		ask(&g, &q);
	}
	remote_close(&g);
}

Test(gpu_importance, more_than_a_grid_takes_at_once)
{
	struct remote_gpu g = remote_open();
	struct question q = {.n = 300003, .seed = 5, .threshold = 4, .capacity = 300003};

	ask(&g, &q);
	remote_close(&g);
}
