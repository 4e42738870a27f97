/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The ladder of GPU memory: each rung, and each reason against one. */
#include "gpu_bench.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* A configuration with an ACS capability behind another one. */
static void put_config(const char *path, unsigned control)
{
	uint8_t config[512] = {0};
	char whole[256];
	FILE *file;

	config[0x100] = 0x01; /* error reporting; the next at 0x140 */
	config[0x103] = 0x14;
	config[0x140] = 0x0d;
	config[0x146] = (uint8_t)control;
	put_file(path, "");
	snprintf(whole, sizeof whole, "%s/%s", root, path);
	file = fopen(whole, "w");
	cr_assert_not_null(file);
	cr_assert_eq(fwrite(config, 1, sizeof config, file), sizeof config);
	fclose(file);
}

/* GPU 1 is below a switch that redirects, or does not. */
Test(ladder, acs_is_named)
{
	static const char up[] = "sys/devices/pci0000:40/0000:40:01.0/config";
	static const char down[] = "sys/devices/pci0000:40/0000:40:01.0/0000:4a:00.0/config";
	static const char gpu_at[] = "pci0000:40/0000:40:01.0/0000:4a:00.0/0000:4b:00.0";
	struct spri_ladder ladder;
	char path[256], target[256];

	begin();
	ladder = usual();
	nic.refuses[0] = -EFAULT;
	snprintf(path, sizeof path, "sys/devices/%s/config", gpu_at);
	put_config(path, 0x1f); /* its own: no bridge */
	put_config(down, 0x00);
	put_config(up, 0x13); /* validation, blocking, forwarding: no redirect */
	put_file("sys/bus/pci/devices/.keep", "");
	snprintf(path, sizeof path, "%s/sys/bus/pci/devices/0000:4b:00.0", root);
	snprintf(target, sizeof target, "../../../devices/%s", gpu_at);
	cr_assert_eq(symlink(target, path), 0);
	expect(&ladder, SPRI_RUNG_STAGING, "Bad address", NO_MODULE);
	put_config(up, 0x0c);
	expect(&ladder, SPRI_RUNG_STAGING,
	       "Bad address; ACS of bridge 0000:40:01.0 sends what devices say to each other up",
	       NO_MODULE);
	put_config(down, 0x04);
	expect(&ladder, SPRI_RUNG_STAGING,
	       "Bad address; ACS of bridge 0000:4a:00.0 sends what devices say to each other up",
	       NO_MODULE);
	finish();
}
