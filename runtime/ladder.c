/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Climbs the ladder (ladder.h). For each direct rung, from the best down:
 *
 *   1. what speaks against every direct rung: SPR_GPUDIRECT, a transport of the processor's, a GPU
 *      that neither orders nor flushes what a NIC writes
 *   2. what speaks against this one: the kernel, the driver, the device, a module that is missing
 *   3. the memory is handed to the NIC, which may refuse: its words, and what the machine shows of
 *      an IOMMU, or of a bridge that sends what devices say to each other up to it (ACS)
 *
 * The first reason found is kept, and the next rung tried. The last rung needs nothing of the NIC.
 */
#include <ladder.h>

#include <dirent.h>
#include <errno.h>
#include <internal/bytes.h>
#include <internal/env.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* dma-bufs that a NIC can import without pinning the exporter's pages came with this release. */
#define KERNEL_MAJOR 5
#define KERNEL_MINOR 12

const char *spri_rung_name(enum spri_rung rung)
{
	static const char *const names[] = {"dma-buf", "peer memory", "staging"};

	return names[rung];
}

int spri_gpudirect(enum spri_gpudirect *out, struct spri_text *text)
{
	static const char *const words[] = {"prefer", "require", "forbid", NULL};
	int word = SPRI_GPUDIRECT_PREFER;
	int r = spri_env_word(SPRI_ENV_GPUDIRECT, words, word, &word, text);

	if (r == 0)
		*out = (enum spri_gpudirect)word;
	return spri_trace(r);
}

/* ---- what the machine shows ---- */

/* The first line of a file below the root. */
static bool read_line(const struct spri_ladder *ladder, const char *path, char *line, size_t bytes)
{
	char whole[512];
	FILE *file;
	bool read;

	snprintf(whole, sizeof whole, "%s%s", ladder->root, path);
	file = fopen(whole, "re");
	if (!file)
		return false;
	read = fgets(line, (int)bytes, file) != NULL;
	fclose(file);
	return read;
}

static bool exists(const struct spri_ladder *ladder, const char *path)
{
	char whole[512];

	snprintf(whole, sizeof whole, "%s%s", ladder->root, path);
	return access(whole, F_OK) == 0;
}

/* An extended capability of a PCI configuration, and where the next one is. */
#define ACS_ID 0x000d
#define ACS_CONTROL 6
#define ACS_REDIRECTS 0x0c /* peer-to-peer requests, or their completions, go up */
#define EXTENDED_AT 0x100

/* The configuration says that peer-to-peer traffic is redirected. */
static bool acs_redirects(const uint8_t *config, size_t bytes)
{
	size_t at = EXTENDED_AT;

	for (unsigned n = 0; n < 64 && at >= EXTENDED_AT && at + 8 <= bytes; n++) {
		uint32_t head = spri_get_u32(config + at);

		if ((head & 0xffff) == ACS_ID)
			return config[at + ACS_CONTROL] & ACS_REDIRECTS;
		at = head >> 20;
	}
	return false;
}

/* Only root reads beyond the first 64 bytes: then there is nothing to be seen. */
static bool bridge_redirects(const char *directory)
{
	uint8_t config[4096];
	char path[PATH_MAX + 8];
	FILE *file;
	size_t bytes;

	snprintf(path, sizeof path, "%s/config", directory);
	file = fopen(path, "re");
	if (!file)
		return false;
	bytes = fread(config, 1, sizeof config, file);
	fclose(file);
	return acs_redirects(config, bytes);
}

/* The bridge above a device that sends its peers' traffic up. False: none is seen. */
static bool find_redirect(const struct spri_ladder *ladder, const char *pci, char bridge[16])
{
	char path[512], at[PATH_MAX], *slash;

	snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s", ladder->root, pci);
	if (!realpath(path, at))
		return false;
	while ((slash = strrchr(at, '/')) != NULL && slash != at) {
		const char *name;

		*slash = '\0';
		name = strrchr(at, '/') ? strrchr(at, '/') + 1 : at;
		if (strlen(name) != 12 || name[4] != ':' || name[10] != '.')
			return false; /* the root complex */
		if (!bridge_redirects(at))
			continue;
		snprintf(bridge, 16, "%s", name);
		return true;
	}
	return false;
}

/* An IOMMU that translates what devices say to each other. */
static bool iommu_translates(const struct spri_ladder *ladder)
{
	char whole[512], line[4096];
	const struct dirent *entry;
	bool there = false;
	DIR *directory;

	snprintf(whole, sizeof whole, "%s/sys/class/iommu", ladder->root);
	directory = opendir(whole);
	if (!directory)
		return false;
	while (!there && (entry = readdir(directory)) != NULL)
		there = entry->d_name[0] != '.';
	closedir(directory);
	return there && !(read_line(ladder, "/proc/cmdline", line, sizeof line) &&
			  (strstr(line, "iommu=pt") || strstr(line, "iommu.passthrough=1")));
}

/* ---- reasons ---- */

/* What speaks against both rungs. True: there is a reason. */
static bool against_all(const struct spri_ladder *ladder, const struct spri_gpu_info *info,
			unsigned access, struct spri_text *why)
{
	if (ladder->gpudirect == SPRI_GPUDIRECT_FORBID)
		spri_text_set(why, "SPR_GPUDIRECT is 'forbid'");
	else if (!ladder->takes_devices)
		spri_text_set(why, "%s moves host memory only", ladder->transport);
	else if ((access & SPRI_ACCESS_REMOTE_WRITE) && !info->ordered && !info->flush_host)
		spri_text_set(why, "the GPU neither orders nor flushes what a NIC writes to it "
				   "(GPU_DIRECT_RDMA_WRITES_ORDERING, FLUSH_WRITES_OPTIONS)");
	else
		return false;
	return true;
}

static bool against_dma_buf(const struct spri_ladder *ladder, const struct spri_gpu_info *info,
			    struct spri_text *why)
{
	unsigned major = KERNEL_MAJOR, minor = KERNEL_MINOR;
	char line[128];

	if (read_line(ladder, "/proc/sys/kernel/osrelease", line, sizeof line) &&
	    sscanf(line, "%u.%u", &major, &minor) == 2 &&
	    (major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR)))
		spri_text_set(why, "Linux %u.%u has no dma-bufs for NICs, %u.%u has", major, minor,
			      KERNEL_MAJOR, KERNEL_MINOR);
	else if (!info->dma_buf)
		spri_text_set(why,
			      "the GPU's driver exports none (CUDA %d.%d, DMA_BUF_SUPPORTED is 0): "
			      "it needs CUDA 11.7 and NVIDIA's open kernel modules",
			      info->driver / 1000, info->driver % 1000 / 10);
	else
		return false;
	return true;
}

static bool against_peer(const struct spri_ladder *ladder, const struct spri_gpu_info *info,
			 struct spri_text *why)
{
	if (!info->gpudirect)
		spri_text_set(why, "the GPU has none (GPU_DIRECT_RDMA_SUPPORTED is 0)");
	else if (!exists(ladder, "/sys/module/nvidia_peermem") &&
		 !exists(ladder, "/sys/module/nv_peer_mem"))
		spri_text_set(why, "the module nvidia_peermem is not loaded");
	else
		return false;
	return true;
}

/* Hands it to the NIC. True: refused, with the reason. */
static bool refused(const struct spri_ladder *ladder, const struct spri_gpu_info *info,
		    const struct spri_memory *memory, struct spri_text *why)
{
	int r = ladder->take(ladder->arg, memory, why);
	char bridge[16];
	size_t end;

	if (r == 0)
		return false;
	if (!why->s[0])
		spri_text_set(why, "%s", spr_strerror(r));
	end = strlen(why->s);
	if (iommu_translates(ladder))
		snprintf(why->s + end, sizeof why->s - end,
			 "; an IOMMU is on, which may be in the way between devices (iommu=pt)");
	end = strlen(why->s);
	if (find_redirect(ladder, info->pci, bridge))
		snprintf(why->s + end, sizeof why->s - end,
			 "; ACS of bridge %s sends what devices say to each other up", bridge);
	return true;
}

/* ---- rungs: true when taken ---- */

static bool by_dma_buf(const struct spri_ladder *ladder, const struct spri_gpu_info *info,
		       struct spri_gpu *gpu, struct spri_memory *memory, struct spri_text *why)
{
	bool taken;

	if (against_all(ladder, info, memory->access, why) || against_dma_buf(ladder, info, why) ||
	    spri_gpu_export(gpu, memory->base, memory->bytes, &memory->dma_buf, &memory->offset,
			    why) < 0)
		return false;
	taken = !refused(ladder, info, memory, why);
	close(memory->dma_buf); /* the registration has its own reference */
	return taken;
}

static bool by_peer(const struct spri_ladder *ladder, const struct spri_gpu_info *info,
		    struct spri_gpu *gpu, struct spri_memory *memory, struct spri_text *why)
{
	memory->dma_buf = -1;
	memory->offset = 0;
	return !against_all(ladder, info, memory->access, why) &&
	       !against_peer(ladder, info, why) &&
	       spri_gpu_synchronous(gpu, memory->base, why) == 0 &&
	       !refused(ladder, info, memory, why);
}

void spri_ladder_climb(const struct spri_ladder *ladder, struct spri_gpu *gpu, void *base,
		       size_t bytes, unsigned access, struct spri_climbed *out)
{
	struct spri_memory memory = {
		.base = base, .bytes = bytes, .access = access, .device = true, .dma_buf = -1};
	struct spri_gpu_info info;
	struct spri_text why = {""};

	memset(out, 0, sizeof *out);
	out->rung = SPRI_RUNG_STAGING;
	if (spri_gpu_info(spri_gpu_number(gpu), &info, &why) < 0) {
		out->why[SPRI_RUNG_DMA_BUF] = out->why[SPRI_RUNG_PEER] = why;
		return;
	}
	if (by_dma_buf(ladder, &info, gpu, &memory, &out->why[SPRI_RUNG_DMA_BUF])) {
		out->rung = SPRI_RUNG_DMA_BUF;
		out->why[SPRI_RUNG_DMA_BUF].s[0] = '\0';
	} else if (by_peer(ladder, &info, gpu, &memory, &out->why[SPRI_RUNG_PEER])) {
		out->rung = SPRI_RUNG_PEER;
		out->why[SPRI_RUNG_PEER].s[0] = '\0';
	}
}

void spri_climbed_text(const struct spri_climbed *climbed, struct spri_text *out)
{
	const char *first = climbed->why[SPRI_RUNG_DMA_BUF].s;
	const char *second = climbed->why[SPRI_RUNG_PEER].s;

	if (!strcmp(first, second))
		spri_text_set(out, "%s", first);
	else
		spri_text_set(out, "%s: %s%s%s%s%s", spri_rung_name(SPRI_RUNG_DMA_BUF), first,
			      second[0] ? "; " : "",
			      second[0] ? spri_rung_name(SPRI_RUNG_PEER) : "",
			      second[0] ? ": " : "", second);
}
