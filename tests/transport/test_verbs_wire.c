/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The bytes of verbs (docs/wire.md, "Verbs"): recorded, round trips, and what must be refused. */
#include <check.h>
#include <verbs_wire.h>

#include <string.h>

/* Two addresses: 10.1.2.3 port 1234 on RoCE, fd00::7 port 65535 on iWARP; port id 10, 11, ... */
static const uint8_t
	recorded_blob[] =
		{
			2,    0,    2,	  0,	0,    0,    0,	  0, /* format, count, reserved */
			0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
			0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, /* port id */
			4,    2,    0xd2, 0x04, 0,    0,    0,	  0,
			10,   1,    2,	  3, /* family, kind, port, host */
			0,    0,    0,	  0,	0,    0,    0,	  0,
			0,    0,    0,	  0, /**/
			6,    3,    0xff, 0xff, 0,    0,    0,	  0,
			0xfd, 0,    0,	  0,	0,    0,    0,	  0,
			0,    0,    0,	  0,	0,    0,    0,	  7,
};
static const uint8_t recorded_hello[SPRI_VERBS_HELLO_BYTES] = {
	'S',  'V',  1, 0, 2, 5, 240, 0, /* magic, version, features, device, mtu, credits */
	8,    7,    6, 5, 4, 3, 2,   1, /* token */
	0xa0, 0xa1,
};
static const uint8_t recorded_message[SPRI_VERBS_MESSAGE_BYTES] = {1,	 0,    0,    0, 0xef,
								   0xbe, 0xad, 0xde, 0, 1};

static void count_up(uint8_t *p, size_t n, uint8_t first)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(first + i);
}

static struct spri_verbs_hello sample_hello(void)
{
	struct spri_verbs_hello h = {
		.version = 1, .device = 2, .mtu = 5, .credits = 240, .token = 0x0102030405060708};

	h.private_data[0] = 0xa0;
	h.private_data[1] = 0xa1;
	return h;
}

Test(verbs_wire, blob_recorded)
{
	struct spri_verbs_blob blob = {.n = 2}, back;
	uint8_t bytes[SPRI_ADDRESS_BYTES];
	size_t n;

	count_up(blob.id, sizeof blob.id, 0x10);
	blob.addresses[0] = (struct spri_verbs_address){4, SPRI_VERBS_ROCE, 1234, {10, 1, 2, 3}};
	blob.addresses[1] =
		(struct spri_verbs_address){6, SPRI_VERBS_IWARP, 65535, {0xfd, [15] = 7}};
	n = spri_verbs_blob_encode(&blob, bytes);
	cr_assert_eq(n, sizeof recorded_blob, "the blob should have %zu bytes, not %zu",
		     sizeof recorded_blob, n);
	cr_assert_arr_eq(bytes, recorded_blob, n, "the blob should be as recorded");
	cr_assert_eq(spri_verbs_blob_decode(bytes, n, &back), 0, "its own bytes should decode");
	cr_assert_arr_eq(&back, &blob, sizeof blob, "and give the same");
}

Test(verbs_wire, blob_that_is_none)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} cases[] = {
		{0, 1, "tcp's format"},	    {2, 0, "no address"}, {2, 17, "too many addresses"},
		{2, 1, "bytes behind it"},  {24, 5, "family 5"},  {25, 0, "kind 0"},
		{25, 4, "an unknown kind"}, {48, 0, "family 0"},
	};
	uint8_t bytes[sizeof recorded_blob];
	struct spri_verbs_blob blob;

	for (size_t n = 0; n < sizeof bytes; n++)
		cr_assert_eq(spri_verbs_blob_decode(recorded_blob, n, &blob), SPR_EARGUMENT,
			     "%zu bytes should be no blob", n);
	for (size_t i = 0; i < spri_countof(cases); i++) {
		memcpy(bytes, recorded_blob, sizeof bytes);
		bytes[cases[i].at] = cases[i].value;
		cr_assert_eq(spri_verbs_blob_decode(bytes, sizeof bytes, &blob), SPR_EARGUMENT,
			     "%s: should be no blob", cases[i].what);
	}
	memcpy(bytes, recorded_blob, sizeof bytes);
	bytes[26] = bytes[27] = 0;
	cr_assert_eq(spri_verbs_blob_decode(bytes, sizeof bytes, &blob), SPR_EARGUMENT,
		     "port 0 should be none");
}

Test(verbs_wire, hello_recorded)
{
	struct spri_verbs_hello h = sample_hello(), back;
	uint8_t bytes[SPRI_VERBS_HELLO_BYTES], padded[SPRI_VERBS_HELLO_BYTES + 36] = {0};

	spri_verbs_hello_encode(&h, bytes);
	cr_assert_arr_eq(bytes, recorded_hello, sizeof bytes, "the hello should be as recorded");
	memcpy(padded, bytes, sizeof bytes);
	cr_assert_eq(spri_verbs_hello_decode(padded, sizeof padded, &back), 0,
		     "it should decode, with the padding of InfiniBand too");
	cr_assert(back.version == 1 && back.device == 2 && back.mtu == 5 && back.credits == 240 &&
			  back.token == h.token,
		  "and give the same numbers");
	cr_assert_arr_eq(back.private_data, h.private_data, sizeof h.private_data,
			 "and the same private data");
}

Test(verbs_wire, hello_of_another_kind)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} cases[] = {
		{0, 'X', "magic"}, {1, 'X', "magic"},	      {4, 4, "a device past the key's end"},
		{5, 0, "no MTU"},  {5, 6, "an MTU of 8 KiB"}, {6, 0, "no credits"},
	};
	uint8_t bytes[SPRI_VERBS_HELLO_BYTES];
	struct spri_verbs_hello h;

	for (size_t n = 0; n < SPRI_VERBS_HELLO_BYTES; n++)
		cr_assert_eq(spri_verbs_hello_decode(recorded_hello, n, &h), SPR_EPROTOCOL,
			     "%zu bytes should be no hello", n);
	for (size_t i = 0; i < spri_countof(cases); i++) {
		memcpy(bytes, recorded_hello, sizeof bytes);
		bytes[cases[i].at] = cases[i].value;
		cr_assert_eq(spri_verbs_hello_decode(bytes, sizeof bytes, &h), SPR_EPROTOCOL,
			     "%s: should be no hello", cases[i].what);
	}
	memcpy(bytes, recorded_hello, sizeof bytes);
	bytes[SPRI_VERBS_HELLO_VERSION] = 9;
	cr_assert_eq(spri_verbs_hello_decode(bytes, 4, &h), 0, "another version may be shorter");
	cr_assert(h.version == 9 && h.token == 0, "of it only the version is read");
}

Test(verbs_wire, token_tells_connections_apart)
{
	uint8_t a[SPRI_VERBS_PORT_ID_BYTES] = {1}, b[SPRI_VERBS_PORT_ID_BYTES] = {2};
	uint64_t ab = spri_verbs_token(a, b, 7);

	cr_assert_eq(ab, spri_verbs_token(a, b, 7), "both ends come to the same token");
	cr_assert_neq(ab, spri_verbs_token(b, a, 7), "the active end counts");
	cr_assert_neq(ab, spri_verbs_token(a, b, 8), "the id counts");
	for (unsigned i = 0; i < sizeof a; i++) {
		b[i] ^= 0x40;
		cr_assert_neq(ab, spri_verbs_token(a, b, 7), "byte %u of a port id counts", i);
		b[i] ^= 0x40;
	}
}

Test(verbs_wire, reject)
{
	static const uint8_t recorded[SPRI_VERBS_REJECT_BYTES] = {'S', 'V', 1, 3};
	uint8_t bytes[SPRI_VERBS_REJECT_BYTES];
	unsigned version = 0;

	spri_verbs_reject_encode(SPRI_VERBS_REJECT_NOT_AWAITED, bytes);
	cr_assert_arr_eq(bytes, recorded, sizeof bytes, "the reject should be as recorded");
	cr_assert_eq(spri_verbs_reject_decode(bytes, sizeof bytes, &version), 3, "its reason");
	cr_assert_eq(version, 1, "its version");
	cr_assert_eq(spri_verbs_reject_decode(bytes, 3, &version), 0, "3 bytes are none");
	cr_assert_eq(spri_verbs_reject_decode(NULL, 0, &version), 0, "no bytes are none");
	bytes[0] = 'X';
	cr_assert_eq(spri_verbs_reject_decode(bytes, 4, &version), 0, "another magic is none");
	for (unsigned reason = 1; reason <= 6; reason++)
		cr_assert_gt(strlen(spri_verbs_reject_text(reason)), 10, "a text for reason %u",
			     reason);
}

Test(verbs_wire, message_recorded)
{
	struct spri_verbs_message m = {.type = 1, .immediate = 0xdeadbeef, .credits = 256}, back;
	uint8_t bytes[SPRI_VERBS_MESSAGE_BYTES];

	spri_verbs_message_encode(&m, bytes);
	cr_assert_arr_eq(bytes, recorded_message, sizeof bytes, "it should be as recorded");
	cr_assert_eq(spri_verbs_message_decode(bytes, sizeof bytes, &back), 0, "it should decode");
	cr_assert(back.type == 1 && back.immediate == 0xdeadbeef && back.credits == 256,
		  "and give the same");
}

Test(verbs_wire, message_that_is_none)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} cases[] = {
		{0, 0, "no type"},
		{0, 7, "an unknown type"},
		{0, 3, "an immediate of CREDIT"},
		{1, 1, "reserved byte 1"},
		{3, 1, "reserved byte 3"},
		{15, 1, "reserved byte 15"},
	};
	uint8_t bytes[SPRI_VERBS_MESSAGE_BYTES];
	struct spri_verbs_message m;

	cr_assert_eq(spri_verbs_message_decode(recorded_message, 15, &m), SPR_EPROTOCOL,
		     "15 bytes should be none");
	for (size_t i = 0; i < spri_countof(cases); i++) {
		memcpy(bytes, recorded_message, sizeof bytes);
		bytes[cases[i].at] = cases[i].value;
		cr_assert_eq(spri_verbs_message_decode(bytes, sizeof bytes, &m), SPR_EPROTOCOL,
			     "%s: should be refused", cases[i].what);
	}
}
