/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * RDMA through libibverbs and librdmacm, on InfiniBand, RoCE and iWARP: the row of the table.
 * verbs.h says which file holds what.
 *
 * Failures: a device that refuses a write, a peer or port that goes away, a queue that does not
 * move: each loses the one connection (LOST, with a text). A device that fails loses all that are
 * on it.
 */
#include "verbs.h"
#include "rows.h"

#include <internal/clock.h>

#include <errno.h>
#include <unistd.h>

#define CM_DEVICE "/dev/infiniband/rdma_cm"

/* What can be told without opening anything. librdmacm is not asked before: it would print. */
static int look(struct spri_text *why)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (!list && errno != ENOSYS) {
		int r = spri_verbs_errno();

		spri_text_set(why, "the list of RDMA devices: %s", spr_strerror(r));
		return spri_trace(r);
	}
	if (list)
		ibv_free_device_list(list);
	if (n == 0) {
		spri_text_set(why, "this machine has no RDMA device");
		return SPR_EUNSUPPORTED;
	}
	if (access(CM_DEVICE, R_OK | W_OK) < 0) {
		spri_text_set(why, "%d RDMA device(s), but %s: %s", n, CM_DEVICE,
			      spr_strerror(-errno));
		return SPR_EUNSUPPORTED;
	}
	return 0;
}

static int probe(struct spri_text *why)
{
	struct spri_port_options options = {.timeout_ns = SPRI_NS_PER_S};
	struct spri_port *port = NULL;
	int r = look(why);

	if (r == 0)
		r = spri_verbs_listen(&options, &port, why);
	if (r == 0)
		spri_verbs_fini(port);
	return spri_trace(r);
}

static int listen_on(const struct spri_port_options *options, struct spri_port **out,
		     struct spri_text *text)
{
	int r = look(text);

	if (r == 0)
		r = spri_verbs_listen(options, out, text);
	if (r < 0)
		spri_text_prefix(text, "verbs");
	return spri_trace(r);
}

const struct spri_transport spri_verbs = {
	.name = "verbs",
	.about = "RDMA through libibverbs and librdmacm",
	/* As on RoCE, for each write that fits one packet: BTH, RETH, immediate, CRC. */
	.frame_bytes = 12 + 16 + 4 + 4,
	.caps = SPRI_CAP_DEVICE_MEMORY,
	.probe = probe,
	.listen = listen_on,
	.address = spri_verbs_address,
	.register_ = spri_verbs_register,
	.unregister = spri_verbs_unregister,
	.create = spri_verbs_create,
	.grant = spri_verbs_grant,
	.connect = spri_verbs_connect,
	.post = spri_verbs_post,
	.poll = spri_verbs_poll,
	.wait = spri_verbs_wait,
	.wake = spri_verbs_wake,
	.now = spri_verbs_now,
	.stats = spri_verbs_stats,
	.describe = spri_verbs_describe,
	.close = spri_verbs_close,
	.closed = spri_verbs_closed,
	.destroy = spri_verbs_destroy,
	.fini = spri_verbs_fini,
};
