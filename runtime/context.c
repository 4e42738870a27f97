/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The context: options and variables are read and checked, the log hook set, the transport's
 * local end opened, the progress thread started if asked for. Whatever fails is undone in
 * reverse; the log names it, since there is no object yet to keep the text.
 */
#include <affinity.h>
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/env.h>
#include <kernel.h>
#include <registration.h>
#include <sim.h>
#include <string.h>
#include <timeline.h>

#define MOST_TIMEOUT_NS (1000000 * SPRI_NS_PER_S)

int spri_options_take(void *ours, size_t our_bytes, const void *options, const char *what,
		      struct spri_text *text)
{
	size_t bytes;

	if (!options)
		return 0;
	memcpy(&bytes, options, sizeof bytes);
	if (bytes < sizeof bytes || bytes > our_bytes) {
		spri_text_set(text, "%s: size is %zu, must be from %zu to %zu (sizeof the struct)",
			      what, bytes, sizeof bytes, our_bytes);
		return SPR_EARGUMENT;
	}
	memcpy(ours, options, bytes);
	return 0;
}

uint64_t spri_context_now(const struct spr_context *context)
{
	return context->transport->now(context->port);
}

static void unknown_variable(void *arg, const char *name, const char *nearest)
{
	(void)arg;
	spri_logf(SPR_LOG_WARN, "%s is set but unknown; the nearest known name is %s", name,
		  nearest);
}

/* Log first, so that everything after it can be heard. */
static int read_log(struct spr_context *context, const struct spr_context_options *o)
{
	static const char *const levels[] = {"none", "error", "warn", "info", "debug", NULL};
	int level = 0;
	int r;

	context->log =
		(struct spri_log){.fn = o->log, .arg = o->log_arg, .level = (int)o->log_level};
	if (o->log_level != SPR_LOG_NONE)
		return 0;
	context->log.level = SPR_LOG_WARN;
	r = spri_env_word(SPRI_ENV_LOG, levels, SPR_LOG_WARN, &level, &context->text);
	if (r < 0)
		return r;
	context->log.level = level;
	return 0;
}

int spri_context_isa(enum spri_isa *out, struct spri_text *text)
{
	const char *names[SPRI_ISA_COUNT + 1] = {NULL};
	int isa = (int)spri_isa_used();
	int r;

	for (int i = 0; i < SPRI_ISA_COUNT; i++)
		names[i] = spri_isa_name((enum spri_isa)i);
	r = spri_env_word(SPRI_ENV_ISA, names, isa, &isa, text);
	if (r < 0)
		return spri_trace(r);
	if (isa > (int)spri_cpu_isa()) {
		spri_text_set(text, "SPR_ISA is '%s', but this machine has no more than '%s'",
			      names[isa], spri_isa_name(spri_cpu_isa()));
		return SPR_EENVIRONMENT;
	}
	*out = (enum spri_isa)isa;
	return 0;
}

/*
 * Landing memory of simulated ranks adds up in one process; 256 MiB over all of them, unless
 * asked for.
 */
static uint64_t default_landing(const struct spr_context *context)
{
	uint64_t share;

	if (!context->sim)
		return 64ull << 20;
	share = (256ull << 20) / spri_sim_ranks(context->sim);
	return spri_min_u64(spri_max_u64(share, 256ull << 10), 64ull << 20);
}

static int read_limits(struct spr_context *context, const struct spr_context_options *o)
{
	uint64_t thread = 0;
	int r;

	if (o->timeout_ns > MOST_TIMEOUT_NS) {
		spri_text_set(&context->text, "timeout_ns is %llu, must be at most %llu (10^6 s)",
			      (unsigned long long)o->timeout_ns, MOST_TIMEOUT_NS);
		return SPR_EARGUMENT;
	}
	context->timeout_ns = o->timeout_ns;
	if (!o->timeout_ns)
		r = spri_env_seconds(SPRI_ENV_TIMEOUT, 30 * SPRI_NS_PER_S, &context->timeout_ns,
				     &context->text);
	else
		r = 0;
	if (r < 0)
		return spri_trace(r);
	context->landing_bytes = o->landing_bytes;
	if (!o->landing_bytes)
		r = spri_env_bytes(SPRI_ENV_LANDING, 1, 1ull << 40, default_landing(context),
				   &context->landing_bytes, &context->text);
	if (r < 0)
		return spri_trace(r);
	if (!o->progress_thread)
		r = spri_env_u64(SPRI_ENV_PROGRESS_THREAD, 0, 1, 0, &thread, &context->text);
	if (r < 0)
		return spri_trace(r);
	context->threaded = (o->progress_thread || thread) && !context->sim;
	return 0;
}

/*
 * The progress thread: polls while it can, sleeps in the transport otherwise, until told to
 * stop.
 */
static void *progress_main(void *arg)
{
	struct spr_context *context = arg;
	const struct spri_log *before = spri_context_enter(context);

	spri_affinity_bind(&context->seat);
	while (!context->stopping) {
		uint64_t deadline;

		if (spri_progress(context) < 0)
			break;
		pthread_cond_broadcast(&context->changed); /* who waits for more than operations */
		deadline = spri_min_u64(spri_next_deadline(context),
					spri_context_now(context) + SPRI_NS_PER_S);
		context->poller = true;
		pthread_mutex_unlock(&context->lock);
		(void)context->transport->wait(context->port, deadline);
		pthread_mutex_lock(&context->lock);
		context->poller = false;
	}
	context->threaded = false;
	pthread_cond_broadcast(&context->changed);
	spri_context_leave(context, before);
	return NULL;
}

static int init_locks(struct spr_context *context)
{
	pthread_condattr_t attributes;
	int r;

	r = pthread_mutex_init(&context->lock, NULL);
	if (r)
		return -r;
	r = pthread_condattr_init(&attributes);
	if (r)
		goto fini_lock;
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	r = pthread_cond_init(&context->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	if (r)
		goto fini_lock;
	return 0;
fini_lock:
	pthread_mutex_destroy(&context->lock);
	return -r;
}

/* Which GPU, NIC, node and CPUs are this rank's. Simulated ranks share one process: none. */
static int read_seat(struct spr_context *context)
{
	struct spri_seat *seat = &context->seat;
	const struct spri_topo *topo = spri_affinity_machine();
	char gpu[64] = "none", cpus[SPRI_CPUS_TEXT];
	int r = spri_affinity_decide(seat, &context->text);

	if (r < 0)
		return spri_trace(r);
	if (seat->gpu >= 0)
		spri_topo_name(&topo->objects[seat->gpu], gpu, sizeof gpu);
	spri_logf(SPR_LOG_INFO, "GPU %s (%s), NIC %s (%s)", gpu, seat->gpu_why,
		  seat->nic >= 0 ? topo->objects[seat->nic].name : "none", seat->nic_why);
	spri_logf(SPR_LOG_INFO, "landing slots on node %d (%s), progress thread on CPUs %s (%s)",
		  seat->node, seat->node_why, spri_cpus_text(&seat->cpus, cpus), seat->cpus_why);
	return 0;
}

/* What needs only the options and the environment; the transport's name is used later. */
static int read_options(struct spr_context *context, const struct spr_context_options *options,
			const char **transport)
{
	struct spr_context_options o = {0};
	enum spri_isa isa;
	int r;

	r = spri_options_take(&o, sizeof o, options, "spr_context_options", &context->text);
	if (r == 0)
		r = read_log(context, &o);
	if (r < 0)
		return r;
	spri_log_enter(&context->log);
	spri_env_unknown(unknown_variable, NULL);
	context->sim = o.sim;
	context->sim_rank = (uint32_t)o.sim_rank;
	if (o.sim && (o.sim_rank < 0 || (uint32_t)o.sim_rank >= spri_sim_ranks(o.sim))) {
		spri_text_set(&context->text, "sim_rank is %d, the simulation has %u ranks",
			      o.sim_rank, spri_sim_ranks(o.sim));
		return SPR_EARGUMENT;
	}
	r = spri_context_isa(&isa, &context->text);
	if (r == 0)
		r = spri_gpudirect(&context->gpudirect, &context->text);
	if (r == 0)
		r = read_limits(context, &o);
	if (r < 0)
		return r;
	spri_isa_allow(isa);
	context->seat = (struct spri_seat){.gpu = -1, .nic = -1, .node = -1};
	if (!context->sim)
		r = read_seat(context);
	if (r < 0)
		return r;
	*transport = o.transport;
	return 0;
}

int spr_context_open(const struct spr_context_options *options, struct spr_context **out)
{
	const struct spri_log *before = spri_log_enter(NULL);
	const char *transport = NULL;
	struct spr_context *context;
	int r;

	if (!out) {
		r = SPR_EARGUMENT;
		goto leave;
	}
	context = spri_zalloc(sizeof *context);
	r = context ? 0 : -ENOMEM;
	if (r < 0)
		goto leave;
	r = read_options(context, options, &transport);
	if (r < 0)
		goto free_context;
	r = spri_timeline_open(&context->timeline, &context->text);
	if (r < 0)
		goto free_context;
	r = init_locks(context);
	if (r < 0)
		goto close_timeline;
	r = spri_context_open_port(context, transport);
	if (r < 0)
		goto fini_locks;
	spri_logf(SPR_LOG_INFO, "transport %s, kernels %s", context->transport->name,
		  spri_isa_name(spri_isa_used()));
	if (context->threaded) {
		r = -pthread_create(&context->thread, NULL, progress_main, context);
		if (r < 0)
			goto fini_port;
		context->has_thread = true;
	}
	*out = context;
	goto leave;

fini_port:
	context->transport->fini(context->port);
fini_locks:
	pthread_cond_destroy(&context->changed);
	pthread_mutex_destroy(&context->lock);
close_timeline:
	spri_timeline_close(context->timeline, "");
free_context:
	spri_logf(SPR_LOG_ERROR, "context: %s",
		  context->text.s[0] ? context->text.s : spr_strerror(r));
	spri_free(context);
leave:
	spri_log_enter(before);
	return spri_trace(r);
}

void spr_context_close(struct spr_context *context)
{
	const struct spri_log *before;

	if (!context)
		return;
	before = spri_log_enter(&context->log);
	if (context->comms || context->n_users) {
		spri_logf(SPR_LOG_ERROR,
			  "context: not closed, it has communicators, endpoints or memory");
		spri_log_enter(before);
		return;
	}
	if (context->has_thread) {
		pthread_mutex_lock(&context->lock);
		context->stopping = true;
		context->transport->wake(context->port);
		pthread_mutex_unlock(&context->lock);
		pthread_join(context->thread, NULL);
	}
	spri_memory_forget(context);
	context->transport->fini(context->port);
	spri_context_close_gpus(context);
	spri_timeline_close(context->timeline, context->sim ? "virtual" : "monotonic");
	spri_log_enter(before);
	pthread_cond_destroy(&context->changed);
	pthread_mutex_destroy(&context->lock);
	spri_free(context);
}

const char *spr_context_error(const struct spr_context *context)
{
	return context ? context->text.s : "";
}

uint64_t spr_context_now_ns(const struct spr_context *context)
{
	pthread_mutex_t *lock = &((struct spr_context *)context)->lock;
	uint64_t now;

	pthread_mutex_lock(lock); /* the transport may be exchanged for tcp */
	now = spri_context_now(context);
	pthread_mutex_unlock(lock);
	return now;
}

const char *spr_context_transport(const struct spr_context *context)
{
	return context ? context->transport->name : "";
}

int spr_context_progress(struct spr_context *context)
{
	const struct spri_log *before;
	int r = 0;

	if (!context)
		return SPR_EARGUMENT;
	before = spri_context_enter(context);
	if (context->poller)
		context->transport->wake(context->port); /* whoever sleeps there makes it */
	else if (!context->threaded)
		r = spri_progress(context);
	spri_context_leave(context, before);
	return spri_trace(r);
}
