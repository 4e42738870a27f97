/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Deadlines of a tcp port. One timer descriptor stands for all of them, set no later than the
 * earliest, so that it also ends a wait() that another thread is in. A deadline that is
 * met leaves the timer as it is; when that fires, all deadlines are looked at and the next is set.
 * With timeouts of seconds this costs a system call per second or so, none per write.
 */
#include "tcp.h"

#include <internal/bits.h>
#include <internal/clock.h>

#include <sys/timerfd.h>
#include <unistd.h>

uint64_t spri_tcp_after(uint64_t t, uint64_t add)
{
	return add < SPRI_NEVER - t ? t + add : SPRI_NEVER;
}

void spri_tcp_arm(struct tcp_port *p, uint64_t at_ns)
{
	struct itimerspec when = {.it_value = {0, 0}};

	if (at_ns >= p->armed_ns)
		return;
	p->armed_ns = at_ns;
	at_ns = at_ns ? at_ns : 1; /* 0 would disarm */
	when.it_value.tv_sec = (time_t)(at_ns / SPRI_NS_PER_S);
	when.it_value.tv_nsec = (long)(at_ns % SPRI_NS_PER_S);
	if (timerfd_settime(p->timer.fd, TFD_TIMER_ABSTIME, &when, NULL) < 0)
		p->timer_fired =
			true; /* cannot happen with a valid time; poll() then looks itself */
}

void spri_tcp_expire(struct tcp_port *p)
{
	uint64_t now = spri_now_ns(), next, fired;
	struct tcp_link *l, *following;

	p->timer_fired = false;
	/* Clears the descriptor; empty when nothing fired. */
	if (read(p->timer.fd, &fired, sizeof fired) < 0)
		fired = 0;
	p->armed_ns = SPRI_NEVER;
	next = spri_tcp_guests_expire(p, now);
	for (l = p->conns.next; l != &p->conns; l = following) {
		following = l->next;
		next = spri_min_u64(next, spri_tcp_conn_expire(
						  spri_container_of(l, struct tcp_conn, all), now));
	}
	if (p->accept_paused && now >= p->resume_ns)
		spri_tcp_resume(p);
	else if (p->accept_paused)
		next = spri_min_u64(next, p->resume_ns);
	spri_tcp_arm(p, next);
}
