/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The bytes of tcp as docs/wire.md has them: recorded messages, round trips, every truncation,
 * every field that may not be what it is. And the table of connection states against the drawing in
 * conn.h.
 */
#include <check.h>
#include <conn.h>
#include <wire.h>

#include <string.h>

/* ---- recorded bytes ---- */

static const uint8_t recorded_blob[] = {
	1,    0,    2,	  0,	0,    0,    0,	  0,				/* version, count */
	0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, /* port id */
	0x1c, 0x1d, 0x1e, 0x1f, 4,    0,    0xd2, 0x04, 10,   1,    2,	  3,	/* 10.1.2.3:1234 */
	0,    0,    0,	  0,	0,    0,    0,	  0,	0,    0,    0,	  0,	/* */
	6,    0,    0xff, 0xff, 0xfd, 0,    0,	  0,	0,    0,    0,	  0, /* [fd00::7]:65535 */
	0,    0,    0,	  0,	0,    0,    0,	  7};

static const uint8_t recorded_hello[SPRI_HELLO_BYTES] = {
	'S',  'P',  'R',  'H',	1,    0,    112,  0,	/* magic, version, length */
	1,    0,    0,	  0,	0,    0,    0,	  0,	/* features */
	0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, /* to */
	0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, /* */
	0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, /* from */
	0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f, /* */
	8,    7,    6,	  5,	4,    3,    2,	  1,	/* id */
	0xa0, 0xa1,					/* private data, then zeros */
};

static const uint8_t recorded_answer[SPRI_ANSWER_BYTES] = {
	'S',  'P', 'R', 'A', 1, 0, 80, 0, /* magic, version, length */
	0,    0,   0,	0,   0, 0, 0,  0, /* features */
	2,    0,   0,	0,   0, 0, 0,  0, /* status, reserved */
	0xb0,				  /* private data, then zeros */
};

static const uint8_t recorded_write[SPRI_FRAME_BYTES] = {
	1,    0,    1,	  0,	0xef, 0xbe, 0xad, 0xde, /* type, flags, immediate */
	8,    7,    6,	  5,	4,    3,    2,	  1,	/* address */
	0,    0,    0x10, 0,	0,    0,    0,	  0,	/* length */
	0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, /* key */
	0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, /* */
};

static const uint8_t recorded_refused[SPRI_FRAME_BYTES] = {5, 0, 0, 0, 2};

static void count_up(uint8_t *p, size_t n, uint8_t first)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(first + i);
}

static struct spri_hello sample_hello(void)
{
	struct spri_hello h = {.version = 1, .features = 1, .id = 0x0102030405060708};

	count_up(h.to, sizeof h.to, 0x10);
	count_up(h.from, sizeof h.from, 0x20);
	h.private_data[0] = 0xa0;
	h.private_data[1] = 0xa1;
	return h;
}

Test(wire, blob_recorded)
{
	struct spri_blob blob = {.n = 2}, back;
	uint8_t bytes[SPRI_ADDRESS_BYTES];
	size_t n;

	count_up(blob.id, sizeof blob.id, 0x10);
	blob.addresses[0] = (struct spri_wire_address){4, 1234, {10, 1, 2, 3}};
	blob.addresses[1] = (struct spri_wire_address){6, 65535, {0xfd, [15] = 7}};
	memset(bytes, 0xee, sizeof bytes); /* every byte is written */
	n = spri_blob_encode(&blob, bytes);
	cr_assert_eq(n, sizeof recorded_blob, "the blob should have %zu bytes, not %zu",
		     sizeof recorded_blob, n);
	cr_assert_arr_eq(bytes, recorded_blob, n, "the blob should be as recorded");
	cr_assert_eq(spri_blob_decode(bytes, n, &back), 0, "its own bytes should decode");
	cr_assert_arr_eq(&back, &blob, sizeof blob, "and give the same");
}

Test(wire, hello_recorded)
{
	struct spri_hello h = sample_hello(), back;
	uint8_t bytes[SPRI_HELLO_BYTES];

	memset(bytes, 0xee, sizeof bytes); /* every byte is written */
	spri_hello_encode(&h, bytes);
	cr_assert_arr_eq(bytes, recorded_hello, sizeof bytes, "the hello should be as recorded");
	cr_assert_eq(spri_hello_decode(bytes, sizeof bytes, &back), 0, "it should decode");
	cr_assert(back.version == 1 && back.features == 1 && back.id == h.id,
		  "and give the same numbers");
	cr_assert_arr_eq(back.to, h.to, sizeof h.to, "and the same port");
	cr_assert_arr_eq(back.from, h.from, sizeof h.from, "and the same sender");
	cr_assert_arr_eq(back.private_data, h.private_data, sizeof h.private_data,
			 "and the same private data");
}

Test(wire, answer_recorded)
{
	struct spri_answer a = {.version = 1, .status = SPRI_ANSWER_WRONG_PORT}, back;
	uint8_t bytes[SPRI_ANSWER_BYTES];
	size_t used = 0;

	a.private_data[0] = 0xb0;
	memset(bytes, 0xee, sizeof bytes); /* every byte is written */
	spri_answer_encode(&a, bytes);
	cr_assert_arr_eq(bytes, recorded_answer, sizeof bytes, "the answer should be as recorded");
	cr_assert_eq(spri_answer_decode(bytes, sizeof bytes, &back, &used), 0, "it should decode");
	cr_assert(back.status == SPRI_ANSWER_WRONG_PORT && back.private_data[0] == 0xb0 &&
			  used == SPRI_ANSWER_BYTES,
		  "and give the same");
}

Test(wire, frames_recorded)
{
	struct spri_frame f = {.type = SPRI_FRAME_WRITE,
			       .flags = SPRI_FRAME_NOTIFY,
			       .immediate = 0xdeadbeef,
			       .address = 0x0102030405060708,
			       .length = 1 << 20},
			  back;
	struct spri_frame refused = {.type = SPRI_FRAME_REFUSED, .immediate = SPRI_REFUSED_BOUNDS};
	uint8_t bytes[SPRI_FRAME_BYTES];

	count_up(f.key, sizeof f.key, 0xc0);
	spri_frame_encode(&f, bytes);
	cr_assert_arr_eq(bytes, recorded_write, sizeof bytes, "WRITE should be as recorded");
	cr_assert_eq(spri_frame_decode(bytes, &back), 0, "it should decode");
	cr_assert(back.type == f.type && back.flags == f.flags && back.immediate == f.immediate &&
			  back.address == f.address && back.length == f.length &&
			  memcmp(back.key, f.key, sizeof f.key) == 0,
		  "and give the same");
	spri_frame_encode(&refused, bytes);
	cr_assert_arr_eq(bytes, recorded_refused, sizeof bytes, "REFUSED should be as recorded");
}

/* ---- what is not whole, or not right ---- */

Test(wire, hello_truncated)
{
	struct spri_hello h;

	for (size_t n = 0; n < SPRI_HELLO_BYTES; n++)
		cr_assert_eq(spri_hello_decode(recorded_hello, n, &h), SPRI_AGAIN,
			     "%zu bytes should ask for more", n);
}

Test(wire, hello_of_another_kind)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} cases[] = {
		{0, 'G', "magic"},   {3, 'A', "an answer's magic"}, {6, 111, "one byte short"},
		{6, 0, "no length"}, {7, 2, "longer than allowed"},
	};
	uint8_t bytes[SPRI_HELLO_BYTES];
	struct spri_hello h;

	for (size_t i = 0; i < spri_countof(cases); i++) {
		memcpy(bytes, recorded_hello, sizeof bytes);
		bytes[cases[i].at] = cases[i].value;
		cr_assert_eq(spri_hello_decode(bytes, sizeof bytes, &h), SPR_EPROTOCOL,
			     "%s: should be no hello", cases[i].what);
	}
	cr_assert_eq(spri_hello_decode((const uint8_t *)"G", 1, &h), SPR_EPROTOCOL,
		     "one wrong byte is enough");
}

/* A later version may append fields; a hello of another version needs only what never changes. */
Test(wire, hello_of_another_version)
{
	uint8_t bytes[SPRI_HELLO_MOST] = {0};
	struct spri_hello h;

	memcpy(bytes, recorded_hello, SPRI_HELLO_BYTES);
	bytes[SPRI_HELLO_LENGTH] = 120;
	cr_assert_eq(spri_hello_decode(bytes, 112, &h), SPRI_AGAIN, "8 bytes more are announced");
	cr_assert_eq(spri_hello_decode(bytes, 120, &h), 0, "unknown bytes are skipped");
	cr_assert_eq(h.private_data[0], 0xa0, "known ones are not");
	bytes[SPRI_HELLO_VERSION] = 2;
	bytes[SPRI_HELLO_LENGTH] = SPRI_HELLO_PRIVATE;
	cr_assert_eq(spri_hello_decode(bytes, SPRI_HELLO_PRIVATE, &h), 0,
		     "another version may be shorter");
	cr_assert(h.version == 2 && h.id == 0x0102030405060708 && h.private_data[0] == 0,
		  "its ids are read, its private data is not");
	bytes[SPRI_HELLO_LENGTH] = SPRI_HELLO_PRIVATE - 1;
	cr_assert_eq(spri_hello_decode(bytes, SPRI_HELLO_PRIVATE, &h), SPR_EPROTOCOL,
		     "but not without its ids");
}

Test(wire, answer_truncated_or_other)
{
	uint8_t bytes[SPRI_ANSWER_BYTES];
	struct spri_answer a;
	size_t used = 0;

	for (size_t n = 0; n < SPRI_ANSWER_BYTES; n++)
		cr_assert_eq(spri_answer_decode(recorded_answer, n, &a, &used), SPRI_AGAIN,
			     "%zu bytes should ask for more", n);
	memcpy(bytes, recorded_answer, sizeof bytes);
	bytes[3] = 'H';
	cr_assert_eq(spri_answer_decode(bytes, sizeof bytes, &a, &used), SPR_EPROTOCOL,
		     "a hello is no answer");
	memcpy(bytes, recorded_answer, sizeof bytes);
	bytes[SPRI_ANSWER_LENGTH] = 79;
	cr_assert_eq(spri_answer_decode(bytes, sizeof bytes, &a, &used), SPR_EPROTOCOL,
		     "too short for this version");
	bytes[SPRI_ANSWER_VERSION] = 3;
	bytes[SPRI_ANSWER_LENGTH] = 24;
	cr_assert_eq(spri_answer_decode(bytes, 24, &a, &used), 0, "enough for another one");
	cr_assert(a.version == 3 && used == 24, "whose number is read");
}

Test(wire, blobs_that_are_none)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} cases[] = {
		{0, 2, "version"},
		{2, 0, "no address"},
		{2, 3, "more than there are"},
		{2, 25, "more than there may be"},
		{24, 5, "family"},
		{46, 0, "(half of) port 0"},
	};
	uint8_t bytes[sizeof recorded_blob];
	struct spri_blob blob;

	for (size_t i = 0; i < spri_countof(cases); i++) {
		memcpy(bytes, recorded_blob, sizeof bytes);
		bytes[cases[i].at] = cases[i].value;
		if (cases[i].at == 46)
			bytes[47] = 0;
		cr_assert_eq(spri_blob_decode(bytes, sizeof bytes, &blob), SPR_EARGUMENT,
			     "%s: should be no blob", cases[i].what);
	}
	for (size_t n = 0; n < sizeof bytes; n++)
		cr_assert_eq(spri_blob_decode(recorded_blob, n, &blob), SPR_EARGUMENT,
			     "%zu bytes should be no blob", n);
	cr_assert_eq(spri_blob_decode(NULL, 0, &blob), SPR_EARGUMENT, "nothing should be no blob");
}

Test(wire, frames_that_are_none)
{
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} cases[] = {
		{0, 0, "type 0"},
		{0, 6, "type 6"},
		{1, 1, "type 257"},
		{2, 3, "unknown flag"},
		{3, 1, "unknown flag"},
		{2, 0, "an immediate without NOTIFY"},
		{0, 2, "CONFIRM with fields"},
		{0, 3, "GOODBYE with fields"},
		{0, 4, "FAREWELL with fields"},
		{0, 5, "REFUSED with fields"},
	};
	uint8_t bytes[SPRI_FRAME_BYTES];
	struct spri_frame f;

	for (size_t i = 0; i < spri_countof(cases); i++) {
		memcpy(bytes, recorded_write, sizeof bytes);
		bytes[cases[i].at] = cases[i].value;
		cr_assert_eq(spri_frame_decode(bytes, &f), SPR_EPROTOCOL, "%s: should be no frame",
			     cases[i].what);
	}
	/* Each byte of a frame without fields that is not zero. */
	for (uint8_t type = SPRI_FRAME_CONFIRM; type <= SPRI_FRAME_REFUSED; type++)
		for (size_t at = 2; at < SPRI_FRAME_BYTES; at++) {
			bool reason = type == SPRI_FRAME_REFUSED && at >= 4 && at < 8;

			memset(bytes, 0, sizeof bytes);
			bytes[0] = type;
			cr_assert_eq(spri_frame_decode(bytes, &f), 0, "type %u is a frame", type);
			bytes[at] = 1;
			cr_assert_eq(spri_frame_decode(bytes, &f), reason ? 0 : SPR_EPROTOCOL,
				     "type %u with a 1 at %zu", type, at);
		}
}

Test(wire, every_number_has_a_text)
{
	for (uint32_t i = 0; i < 9; i++)
		for (uint32_t k = 0; k < i; k++) {
			bool known = i <= SPRI_ANSWER_BUSY;

			cr_assert(!known || strcmp(spri_answer_text(i), spri_answer_text(k)) != 0,
				  "answers %u and %u should have texts of their own", i, k);
			known = i <= SPRI_REFUSED_FRAME;
			cr_assert(!known || strcmp(spri_refusal_text(i), spri_refusal_text(k)) != 0,
				  "refusals %u and %u should have texts of their own", i, k);
		}
}

/* ---- states ---- */

/* The drawing of conn.h: exactly these edges. */
Test(conn, edges_are_those_of_the_drawing)
{
	static const char *const edges[SPRI_CONN_STATES] = {
		"dialing awaiting done ",
		"asking done lost ",
		"dialing up done lost ",
		"answered done lost ",
		"awaiting up done lost ",
		"left closing refusing lost ",
		"closing done refusing lost ",
		"done refusing lost ",
		"",
		"lost ",
		"",
	};

	for (int from = 0; from < SPRI_CONN_STATES; from++)
		for (int to = 0; to < SPRI_CONN_STATES; to++) {
			char name[16];

			snprintf(name, sizeof name, "%s ",
				 spri_conn_state_name((enum spri_conn_state)to));
			cr_assert_eq(spri_conn_may_move((enum spri_conn_state)from,
							(enum spri_conn_state)to),
				     strstr(edges[from], name) != NULL, "%s -> %s",
				     spri_conn_state_name((enum spri_conn_state)from), name);
		}
}

Test(conn, move_changes_the_state)
{
	enum spri_conn_state state = SPRI_CONN_NEW;

	spri_conn_move(&state, SPRI_CONN_DIALING, "rank 1");
	spri_conn_move(&state, SPRI_CONN_ASKING, "rank 1");
	spri_conn_move(&state, SPRI_CONN_UP, "rank 1");
	cr_assert_eq(state, SPRI_CONN_UP, "three moves should lead to up, not %s",
		     spri_conn_state_name(state));
}
