/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What a verbs port, its devices and its connections consist of, and their limits. How they work
 * together is told in verbs.h.
 */
#ifndef SPRI_VERBS_STATE_H
#define SPRI_VERBS_STATE_H

#include "conn.h"
#include "transport.h"
#include "verbs_wire.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#define VERBS_DEVICES                                                                              \
	(SPRI_KEY_BYTES / 4)		  /* most devices of a port: a key holds an rkey for each */
#define VERBS_PLACES SPRI_VERBS_BLOB_MOST /* most addresses of a port */
#define VERBS_QUEUE 128	 /* posted writes of a connection without a reported SENT; a power of two */
#define VERBS_SENDS 272	 /* work requests of a send queue, where the device allows it */
#define VERBS_CONTROL 16 /* of these, those only messages and flushes may use */
#define VERBS_SEGMENTS 64  /* most work requests of one write */
#define VERBS_RECEIVES 256 /* of a receive queue, where the device allows it */
#define VERBS_RESERVE 16   /* of these, those not told to the peer: for messages */
#define VERBS_REPOST 16	   /* receives that are posted again together */
#define VERBS_SIGNAL_EVERY                                                                         \
	16 /* writes, of which one asks for a completion when many are under way */
#define VERBS_SIGNAL_BYTES (1u << 20) /* the same by bytes */
#define VERBS_INLINE 220  /* bytes copied into the work request, where the device allows it */
#define VERBS_BATCH 16	  /* completions taken at once */
#define VERBS_STRIKES 3	  /* failures after which an address is given up */
#define VERBS_PARKED 4096 /* most requests that wait for their connect() */
#define VERBS_LAZY 512 /* polls of which one asks the kernel for news, when nothing is expected */
#define VERBS_LINGER_NS                                                                            \
	200000000ull /* most time that the end of a connection waits to be explained */
#define VERBS_GOODBYE_NS 1000000000ull /* most time for goodbye and refusal */
#define VERBS_KEEPALIVE_NS                                                                         \
	5000000000ull		    /* silence after which the peer is asked for a sign of life */
#define VERBS_DOWN_NS 4000000000ull /* most time that a port may be down */
#define VERBS_NS_PER_BYTE 1000	    /* slowest link that does not count as stuck: 1 MB/s */

/* Intrusive list; a link that is in no list points to itself. */
struct verbs_link {
	struct verbs_link *next, *prev;
};

static inline void verbs_link_init(struct verbs_link *link)
{
	link->next = link->prev = link;
}
static inline bool verbs_linked(const struct verbs_link *link)
{
	return link->next != link;
}

static inline void verbs_unlink(struct verbs_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	verbs_link_init(link);
}

/* Appends to the list with this head. */
static inline void verbs_append(struct verbs_link *head, struct verbs_link *link)
{
	assert(!verbs_linked(link));
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* What an epoll event, or the context of an rdma_cm id, points to. */
struct verbs_source {
	enum {
		VERBS_CM,	   /* epoll: the channel of rdma_cm */
		VERBS_COMPLETIONS, /* epoll: a device's completion channel */
		VERBS_ASYNC,	   /* epoll: a device's own events */
		VERBS_TIMER,	   /* epoll */
		VERBS_LISTENER,	   /* rdma_cm */
		VERBS_GUEST,	   /* rdma_cm */
		VERBS_CONN,	   /* rdma_cm */
	} kind;
};

/* SPR_RDMA_*; -1: not set, what rdma_cm says is kept. */
struct verbs_settings {
	const char *devices; /* SPR_RDMA_DEVICE, or NULL */
	int gid;	     /* index in the port's table */
	int traffic_class, service_level;
	uint8_t timeout; /* 4.096 µs × 2^timeout until a packet is sent again */
	uint8_t retry;	 /* how often */
};

struct verbs_device {
	struct verbs_source completions, async; /* of the two descriptors below */
	struct verbs_port *port;
	unsigned index; /* in port->devices, and of its rkeys in keys */
	char name[64];
	struct ibv_context *context; /* its own: events of other ports' queues do not come here */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_device_attr attr;
	bool iwarp; /* no immediates; the active end sends first */
	bool soft;  /* rxe, which needs long timeouts */
	bool gone;  /* removed, or failed for good */
};

/* An address of ours, with a device behind it. */
struct verbs_place {
	struct verbs_source source; /* of the listener */
	struct rdma_cm_id *listener;
	struct verbs_device *device;
	uint8_t port; /* of the device */
	uint8_t mtu;  /* active, 1 (256) … 5 (4096) */
	uint32_t max_message;
	struct spri_verbs_address address;
	unsigned prefix; /* of the network it is in */
	unsigned turn;	 /* its device's place in the caller's list: lower ones are used before */
	uint64_t down_until_ns; /* the port is down, tolerated until then; SPRI_NEVER: up */
};

struct verbs_port {
	struct spri_port base;
	int epoll_fd;	     /* every descriptor below but wake_fd */
	int wake_fd;	     /* eventfd; only wait() reads it */
	int timer_fd;	     /* fires at armed_ns */
	uint64_t armed_ns;   /* not later than any deadline; SPRI_NEVER: none */
	bool timer_fired;    /* deadlines are to be looked at */
	uint64_t timeout_ns; /* as given to listen() */
	uint64_t tick_ns;    /* how often open connections are looked at */
	struct verbs_settings settings;
	uint8_t id[SPRI_VERBS_PORT_ID_BYTES];
	struct verbs_source cm_source, timer_source;
	struct rdma_event_channel *cm;
	struct verbs_device devices[VERBS_DEVICES];
	unsigned n_devices;
	struct verbs_place places[VERBS_PLACES];
	unsigned n_places;
	uint8_t order[VERBS_PLACES]; /* of places, by their turn: the first is used before others */
	struct verbs_link conns;     /* all connections (verbs_conn.all) */
	struct verbs_link guests;    /* all guests, oldest first (verbs_guest.all) */
	unsigned n_guests;
	unsigned n_regions;
	bool polling;	     /* inside poll(): sleepers are woken at its end */
	bool pending;	     /* a connection has work that no event will announce */
	bool attentive;	     /* something is under way of which the kernel has the news */
	unsigned lazy;	     /* polls since the kernel was asked */
	unsigned n_unarmed;  /* completion queues that will not announce the next completion */
	atomic_int busy;     /* 1: wait() must not sleep */
	atomic_int sleepers; /* wait()s under way */
	atomic_int drowsy;   /* somebody wants to sleep: poll() is to arm the completion queues */
	atomic_int news;     /* wait() saw that a descriptor is ready */
	struct spri_port_stats stats;
};

/* A connection request that has not found its connection. */
struct verbs_guest {
	struct verbs_source source;
	struct verbs_link all;
	struct rdma_cm_id *cm;
	struct verbs_place *place; /* where it came in */
	uint64_t deadline_ns;
	struct spri_verbs_hello hello;
};

struct verbs_region {
	struct spri_region base;
	struct ibv_mr *mr[VERBS_DEVICES]; /* one per device; NULL for no bytes */
};

/* A posted write, as far as SENT needs it. */
struct verbs_posted {
	uint64_t cookie;
	uint64_t bytes; /* that are lent; 0 when its work request has a copy */
	uint32_t end;	/* work requests posted when its last one was */
	bool copied;	/* the source was lent during post() only */
};

/* A pair of addresses to try. */
struct verbs_route {
	struct verbs_place *from;
	struct spri_verbs_address to;
	uint8_t strikes; /* VERBS_STRIKES: given up */
};

/* The active end's list of routes. */
struct verbs_dial {
	struct verbs_route routes[VERBS_PLACES * 2];
	unsigned n, at;	   /* `at` is being tried */
	uint64_t share_ns; /* deadline of this try; SPRI_NEVER: none of its own */
	int status;	   /* how the most telling try failed */
	char why[200];	   /* the same for people */
};

/*
 * What leaves. Counters go up for ever. Work requests: done ≤ signalled ≤ posted; queue:
 * reported ≤ sent ≤ posted.
 */
struct verbs_send {
	uint32_t wr_posted, wr_done, wr_signalled; /* signalled: the last one that asked */
	uint32_t depth, inline_bytes, max_gather;
	uint32_t since_signal; /* writes since then */
	uint64_t bytes_since;  /* the same in bytes */
	uint64_t bytes_out;    /* of writes that are not sent */
	uint32_t reported, sent, posted;
	uint32_t allowed, used; /* notifications: by the peer, by us */
	bool starved;		/* a post was put off for want of allowance */
	uint32_t owe;		/* messages that are to be sent: bit 1 << type */
	struct verbs_posted queue[VERBS_QUEUE];
};

/* What arrives. */
struct verbs_receive {
	uint32_t depth;		/* receives of the queue */
	uint32_t posted, taken; /* receives, ever */
	uint32_t notified; /* receives that notifications took, and that were posted again or not */
	uint32_t reposted; /* of these, those posted again */
	uint32_t told, step; /* what the peer was last allowed; how much more is worth a message */
};

/* What the last look of the timer found. */
struct verbs_look {
	uint32_t done, taken, allowed;
	uint64_t done_ns, life_ns, fed_ns; /* since when each is as it is */
};

struct verbs_conn {
	struct spri_conn base;
	struct verbs_source source;
	struct verbs_link all;
	enum spri_conn_state state;
	struct rdma_cm_id *cm;	   /* NULL: none */
	bool joined;		   /* rdma_cm connected the ids: the peer is told when we leave */
	struct verbs_place *place; /* ours; NULL before it is known */
	struct ibv_qp *qp;
	struct ibv_cq *cq; /* of both queues */
	bool armed;	   /* cq will announce the next completion */
	struct ibv_mr *mr; /* of buffers */
	uint8_t *buffers;  /* receives, then messages to send; whole pages */
	size_t buffer_bytes;
	bool cut;     /* rdma_cm says that the peer is gone; what arrived is still taken */
	bool broken;  /* the queue pair is in error; the same */
	bool refused; /* the device says that it refused what the peer wrote */
	bool tell_connected, tell_closed, tell_lost; /* events to report */
	bool peer_left;				     /* GOODBYE arrived */
	uint8_t peer_device;			     /* which rkey of the peer's keys */
	uint64_t token;
	uint8_t private_mine[SPRI_PRIVATE_BYTES], private_peers[SPRI_PRIVATE_BYTES];
	uint64_t deadline_ns; /* of the handshake; of goodbye, refusal; SPRI_NEVER */
	uint64_t linger_ns;   /* how long the end waits for what explains it; SPRI_NEVER */
	int status;	      /* why REFUSING or LOST */
	char label[32];
	struct spri_text text;
	struct verbs_dial dial;
	struct verbs_look look;
	struct verbs_send send;
	struct verbs_receive receive;
};

/* The caller's array while poll() fills it. */
struct verbs_events {
	struct spri_event *list;
	unsigned n, max;
};

static inline struct spri_event *verbs_emit(struct verbs_events *out, struct verbs_conn *c,
					    enum spri_event_kind kind)
{
	struct spri_event *e = &out->list[out->n++];

	assert(out->n <= out->max);
	/* not private_data, which only CONNECTED has: a completion's way is to be short */
	e->kind = kind;
	e->conn = &c->base;
	e->cookie = e->immediate = 0;
	e->status = 0;
	return e;
}

static inline struct verbs_port *verbs_port_of(const struct verbs_conn *c)
{
	return (struct verbs_port *)c->base.port;
}

/* Work requests whose end is not known. */
static inline uint32_t verbs_out(const struct verbs_conn *c)
{
	return c->send.wr_posted - c->send.wr_done;
}

/* A message of this type is to be sent. */
static inline void verbs_owe(struct verbs_conn *c, enum spri_verbs_message_type type)
{
	c->send.owe |= 1u << type;
}

#endif
