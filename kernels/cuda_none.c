/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Stands in for cuda/ in builds without nvcc: no device can be opened, every pointer is the host's,
 * and nothing can be queued, since there is no stream to queue it on.
 */
#include <gpu.h>

#include <string.h>

static int none(struct spri_text *why)
{
	spri_text_set(why, "built without GPU kernels");
	return SPR_EUNSUPPORTED;
}

/* ---- what there is, a device ---- */

int spri_gpu_probe(struct spri_text *why)
{
	return none(why);
}

unsigned spri_gpu_count(void)
{
	return 0;
}

int spri_gpu_info(unsigned i, struct spri_gpu_info *info, struct spri_text *text)
{
	(void)i;
	(void)info;
	return none(text);
}

int spri_gpu_open(unsigned device, struct spri_gpu **out, struct spri_text *text)
{
	(void)device;
	(void)out;
	return none(text);
}

void spri_gpu_close(struct spri_gpu *gpu)
{
	(void)gpu;
}

unsigned spri_gpu_number(const struct spri_gpu *gpu)
{
	(void)gpu;
	return 0;
}

/* ---- memory ---- */

void spri_gpu_pointer(const void *p, struct spri_gpu_pointer *out)
{
	(void)p;
	memset(out, 0, sizeof *out);
}

int spri_gpu_alloc(struct spri_gpu *gpu, size_t bytes, void **out)
{
	(void)gpu;
	(void)bytes;
	(void)out;
	return none(NULL);
}

void spri_gpu_free(struct spri_gpu *gpu, void *p)
{
	(void)gpu;
	(void)p;
}

int spri_gpu_alloc_mapped(struct spri_gpu *gpu, size_t bytes, void **host, void **device)
{
	(void)host;
	return spri_gpu_alloc(gpu, bytes, device);
}

void spri_gpu_free_mapped(struct spri_gpu *gpu, void *host)
{
	spri_gpu_free(gpu, host);
}

int spri_gpu_synchronous(struct spri_gpu *gpu, void *p, struct spri_text *why)
{
	spri_gpu_free(gpu, p);
	return none(why);
}

int spri_gpu_export(struct spri_gpu *gpu, void *p, size_t bytes, int *fd, uint64_t *offset,
		    struct spri_text *why)
{
	(void)bytes;
	(void)fd;
	(void)offset;
	return spri_gpu_synchronous(gpu, p, why);
}

int spri_gpu_flush(struct spri_gpu *gpu)
{
	(void)gpu;
	return none(NULL);
}

/* ---- streams ---- */

int spri_gpu_stream_create(struct spri_gpu *gpu, struct spri_gpu_stream **out)
{
	(void)gpu;
	(void)out;
	return none(NULL);
}

void spri_gpu_stream_destroy(struct spri_gpu_stream *stream)
{
	(void)stream;
}

int spri_gpu_after(struct spri_gpu_stream *stream, void *theirs)
{
	(void)stream;
	(void)theirs;
	return none(NULL);
}

int spri_gpu_before(struct spri_gpu_stream *stream, void *theirs)
{
	return spri_gpu_after(stream, theirs);
}

int spri_gpu_copy(struct spri_gpu_stream *stream, void *to, const void *from, size_t bytes)
{
	(void)from;
	(void)bytes;
	return spri_gpu_after(stream, to);
}

int spri_gpu_zero(struct spri_gpu_stream *stream, void *to, size_t bytes)
{
	return spri_gpu_copy(stream, to, NULL, bytes);
}

int spri_gpu_sync(struct spri_gpu_stream *stream)
{
	return spri_gpu_after(stream, NULL);
}

int spri_gpu_idle(struct spri_gpu_stream *stream)
{
	return spri_gpu_after(stream, NULL);
}

int spri_gpu_time_begin(struct spri_gpu_stream *stream)
{
	return spri_gpu_after(stream, NULL);
}

int spri_gpu_time_end(struct spri_gpu_stream *stream, double *ns)
{
	return spri_gpu_after(stream, ns);
}

const char *spri_gpu_stream_error(const struct spri_gpu_stream *stream)
{
	(void)stream;
	return "built without GPU kernels";
}
