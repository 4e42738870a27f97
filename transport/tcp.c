/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One-sided writes with notifications over kernel sockets: the row of the table. One stream
 * per connection; the receiving side checks every write and places it, so "one-sided" means that
 * the peer's caller takes no part, while its poll() does. tcp.h says which file holds what.
 *
 * Failures: a stream that ends without GOODBYE, a frame that must be refused, a deadline that
 * passes: each loses the one connection (LOST, with a text). What is not one of the port's
 * connections cannot hurt the port.
 */
#include "tcp.h"
#include "rows.h"

#define PROBE_ROWS 64

static int probe(struct spri_text *why)
{
	struct spri_interface rows[PROBE_ROWS];
	int r = spri_interfaces(NULL, rows, PROBE_ROWS, why);

	return r < 0 ? spri_trace(r) : 0;
}

const struct spri_transport spri_tcp = {
	.name = "tcp",
	.about = "kernel sockets over IPv4 and IPv6, on any network",
	.frame_bytes = SPRI_FRAME_BYTES,
	.caps = SPRI_CAP_CONN_KEYS | SPRI_CAP_REFUSALS | SPRI_CAP_LANDED,
	.probe = probe,
	.listen = spri_tcp_listen,
	.address = spri_tcp_address,
	.register_ = spri_tcp_register,
	.unregister = spri_tcp_unregister,
	.create = spri_tcp_create,
	.grant = spri_tcp_grant,
	.connect = spri_tcp_connect,
	.post = spri_tcp_post,
	.poll = spri_tcp_poll,
	.wait = spri_tcp_wait,
	.wake = spri_tcp_wake,
	.now = spri_tcp_now,
	.stats = spri_tcp_stats,
	.describe = spri_tcp_describe,
	.close = spri_tcp_close,
	.closed = spri_tcp_closed,
	.destroy = spri_tcp_destroy,
	.fini = spri_tcp_fini,
};
