/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The life of an exchange, and looking at it; see exchange.h (public: the formula, private: the
 * states). What a step does is in step.c.
 *
 * Failures: options that cannot be are SPR_EARGUMENT with a text that names them and says what
 * would be right.
 */
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/clock.h>
#include <math.h>

#include "exchange.h"

/* c of the lowest denominator c · rms(w). */
#define DEFAULT_FLOOR 0.1

static int check_algo(const struct spr_exchange_options *o, const struct spri_algo **algo,
		      struct spri_text *text)
{
	const char *name = o->algo ? o->algo : "gtopk";

	*algo = spri_algo_find(name);
	if (*algo && (*algo)->kind != SPRI_ALGO_BYTES)
		return 0;
	spri_text_set(text, "algorithm '%s' is unknown; spr_info lists them", name);
	return SPR_EARGUMENT;
}

/* value must be in [least, most). */
static int check_real(const char *name, double value, double least, double most,
		      struct spri_text *text)
{
	if (value >= least && value < most) /* false for NaN */
		return 0;
	spri_text_set(text, "%s is %g, must be at least %g and below %g", name, value, least, most);
	return SPR_EARGUMENT;
}

static int check_enum(const char *name, unsigned value, unsigned most, struct spri_text *text)
{
	if (value <= most)
		return 0;
	spri_text_set(text, "%s is %u, must be an enum spr_%s (at most %u)", name, value, name,
		      most);
	return SPR_EARGUMENT;
}

static int check_options(const struct spr_exchange_options *o, uint32_t n_ranks,
			 struct spri_text *text)
{
	int r = 0;

	if (o->count < 1 || o->count > SPR_MAX_COUNT) {
		spri_text_set(text, "count is %llu, must be 1 to 2^48",
			      (unsigned long long)o->count);
		return SPR_EARGUMENT;
	}
	if (o->broadcasters < 0 || (uint32_t)o->broadcasters > n_ranks) {
		spri_text_set(text,
			      "broadcasters is %d, must be 1 to %u, the number of ranks (0: 1)",
			      o->broadcasters, n_ranks);
		return SPR_EARGUMENT;
	}
	if (r == 0)
		r = check_enum("nonfinite", (unsigned)o->nonfinite, SPR_NONFINITE_DROP, text);
	if (r == 0)
		r = check_enum("dtype", (unsigned)o->wire, SPR_BF16, text);
	if (r == 0)
		r = check_enum("memory", (unsigned)o->memory, SPR_MEMORY_CUDA, text);
	if (r == 0)
		r = check_enum("codec", (unsigned)o->codec, SPR_CODEC_PACKED, text);
	if (r == 0)
		r = check_enum("pipeline", (unsigned)o->pipeline, SPR_PIPELINE_OFF, text);
	if (r == 0)
		r = check_enum("trimmed", (unsigned)o->trimmed, SPR_TRIMMED_PUBLISHED, text);
	if (r == 0)
		r = check_real("momentum", o->momentum, 0, 1, text);
	if (r == 0)
		r = check_real("clip", o->clip, 0, HUGE_VAL, text);
	if (r == 0)
		r = check_real("weight_decay", o->weight_decay, 0, HUGE_VAL, text);
	if (r == 0)
		r = check_real("importance_floor", o->importance_floor, 0, HUGE_VAL, text);
	if (r == 0 && o->trimmed == SPR_TRIMMED_PUBLISHED && o->wire != SPR_F32) {
		spri_text_set(text, "trimmed is SPR_TRIMMED_PUBLISHED, which needs wire SPR_F32: "
				    "rounding errors would be lost, too");
		r = SPR_EARGUMENT;
	}
	return r;
}

static void free_exchange(struct spr_exchange *exchange)
{
	spri_device_stop(exchange);
	spri_residual_fini(exchange);
	spri_device_close(exchange);
	spri_parts_fini(exchange);
	spri_free(exchange->schedule);
	spri_free(exchange);
}

static void take_options(struct spr_exchange *exchange, const struct spr_exchange_options *o)
{
	exchange->n = o->count;
	exchange->policy = o->nonfinite;
	exchange->momentum = o->momentum;
	exchange->clip = o->clip;
	exchange->weight_decay = o->weight_decay;
	exchange->wire = o->wire;
	exchange->codec = o->codec;
	exchange->pipeline = o->pipeline != SPR_PIPELINE_OFF;
	exchange->published = o->trimmed == SPR_TRIMMED_PUBLISHED;
	exchange->n_broadcasters = o->broadcasters ? (uint32_t)o->broadcasters : 1;
	exchange->seed = o->seed;
	exchange->importance_floor = o->importance_floor != 0 ? o->importance_floor : DEFAULT_FLOOR;
}

/* Lock held. */
static int create(struct spr_comm *comm, const struct spr_exchange_options *options,
		  struct spr_exchange **out)
{
	struct spri_text *text = &comm->context->text;
	struct spr_exchange_options o = {0};
	const struct spri_algo *algo = NULL;
	struct spr_exchange *exchange;
	int r = spri_options_take(&o, sizeof o, options, "spr_exchange_options", text);

	if (r == 0)
		r = check_algo(&o, &algo, text);
	if (r == 0)
		r = check_options(&o, comm->n_ranks, text);
	if (r < 0)
		return r;
	exchange = spri_zalloc(sizeof *exchange);
	if (!exchange)
		return -ENOMEM;
	exchange->comm = comm;
	exchange->algo = algo;
	exchange->place = &spri_place_host; /* until device.c says otherwise */
	take_options(exchange, &o);
	r = spri_density_init(exchange, &o, text);
	if (r == 0)
		r = spri_parts_init(exchange, &o, text);
	if (r == 0 && o.memory == SPR_MEMORY_CUDA)
		r = spri_device_open(exchange, &o);
	if (r == 0)
		r = spri_residual_init(exchange);
	if (r == 0)
		*out = exchange;
	else
		free_exchange(exchange);
	return r;
}

int spr_exchange_create(struct spr_comm *comm, const struct spr_exchange_options *options,
			struct spr_exchange **out)
{
	struct spri_text *text;
	const struct spri_log *before;
	int r;

	if (!comm || !options || !out)
		return SPR_EARGUMENT;
	text = &comm->context->text;
	before = spri_context_enter(comm->context);
	text->s[0] = '\0';
	r = create(comm, options, out);
	if (r < 0) {
		if (!text->s[0])
			spri_text_set(text, "%s", spr_strerror(r));
		spri_text_prefix(text, "exchange");
		spri_logf(SPR_LOG_ERROR, "%s", text->s);
	}
	spri_context_leave(comm->context, before);
	return spri_trace(r);
}

static bool is_idle(void *arg)
{
	return ((struct spr_exchange *)arg)->state == EXCHANGE_IDLE;
}

/* A step in flight ends: its operations have deadlines, a broken port ends them too. */
void spri_exchange_await_idle(struct spr_exchange *exchange)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before = spri_context_enter(context);

	if (exchange->state == EXCHANGE_OPEN)
		spri_step_abandon(exchange);
	(void)!spri_progress_until(context, is_idle, exchange, SPRI_NEVER);
	spri_context_leave(context, before);
}

void spr_exchange_destroy(struct spr_exchange *exchange)
{
	const struct spri_log *before;
	struct spr_context *context;

	if (!exchange)
		return;
	spri_exchange_await_idle(exchange);
	context = exchange->comm->context;
	before = spri_context_enter(context);
	spri_step_reap(exchange);
	if (exchange->request)
		exchange->request->on_done_arg = NULL; /* it outlives us */
	free_exchange(exchange);		       /* registered memory is among it */
	spri_context_leave(context, before);
}

int spr_exchange_set_weights(struct spr_exchange *exchange, const float *weights)
{
	const struct spri_log *before;
	int r;

	if (!exchange)
		return SPR_EARGUMENT;
	before = spri_context_enter(exchange->comm->context);
	r = exchange->state == EXCHANGE_IDLE ? 0 : SPR_EBUSY;
	if (r == 0)
		exchange->weights = weights;
	spri_context_leave(exchange->comm->context, before);
	return spri_trace(r);
}

/* ---- looking at it ---- */

int spr_exchange_result(const struct spr_exchange *exchange, struct spr_sparse *sum)
{
	const struct spri_log *before;
	int r = 0;

	if (!exchange || !sum)
		return SPR_EARGUMENT;
	if (exchange->algo->kind == SPRI_ALGO_DENSE)
		return SPR_EUNSUPPORTED;
	before = spri_context_enter(exchange->comm->context);
	if (exchange->state != EXCHANGE_IDLE && exchange->state != EXCHANGE_READING)
		r = SPR_EBUSY;
	else if (!exchange->has_sum)
		r = SPR_EARGUMENT;
	else
		*sum = (struct spr_sparse){.count = exchange->sum.count,
					   .index = exchange->sum.index,
					   .value = exchange->sum.value};
	spri_context_leave(exchange->comm->context, before);
	return spri_trace(r);
}

const float *spr_exchange_residual(const struct spr_exchange *exchange)
{
	return exchange ? exchange->residual : NULL;
}

int spri_exchange_claim(struct spr_exchange *exchange)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before = spri_context_enter(context);
	int r = exchange->state == EXCHANGE_IDLE ? 0 : SPR_EBUSY;

	if (r == 0)
		exchange->state = EXCHANGE_READING;
	spri_context_leave(context, before);
	return spri_trace(r);
}

void spri_exchange_release(struct spr_exchange *exchange)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before = spri_context_enter(context);

	exchange->state = EXCHANGE_IDLE;
	spri_context_leave(context, before);
}
