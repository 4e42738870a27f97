/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The states of a connection over a byte stream, all edges:
 *
 *          connect(active)        tcp connected              accepted, CONFIRM sent
 *      NEW ───────────────► DIALING ──────────► ASKING ───────────────────────────► UP
 *       │                      ▲  next address    │
 *       │                      └──────────────────┘
 *       │ connect(passive)      a hello fits                    CONFIRM received
 *       └──────────────► AWAITING ──────────► ANSWERED ───────────────────────────► UP
 *                            ▲  stream ended, or  │
 *                            └──── newer hello ───┘
 *
 *          GOODBYE received       close()            FAREWELL, GOODBYE, end of stream,
 *                                                    1 s after the peer has all
 *      UP ────────────────► LEFT ─────────► CLOSING ────────────────────────────► DONE
 *       └────────────────── close() ──────────▲
 *
 *      NEW, DIALING, ASKING, AWAITING, ANSWERED ──── close() ────► DONE
 *      LEFT ──── close() after the stream has ended ────► DONE
 *      UP, LEFT, CLOSING ──── a frame that must be refused ────► REFUSING
 *      REFUSING ──── REFUSED is sent, end of stream, 1 s ────► LOST
 *      DIALING, ASKING, AWAITING, ANSWERED, UP, LEFT, CLOSING ──── failure, deadline ────► LOST
 *
 * DONE and LOST are final.
 */
#ifndef SPRI_CONN_H
#define SPRI_CONN_H

#include <internal/compiler.h>

enum spri_conn_state {
	SPRI_CONN_NEW = 0,  /* made, not connected */
	SPRI_CONN_DIALING,  /* active: the kernel connects to one of the peer's addresses */
	SPRI_CONN_ASKING,   /* active: hello sent, waits for the answer */
	SPRI_CONN_AWAITING, /* passive: waits for a hello */
	SPRI_CONN_ANSWERED, /* passive: answer sent, waits for CONFIRM */
	SPRI_CONN_UP,	    /* carries writes both ways */
	SPRI_CONN_LEFT,	    /* the peer said goodbye, we did not */
	SPRI_CONN_CLOSING,  /* we send what is queued, then goodbye, and wait for the answer */
	SPRI_CONN_DONE,	    /* closed */
	SPRI_CONN_REFUSING, /* we end the frame we are in, then say why we stop */
	SPRI_CONN_LOST,	    /* failed */
	SPRI_CONN_STATES
};

/* "asking". Static. */
const char *spri_conn_state_name(enum spri_conn_state state);

/* True for an edge of the drawing. */
bool spri_conn_may_move(enum spri_conn_state from, enum spri_conn_state to);

/* The one mover: checks the edge and traces it. `label` names the peer in the trace. */
void spri_conn_move(enum spri_conn_state *state, enum spri_conn_state to, const char *label);

#endif
