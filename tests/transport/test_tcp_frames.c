/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What happens on a tcp connection that is up: frames that must be refused, peers that stop in the
 * middle, stop reading, or die; the order of events around a loss; goodbye. The peer is a plain
 * socket (raw.h) that says what the test wants.
 */
#include "raw.h"

#include <check.h>
#include <internal/bytes.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND SPRI_NS_PER_S
#define MS SPRI_NS_PER_MS

enum { BYTES = 4096, GUARD = 64, GUARD_VALUE = 0xa5 };

/* A port with a connection to a raw peer that may write to the middle of `memory`. */
struct scene {
	struct world w;
	struct end end;
	struct raw raw;
	struct spri_region *region;
	struct spri_remote remote;
	uint8_t memory[GUARD + BYTES + GUARD];
};

static struct scene x;

static void scene_open(uint64_t timeout_ns)
{
	memset(&x, 0, sizeof x);
	memset(x.memory, GUARD_VALUE, sizeof x.memory);
	world_open(&x.w, raw_row(), 1, timeout_ns);
	x.region = world_region(&x.w, 0, x.memory + GUARD, BYTES, SPRI_ACCESS_REMOTE_WRITE);
	raw_meet(&x.w, 0, &x.raw, 1, &x.end);
	cr_assert_eq(x.w.t->grant(x.end.conn, x.region, &x.remote), 0, "grant");
}

static void scene_close(void)
{
	raw_close(&x.raw);
	end_destroy(&x.w, &x.end);
	world_close(&x.w);
}

static const char *text(void)
{
	return x.w.t->describe(x.end.conn);
}

/* The header of a write that would be taken. */
static struct spri_frame write_frame(uint64_t address, uint64_t length, uint32_t immediate)
{
	struct spri_frame f = {.type = SPRI_FRAME_WRITE,
			       .flags = SPRI_FRAME_NOTIFY,
			       .immediate = immediate,
			       .address = x.remote.address + address,
			       .length = length};

	memcpy(f.key, x.remote.key, sizeof f.key);
	return f;
}

static void expect_untouched(const char *what)
{
	for (size_t i = 0; i < sizeof x.memory; i++)
		cr_assert_eq(x.memory[i], GUARD_VALUE, "%s: byte %zu was changed", what, i);
}

/* Sends a header and some payload, and expects the refusal. */
static void expect_refusal(const uint8_t *header, uint32_t reason, int status, const char *what)
{
	static const uint8_t payload[BYTES];
	struct spri_frame f;

	raw_send(&x.w, &x.raw, header, SPRI_FRAME_BYTES);
	raw_send(&x.w, &x.raw, payload, sizeof payload);
	f = raw_frame(&x.w, &x.raw);
	cr_assert_eq(f.type, SPRI_FRAME_REFUSED, "%s: should be refused, not %u", what, f.type);
	cr_assert_eq(f.immediate, reason, "%s: for reason %u, not %u", what, reason, f.immediate);
	cr_assert(pump(&x.w, x.end.lost == 1), "%s: LOST should come", what);
	cr_assert_eq(x.end.status, status, "%s: status should be %s, not %s", what,
		     spr_error_name(status), spr_error_name(x.end.status));
	cr_assert(raw_ended(&x.w, &x.raw), "%s: the stream should end", what);
	cr_assert_eq(x.end.n_notify + x.end.closed, 0, "%s: nothing else should be reported", what);
	cr_assert_eq(strncmp(text(), "rank 7: ", 8), 0, "%s: \"%s\" should name the peer", what,
		     text());
	expect_untouched(what);
}

/* ---- frames that must be refused ---- */

Test(tcp_frames, malformed)
{
	static const struct {
		struct spri_frame frame;
		const char *what;
	} cases[] = {
		{{.type = 0}, "type 0"},
		{{.type = 6}, "an unknown type"},
		{{.type = 0xffff}, "an unknown type"},
		{{.type = SPRI_FRAME_WRITE, .flags = 2}, "an unknown flag"},
		{{.type = SPRI_FRAME_WRITE, .immediate = 1}, "an immediate without NOTIFY"},
		{{.type = SPRI_FRAME_GOODBYE, .length = 1}, "GOODBYE with a length"},
		{{.type = SPRI_FRAME_CONFIRM}, "CONFIRM twice"},
		{{.type = SPRI_FRAME_FAREWELL}, "FAREWELL before goodbye"},
	};
	uint8_t header[SPRI_FRAME_BYTES];

	for (size_t i = 0; i < spri_countof(cases); i++) {
		scene_open(5 * SECOND);
		spri_frame_encode(&cases[i].frame, header);
		expect_refusal(header, SPRI_REFUSED_FRAME, SPR_EPROTOCOL, cases[i].what);
		scene_close();
	}
}

Test(tcp_frames, hostile_lengths)
{
	static const struct {
		uint64_t address, length;
		const char *what;
	} cases[] = {
		{0, UINT64_MAX, "the largest length"},
		{1, UINT64_MAX, "address + length is 0"},
		{BYTES, UINT64_MAX - BYTES + 1, "wraps around to 0"},
		{UINT64_MAX, 2, "wraps around to 1"},
		{UINT64_MAX, UINT64_MAX, "both largest"},
		{0, BYTES + 1, "one too long"},
		{1, BYTES, "one past the end"},
		{1ull << 63, 1, "half the address space away"},
		{0, 1ull << 63, "a length with the sign bit"},
		{0, (1ull << 32) + 8, "a length that is small in 32 bits"},
	};
	uint8_t header[SPRI_FRAME_BYTES];

	for (size_t i = 0; i < spri_countof(cases); i++) {
		struct spri_frame f;

		scene_open(5 * SECOND);
		f = write_frame(cases[i].address, cases[i].length, 1);
		spri_frame_encode(&f, header);
		expect_refusal(header, SPRI_REFUSED_BOUNDS, SPR_EACCESS, cases[i].what);
		scene_close();
	}
}

Test(tcp_frames, every_byte_of_the_key_counts)
{
	uint8_t header[SPRI_FRAME_BYTES];

	for (unsigned i = 0; i < SPRI_KEY_BYTES; i++) {
		struct spri_frame f;

		scene_open(5 * SECOND);
		f = write_frame(0, 8, 1);
		f.key[i] ^= 1;
		spri_frame_encode(&f, header);
		expect_refusal(header, SPRI_REFUSED_KEY, SPR_EACCESS, "a wrong key");
		cr_assert_str_eq(text(), "rank 7: the peer's write was refused: unknown key",
				 "the text");
		scene_close();
	}
}

/* The region goes while its payload arrives: not a byte more is written. */
Test(tcp_frames, unregister_in_mid_payload)
{
	uint8_t payload[1000];
	struct spri_frame f;

	scene_open(5 * SECOND);
	memset(payload, 0x11, sizeof payload);
	f = write_frame(0, 2000, 1);
	cr_assert(raw_send_frame(&x.w, &x.raw, &f), "header");
	cr_assert(raw_send(&x.w, &x.raw, payload, sizeof payload), "half of the payload");
	cr_assert(pump(&x.w, x.memory[GUARD + 999] == 0x11), "the first half should be placed");
	x.w.t->unregister(x.region);
	x.w.n_regions = 0;
	raw_send(&x.w, &x.raw, payload, sizeof payload);
	f = raw_frame(&x.w, &x.raw);
	cr_assert(f.type == SPRI_FRAME_REFUSED && f.immediate == SPRI_REFUSED_WITHDRAWN,
		  "the peer should be told");
	cr_assert(pump(&x.w, x.end.lost == 1) && x.end.status == SPR_EACCESS, "LOST, SPR_EACCESS");
	for (size_t i = 1000; i < BYTES + GUARD; i++)
		cr_assert_eq(x.memory[GUARD + i], GUARD_VALUE, "byte %zu was written later", i);
	scene_close();
}

/* A refusal waits for the end of the frame that is being sent, so that the peer can read it. */
Test(tcp_frames, refusal_behind_a_large_write)
{
	enum { LARGE = 16 << 20 };
	static uint8_t source[LARGE], back[LARGE];
	struct spri_region *from;
	struct spri_frame f;
	struct spri_remote to = {.address = 0};

	scene_open(5 * SECOND);
	pattern_fill(source, sizeof source, 8);
	from = world_region(&x.w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(end_write(&x.w, &x.end, from, source, LARGE, &to, 0, i), 0, "post");
	world_settle(&x.w);
	cr_assert_eq(x.end.n_sent, 0, "the first write should be under way, or the test is void");
	f = write_frame(0, BYTES + 1, 9);
	cr_assert(raw_send_frame(&x.w, &x.raw, &f), "a bad write");
	world_settle(&x.w);
	f = raw_frame(&x.w, &x.raw);
	cr_assert(f.type == SPRI_FRAME_WRITE && f.length == LARGE, "the first write goes on");
	cr_assert(raw_receive(&x.w, &x.raw, back, LARGE), "to its end");
	cr_assert_arr_eq(back, source, LARGE, "unharmed");
	f = raw_frame(&x.w, &x.raw);
	cr_assert(f.type == SPRI_FRAME_REFUSED && f.immediate == SPRI_REFUSED_BOUNDS,
		  "then comes the refusal, instead of the second write");
	cr_assert(pump(&x.w, x.end.lost == 1) && x.end.status == SPR_EACCESS, "LOST, SPR_EACCESS");
	cr_assert_eq(x.end.n_sent, 1, "the first write was sent, the second was not");
	scene_close();
}

/* A peer that neither reads nor ends: the refusal is given up after a second. */
Test(tcp_frames, refusal_nobody_reads)
{
	enum { LARGE = 16 << 20 };
	static uint8_t source[LARGE];
	struct spri_region *from;
	struct spri_frame f;
	struct spri_remote to = {.address = 0};

	scene_open(10 * SECOND);
	from = world_region(&x.w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	cr_assert_eq(end_write(&x.w, &x.end, from, source, LARGE, &to, 0, 0), 0, "post");
	f = write_frame(0, BYTES + 1, 9);
	cr_assert(raw_send_frame(&x.w, &x.raw, &f), "a bad write");
	cr_assert(pump(&x.w, x.end.lost == 1), "LOST should come");
	cr_assert_eq(x.end.status, SPR_EACCESS, "for the reason that it has");
	scene_close();
}

Test(tcp_frames, refused_by_the_peer)
{
	static const struct {
		uint32_t reason;
		int status;
		const char *text;
	} cases[] = {
		{SPRI_REFUSED_KEY, SPR_EACCESS, "rank 7: the peer refused a write: unknown key"},
		{SPRI_REFUSED_FRAME, SPR_EPROTOCOL,
		 "rank 7: the peer refused what this side sent: malformed frame"},
		{99, SPR_EACCESS,
		 "rank 7: the peer refused a write: a reason unknown to this version"},
	};

	for (size_t i = 0; i < spri_countof(cases); i++) {
		struct spri_frame f = {.type = SPRI_FRAME_REFUSED, .immediate = cases[i].reason};

		scene_open(5 * SECOND);
		cr_assert(raw_send_frame(&x.w, &x.raw, &f), "send");
		cr_assert(pump(&x.w, x.end.lost == 1), "LOST should come");
		cr_assert_eq(x.end.status, cases[i].status, "not %s", spr_error_name(x.end.status));
		cr_assert_str_eq(text(), cases[i].text, "the text");
		scene_close();
	}
}

/* ---- peers that stop ---- */

/* The end of the stream at any point of a write with a notification, but its very end. */
Test(tcp_frames, truncated_writes)
{
	static const size_t cuts[] = {1, 20, 39, 40, 41, 90, 139};
	uint8_t bytes[SPRI_FRAME_BYTES + 100];
	struct spri_frame f;

	for (size_t i = 0; i < spri_countof(cuts); i++) {
		scene_open(5 * SECOND);
		f = write_frame(0, 100, 1);
		spri_frame_encode(&f, bytes);
		memset(bytes + SPRI_FRAME_BYTES, 0x22, 100);
		cr_assert(raw_send(&x.w, &x.raw, bytes, cuts[i]), "send");
		raw_close(&x.raw);
		cr_assert(pump(&x.w, x.end.lost == 1), "%zu bytes: LOST should come", cuts[i]);
		cr_assert_eq(x.end.status, -ECONNRESET, "%zu bytes: status %s", cuts[i],
			     spr_error_name(x.end.status));
		cr_assert_eq(x.end.n_notify, 0, "%zu bytes: half a write should not notify",
			     cuts[i]);
		cr_assert_str_eq(text(), "rank 7: connection lost: Connection reset by peer",
				 "the text");
		cr_assert_eq(x.memory[GUARD + 100], GUARD_VALUE, "nothing behind the write");
		scene_close();
	}
}

/*
 * What arrived before the loss is reported before it, also when the caller takes one event at a
 * time.
 */
Test(tcp_frames, events_before_the_loss)
{
	for (unsigned kind = 0; kind < 3; kind++) {
		const struct linger hard = {1, 0};
		uint8_t bytes[50 * SPRI_FRAME_BYTES];
		struct spri_event e;
		uint32_t next = 0;
		int n;

		scene_open(5 * SECOND);
		for (uint32_t i = 0; i < 50; i++) {
			struct spri_frame f = write_frame(0, 0, i);

			spri_frame_encode(&f, bytes + i * SPRI_FRAME_BYTES);
		}
		cr_assert(send(x.raw.fd, bytes, sizeof bytes, 0) == sizeof bytes, "send");
		if (kind == 1) /* a reset instead of an end */
			setsockopt(x.raw.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
		if (kind == 2) /* a goodbye before it */
			spri_frame_encode(&(struct spri_frame){.type = SPRI_FRAME_GOODBYE}, bytes);
		if (kind == 2)
			cr_assert(send(x.raw.fd, bytes, SPRI_FRAME_BYTES, 0) == SPRI_FRAME_BYTES,
				  "send");
		raw_close(&x.raw);
		for (uint64_t until = world_now(&x.w) + WORLD_PATIENCE;;) {
			n = x.w.t->poll(x.w.port[0], &e, 1);
			cr_assert(n >= 0 && world_now(&x.w) < until, "poll");
			if (n == 0) {
				x.w.t->wait(x.w.port[0], until);
				continue;
			}
			if (e.kind != SPRI_EVENT_NOTIFY)
				break;
			cr_assert_eq(e.immediate, next++, "in order");
		}
		cr_assert_eq(next, 50, "kind %u: all 50 should come first, not %u", kind, next);
		cr_assert_eq(e.kind, kind == 2 ? SPRI_EVENT_CLOSED : SPRI_EVENT_LOST,
			     "kind %u: then the end, not %d", kind, (int)e.kind);
		world_settle(&x.w);
		cr_assert_eq(x.end.lost + x.end.closed, 0, "kind %u: then nothing", kind);
		scene_close();
	}
}

/* A peer that takes no data for the timeout is a failure, though its host is alive. */
Test(tcp_frames, peer_that_stops_reading)
{
	enum { LARGE = 32 << 20 };
	static uint8_t source[LARGE];
	struct spri_remote to = {.address = 0};
	struct spri_region *from;

	scene_open(300 * MS);
	from = world_region(&x.w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	cr_assert_eq(end_write(&x.w, &x.end, from, source, LARGE, &to, 0, 0), 0, "post");
	cr_assert(pump(&x.w, x.end.lost == 1), "LOST should come");
	cr_assert_eq(x.end.status, SPR_ETIMEOUT, "with SPR_ETIMEOUT, not %s: %s",
		     spr_error_name(x.end.status), text());
	cr_assert_eq(strncmp(text(), "rank 7: ", 8), 0, "\"%s\" should name the peer", text());
	cr_assert_eq(x.end.n_sent, 0, "the write was never sent");
	scene_close();
}

/* Slow is not dead: bytes taken now and then keep the connection, however long it takes in all. */
Test(tcp_frames, peer_that_reads_slowly)
{
	enum { LARGE = 16 << 20, PIECE = 2 << 20 };
	static uint8_t source[LARGE], back[PIECE];
	struct spri_remote to = {.address = 0};
	struct spri_region *from;

	scene_open(400 * MS);
	from = world_region(&x.w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	cr_assert_eq(end_write(&x.w, &x.end, from, source, LARGE - SPRI_FRAME_BYTES, &to, 0, 0), 0,
		     "post");
	for (unsigned i = 0; i < LARGE / PIECE; i++) {
		uint64_t pause = world_now(&x.w) + 100 * MS;

		while (world_step(&x.w, pause))
			;
		cr_assert(raw_receive(&x.w, &x.raw, back, PIECE), "piece %u: %s", i, text());
	}
	cr_assert(pump(&x.w, x.end.n_sent == 1), "the write should be sent");
	cr_assert_eq(x.end.lost, 0, "and nothing lost");
	scene_close();
}

/* ---- goodbye ---- */

Test(tcp_frames, goodbye_is_answered)
{
	const struct spri_frame goodbye = {.type = SPRI_FRAME_GOODBYE};
	struct spri_write w = {.notify = true};

	scene_open(5 * SECOND);
	cr_assert(raw_send_frame(&x.w, &x.raw, &goodbye), "send");
	cr_assert_eq(raw_frame(&x.w, &x.raw).type, SPRI_FRAME_FAREWELL, "FAREWELL should come");
	cr_assert(pump(&x.w, x.end.closed == 1), "CLOSED should come");
	cr_assert_eq(x.w.t->post(x.end.conn, &w), -ENOTCONN, "nobody is there to write to");
	raw_close(&x.raw);
	world_settle(&x.w);
	cr_assert_eq(x.end.lost, 0, "the end of the stream is no loss then");
	x.w.t->close(x.end.conn);
	cr_assert(x.w.t->closed(x.end.conn), "nothing is left to send");
	scene_close();
}

Test(tcp_frames, frames_after_goodbye)
{
	const struct spri_frame goodbye = {.type = SPRI_FRAME_GOODBYE};
	struct spri_frame f;

	scene_open(5 * SECOND);
	cr_assert(raw_send_frame(&x.w, &x.raw, &goodbye), "send");
	f = write_frame(0, 0, 1);
	cr_assert(raw_send_frame(&x.w, &x.raw, &f), "send");
	cr_assert(pump(&x.w, x.end.lost == 1) && x.end.status == SPR_EPROTOCOL,
		  "a write after goodbye should lose the connection");
	cr_assert(x.end.closed == 1 && x.end.n_notify == 0, "and not be notified");
	scene_close();
}

/* close() ends in time though the peer never answers; its writes are taken meanwhile. */
Test(tcp_frames, goodbye_nobody_answers)
{
	struct spri_frame f;
	uint64_t start;

	scene_open(5 * SECOND);
	start = world_now(&x.w);
	x.w.t->close(x.end.conn);
	cr_assert_eq(raw_frame(&x.w, &x.raw).type, SPRI_FRAME_GOODBYE, "GOODBYE should come");
	f = write_frame(0, 0, 31);
	cr_assert(raw_send_frame(&x.w, &x.raw, &f), "a write that was under way");
	cr_assert(pump(&x.w, x.end.n_notify == 1), "should still be notified");
	cr_assert(!x.w.t->closed(x.end.conn), "the answer is awaited");
	cr_assert(pump(&x.w, x.w.t->closed(x.end.conn)), "but not for ever");
	cr_assert_leq(world_now(&x.w) - start, 10 * SECOND, "about a second");
	cr_assert_eq(x.end.lost, 0, "it is no loss");
	scene_close();
}

/* Sends a large write and closes. The peer has not read a byte. */
static void close_behind_write(struct spri_region *from)
{
	struct spri_remote to = {.address = 0};

	cr_assert_eq(end_write(&x.w, &x.end, from, from->base, from->bytes, &to, 0, 0), 0, "post");
	cr_assert(pump(&x.w, x.end.n_sent == 1), "the kernel should take all, or the test is void");
	x.w.t->close(x.end.conn);
}

/* A peer that reads late finds all: close() is not over before. */
Test(tcp_frames, goodbye_waits_for_the_bytes)
{
	enum { LARGE = 1 << 20 };
	static uint8_t source[LARGE], back[LARGE];
	uint64_t until;

	scene_open(WORLD_PATIENCE);
	pattern_fill(source, LARGE, 5);
	close_behind_write(world_region(&x.w, 0, source, LARGE, SPRI_ACCESS_LOCAL));
	until = world_now(&x.w) + 3 * SECOND;
	while (world_step(&x.w, until))
		;
	cr_assert(!x.w.t->closed(x.end.conn), "the peer has not taken the bytes");
	cr_assert_eq(raw_frame(&x.w, &x.raw).length, LARGE, "the write should come");
	cr_assert(raw_receive(&x.w, &x.raw, back, LARGE), "with all its bytes");
	cr_assert_arr_eq(back, source, LARGE, "unharmed");
	cr_assert_eq(raw_frame(&x.w, &x.raw).type, SPRI_FRAME_GOODBYE, "then goodbye");
	cr_assert(pump(&x.w, x.w.t->closed(x.end.conn)), "then it is over, without an answer");
	cr_assert_eq(x.end.lost, 0, "and no loss");
	scene_close();
}

/* A peer that takes nothing is given up, one that dies at once. */
Test(tcp_frames, goodbye_nobody_takes)
{
	enum { LARGE = 1 << 20 };
	static uint8_t source[LARGE];

	for (int dies = 0; dies < 2; dies++) {
		scene_open(dies ? 1000 * SECOND : 2 * SECOND);
		close_behind_write(world_region(&x.w, 0, source, LARGE, SPRI_ACCESS_LOCAL));
		if (dies)
			raw_close(&x.raw);
		cr_assert(pump(&x.w, x.w.t->closed(x.end.conn)), "it should end");
		scene_close();
	}
}

/* ---- progress ---- */

/* Many small frames that arrive together, taken by a caller with little room. */
Test(tcp_frames, batch_of_small_frames)
{
	enum { FRAMES = 3000, EACH = SPRI_FRAME_BYTES + 4 };
	static uint8_t bytes[FRAMES * EACH];

	scene_open(5 * SECOND);
	for (uint32_t i = 0; i < FRAMES; i++) {
		struct spri_frame f = write_frame(4 * (i % 1000), 4, i);

		spri_frame_encode(&f, bytes + (size_t)i * EACH);
		spri_put_u32(bytes + (size_t)i * EACH + SPRI_FRAME_BYTES, i);
	}
	cr_assert(raw_send(&x.w, &x.raw, bytes, sizeof bytes), "send");
	cr_assert(pump(&x.w, x.end.n_notify == FRAMES), "all should come, not %u", x.end.n_notify);
	for (uint32_t i = 0; i < FRAMES; i++)
		cr_assert_eq(x.end.immediates[i], i, "in order");
	for (uint32_t i = 0; i < 1000; i++)
		cr_assert_eq(spri_get_u32(x.memory + GUARD + 4 * i), 2000 + i, "the last of each");
	scene_close();
}

/* wait() returns at once while an event is there that no descriptor announces. */
Test(tcp_frames, wait_sees_what_post_left)
{
	struct spri_write w = {.notify = true, .cookie = 3};
	uint64_t start;

	scene_open(5 * SECOND);
	world_settle(&x.w);
	cr_assert_eq(x.w.t->post(x.end.conn, &w), 0, "post");
	start = world_now(&x.w);
	cr_assert_eq(x.w.t->wait(x.w.port[0], start + 30 * SECOND), 0, "wait");
	cr_assert_lt(world_now(&x.w) - start, 20 * SECOND, "SENT is there to be taken");
	cr_assert(pump(&x.w, x.end.n_sent == 1 && x.end.cookies[0] == 3), "SENT");
	scene_close();
}

static void *wait_long(void *arg)
{
	int r = 0;

	for (unsigned i = 0; i < 3 && r == 0; i++) {
		struct spri_port *port = arg;

		r = port->ops->wait(port, port->ops->now(port) + 60 * SECOND);
	}
	return (void *)(intptr_t)r;
}

/* Another thread sleeps in wait(): what this thread does ends its sleep. */
Test(tcp_frames, wait_beside_other_calls)
{
	struct spri_write w = {.notify = true};
	pthread_t thread;
	void *result = NULL;
	uint64_t start;

	scene_open(5 * SECOND);
	start = world_now(&x.w);
	cr_assert_eq(pthread_create(&thread, NULL, wait_long, x.w.port[0]), 0, "thread");
	for (unsigned i = 0; i < 100; i++) {
		cr_assert_eq(x.w.t->post(x.end.conn, &w), 0, "post");
		cr_assert(pump(&x.w, x.end.n_sent == i + 1), "SENT");
	}
	for (unsigned i = 0; i < 3; i++) {
		x.w.t->wake(x.w.port[0]);
		world_settle(&x.w);
	}
	while (pthread_tryjoin_np(thread, &result) == EBUSY) {
		cr_assert_lt(world_now(&x.w) - start, 30 * SECOND, "the waiter should return");
		x.w.t->wake(x.w.port[0]);
		usleep(1000);
	}
	cr_assert_null(result, "wait() should succeed");
	scene_close();
}

/* 40 bytes of framing per write, and what the handshake took. */
Test(tcp_frames, wire_bytes_are_exact)
{
	static uint8_t source[1000];
	struct spri_port_stats s;
	struct spri_region *from;
	struct spri_remote to = {.address = 0};

	scene_open(5 * SECOND);
	from = world_region(&x.w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	for (uint32_t i = 0; i < 10; i++)
		cr_assert_eq(end_write(&x.w, &x.end, from, source, 100 * i, &to, 0, i), 0, "post");
	cr_assert(pump(&x.w, x.end.n_sent == 10), "SENT");
	x.w.t->stats(x.w.port[0], &s);
	cr_assert_eq(s.wire_bytes, SPRI_ANSWER_BYTES + 4500 + 10 * SPRI_FRAME_BYTES,
		     "answer, payload and 10 headers, not %zu", (size_t)s.wire_bytes);
	cr_assert_eq(s.writes, 10, "10 writes");
	scene_close();
}
