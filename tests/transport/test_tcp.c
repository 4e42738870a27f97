/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * How tcp ports meet, and who cannot keep them from it: garbage, other versions, other processes at
 * the same address, peers that say nothing. The conformance suite has what is common to all
 * transports; test_tcp_frames.c what happens on a connection that is up.
 */
#include "raw.h"

#include <check.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND SPRI_NS_PER_S
#define MS SPRI_NS_PER_MS

/* Makes an active connection of port 0 to a blob, labelled "rank 1". */
static void dial(struct world *w, struct end *end, const uint8_t *id,
		 const struct spri_wire_address *addresses, unsigned n)
{
	uint8_t blob[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = blob, .id = 5, .active = true, .label = "rank 1"};

	args.address_bytes = raw_blob(id, addresses, n, blob);
	end_create(w, 0, end);
	cr_assert_eq(w->t->connect(end->conn, &args), 0, "active connect should start");
}

/* ---- foreign and malformed hellos ---- */

Test(tcp, garbage_is_dropped_without_an_answer)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *what;
	} cases[] = {
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27, "HTTP"},
		{"\x16\x03\x01\x02\x00\x01\x00", 7, "TLS"},
		{"x", 1, "one wrong byte"},
		{"SPRA\1\0\x50\0", 8, "an answer instead of a hello"},
		{"SPRH\1\0\xff\xff", 8, "a huge length"},
		{"SPRH\1\0\x08\0", 8, "a tiny length"},
		{"SPRH\1\0\x01\x01", 8, "257 bytes"},
	};
	static uint8_t noise[65536];
	struct world w;
	unsigned before;

	world_open(&w, raw_row(), 2, 5 * SECOND);
	before = raw_descriptors();
	pattern_fill(noise, sizeof noise, 99);
	for (size_t i = 0; i <= spri_countof(cases); i++) {
		bool last = i == spri_countof(cases);
		struct raw raw;
		uint8_t byte;

		raw_dial(&w, 1, 0, &raw);
		raw_send(&w, &raw, last ? (const char *)noise : cases[i].bytes,
			 last ? sizeof noise : cases[i].n);
		cr_assert(!raw_receive(&w, &raw, &byte, 1), "%s should get no answer",
			  last ? "noise" : cases[i].what);
		cr_assert(raw_ended(&w, &raw), "%s should end the stream",
			  last ? "noise" : cases[i].what);
		raw_close(&raw);
		raw_expect_healthy(&w, last ? "noise" : cases[i].what);
	}
	cr_assert_eq(raw_port(&w, 1)->n_half_open, 0, "nothing should be left half open");
	cr_assert_eq(raw_descriptors(), before, "no descriptor should be left open");
	world_close(&w);
}

/* Every prefix of a good hello, then silence, then the end. */
Test(tcp, truncated_hellos)
{
	struct world w;
	uint8_t bytes[SPRI_HELLO_BYTES];

	world_open(&w, raw_row(), 2, 5 * SECOND);
	for (size_t n = 0; n < sizeof bytes; n += 7) {
		struct raw raw;
		struct spri_hello h;

		raw_dial(&w, 1, 0, &raw);
		h = raw_hello(&w, 1, &raw, 1);
		spri_hello_encode(&h, bytes);
		raw_send(&w, &raw, bytes, n);
		cr_assert(pump(&w, raw_port(&w, 1)->n_half_open == 1), "%zu bytes: half open", n);
		raw_close(&raw);
		cr_assert(pump(&w, raw_port(&w, 1)->n_half_open == 0),
			  "%zu bytes, then the end: should be dropped", n);
	}
	raw_expect_healthy(&w, "truncated hellos");
	world_close(&w);
}

/* A hello may come byte by byte. */
Test(tcp, hello_in_pieces)
{
	struct world w;
	struct raw raw;
	struct spri_hello h;
	struct end end;
	uint8_t bytes[SPRI_HELLO_BYTES];

	world_open(&w, raw_row(), 2, 5 * SECOND);
	raw_dial(&w, 1, 0, &raw);
	raw_awaited(&w, 1, &raw, 3, &end);
	h = raw_hello(&w, 1, &raw, 3);
	spri_hello_encode(&h, bytes);
	for (size_t i = 0; i < sizeof bytes; i++) {
		cr_assert(raw_send(&w, &raw, bytes + i, 1), "byte %zu should be taken", i);
		world_step(&w, UINT64_MAX);
	}
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_ACCEPTED, "the hello is good");
	raw_close(&raw);
	end_destroy(&w, &end);
	world_close(&w);
}

Test(tcp, hello_for_another_port)
{
	struct world w;
	struct raw raw;
	struct spri_hello h;

	world_open(&w, raw_row(), 2, 5 * SECOND);
	raw_dial(&w, 1, 0, &raw);
	h = raw_hello(&w, 1, &raw, 1);
	h.to[15] ^= 1;
	cr_assert(raw_send_hello(&w, &raw, &h), "send");
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_WRONG_PORT,
		     "the port should say that it is another one");
	cr_assert(raw_ended(&w, &raw), "and end the stream");
	raw_close(&raw);
	world_close(&w);
}

/* ---- versions and features ---- */

Test(tcp, hello_of_another_version)
{
	struct world w;
	struct raw raw;
	struct spri_hello h;
	struct spri_answer a;
	struct end end;

	world_open(&w, raw_row(), 2, 5 * SECOND);
	raw_dial(&w, 1, 0, &raw);
	raw_awaited(&w, 1, &raw, 1, &end);
	h = raw_hello(&w, 1, &raw, 1);
	h.version = 9;
	cr_assert(raw_send_hello(&w, &raw, &h), "send");
	a = raw_answer(&w, &raw);
	cr_assert(a.status == SPRI_ANSWER_OTHER_VERSION && a.version == SPRI_WIRE_VERSION,
		  "the answer should say which version is spoken here");
	cr_assert(pump(&w, end.lost == 1), "the awaiting end should be LOST at once");
	cr_assert_eq(end.status, SPR_EVERSION, "with SPR_EVERSION, not %s",
		     spr_error_name(end.status));
	cr_assert_str_eq(w.t->describe(end.conn),
			 "rank 7: peer speaks protocol version 9, this side 1", "the text");
	raw_close(&raw);
	end_destroy(&w, &end);
	world_close(&w);
}

Test(tcp, features_offered_and_required)
{
	struct world w;
	struct raw raw;
	struct spri_hello h;
	struct end end;

	world_open(&w, raw_row(), 2, 5 * SECOND);
	raw_dial(&w, 1, 0, &raw);
	raw_awaited(&w, 1, &raw, 1, &end);
	h = raw_hello(&w, 1, &raw, 1);
	h.features = 0xffffffff; /* offers that nobody here knows */
	cr_assert(raw_send_hello(&w, &raw, &h), "send");
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_ACCEPTED,
		     "unknown offers should be ignored");
	raw_close(&raw);
	raw_dial(&w, 1, 0, &raw);
	memcpy(raw.id, h.from, sizeof raw.id);
	h.features = 1ull << 40;
	cr_assert(pump(&w, ((struct tcp_conn *)end.conn)->state == SPRI_CONN_AWAITING),
		  "the end should await another try");
	cr_assert(raw_send_hello(&w, &raw, &h), "send");
	cr_assert_eq(raw_answer(&w, &raw).status, SPRI_ANSWER_FEATURE,
		     "an unknown need should be refused");
	cr_assert(pump(&w, end.lost == 1) && end.status == SPR_EVERSION, "LOST, SPR_EVERSION");
	cr_assert_not_null(strstr(w.t->describe(end.conn), "0x10000000000"), "names the bits: %s",
			   w.t->describe(end.conn));
	raw_close(&raw);
	end_destroy(&w, &end);
	world_close(&w);
}

/* What the active end makes of answers. */
Test(tcp, answers_that_are_none)
{
	static const struct {
		uint8_t answer[SPRI_ANSWER_BYTES];
		size_t n;
		int status;
		const char *text;
	} cases[] = {
		{"SPRA\7\0\x50\0", 80, SPR_EVERSION, "peer speaks protocol version 7, this side 1"},
		{"SPRA\7\0\x18\0\0\0\0\0\0\0\0\0\3", 24, SPR_EVERSION, "version 7, this side 1"},
		{"HTTP/1.1 400 Bad Request\r\n", 26, SPR_EPROTOCOL, "something else than sparring"},
		{"SPRA\1\0\x50\0\0\0\0\0\0\0\0\0\2", 80, -ECONNREFUSED, "another process answers"},
		{"SPRA\1\0\x50\0\0\0\0\0\0\0\0\0\5", 80, SPR_ETIMEOUT, "did not await"},
		{"SPRA\1\0\x50\0\0\0\0\0\0\0\0\0\6", 80, -ECONNREFUSED, "too many"},
		{"SPRA\1\0\x50\0\0\0\0\0\0\0\0\0\x63", 80, -ECONNREFUSED,
		 "unknown to this version"},
		{"SPRA\1\0\x50\0\0\0\0\0\1", 80, SPR_EVERSION,
		 "needs protocol features 0x100000000"},
	};

	for (size_t i = 0; i < spri_countof(cases); i++) {
		struct world w;
		struct raw raw;
		struct end end;
		struct spri_wire_address at;
		int listener = raw_listen(&at);

		world_open(&w, raw_row(), 1, 5 * SECOND);
		dial(&w, &end, (const uint8_t *)"0123456789abcdef", &at, 1);
		raw_accept(&w, listener, &raw);
		raw_send(&w, &raw, cases[i].answer, cases[i].n);
		cr_assert(pump(&w, end.lost == 1), "answer %zu: should be LOST", i);
		cr_assert_eq(end.status, cases[i].status, "answer %zu: status %s", i,
			     spr_error_name(end.status));
		cr_assert_not_null(strstr(w.t->describe(end.conn), cases[i].text),
				   "answer %zu: \"%s\" should contain \"%s\"", i,
				   w.t->describe(end.conn), cases[i].text);
		cr_assert_eq(strncmp(w.t->describe(end.conn),
				     "rank 1: cannot connect: 127.0.0.1 port ", 39),
			     0, "answer %zu: \"%s\" should name peer and address", i,
			     w.t->describe(end.conn));
		raw_close(&raw);
		close(listener);
		end_destroy(&w, &end);
		world_close(&w);
	}
}

/* ---- addresses ---- */

/*
 * The right address, behind one that is refused, one of another process, one that speaks something
 * else.
 */
Test(tcp, wrong_addresses_are_passed_over)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		struct world w;
		struct end a, b;
		struct raw raw = {.fd = -1};
		struct spri_wire_address to[2];
		int listener = -1;

		world_open(&w, raw_row(), 3, 5 * SECOND);
		to[1] = raw_port(&w, 1)->listeners[0].address;
		switch (kind) {
		case 0: /* nobody listens */
			close(raw_listen(&to[0]));
			break;
		case 1: /* another sparring process, as with container bridges */
			to[0] = raw_port(&w, 2)->listeners[0].address;
			break;
		default: /* 2: something that talks first; 3: something that hangs up */
			listener = raw_listen(&to[0]);
		}
		end_create(&w, 1, &b);
		cr_assert_eq(end_connect(&w, &b, 0, 5, false, NULL, "rank 0"), 0, "passive");
		dial(&w, &a, raw_port(&w, 1)->id, to, 2);
		if (listener >= 0) {
			raw_accept(&w, listener, &raw);
			if (kind == 2)
				raw_send(&w, &raw, "220 mail ESMTP\r\n", 16);
			raw_close(&raw);
		}
		cr_assert(pump(&w, a.connected && b.connected),
			  "kind %u: the second address should be found: \"%s\"", kind,
			  w.t->describe(a.conn));
		end_destroy(&w, &a);
		end_destroy(&w, &b);
		if (listener >= 0)
			close(listener);
		world_close(&w);
	}
}

/* An address that hangs up is not tried for ever. */
Test(tcp, hanging_up_counts)
{
	struct world w;
	struct end a;
	struct raw raw;
	struct spri_wire_address to;
	int listener = raw_listen(&to);

	world_open(&w, raw_row(), 1, 5 * SECOND);
	dial(&w, &a, (const uint8_t *)"0123456789abcdef", &to, 1);
	for (int i = 0; i < TCP_STRIKES; i++) {
		cr_assert_eq(a.lost, 0, "%d tries are not enough to give up", i);
		raw_accept(&w, listener, &raw);
		raw_close(&raw);
	}
	cr_assert(pump(&w, a.lost == 1), "should be LOST");
	cr_assert_eq(a.status, -ECONNRESET, "with ECONNRESET, not %s", spr_error_name(a.status));
	end_destroy(&w, &a);
	close(listener);
	world_close(&w);
}

/* A silent address gets its share of the time only, and the one in a shared network comes first. */
Test(tcp, silent_addresses_get_a_share)
{
	struct world w;
	struct end a, b;
	struct spri_wire_address to[3], silent;
	int listener = raw_listen(&silent);

	world_open(&w, raw_row(), 2, 600 * MS);
	to[0] = (struct spri_wire_address){4, 9, {192, 0, 2, 1}}; /* far: a network of nobody */
	to[1] = silent;
	to[2] = raw_port(&w, 1)->listeners[0].address;
	end_create(&w, 1, &b);
	cr_assert_eq(end_connect(&w, &b, 0, 5, false, NULL, "rank 0"), 0, "passive");
	dial(&w, &a, raw_port(&w, 1)->id, to, 3);
	cr_assert_eq(((struct tcp_conn *)a.conn)->dial.to[0].port, silent.port,
		     "addresses in a shared network should come first");
	cr_assert_eq(((struct tcp_conn *)a.conn)->dial.to[2].port, 9, "the far one last");
	cr_assert(pump(&w, a.connected && b.connected), "the good address should be found: \"%s\"",
		  w.t->describe(a.conn));
	end_destroy(&w, &a);
	end_destroy(&w, &b);
	close(listener);
	world_close(&w);
}

Test(tcp, silence_everywhere_is_a_timeout)
{
	struct world w;
	struct end a;
	struct spri_wire_address to;
	int listener = raw_listen(&to);
	uint64_t start;

	world_open(&w, raw_row(), 1, 200 * MS);
	start = world_now(&w);
	dial(&w, &a, (const uint8_t *)"0123456789abcdef", &to, 1);
	cr_assert(pump(&w, a.lost == 1), "should be LOST");
	cr_assert_eq(a.status, SPR_ETIMEOUT, "with SPR_ETIMEOUT, not %s", spr_error_name(a.status));
	cr_assert_not_null(
		strstr(w.t->describe(a.conn), "rank 1: no connection within 0.2 s: 127.0.0.1 port"),
		"\"%s\"", w.t->describe(a.conn));
	cr_assert_geq(world_now(&w) - start, 200 * MS, "not before the deadline");
	end_destroy(&w, &a);
	close(listener);
	world_close(&w);
}

static void meet_over(const char *filter, unsigned family)
{
	const struct spri_transport *t = raw_row();
	struct spri_port_options options = {.timeout_ns = 5 * SECOND, .interfaces = filter};
	struct world w = {.t = t, .n_ports = 2};
	struct spri_text text = {0};
	struct end a, b;

	for (unsigned i = 0; i < 2; i++) {
		int r = t->listen(&options, &w.port[i], &text);

		if (r == SPR_EENVIRONMENT && family == 6)
			cr_skip("no IPv6 loopback here: %s", text.s);
		cr_assert_eq(r, 0, "%s: %s", filter, text.s);
		cr_assert_eq(raw_port(&w, i)->listeners[0].address.family, family,
			     "%s: the port should have an address of this family only", filter);
	}
	ends_meet(&w, 0, &a, 1, &b, 1);
	end_destroy(&w, &a);
	end_destroy(&w, &b);
	world_close(&w);
}

Test(tcp, over_ipv4)
{
	meet_over("127.0.0.1/32", 4);
}

Test(tcp, over_ipv6)
{
	meet_over("::1/128", 6);
}

Test(tcp, listen_refuses_bad_options)
{
	const struct spri_transport *t = raw_row();
	struct spri_port_options options = {.timeout_ns = SECOND, .interfaces = "10.0.0.0/40"};
	struct spri_port *port = NULL;
	struct spri_text text = {0};

	cr_assert_eq(t->listen(&options, &port, &text), SPR_EENVIRONMENT, "a malformed filter");
	cr_assert_not_null(strstr(text.s, "10.0.0.0/40"), "should be quoted: %s", text.s);
	options.interfaces = "nosuch0";
	cr_assert_eq(t->listen(&options, &port, &text), SPR_EENVIRONMENT, "no such interface");
	cr_assert_not_null(strstr(text.s, "nosuch0"), "should be quoted: %s", text.s);
	options.interfaces = "lo";
	options.timeout_ns = 0;
	cr_assert_eq(t->listen(&options, &port, &text), SPR_EARGUMENT, "no time at all");
	cr_assert_null(port, "nothing should be written on failure");
}

/* ---- other processes ---- */

/* Another process, killed in the middle of writing. */
Test(tcp, peer_killed_in_mid_write)
{
	enum { LARGE = 1 << 20 };
	static uint8_t memory[LARGE];
	struct spri_event events[16];
	struct world w;
	struct end end;
	struct spri_region *region;
	struct spri_remote remote;
	uint8_t blob[SPRI_ADDRESS_BYTES], peer[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = peer, .id = 4, .label = "rank 3"};
	int up[2], down[2];
	size_t bytes;
	pid_t pid;

	cr_assert(pipe(up) == 0 && pipe(down) == 0, "pipes");
	pid = fork();
	cr_assert_geq(pid, 0, "fork");
	if (pid == 0) {
		world_open(&w, raw_row(), 1, 10 * SECOND);
		bytes = w.t->address(w.port[0], blob);
		if (write(up[1], blob, SPRI_ADDRESS_BYTES) < 0 ||
		    read(down[0], peer, sizeof peer) < 0 ||
		    read(down[0], &remote, sizeof remote) < 0)
			_exit(1);
		region = world_region(&w, 0, memory, LARGE, SPRI_ACCESS_LOCAL);
		end_create(&w, 0, &end);
		args.active = true;
		args.address_bytes = bytes;
		if (w.t->connect(end.conn, &args) < 0)
			_exit(2);
		while (!end.lost && world_step(&w, UINT64_MAX))
			if (end.connected)
				end_write(&w, &end, region, memory, LARGE, &remote, 0, 1);
		_exit(3);
	}
	world_open(&w, raw_row(), 1, 10 * SECOND);
	region = world_region(&w, 0, memory, LARGE, SPRI_ACCESS_REMOTE_WRITE);
	end_create(&w, 0, &end);
	cr_assert_eq(w.t->grant(end.conn, region, &remote), 0, "grant");
	bytes = w.t->address(w.port[0], blob);
	cr_assert_eq(read(up[0], peer, sizeof peer), (ssize_t)sizeof peer, "the child's address");
	args.address_bytes = bytes; /* both have the addresses of loopback */
	cr_assert_eq(w.t->connect(end.conn, &args), 0, "connect");
	cr_assert(write(down[1], blob, sizeof blob) == (ssize_t)sizeof blob &&
			  write(down[1], &remote, sizeof remote) == (ssize_t)sizeof remote,
		  "our address");
	cr_assert(pump(&w, end.n_notify >= 20), "writes should come: \"%s\"",
		  w.t->describe(end.conn));
	cr_assert_eq(end.lost, 0, "the child is alive");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cr_assert(pump(&w, end.lost == 1), "LOST should come");
	cr_assert_eq(end.status, -ECONNRESET, "with ECONNRESET, not %s",
		     spr_error_name(end.status));
	cr_assert_str_eq(w.t->describe(end.conn),
			 "rank 3: connection lost: Connection reset by peer", "the text");
	cr_assert_eq(w.t->poll(w.port[0], events, 16), 0, "then nothing");
	end_destroy(&w, &end);
	world_close(&w);
}
