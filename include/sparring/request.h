/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Requests: operations in flight. Each is given by the call that started it and ended by
 * spr_request_destroy.
 */
#ifndef SPARRING_REQUEST_H
#define SPARRING_REQUEST_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an operation cost on this rank. Times in nanoseconds of the context's clock. */
struct spr_request_stats {
	/* sent by this rank: headers, indices, values, credits, the transport's framing */
	uint64_t wire_bytes;
	uint64_t value_bytes;  /* of these, values alone */
	uint64_t direct_bytes; /* of wire_bytes, read by a NIC from a GPU's memory */
	uint64_t rounds;       /* rounds of messages that this rank took part in */
	uint64_t wall_ns;      /* from start to completion */
	uint64_t merge_ns;     /* of these, in merging, reducing and trimming */
};

/* Makes progress and looks. Returns: 1 when done (any outcome), 0 when not yet. Blocks: no. */
SPR_API int spr_request_test(struct spr_request *request);

/*
 * Waits until the operation is done, making progress. It has a deadline of its own (the context's
 * timeout from its start on), so this returns.
 * Returns: the outcome: 0; SPR_ENONFINITE, SPR_EMISMATCH (the operation failed on every rank,
 * nothing changed); SPR_ELOST, SPR_ETIMEOUT, SPR_EPROTOCOL, SPR_EACCESS (the communicator is
 * broken); SPR_EBUSY (a step of spr_exchange_begin whose layers are not all handed over: at once).
 */
SPR_API int spr_request_wait(struct spr_request *request);

/* The outcome's text: "" while in flight or successful. Borrowed until spr_request_destroy. */
SPR_API const char *spr_request_error(const struct spr_request *request);

/* What it cost. Valid once done. */
SPR_API void spr_request_stats(const struct spr_request *request, struct spr_request_stats *stats);

/*
 * Ends a request. One that is still in flight is waited for first. Accepts NULL.
 * Blocks: not when the request is done.
 */
SPR_API void spr_request_destroy(struct spr_request *request);

#ifdef __cplusplus
}
#endif
#endif
