/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The one place that turns the error styles of libibverbs and librdmacm into ours:
 *
 *   NULL, errno set        ibv_open_device, ibv_alloc_pd, ibv_create_*, ibv_reg_mr
 *   -1, errno set          rdma_*, ibv_get_cq_event, ibv_get_async_event      -> spri_verbs_errno()
 *   an errno value         ibv_modify_qp, ibv_post_*, ibv_query_*, ibv_de*    -> spri_verbs_value()
 *   a status in a completion                                                  -> spri_verbs_wc_*()
 *
 * Providers mix the second and the third, and some leave errno alone: neither gives 0 for a
 * failure.
 */
#include "verbs.h"

#include <internal/bits.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

int spri_verbs_errno(void)
{
	return errno > 0 ? -errno : -EIO;
}

int spri_verbs_value(int r)
{
	if (r == 0)
		return 0;
	if (r == -1)
		return spri_verbs_errno();
	return r > 0 ? -r : r;
}

struct wc_row {
	enum ibv_wc_status status;
	int meaning;
	const char *text;
};

static const struct wc_row wc_rows[] = {
	{IBV_WC_LOC_LEN_ERR, SPR_EPROTOCOL, "a message or write is longer than allowed"},
	{IBV_WC_LOC_QP_OP_ERR, -EIO, "this side's device found a fault in the queue pair"},
	{IBV_WC_LOC_PROT_ERR, -EFAULT, "this side's memory is not registered as it should be"},
	{IBV_WC_WR_FLUSH_ERR, -ECONNRESET, "the queue pair was stopped"},
	{IBV_WC_BAD_RESP_ERR, SPR_EPROTOCOL, "the peer's device gave an answer that does not fit"},
	{IBV_WC_LOC_ACCESS_ERR, SPR_EACCESS, "this side's device refused what the peer sent"},
	{IBV_WC_REM_INV_REQ_ERR, SPR_EACCESS, "the peer's device found the request invalid"},
	{IBV_WC_REM_ACCESS_ERR, SPR_EACCESS,
	 "the peer's device refused a write: key, bounds or permission"},
	{IBV_WC_REM_OP_ERR, -EREMOTEIO, "the peer's device failed to do it"},
	{IBV_WC_RETRY_EXC_ERR, SPR_ETIMEOUT, "the peer's device does not answer"},
	{IBV_WC_RNR_RETRY_EXC_ERR, SPR_EPROTOCOL, "the peer has no receive posted"},
	{IBV_WC_REM_ABORT_ERR, -ECONNABORTED, "the peer's device gave up"},
	{IBV_WC_FATAL_ERR, -EIO, "this side's device failed"},
	{IBV_WC_RESP_TIMEOUT_ERR, SPR_ETIMEOUT, "the peer's device takes too long"},
};

static const struct wc_row *wc_row(enum ibv_wc_status status)
{
	for (size_t i = 0; i < spri_countof(wc_rows); i++)
		if (wc_rows[i].status == status)
			return &wc_rows[i];
	return NULL;
}

int spri_verbs_wc_status(enum ibv_wc_status status)
{
	const struct wc_row *row = wc_row(status);

	return row ? row->meaning : -EIO;
}

const char *spri_verbs_wc_text(enum ibv_wc_status status)
{
	const struct wc_row *row = wc_row(status);

	return row ? row->text : "the device reports an error";
}

/* ---- limits ---- */

/* The first number on the line of a /proc file that begins with `name` ("" : the first line). */
static bool proc_number(const char *path, const char *name, unsigned long long *out)
{
	FILE *file = fopen(path, "re");
	char line[256];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof line, file))
		found = strncmp(line, name, strlen(name)) == 0 &&
			sscanf(line + strlen(name), "%llu", out) == 1;
	fclose(file);
	return found;
}

static unsigned long long count_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long long n = 0;
	int c;

	if (!file)
		return 0;
	while ((c = fgetc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	return n;
}

void spri_verbs_limits(int error, const char *device, size_t bytes, struct spri_text *out)
{
	struct rlimit lock = {.rlim_cur = RLIM_INFINITY};
	unsigned long long pinned = 0, locked = 0, most_maps = 0;
	char limit[48] = "unlimited";

	if (error != -ENOMEM && error != -EAGAIN && error != -EPERM) {
		spri_text_set(out, "verbs: registering %zu bytes with %s: %s", bytes, device,
			      spr_strerror(error));
		return;
	}
	if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0 && lock.rlim_cur != RLIM_INFINITY)
		snprintf(limit, sizeof limit, "%llu bytes", (unsigned long long)lock.rlim_cur);
	if (proc_number("/proc/self/status", "VmPin:", &pinned))
		pinned *= 1024;
	if (proc_number("/proc/self/status", "VmLck:", &locked))
		locked *= 1024;
	if (!proc_number("/proc/sys/vm/max_map_count", "", &most_maps))
		most_maps = 0;
	spri_text_set(
		out,
		"verbs: registering %zu bytes with %s: %s (limit of locked memory, ulimit -l: "
		"%s; pinned %llu, locked %llu bytes; memory maps %llu of vm.max_map_count %llu)",
		bytes, device, spr_strerror(error), limit, pinned, locked, count_maps(), most_maps);
}
