/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* gpu.h and launch.h over the stand-in driver: what each function does when all is well. */
#include "helper.h"

#include <fcntl.h>
#include <internal/alloc.h>
#include <internal/clock.h>
#include <launch.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 10000 };

Test(gpu, devices_are_listed)
{
	struct spri_text text = {""};
	struct spri_gpu_info info;

	spri_gpu_close(open_gpu(0));
	cr_assert_eq(spri_gpu_count(), 2);
	cr_assert_eq(spri_gpu_info(1, &info, &text), 0, "%s", text.s);
	cr_assert_str_eq(info.name, "stand-in GPU 1");
	cr_assert_str_eq(info.pci, "0000:4b:00.0");
	cr_assert(info.major == 8 && info.minor == 0 && info.bytes == 4ull << 30);
	cr_assert(info.driver >= 11000 && info.dma_buf && info.gpudirect && info.flush_host);
	cr_assert(!info.ordered);
	cr_assert_eq(spri_gpu_info(2, &info, &text), SPR_EARGUMENT);
	cr_assert_str_eq(text.s, "there is no GPU 2: this process may use 2");
}

Test(gpu, attributes_are_the_devices)
{
	struct spri_text text = {""};
	struct spri_gpu_info info;

	spri_gpu_close(open_gpu(0));
	/* DMA_BUF_SUPPORTED, GPU_DIRECT_RDMA_SUPPORTED, FLUSH_WRITES_OPTIONS, WRITES_ORDERING */
	setenv("EMU_CUDA_ATTRIBUTES", "124=0,116=0,117=0,118=100", 1);
	cr_assert_eq(spri_gpu_info(0, &info, &text), 0);
	cr_assert(!info.dma_buf && !info.gpudirect && !info.flush_host && info.ordered);
	unsetenv("EMU_CUDA_ATTRIBUTES");
}

Test(gpu, a_device_is_one_object)
{
	struct spri_gpu *first = open_gpu(0), *second = open_gpu(0), *other = open_gpu(1);
	void *p = NULL;

	cr_assert(first == second && first != other);
	cr_assert(spri_gpu_number(first) == 0 && spri_gpu_number(other) == 1);
	spri_gpu_close(first);
	cr_assert_eq(spri_gpu_alloc(second, 100, &p), 0);
	spri_gpu_free(second, p);
	spri_gpu_close(second);
	spri_gpu_close(other);
}

/* A user of CUDA has another context current; no call may change that. */
Test(gpu, the_callers_context_stays)
{
	struct spri_gpu *gpu = open_gpu(0);
	__typeof__(cuDevicePrimaryCtxRetain) *retain;
	__typeof__(cuCtxPushCurrent) *push;
	struct spri_gpu_stream *stream;
	void *p, *host, *device;
	struct spri_text text;
	CUcontext theirs;

	cr_assert_null(current_context());
	*(void **)&retain = driver_call("cuDevicePrimaryCtxRetain");
	*(void **)&push = driver_call("cuCtxPushCurrent_v2");
	cr_assert_eq(retain(&theirs, 1), CUDA_SUCCESS);
	cr_assert_eq(push(theirs), CUDA_SUCCESS);
	spri_gpu_close(open_gpu(0));
	stream = make_stream(gpu);
	cr_assert_eq(spri_gpu_alloc(gpu, N, &p), 0);
	cr_assert_eq(spri_gpu_alloc_mapped(gpu, N, &host, &device), 0);
	cr_assert_eq(spri_gpu_zero(stream, p, N), 0);
	cr_assert_eq(spri_gpu_copy(stream, device, p, N), 0);
	cr_assert(spri_gpu_idle(stream) >= 0);
	cr_assert_eq(spri_gpu_sync(stream), 0);
	cr_assert_eq(spri_gpu_synchronous(gpu, p, &text), 0);
	cr_assert_eq(spri_gpu_flush(gpu), 0);
	cr_assert_eq(spri_gpu_after(stream, NULL), 0);
	cr_assert_eq(spri_gpu_before(stream, NULL), 0);
	cr_assert_eq(current_context(), theirs);
	spri_gpu_free(gpu, p);
	spri_gpu_free_mapped(gpu, host);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
	cr_assert_eq(current_context(), theirs);
}

Test(gpu, pointers_are_told_apart)
{
	struct spri_gpu_pointer found;
	struct spri_gpu *gpu = open_gpu(1);
	void *p, *again, *host, *device;
	uint64_t id;
	int local;

	cr_assert_eq(spri_gpu_alloc(gpu, 100000, &p), 0);
	spri_gpu_pointer((char *)p + 99999, &found);
	cr_assert(found.on_gpu && found.device == 1);
	cr_assert(found.base == p && found.bytes == 100000 && found.buffer_id != 0);
	id = found.buffer_id;
	spri_gpu_pointer((char *)p + 100000, &found);
	cr_assert(!found.on_gpu, "the byte behind it");
	spri_gpu_free(gpu, p);
	cr_assert_eq(spri_gpu_alloc(gpu, 100000, &again), 0);
	cr_assert_eq(again, p, "the stand-in uses addresses again");
	spri_gpu_pointer(again, &found);
	cr_assert(found.on_gpu && found.buffer_id != id, "another allocation");
	cr_assert_eq(spri_gpu_alloc_mapped(gpu, N, &host, &device), 0);
	spri_gpu_pointer(host, &found);
	cr_assert(!found.on_gpu, "mapped memory is the host's");
	spri_gpu_pointer(&local, &found);
	cr_assert(!found.on_gpu);
	spri_gpu_pointer(NULL, &found);
	cr_assert(!found.on_gpu);
	spri_gpu_free_mapped(gpu, host);
	spri_gpu_free(gpu, again);
	spri_gpu_close(gpu);
}

Test(gpu, copies_go_both_ways)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	static uint8_t from[N], to[N];
	void *p, *host, *device;

	for (int i = 0; i < N; i++)
		from[i] = (uint8_t)(i * 7);
	cr_assert_eq(spri_gpu_alloc(gpu, N, &p), 0);
	cr_assert_eq(spri_gpu_alloc_mapped(gpu, N, &host, &device), 0);
	for (int i = 0; i < N; i++)
		cr_assert_eq(((uint8_t *)host)[i], 0, "mapped memory is zeroed");
	cr_assert_eq(spri_gpu_copy(stream, p, from, N), 0);
	cr_assert_eq(spri_gpu_copy(stream, device, p, N), 0);
	fetch(stream, to, p, N);
	cr_assert_arr_eq(to, from, N);
	cr_assert_arr_eq((uint8_t *)host, from, N);
	cr_assert_eq(spri_gpu_zero(stream, (char *)p + 1, N - 2), 0);
	fetch(stream, to, p, N);
	cr_assert(to[0] == from[0] && to[1] == 0 && to[N - 2] == 0 && to[N - 1] == from[N - 1]);
	cr_assert_eq(spri_gpu_copy(stream, p, NULL, 0), 0);
	cr_assert_eq(spri_gpu_zero(stream, NULL, 0), 0);
	spri_gpu_free(gpu, p);
	spri_gpu_free_mapped(gpu, host);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

Test(gpu, time_passes_on_the_device)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	void *p;

	cr_assert_eq(spri_gpu_alloc(gpu, 1 << 20, &p), 0);
	for (unsigned round = 0; round < 3; round++) {
		uint64_t before = spri_now_ns();
		double ns = -1;

		cr_assert_eq(spri_gpu_time_begin(stream), 0);
		for (unsigned i = 0; i < 20; i++)
			cr_assert_eq(spri_gpu_zero(stream, p, 1 << 20), 0);
		cr_assert_eq(spri_gpu_time_end(stream, &ns), 0, "%s",
			     spri_gpu_stream_error(stream));
		cr_assert_eq(spri_gpu_idle(stream), 0, "end waits");
		/* 20 MiB at 10 TB/s; and single precision has seven digits */
		cr_assert(ns > 2000 && ns <= 1.00001 * (double)(spri_now_ns() - before),
			  "%g ns of %g", ns, (double)(spri_now_ns() - before));
	}
	spri_gpu_free(gpu, p);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

/* What is queued is not done at once: idle says so at least once in many times. */
Test(gpu, work_is_asynchronous)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	int n_busy = 0, r;
	void *p;

	cr_assert_eq(spri_gpu_alloc(gpu, 1 << 20, &p), 0);
	for (int i = 0; i < 200; i++) {
		cr_assert_eq(spri_gpu_zero(stream, p, 1 << 20), 0);
		r = spri_gpu_idle(stream);
		cr_assert(r == 0 || r == SPRI_AGAIN);
		n_busy += r == SPRI_AGAIN;
	}
	cr_assert_eq(spri_gpu_sync(stream), 0);
	cr_assert_eq(spri_gpu_idle(stream), 0);
	cr_assert_gt(n_busy, 0);
	spri_gpu_free(gpu, p);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

/*
 * Another stream writes zeros, and hands over to the default stream; ours reads after that one,
 * and the other writes again only when ours has: ours must have read zeros, every time.
 */
Test(gpu, streams_wait_for_each_other)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *ours = make_stream(gpu), *theirs = make_stream(gpu);
	uint8_t seen[64];
	void *p;

	cr_assert_eq(spri_gpu_alloc(gpu, sizeof seen, &p), 0);
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(spri_gpu_zero(theirs, p, sizeof seen), 0);
		cr_assert_eq(spri_gpu_before(theirs, NULL), 0);
		cr_assert_eq(spri_gpu_after(ours, NULL), 0);
		cr_assert_eq(spri_gpu_copy(ours, seen, p, sizeof seen), 0);
		cr_assert_eq(spri_gpu_before(ours, NULL), 0);
		cr_assert_eq(spri_gpu_after(theirs, NULL), 0);
		cr_assert_eq(spri_gpu_copy(theirs, p, "\1\2\3", 3), 0);
		cr_assert_eq(spri_gpu_sync(ours), 0);
		for (size_t j = 0; j < sizeof seen; j++)
			cr_assert_eq(seen[j], 0, "round %d", i);
		memset(seen, 9, sizeof seen);
	}
	cr_assert_eq(spri_gpu_sync(theirs), 0);
	spri_gpu_free(gpu, p);
	spri_gpu_stream_destroy(ours);
	spri_gpu_stream_destroy(theirs);
	spri_gpu_close(gpu);
}

Test(gpu, scratch_grows)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	void *small, *same, *large;
	struct spri_gpu_pointer found;

	cr_assert_eq(spri_gpu_scratch(stream, 100, &small), 0);
	cr_assert_eq(spri_gpu_zero(stream, small, 100), 0);
	cr_assert_eq(spri_gpu_scratch(stream, 50, &same), 0);
	cr_assert_eq(same, small);
	cr_assert_eq(spri_gpu_scratch(stream, 10 << 20, &large), 0);
	spri_gpu_pointer(large, &found);
	cr_assert(found.on_gpu && found.bytes >= 10 << 20);
	cr_assert_eq((uintptr_t)large % 256, 0);
	cr_assert_eq(spri_gpu_zero(stream, large, 10 << 20), 0);
	cr_assert_eq(spri_gpu_sync(stream), 0);
	cr_assert_eq(spri_gpu_processors(stream), 3);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

/* Queues out = 2 · x + 1 · y where the kernel takes its parameters by value, and checks it. */
Test(gpu, kernels_run_in_order)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	static float x[N], y[N], out[N];
	float *dx, *dy;

	for (int i = 0; i < N; i++) {
		x[i] = (float)i;
		y[i] = 0.5f;
	}
	cr_assert_eq(spri_gpu_alloc(gpu, sizeof x, (void **)&dx), 0);
	cr_assert_eq(spri_gpu_alloc(gpu, sizeof y, (void **)&dy), 0);
	cr_assert_eq(spri_gpu_copy(stream, dx, x, sizeof x), 0);
	cr_assert_eq(spri_gpu_copy(stream, dy, y, sizeof y), 0);
	for (int i = 0; i < 3; i++) {
		struct spri_gpu_axpby s = {.out = dy, .a = 2, .x = dx, .b = 1, .y = dy, .n = N};

		cr_assert_eq(spri_gpu_axpby(stream, &s), 0, "%s", spri_gpu_stream_error(stream));
		memset(&s, 0xff, sizeof s); /* the parameters are the caller's again */
	}
	fetch(stream, out, dy, sizeof out);
	for (int i = 0; i < N; i++)
		cr_assert_eq(out[i], 6.0f * (float)i + 0.5f, "at %d", i);
	spri_gpu_free(gpu, dx);
	spri_gpu_free(gpu, dy);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

/* The host touches device memory in a child: the child dies of it. */
Test(gpu, the_host_cannot_reach_device_memory)
{
	struct spri_gpu *gpu = open_gpu(0);
	int status = 0;
	pid_t child;
	void *p;

	cr_assert_eq(spri_gpu_alloc(gpu, N, &p), 0);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile char *)p = 1;
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %x", status);
	spri_gpu_free(gpu, p);
	spri_gpu_close(gpu);
}

static int in_child(struct spri_gpu *gpu, struct spri_gpu_stream *stream, void *p)
{
	struct spri_text text = {""};
	struct spri_gpu_pointer found;
	struct spri_gpu *other;
	void *more;

	if (spri_gpu_probe(&text) != SPR_EUNSUPPORTED || !strstr(text.s, "forked") ||
	    spri_gpu_count() != 0 || spri_gpu_open(0, &other, &text) != SPR_EUNSUPPORTED)
		return 1;
	spri_gpu_pointer(p, &found);
	if (found.on_gpu || spri_gpu_alloc(gpu, 100, &more) >= 0 ||
	    spri_gpu_zero(stream, p, 1) != SPR_EDEVICE ||
	    !strstr(spri_gpu_stream_error(stream), "forked") ||
	    spri_gpu_flush(gpu) != SPR_EUNSUPPORTED)
		return 2;
	spri_gpu_free(gpu, p);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
	return 0;
}

/* The stand-in aborts when it is called in a child of fork. */
Test(gpu, a_child_of_fork_has_no_gpu)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	int status = 0;
	pid_t child;
	void *p;

	cr_assert_eq(spri_gpu_alloc(gpu, N, &p), 0);
	fflush(NULL);
	child = fork();
	if (child == 0)
		_exit(in_child(gpu, stream, p));
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0, "status %x", status);
	cr_assert_eq(spri_gpu_zero(stream, p, 1), 0, "the parent goes on");
	cr_assert_eq(spri_gpu_sync(stream), 0);
	spri_gpu_free(gpu, p);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}

/* Where the kernel makes dma-bufs: the bytes at the offset are those of the pointer. */
Test(gpu, a_dma_buf_holds_the_pages)
{
	struct spri_gpu *gpu = open_gpu(0);
	struct spri_gpu_stream *stream = make_stream(gpu);
	struct spri_text why = {""};
	uint64_t offset = 0;
	uint8_t *seen;
	int fd = -1;
	char *p;

	if (access("/dev/udmabuf", R_OK | W_OK) != 0)
		cr_skip("no /dev/udmabuf here, of which the stand-in makes dma-bufs");
	cr_assert_eq(spri_gpu_alloc(gpu, 100000, (void **)&p), 0);
	cr_assert_eq(spri_gpu_copy(stream, p + 5000, "there", 6), 0);
	cr_assert_eq(spri_gpu_sync(stream), 0);
	cr_assert_eq(spri_gpu_export(gpu, p + 5000, 10000, &fd, &offset, &why), 0, "%s", why.s);
	cr_assert_eq(offset, 5000 % 4096);
	seen = mmap(NULL, 12288, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq((void *)seen, MAP_FAILED);
	cr_assert_str_eq((char *)seen + offset, "there");
	munmap(seen, 12288);
	close(fd);
	spri_gpu_free(gpu, p);
	spri_gpu_stream_destroy(stream);
	spri_gpu_close(gpu);
}
