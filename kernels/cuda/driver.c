/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Opens the CUDA driver, once per process, and never closes it: it has threads of its own.
 *
 *   1. dlopen libcuda.so.1; every function of the table by its name
 *   2. cuInit, the version, the number of devices
 *   3. a fork handler: from then on a child has no driver
 *
 * Failures: no library, one that lacks a function or is too old, one that does not start, no
 * device. Each is kept as the text that spri_cuda_get gives whenever it is asked again.
 */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>

#define LIBRARY "libcuda.so.1"

static struct {
	pthread_once_t once;
	struct spri_cuda calls;
	struct spri_text why; /* "" when it is of use */
	atomic_bool forked;   /* this process is a child of the one that opened it */
} driver = {.once = PTHREAD_ONCE_INIT};

/* A function's place in the table, and its name, _v2 and all: the header renames by macros. */
struct entry {
	void **place;
	const char *name;
};
#define SPELL(name) #name
#define ENTRY(field, function) {(void **)&driver.calls.field, SPELL(function)},
static const struct entry needed[] = {SPRI_CUDA_CALLS(ENTRY)};
static const struct entry wanted[] = {SPRI_CUDA_CALLS_MAYBE(ENTRY)};
#undef ENTRY

static void in_child(void)
{
	atomic_store_explicit(&driver.forked, true, memory_order_relaxed);
}

static int find_calls(void *library)
{
	for (size_t i = 0; i < spri_countof(needed); i++) {
		*needed[i].place = dlsym(library, needed[i].name);
		if (*needed[i].place)
			continue;
		spri_text_set(&driver.why, "the CUDA driver is too old: %s has no %s", LIBRARY,
			      needed[i].name);
		return SPR_EUNSUPPORTED;
	}
	for (size_t i = 0; i < spri_countof(wanted); i++)
		*wanted[i].place = dlsym(library, wanted[i].name);
	return 0;
}

static int start(struct spri_cuda *cuda)
{
	struct spri_text *why = &driver.why;
	int r = spri_cuda_result(cuda->init(0), "cuInit", why);

	if (r < 0)
		return r;
	r = spri_cuda_result(cuda->driver_version(&cuda->version), "cuDriverGetVersion", why);
	if (r < 0)
		return r;
	if (cuda->version < SPRI_CUDA_OLDEST) {
		spri_text_set(
			why, "the CUDA driver is too old: it is for CUDA %d.%d, %d.0 is needed",
			cuda->version / 1000, cuda->version % 1000 / 10, SPRI_CUDA_OLDEST / 1000);
		return SPR_EUNSUPPORTED;
	}
	r = spri_cuda_result(cuda->device_count(&cuda->count), "cuDeviceGetCount", why);
	if (r == 0 && cuda->count < 1) {
		spri_text_set(why, "the CUDA driver has no device that this process may use");
		return SPR_EUNSUPPORTED;
	}
	return r;
}

static void open_driver(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *words;

	if (!library) {
		words = dlerror();
		spri_text_set(&driver.why, "no CUDA driver: %s", words ? words : LIBRARY);
		return;
	}
	if (find_calls(library) < 0 || start(&driver.calls) < 0)
		return;
	if (pthread_atfork(NULL, NULL, in_child) != 0)
		spri_text_set(&driver.why, "no memory for a fork handler");
}

const struct spri_cuda *spri_cuda_get(struct spri_text *why)
{
	pthread_once(&driver.once, open_driver);
	if (spri_unlikely(atomic_load_explicit(&driver.forked, memory_order_relaxed))) {
		spri_text_set(why, "this process was forked from one that used the GPU: the CUDA "
				   "driver does not work in it");
		return NULL;
	}
	if (driver.why.s[0]) {
		spri_text_set(why, "%s", driver.why.s);
		return NULL;
	}
	return &driver.calls;
}

/* How many objects this process has loaded so far. */
static int note_loads(struct dl_phdr_info *info, size_t bytes, void *loads)
{
	(void)bytes;
	*(unsigned long long *)loads = info->dlpi_adds;
	return 1; /* one is enough */
}

const struct spri_cuda *spri_cuda_loaded(void)
{
	static atomic_ullong searched; /* loads when it was not among them; looking takes files */
	static atomic_bool seen;
	unsigned long long loads = 0;
	void *library;

	if (!atomic_load_explicit(&seen, memory_order_relaxed)) {
		dl_iterate_phdr(note_loads, &loads);
		if (loads == atomic_load_explicit(&searched, memory_order_relaxed))
			return NULL;
		atomic_store_explicit(&searched, loads, memory_order_relaxed);
		library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
		if (!library)
			return NULL;
		dlclose(library); /* the reference: whoever loaded it has its own */
		atomic_store_explicit(&seen, true, memory_order_relaxed);
	}
	return spri_cuda_get(NULL);
}

int spri_cuda_result(CUresult result, const char *what, struct spri_text *text)
{
	const char *name = NULL, *words = NULL;

	if (spri_likely(result == CUDA_SUCCESS))
		return 0;
	driver.calls.error_name(result, &name);
	driver.calls.error_string(result, &words);
	spri_text_set(text, "%s: %s: %s", what, name ? name : "an error without a name",
		      words ? words : "the driver has no words for it");
	return result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : SPR_EDEVICE;
}
