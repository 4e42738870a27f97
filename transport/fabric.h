/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The fabric that joins the ports of the loop transport (loop_fabric.c): places, links, virtual
 * time. Part of the front header transport.h, which includes it.
 */
#ifndef SPRI_FABRIC_H
#define SPRI_FABRIC_H

#include <internal/compiler.h>

struct spri_fabric;

struct spri_fabric_options {
	uint32_t n_places;
	uint64_t latency_ns; /* α */
	double bytes_per_s;  /* each way, per place; 0: infinite */
	/* up to this much more latency per message; order per connection is kept */
	uint64_t jitter_ns;
	uint64_t seed;	    /* of the jitter */
	uint64_t detect_ns; /* after a kill, until peers see LOST; 0: one latency */
};

int spri_fabric_create(const struct spri_fabric_options *options,
		       struct spri_fabric **out) SPRI_MUST;
void spri_fabric_destroy(struct spri_fabric *fabric);
uint64_t spri_fabric_now(const struct spri_fabric *fabric);
/*
 * The place stops for ever: what it posted and has not left is lost, peers see LOST
 * (-ECONNRESET).
 */
void spri_fabric_kill(struct spri_fabric *fabric, uint32_t place);
bool spri_fabric_killed(const struct spri_fabric *fabric, uint32_t place);
/* Adds latency to everything from one place to another. */
void spri_fabric_delay(struct spri_fabric *fabric, uint32_t from, uint32_t to, uint64_t extra_ns);
/*
 * Moves time to the next event and delivers it, if there is one not after until_ns; returns
 * false (time = until_ns, when that is not SPRI_NEVER) otherwise.
 */
bool spri_fabric_advance(struct spri_fabric *fabric, uint64_t until_ns);
/* True when poll() on the port of that place would report something, or it was woken. */
bool spri_fabric_ready(const struct spri_fabric *fabric, uint32_t place);
/*
 * Who runs when a port waits: the scheduler of virtual ranks. NULL (at first): wait() advances
 * time itself until the place is ready.
 */
typedef int (*spri_fabric_wait_fn)(void *arg, uint32_t place, uint64_t deadline_ns);
void spri_fabric_on_wait(struct spri_fabric *fabric, spri_fabric_wait_fn fn, void *arg);
/*
 * Who hears when a place gets something to report while it had nothing, so that a scheduler of many
 * ranks need not look at each. Called from within posts and advances: it must only take note.
 */
typedef void (*spri_fabric_ready_fn)(void *arg, uint32_t place);
void spri_fabric_on_ready(struct spri_fabric *fabric, spri_fabric_ready_fn fn, void *arg);

#endif
