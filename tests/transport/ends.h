/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What transport tests share: a world of up to three ports over one row of the table, driven by one
 * thread that polls them in turn, and ends of connections that record what was reported about them.
 */
#ifndef TESTS_TRANSPORT_ENDS_H
#define TESTS_TRANSPORT_ENDS_H

#include <internal/clock.h>
#include <transport.h>

#define WORLD_PORTS 3
#define WORLD_REGIONS 32
#define END_LOG 4096
#define WORLD_PATIENCE (20 * SPRI_NS_PER_S) /* of the port's clock; for what must happen */

/* What was reported about one connection, through its `user`. */
struct end {
	struct spri_conn *conn;				    /* NULL: destroyed */
	unsigned connected, closed, lost, n_sent, n_notify; /* events of each kind */
	int status;					    /* of LOST */
	uint64_t cookies[END_LOG];			    /* of SENT, in order */
	uint32_t immediates[END_LOG];			    /* of NOTIFY, in order */
	uint8_t private_data[SPRI_PRIVATE_BYTES];	    /* of CONNECTED */
	unsigned notified_before_closed;		    /* n_notify when CLOSED came */
	void (*on_notify)(struct end *end, uint32_t immediate, void *arg);
	void *arg;
};

struct world {
	const struct spri_transport *t;
	struct spri_fabric *fabric; /* loop only */
	unsigned n_ports;
	struct spri_port *port[WORLD_PORTS];
	struct spri_region *region[WORLD_REGIONS]; /* to be unregistered by world_close */
	unsigned n_regions;
	unsigned turn; /* which port waits next */
	int broken;    /* what a poll() or wait() failed with */
};

/*
 * The next row of the table that this machine can use, from *i on, or NULL. With TEST_TRANSPORT set
 * in the environment, only the row of that name.
 */
const struct spri_transport *usable_row(unsigned *i);
/* Runs what follows once for every such row. */
#define FOR_EACH_ROW(t)                                                                            \
	for (unsigned row_ = 0, once_ = 1; once_; once_ = 0)                                       \
		for (const struct spri_transport *t; (t = usable_row(&row_)) != NULL; row_++)

/* Opens the ports. Returns 0 or what failed, with everything undone. */
int world_try_open(struct world *w, const struct spri_transport *t, unsigned n_ports,
		   uint64_t timeout_ns);
/* The same; the test fails when it does not succeed. */
void world_open(struct world *w, const struct spri_transport *t, unsigned n_ports,
		uint64_t timeout_ns);
/* Unregisters and closes; the ends are destroyed before. */
void world_close(struct world *w);

/*
 * Polls every port once; when none had an event, one of them waits a little. False when `until` has
 * passed.
 */
bool world_step(struct world *w, uint64_t until);
uint64_t world_now(const struct world *w);

/* Drives the world until the condition holds or patience ends; says whether it holds. */
#define pump(w, condition)                                                                         \
	({                                                                                         \
		uint64_t until_ = world_now(w) + WORLD_PATIENCE;                                   \
		while (!(condition) && world_step((w), until_))                                    \
			;                                                                          \
		(condition);                                                                       \
	})
/* Drives the world until nothing has happened for a while. */
void world_settle(struct world *w);

/* Registers memory at a port; undone by world_close. */
struct spri_region *world_region(struct world *w, unsigned port, void *base, size_t bytes,
				 unsigned access);

void end_create(struct world *w, unsigned port, struct end *end);
void end_destroy(struct world *w, struct end *end);
/* Connects one end to a port. Returns what connect() did. */
int end_connect(struct world *w, struct end *end, unsigned to_port, uint64_t id, bool active,
		const uint8_t *private_data, const char *label);
/* Creates and connects both ends and pumps until they are; a is active. */
void ends_meet(struct world *w, unsigned port_a, struct end *a, unsigned port_b, struct end *b,
	       uint64_t id);

/* Posts one piece with a notification; the immediate is the cookie too. Returns what post() did. */
int end_write(struct world *w, struct end *end, struct spri_region *region, const void *source,
	      size_t bytes, const struct spri_remote *remote, uint64_t offset, uint32_t immediate);
/* The same, pumping while the queue is full. */
int end_write_all(struct world *w, struct end *end, struct spri_region *region, const void *source,
		  size_t bytes, const struct spri_remote *remote, uint64_t offset,
		  uint32_t immediate);

/* Bytes that depend on a seed and on the position. */
void pattern_fill(void *p, size_t bytes, uint64_t seed);
/* True when they are as pattern_fill made them. */
bool pattern_is(const void *p, size_t bytes, uint64_t seed);

#endif
