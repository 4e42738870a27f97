/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The transport contract: registered memory, one-sided writes, completions. It knows peers,
 * buffers and bytes; no ranks, dtypes or algorithms. One table of implementations (transport.c),
 * one conformance suite over all rows (tests/transport/test_conformance.c).
 *
 * The happy path of two ends A and B:
 *
 *   1. both: listen() makes a port; address() gives a blob that tells a peer how to reach it; the
 *      blobs travel by a way of the caller's (bootstrap).
 *   2. both: create() a connection object; grant() it a region, which gives the remote key that
 *      is valid on this one connection; connect() with the peer's blob, an id both know, and up
 *      to SPRI_PRIVATE_BYTES of private data (the key, say). poll() reports CONNECTED with the
 *      peer's private data.
 *   3. A: post() writes a gather list to B's memory, optionally with a 32-bit immediate.
 *      A's poll() reports SENT when the source may be used again; B's poll() reports NOTIFY.
 *   4. close() says goodbye; poll() reports CLOSED at the other end. destroy() frees.
 *
 * Promises:
 *   - Nothing blocks, but wait(), which has a deadline.
 *   - NOTIFYs of one connection arrive in the order of the posts, each after every byte of its
 *     own and of all earlier writes on that connection is visible to the thread that polled it.
 *     Nothing is said about bytes not notified.
 *   - SENTs of one connection arrive in the order of the posts.
 *   - A write is checked at the receiving side, for key, connection, bounds and permission,
 *     before a byte is placed. A refused write loses the connection at both ends: LOST with
 *     SPR_EACCESS. Where a device checks (verbs), this is what it enforces: `caps` of the row.
 *   - Every failure ends in LOST (once per connection), with a text that describe() gives. All
 *     posts that had no SENT by then will have none. A peer that dies, or does not take data for
 *     the timeout, is such a failure.
 *
 * Threads: calls on one port and its connections are serialised by the caller (runtime: the
 * context's lock), but for wait() and wake(), which may run beside any other call.
 */
#ifndef SPRI_TRANSPORT_H
#define SPRI_TRANSPORT_H

#include <internal/compiler.h>
#include <internal/error.h>

#include "fabric.h"  /* loop: what joins its ports */
#include "listing.h" /* what there is, and how a peer would be reached */
#include "region.h"  /* memory */

#define SPRI_PRIVATE_BYTES 40  /* rdma_cm carries 56 in every port space; verbs needs 16 of them */
#define SPRI_ADDRESS_BYTES 512 /* most bytes of an address blob */
#define SPRI_KEY_BYTES 16
#define SPRI_MAX_GATHER 8

struct spri_transport;

/* The base of every port; implementations put it first. */
struct spri_port {
	const struct spri_transport *ops; /* the row it was made by */
};

/* The base of every connection; implementations put it first. */
struct spri_conn {
	struct spri_port *port; /* where it lives */
	void *user;		/* the caller's, handed back in events */
};

/* Where a peer may write: told to it by the caller. */
struct spri_remote {
	uint64_t address;	     /* of the region's first byte, in the terms of the transport */
	uint8_t key[SPRI_KEY_BYTES]; /* valid on one connection */
};

/* A piece of source memory. Lent from post() until SENT or LOST. */
struct spri_gather {
	const void *base;
	size_t bytes;
	struct spri_region *region; /* holds [base, base + bytes); may be NULL when bytes is 0 */
};

struct spri_write {
	struct spri_gather gather[SPRI_MAX_GATHER];
	unsigned n_gather; /* 0: no bytes, only the notification */
	uint64_t address;  /* destination: the remote's address + offset */
	uint8_t key[SPRI_KEY_BYTES];
	bool notify; /* an immediate goes with it */
	uint32_t immediate;
	uint64_t cookie; /* comes back in SENT */
};

enum spri_event_kind {
	SPRI_EVENT_CONNECTED = 1, /* the peer agreed; private_data is its */
	SPRI_EVENT_SENT,   /* the source of write `cookie` may be used again (not: has arrived) */
	SPRI_EVENT_NOTIFY, /* a write with `immediate` is in place */
	SPRI_EVENT_CLOSED, /* the peer closed; what it posted before was notified before */
	SPRI_EVENT_LOST,   /* the connection failed, also during connect; `status` says how */
};

struct spri_event {
	enum spri_event_kind kind;
	struct spri_conn *conn;
	uint64_t cookie;			  /* SENT */
	uint32_t immediate;			  /* NOTIFY */
	int status;				  /* LOST: negative */
	uint8_t private_data[SPRI_PRIVATE_BYTES]; /* CONNECTED */
};

struct spri_port_options {
	/*
	 * deadline of connect, of each write, of goodbye (1 s when the peer has all but answers
	 * not)
	 */
	uint64_t timeout_ns;
	const char *interfaces; /* tcp: as SPR_TCP_IF; NULL or "": all. Borrowed during listen() */
	/*
	 * verbs: devices to use before others, the best first, with commas; NULL or "": all alike.
	 * Borrowed during listen()
	 */
	const char *devices;
	struct spri_fabric *fabric; /* loop: where the port lives. Outlives the port */
	uint32_t place;		    /* loop: which place of the fabric */
};

struct spri_connect {
	const void *address; /* the peer's blob; borrowed during connect() */
	size_t address_bytes;
	uint64_t id; /* the same at both ends, unique among connections between the two ports */
	bool active; /* exactly one end is: it reaches out, the other awaits it */
	/* SPRI_PRIVATE_BYTES, or NULL for zeros; borrowed during connect() */
	const uint8_t *private_data;
	const char *label; /* the peer's name in texts ("rank 3"); copied, at most 31 bytes */
};

/* What a row promises that another may not: where a device checks, not this project. */
enum {
	/* A key is valid on the one connection it was granted on, and each of its bits counts. */
	SPRI_CAP_CONN_KEYS = 1,
	/* Both ends of a refused write see SPR_EACCESS; else one may see another status. */
	SPRI_CAP_REFUSALS = 2,
	/* Memory of devices can be registered. */
	SPRI_CAP_DEVICE_MEMORY = 4,
	/* It knows where a peer wrote, and tells (struct spri_memory, landed). */
	SPRI_CAP_LANDED = 8,
};

/* Counters of a port, since listen(). */
struct spri_port_stats {
	uint64_t wire_bytes; /* sent: payload and the transport's own framing */
	uint64_t writes;     /* posted */
};

/*
 * One row of the table. Slots marked "may be refused" can be answered with SPR_EUNSUPPORTED;
 * none is NULL.
 */
struct spri_transport {
	const char *name;
	const char *about;    /* one sentence for listings */
	uint32_t frame_bytes; /* framing that it adds to each write, as stats() counts it */
	uint32_t caps;	      /* SPRI_CAP_* */

	/*
	 * Can this machine use it? Returns 0, or negative with the reason (why is never empty
	 * then).
	 */
	int (*probe)(struct spri_text *why);

	/*
	 * Opens the local end. Ownership: *out given (fini). Returns 0; SPR_EARGUMENT,
	 * SPR_EENVIRONMENT (interfaces), negative errno; `text` says what was wrong.
	 */
	int (*listen)(const struct spri_port_options *options, struct spri_port **out,
		      struct spri_text *text);

	/*
	 * Writes the blob that tells peers how to reach this port: at most SPRI_ADDRESS_BYTES;
	 * returns its length.
	 */
	size_t (*address)(struct spri_port *port, uint8_t *blob);

	/*
	 * Registers memory (lent until unregister); `memory` is borrowed. Returns 0;
	 * SPR_EUNSUPPORTED for memory of a device without the capability; SPR_EARGUMENT, negative
	 * errno; what the number does not say is in `text` (may be NULL), which is else left as it
	 * is.
	 */
	int (*register_)(struct spri_port *port, const struct spri_memory *memory,
			 struct spri_region **out, struct spri_text *text);
	/*
	 * Ends it; no write may be using it. Grants of it are void: later writes by peers are
	 * refused. Accepts NULL.
	 */
	void (*unregister)(struct spri_region *region);

	/*
	 * Makes a connection object, not connected. Ownership: given (destroy). Returns 0,
	 * negative errno.
	 */
	int (*create)(struct spri_port *port, void *user, struct spri_conn **out);
	/*
	 * Allows the peer of this connection to write to region. Any time before or after
	 * connect. Returns 0, negative errno.
	 */
	int (*grant)(struct spri_conn *conn, struct spri_region *region, struct spri_remote *out);
	/*
	 * Starts connecting; CONNECTED or LOST follows within the timeout. Returns 0,
	 * SPR_EARGUMENT (a bad blob), negative errno. The other end may call later or earlier,
	 * within the timeout.
	 */
	int (*connect)(struct spri_conn *conn, const struct spri_connect *args);
	/*
	 * Posts a write; `write` is borrowed, its source memory lent. Returns 0; SPRI_AGAIN: the
	 * queue is full, poll and repeat; SPR_EARGUMENT; the status of LOST when the connection
	 * is lost, -ENOTCONN before CONNECTED and after close.
	 */
	int (*post)(struct spri_conn *conn, const struct spri_write *write);
	/*
	 * Takes up to max events and makes progress. Returns their number, or negative when the
	 * port is broken.
	 */
	int (*poll)(struct spri_port *port, struct spri_event *events, unsigned max);
	/*
	 * Sleeps until poll() may have something to do, wake() was called, or the deadline (of
	 * now()) passed. Spurious returns are allowed. May run beside other calls. Returns 0 or
	 * negative when the port is broken.
	 */
	int (*wait)(struct spri_port *port, uint64_t deadline_ns);
	/* Ends a wait() under way or the next one. Any thread. */
	void (*wake)(struct spri_port *port);
	/* The port's clock. */
	uint64_t (*now)(struct spri_port *port);
	void (*stats)(struct spri_port *port, struct spri_port_stats *out);

	/*
	 * The connection's last text: why it was lost; "" when it was not. Borrowed until
	 * destroy.
	 */
	const char *(*describe)(struct spri_conn *conn);
	/*
	 * Refuses new posts; what was posted is still sent, then the peer hears goodbye. poll()
	 * drives it, as long as the peer takes bytes; one that takes none for the timeout is lost.
	 * Idempotent.
	 */
	void (*close)(struct spri_conn *conn);
	/* True when a closed connection has nothing left to send (or is lost). */
	bool (*closed)(struct spri_conn *conn);
	/*
	 * Frees, whatever the state: unsent writes are dropped, the peer sees CLOSED after a
	 * finished close(), else LOST. Accepts NULL.
	 */
	void (*destroy)(struct spri_conn *conn);
	/* Frees the port, whose connections and regions are gone. Accepts NULL. */
	void (*fini)(struct spri_port *port);
};

/* ---- the table (transport.c) ---- */

/* The i-th row, best first; NULL past the last. */
const struct spri_transport *spri_transport_row(unsigned i);
/* By name; NULL when there is none. */
const struct spri_transport *spri_transport_find(const char *name);

/* ---- tcp: which interfaces (tcp_interfaces.c), also for listings ---- */

struct spri_interface {
	char name[16];
	char address[64]; /* numeric */
	int family;	  /* AF_INET, AF_INET6 */
	unsigned prefix;  /* length of the network's prefix */
	bool up;
	bool loopback;
	bool used;	 /* tcp would listen on it */
	char reason[64]; /* why it is not used; "" when it is */
};

/*
 * Lists interface addresses and decides by a filter (NULL or "": all but loopback and link-local
 * addresses, loopback when there is nothing else). The filter: items separated by commas, each an
 * interface name (as it is, `eth0`; the whole name) or a CIDR block (`10.0.0.0/24`, `fd00::/8`);
 * a leading ^ takes all but these. Addresses come from the kernel, never from a name service.
 * Writes at most max rows. Returns the number of rows, SPR_EENVIRONMENT with a text (item that is
 * malformed, or a filter that leaves nothing), negative errno.
 */
int spri_interfaces(const char *filter, struct spri_interface *rows, unsigned max,
		    struct spri_text *text);

#endif
