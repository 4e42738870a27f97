/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Verbs beyond the conformance suite: settings, credits, queues that device limits make smaller,
 * the texts of failures, sleeping, forks. Needs an RDMA device (the guest machine has them); the
 * first tests do not.
 */
#include "ends.h"

#include <check.h>
#include <verbs.h>

#include <errno.h>
#include <internal/log.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND SPRI_NS_PER_S
#define SHORT (300 * SPRI_NS_PER_MS)

/* ---- settings ---- */

Test(verbs, lists_of_devices)
{
	static const struct {
		const char *list, *device;
		unsigned port;
		bool allowed;
	} cases[] = {
		{NULL, "mlx5_0", 1, true},
		{"mlx5_0", "mlx5_0", 1, true},
		{"mlx5_0", "mlx5_0", 2, true},
		{"mlx5_0", "mlx5_01", 1, false},
		{"mlx5_01", "mlx5_0", 1, false},
		{"mlx5_0:2", "mlx5_0", 2, true},
		{"mlx5_0:2", "mlx5_0", 1, false},
		{"mlx5_1,mlx5_0:1", "mlx5_0", 1, true},
		{"^mlx5_0", "mlx5_0", 1, false},
		{"^mlx5_0", "rxe0", 1, true},
		{"^mlx5_0:1,rxe0", "mlx5_0", 2, true},
		{"^mlx5_0:1,rxe0", "rxe0", 3, false},
	};
	struct spri_text text;

	for (size_t i = 0; i < spri_countof(cases); i++) {
		cr_assert_eq(spri_verbs_check_list(cases[i].list, &text), 0, "'%s' is a list",
			     cases[i].list ? cases[i].list : "");
		cr_assert_eq(spri_verbs_allowed(cases[i].list, cases[i].device, cases[i].port),
			     cases[i].allowed, "'%s' should %s %s:%u",
			     cases[i].list ? cases[i].list : "",
			     cases[i].allowed ? "allow" : "exclude", cases[i].device,
			     cases[i].port);
	}
}

Test(verbs, lists_that_are_none)
{
	static const char *const bad[] = {
		"",	"^",	 "a,", ",a",	"a:",	"a:0",		"a:b",
		"a:1x", "a:256", ":1", "a:1:2", "a,,b", "a:99999999999"};
	struct spri_text text;

	for (size_t i = 0; i < spri_countof(bad); i++) {
		text.s[0] = '\0';
		cr_assert_eq(spri_verbs_check_list(bad[i], &text), SPR_EENVIRONMENT,
			     "'%s' should be refused", bad[i]);
		cr_assert_not_null(strstr(text.s, "SPR_RDMA_DEVICE"), "the text names it: \"%s\"",
				   text.s);
	}
}

Test(verbs, settings_that_cannot_be)
{
	static const char *const bad[][2] = {
		{"SPR_RDMA_RETRY", "7"},   {"SPR_RDMA_RETRY", "0"},    {"SPR_RDMA_TIMEOUT", "32"},
		{"SPR_RDMA_TIMEOUT", "0"}, {"SPR_RDMA_TC", "256"},     {"SPR_RDMA_SL", "16"},
		{"SPR_RDMA_GID", "-1"},	   {"SPR_RDMA_DEVICE", "a:x"},
	};
	struct verbs_settings settings;
	struct spri_text text;

	cr_assert_eq(spri_verbs_settings(&settings, &text), 0, "nothing set is fine: \"%s\"",
		     text.s);
	cr_assert(settings.gid == -1 && settings.traffic_class == -1 &&
			  settings.service_level == -1 && settings.timeout == 18 &&
			  settings.retry == 4 && !settings.devices,
		  "the defaults should be the documented ones");
	for (size_t i = 0; i < spri_countof(bad); i++) {
		setenv(bad[i][0], bad[i][1], 1);
		text.s[0] = '\0';
		cr_assert_eq(spri_verbs_settings(&settings, &text), SPR_EENVIRONMENT,
			     "%s=%s should be refused", bad[i][0], bad[i][1]);
		cr_assert_not_null(strstr(text.s, bad[i][0]), "the text names it: \"%s\"", text.s);
		unsetenv(bad[i][0]);
	}
}

Test(verbs, styles_of_errors)
{
	errno = ENOSPC;
	cr_assert_eq(spri_verbs_errno(), -ENOSPC, "errno");
	cr_assert_eq(spri_verbs_value(-1), -ENOSPC, "-1 and errno");
	cr_assert_eq(spri_verbs_value(EINVAL), -EINVAL, "an errno value");
	cr_assert_eq(spri_verbs_value(-EINVAL), -EINVAL, "a negative errno value");
	cr_assert_eq(spri_verbs_value(0), 0, "success");
	errno = 0;
	cr_assert_eq(spri_verbs_errno(), -EIO, "a failure that leaves errno alone is one");
	cr_assert_eq(spri_verbs_value(-1), -EIO, "likewise");
	for (int s = IBV_WC_LOC_LEN_ERR; s <= IBV_WC_GENERAL_ERR; s++) {
		cr_assert_lt(spri_verbs_wc_status((enum ibv_wc_status)s), 0, "status %d", s);
		cr_assert_gt(strlen(spri_verbs_wc_text((enum ibv_wc_status)s)), 10, "text %d", s);
	}
	cr_assert_eq(spri_verbs_wc_status(IBV_WC_REM_ACCESS_ERR), SPR_EACCESS, "a refused write");
	cr_assert_eq(spri_verbs_wc_status(IBV_WC_RETRY_EXC_ERR), SPR_ETIMEOUT, "no answer");
}

Test(verbs, limits_in_words)
{
	struct spri_text text;

	spri_verbs_limits(-ENOMEM, "rxe7", 12345, &text);
	cr_assert(strstr(text.s, "12345 bytes") && strstr(text.s, "rxe7") &&
			  strstr(text.s, "ulimit -l") && strstr(text.s, "vm.max_map_count"),
		  "what was asked, and both limits: \"%s\"", text.s);
	spri_verbs_limits(-EFAULT, "rxe7", 12345, &text);
	cr_assert_null(strstr(text.s, "ulimit"), "no limit has to do with it: \"%s\"", text.s);
}

/* ---- with a device ---- */

static const struct spri_transport *row(struct spri_text *why)
{
	const struct spri_transport *t = spri_transport_find("verbs");

	return t->probe(why) == 0 ? t : NULL;
}

#define NEED_DEVICE(t)                                                                             \
	struct spri_text why_ = {0};                                                               \
	const struct spri_transport *t = row(&why_);                                               \
	if (!t)                                                                                    \
	cr_skip("%s", why_.s)

static struct verbs_conn *inside(const struct end *end)
{
	return (struct verbs_conn *)end->conn;
}

/* Two ports, one connection, a source at port 0, a target at port 1 that is granted to `a`. */
struct bench {
	struct world w;
	struct end a, b;
	struct spri_region *from, *to;
	struct spri_remote remote;
};

/* Whole pages: a child process may not have those that are registered. */
static uint8_t source[64 * 1024] SPRI_ALIGNED(4096), target[64 * 1024] SPRI_ALIGNED(4096);

static void bench_open(struct bench *x, const struct spri_transport *t, uint64_t timeout_ns)
{
	pattern_fill(source, sizeof source, 1);
	memset(target, 0, sizeof target);
	world_open(&x->w, t, 2, timeout_ns);
	x->from = world_region(&x->w, 0, source, sizeof source, SPRI_ACCESS_LOCAL);
	x->to = world_region(&x->w, 1, target, sizeof target, SPRI_ACCESS_REMOTE_WRITE);
	ends_meet(&x->w, 0, &x->a, 1, &x->b, 1);
	cr_assert_eq(t->grant(x->b.conn, x->to, &x->remote), 0, "grant");
}

static void bench_close(struct bench *x)
{
	end_destroy(&x->w, &x->a);
	end_destroy(&x->w, &x->b);
	world_close(&x->w);
}

static void port_refuses(const struct spri_transport *t, const char *variable, const char *value,
			 const char *interfaces, const char *expected)
{
	struct spri_port_options options = {.timeout_ns = SECOND, .interfaces = interfaces};
	struct spri_text text = {0};
	struct spri_port *port = NULL;
	int r;

	if (variable)
		setenv(variable, value, 1);
	r = t->listen(&options, &port, &text);
	if (variable)
		unsetenv(variable);
	cr_assert_lt(r, 0, "%s=%s should leave no port", variable ? variable : "", value);
	cr_assert_not_null(strstr(text.s, expected), "\"%s\" should be in the text: \"%s\"",
			   expected, text.s);
}

Test(verbs, ports_that_cannot_be)
{
	NEED_DEVICE(t);
	port_refuses(t, "SPR_RDMA_DEVICE", "nosuch0", NULL, "SPR_RDMA_DEVICE is 'nosuch0'");
	port_refuses(t, "SPR_RDMA_RETRY", "7", NULL, "SPR_RDMA_RETRY");
	port_refuses(t, NULL, NULL, "lo", "no RDMA device has this address");
	port_refuses(t, NULL, NULL, "nosuch0", "nosuch0");
}

Test(verbs, gid_that_is_not_there)
{
	NEED_DEVICE(t);
	const char *interfaces = getenv("TEST_INTERFACES");
	struct spri_port_options options = {.timeout_ns = SECOND, .interfaces = interfaces};
	struct spri_port *port = NULL;
	struct spri_text text = {0};
	bool iwarp = false;

	cr_assert_eq(t->listen(&options, &port, &text), 0, "listen: \"%s\"", text.s);
	for (unsigned i = 0; i < ((struct verbs_port *)port)->n_devices; i++)
		iwarp = iwarp || ((struct verbs_port *)port)->devices[i].iwarp;
	t->fini(port);
	if (iwarp)
		cr_skip("iWARP has no choice of GIDs");
	port_refuses(t, "SPR_RDMA_GID", "77", interfaces, "SPR_RDMA_GID is 77");
}

/* The receiver does not poll: the sender gets as far as it is allowed, and no device runs dry. */
Test(verbs, credits_bound_what_is_not_taken)
{
	NEED_DEVICE(t);
	struct bench x;
	struct spri_event events[16];
	uint32_t taken = 0, allowed;
	int r = 0, n;

	bench_open(&x, t, 10 * SECOND);
	allowed = inside(&x.a)->send.allowed;
	cr_assert_eq(allowed, VERBS_RECEIVES - VERBS_RESERVE, "the hello allows %u", allowed);
	for (unsigned idle = 0; idle < 5000 && taken <= allowed; idle++) {
		r = end_write(&x.w, &x.a, x.from, source, 8, &x.remote, 0, taken);
		taken += r == 0;
		if (r == SPRI_AGAIN)
			usleep(200); /* for the device, which is a thread of the kernel here */
		n = t->poll(x.w.port[0], events, 16);
		cr_assert_geq(n, 0, "poll");
		for (int i = 0; i < n; i++)
			cr_assert_eq(events[i].kind, SPRI_EVENT_SENT, "only SENT should come");
	}
	cr_assert_eq(r, SPRI_AGAIN, "the last post should be put off");
	cr_assert_eq(taken, allowed, "all that is allowed should be taken, not %u", taken);
	for (uint32_t i = taken; i < 5 * allowed; i++)
		cr_assert_eq(end_write_all(&x.w, &x.a, x.from, source, 8, &x.remote, 0, i), 0,
			     "once the receiver polls, more is taken (%u)", i);
	cr_assert(pump(&x.w, x.b.n_notify == 5 * allowed), "all should arrive: %u", x.b.n_notify);
	for (uint32_t i = 0; i < 5 * allowed; i++)
		cr_assert_eq(x.b.immediates[i], i, "in order");
	cr_assert(!x.a.lost && !x.b.lost, "nothing is lost: \"%s\"", t->describe(x.a.conn));
	bench_close(&x);
}

Test(verbs, a_peer_that_takes_nothing_is_lost)
{
	NEED_DEVICE(t);
	struct bench x;
	struct spri_event events[16];
	uint64_t until;
	bool lost = false;

	bench_open(&x, t, 10 * SECOND);
	((struct verbs_port *)x.w.port[0])->timeout_ns = SHORT;
	((struct verbs_port *)x.w.port[0])->tick_ns = SHORT / 8;
	until = world_now(&x.w) + WORLD_PATIENCE;
	while (!lost && world_now(&x.w) < until) {
		int n = t->poll(x.w.port[0], events, 16);

		(void)!end_write(&x.w, &x.a, x.from, source, 8, &x.remote, 0, 0);
		for (int i = 0; i < n; i++)
			lost |= events[i].kind == SPRI_EVENT_LOST;
	}
	cr_assert(lost, "LOST should come");
	cr_assert_not_null(strstr(t->describe(x.a.conn), "rank 1: verbs: took no data"),
			   "it should say why: \"%s\"", t->describe(x.a.conn));
	cr_assert(pump(&x.w, x.b.lost), "the other end is lost too");
	bench_close(&x);
}

/*
 * A write that its work request has a copy of asks the device for nothing; the timer asks in the
 * end.
 */
Test(verbs, copies_are_sent_when_posted)
{
	NEED_DEVICE(t);
	struct bench x;
	struct spri_event event;
	const struct verbs_send *s;
	uint32_t asked;

	bench_open(&x, t, 10 * SECOND);
	s = &inside(&x.a)->send;
	cr_assert(pump(&x.w, s->wr_done == s->wr_posted), "the handshake should end");
	asked = s->wr_signalled;
	for (uint32_t i = 0; i < VERBS_SIGNAL_EVERY / 2; i++) {
		cr_assert_eq(end_write(&x.w, &x.a, x.from, source, 8, &x.remote, 0, i), 0, "post");
		cr_assert_eq(t->poll(x.w.port[0], &event, 1), 1, "SENT should be there at once");
		cr_assert(event.kind == SPRI_EVENT_SENT && event.cookie == i, "in order");
	}
	cr_assert_eq(s->wr_signalled, asked, "no completion should be asked for");
	cr_assert(pump(&x.w, x.b.n_notify == VERBS_SIGNAL_EVERY / 2), "all should arrive");
	cr_assert(pump(&x.w, s->wr_done == s->wr_posted), "the timer should ask for the end");
	bench_close(&x);
}

/* Many work requests for one write: a device with a small longest message. */
Test(verbs, writes_are_cut_to_messages)
{
	NEED_DEVICE(t);
	struct bench x;
	struct spri_write write = {.n_gather = 3, .notify = true, .immediate = 9, .cookie = 9};

	bench_open(&x, t, 10 * SECOND);
	inside(&x.a)->place->max_message = 4096;
	write.gather[0] = (struct spri_gather){source, 5000, x.from};
	write.gather[1] = (struct spri_gather){source + 5000, 3192, x.from};
	write.gather[2] = (struct spri_gather){source + 8192, 40000, x.from};
	write.address = x.remote.address + 7;
	memcpy(write.key, x.remote.key, sizeof write.key);
	for (unsigned i = 1; i <= 20; i++) {
		uint64_t until = world_now(&x.w) + WORLD_PATIENCE;
		int r;

		memset(target, 0, sizeof target);
		do
			r = t->post(x.a.conn, &write);
		while (r == SPRI_AGAIN && world_step(&x.w, until));
		cr_assert_eq(r, 0, "post gave %s", spr_error_name(r));
		cr_assert(pump(&x.w, x.b.n_notify == i && x.a.n_sent == i), "it should arrive");
		cr_assert_arr_eq(target + 7, source, 48192, "all bytes in their places");
		cr_assert_eq(target[6] | target[7 + 48192], 0, "none beside");
	}
	inside(&x.a)->place->max_message = 512;
	cr_assert_eq(t->post(x.a.conn, &write), SPR_EARGUMENT,
		     "more than %d messages are too many for one write", VERBS_SEGMENTS);
	bench_close(&x);
}

Test(verbs, devices_without_inline_data)
{
	NEED_DEVICE(t);
	struct bench x;

	bench_open(&x, t, 10 * SECOND);
	inside(&x.a)->send.inline_bytes = inside(&x.b)->send.inline_bytes = 0;
	for (uint32_t i = 0; i < 1000; i++)
		cr_assert_eq(end_write_all(&x.w, &x.a, x.from, source + i, 8, &x.remote, i, i), 0,
			     "post");
	cr_assert(pump(&x.w, x.b.n_notify == 1000 && x.a.n_sent == 1000), "all should arrive");
	cr_assert_arr_eq(target, source, 1007, "every byte");
	t->close(x.a.conn);
	cr_assert(pump(&x.w, x.b.closed && t->closed(x.a.conn)), "goodbye and farewell too");
	bench_close(&x);
}

/*
 * Both ends know a refused write for what it is, where the device tells; the text names the device.
 */
Test(verbs, refused_writes_in_words)
{
	NEED_DEVICE(t);
	struct bench x;
	const char *device;
	char name[64];

	bench_open(&x, t, 10 * SECOND);
	device = inside(&x.a)->place->device->name;
	snprintf(name, sizeof name, "%s", device);
	if (inside(&x.a)->place->device->iwarp) {
		bench_close(&x);
		cr_skip("iWARP devices end the connection without a reason");
	}
	cr_assert_eq(end_write(&x.w, &x.a, x.from, source, 8, &x.remote, sizeof target, 1), 0,
		     "post");
	cr_assert(pump(&x.w, x.a.lost && x.b.lost), "both ends should be lost");
	cr_assert(x.a.status == SPR_EACCESS && x.b.status == SPR_EACCESS, "with SPR_EACCESS: %s %s",
		  spr_error_name(x.a.status), spr_error_name(x.b.status));
	cr_assert(strstr(t->describe(x.a.conn), "rank 1: verbs: a write on ") &&
			  strstr(t->describe(x.a.conn), name) &&
			  strstr(t->describe(x.a.conn), "remote access error"),
		  "peer, operation, device and status: \"%s\"", t->describe(x.a.conn));
	cr_assert(strstr(t->describe(x.b.conn), "rank 0: verbs: ") &&
			  strstr(t->describe(x.b.conn), name),
		  "peer and device: \"%s\"", t->describe(x.b.conn));
	bench_close(&x);
}

/* Whoever spins pays for no announcements; whoever waits is woken by a completion. */
Test(verbs, waiting_is_armed_on_demand)
{
	NEED_DEVICE(t);
	struct bench x;
	struct spri_event events[16];
	struct verbs_port *p;
	int n = 0;

	bench_open(&x, t, 10 * SECOND);
	world_settle(&x.w);
	p = (struct verbs_port *)x.w.port[1];
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(t->poll(x.w.port[1], events, 16), 0, "nothing should happen");
		cr_assert_eq(t->wait(x.w.port[1], world_now(&x.w)), 0, "wait");
	}
	cr_assert(inside(&x.b)->armed && atomic_load(&p->busy) == 0,
		  "poll, wait, poll should have armed");
	cr_assert_eq(end_write(&x.w, &x.a, x.from, source, 8, &x.remote, 0, 1), 0, "post");
	/* Were it not announced, this would take an hour; other wake-ups may come first. */
	for (unsigned i = 0; i < 1000 && n == 0; i++) {
		cr_assert_eq(t->wait(x.w.port[1], world_now(&x.w) + 3600 * SECOND), 0, "wait");
		n = t->poll(x.w.port[1], events, 16);
	}
	cr_assert(n == 1 && events[0].kind == SPRI_EVENT_NOTIFY,
		  "the write should wake and notify");
	for (unsigned i = 0; i < 1000; i++)
		cr_assert_eq(t->poll(x.w.port[1], events, 16), 0, "nothing should happen");
	cr_assert(!inside(&x.b)->armed && atomic_load(&p->busy) == 1,
		  "polls alone should not have armed");
	bench_close(&x);
}

/*
 * A child process that writes to its memory and ends does the parent's connections no harm.
 */
Test(verbs, a_forked_child_does_no_harm)
{
	NEED_DEVICE(t);
	static uint8_t elsewhere[4 * 4096];
	struct bench x;
	int status = 0;
	pid_t child;

	bench_open(&x, t, 10 * SECOND);
	cr_assert_eq(end_write_all(&x.w, &x.a, x.from, source, sizeof source, &x.remote, 0, 0), 0,
		     "post");
	child = fork();
	if (child == 0) {
		memset(elsewhere, 0xee, sizeof elsewhere);
		_exit(elsewhere[sizeof elsewhere - 1] == 0xee ? 0 : 1);
	}
	cr_assert_eq(waitpid(child, &status, 0), child, "the child should end");
	cr_assert_eq(status, 0, "the child should have the rest of its memory, status %d", status);
	for (uint32_t i = 1; i <= 100; i++) {
		pattern_fill(source, 1000, i);
		cr_assert_eq(end_write_all(&x.w, &x.a, x.from, source, 1000, &x.remote, 0, i), 0,
			     "post");
		cr_assert(pump(&x.w, x.b.n_notify == i + 1 && x.a.n_sent == i + 1), "arrive");
		cr_assert(pattern_is(target, 1000, i), "the bytes of write %u", i);
	}
	bench_close(&x);
}

/* ---- limits ---- */

/* Gives up the right to lock more memory than the limit says. */
static bool obey_memlock(rlim_t bytes)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	struct rlimit limit = {bytes, bytes};

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	return syscall(SYS_capset, &header, data) == 0 && setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

/* Must be the last but one: what is given up here stays given up, where tests share a process. */
Test(verbs, memlock_too_small)
{
	NEED_DEVICE(t);
	static uint8_t much[4 << 20] SPRI_ALIGNED(4096);
	struct spri_memory memory = {
		.base = much, .bytes = sizeof much, .access = SPRI_ACCESS_REMOTE_WRITE};
	struct spri_region *region = NULL;
	struct spri_text text = {""};
	struct world w;
	int r;

	world_open(&w, t, 1, SECOND);
	cr_assert(obey_memlock(1 << 20), "the limit should be set");
	r = t->register_(w.port[0], &memory, &region, &text);
	cr_assert_eq(r, -ENOMEM, "4 MiB of 1 should be refused, gave %s", spr_error_name(r));
	cr_assert_null(region, "a failed register should write no region");
	cr_assert(strstr(text.s, "registering 4194304 bytes") &&
			  strstr(text.s, "ulimit -l: 1048576 bytes"),
		  "the text should have both numbers: \"%s\"", text.s);
	memory.bytes = 65536;
	r = t->register_(w.port[0], &memory, &region, NULL);
	cr_assert_eq(r, 0, "64 KiB of 1 MiB should be fine, gave %s", spr_error_name(r));
	t->unregister(region);
	world_close(&w);
}

/* ---- peers in another process ---- */

/* The child: port 1 of a connection with the parent's; stays until it is killed. */
static void child_lives(const struct spri_transport *t, int in, int out)
{
	struct spri_port_options options = {.timeout_ns = 10 * SECOND,
					    .interfaces = getenv("TEST_INTERFACES")};
	uint8_t mine[SPRI_ADDRESS_BYTES] = {0}, theirs[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = theirs, .id = 1, .label = "parent"};
	struct spri_text text;
	struct spri_event event;
	struct spri_port *port;
	struct spri_conn *conn;
	uint32_t bytes[2];

	if (t->listen(&options, &port, &text) < 0)
		_exit(2);
	bytes[0] = (uint32_t)t->address(port, mine);
	if (write(out, bytes, 4) != 4 || write(out, mine, sizeof mine) != sizeof mine ||
	    read(in, bytes, 4) != 4 || read(in, theirs, sizeof theirs) != sizeof theirs)
		_exit(3);
	args.address_bytes = bytes[0];
	if (t->create(port, NULL, &conn) < 0 || t->connect(conn, &args) < 0)
		_exit(4);
	for (;;)
		if (t->poll(port, &event, 1) == 0)
			(void)!t->wait(port, t->now(port) + SECOND);
}

Test(verbs, a_killed_peer_is_lost)
{
	NEED_DEVICE(t);
	int down[2], up[2];
	struct world w;
	struct end a;
	uint8_t mine[SPRI_ADDRESS_BYTES] = {0}, theirs[SPRI_ADDRESS_BYTES];
	struct spri_connect args = {.address = theirs, .id = 1, .active = true, .label = "rank 5"};
	uint32_t bytes;
	pid_t child;

	cr_assert(pipe(down) == 0 && pipe(up) == 0, "pipes");
	child = fork();
	if (child == 0)
		child_lives(t, down[0], up[1]);
	world_open(&w, t, 1, 10 * SECOND);
	cr_assert(read(up[0], &bytes, 4) == 4 &&
			  read(up[0], theirs, sizeof theirs) == sizeof theirs,
		  "the child's address");
	args.address_bytes = bytes;
	bytes = (uint32_t)t->address(w.port[0], mine);
	cr_assert(write(down[1], &bytes, 4) == 4 &&
			  write(down[1], mine, sizeof mine) == sizeof mine,
		  "the child should take an address");
	end_create(&w, 0, &a);
	cr_assert_eq(t->connect(a.conn, &args), 0, "connect should start");
	cr_assert(pump(&w, a.connected || a.lost), "they should meet");
	cr_assert(!a.lost, "they should meet: \"%s\"", t->describe(a.conn));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	cr_assert(pump(&w, a.lost), "LOST should come");
	cr_assert(a.closed == 0 && a.status < 0, "it was no goodbye");
	cr_assert_not_null(strstr(t->describe(a.conn), "rank 5: verbs: "), "the text: \"%s\"",
			   t->describe(a.conn));
	end_destroy(&w, &a);
	world_close(&w);
}
