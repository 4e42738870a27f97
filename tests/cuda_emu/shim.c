/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The device of gpu.h and launch.h on the emulator: one GPU of three multiprocessors, whose memory
 * is the host's and whose streams are done when a call returns. For tests of kernels; the driver is
 * left out, and with it all that a driver may refuse.
 *
 * Memory is exactly as large as asked, so that the address sanitizer sees its end, and holds 0xa5
 * at first.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <launch.h>

#include "emu.h"

#define PROCESSORS 3
#define ALIGNMENT 256

struct spri_gpu {
	unsigned n_streams;
};

struct spri_gpu_stream {
	struct spri_gpu *gpu;
	void *scratch; /* owned */
	size_t scratch_bytes;
};

#define KERNEL_NAME(name) [SPRI_GPU_KERNEL_##name] = "spri_" #name,
static const char *const kernel_names[] = {SPRI_GPU_KERNELS(KERNEL_NAME)};
#undef KERNEL_NAME

static void *get_memory(size_t bytes)
{
	void *p;

	if (posix_memalign(&p, ALIGNMENT, bytes ? bytes : 1) != 0)
		return NULL;
	memset(p, 0xa5, bytes);
	return p;
}

int spri_gpu_probe(struct spri_text *why SPRI_UNUSED)
{
	return 0;
}

unsigned spri_gpu_count(void)
{
	return 1;
}

int spri_gpu_info(unsigned i, struct spri_gpu_info *info, struct spri_text *text SPRI_UNUSED)
{
	if (i > 0)
		return SPR_EARGUMENT;
	*info = (struct spri_gpu_info){
		.name = "emulator", .pci = "0000:00:00.0", .major = 7, .minor = 5};
	return 0;
}

int spri_gpu_open(unsigned device, struct spri_gpu **out, struct spri_text *text)
{
	if (device > 0) {
		spri_text_set(text, "the emulator is one device");
		return SPR_EUNSUPPORTED;
	}
	*out = calloc(1, sizeof **out);
	return *out ? 0 : -ENOMEM;
}

void spri_gpu_close(struct spri_gpu *gpu)
{
	free(gpu);
}

unsigned spri_gpu_number(const struct spri_gpu *gpu SPRI_UNUSED)
{
	return 0;
}

void spri_gpu_pointer(const void *p SPRI_UNUSED, struct spri_gpu_pointer *out)
{
	*out = (struct spri_gpu_pointer){.on_gpu = false};
}

int spri_gpu_alloc(struct spri_gpu *gpu SPRI_UNUSED, size_t bytes, void **out)
{
	*out = get_memory(bytes);
	return *out ? 0 : -ENOMEM;
}

void spri_gpu_free(struct spri_gpu *gpu SPRI_UNUSED, void *p)
{
	free(p);
}

int spri_gpu_alloc_mapped(struct spri_gpu *gpu, size_t bytes, void **host, void **device)
{
	int r = spri_gpu_alloc(gpu, bytes, host);

	if (r < 0)
		return r;
	memset(*host, 0, bytes);
	*device = *host;
	return 0;
}

void spri_gpu_free_mapped(struct spri_gpu *gpu SPRI_UNUSED, void *host)
{
	free(host);
}

int spri_gpu_synchronous(struct spri_gpu *gpu SPRI_UNUSED, void *p SPRI_UNUSED,
			 struct spri_text *why SPRI_UNUSED)
{
	return 0;
}

int spri_gpu_export(struct spri_gpu *gpu SPRI_UNUSED, void *p SPRI_UNUSED, size_t bytes SPRI_UNUSED,
		    int *fd SPRI_UNUSED, uint64_t *offset SPRI_UNUSED, struct spri_text *why)
{
	spri_text_set(why, "the emulator's memory is the host's");
	return SPR_EUNSUPPORTED;
}

int spri_gpu_flush(struct spri_gpu *gpu SPRI_UNUSED)
{
	return 0;
}

int spri_gpu_stream_create(struct spri_gpu *gpu, struct spri_gpu_stream **out)
{
	*out = calloc(1, sizeof **out);
	if (!*out)
		return -ENOMEM;
	(*out)->gpu = gpu;
	return 0;
}

void spri_gpu_stream_destroy(struct spri_gpu_stream *stream)
{
	if (!stream)
		return;
	free(stream->scratch);
	free(stream);
}

int spri_gpu_after(struct spri_gpu_stream *stream SPRI_UNUSED, void *theirs SPRI_UNUSED)
{
	return 0;
}

int spri_gpu_before(struct spri_gpu_stream *stream SPRI_UNUSED, void *theirs SPRI_UNUSED)
{
	return 0;
}

int spri_gpu_copy(struct spri_gpu_stream *stream SPRI_UNUSED, void *to, const void *from,
		  size_t bytes)
{
	if (bytes > 0)
		memcpy(to, from, bytes);
	return 0;
}

int spri_gpu_zero(struct spri_gpu_stream *stream SPRI_UNUSED, void *to, size_t bytes)
{
	if (bytes > 0)
		memset(to, 0, bytes);
	return 0;
}

int spri_gpu_sync(struct spri_gpu_stream *stream SPRI_UNUSED)
{
	return 0;
}

int spri_gpu_idle(struct spri_gpu_stream *stream SPRI_UNUSED)
{
	return 0;
}

const char *spri_gpu_stream_error(const struct spri_gpu_stream *stream SPRI_UNUSED)
{
	return "";
}

int spri_gpu_launch(struct spri_gpu_stream *stream SPRI_UNUSED, enum spri_gpu_kernel kernel,
		    uint32_t blocks, uint32_t threads, uint32_t shared, void **params)
{
	unsigned grid[3] = {blocks, 1, 1}, block[3] = {threads, 1, 1};
	int number = spri_emu_find(kernel_names[kernel]);

	if (number < 0 || blocks == 0) {
		fprintf(stderr, "shim: a launch of %u blocks of %s, which %s\n", blocks,
			kernel_names[kernel],
			number < 0 ? "no .cu defines" : "a driver would refuse");
		abort();
	}
	spri_emu_run(number, grid, block, shared, params);
	return 0;
}

int spri_gpu_scratch(struct spri_gpu_stream *stream, size_t bytes, void **out)
{
	if (bytes > stream->scratch_bytes) {
		void *p = get_memory(bytes);

		if (!p)
			return -ENOMEM;
		free(stream->scratch);
		stream->scratch = p;
		stream->scratch_bytes = bytes;
	}
	*out = stream->scratch;
	return 0;
}

uint32_t spri_gpu_processors(const struct spri_gpu_stream *stream SPRI_UNUSED)
{
	return PROCESSORS;
}
