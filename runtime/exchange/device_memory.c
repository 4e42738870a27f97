/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Memory of an exchange on a GPU: vectors, mapped lists, and the list once more for NICs.
 * Contracts: struct exchange_place. All of it runs under the lock.
 */
#include <context.h>
#include <errno.h>
#include <internal/alloc.h>
#include <registration.h>

#include "device.h"

int spri_device_alloc(struct spr_exchange *exchange, size_t bytes, float **out)
{
	struct exchange_device *d = exchange->device;
	void *p;
	int r = spri_gpu_alloc(d->gpu, bytes, &p);

	if (r < 0)
		return spri_trace(r);
	r = spri_gpu_zero(d->side, p, bytes);
	if (r == 0)
		r = spri_gpu_sync(d->side);
	if (r < 0) {
		spri_gpu_free(d->gpu, p);
		return spri_trace(r);
	}
	*out = p;
	return 0;
}

void spri_device_free(struct spr_exchange *exchange, float *v, size_t bytes)
{
	(void)bytes;
	if (exchange->device)
		spri_gpu_free(exchange->device->gpu, v);
}

static bool all_dense(const struct spr_exchange *exchange)
{
	return exchange->algo->kind == SPRI_ALGO_DENSE;
}

int spri_device_alloc_host(struct spr_exchange *exchange, size_t bytes, float **out)
{
	void *host, *there;
	int r;

	/* a few layers of many: pages that are not touched cost nothing */
	if (!all_dense(exchange)) {
		*out = spri_alloc_pages(bytes);
		return *out ? 0 : -ENOMEM;
	}
	r = spri_gpu_alloc_mapped(exchange->device->gpu, bytes, &host, &there);
	if (r == 0)
		*out = host;
	return spri_trace(r);
}

void spri_device_free_host(struct spr_exchange *exchange, float *v, size_t bytes)
{
	if (v && all_dense(exchange))
		spri_gpu_free_mapped(exchange->device->gpu, v);
	else
		spri_free_pages(v, bytes);
}

/* Memory freed under a registration would be another one, later. */
static void drop_near(struct spr_exchange *exchange, struct exchange_part *part)
{
	spri_memory_put(exchange->comm->context, part->near_registration);
	spri_gpu_free(exchange->device->gpu, part->near.index);
	part->near_registration = NULL;
	part->near = (struct spri_near){NULL, NULL, NULL};
}

void spri_device_unfit(struct spr_exchange *exchange, struct exchange_part *part)
{
	struct spri_list *list = &part->selected;
	struct exchange_device *d = exchange->device;

	drop_near(exchange, part);
	if (part->algo->kind == SPRI_ALGO_MASKED) {
		spri_free_pages(list->index, part->count * sizeof *list->index);
		spri_gpu_free(d->gpu, part->there.index);
	} else {
		if (list->index)
			spri_gpu_free_mapped(d->gpu, list->index);
		if (list->value)
			spri_gpu_free_mapped(d->gpu, list->value);
	}
	*list = (struct spri_list){0};
	part->there = (struct spri_list){0};
}

/* A mask is written in device memory, where all of it costs nothing that the host would miss. */
static int fit_mask(struct exchange_device *d, struct exchange_part *part, uint64_t n)
{
	void *there;
	int r;

	if (part->selected.index)
		return 0;
	part->selected.index = spri_alloc_pages(n * sizeof *part->selected.index);
	if (!part->selected.index)
		return -ENOMEM;
	part->selected.capacity = n;
	r = spri_gpu_alloc(d->gpu, n * sizeof *part->there.index, &there);
	if (r == 0)
		part->there.index = there;
	return spri_trace(r);
}

/* Chunks of this part may be read by a NIC: the list again, in memory of the device. */
static int fit_near(struct spr_exchange *exchange, struct exchange_part *part, uint64_t n)
{
	struct spr_context *context = exchange->comm->context;
	size_t bytes = n * (sizeof(uint32_t) + sizeof(float));
	struct spri_text why = {""};
	void *memory;
	int r;

	drop_near(exchange, part);
	if (!spri_part_streams(exchange, part) || part->count > UINT64_C(1) << 32 ||
	    spri_list_codec(exchange->codec) != SPRI_CODEC_RAW32)
		return 0;
	r = spri_gpu_alloc(exchange->device->gpu, bytes, &memory);
	if (r < 0)
		return spri_trace(r);
	r = spri_memory_get(context, memory, bytes, SPRI_ACCESS_LOCAL, &part->near_registration,
			    &why);
	if (r == 0) {
		part->near.region = part->near_registration->region;
		part->near.index = memory;
		part->near.value = (float *)(part->near.index + n);
		return 0;
	}
	spri_gpu_free(exchange->device->gpu, memory);
	if (r == SPRI_STAGE) {
		spri_memory_staged(context, &why);
		return 0;
	}
	spri_logf(SPR_LOG_ERROR, "exchange: %s", why.s);
	context->text = why;
	return spri_trace(r);
}

int spri_device_fit(struct spr_exchange *exchange, struct exchange_part *part, uint64_t n)
{
	struct exchange_device *d = exchange->device;
	struct spri_list *list = &part->selected;
	void *host, *there;
	int r;

	if (part->algo->kind == SPRI_ALGO_MASKED)
		return fit_mask(d, part, n);
	if (list->capacity >= n && list->capacity / 4 <= n)
		return 0;
	spri_device_unfit(exchange, part);
	r = spri_gpu_alloc_mapped(d->gpu, n * sizeof *list->index, &host, &there);
	if (r < 0)
		return spri_trace(r);
	list->index = host;
	part->there.index = there;
	r = spri_gpu_alloc_mapped(d->gpu, n * sizeof *list->value, &host, &there);
	if (r < 0) {
		spri_device_unfit(exchange, part);
		return spri_trace(r);
	}
	list->value = host;
	part->there.value = there;
	list->capacity = part->there.capacity = n;
	r = fit_near(exchange, part, n);
	if (r < 0) /* as if there were no list, for the next step, too */
		spri_device_unfit(exchange, part);
	return spri_trace(r);
}
