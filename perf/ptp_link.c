/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Traffic of the point-to-point tools: posting, polling, waiting, and the words between the ends.
 *
 * Path: every notification carries a word, which is counted where it arrives; a wait is over when
 * a count is reached, so that the order of words does not matter. Values go ahead of a REPORT
 * into the first bytes of the peer's landing area.
 * Failures: a lost or closed endpoint, a word that is none, no progress for --timeout, a signal:
 * one line on stderr, −1.
 */
#include "ptp.h"

#include <internal/clock.h>

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define EVENTS 32
#define LOOK_EVERY 1024u /* idle polls of which one looks at the clock */
#define NAP_NS (100 * SPRI_NS_PER_MS)
#define WORD_SHIFT 24
#define ARGUMENT_MASK 0xffffffu
#define VALUE_BYTES (PTP_VALUES * sizeof(uint64_t))

uint64_t ptp_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SPRI_NS_PER_S + (uint64_t)t.tv_nsec;
}

int ptp_fail(const struct ptp_config *config, const char *format, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "%s: ", config->tool);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	return -1;
}

/* ---- events ---- */

static int take(struct ptp_link *link, struct ptp_endpoint *e, const struct spr_event *event)
{
	unsigned word = event->immediate >> WORD_SHIFT;

	switch (event->kind) {
	case SPR_EVENT_CONNECTED:
		e->connected = true;
		return 0;
	case SPR_EVENT_SENT:
		e->sent++;
		if (link->on_sent)
			link->on_sent(link->on_sent_arg, event->cookie);
		return 0;
	case SPR_EVENT_NOTIFY:
		if (word >= PTP_WORDS)
			return ptp_fail(link->config,
					"the other end sent 0x%08x, which says nothing",
					event->immediate);
		e->argument[word] = event->immediate & ARGUMENT_MASK;
		e->got[word]++;
		return 0;
	case SPR_EVENT_CLOSED:
		e->closed = true; /* minded when nothing else comes any more */
		return 0;
	case SPR_EVENT_LOST:
		e->closed = true;
		if (link->closing)
			return 0;
		return ptp_fail(link->config, "%s", spr_endpoint_error(e->endpoint));
	}
	return 0;
}

int ptp_poll(struct ptp_link *link, unsigned end)
{
	struct ptp_endpoint *e = &link->ends[end];
	struct spr_event events[EVENTS];
	int n = spr_endpoint_poll(e->endpoint, events, EVENTS);

	if (spri_unlikely(n < 0))
		return ptp_fail(link->config, "polling: %s", spr_strerror(n));
	for (int i = 0; i < n; i++)
		if (take(link, e, &events[i]) < 0)
			return -1;
	if (spri_unlikely(ptp_stopped()) && !link->closing)
		return ptp_fail(link->config, "interrupted");
	if (n > 0)
		link->idle = 0;
	return n;
}

int ptp_idle(struct ptp_link *link, unsigned end)
{
	uint64_t limit = (uint64_t)(link->config->timeout_s * 1e9), now;

	if (link->ends[end].closed)
		return ptp_fail(link->config, "the other end stopped before the end");
	if (link->sleeps) {
		uint64_t until = spr_context_now_ns(link->context) + NAP_NS;
		int r = spr_endpoint_wait(link->ends[end].endpoint, until);

		if (r < 0 && r != SPR_ETIMEOUT)
			return ptp_fail(link->config, "waiting: %s", spr_strerror(r));
	}
	if (link->idle++ == 0)
		link->idle_since_ns = 0;
	if (!link->sleeps && link->idle % LOOK_EVERY)
		return 0;
	/* what is waited for may wait for this CPU: a peer, a software device's worker */
	if (!link->sleeps)
		sched_yield();
	now = ptp_now();
	if (!link->idle_since_ns)
		link->idle_since_ns = now;
	if (now - link->idle_since_ns < limit)
		return 0;
	return ptp_fail(link->config, "nothing came for %g s (--timeout)", link->config->timeout_s);
}

int ptp_await(struct ptp_link *link, unsigned end, enum ptp_word word, uint64_t n)
{
	while (link->ends[end].got[word] < n) {
		int r = ptp_poll(link, end);

		if (r == 0)
			r = ptp_idle(link, end);
		if (r < 0)
			return -1;
	}
	return 0;
}

/* ---- writes ---- */

static int post(struct ptp_link *link, unsigned end, uint64_t offset, size_t bytes,
		enum ptp_word word, uint32_t argument, uint64_t cookie)
{
	struct ptp_endpoint *e = &link->ends[end];
	struct spr_write w;
	const char *why;
	int r;

	w.size = sizeof w;
	w.gather[0].base = (uint8_t *)link->from + offset;
	w.gather[0].bytes = bytes;
	w.gather[0].memory = link->source_memory;
	w.n_gather = bytes > 0;
	w.remote = e->remote;
	w.offset = offset;
	w.notify = word != PTP_WORDS;
	w.immediate = (uint32_t)word << WORD_SHIFT | (argument & ARGUMENT_MASK);
	w.cookie = cookie;
	r = spr_endpoint_post(e->endpoint, &w);
	if (spri_likely(r == 0)) {
		e->posted++;
		return 0;
	}
	if (r == SPR_AGAIN)
		return r;
	why = spr_endpoint_error(e->endpoint);
	return ptp_fail(link->config, "posting: %s%s%s", spr_strerror(r), *why ? "; " : "", why);
}

int ptp_post(struct ptp_link *link, unsigned end, uint64_t offset, size_t bytes, enum ptp_word word,
	     uint32_t argument, uint64_t cookie)
{
	return post(link, end, PTP_HEAD_BYTES + offset, bytes, word, argument, cookie);
}

/* Polls while the queue is full. */
static int send_bytes(struct ptp_link *link, unsigned end, uint64_t offset, size_t bytes,
		      enum ptp_word word, uint32_t argument)
{
	int r;

	while ((r = post(link, end, offset, bytes, word, argument, PTP_NO_COOKIE)) == SPR_AGAIN) {
		r = ptp_poll(link, end);
		if (r == 0)
			r = ptp_idle(link, end);
		if (r < 0)
			return -1;
	}
	return r;
}

int ptp_send(struct ptp_link *link, unsigned end, uint64_t offset, size_t bytes, enum ptp_word word,
	     uint32_t argument)
{
	return send_bytes(link, end, PTP_HEAD_BYTES + offset, bytes, word, argument);
}

uint8_t *ptp_source(struct ptp_link *link)
{
	return link->source + PTP_HEAD_BYTES;
}

uint8_t *ptp_landing(struct ptp_link *link)
{
	return link->landing + PTP_HEAD_BYTES;
}

/* ---- steps that both ends take together ---- */

int ptp_link_ready(struct ptp_link *link)
{
	bool sleeps = link->sleeps;
	int r;

	link->rounds++;
	link->sleeps = true; /* filling and checking may take the other end a while */
	r = ptp_area_give(link, link->area_bytes);
	if (r == 0)
		r = ptp_area_reset(link);
	if (r == 0)
		r = ptp_send(link, 0, 0, 0, PTP_READY, 0);
	if (r == 0)
		r = ptp_await(link, 0, PTP_READY, link->rounds);
	link->sleeps = sleeps;
	return r;
}

int ptp_landed(struct ptp_link *link)
{
	return ptp_area_fetch(link, link->area_bytes);
}

int ptp_link_report(struct ptp_link *link, const uint64_t mine[PTP_VALUES],
		    uint64_t theirs[PTP_VALUES])
{
	bool sleeps = link->sleeps;
	int r = 0;

	link->sleeps = true;
	while (r == 0 && link->ends[0].sent < link->ends[0].posted) { /* the last one's source */
		r = ptp_poll(link, 0);
		if (r == 0)
			r = ptp_idle(link, 0);
		r = r < 0 ? r : 0;
	}
	memcpy(link->source, mine, VALUE_BYTES);
	if (r == 0)
		r = ptp_area_give(link, VALUE_BYTES);
	if (r == 0)
		r = send_bytes(link, 0, 0, VALUE_BYTES, PTP_REPORT, 0);
	if (r == 0)
		r = ptp_await(link, 0, PTP_REPORT, link->rounds);
	link->sleeps = sleeps;
	if (r == 0)
		r = ptp_area_fetch(link, VALUE_BYTES);
	if (r == 0)
		memcpy(theirs, link->landing, VALUE_BYTES);
	return r;
}

/* ---- bytes to check ---- */

static uint64_t mixed(uint64_t x)
{
	x *= 0x9e3779b97f4a7c15u;
	return x ^ x >> 29;
}

void ptp_pattern_fill(uint8_t *at, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = mixed(seed + i + 1);

		memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

uint64_t ptp_pattern_wrong(const uint8_t *at, size_t bytes, uint64_t seed)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = mixed(seed + i + 1);
		size_t n = bytes - i < 8 ? bytes - i : 8;

		if (memcmp(at + i, &word, n) == 0)
			continue;
		for (size_t b = 0; b < n; b++)
			wrong += at[i + b] != (uint8_t)(word >> 8 * b);
	}
	return wrong;
}
