/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * SPR_RDMA_*: what the user sets about devices, addresses and queue pairs. Each value is checked
 * when a port is opened, so that a wrong one is named then and not met by a connection later.
 */
#include "verbs.h"

#include <internal/env.h>

#include <string.h>

#define DEFAULT_TIMEOUT 18 /* 1.07 s: what rxe needs, and little for a network that drops */
#define DEFAULT_RETRY 4

/* One item of the list, from `s` to a comma or the end: NAME or NAME:PORT. */
struct item {
	const char *name;
	size_t name_bytes;
	unsigned port; /* 0: every */
	bool good;
};

static struct item read_item(const char *s, size_t n)
{
	struct item item = {.name = s, .name_bytes = n};
	const char *colon = memchr(s, ':', n);

	if (colon) {
		item.name_bytes = (size_t)(colon - s);
		for (const char *p = colon + 1; p < s + n; p++) {
			if (*p < '0' || *p > '9' || item.port > 25)
				return item;
			item.port = item.port * 10 + (unsigned)(*p - '0');
		}
		if (item.port == 0 || item.port > 255)
			return item;
	}
	item.good = item.name_bytes > 0 && item.name_bytes < IBV_SYSFS_NAME_MAX;
	return item;
}

int spri_verbs_check_list(const char *list, struct spri_text *text)
{
	const char *s = list && *list == '^' ? list + 1 : list;

	while (s) {
		size_t n = strcspn(s, ",");

		if (!read_item(s, n).good) {
			spri_text_set(text,
				      "SPR_RDMA_DEVICE: '%.*s' of '%s' is no device: NAME or "
				      "NAME:PORT, separated by commas, ^ before all to exclude",
				      (int)n, s, list);
			return spri_trace(SPR_EENVIRONMENT);
		}
		s = s[n] ? s + n + 1 : NULL;
	}
	return 0;
}

bool spri_verbs_allowed(const char *list, const char *device, unsigned port)
{
	bool without = list && *list == '^', named = false;
	const char *s = without ? list + 1 : list;

	if (!list)
		return true;
	while (s && !named) {
		size_t n = strcspn(s, ",");
		struct item item = read_item(s, n);

		named = item.good && strlen(device) == item.name_bytes &&
			memcmp(device, item.name, item.name_bytes) == 0 &&
			(item.port == 0 || item.port == port);
		s = s[n] ? s + n + 1 : NULL;
	}
	return named != without;
}

unsigned spri_verbs_turn(const char *list, const char *device)
{
	const char *s = list && *list ? list : NULL;
	unsigned turn = 0;

	for (; s; turn++) {
		size_t n = strcspn(s, ",");

		if (strlen(device) == n && memcmp(device, s, n) == 0)
			break;
		s = s[n] ? s + n + 1 : NULL;
	}
	return turn;
}

/* A number that may be absent: -1 then. */
static int optional(enum spri_env variable, uint64_t most, int *out, struct spri_text *text)
{
	uint64_t v = 0;
	int r;

	*out = -1;
	if (!spri_env_get(variable))
		return 0;
	r = spri_env_u64(variable, 0, most, 0, &v, text);
	if (r == 0)
		*out = (int)v;
	return r;
}

int spri_verbs_settings(struct verbs_settings *out, struct spri_text *text)
{
	uint64_t timeout = 0, retry = 0;
	int r;

	out->devices = spri_env_get(SPRI_ENV_RDMA_DEVICE);
	r = spri_verbs_check_list(out->devices, text);
	if (r == 0)
		r = optional(SPRI_ENV_RDMA_GID, 255, &out->gid, text);
	if (r == 0)
		r = optional(SPRI_ENV_RDMA_TC, 255, &out->traffic_class, text);
	if (r == 0)
		r = optional(SPRI_ENV_RDMA_SL, 15, &out->service_level, text);
	if (r == 0)
		r = spri_env_u64(SPRI_ENV_RDMA_TIMEOUT, 1, 31, DEFAULT_TIMEOUT, &timeout, text);
	/* 7 tries would mean for ever on some devices. */
	if (r == 0)
		r = spri_env_u64(SPRI_ENV_RDMA_RETRY, 1, 6, DEFAULT_RETRY, &retry, text);
	if (r < 0)
		return spri_trace(r);
	out->timeout = (uint8_t)timeout;
	out->retry = (uint8_t)retry;
	return 0;
}
