/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * GPUs, and how each NIC reaches the memory of each: what spr_info shows is tried, not guessed.
 *
 *   1. a row for each GPU
 *   2. for each GPU and each RDMA device a piece of GPU memory climbs the ladder, with that device
 *      alone to take it, as memory that peers may write to; and a row for tcp, whose reason is
 *      always the same
 *
 * Failures: a GPU that cannot be used is a row that says so. Without a GPU, or without an RDMA
 * device, the one row that is left says why.
 */
#include <ladder.h>
#include <sink.h>

#include <errno.h>
#include <internal/alloc.h>
#include <internal/env.h>
#include <stdio.h>
#include <string.h>

#define MOST_PORTS 64
#define TRIAL_BYTES 65536u /* as large as the pages of GPUs that peers see */

static int try_device(void *device, const struct spri_memory *memory, struct spri_text *text)
{
	return spri_rdma_try(device, memory, text);
}

/* One GPU and one NIC. */
static void emit_pair(const struct spri_sink *sink, const struct spri_ladder *ladder,
		      struct spri_gpu *gpu, void *memory, const char *nic)
{
	struct spri_climbed climbed;
	struct spri_text why = {""};
	char name[128];

	spri_ladder_climb(ladder, gpu, memory, TRIAL_BYTES, SPRI_ACCESS_REMOTE_WRITE, &climbed);
	if (climbed.rung != SPRI_RUNG_DMA_BUF)
		spri_climbed_text(&climbed, &why);
	snprintf(name, sizeof name, "GPU %u, %s", spri_gpu_number(gpu), nic);
	spri_emit(sink, name, spri_rung_name(climbed.rung), "", why.s,
		  climbed.rung != SPRI_RUNG_STAGING);
}

/* All NICs, and tcp. */
static void emit_nics(const struct spri_sink *sink, enum spri_gpudirect gpudirect,
		      struct spri_gpu *gpu, void *memory, const struct spri_rdma_port *ports, int n)
{
	struct spri_ladder ladder = {.transport = "verbs",
				     .takes_devices = true,
				     .gpudirect = gpudirect,
				     .root = "",
				     .take = try_device};

	for (int i = 0; i < n; i++) {
		if (i > 0 && !strcmp(ports[i].device, ports[i - 1].device))
			continue; /* another port of the same device */
		ladder.arg = (void *)(uintptr_t)ports[i].device;
		emit_pair(sink, &ladder, gpu, memory, ports[i].device);
	}
	ladder.transport = "tcp";
	ladder.takes_devices = false;
	emit_pair(sink, &ladder, gpu, memory, "tcp");
}

static void emit_gpu(const struct spri_sink *sink, unsigned i, const struct spri_gpu_info *info)
{
	char name[32], detail[256];

	snprintf(name, sizeof name, "GPU %u", i);
	snprintf(detail, sizeof detail,
		 "%s, compute capability %d.%d, %.4g GiB, driver of CUDA %d.%d", info->name,
		 info->major, info->minor, (double)info->bytes / (double)(1 << 30),
		 info->driver / 1000, info->driver % 1000 / 10);
	spri_emit(sink, name, info->pci, "", detail, true);
}

/* One GPU: itself, then its pairs. */
static void list_gpu(const struct spri_sink *sink, unsigned i, enum spri_gpudirect gpudirect,
		     const struct spri_rdma_port *ports, int n)
{
	struct spri_gpu *gpu = NULL;
	struct spri_gpu_info info;
	struct spri_text text = {""};
	void *memory = NULL;
	char name[32];
	int r = spri_gpu_info(i, &info, &text);

	if (r == 0)
		r = spri_gpu_open(i, &gpu, &text);
	if (r == 0) {
		emit_gpu(sink, i, &info);
		r = spri_gpu_alloc(gpu, TRIAL_BYTES, &memory);
	}
	if (r < 0) {
		snprintf(name, sizeof name, "GPU %u", i);
		spri_emit(sink, name, "not usable", "", text.s[0] ? text.s : spr_strerror(r),
			  false);
	} else {
		emit_nics(sink, gpudirect, gpu, memory, ports, n);
		spri_gpu_free(gpu, memory);
	}
	spri_gpu_close(gpu);
}

int spri_info_gpudirect(const struct spri_sink *sink)
{
	enum spri_gpudirect gpudirect = SPRI_GPUDIRECT_PREFER;
	struct spri_rdma_port *ports;
	struct spri_text text = {""};
	int n, r = spri_gpudirect(&gpudirect, &text);

	if (r < 0)
		spri_emit(sink, "SPR_GPUDIRECT", spri_env_get(SPRI_ENV_GPUDIRECT), "environment",
			  text.s, false);
	if (spri_gpu_probe(&text) < 0) {
		spri_emit(sink, "none", "", "", text.s, false);
		return r;
	}
	ports = spri_calloc(MOST_PORTS, sizeof *ports);
	if (!ports)
		return -ENOMEM;
	n = spri_rdma_ports(spri_env_get(SPRI_ENV_TCP_IF), ports, MOST_PORTS, &text);
	for (unsigned i = 0; i < spri_gpu_count(); i++)
		list_gpu(sink, i, gpudirect, ports, n);
	spri_free(ports);
	return n < 0 ? n : r;
}
