/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* What tests of loop share: fabrics of the test's choice, and two places with one connection. */
#ifndef TESTS_TRANSPORT_DUO_H
#define TESTS_TRANSPORT_DUO_H

#include "ends.h"

#define DUO_BYTES (1 << 20)

extern const struct spri_transport *loop; /* since fabric_open */
extern uint8_t source[DUO_BYTES], target[DUO_BYTES];

/* A world over a fabric of the test's choice: ports at places 0 … n_ports - 1. */
void fabric_open(struct world *w, const struct spri_fabric_options *options, unsigned n_ports,
		 uint64_t timeout_ns);
/* Moves time to there; what happens until then happens. */
void run_until(struct world *w, uint64_t time_ns);
/* Takes what a place has to report; returns how much. */
unsigned take(struct world *w, unsigned port, struct spri_event *events, unsigned max);

/* Place 0 with `source` and a, place 1 with `target`, which is granted to a, and b. */
struct duo {
	struct world w;
	struct end a, b;
	struct spri_region *from, *to;
	struct spri_remote remote;
};

void duo_open(struct duo *d, const struct spri_fabric_options *options, uint64_t timeout_ns);
void duo_close(struct duo *d);
/*
 * Posts writes of these sizes at once; after how many ns the i-th was notified goes to ns[i].
 * Checks the order.
 */
void flight_times(struct duo *d, const size_t *bytes, unsigned n, uint64_t *ns);

#endif
