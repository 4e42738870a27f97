/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Which transport a context uses, and the opening of its port.
 *
 *   1. a name was asked for (options, SPR_TRANSPORT): that one, or an error
 *   2. "auto": SPR_RDMA=forbid: tcp. Else verbs when it is usable; when it is not, an error under
 *      require, tcp and one line that says why under prefer (which is the default)
 *   3. ranks that chose differently go back to tcp when a communicator is made (comm_join.c),
 *      unless one of them must not: spri_context_fall_back
 */
#include <comm.h>
#include <context.h>
#include <internal/env.h>
#include <registration.h>
#include <sim.h>
#include <string.h>

enum rdma { RDMA_PREFER, RDMA_REQUIRE, RDMA_FORBID };

static int refuse(struct spr_context *context, int status, const char *name, const char *why)
{
	spri_text_set(&context->text, "transport '%s': %s", name, why);
	return status;
}

/* A transport that was asked for by name. */
static int choose_named(struct spr_context *context, const char *name, enum rdma rdma)
{
	struct spri_text why = {0};

	context->transport = spri_transport_find(name);
	if (!context->transport)
		return refuse(context, SPR_EUNSUPPORTED, name, "is unknown; spr_info lists them");
	if (!context->sim && !strcmp(name, "loop"))
		return refuse(context, SPR_EUNSUPPORTED, name, "needs a simulation (options.sim)");
	if (rdma == RDMA_REQUIRE && !strcmp(name, "tcp"))
		return refuse(context, SPR_EENVIRONMENT, name,
			      "was asked for, but SPR_RDMA is 'require'");
	if (rdma == RDMA_FORBID && !strcmp(name, "verbs"))
		return refuse(context, SPR_EENVIRONMENT, name,
			      "was asked for, but SPR_RDMA is 'forbid'");
	if (context->transport->probe(&why) < 0)
		return refuse(context, SPR_EUNSUPPORTED, name, why.s);
	return 0;
}

static int open_port(struct spr_context *context)
{
	struct spri_port_options options = {
		.timeout_ns = context->timeout_ns,
		.interfaces = spri_env_get(SPRI_ENV_TCP_IF),
		.devices = context->seat.devices,
		.fabric = context->sim ? spri_sim_fabric(context->sim) : NULL,
		.place = context->sim_rank,
	};

	return spri_trace(context->transport->listen(&options, &context->port, &context->text));
}

/* The line that says why. A warning for those who asked for RDMA in so many words. */
static void say_why(const char *why)
{
	int level = spri_env_get(SPRI_ENV_RDMA) ? SPR_LOG_WARN : SPR_LOG_INFO;

	spri_logf(level, "no RDMA, going on with tcp: %s", why);
}

static int open_auto(struct spr_context *context, enum rdma rdma)
{
	struct spri_text why = {0};
	int r;

	if (rdma == RDMA_FORBID) {
		context->transport = spri_transport_find("tcp");
		return open_port(context);
	}
	context->transport = spri_transport_find("verbs");
	r = context->transport->probe(&why);
	if (r == 0) {
		r = open_port(context);
		why = context->text;
	}
	if (r < 0 && rdma == RDMA_REQUIRE) {
		spri_text_set(&context->text, "SPR_RDMA is 'require', but: %s", why.s);
		return SPR_EUNSUPPORTED;
	}
	context->automatic = r == 0 && rdma == RDMA_PREFER;
	if (r == 0)
		return 0;
	say_why(why.s);
	context->text.s[0] = '\0';
	context->transport = spri_transport_find("tcp");
	return open_port(context);
}

int spri_context_open_port(struct spr_context *context, const char *name)
{
	static const char *const words[] = {"prefer", "require", "forbid", NULL};
	int rdma = RDMA_PREFER, r;

	r = spri_env_word(SPRI_ENV_RDMA, words, RDMA_PREFER, &rdma, &context->text);
	if (r < 0)
		return spri_trace(r);
	if (!name && context->sim)
		name = "loop";
	if (!name)
		name = spri_env_get(SPRI_ENV_TRANSPORT);
	if (!name)
		name = spri_env_info(SPRI_ENV_TRANSPORT)->value;
	if (!strcmp(name, "auto")) {
		r = open_auto(context, (enum rdma)rdma);
	} else {
		r = choose_named(context, name, (enum rdma)rdma);
		if (r == 0)
			r = open_port(context);
	}
	return spri_trace(r);
}

bool spri_context_can_fall_back(const struct spr_context *context)
{
	return context->automatic && !context->has_thread && context->n_users == 0 &&
	       (!context->comms || !context->comms->next);
}

int spri_context_fall_back(struct spr_context *context, const char *why)
{
	struct spri_port *before = context->port;
	const struct spri_transport *verbs = context->transport;
	int r;

	assert(spri_context_can_fall_back(context));
	spri_memory_forget(context);
	context->transport = spri_transport_find("tcp");
	r = open_port(context);
	if (r < 0) {
		context->transport = verbs;
		context->port = before;
		return spri_trace(r);
	}
	context->automatic = false;
	verbs->fini(before);
	say_why(why);
	return 0;
}
