/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The part of tcp_interfaces.c that decides, without asking the kernel: for its tests. */
#ifndef SPRI_TCP_INTERFACES_H
#define SPRI_TCP_INTERFACES_H

#include "transport.h"

/*
 * Decides over n rows (name, address, family, prefix, up, loopback are given): writes `used` and
 * `reason` of each. Returns 0, or SPR_EENVIRONMENT with a text: the item that is malformed, or that
 * nothing is left.
 */
int spri_interfaces_choose(const char *filter, struct spri_interface *rows, unsigned n,
			   struct spri_text *text) SPRI_MUST;

/*
 * The address as bytes in network order (4 or 16). Returns their number, 0 when the row's text is
 * none.
 */
unsigned spri_interface_bytes(const struct spri_interface *row, uint8_t out[16]);

/* True when the first `bits` bits are the same. */
bool spri_prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits);

#endif
