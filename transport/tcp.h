/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the files of tcp share. Private to transport/tcp*.c and their tests.
 *
 *   tcp.c           the row of the table, probe
 *   tcp_port.c      listen, address, poll, wait, wake, fini
 *   tcp_timer.c     deadlines: one timer descriptor for the whole port
 *   tcp_guest.c     incoming streams until their hello has found its connection
 *   tcp_conn.c      create, connect, the passive handshake, close, loss, destroy
 *   tcp_dial.c      the active handshake, over the peer's addresses
 *   tcp_send.c      the queue of posted writes; what follows it (goodbye, refusal)
 *   tcp_receive.c   bytes into frames, frames into memory and events
 *   tcp_memory.c    regions and grants
 *
 * How work finds its way: every descriptor is in one epoll instance, edge-triggered but for the
 * listeners. poll() collects edges into flags (readable, writable) of the connections and puts
 * these on the ready list; then it serves the ready list once round, a bounded amount per
 * connection. A connection stays ready while it has work that no edge will announce: budget used
 * up, event array full, events of its own to report. wait() sleeps on the epoll descriptor without
 * taking anything from it, and does not sleep at all while the ready list has entries (`busy`).
 *
 * Threads: only `busy`, `sleepers`, `epoll_fd` and `wake_fd` are touched by wait() and wake(); the
 * rest belongs to the caller's lock.
 */
#ifndef SPRI_TCP_H
#define SPRI_TCP_H

#include "tcp_state.h"

/* ---- tcp_port.c ---- */
int spri_tcp_listen(const struct spri_port_options *options, struct spri_port **out,
		    struct spri_text *text);
size_t spri_tcp_address(struct spri_port *base, uint8_t *blob);
int spri_tcp_poll(struct spri_port *base, struct spri_event *events, unsigned max);
int spri_tcp_wait(struct spri_port *base, uint64_t deadline_ns);
void spri_tcp_wake(struct spri_port *base);
uint64_t spri_tcp_now(struct spri_port *base);
void spri_tcp_stats(struct spri_port *base, struct spri_port_stats *out);
void spri_tcp_fini(struct spri_port *base);
/*
 * Puts a descriptor into the port's epoll (op: EPOLL_CTL_ADD, EPOLL_CTL_MOD). Returns 0, negative
 * errno.
 */
int spri_tcp_watch(struct tcp_port *p, struct tcp_source *source, int op,
		   uint32_t events) SPRI_MUST;
/* Takes a descriptor out (a copy may live on in a child process) and closes it. */
void spri_tcp_drop(struct tcp_port *p, struct tcp_source *source);
/* The connection has work for poll(). */
void spri_tcp_ready(struct tcp_conn *c);
/* Stops listening to newcomers until then, or until there is room. */
void spri_tcp_pause(struct tcp_port *p, uint64_t until_ns);
void spri_tcp_resume(struct tcp_port *p);
/* Options of a stream. Failures are of no consequence: each is an improvement, not a need. */
void spri_tcp_tune(struct tcp_port *p, int fd);

/* ---- tcp_timer.c ---- */
/* t + add, or SPRI_NEVER. */
uint64_t spri_tcp_after(uint64_t t, uint64_t add);
/* There is a deadline at `at_ns`. */
void spri_tcp_arm(struct tcp_port *p, uint64_t at_ns);
/* Acts on every deadline that has passed, and arms the timer for the next. */
void spri_tcp_expire(struct tcp_port *p);

/* ---- tcp_guest.c ---- */
void spri_tcp_accept(struct tcp_port *p);
void spri_tcp_guests_serve(struct tcp_port *p);
/* Drops guests whose time is up; returns the next deadline. */
uint64_t spri_tcp_guests_expire(struct tcp_port *p, uint64_t now);
/* Gives the connection the parked stream that asks for it, if there is one. */
void spri_tcp_guest_match(struct tcp_conn *c);
void spri_tcp_guest_destroy(struct tcp_port *p, struct tcp_guest *g);

/* ---- tcp_conn.c ---- */
int spri_tcp_create(struct spri_port *base, void *user, struct spri_conn **out);
int spri_tcp_connect(struct spri_conn *base, const struct spri_connect *args);
const char *spri_tcp_describe(struct spri_conn *base);
void spri_tcp_close(struct spri_conn *base);
bool spri_tcp_closed(struct spri_conn *base);
void spri_tcp_destroy(struct spri_conn *base);
/* Takes the guest's stream over, answers it, frees the guest. */
void spri_tcp_adopt(struct tcp_conn *c, struct tcp_guest *g);
/* Forgets the stream and what was buffered of it. */
void spri_tcp_hang_up(struct tcp_conn *c);
/* The connection failed: LOST will be reported, with this text behind the label. */
void spri_tcp_lose(struct tcp_conn *c, int status, const char *format, ...) SPRI_PRINTF(3, 4);
/* The stream ended (error 0) or failed (errno). */
void spri_tcp_stream_ended(struct tcp_conn *c, int error);
/* Refuses what the peer sent: says why, then LOST with `status`. */
void spri_tcp_refuse(struct tcp_conn *c, int status, uint32_t reason);
/* The queue and its tail are with the kernel: what that means in this state. */
void spri_tcp_all_sent(struct tcp_conn *c);
/* The handshake is over. */
void spri_tcp_up(struct tcp_conn *c, const uint8_t *private_data);
/* GOODBYE or FAREWELL arrived. */
void spri_tcp_peer_left(struct tcp_conn *c);
void spri_tcp_farewell(struct tcp_conn *c);
/*
 * Makes progress on one connection and reports. Returns true while it has work that no edge will
 * announce.
 */
bool spri_tcp_serve(struct tcp_conn *c, struct tcp_events *out);
/* Acts on the connection's deadlines; returns the next. */
uint64_t spri_tcp_conn_expire(struct tcp_conn *c, uint64_t now);

/* ---- tcp_dial.c ---- */
/* Sorts the peer's addresses, nearest first, and tries the first. */
void spri_tcp_dial(struct tcp_conn *c, const struct spri_blob *blob);
/* The kernel has news of connect(). */
void spri_tcp_dialed(struct tcp_conn *c);
/*
 * Reads the answer from the receive buffer. Returns false when more bytes are needed or the stream
 * is gone.
 */
bool spri_tcp_take_answer(struct tcp_conn *c);
/*
 * This address failed: `strikes` against it, then the next. `status` as for LOST; `format`: what
 * was observed.
 */
void spri_tcp_dial_failed(struct tcp_conn *c, unsigned strikes, int status, const char *format, ...)
	SPRI_PRINTF(4, 5);
/* The whole handshake's deadline passed. */
void spri_tcp_dial_expired(struct tcp_conn *c);

/* ---- tcp_send.c ---- */
int spri_tcp_post(struct spri_conn *base, const struct spri_write *write);
/* Hands queued bytes to the kernel, at most TCP_BUDGET. Sets send_error on failure. */
void spri_tcp_send(struct tcp_conn *c);
/* Bytes that the peer's kernel does not have yet: ours, and those our kernel keeps. */
uint64_t spri_tcp_left(const struct tcp_conn *c);
/* Adds a frame that follows the queue. */
void spri_tcp_send_tail(struct tcp_conn *c, enum spri_frame_type type, uint32_t immediate);
/* Sends a message of the handshake, whole or not at all: 0, negative errno. */
int spri_tcp_send_now(struct tcp_port *p, int fd, const void *bytes, size_t n) SPRI_MUST;

/* ---- tcp_receive.c ---- */
/* Reads at most TCP_BUDGET bytes, as long as there is room for events. */
void spri_tcp_receive(struct tcp_conn *c, struct tcp_events *out);
/* Frames that are buffered already. */
void spri_tcp_parse(struct tcp_conn *c, struct tcp_events *out);
/* Reads and forgets. */
void spri_tcp_discard(struct tcp_conn *c);

/* ---- tcp_memory.c ---- */
int spri_tcp_register(struct spri_port *base, const struct spri_memory *memory,
		      struct spri_region **out, struct spri_text *text);
void spri_tcp_unregister(struct spri_region *base);
int spri_tcp_grant(struct spri_conn *base, struct spri_region *region, struct spri_remote *out);
/* Where a WRITE goes. Returns 0 (*to is set when length > 0) or an enum spri_refusal. */
uint32_t spri_tcp_check_write(const struct tcp_conn *c, const struct spri_frame *f,
			      struct tcp_region **region, uint8_t **to);

#endif
