/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What a tcp port, its guests and its connections consist of, and their limits. How they work
 * together is told in tcp.h.
 */
#ifndef SPRI_TCP_STATE_H
#define SPRI_TCP_STATE_H

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
#define TCP_GOODBYE_NS 1000000000ull	/* most time for an answer, a refusal, lingering */
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

/*
 * What leaves. Indices count up for ever; entry i is queue[i % TCP_QUEUE]; reported ≤ sent ≤
 * posted.
 */
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
	bool farewell; /* it answered our goodbye: it writes no more */
	bool linger;   /* LOST: the stream is kept until the peer has read why */
	uint64_t id;
	uint8_t peer[SPRI_PORT_ID_BYTES]; /* port id of the other end */
	uint8_t private_mine[SPRI_PRIVATE_BYTES], private_peers[SPRI_PRIVATE_BYTES];
	uint64_t deadline_ns; /* of the handshake; of goodbye, refusal, lingering; SPRI_NEVER */
	uint64_t left;	      /* CLOSING: bytes that the peer had not taken at the last look */
	uint64_t left_ns;     /* CLOSING: since when they are as many */
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

#endif
