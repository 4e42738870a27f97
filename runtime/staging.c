/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Staged GPU memory; see staging.h. Copies run on a stream of their own, each waited for: the order
 * of posts and of notifications is the transport's.
 *
 * Failures: a device that fails while something arrives loses the connection with SPR_EDEVICE; the
 * driver's words go to the log.
 */
#include <staging.h>

#include <errno.h>
#include <internal/alloc.h>
#include <mapped.h>

struct spri_staging {
	struct spr_context *context;
	struct spri_gpu *gpu; /* owned, as all but device */
	struct spri_gpu_stream *stream;
	struct spri_mapped pinned; /* the copy */
	uint8_t *device;	   /* what it stands for */
	size_t bytes;
	struct spri_region *region;
};

static int copy(struct spri_staging *s, void *to, const void *from, size_t bytes)
{
	int r = spri_gpu_copy(s->stream, to, from, bytes);

	if (r == 0)
		r = spri_gpu_sync(s->stream);
	if (r == SPR_EDEVICE)
		spri_logf(SPR_LOG_ERROR, "GPU %u: %s", spri_gpu_number(s->gpu),
			  spri_gpu_stream_error(s->stream));
	return spri_trace(r);
}

/* A peer wrote here: on to the GPU. */
static int landed(void *arg, void *at, size_t bytes)
{
	struct spri_staging *s = arg;

	return copy(s, s->device + ((uint8_t *)at - s->pinned.host), at, bytes);
}

static int make(struct spri_staging *s, void *base, size_t bytes, struct spri_text *text)
{
	struct spri_gpu_pointer pointer;
	int r;

	spri_gpu_pointer(base, &pointer);
	r = spri_gpu_open(pointer.device, &s->gpu, text);
	if (r == 0)
		r = spri_gpu_stream_create(s->gpu, &s->stream);
	if (r == 0)
		r = spri_mapped_fit(s->gpu, &s->pinned, bytes);
	if (r < 0)
		return spri_trace(r);
	s->device = base;
	s->bytes = bytes;
	return 0;
}

int spri_staging_open(struct spr_context *context, void *base, size_t bytes, unsigned access,
		      struct spri_staging **out, struct spri_text *text)
{
	struct spri_memory memory = {.bytes = bytes, .access = access, .landed = landed};
	struct spri_staging *s;
	int r;

	if (!(context->transport->caps & SPRI_CAP_LANDED))
		return SPR_EUNSUPPORTED; /* the text says what speaks against better ways */
	s = spri_zalloc(sizeof *s);
	if (!s)
		return spri_trace(-ENOMEM);
	s->context = context;
	r = make(s, base, bytes, text);
	memory.base = s->pinned.host;
	memory.landed_arg = s;
	if (r == 0)
		r = context->transport->register_(context->port, &memory, &s->region, text);
	if (r < 0) {
		spri_text_prefix(text, "staging %zu bytes: %s", bytes, spr_strerror(r));
		spri_staging_close(s);
		return spri_trace(r);
	}
	*out = s;
	return 0;
}

void spri_staging_close(struct spri_staging *s)
{
	if (!s)
		return;
	s->context->transport->unregister(s->region);
	spri_gpu_stream_destroy(s->stream);
	spri_mapped_free(s->gpu, &s->pinned);
	spri_gpu_close(s->gpu);
	spri_free(s);
}

struct spri_region *spri_staging_region(const struct spri_staging *s)
{
	return s->region;
}

int spri_staging_take(struct spri_staging *s, const void *base, size_t bytes, const void **host)
{
	size_t offset = (size_t)((uintptr_t)base - (uintptr_t)s->device);

	if ((uintptr_t)base < (uintptr_t)s->device || offset > s->bytes ||
	    bytes > s->bytes - offset)
		return SPR_EARGUMENT;
	*host = s->pinned.host + offset;
	return bytes == 0 ? 0 : copy(s, s->pinned.host + offset, base, bytes);
}
