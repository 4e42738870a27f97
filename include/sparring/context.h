/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The context: one per process as a rule, several are allowed. It holds the options, the log
 * hook, the transport's local end and the progress loop. Every other object belongs to one.
 *
 * Threads: unless a page says otherwise, functions on objects of the same context may be called
 * from any thread; they take the context's lock. Functions that wait do not hold it while idle.
 */
#ifndef SPARRING_CONTEXT_H
#define SPARRING_CONTEXT_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum spr_log_level {
	SPR_LOG_NONE = 0,
	SPR_LOG_ERROR = 1, /* something failed; the same text is kept by the object */
	SPR_LOG_WARN = 2,  /* something was not as asked: a fallback, an unknown variable */
	SPR_LOG_INFO = 3,  /* choices: transport, interface, kernel variant */
	SPR_LOG_DEBUG = 4  /* the path of each failure through the code */
};

/* Takes one line of log, without newline; `text` is borrowed. Must not call back into sparring. */
typedef void (*spr_log_fn)(void *arg, enum spr_log_level level, const char *text);

/*
 * Zero-initialise, set `size` to sizeof, then set what should differ. Each zero means: the value
 * of the environment variable named behind it, else the default.
 */
struct spr_context_options {
	size_t size;	       /* sizeof(struct spr_context_options) */
	const char *transport; /* "auto", "verbs", "tcp", "loop"; SPR_TRANSPORT; "auto" */
	/* deadline of meeting, connecting, each operation; SPR_TIMEOUT (seconds); 30 s; ≤ 10^6 s */
	uint64_t timeout_ns;
	/* cap on landing memory of a communicator; SPR_LANDING (bytes, K, M, G); 64 MiB */
	uint64_t landing_bytes;
	/* 1: a thread of sparring's own makes progress; SPR_PROGRESS_THREAD; 0 */
	int progress_thread;
	spr_log_fn log;		      /* NULL: no log */
	void *log_arg;		      /* handed to log */
	enum spr_log_level log_level; /* SPR_LOG; SPR_LOG_WARN */
	struct spr_sim *sim; /* NULL, or the simulation (sim.h) that this context lives in */
	int sim_rank;	     /* its place there */
};

/*
 * Opens a context. `options` (borrowed) may be NULL.
 * Ownership: *out is given: spr_context_close. Blocks: the first one reads the machine and starts
 * the CUDA driver, where there is one (some 10 ms); processes that are to use a GPU are forked
 * before.
 * Returns: 0; SPR_EARGUMENT, SPR_EENVIRONMENT (a variable's value; the log names it),
 * SPR_EUNSUPPORTED (no such transport here), negative errno.
 */
SPR_API int spr_context_open(const struct spr_context_options *options, struct spr_context **out);

/*
 * Closes a context whose communicators are destroyed. Accepts NULL.
 * Blocks: no; goodbyes were said when communicators and endpoints were destroyed.
 */
SPR_API void spr_context_close(struct spr_context *context);

/*
 * The text of the last failure in this context, "" when there is none. Borrowed until the next
 * call.
 */
SPR_API const char *spr_context_error(const struct spr_context *context);

/*
 * The transport in use: "tcp", "verbs", "loop". Chosen at open; making a communicator may change
 * "verbs" to "tcp" when another rank has no RDMA. Static storage.
 */
SPR_API const char *spr_context_transport(const struct spr_context *context);

/*
 * The context's clock in nanoseconds: monotonic real time, or the virtual time of its
 * simulation.
 */
SPR_API uint64_t spr_context_now_ns(const struct spr_context *context);

/*
 * Makes whatever progress is possible without waiting; with a progress thread there is nothing to
 * do.
 * Returns: 0, or a negative number when the context is broken.
 */
SPR_API int spr_context_progress(struct spr_context *context);

#ifdef __cplusplus
}
#endif
#endif
