/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Registered memory of GPUs: what is kept and what is not, what fails, what endpoints make of it;
 * over a transport whose NIC is the bench's.
 */
#include "gpu_bench.h"

#include <check.h>
#include <errno.h>
#include <internal/alloc.h>
#include <registration.h>
#include <sparring/endpoint.h>
#include <sparring/memory.h>
#include <stdlib.h>
#include <string.h>

static unsigned n_registered, n_unregistered;

static int fake_register(struct spri_port *port, const struct spri_memory *wanted,
			 struct spri_region **out, struct spri_text *text)
{
	struct spri_region *region;
	int r = take(NULL, wanted, text);

	if (r < 0)
		return r;
	region = spri_zalloc(sizeof *region);
	if (!region)
		return -ENOMEM;
	*region = (struct spri_region){.port = port,
				       .base = wanted->base,
				       .bytes = wanted->bytes,
				       .access = wanted->access,
				       .device = wanted->device};
	n_registered++;
	*out = region;
	return 0;
}

static void fake_unregister(struct spri_region *region)
{
	n_unregistered++;
	spri_free(region);
}

static struct spri_conn fake_conn;
static bool arrived; /* a notification, for the next poll */

static int fake_create(struct spri_port *port, void *user, struct spri_conn **out)
{
	fake_conn = (struct spri_conn){.port = port, .user = user};
	*out = &fake_conn;
	return 0;
}

static void fake_destroy(struct spri_conn *conn)
{
	conn->user = NULL;
}

static int fake_grant(struct spri_conn *conn, struct spri_region *region, struct spri_remote *out)
{
	(void)conn;
	memset(out, 0, sizeof *out);
	out->address = (uintptr_t)region->base;
	return 0;
}

static int fake_poll(struct spri_port *port, struct spri_event *events, unsigned max)
{
	int n = arrived && max > 0;

	(void)port;
	if (n)
		events[0] = (struct spri_event){.kind = SPRI_EVENT_NOTIFY, .conn = &fake_conn};
	arrived = false;
	return n;
}

static const struct spri_transport fake = {.name = "fake",
					   .caps = SPRI_CAP_DEVICE_MEMORY,
					   .register_ = fake_register,
					   .unregister = fake_unregister,
					   .create = fake_create,
					   .destroy = fake_destroy,
					   .grant = fake_grant,
					   .poll = fake_poll};
static struct spr_context context;

static void begin_cache(void)
{
	begin();
	memset(&context, 0, sizeof context);
	context.transport = &fake;
	context.root = root;
	n_registered = n_unregistered = 0;
}

static struct spri_registration *get(void *base, size_t bytes, unsigned access)
{
	struct spri_registration *registration = NULL;
	struct spri_text text = {""};
	int r = spri_memory_get(&context, base, bytes, access, &registration, &text);

	cr_assert_eq(r, 0, "%d: %s", r, text.s);
	return registration;
}

Test(registration, source_memory_is_kept)
{
	struct spri_registration *first, *second, *other;

	begin_cache();
	first = get(memory, 1000, SPRI_ACCESS_LOCAL);
	second = get(memory, 1000, SPRI_ACCESS_LOCAL);
	cr_assert(first == second && first->rung == SPRI_RUNG_DMA_BUF && n_registered == 1);
	other = get(memory, 999, SPRI_ACCESS_LOCAL);
	cr_assert_neq(other, first, "another range");
	cr_assert_eq(spri_memory_flush(first->gpu), 0);
	spri_memory_put(&context, first);
	spri_memory_put(&context, second);
	spri_memory_put(&context, other);
	cr_assert_eq(n_unregistered, 0);
	cr_assert_eq(get(memory, 1000, SPRI_ACCESS_LOCAL), first, "kept");
	cr_assert_eq(n_registered, 2);
	spri_memory_put(&context, first);
	spri_memory_forget(&context);
	cr_assert(n_unregistered == 2 && !context.registrations);
	finish();
}

/* The same address, but not the same memory. */
Test(registration, an_allocation_that_came_again_is_another)
{
	struct spri_registration *first;
	void *again;

	begin_cache();
	first = get(memory, 1000, SPRI_ACCESS_LOCAL);
	spri_memory_put(&context, first);
	spri_gpu_free(gpu, memory);
	cr_assert_eq(spri_gpu_alloc(gpu, BYTES, &again), 0);
	cr_assert_eq(again, memory, "the stand-in uses addresses again");
	first = get(again, 1000, SPRI_ACCESS_LOCAL);
	cr_assert(n_registered == 2 && n_unregistered == 1, "the old one is thrown out");
	spri_memory_put(&context, first);
	spri_memory_forget(&context);
	finish();
}

/* Nor when the old one is still in use, which the caller should not have let happen. */
Test(registration, one_in_use_is_not_mistaken)
{
	struct spri_registration *first, *second;
	void *again;

	begin_cache();
	first = get(memory, 1000, SPRI_ACCESS_LOCAL);
	spri_gpu_free(gpu, memory);
	cr_assert_eq(spri_gpu_alloc(gpu, BYTES, &again), 0);
	cr_assert_eq(again, memory, "the stand-in uses addresses again");
	second = get(again, 1000, SPRI_ACCESS_LOCAL);
	cr_assert(second != first && n_registered == 2);
	spri_memory_put(&context, first);
	spri_memory_put(&context, second);
	spri_memory_forget(&context);
	cr_assert_eq(n_unregistered, 2);
	finish();
}

Test(registration, what_peers_may_write_is_neither_shared_nor_kept)
{
	struct spri_registration *first, *second;

	begin_cache();
	first = get(memory, 1000, SPRI_ACCESS_REMOTE_WRITE);
	second = get(memory, 1000, SPRI_ACCESS_REMOTE_WRITE);
	cr_assert(first != second && n_registered == 2);
	spri_memory_put(&context, second);
	spri_memory_put(&context, first);
	cr_assert_eq(n_unregistered, 2);
	cr_assert_null(context.registrations);
	finish();
}

Test(registration, only_so_many_are_kept)
{
	begin_cache();
	for (size_t i = 1; i <= 20; i++)
		spri_memory_put(&context, get(memory, i, SPRI_ACCESS_LOCAL));
	cr_assert(n_registered == 20 && n_unregistered == 12, "%u kept",
		  n_registered - n_unregistered);
	spri_memory_put(&context, get(memory, 20, SPRI_ACCESS_LOCAL));
	cr_assert_eq(n_registered, 20, "the newest are kept");
	spri_memory_forget(&context);
	finish();
}

Test(registration, host_memory_goes_as_it_is)
{
	struct spri_registration *registration;
	char local[100];

	begin_cache();
	registration = get(local, sizeof local, SPRI_ACCESS_LOCAL);
	cr_assert(!registration->gpu && !nic.last.device && nic.last.base == local);
	spri_memory_put(&context, registration);
	cr_assert_eq(n_unregistered, 1, "it is not kept");
	spri_memory_put(&context, NULL);
	finish();
}

Test(registration, failures_say_why)
{
	struct spri_registration *registration = NULL;
	struct spri_text text;

	begin_cache();
	cr_assert_eq(spri_memory_get(&context, memory + 10, BYTES, SPRI_ACCESS_LOCAL, &registration,
				     &text),
		     SPR_EARGUMENT);
	cr_assert_str_eq(text.s, "100000 bytes are asked for, the allocation has 99990");
	nic.refuses[0] = nic.refuses[1] = -EOPNOTSUPP;
	cr_assert_eq(spri_memory_get(&context, memory, 10, SPRI_ACCESS_LOCAL, &registration, &text),
		     SPRI_STAGE);
	cr_assert_str_eq(text.s, "dma-buf: Operation not supported; peer memory: " NO_MODULE);
	context.gpudirect = SPRI_GPUDIRECT_REQUIRE;
	cr_assert_eq(spri_memory_get(&context, memory, 10, SPRI_ACCESS_LOCAL, &registration, &text),
		     SPR_EUNSUPPORTED);
	cr_assert_str_eq(text.s, "SPR_GPUDIRECT is 'require', but: dma-buf: Operation not "
				 "supported; peer memory: " NO_MODULE);
	setenv("EMU_CUDA_FAIL", "cuFlushGPUDirectRDMAWrites:1:999", 1);
	nic.refuses[0] = 0;
	registration = get(memory, 10, SPRI_ACCESS_REMOTE_WRITE);
	cr_assert_eq(spri_memory_flush(registration->gpu), SPR_EDEVICE);
	spri_memory_put(&context, registration);
	finish();
}

/* ---- endpoints ---- */

/* Polls for a notification while the driver cannot flush. */
static int poll_without_flush(struct spr_endpoint *endpoint)
{
	struct spr_event event;
	int n;

	setenv("EMU_CUDA_FAIL", "cuFlushGPUDirectRDMAWrites:0:999", 1);
	arrived = true;
	n = spr_endpoint_poll(endpoint, &event, 1);
	unsetenv("EMU_CUDA_FAIL");
	return n;
}

/* No notification is handed out before the GPU sees what it tells of. */
Test(registration, gpus_are_flushed_before_notifications)
{
	struct spr_memory *host = NULL, *device = NULL;
	struct spr_endpoint *endpoint = NULL;
	struct spr_remote remote;
	struct spr_event event;
	char local[100];

	begin_cache();
	cr_assert_eq(
		spr_memory_register(&context, local, sizeof local, SPR_ACCESS_REMOTE_WRITE, &host),
		0);
	cr_assert_eq(spr_memory_register(&context, memory, 1000, SPR_ACCESS_REMOTE_WRITE, &device),
		     0);
	cr_assert_str_eq(spr_memory_path(host), "host");
	cr_assert_str_eq(spr_memory_path(device), "dma-buf");
	cr_assert_eq(spr_endpoint_create(&context, &endpoint), 0);
	cr_assert_eq(spr_endpoint_grant(endpoint, host, &remote), 0);
	cr_assert_eq(poll_without_flush(endpoint), 1, "host memory needs none");
	cr_assert_eq(spr_endpoint_grant(endpoint, device, &remote), 0);
	cr_assert_eq(poll_without_flush(endpoint), SPR_EDEVICE);
	arrived = true;
	cr_assert_eq(spr_endpoint_poll(endpoint, &event, 1), 1);
	cr_assert_eq(event.kind, SPR_EVENT_NOTIFY);
	spr_endpoint_destroy(endpoint);
	spr_memory_unregister(device);
	spr_memory_unregister(host);
	cr_assert(n_unregistered == 2 && context.n_users == 0);
	finish();
}

static char logged[1024];

static void keep_line(void *arg, enum spr_log_level level, const char *text)
{
	size_t n = strlen(logged);

	(void)arg;
	(void)level;
	snprintf(logged + n, sizeof logged - n, "%s\n", text);
}

Test(registration, staging_is_told_once)
{
	const struct spri_log hook = {.fn = keep_line, .level = SPR_LOG_WARN};
	const struct spri_log *before = spri_log_enter(&hook);
	struct spri_text why = {"the reason"};

	memset(&context, 0, sizeof context);
	spri_memory_staged(&context, &why);
	spri_memory_staged(&context, &why);
	spri_log_enter(before);
	cr_assert_str_eq(logged, "GPU memory is copied through host memory: the reason\n");
}

Test(registration, every_allocation_fails_in_turn)
{
	struct spri_registration *registration = NULL;
	struct spri_text text;
	long live;
	int r;

	begin_cache();
	live = spri_heap_live();
	for (long n = 0;; n++) {
		spri_heap_fail_after(n);
		r = spri_memory_get(&context, memory, 10, SPRI_ACCESS_LOCAL, &registration, &text);
		spri_heap_fail_after(-1);
		if (r == 0)
			break;
		cr_assert(r == -ENOMEM || r == SPRI_STAGE, "%ld: %d", n, r);
		cr_assert_neq(text.s[0], '\0');
		cr_assert_eq(spri_heap_live(), live, "%ld leaks", n);
	}
	spri_memory_put(&context, registration);
	spri_memory_forget(&context);
	cr_assert_eq(spri_heap_live(), live);
	finish();
}

/* ---- the public function, over tcp ---- */

Test(registration, tcp_stages)
{
	struct spr_context_options options = {.size = sizeof options, .transport = "tcp"};
	struct spr_context *tcp = NULL;
	struct spr_memory *registered = NULL;

	begin();
	cr_assert_eq(spr_context_open(&options, &tcp), 0);
	cr_assert_eq(spr_memory_register(tcp, memory, 100, SPR_ACCESS_LOCAL, &registered), 0);
	cr_assert_str_eq(spr_memory_path(registered), "staging");
	spr_memory_unregister(registered);
	registered = NULL;
	setenv("EMU_CUDA_FAIL", "cuMemHostAlloc:1:2", 1);
	cr_assert_eq(spr_memory_register(tcp, memory, 100, SPR_ACCESS_REMOTE_WRITE, &registered),
		     -ENOMEM);
	unsetenv("EMU_CUDA_FAIL");
	cr_assert(strstr(spr_context_error(tcp), "staging 100 bytes"), "got '%s'",
		  spr_context_error(tcp));
	cr_assert_null(registered);
	spr_context_close(tcp);
	setenv("SPR_GPUDIRECT", "require", 1);
	cr_assert_eq(spr_context_open(&options, &tcp), 0);
	cr_assert_eq(spr_memory_register(tcp, memory, 100, SPR_ACCESS_LOCAL, &registered),
		     SPR_EUNSUPPORTED);
	cr_assert_str_eq(spr_context_error(tcp), "SPR_GPUDIRECT is 'require', but: tcp moves host "
						 "memory only");
	cr_assert_null(registered);
	spr_context_close(tcp);
	finish();
}

Test(registration, the_variable_is_checked)
{
	struct spr_context_options options = {.size = sizeof options, .transport = "tcp"};
	struct spr_context *tcp = NULL;

	setenv("SPR_GPUDIRECT", "maybe", 1);
	cr_assert_eq(spr_context_open(&options, &tcp), SPR_EENVIRONMENT);
	unsetenv("SPR_GPUDIRECT");
}
