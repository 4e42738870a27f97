/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Connection states as a table; the drawing is in conn.h. */
#include "conn.h"

#include <internal/log.h>

struct state_row {
	const char *name;
	unsigned next; /* bits: states that may follow */
};

#define TO(state) (1u << SPRI_CONN_##state)
static const struct state_row table[SPRI_CONN_STATES] = {
	[SPRI_CONN_NEW] = {"new", TO(DIALING) | TO(AWAITING) | TO(DONE)},
	[SPRI_CONN_DIALING] = {"dialing", TO(ASKING) | TO(DONE) | TO(LOST)},
	[SPRI_CONN_ASKING] = {"asking", TO(DIALING) | TO(UP) | TO(DONE) | TO(LOST)},
	[SPRI_CONN_AWAITING] = {"awaiting", TO(ANSWERED) | TO(DONE) | TO(LOST)},
	[SPRI_CONN_ANSWERED] = {"answered", TO(AWAITING) | TO(UP) | TO(DONE) | TO(LOST)},
	[SPRI_CONN_UP] = {"up", TO(LEFT) | TO(CLOSING) | TO(REFUSING) | TO(LOST)},
	[SPRI_CONN_LEFT] = {"left", TO(CLOSING) | TO(DONE) | TO(REFUSING) | TO(LOST)},
	[SPRI_CONN_CLOSING] = {"closing", TO(DONE) | TO(REFUSING) | TO(LOST)},
	[SPRI_CONN_DONE] = {"done", 0},
	[SPRI_CONN_REFUSING] = {"refusing", TO(LOST)},
	[SPRI_CONN_LOST] = {"lost", 0},
};
#undef TO

const char *spri_conn_state_name(enum spri_conn_state state)
{
	assert(state < SPRI_CONN_STATES);
	return table[state].name;
}

bool spri_conn_may_move(enum spri_conn_state from, enum spri_conn_state to)
{
	assert(from < SPRI_CONN_STATES && to < SPRI_CONN_STATES);
	return table[from].next >> to & 1;
}

void spri_conn_move(enum spri_conn_state *state, enum spri_conn_state to, const char *label)
{
	assert(spri_conn_may_move(*state, to));
	spri_logf(SPR_LOG_DEBUG, "%s: connection %s -> %s", label, table[*state].name,
		  table[to].name);
	*state = to;
}
