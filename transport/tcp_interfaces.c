/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Which interface addresses tcp uses. The kernel's list (getifaddrs) is filtered by what the
 * user asked for; no name service is ever asked.
 *
 *   1. The filter is cut at commas into items: interface names and CIDR blocks.
 *   2. Interfaces that are down and IPv6 link-local addresses (they mean nothing on another
 *      host without a scope) are never used.
 *   3. Without items, and with ^, other link-local addresses are left out, and loopback too
 *      unless nothing else is left. With ^, what an item names is left out in any case.
 *   4. With items and no ^, exactly what an item names is used.
 *
 * Failures: an item that is neither name nor block, and a filter that leaves nothing, are
 * errors whose text quotes the item or the filter.
 */
#include "tcp_interfaces.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

/* One item of a filter. */
struct item {
	bool block;	  /* CIDR, else a name */
	char name[16];	  /* of a whole interface */
	int family;	  /* of the block */
	uint8_t host[16]; /* of the block, network order */
	unsigned prefix;  /* of the block */
};

bool spri_prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	return memcmp(a, b, whole) == 0 && (rest == 0 || ((a[whole] ^ b[whole]) & mask) == 0);
}

unsigned spri_interface_bytes(const struct spri_interface *row, uint8_t out[16])
{
	memset(out, 0, 16);
	if (inet_pton(row->family, row->address, out) != 1)
		return 0;
	return row->family == AF_INET ? 4 : 16;
}

/* A number of at most three digits and nothing else. */
static bool parse_prefix(const char *s, unsigned most, unsigned *out)
{
	unsigned v = 0;
	size_t n = strspn(s, "0123456789");

	if (n == 0 || n > 3 || s[n] != '\0')
		return false;
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (unsigned)(s[i] - '0');
	*out = v;
	return v <= most;
}

static int parse_block(char *s, char *slash, struct item *out, struct spri_text *text)
{
	int family;

	*slash = '\0';
	family = strchr(s, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(family, s, out->host) != 1) {
		spri_text_set(text, "SPR_TCP_IF: '%s/%s': '%s' is not an IPv4 or IPv6 address", s,
			      slash + 1, s);
		return SPR_EENVIRONMENT;
	}
	if (!parse_prefix(slash + 1, family == AF_INET ? 32 : 128, &out->prefix)) {
		spri_text_set(text, "SPR_TCP_IF: '%s/%s': the prefix length must be 0 to %d", s,
			      slash + 1, family == AF_INET ? 32 : 128);
		return SPR_EENVIRONMENT;
	}
	out->block = true;
	out->family = family;
	return 0;
}

/* Parses [s, s + n). */
static int parse_item(const char *s, size_t n, struct item *out, struct spri_text *text)
{
	char copy[64];
	uint8_t unused[16];
	char *slash;

	memset(out, 0, sizeof *out);
	if (n == 0) {
		spri_text_set(text, "SPR_TCP_IF: an empty item; expected NAME or ADDRESS/PREFIX");
		return SPR_EENVIRONMENT;
	}
	if (n >= sizeof copy) {
		spri_text_set(text, "SPR_TCP_IF: '%.60s...' is too long for an item", s);
		return SPR_EENVIRONMENT;
	}
	memcpy(copy, s, n);
	copy[n] = '\0';
	if (strchr(copy, '^')) {
		spri_text_set(text,
			      "SPR_TCP_IF: '%s': ^ may only stand first, and excludes all items",
			      copy);
		return SPR_EENVIRONMENT;
	}
	slash = strchr(copy, '/');
	if (slash)
		return parse_block(copy, slash, out, text);
	if (inet_pton(AF_INET, copy, unused) == 1 || inet_pton(AF_INET6, copy, unused) == 1) {
		spri_text_set(text,
			      "SPR_TCP_IF: '%s' has no prefix length; for one address write %s/%d",
			      copy, copy, strchr(copy, ':') ? 128 : 32);
		return SPR_EENVIRONMENT;
	}
	if (n >= sizeof out->name || strpbrk(copy, " \t\n")) {
		spri_text_set(text,
			      "SPR_TCP_IF: '%s' is neither an interface name nor a CIDR block",
			      copy);
		return SPR_EENVIRONMENT;
	}
	memcpy(out->name, copy, n + 1);
	return 0;
}

/*
 * A name matches the whole name, for an address with a label ("eth0:1") also what stands before the
 * colon.
 */
static bool item_names(const struct item *item, const struct spri_interface *row)
{
	uint8_t host[16];
	size_t n = strlen(item->name);

	if (item->block)
		return item->family == row->family && spri_interface_bytes(row, host) > 0 &&
		       spri_prefix_equal(host, item->host, item->prefix);
	return strncmp(row->name, item->name, n) == 0 &&
	       (row->name[n] == '\0' || row->name[n] == ':');
}

static bool link_local(const struct spri_interface *row)
{
	static const uint8_t v4[] = {169, 254}, v6[] = {0xfe, 0x80};
	uint8_t host[16];

	return spri_interface_bytes(row, host) > 0 &&
	       (row->family == AF_INET ? spri_prefix_equal(host, v4, 16)
				       : spri_prefix_equal(host, v6, 10));
}

static void decide(struct spri_interface *row, bool used, const char *reason)
{
	row->used = used;
	snprintf(row->reason, sizeof row->reason, "%s", used ? "" : reason);
}

/* Rules that hold whatever the filter says. */
static bool unusable(struct spri_interface *row)
{
	if (!row->up)
		decide(row, false, "down or without carrier");
	else if (row->family == AF_INET6 && link_local(row))
		decide(row, false, "IPv6 link-local: of no use to another host");
	else
		return false;
	return true;
}

static void exclude_defaults(struct spri_interface *row)
{
	if (row->loopback)
		decide(row, false, "loopback");
	else if (link_local(row))
		decide(row, false, "link-local");
	else
		decide(row, true, "");
}

static void loopback_if_alone(struct spri_interface *rows, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (rows[i].used)
			return;
	for (unsigned i = 0; i < n; i++)
		if (strcmp(rows[i].reason, "loopback") == 0)
			decide(&rows[i], true, "");
}

/* Goes over the items and marks in `used` which rows one of them names. */
static int mark_named(const char *items, struct spri_interface *rows, unsigned n,
		      struct spri_text *text)
{
	for (const char *s = items;; s += strcspn(s, ",") + 1) {
		size_t bytes = strcspn(s, ",");
		struct item item;
		int r = parse_item(s, bytes, &item, text);

		if (r < 0)
			return spri_trace(r);
		for (unsigned i = 0; i < n; i++)
			rows[i].used |= item_names(&item, &rows[i]);
		if (s[bytes] == '\0')
			return 0;
	}
}

int spri_interfaces_choose(const char *filter, struct spri_interface *rows, unsigned n,
			   struct spri_text *text)
{
	bool items = filter && *filter, exclude = items && *filter == '^';
	bool any = false;
	int r;

	for (unsigned i = 0; i < n; i++)
		decide(&rows[i], false, "");
	if (items) {
		r = mark_named(filter + exclude, rows, n, text);
		if (r < 0)
			return spri_trace(r);
	}
	for (unsigned i = 0; i < n; i++) {
		bool named = rows[i].used;

		if (unusable(&rows[i]))
			continue;
		if (items && !exclude)
			decide(&rows[i], named, "not in SPR_TCP_IF");
		else if (named)
			decide(&rows[i], false, "excluded by SPR_TCP_IF");
		else
			exclude_defaults(&rows[i]);
	}
	if (!items || exclude)
		loopback_if_alone(rows, n);
	for (unsigned i = 0; i < n; i++)
		any |= rows[i].used;
	if (any)
		return 0;
	if (items)
		spri_text_set(text, "SPR_TCP_IF: '%s' leaves no usable interface address", filter);
	else
		spri_text_set(text, "no interface has a usable address");
	return SPR_EENVIRONMENT;
}

/* The number of leading one bits of a netmask. */
static unsigned mask_length(const uint8_t *mask, unsigned bytes)
{
	unsigned bits = 0;

	while (bits < bytes * 8 && (mask[bits / 8] >> (7 - bits % 8) & 1))
		bits++;
	return bits;
}

/* Fills a row from the kernel's; false when it is no IP address. */
static bool read_row(const struct ifaddrs *a, struct spri_interface *out)
{
	unsigned running = IFF_UP | IFF_RUNNING;
	const void *host, *mask;
	unsigned bytes;

	if (!a->ifa_addr || !a->ifa_netmask)
		return false;
	memset(out, 0, sizeof *out);
	out->family = a->ifa_addr->sa_family;
	if (out->family == AF_INET) {
		host = &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr;
		mask = &((const struct sockaddr_in *)(const void *)a->ifa_netmask)->sin_addr;
		bytes = 4;
	} else if (out->family == AF_INET6) {
		host = &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr;
		mask = &((const struct sockaddr_in6 *)(const void *)a->ifa_netmask)->sin6_addr;
		bytes = 16;
	} else {
		return false;
	}
	if (!inet_ntop(out->family, host, out->address, sizeof out->address))
		return false;
	snprintf(out->name, sizeof out->name, "%s", a->ifa_name);
	out->prefix = mask_length(mask, bytes);
	out->up = (a->ifa_flags & running) == running;
	out->loopback = a->ifa_flags & IFF_LOOPBACK;
	return true;
}

int spri_interfaces(const char *filter, struct spri_interface *rows, unsigned max,
		    struct spri_text *text)
{
	struct ifaddrs *all;
	unsigned n = 0;
	int r;

	if (getifaddrs(&all) < 0) {
		r = -errno;
		spri_text_set(text, "the kernel's list of interfaces: %s", spr_strerror(r));
		return spri_trace(r);
	}
	for (const struct ifaddrs *a = all; a && n < max; a = a->ifa_next)
		n += read_row(a, &rows[n]);
	freeifaddrs(all);
	r = spri_interfaces_choose(filter, rows, n, text);
	return r < 0 ? spri_trace(r) : (int)n;
}
