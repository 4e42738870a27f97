/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The rows of the transport table, one per implementation file. Outside transport/ use
 * spri_transport_find().
 */
#ifndef SPRI_TRANSPORT_ROWS_H
#define SPRI_TRANSPORT_ROWS_H

#include "transport.h"

extern const struct spri_transport spri_tcp;   /* tcp.c */
extern const struct spri_transport spri_verbs; /* verbs.c, or verbs_none.c without libibverbs */
extern const struct spri_transport spri_loop;  /* loop.c */

/* register_ of a transport that reads and writes memory by the processor: a device's is refused. */
int spri_transport_no_device(const struct spri_port *port, struct spri_text *text) SPRI_MUST;

#endif
