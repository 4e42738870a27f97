/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Which interface addresses tcp uses: filters over a table that stands here, so that the machine of
 * the test does not matter; then one look at the machine's own list.
 */
#include <check.h>
#include <tcp_interfaces.h>

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

/*
 * A host with two networks, a container bridge and a spare interface. Letters name the rows in the
 * tests below.
 */
static const struct spri_interface host[] = {
	{"lo", "127.0.0.1", AF_INET, 8, true, true},	     /* a */
	{"lo", "::1", AF_INET6, 128, true, true},	     /* b */
	{"eth0", "192.168.1.5", AF_INET, 24, true, false},   /* c */
	{"eth0", "fd00::5", AF_INET6, 64, true, false},	     /* d */
	{"eth0", "fe80::5", AF_INET6, 64, true, false},	     /* e */
	{"eth1", "10.0.0.5", AF_INET, 16, true, false},	     /* f */
	{"eth10", "10.0.1.5", AF_INET, 16, true, false},     /* g */
	{"docker0", "172.17.0.1", AF_INET, 16, true, false}, /* h */
	{"eth2", "203.0.113.9", AF_INET, 24, false, false},  /* i: down */
	{"usb0", "169.254.7.7", AF_INET, 16, true, false},   /* j */
	{"eth1:1", "10.0.2.5", AF_INET, 16, true, false},    /* k */
	{"eth3", "2001:db8::5", AF_INET6, 32, true, false},  /* l */
};

/* Writes the letters of the rows that the filter takes, or "" when it is refused. */
static int choose(const char *filter, const struct spri_interface *table, unsigned n, char *letters,
		  struct spri_text *text)
{
	struct spri_interface rows[spri_countof(host)];
	int r;

	memcpy(rows, table, n * sizeof *rows);
	memset(text, 0, sizeof *text);
	r = spri_interfaces_choose(filter, rows, n, text);
	for (unsigned i = 0; i < n && r == 0; i++) {
		cr_assert_eq(rows[i].used, rows[i].reason[0] == '\0',
			     "'%s': %s %s: a reason belongs to what is not used, and only to it",
			     filter ? filter : "NULL", rows[i].name, rows[i].address);
		if (rows[i].used)
			*letters++ = (char)('a' + i);
	}
	*letters = '\0';
	return r;
}

Test(interfaces, filters)
{
	static const struct {
		const char *filter;
		const char *used;
	} cases[] = {
		{NULL, "cdfghkl"},
		{"", "cdfghkl"},
		{"eth0", "cd"},
		{"eth1", "fk"}, /* whole names: not eth10; labels belong to their interface */
		{"eth1:1", "k"},
		{"eth10", "g"},
		{"lo", "ab"},
		{"usb0", "j"},
		{"eth0,eth1", "cdfk"},
		{"eth1,nosuch", "fk"},
		{"10.0.0.0/24", "f"},
		{"10.0.0.77/24", "f"}, /* bits behind the prefix do not matter */
		{"10.0.0.0/16", "fgk"},
		{"10.0.0.0/15", "fgk"},
		{"10.0.1.5/32", "g"},
		{"0.0.0.0/0", "acfghjk"},
		{"::/0", "bdl"},
		{"::1/128", "b"},
		{"127.0.0.0/8", "a"},
		{"fd00::/8", "d"},
		{"fd00::/7", "d"},
		{"2001:db8::/31", "l"},
		{"2001:db9::/31", "l"},
		{"fd00::/8,10.0.0.0/24,docker0", "dfh"},
		{"^docker0", "cdfgkl"},
		{"^docker0,lo", "cdfgkl"},
		{"^nosuch", "cdfghkl"},
		{"^10.0.0.0/8", "cdhl"},
		{"^eth0,172.16.0.0/12", "fgkl"},
		{"^::/0", "cfghk"},
	};
	char letters[32];
	struct spri_text text;

	for (size_t i = 0; i < spri_countof(cases); i++) {
		int r = choose(cases[i].filter, host, spri_countof(host), letters, &text);

		cr_assert_eq(r, 0, "'%s' should be taken: %s",
			     cases[i].filter ? cases[i].filter : "NULL", text.s);
		cr_assert_str_eq(letters, cases[i].used, "'%s' should take %s, took %s",
				 cases[i].filter ? cases[i].filter : "NULL", cases[i].used,
				 letters);
	}
}

/* Each text quotes the item that is wrong. */
Test(interfaces, malformed_filters)
{
	static const struct {
		const char *filter;
		const char *text;
	} cases[] = {
		{",", "an empty item"},
		{"eth0,", "an empty item"},
		{",eth0", "an empty item"},
		{"eth0,,eth1", "an empty item"},
		{"^", "an empty item"},
		{"^^lo", "'^lo': ^ may only stand first"},
		{"eth0,^lo", "'^lo': ^ may only stand first"},
		{"10.0.0.0/33", "'10.0.0.0/33': the prefix length must be 0 to 32"},
		{"eth0,fd00::/129", "'fd00::/129': the prefix length must be 0 to 128"},
		{"10.0.0.0/", "'10.0.0.0/': the prefix length"},
		{"10.0.0.0/-1", "'10.0.0.0/-1': the prefix length"},
		{"10.0.0.0/8x", "'10.0.0.0/8x': the prefix length"},
		{"10.0.0.0/0008", "'10.0.0.0/0008': the prefix length"},
		{"10.0.0.0/4294967304", "the prefix length must be 0 to 32"},
		{"10.0.0/8", "'10.0.0' is not an IPv4 or IPv6 address"},
		{"10.0.0.256/8", "'10.0.0.256' is not"},
		{"fd00:::/8", "'fd00:::' is not"},
		{"/8", "'' is not"},
		{"eth0/24", "'eth0' is not an IPv4 or IPv6 address"},
		{"10.0.0.5", "for one address write 10.0.0.5/32"},
		{"fd00::5", "for one address write fd00::5/128"},
		{"eth0 ", "'eth0 ' is neither an interface name nor a CIDR block"},
		{"eth0, eth1", "' eth1' is neither"},
		{"averyveryverylongname", "'averyveryverylongname' is neither"},
		{"1234567890123456789012345678901234567890123456789012345678901234",
		 "too long for an item"},
		{"nosuch", "'nosuch' leaves no usable interface address"},
		{"eth2", "'eth2' leaves no usable"},
		{"fe80::/10", "'fe80::/10' leaves no usable"},
		{"^0.0.0.0/0,::/0", "leaves no usable"},
	};
	char letters[32];
	struct spri_text text;

	for (size_t i = 0; i < spri_countof(cases); i++) {
		int r = choose(cases[i].filter, host, spri_countof(host), letters, &text);

		cr_assert_eq(r, SPR_EENVIRONMENT, "'%s' should be refused, gave %s",
			     cases[i].filter, spr_error_name(r));
		cr_assert_not_null(strstr(text.s, cases[i].text),
				   "'%s': the text should contain \"%s\": \"%s\"", cases[i].filter,
				   cases[i].text, text.s);
		cr_assert_not_null(strstr(text.s, "SPR_TCP_IF"),
				   "'%s': the text should name the variable: \"%s\"",
				   cases[i].filter, text.s);
	}
}

Test(interfaces, loopback_when_there_is_nothing_else)
{
	char letters[32];
	struct spri_text text;

	cr_assert_eq(choose(NULL, host, 2, letters, &text), 0, "loopback is better than nothing");
	cr_assert_str_eq(letters, "ab", "both of its addresses should be used");
	cr_assert_eq(choose("^docker0", host, 2, letters, &text), 0, "the same with an exclusion");
	cr_assert_str_eq(letters, "ab", "both of its addresses should be used");
	cr_assert_eq(choose("^::/0", host, 2, letters, &text), 0, "or one of the two");
	cr_assert_str_eq(letters, "a", "what is excluded stays excluded");
	cr_assert_eq(choose("^lo", host, 2, letters, &text), SPR_EENVIRONMENT,
		     "excluded loopback is not used");
	cr_assert_eq(choose(NULL, host, 0, letters, &text), SPR_EENVIRONMENT,
		     "no interface at all should be an error");
	cr_assert(text.s[0] != '\0', "with a text");
}

Test(interfaces, reasons)
{
	static const struct {
		const char *filter;
		unsigned row;
		const char *reason;
	} cases[] = {
		{NULL, 0, "loopback"},
		{NULL, 4, "IPv6 link-local: of no use to another host"},
		{NULL, 8, "down or without carrier"},
		{NULL, 9, "link-local"},
		{"eth0", 5, "not in SPR_TCP_IF"},
		{"^docker0", 7, "excluded by SPR_TCP_IF"},
		{"eth0", 4, "IPv6 link-local: of no use to another host"},
	};

	for (size_t i = 0; i < spri_countof(cases); i++) {
		struct spri_interface rows[spri_countof(host)];
		struct spri_text text;

		memcpy(rows, host, sizeof rows);
		cr_assert_eq(
			spri_interfaces_choose(cases[i].filter, rows, spri_countof(rows), &text), 0,
			"case %zu", i);
		cr_assert_str_eq(rows[cases[i].row].reason, cases[i].reason,
				 "case %zu: %s should not be used because: %s", i,
				 rows[cases[i].row].address, cases[i].reason);
	}
}

Test(interfaces, prefixes)
{
	uint8_t a[16], b[16];

	for (unsigned bit = 0; bit < 128; bit++) {
		memset(a, 0x5a, sizeof a);
		memcpy(b, a, sizeof b);
		b[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
		for (unsigned bits = 0; bits <= 128; bits++)
			cr_assert_eq(spri_prefix_equal(a, b, bits), bits <= bit,
				     "the first %u bits, when bit %u differs", bits, bit);
	}
}

Test(interfaces, of_this_machine)
{
	struct spri_interface rows[64];
	struct spri_text text = {0};
	int n = spri_interfaces("127.0.0.0/8", rows, spri_countof(rows), &text), found = 0;
	uint8_t bytes[16];

	cr_assert_gt(n, 0, "loopback should be there: %s", text.s);
	for (int i = 0; i < n; i++) {
		cr_assert(spri_interface_bytes(&rows[i], bytes) > 0, "'%s' should be numeric",
			  rows[i].address);
		cr_assert(rows[i].name[0] != '\0', "every row should have a name");
		cr_assert_leq(rows[i].prefix, rows[i].family == AF_INET ? 32 : 128, "%s: prefix",
			      rows[i].address);
		if (strcmp(rows[i].address, "127.0.0.1") == 0) {
			cr_assert(rows[i].used && rows[i].up && rows[i].loopback &&
					  rows[i].prefix == 8,
				  "127.0.0.1/8 should be up, loopback and used");
			found++;
		} else {
			cr_assert(!rows[i].used || memcmp(bytes, "\x7f", 1) == 0,
				  "%s should not be used", rows[i].address);
		}
	}
	cr_assert_eq(found, 1, "127.0.0.1 should be listed once");
	cr_assert_eq(spri_interfaces("127.0.0.0/8", rows, 0, &text), SPR_EENVIRONMENT,
		     "no room for rows: nothing can be used");
	cr_assert_eq(spri_interfaces("10.0.0.0/99", rows, spri_countof(rows), &text),
		     SPR_EENVIRONMENT, "a malformed filter is refused here too");
}
