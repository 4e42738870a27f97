/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The ladder of GPU memory and the cache of registrations, over the stand-in driver, a machine made
 * of a few files, and a NIC that says what a test wants it to say.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <internal/alloc.h>
#include <registration.h>
#include <sparring/memory.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = 100000 };

/* ---- a machine ---- */

static char root[] = "/tmp/sparring-ladder-XXXXXX";

/* Makes a file below the root, and its directories. */
static void put_file(const char *path, const char *content)
{
	char whole[256];
	FILE *file;

	snprintf(whole, sizeof whole, "%s/%s", root, path);
	for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		cr_assert(mkdir(whole, 0700) == 0 || errno == EEXIST, "%s", whole);
		*slash = '/';
	}
	file = fopen(whole, "w");
	cr_assert_not_null(file, "%s", whole);
	fputs(content, file);
	fclose(file);
}

static void make_machine(void)
{
	cr_assert_not_null(mkdtemp(root));
	put_file("proc/sys/kernel/osrelease", "6.1.0-57-amd64\n");
	put_file("proc/cmdline", "quiet\n");
}

static void end_machine(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -r %s", root);
	cr_assert_eq(system(command), 0);
}

/* ---- a NIC ---- */

static struct {
	int refuses[2];	  /* by dma-buf, by address: what it returns */
	const char *text; /* and says */
	unsigned n;	  /* how often it was asked */
	struct spri_memory last;
	bool fd_was_open;
} nic;

static int take(void *arg, const struct spri_memory *memory, struct spri_text *text)
{
	int r = nic.refuses[memory->dma_buf < 0];

	(void)arg;
	nic.n++;
	nic.last = *memory;
	nic.fd_was_open = memory->dma_buf >= 0 && fcntl(memory->dma_buf, F_GETFD) >= 0;
	if (r < 0 && nic.text)
		spri_text_set(text, "%s", nic.text);
	return r;
}

/* ---- the ladder ---- */

static struct spri_gpu *gpu;
static char *memory;

static void begin(void)
{
	struct spri_text why = {""};

	if (spri_gpu_probe(&why) < 0)
		cr_skip("%s", why.s);
	cr_assert_eq(spri_gpu_open(1, &gpu, &why), 0, "%s", why.s);
	cr_assert_eq(spri_gpu_alloc(gpu, BYTES, (void **)&memory), 0);
	memset(&nic, 0, sizeof nic);
	setenv("EMU_CUDA_ANY_FD", "1", 1);
	make_machine();
}

static void finish(void)
{
	spri_gpu_free(gpu, memory);
	spri_gpu_close(gpu);
	unsetenv("EMU_CUDA_ANY_FD");
	unsetenv("EMU_CUDA_ATTRIBUTES");
	unsetenv("EMU_CUDA_FAIL");
	end_machine();
}

static struct spri_ladder usual(void)
{
	return (struct spri_ladder){
		.transport = "verbs", .takes_devices = true, .root = root, .take = take};
}

static struct spri_climbed climb(const struct spri_ladder *ladder)
{
	struct spri_climbed climbed;

	spri_ladder_climb(ladder, gpu, memory + 5000, 10000, SPRI_ACCESS_REMOTE_WRITE, &climbed);
	return climbed;
}

/* The rung reached, and a reason for each above it ("" for none). */
static void expect(const struct spri_ladder *ladder, enum spri_rung rung, const char *dma_buf,
		   const char *peer)
{
	struct spri_climbed climbed = climb(ladder);

	cr_assert_eq(climbed.rung, rung, "%s instead of %s: %s; %s", spri_rung_name(climbed.rung),
		     spri_rung_name(rung), climbed.why[0].s, climbed.why[1].s);
	cr_assert_str_eq(climbed.why[0].s, dma_buf);
	cr_assert_str_eq(climbed.why[1].s, peer);
}

#define NO_MODULE "the module nvidia_peermem is not loaded"

Test(ladder, dma_buf_is_the_best_rung)
{
	struct spri_ladder ladder;

	begin();
	ladder = usual();
	expect(&ladder, SPRI_RUNG_DMA_BUF, "", "");
	cr_assert(nic.last.device && nic.last.base == memory + 5000 && nic.last.bytes == 10000);
	cr_assert(nic.last.access == SPRI_ACCESS_REMOTE_WRITE && nic.fd_was_open);
	cr_assert_eq(nic.last.offset, (uintptr_t)(memory + 5000) % 4096, "%llu",
		     (unsigned long long)nic.last.offset);
	cr_assert_lt(fcntl(nic.last.dma_buf, F_GETFD), 0, "the descriptor is closed");
	finish();
}

Test(ladder, peer_memory_is_the_next)
{
	struct spri_ladder ladder;

	begin();
	ladder = usual();
	put_file("sys/module/nvidia_peermem/version", "535\n");
	nic.refuses[0] = -EOPNOTSUPP;
	expect(&ladder, SPRI_RUNG_PEER, "Operation not supported", "");
	cr_assert(nic.n == 2 && nic.last.device && nic.last.dma_buf == -1);
	cr_assert(nic.last.base == memory + 5000 && nic.last.bytes == 10000);
	finish();
}

Test(ladder, what_speaks_against_both)
{
	struct spri_ladder ladder;
	struct spri_climbed climbed;
	struct spri_text text;

	begin();
	ladder = usual();
	ladder.gpudirect = SPRI_GPUDIRECT_FORBID;
	expect(&ladder, SPRI_RUNG_STAGING, "SPR_GPUDIRECT is 'forbid'",
	       "SPR_GPUDIRECT is 'forbid'");
	climbed = climb(&ladder);
	spri_climbed_text(&climbed, &text);
	cr_assert_str_eq(text.s, "SPR_GPUDIRECT is 'forbid'", "said once");
	ladder = usual();
	ladder.transport = "tcp";
	ladder.takes_devices = false;
	expect(&ladder, SPRI_RUNG_STAGING, "tcp moves host memory only",
	       "tcp moves host memory only");
	ladder = usual();
	setenv("EMU_CUDA_ATTRIBUTES", "117=0", 1);
	climbed = climb(&ladder);
	cr_assert_eq(climbed.rung, SPRI_RUNG_STAGING);
	cr_assert_not_null(strstr(climbed.why[0].s, "neither orders nor flushes"));
	cr_assert_eq(nic.n, 0, "the NIC was not asked");
	spri_ladder_climb(&ladder, gpu, memory, 1, SPRI_ACCESS_LOCAL, &climbed);
	cr_assert_eq(climbed.rung, SPRI_RUNG_DMA_BUF, "a source need not be flushed");
	setenv("EMU_CUDA_ATTRIBUTES", "117=0,118=100", 1);
	expect(&ladder, SPRI_RUNG_DMA_BUF, "", "");
	setenv("EMU_CUDA_FAIL", "cuDeviceGetName:1:999", 1);
	climbed = climb(&ladder);
	cr_assert_eq(climbed.rung, SPRI_RUNG_STAGING);
	cr_assert_not_null(strstr(climbed.why[1].s, "cuDeviceGetName"));
	finish();
}

Test(ladder, what_speaks_against_dma_buf)
{
	struct spri_ladder ladder;
	struct spri_climbed climbed;
	struct spri_text text;

	begin();
	ladder = usual();
	put_file("proc/sys/kernel/osrelease", "5.4.0-150-generic\n");
	expect(&ladder, SPRI_RUNG_STAGING, "Linux 5.4 has no dma-bufs for NICs, 5.12 has",
	       NO_MODULE);
	climbed = climb(&ladder);
	spri_climbed_text(&climbed, &text);
	cr_assert_str_eq(text.s, "dma-buf: Linux 5.4 has no dma-bufs for NICs, 5.12 has; "
				 "peer memory: " NO_MODULE);
	put_file("proc/sys/kernel/osrelease", "5.12.0\n");
	setenv("EMU_CUDA_ATTRIBUTES", "124=0", 1);
	setenv("EMU_CUDA_VERSION", "11040", 1);
	climbed = climb(&ladder);
	cr_assert_eq(climbed.rung, SPRI_RUNG_STAGING);
	cr_assert_not_null(strstr(climbed.why[0].s, "DMA_BUF_SUPPORTED is 0"), "got: %s",
			   climbed.why[0].s);
	unsetenv("EMU_CUDA_ATTRIBUTES");
	setenv("EMU_CUDA_FAIL", "cuMemGetHandleForAddressRange:1:801", 1);
	expect(&ladder, SPRI_RUNG_STAGING,
	       "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED: operation not supported",
	       NO_MODULE);
	setenv("EMU_CUDA_FAIL", "cuPointerSetAttribute:1:1", 1);
	expect(&ladder, SPRI_RUNG_STAGING,
	       "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUDA_ERROR_INVALID_VALUE: invalid argument",
	       NO_MODULE);
	cr_assert_eq(nic.n, 0, "the NIC was not asked");
	unsetenv("EMU_CUDA_FAIL");
	nic.refuses[0] = -EOPNOTSUPP;
	nic.text = "verbs: registering 10000 bytes with rxe0: Operation not supported";
	expect(&ladder, SPRI_RUNG_STAGING, nic.text, NO_MODULE);
	unsetenv("EMU_CUDA_VERSION");
	finish();
}

Test(ladder, what_speaks_against_peer_memory)
{
	struct spri_ladder ladder;

	begin();
	ladder = usual();
	nic.refuses[0] = nic.refuses[1] = -ENOMEM;
	nic.text = "verbs: registering 10000 bytes with rxe0: Cannot allocate memory (limit of "
		   "locked memory, ulimit -l: 65536 bytes)";
	expect(&ladder, SPRI_RUNG_STAGING, nic.text, NO_MODULE);
	put_file("sys/module/nvidia_peermem/version", "535\n");
	expect(&ladder, SPRI_RUNG_STAGING, nic.text, nic.text);
	setenv("EMU_CUDA_ATTRIBUTES", "116=0", 1);
	expect(&ladder, SPRI_RUNG_STAGING, nic.text,
	       "the GPU has none (GPU_DIRECT_RDMA_SUPPORTED is 0)");
	unsetenv("EMU_CUDA_ATTRIBUTES");
	setenv("EMU_CUDA_FAIL", "cuPointerSetAttribute:2:1", 1);
	expect(&ladder, SPRI_RUNG_STAGING, nic.text,
	       "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUDA_ERROR_INVALID_VALUE: invalid argument");
	finish();
}

Test(ladder, an_iommu_is_named)
{
	struct spri_ladder ladder;

	begin();
	ladder = usual();
	nic.refuses[0] = -EFAULT;
	put_file("sys/class/iommu/dmar0/name", "\n");
	expect(&ladder, SPRI_RUNG_STAGING,
	       "Bad address; an IOMMU is on, which may be in the way between devices (iommu=pt)",
	       NO_MODULE);
	put_file("proc/cmdline", "quiet intel_iommu=on iommu=pt\n");
	expect(&ladder, SPRI_RUNG_STAGING, "Bad address", NO_MODULE);
	finish();
}

/* ---- the cache, over a transport whose NIC this is ---- */

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

static const struct spri_transport fake = {.name = "fake",
					   .caps = SPRI_CAP_DEVICE_MEMORY,
					   .register_ = fake_register,
					   .unregister = fake_unregister};
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
	cr_assert_eq(spri_memory_flush(first), 0);
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
	cr_assert_eq(spri_memory_flush(registration), 0);
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
	cr_assert_eq(spri_memory_flush(registration), SPR_EDEVICE);
	spri_memory_put(&context, registration);
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

Test(registration, tcp_refuses_with_the_reason)
{
	struct spr_context_options options = {.size = sizeof options, .transport = "tcp"};
	struct spr_context *tcp = NULL;
	struct spr_memory *registered = NULL;

	begin();
	cr_assert_eq(spr_context_open(&options, &tcp), 0);
	cr_assert_eq(spr_memory_register(tcp, memory, 100, SPR_ACCESS_LOCAL, &registered),
		     SPR_EUNSUPPORTED);
	cr_assert_str_eq(spr_context_error(tcp), "tcp moves host memory only");
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
