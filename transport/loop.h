/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What the files of the loop transport share: loop.c (the row's slots), loop_conn.c (life of a
 * connection), loop_message.c (writes in flight), loop_fabric.c (places, links, the queue of what
 * happens next). Everything but wake() belongs to one thread.
 *
 * Nothing allocates when something happens: whatever can be queued in time (a node) or be reported
 * by poll() (a note) is embedded in the connection or message that it is about, and the queue has
 * room for all nodes that exist (spri_loop_reserve, when they are made).
 */
#ifndef SPRI_LOOP_H
#define SPRI_LOOP_H

#include "transport.h"

#include <internal/clock.h>
#include <stdatomic.h>

#define LOOP_QUEUE 64 /* writes of one connection without a polled SENT; then SPRI_AGAIN */

/* What can happen at a time. */
enum loop_node_kind {
	LOOP_TIMER,   /* conn->timer: a deadline passed */
	LOOP_REQUEST, /* conn->setup of the active end: its request reaches the passive place */
	LOOP_ACCEPT,  /* conn->setup of the active end: the answer reaches it */
	LOOP_BYE,     /* conn->bye: the peer's goodbye reaches it */
	LOOP_LOST,    /* conn->lost: the news that the connection is lost reach it */
	LOOP_MESSAGE, /* message->node */
};

/* Something that is queued for a time, at most once. Zeroed: not queued. */
struct loop_node {
	uint32_t at;  /* 1 + position in the queue; 0: not in it */
	uint8_t kind; /* enum loop_node_kind */
	bool through; /* has passed the receiving link: happens when it is due */
};

/* Something that poll() will report. */
enum loop_note_kind {
	LOOP_NOTE_CONNECTED,
	LOOP_NOTE_CLOSED,
	LOOP_NOTE_LOST,
	LOOP_NOTE_SENT,
	LOOP_NOTE_NOTIFY
};

struct loop_note {
	struct loop_note *next; /* in the port's list */
	uint8_t kind;		/* enum loop_note_kind; says what it is embedded in */
};

/*
 * A posted write, from post() until its notes were polled. Owned by the fabric's free list
 * otherwise.
 */
struct loop_message {
	struct loop_node node;
	struct loop_message *next; /* in from->out, or in the free list */
	struct loop_conn *from;	   /* valid in flight and while `sent` is queued */
	struct loop_conn *to;	   /* valid while `notify` is queued */
	uint64_t depart_ns;	   /* when its first byte leaves */
	uint64_t left_ns;	   /* when its last byte has left */
	/* when its connection gives up on it; SPRI_NEVER when it will arrive in time */
	uint64_t deadline_ns;
	size_t bytes; /* sum of the gather list */
	struct loop_note sent, notify;
	unsigned uses; /* LOOP_USE_*; 0: goes back to the free list */
	struct spri_write write;
};

enum { LOOP_USE_FLIGHT = 1, LOOP_USE_SENT = 2, LOOP_USE_NOTIFY = 4 };

struct loop_region {
	struct spri_region base;
	struct loop_region *next, **link; /* in the port's list */
	struct loop_grant *grants;	  /* that name it */
	size_t n_lent;			  /* pieces of writes in flight that lie in it */
};

struct loop_grant {
	uint8_t key[SPRI_KEY_BYTES];
	struct loop_region *region;
	struct loop_grant *next_conn, **link_conn;     /* in the connection's list */
	struct loop_grant *next_region, **link_region; /* in the region's list */
};

enum loop_state { LOOP_NEW, LOOP_CONNECTING, LOOP_OPEN, LOOP_CLOSING, LOOP_CLOSED, LOOP_GONE };

struct loop_conn {
	struct spri_conn base;
	struct loop_conn
		*peer; /* the other end, once the two have met and while both know each other */
	struct loop_conn *next, **link; /* in the port's list */
	struct loop_conn *chain;   /* in the fabric's table of ends that wait for their other end */
	struct loop_grant *grants; /* what the peer may write to */
	struct loop_message *out;  /* in flight, in the order of the posts */
	struct loop_message **out_end; /* where the next one is linked */
	uint64_t id;
	uint64_t
		/*
		 * when the last thing sent so far reaches the other place; later ones do not
		 * overtake
		 */
		reach_ns;
	const char *reason;	 /* why it is lost, static; NULL when it is not */
	char *text;		 /* label and reason, made by describe() */
	const char *news_reason; /* what `lost` brings, static */
	int news_status;
	int status; /* of LOST */
	struct loop_node timer, setup, bye, lost;
	struct loop_note note_connected, note_closed, note_lost;
	uint32_t peer_place, peer_generation; /* as the peer's blob says */
	uint16_t n_out;			      /* writes whose SENT was not polled */
	uint8_t state;			      /* enum loop_state; moved by loop_conn.c alone */
	bool active;
	bool waiting; /* is in the fabric's table */
	char label[32];
	uint8_t private_data
		[SPRI_PRIVATE_BYTES]; /* its own until the two ends meet, then the peer's */
};

#define LOOP_CONN_NODES 4 /* timer, setup, bye, lost */

struct loop_port {
	struct spri_port base;
	struct spri_fabric *fabric;
	uint32_t place;
	uint32_t generation; /* tells successive ports of one place apart */
	uint64_t timeout_ns;
	struct loop_note *notes, **notes_end; /* what poll() reports next */
	struct loop_conn *conns;
	struct loop_region *regions;
	struct spri_port_stats stats;
	atomic_bool woken; /* by wake(), until a wait() ended */
};

struct loop_delay {
	uint32_t to;
	uint64_t extra_ns;
	struct loop_delay *next;
};

struct loop_place {
	struct loop_port *port; /* NULL: nobody listens */
	uint64_t egress_ns;	/* when the sending side of its link is free */
	uint64_t ingress_ns;	/* when the receiving side is */
	struct loop_delay *delays;
	uint32_t generation;
	int broken; /* 0, or why poll() fails from now on */
	bool killed;
};

/* One line of the queue. */
struct loop_entry {
	uint64_t time_ns;
	uint64_t seq; /* order of equal times: first queued, first served */
	struct loop_node *node;
};

struct spri_fabric {
	struct spri_fabric_options options;
	uint64_t now_ns;
	uint64_t seq;	   /* of the next entry */
	uint64_t n_jitter; /* jitters drawn */
	uint64_t n_keys;   /* keys drawn */
	struct loop_place *places;
	struct loop_entry *queue; /* a binary heap, the earliest at 0 */
	size_t n_queue, queue_max;
	size_t n_nodes;		  /* that exist; at most queue_max */
	struct loop_conn **table; /* buckets of ends that wait for their other end */
	size_t n_buckets;	  /* a power of two */
	size_t n_waiting;
	struct loop_message *free; /* messages for reuse */
	spri_fabric_wait_fn wait;
	void *wait_arg;
	spri_fabric_ready_fn on_ready; /* NULL: nobody */
	void *on_ready_arg;
};

static inline struct loop_port *spri_loop_port(const struct loop_conn *conn)
{
	return spri_container_of(conn->base.port, struct loop_port, base);
}

static inline uint64_t spri_loop_add(uint64_t a, uint64_t b)
{
	return a > SPRI_NEVER - b ? SPRI_NEVER : a + b;
}

/* ---- loop_fabric.c ---- */

/* Makes room in the queue for n more nodes to exist. Returns 0 or -ENOMEM. */
int spri_loop_reserve(struct spri_fabric *fabric, size_t n) SPRI_MUST;
/* Queues a node, or moves it when it is queued. A time of SPRI_NEVER takes it out. */
void spri_loop_schedule(struct spri_fabric *fabric, struct loop_node *node,
			enum loop_node_kind kind, uint64_t time_ns);
void spri_loop_cancel(struct spri_fabric *fabric, struct loop_node *node);
/* When a queued node is due. */
uint64_t spri_loop_due(const struct spri_fabric *fabric, const struct loop_node *node);

struct loop_flight {
	uint64_t depart_ns, left_ns, reach_ns;
};

/* Sends so many bytes from the connection's place to its peer's: takes the link's time. */
struct loop_flight spri_loop_send(struct loop_conn *conn, size_t bytes);
/* The time that so many bytes take on a link. */
uint64_t spri_loop_duration(const struct spri_fabric *fabric, size_t bytes);

/* ---- loop_conn.c ---- */

/* Frees a connection with all that is queued for it; the other end hears of it. */
void spri_loop_conn_free(struct loop_conn *conn);
/* Starts connecting; id, active, label, peer and private data are in place. */
void spri_loop_conn_start(struct loop_conn *conn);
void spri_loop_conn_close(struct loop_conn *conn);
/*
 * Fails it: LOST with the status and text; the other end hears peer_reason, with SPR_EACCESS or
 * -ECONNRESET.
 */
void spri_loop_conn_lose(struct loop_conn *conn, int status, const char *reason,
			 const char *peer_reason);
/* Its last write in flight has arrived. */
void spri_loop_conn_drained(struct loop_conn *conn);
/* Queues a note for poll(). */
void spri_loop_note(struct loop_port *port, struct loop_note *note, enum loop_note_kind kind);
/* Was its place killed? */
bool spri_loop_killed(const struct loop_conn *conn);
/* A node is due. */
void spri_loop_happen(struct spri_fabric *fabric, struct loop_node *node);
/* The connection's place was killed just now. */
void spri_loop_conn_killed(struct loop_conn *conn);

/* ---- loop_message.c ---- */

/*
 * Takes a message (from the free list or the heap), linked to nothing; NULL when there is no
 * memory.
 */
struct loop_message *spri_loop_message_get(struct spri_fabric *fabric) SPRI_MUST;
/* Ends one use (LOOP_USE_*). */
void spri_loop_message_put(struct spri_fabric *fabric, struct loop_message *message, unsigned use);
/* Puts a filled message on its way. */
void spri_loop_message_send(struct loop_conn *conn, struct loop_message *message);
/* It has arrived at the other place. */
void spri_loop_message_arrived(struct spri_fabric *fabric, struct loop_message *message);
/* Takes the messages from *at (a link of conn->out) on out of flight: they will not arrive. */
void spri_loop_messages_drop(struct loop_conn *conn, struct loop_message **at);

/* ---- loop.c ---- */

void spri_loop_grant_free(struct loop_grant *grant);
/* The port of a place with all that it holds. */
void spri_loop_port_free(struct loop_port *port);

#endif
