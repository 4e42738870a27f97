/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Registered memory (registration.h). Host memory goes to the transport as it is. Memory of a GPU:
 *
 *   1. the driver says which allocation the pointer is in
 *   2. a registration of the same range, access and allocation is used again
 *   3. else the ladder is climbed, with the transport's port to take the memory
 *   4. put: source memory stays registered, the KEPT newest; each get throws out those whose
 *      allocation is gone. A dma-buf that is kept keeps the GPU's memory from being given back
 *      until then
 *
 * Failures: a text that the caller keeps; nothing is left behind.
 */
#include <registration.h>

#include <errno.h>
#include <internal/alloc.h>
#include <internal/log.h>
#include <sparring/memory.h>
#include <string.h>

#define KEPT 8u /* registrations without a user that a context keeps */

int spri_memory_host(struct spr_context *context, void *base, size_t bytes, unsigned access,
		     struct spri_region **out)
{
	struct spri_memory memory = {.base = base, .bytes = bytes, .access = access};
	struct spri_text text = {""};
	int r = context->transport->register_(context->port, &memory, out, &text);

	if (r < 0 && text.s[0])
		spri_logf(SPR_LOG_ERROR, "%s", text.s);
	return spri_trace(r);
}

/* ---- the list ---- */

static bool same_allocation(const struct spri_registration *registration)
{
	struct spri_gpu_pointer now;

	spri_gpu_pointer(registration->region->base, &now);
	return now.on_gpu && now.buffer_id == registration->buffer_id;
}

/* Ends the registration that *link points to. */
static void end(struct spr_context *context, struct spri_registration **link)
{
	struct spri_registration *registration = *link;

	*link = registration->next;
	context->transport->unregister(registration->region);
	spri_gpu_close(registration->gpu);
	spri_free(registration);
}

/* Ends those without a user whose allocation is gone, and all but the `most` newest. */
static void throw_out(struct spr_context *context, unsigned most)
{
	struct spri_registration **link = &context->registrations;
	unsigned n = 0;

	while (*link) {
		struct spri_registration *it = *link;

		if (it->users == 0 && (n >= most || !same_allocation(it))) {
			end(context, link);
			continue;
		}
		n += it->users == 0;
		link = &it->next;
	}
}

void spri_memory_forget(struct spr_context *context)
{
	throw_out(context, 0);
}

/* Registered source memory of a GPU. What peers may write is not shared: its end is its own. */
static struct spri_registration *find(struct spr_context *context, const void *base, size_t bytes,
				      unsigned access, uint64_t buffer_id)
{
	if (access != SPRI_ACCESS_LOCAL)
		return NULL;
	for (struct spri_registration *it = context->registrations; it; it = it->next)
		if (it->gpu && it->buffer_id == buffer_id && it->region->base == base &&
		    it->region->bytes == bytes && it->region->access == access)
			return it;
	return NULL;
}

/* ---- get and put ---- */

struct wanted {
	void *base;
	size_t bytes;
	unsigned access;
};

/* The port, as the ladder sees it. */
struct taker {
	struct spr_context *context;
	struct spri_region **region;
};

static int take(void *arg, const struct spri_memory *memory, struct spri_text *text)
{
	struct taker *t = arg;

	return t->context->transport->register_(t->context->port, memory, t->region, text);
}

static int get_direct(struct spr_context *context, const struct wanted *wanted,
		      struct spri_registration *registration, struct spri_text *text)
{
	struct taker taker = {context, &registration->region};
	struct spri_ladder ladder = {
		.transport = context->transport->name,
		.takes_devices = context->transport->caps & SPRI_CAP_DEVICE_MEMORY,
		.gpudirect = context->gpudirect,
		.root = context->root ? context->root : "",
		.take = take,
		.arg = &taker,
	};
	struct spri_climbed climbed;

	spri_ladder_climb(&ladder, registration->gpu, wanted->base, wanted->bytes, wanted->access,
			  &climbed);
	registration->rung = climbed.rung;
	if (climbed.rung != SPRI_RUNG_STAGING)
		return 0;
	spri_climbed_text(&climbed, text);
	if (context->gpudirect != SPRI_GPUDIRECT_REQUIRE)
		return SPRI_STAGE;
	spri_text_prefix(text, "SPR_GPUDIRECT is 'require', but");
	return SPR_EUNSUPPORTED;
}

/* A registration of GPU memory that is in nobody's list yet. */
static int get_new(struct spr_context *context, const struct wanted *wanted,
		   const struct spri_gpu_pointer *pointer, struct spri_registration **out,
		   struct spri_text *text)
{
	struct spri_registration *registration = spri_zalloc(sizeof *registration);
	int r;

	if (!registration) {
		spri_text_set(text, "%s", spr_strerror(-ENOMEM));
		return -ENOMEM;
	}
	registration->buffer_id = pointer->buffer_id;
	r = spri_gpu_open(pointer->device, &registration->gpu, text);
	if (r == 0)
		r = get_direct(context, wanted, registration, text);
	if (r == 0) {
		*out = registration;
		return 0;
	}
	spri_gpu_close(registration->gpu);
	spri_free(registration);
	return r;
}

static int get_host(struct spr_context *context, void *base, size_t bytes, unsigned access,
		    struct spri_registration **out, struct spri_text *text)
{
	struct spri_memory memory = {.base = base, .bytes = bytes, .access = access};
	struct spri_registration *registration = spri_zalloc(sizeof *registration);
	int r = registration ? context->transport->register_(context->port, &memory,
							     &registration->region, text)
			     : -ENOMEM;

	if (r < 0) {
		if (!text->s[0])
			spri_text_set(text, "registering %zu bytes: %s", bytes, spr_strerror(r));
		spri_free(registration);
		return r;
	}
	*out = registration;
	return 0;
}

int spri_memory_get(struct spr_context *context, void *base, size_t bytes, unsigned access,
		    struct spri_registration **out, struct spri_text *text)
{
	struct spri_registration *registration;
	struct spri_gpu_pointer pointer;
	int r;

	text->s[0] = '\0';
	spri_gpu_pointer(base, &pointer);
	if (pointer.on_gpu) {
		size_t behind = pointer.bytes - (size_t)((char *)base - (char *)pointer.base);

		if (bytes > behind) {
			spri_text_set(text, "%zu bytes are asked for, the allocation has %zu",
				      bytes, behind);
			return spri_trace(SPR_EARGUMENT);
		}
		throw_out(context, KEPT);
		registration = find(context, base, bytes, access, pointer.buffer_id);
		if (registration) {
			registration->users++;
			*out = registration;
			return 0;
		}
		r = get_new(context, &(struct wanted){base, bytes, access}, &pointer, &registration,
			    text);
	} else {
		r = get_host(context, base, bytes, access, &registration, text);
	}
	if (r != 0)
		return spri_trace(r);
	registration->users = 1;
	registration->next = context->registrations;
	context->registrations = registration;
	*out = registration;
	return 0;
}

void spri_memory_put(struct spr_context *context, struct spri_registration *registration)
{
	struct spri_registration **link = &context->registrations;

	if (!registration)
		return;
	assert(registration->users > 0);
	if (--registration->users > 0)
		return;
	if (registration->gpu && registration->region->access == SPRI_ACCESS_LOCAL) {
		throw_out(context, KEPT);
		return;
	}
	while (*link != registration)
		link = &(*link)->next;
	end(context, link);
}

void spri_memory_staged(struct spr_context *context, const struct spri_text *why)
{
	if (!context->told_staged)
		spri_logf(SPR_LOG_WARN, "GPU memory is copied through host memory: %s", why->s);
	context->told_staged = true;
}

int spri_memory_flush(struct spri_gpu *gpu)
{
	int r = spri_gpu_flush(gpu);

	/* the ladder takes no memory for peers' writes of a GPU that cannot flush */
	return spri_trace(r == SPR_EUNSUPPORTED ? SPR_EDEVICE : r);
}

/* ---- public ---- */

int spr_memory_register(struct spr_context *context, void *base, size_t bytes,
			enum spr_access access, struct spr_memory **out)
{
	const struct spri_log *before;
	struct spr_memory *memory;
	struct spri_text why;
	int r;

	if (!context || !base || bytes == 0 || (unsigned)access > SPR_ACCESS_REMOTE_WRITE || !out)
		return SPR_EARGUMENT;
	memory = spri_zalloc(sizeof *memory);
	if (!memory)
		return -ENOMEM;
	memory->context = context;
	before = spri_context_enter(context);
	r = spri_memory_get(context, base, bytes,
			    access == SPR_ACCESS_REMOTE_WRITE ? SPRI_ACCESS_REMOTE_WRITE
							      : SPRI_ACCESS_LOCAL,
			    &memory->registration, &context->text);
	if (r == SPRI_STAGE) {
		why = context->text;
		r = spri_staging_open(context, base, bytes,
				      access == SPR_ACCESS_REMOTE_WRITE ? SPRI_ACCESS_REMOTE_WRITE
									: SPRI_ACCESS_LOCAL,
				      &memory->staging, &context->text);
		if (r == 0)
			spri_memory_staged(context, &why);
	}
	if (r < 0)
		spri_logf(SPR_LOG_ERROR, "%s", context->text.s);
	context->n_users += r == 0;
	spri_context_leave(context, before);
	if (r < 0) {
		spri_free(memory);
		return spri_trace(r);
	}
	memory->region = memory->staging ? spri_staging_region(memory->staging)
					 : memory->registration->region;
	*out = memory;
	return 0;
}

void spr_memory_unregister(struct spr_memory *memory)
{
	const struct spri_log *before;

	if (!memory)
		return;
	before = spri_context_enter(memory->context);
	spri_memory_put(memory->context, memory->registration);
	spri_staging_close(memory->staging);
	memory->context->n_users--;
	spri_context_leave(memory->context, before);
	spri_free(memory);
}

const char *spr_memory_path(const struct spr_memory *memory)
{
	if (memory && memory->staging)
		return spri_rung_name(SPRI_RUNG_STAGING);
	if (!memory || !memory->registration->gpu)
		return "host";
	return spri_rung_name(memory->registration->rung);
}
