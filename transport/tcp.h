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
 * How work finds its way: every descriptor is in one epoll instance, edge-triggered but for the listeners. poll() collects
 * edges into flags (readable, writable) of the connections and puts these on the ready list; then it serves the ready list
 * once round, a bounded amount per connection. A connection stays ready while it has work that
 * no edge will announce: budget used up, event array full, events of its own to report. wait() sleeps on the epoll
 * descriptor without taking anything from it, and does not sleep at all while the ready list has entries (`busy`).
 *
 * Threads: only `busy`, `sleepers`, `epoll_fd` and `wake_fd` are touched by wait() and wake(); the rest belongs to the
 * caller's lock.
 */
#ifndef SPRI_TCP_H
#define SPRI_TCP_H

#include "conn.h"
#include "transport.h"
#include "wire.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#define TCP_QUEUE 128	 /* posted writes of a connection without a reported SENT; a power of two */
#define TCP_BUFFER 32768 /* receive buffer of a connection */
#define TCP_BUDGET (1u << 20) /* most bytes each way per connection and round of poll() */
#define TCP_VECTORS 64	      /* most pieces per sendmsg */
#define TCP_STREAM_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define TCP_EDGES 64			/* most edges collected per poll() */
#define TCP_HALF_OPEN 256		/* most streams whose hello is not whole */
#define TCP_PARKED 4096			/* most hellos that wait for their connect() */
#define TCP_ACCEPTS 64			/* most streams accepted per poll() */
#define TCP_STRIKES 3			/* streams that an address may end before it is given up */
#define TCP_GOODBYE_NS 1000000000ull	/* most time for goodbye, refusal and lingering */
#define TCP_HALF_OPEN_NS 10000000000ull /* most time for a hello to arrive */

/* Intrusive list; a link that is in no list points to itself. */
struct tcp_link {
	struct tcp_link *next, *prev;
};

static inline void tcp_link_init(struct tcp_link *link)
{
	link->next = link->prev = link;
}
static inline bool tcp_linked(const struct tcp_link *link)
{
	return link->next != link;
}

static inline void tcp_unlink(struct tcp_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	tcp_link_init(link);
}

/* Appends to the list with this head. */
static inline void tcp_append(struct tcp_link *head, struct tcp_link *link)
{
	assert(!tcp_linked(link));
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* What an epoll event points to. */
struct tcp_source {
	enum { TCP_LISTENER, TCP_TIMER, TCP_GUEST, TCP_CONN } kind;
	int fd; /* -1: none */
};

/* One listening socket. */
struct tcp_listener {
	struct tcp_source source;
	struct spri_wire_address address; /* where */
	unsigned prefix;		  /* of the network it is in */
	bool ready;			  /* somebody waits */
};

struct tcp_port {
	struct spri_port base;
	int epoll_fd;		 /* every descriptor below but wake_fd */
	int wake_fd;		 /* eventfd; only wait() reads it */
	struct tcp_source timer; /* timerfd, fires at armed_ns */
	uint64_t armed_ns;	 /* not later than any deadline; SPRI_NEVER: none */
	bool timer_fired;	 /* deadlines are to be looked at */
	uint64_t timeout_ns;	 /* as given to listen() */
	uint8_t id[SPRI_PORT_ID_BYTES];
	struct tcp_listener listeners[SPRI_BLOB_MOST];
	unsigned n_listeners;
	bool accept_ready;  /* a listener has somebody */
	bool accept_paused; /* listeners are silenced until resume_ns or room */
	uint64_t resume_ns;
	struct tcp_link conns;	/* all connections (tcp_conn.all) */
	struct tcp_link ready;	/* those with work (tcp_conn.ready) */
	struct tcp_link guests; /* all guests, oldest first (tcp_guest.all) */
	unsigned n_half_open;	/* guests that are not parked */
	unsigned n_parked;
	unsigned n_regions;
	bool guests_ready;   /* some guest has news */
	bool polling;	     /* inside poll(): sleepers are woken at its end */
	atomic_int busy;     /* 1: the ready list has entries; read by wait() */
	atomic_int sleepers; /* wait()s under way */
	struct spri_port_stats stats;
};

/* An incoming stream whose hello has not found its connection. */
struct tcp_guest {
	struct tcp_source source;
	struct tcp_link all;
	uint64_t born_ns, deadline_ns;
	bool ready;		 /* an edge came */
	bool parked;		 /* hello is whole and waits for its connect() */
	struct spri_hello hello; /* valid when parked */
	size_t got;		 /* bytes of it so far */
	uint8_t bytes[SPRI_HELLO_MOST];
};

struct tcp_region {
	struct spri_region base;
};

struct tcp_grant {
	uint8_t key[SPRI_KEY_BYTES];
	struct tcp_region *region; /* NULL: withdrawn, or never used */
};

/* A posted write. Destination, key and immediate are in the header already. */
struct tcp_post {
	uint8_t header[SPRI_FRAME_BYTES];
	struct iovec gather[SPRI_MAX_GATHER];
	unsigned n_gather;
	uint64_t bytes; /* header and payload */
	uint64_t cookie;
};

/* The active end's list of places to try. */
struct tcp_dial {
	struct spri_wire_address to[SPRI_BLOB_MOST]; /* nearest first */
	uint8_t strikes[SPRI_BLOB_MOST];	     /* TCP_STRIKES: given up */
	unsigned n, at;				     /* `at` is being tried */
	uint64_t share_ns; /* deadline of this try; SPRI_NEVER: none of its own */
	int status;	   /* how the most telling try failed */
	char why[160];	   /* the same for people */
};

/* What arrives. */
struct tcp_receive {
	uint32_t head, tail;	   /* buffered bytes */
	bool open;		   /* a WRITE's header is taken, its payload not whole */
	bool stalled;		   /* stopped for want of room for events */
	struct spri_frame frame;   /* when open */
	struct tcp_region *region; /* when open and left > 0: where it goes */
	uint8_t *to;
	uint64_t left; /* bytes of payload to come */
	uint8_t buffer[TCP_BUFFER];
};

/* What leaves. Indices count up for ever; entry i is queue[i % TCP_QUEUE]; reported ≤ sent ≤ posted. */
struct tcp_send {
	uint32_t reported, sent, posted;
	uint64_t offset;     /* bytes of entry `sent` that the kernel took */
	uint64_t blocked_ns; /* since when it takes nothing; SPRI_NEVER: it does, or has all */
	uint8_t tail[3 * SPRI_FRAME_BYTES]; /* frames that follow the queue */
	uint32_t tail_sent, tail_bytes;
	struct tcp_post queue[TCP_QUEUE];
};

struct tcp_conn {
	struct spri_conn base;
	struct tcp_source source; /* the stream */
	struct tcp_link all, ready;
	enum spri_conn_state state;
	bool readable, writable; /* as the edges say */
	bool ending;		 /* end or error announced: read until it is met */
	int send_error;		 /* errno of a failed send; what has arrived is still taken */
	bool tell_connected, tell_closed, tell_lost; /* events to report */
	bool peer_left;				     /* GOODBYE arrived */
	bool linger; /* LOST: the stream is kept until the peer has read why */
	uint64_t id;
	uint8_t peer[SPRI_PORT_ID_BYTES]; /* port id of the other end */
	uint8_t private_mine[SPRI_PRIVATE_BYTES], private_peers[SPRI_PRIVATE_BYTES];
	uint64_t deadline_ns; /* of the handshake; of goodbye, refusal, lingering; SPRI_NEVER */
	int status;	      /* why REFUSING or LOST */
	char label[32];
	struct spri_text text;
	struct tcp_grant *grants;
	unsigned n_grants, max_grants;
	struct tcp_dial dial;
	struct tcp_send send;
	struct tcp_receive receive;
};

/* The caller's array while poll() fills it. */
struct tcp_events {
	struct spri_event *list;
	unsigned n, max;
};

static inline struct spri_event *tcp_emit(struct tcp_events *out, struct tcp_conn *c,
					  enum spri_event_kind kind)
{
	struct spri_event *e = &out->list[out->n++];

	assert(out->n <= out->max);
	*e = (struct spri_event){.kind = kind, .conn = &c->base};
	return e;
}

static inline struct tcp_port *tcp_port_of(const struct tcp_conn *c)
{
	return (struct tcp_port *)c->base.port;
}
static inline bool tcp_unsent(const struct tcp_conn *c)
{
	return c->send.sent != c->send.posted || c->send.tail_sent != c->send.tail_bytes;
}

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
/* Puts a descriptor into the port's epoll (op: EPOLL_CTL_ADD, EPOLL_CTL_MOD). Returns 0, negative errno. */
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
/* Makes progress on one connection and reports. Returns true while it has work that no edge will announce. */
bool spri_tcp_serve(struct tcp_conn *c, struct tcp_events *out);
/* Acts on the connection's deadlines; returns the next. */
uint64_t spri_tcp_conn_expire(struct tcp_conn *c, uint64_t now);

/* ---- tcp_dial.c ---- */
/* Sorts the peer's addresses, nearest first, and tries the first. */
void spri_tcp_dial(struct tcp_conn *c, const struct spri_blob *blob);
/* The kernel has news of connect(). */
void spri_tcp_dialed(struct tcp_conn *c);
/* Reads the answer from the receive buffer. Returns false when more bytes are needed or the stream is gone. */
bool spri_tcp_take_answer(struct tcp_conn *c);
/* This address failed: `strikes` against it, then the next. `status` as for LOST; `format`: what was observed. */
void spri_tcp_dial_failed(struct tcp_conn *c, unsigned strikes, int status, const char *format, ...)
	SPRI_PRINTF(4, 5);
/* The whole handshake's deadline passed. */
void spri_tcp_dial_expired(struct tcp_conn *c);

/* ---- tcp_send.c ---- */
int spri_tcp_post(struct spri_conn *base, const struct spri_write *write);
/* Hands queued bytes to the kernel, at most TCP_BUDGET. Sets send_error on failure. */
void spri_tcp_send(struct tcp_conn *c);
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
int spri_tcp_register(struct spri_port *base, void *start, size_t bytes, unsigned access,
		      struct spri_region **out);
void spri_tcp_unregister(struct spri_region *base);
int spri_tcp_grant(struct spri_conn *base, struct spri_region *region, struct spri_remote *out);
/* Where a WRITE goes. Returns 0 (*to is set when length > 0) or an enum spri_refusal. */
uint32_t spri_tcp_check_write(const struct tcp_conn *c, const struct spri_frame *f,
			      struct tcp_region **region, uint8_t **to);

#endif
