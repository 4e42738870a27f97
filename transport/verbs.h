/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * One-sided writes through libibverbs and librdmacm: the parts and how they work together.
 *
 *   verbs.c          the row; can this machine use it?
 *   verbs_choose.c   SPR_RDMA_*: settings, which devices
 *   verbs_device.c   devices and addresses of a port
 *   verbs_port.c     listen, poll, wait, wake
 *   verbs_news.c     what the kernel has to say: device events, timer
 *   verbs_conn.c     the life of a connection: failure, close, deadlines
 *   verbs_dial.c     active end: from addresses to a connected queue pair
 *   verbs_connect.c  rdma_cm's events, passive end, requests that wait
 *   verbs_qp.c       queue pairs, their states and buffers
 *   verbs_post.c     what leaves: writes, signals, messages
 *   verbs_receive.c  what arrives: completions into events, receive credits
 *   verbs_memory.c   regions and grants
 *   verbs_error.c    the error styles of libibverbs, completions and limits in words
 *   verbs_wire.c     bytes
 *
 * How work finds its way: each connection has one completion queue for both directions; poll()
 * takes completions from all of them without a system call. Everything else comes by descriptors
 * in one epoll instance (rdma_cm, device events, completion channels, timer), which poll() asks
 * when something is under way, and now and then.
 *
 * Sleeping: a completion queue announces one completion after it was armed. A caller that spins
 * never pays for that: wait() finds `busy` (not all queues armed), sets `drowsy`, and returns. The
 * next poll() that finds nothing arms all, looks once more (a completion may have come in between),
 * and clears `busy`: then wait() sleeps.
 *
 * Receives and credits: every notification takes a posted receive at the peer, on every kind of
 * device. An end tells the peer how many notifications it may send, all told (hello, then CREDIT),
 * and tells more when a quarter was used. VERBS_RESERVE receives are not told, for messages: at
 * most 4 CREDITs that the other end has not taken, CONFIRM, GOODBYE, FAREWELL and REFUSED. So no
 * receive queue ever runs dry.
 *
 * Signals: a write asks for a completion when none that asked is under way, and every
 * VERBS_SIGNAL_EVERY writes or VERBS_SIGNAL_BYTES bytes; a completion ends all earlier writes.
 * When the last that asked is done and others are not, a write of no bytes asks for them. A write
 * whose bytes are in its work request is SENT when it is posted, and asks only for its turn: what
 * became of the last ones is asked when the queue is full, the connection ends, or the timer looks.
 *
 * Threads: only the atomics, `epoll_fd` and `wake_fd` are touched by wait() and wake(); the rest
 * belongs to the caller's lock.
 */
#ifndef SPRI_VERBS_H
#define SPRI_VERBS_H

#include "verbs_state.h"

/* ---- verbs_choose.c ---- */
/* Reads SPR_RDMA_*. Returns 0, SPR_EENVIRONMENT with a text. */
int spri_verbs_settings(struct verbs_settings *out, struct spri_text *text) SPRI_MUST;
/*
 * Does a list of devices ("mlx5_0:1,mlx5_1", a leading ^ excludes; NULL: all) allow this one?
 * The list is one that spri_verbs_settings() accepted.
 */
bool spri_verbs_allowed(const char *list, const char *device, unsigned port);
/* The device's place in a list of names, after all of them when it is not there; no list: 0. */
unsigned spri_verbs_turn(const char *list, const char *device);
/* Is it such a list? Returns 0 or SPR_EENVIRONMENT with a text. */
int spri_verbs_check_list(const char *list, struct spri_text *text) SPRI_MUST;

/* ---- verbs_device.c ---- */
/*
 * Opens the devices behind our addresses and listens there. Returns 0; SPR_EUNSUPPORTED,
 * SPR_EENVIRONMENT, negative errno with a text. What was opened is closed by spri_verbs_shut().
 */
int spri_verbs_open_places(struct verbs_port *p, const struct spri_port_options *options,
			   struct spri_text *text) SPRI_MUST;
void spri_verbs_shut(struct verbs_port *p);
/* Which of our places a request came in by or a route goes out by; NULL: none. */
struct verbs_place *spri_verbs_place(struct verbs_port *p, const struct rdma_cm_id *cm);
/* An address as the sockaddr that rdma_cm wants. */
void spri_verbs_sockaddr(const struct spri_verbs_address *a, uint16_t port,
			 struct sockaddr_storage *out);

/* ---- verbs_port.c ---- */
int spri_verbs_listen(const struct spri_port_options *options, struct spri_port **out,
		      struct spri_text *text);
size_t spri_verbs_address(struct spri_port *base, uint8_t *blob);
int spri_verbs_poll(struct spri_port *base, struct spri_event *events, unsigned max);
int spri_verbs_wait(struct spri_port *base, uint64_t deadline_ns);
void spri_verbs_wake(struct spri_port *base);
uint64_t spri_verbs_now(struct spri_port *base);
void spri_verbs_stats(struct spri_port *base, struct spri_port_stats *out);
void spri_verbs_fini(struct spri_port *base);
/* Puts a descriptor into the port's epoll. Returns 0, negative errno. */
int spri_verbs_watch(struct verbs_port *p, int fd, struct verbs_source *source) SPRI_MUST;
/* There is work for poll() that no descriptor announces. */
void spri_verbs_ready(struct verbs_port *p);

/* ---- verbs_news.c ---- */
/* Asks every descriptor once and acts on what it says. Returns 0, negative errno. */
int spri_verbs_news(struct verbs_port *p) SPRI_MUST;
/* t + add, or SPRI_NEVER. */
uint64_t spri_verbs_after(uint64_t t, uint64_t add);
/* There is a deadline at `at_ns`. */
void spri_verbs_arm(struct verbs_port *p, uint64_t at_ns);
/* Acts on every deadline that has passed, and arms the timer for the next. */
void spri_verbs_expire(struct verbs_port *p);

/* ---- verbs_conn.c ---- */
int spri_verbs_create(struct spri_port *base, void *user, struct spri_conn **out);
int spri_verbs_connect(struct spri_conn *base, const struct spri_connect *args);
const char *spri_verbs_describe(struct spri_conn *base);
void spri_verbs_close(struct spri_conn *base);
bool spri_verbs_closed(struct spri_conn *base);
void spri_verbs_destroy(struct spri_conn *base);
/* Gives up rdma_cm's id and the queue pair; the peer is told if it was connected. */
void spri_verbs_hang_up(struct verbs_conn *c);
/* The connection failed: LOST will be reported, with this text behind the label. */
void spri_verbs_lose(struct verbs_conn *c, int status, const char *format, ...) SPRI_PRINTF(3, 4);
/* A write that no device may see: the peer is told, then LOST with SPR_EACCESS. */
void spri_verbs_refuse(struct verbs_conn *c, const char *why);
/* The handshake is over. */
void spri_verbs_up(struct verbs_conn *c);
/* A message arrived. */
void spri_verbs_on_message(struct verbs_conn *c, const struct spri_verbs_message *m);
/* Everything posted, messages too, has its completion. */
void spri_verbs_all_done(struct verbs_conn *c);
/* Nothing more can arrive: rdma_cm or the queue pair said so, and the completion queue is empty. */
void spri_verbs_ended(struct verbs_conn *c);
/*
 * Makes progress on one connection and reports. `wc` has room for VERBS_BATCH completions, of which
 * n were taken already. Returns true while it has work that nothing will announce.
 */
bool spri_verbs_serve(struct verbs_conn *c, struct ibv_wc *wc, int n, struct verbs_events *out);
/* Acts on the connection's deadlines; returns the next. */
uint64_t spri_verbs_conn_expire(struct verbs_conn *c, uint64_t now);

/* ---- verbs_dial.c ---- */
/* Lists the routes to the peer's addresses, nearest first, and tries the first. */
void spri_verbs_dial(struct verbs_conn *c, const struct spri_verbs_blob *blob);
/* Tries the route at `at`, or the first after it that can be tried at all. State: DIALING. */
void spri_verbs_dial_try(struct verbs_conn *c);
/* rdma_cm resolved the address, then the route. */
void spri_verbs_dial_resolved(struct verbs_conn *c, bool route);
/* The peer accepted, with this private data. */
void spri_verbs_dial_accepted(struct verbs_conn *c, const void *private_data, size_t n);
/* `strikes` against this route, then the next. `format`: what was observed. */
void spri_verbs_dial_failed(struct verbs_conn *c, unsigned strikes, int status, const char *format,
			    ...) SPRI_PRINTF(4, 5);
/* The whole handshake's deadline passed. */
void spri_verbs_dial_expired(struct verbs_conn *c);

/* ---- verbs_connect.c ---- */
/* Takes all events of rdma_cm. Returns 0, negative errno when the channel is broken. */
int spri_verbs_cm_events(struct verbs_port *p) SPRI_MUST;
/* Gives the connection the request that waits for it, if there is one. */
void spri_verbs_match(struct verbs_conn *c);
void spri_verbs_guest_destroy(struct verbs_port *p, struct verbs_guest *g);
/* Turns down requests whose time is up; returns the next deadline. */
uint64_t spri_verbs_guests_expire(struct verbs_port *p, uint64_t now);
/* What this end says in a hello. */
void spri_verbs_hello(const struct verbs_conn *c, uint8_t out[SPRI_VERBS_HELLO_BYTES]);

/* ---- verbs_qp.c ---- */
/* Makes buffers, completion queue and queue pair at c->place; receives are posted. 0, negative. */
int spri_verbs_qp_create(struct verbs_conn *c) SPRI_MUST;
/*
 * Readies the queue pair to receive and send, with what rdma_cm knows of the path and the peer's
 * MTU. Not for iWARP, where the kernel does it.
 */
int spri_verbs_qp_ready(struct verbs_conn *c, uint8_t peer_mtu) SPRI_MUST;
/* Stops the device's work on it: nothing is read or written any more once its queue is empty. */
void spri_verbs_qp_stop(struct verbs_conn *c);
/* True when the device put it into error by itself. */
bool spri_verbs_qp_failed(const struct verbs_conn *c);
void spri_verbs_qp_destroy(struct verbs_conn *c);

/* ---- verbs_post.c ---- */
int spri_verbs_post(struct spri_conn *base, const struct spri_write *write);
/* Sends owed messages and signals as far as the queue has room. */
void spri_verbs_push(struct verbs_conn *c);
/* Posts a write of no bytes that asks for a completion. */
void spri_verbs_flush(struct verbs_conn *c);
/* True while a message is owed or a work request has no completion. */
bool spri_verbs_unsent(const struct verbs_conn *c);

/* A completion was asked for and has not come. */
static inline bool verbs_signal_under_way(const struct verbs_send *s)
{
	return (int32_t)(s->wr_signalled - s->wr_done) > 0;
}

/*
 * Must somebody be told now that what was posted is done? Not of copies, as long as the connection
 * is just open: they were SENT when they were posted.
 */
static inline bool verbs_unasked(const struct verbs_conn *c)
{
	return verbs_out(c) > 0 && !verbs_signal_under_way(&c->send) &&
	       (c->send.sent != c->send.posted || c->state != SPRI_CONN_UP || c->cut);
}

/* Open, with nothing to say or to do: only a completion can change that. */
static inline bool verbs_at_rest(const struct verbs_conn *c)
{
	const struct verbs_send *s = &c->send;

	return c->state == SPRI_CONN_UP && !c->cut && !c->broken && !c->tell_connected &&
	       !c->tell_closed && !c->tell_lost && !s->owe && s->reported == s->sent &&
	       (s->sent == s->posted || verbs_signal_under_way(s));
}

/* ---- verbs_receive.c ---- */
/* How many completions may be taken at once: each may become an event. */
static inline int verbs_room(const struct verbs_events *out)
{
	return out->max - out->n < VERBS_BATCH ? (int)(out->max - out->n) : VERBS_BATCH;
}

/*
 * Acts on n completions (0: none were taken yet), then on more, as long as there is room for
 * events.
 * Returns true when there may be more.
 */
bool spri_verbs_take(struct verbs_conn *c, struct ibv_wc *wc, int n, struct verbs_events *out);
/* Posts receives that were taken. Returns 0, negative errno. */
int spri_verbs_replenish(struct verbs_conn *c) SPRI_MUST;

/* ---- verbs_memory.c ---- */
/* By dma-buf or by address, with one device. NULL: errno. */
struct ibv_mr *spri_verbs_reg_mr(struct ibv_pd *pd, const struct spri_memory *memory);
int spri_verbs_register(struct spri_port *base, const struct spri_memory *memory,
			struct spri_region **out, struct spri_text *text);
void spri_verbs_unregister(struct spri_region *base);
int spri_verbs_grant(struct spri_conn *base, struct spri_region *region, struct spri_remote *out);

/* ---- verbs_error.c ---- */
/* A function that returned NULL, or -1: its errno, negative. Never 0. */
int spri_verbs_errno(void);
/* A function that returns 0 or an errno value (or, in some providers, -1 or a negative one). */
int spri_verbs_value(int r);
/* What a work completion's status means to the connection: negative. */
int spri_verbs_wc_status(enum ibv_wc_status status);
/* "remote access error". Static. */
const char *spri_verbs_wc_text(enum ibv_wc_status status);
/* Writes why memory could not be registered: what was asked, errno, and the limits as they are. */
void spri_verbs_limits(int error, const char *device, size_t bytes, struct spri_text *out);

#endif
