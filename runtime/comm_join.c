/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Joining a communicator (every rank, in this order; a rank that fails goes on with the meetings,
 * so that all fail alike):
 *   1. meet: who takes part (bootstrap/, in comm.c)
 *   2. allgather: version, transport, address, landing cap, number of partners; once more when
 *      ranks that chose RDMA by themselves go back to tcp, because others have none
 *   3. cut landing and staging memory into links, connect to each partner with our landing
 *      address and key as private data
 *   4. allgather: how that went
 */
#include <affinity.h>
#include <bootstrap/bootstrap.h>
#include <coll/coll.h>
#include <comm.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <registration.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMM_MAGIC 0x4d4f4353u /* "SCOM" */
#define COMM_VERSION 1u
#define MAX_PARTNERS 64	  /* that one algorithm may name */
#define MAX_ALGORITHMS 16 /* rows of the table */

/*
 * What a rank tells all others in step 2. Offsets: magic 0, version 4, landing 8, nonce 16,
 * links 24, address bytes 28, transport 32, address 48.
 */
#define HELLO_BYTES (48 + SPRI_ADDRESS_BYTES)
#define HELLO_MAY_FALL_BACK 0x80000000u /* in the field of the address bytes */

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/*
 * The union of all algorithms' partners, ascending, without this rank. Room for MAX_PARTNERS
 * per algorithm.
 */
static uint32_t find_partners(uint32_t rank, uint32_t n_ranks, uint32_t *out)
{
	uint32_t n = 0, kept = 0;

	assert(!spri_algo_row(MAX_ALGORITHMS));
	for (unsigned i = 0; spri_algo_row(i); i++)
		n += spri_algo_row(i)->partners(rank, n_ranks, out + n);
	qsort(out, n, sizeof *out, compare_u32);
	for (uint32_t i = 0; i < n; i++)
		if (out[i] != rank && (kept == 0 || out[kept - 1] != out[i]))
			out[kept++] = out[i];
	return kept;
}

static int make_links(struct spr_comm *comm)
{
	uint32_t partners[MAX_PARTNERS * MAX_ALGORITHMS];

	comm->n_links = find_partners(comm->rank, comm->n_ranks, partners);
	comm->links = spri_calloc(comm->n_links, sizeof *comm->links);
	if (!comm->links) {
		comm->n_links = 0;
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < comm->n_links; i++) {
		comm->links[i].listener.take = spri_comm_event;
		comm->links[i].comm = comm;
		comm->links[i].rank = partners[i];
	}
	return 0;
}

/*
 * Window and chunk size that keep max_links × lanes × window × chunk within the cap. The same
 * on all ranks.
 */
static int size_windows(struct spr_comm *comm, uint64_t landing_bytes, uint32_t max_links)
{
	uint64_t share =
		max_links ? landing_bytes / ((uint64_t)max_links * SPRI_LANES) : landing_bytes;
	uint64_t chunk = SPRI_MAX_CHUNK;

	while (chunk > SPRI_MIN_CHUNK && share / chunk < 2 * SPRI_MIN_WINDOW)
		chunk /= 2;
	if (max_links > 0 && share / chunk < SPRI_MIN_WINDOW) {
		spri_text_set(&comm->context->text,
			      "landing memory of %llu bytes is too little for %u partners, at "
			      "least %llu are needed",
			      (unsigned long long)landing_bytes, max_links,
			      (unsigned long long)max_links * SPRI_LANES * SPRI_MIN_WINDOW *
				      SPRI_MIN_CHUNK);
		return SPR_EARGUMENT;
	}
	comm->chunk_bytes = (uint32_t)chunk;
	comm->window = (uint32_t)spri_min_u64(share / chunk, SPRI_MAX_WINDOW);
	return 0;
}

static int make_arena(struct spr_comm *comm)
{
	size_t per_link = (size_t)SPRI_LANES * comm->window * comm->chunk_bytes;
	int r = 0;

	comm->arena_bytes = per_link * comm->n_links;
	comm->landing = spri_alloc_pages(comm->arena_bytes);
	comm->staging = spri_alloc_pages(comm->arena_bytes);
	if (!comm->landing || !comm->staging)
		return -ENOMEM;
	spri_affinity_pages(&comm->context->seat, comm->landing, comm->arena_bytes);
	spri_affinity_pages(&comm->context->seat, comm->staging, comm->arena_bytes);
	for (uint32_t i = 0; i < comm->n_links && r == 0; i++) {
		struct spri_link *link = &comm->links[i];

		link->landing = comm->landing + i * per_link;
		link->staging = comm->staging + i * per_link;
		r = spri_memory_host(comm->context, link->landing, per_link,
				     SPRI_ACCESS_REMOTE_WRITE, &link->landing_region);
		if (r == 0)
			r = spri_memory_host(comm->context, link->staging, per_link,
					     SPRI_ACCESS_LOCAL, &link->staging_region);
	}
	return spri_trace(r);
}

/* Starts the connection to one partner; hello is the partner's. */
static int connect_link(struct spri_link *link, const uint8_t *hello, uint64_t nonce)
{
	struct spr_comm *comm = link->comm;
	const struct spri_transport *t = comm->context->transport;
	uint64_t low = spri_min_u64(comm->rank, link->rank),
		 high = spri_max_u64(comm->rank, link->rank);
	uint8_t data[SPRI_PRIVATE_BYTES] = {0};
	struct spri_remote mine;
	char label[32];
	struct spri_connect args = {
		.address = hello + 48,
		.address_bytes = spri_get_u32(hello + 28) & ~HELLO_MAY_FALL_BACK,
		.id = spri_mix64(nonce + (low << 32 | high)),
		.active = comm->rank < link->rank,
		.private_data = data,
		.label = label,
	};
	int r;

	snprintf(label, sizeof label, "rank %u", link->rank);
	if (args.address_bytes > SPRI_ADDRESS_BYTES)
		return SPR_EPROTOCOL;
	r = t->create(comm->context->port, &link->listener, &link->conn);
	if (r < 0)
		return spri_trace(r);
	r = t->grant(link->conn, link->landing_region, &mine);
	if (r < 0)
		return spri_trace(r);
	spri_put_u32(data, comm->rank);
	spri_put_u64(data + 8, mine.address);
	memcpy(data + 16, mine.key, sizeof mine.key);
	return spri_trace(t->connect(link->conn, &args));
}

static bool all_connected(void *arg)
{
	struct spr_comm *comm = arg;

	if (comm->failed)
		return true;
	for (uint32_t i = 0; i < comm->n_links; i++)
		if (!comm->links[i].connected)
			return false;
	return true;
}

static int connect_all(struct spr_comm *comm, const uint8_t *hellos, uint64_t deadline_ns)
{
	uint64_t nonce = spri_get_u64(hellos + 16);
	int r = 0;

	for (uint32_t i = 0; i < comm->n_links && r == 0; i++)
		r = connect_link(&comm->links[i],
				 hellos + (size_t)comm->links[i].rank * HELLO_BYTES, nonce);
	if (r == 0)
		r = spri_progress_until(comm->context, all_connected, comm, deadline_ns);
	if (comm->failed) {
		comm->context->text = comm->text;
		r = comm->failed;
	} else if (r == SPR_ETIMEOUT) {
		for (uint32_t i = 0; i < comm->n_links; i++)
			if (!comm->links[i].connected)
				spri_text_set(&comm->context->text,
					      "rank %u did not connect in time",
					      comm->links[i].rank);
	}
	return spri_trace(r);
}

static int write_hello(struct spr_comm *comm, uint8_t *hello)
{
	const struct spri_transport *t = comm->context->transport;
	uint8_t nonce[8];
	uint32_t bytes;
	int r = spri_random_bytes(nonce, sizeof nonce);

	spri_put_u32(hello, COMM_MAGIC);
	spri_put_u32(hello + 4, COMM_VERSION);
	spri_put_u64(hello + 8, comm->context->landing_bytes);
	memcpy(hello + 16, nonce, sizeof nonce);
	spri_put_u32(hello + 24, comm->n_links);
	snprintf((char *)hello + 32, 16, "%s", t->name);
	bytes = (uint32_t)t->address(comm->context->port, hello + 48);
	if (spri_context_can_fall_back(comm->context))
		bytes |= HELLO_MAY_FALL_BACK;
	spri_put_u32(hello + 28, bytes);
	return r;
}

/* The first rank whose transport is tcp while others have another and may go back to it; or -1. */
static int64_t find_reason_to_fall_back(const struct spr_comm *comm, const uint8_t *hellos)
{
	int64_t without = -1;
	bool mixed = false;

	for (uint32_t i = 0; i < comm->n_ranks; i++) {
		const uint8_t *hello = hellos + (size_t)i * HELLO_BYTES;
		bool tcp = !strncmp((const char *)hello + 32, "tcp", 16);

		if (!tcp && !(spri_get_u32(hello + 28) & HELLO_MAY_FALL_BACK))
			return -1;
		if (tcp && without < 0)
			without = i;
		mixed = mixed || !tcp;
	}
	return mixed ? without : -1;
}

/* All ranks' hellos fit together; the smallest landing cap counts. */
static int read_hellos(struct spr_comm *comm, const uint8_t *hellos)
{
	uint64_t landing = UINT64_MAX;
	uint32_t max_links = 0;

	for (uint32_t i = 0; i < comm->n_ranks; i++) {
		const uint8_t *hello = hellos + (size_t)i * HELLO_BYTES;

		if (spri_get_u32(hello) != COMM_MAGIC || spri_get_u32(hello + 4) != COMM_VERSION) {
			spri_text_set(&comm->context->text,
				      "rank %u speaks version %u of the communicator's set-up, "
				      "this rank version %u",
				      i, spri_get_u32(hello + 4), COMM_VERSION);
			return SPR_EVERSION;
		}
		if (strncmp((const char *)hello + 32, comm->context->transport->name, 15) != 0) {
			spri_text_set(&comm->context->text,
				      "rank %u uses transport '%.15s', this rank '%s'", i,
				      (const char *)hello + 32, comm->context->transport->name);
			return SPR_EMISMATCH;
		}
		landing = spri_min_u64(landing, spri_get_u64(hello + 8));
		max_links = (uint32_t)spri_max_u64(max_links, spri_get_u32(hello + 24));
	}
	return size_windows(comm, landing, max_links);
}

/* One meeting, the lock released meanwhile: other communicators' progress goes on. */
static int meet(struct spr_comm *comm, struct spri_meeting *meeting, const void *mine, void *all,
		size_t bytes)
{
	int r;

	pthread_mutex_unlock(&comm->context->lock);
	r = meeting->ops->allgather(meeting, mine, all, bytes);
	pthread_mutex_lock(&comm->context->lock);
	spri_log_enter(&comm->context->log); /* a simulation may have run other ranks meanwhile */
	if (r < 0)
		spri_text_set(&comm->context->text, "%s",
			      meeting->text.s[0] ? meeting->text.s : spr_strerror(r));
	return spri_trace(r);
}

/* Step 4: the first rank that failed tells for all. */
static int agree(struct spr_comm *comm, struct spri_meeting *meeting, int mine, uint8_t *all)
{
	uint8_t status[256] = {0};
	int r;

	spri_put_u32(status, (uint32_t)mine);
	if (mine < 0)
		snprintf((char *)status + 4, sizeof status - 4, "%.250s",
			 comm->context->text.s[0] ? comm->context->text.s : spr_strerror(mine));
	r = meet(comm, meeting, status, all, sizeof status);
	if (r < 0)
		return mine < 0 ? mine : spri_trace(r);
	for (uint32_t i = 0; i < comm->n_ranks; i++) {
		const uint8_t *theirs = all + (size_t)i * sizeof status;
		int failed = (int32_t)spri_get_u32(theirs);

		if (failed == 0)
			continue;
		if (failed > 0)
			return SPR_EPROTOCOL;
		spri_text_set(&comm->context->text, "rank %u: %.250s", i, (const char *)theirs + 4);
		return failed;
	}
	return 0;
}

/* This rank has RDMA, rank `without` has not. */
static int go_back(struct spr_comm *comm, uint32_t without)
{
	char why[64];

	if (!spri_context_can_fall_back(comm->context)) { /* the lock was free meanwhile */
		spri_text_set(&comm->context->text,
			      "rank %u has no RDMA, but this context is in use with it", without);
		return SPR_EBUSY;
	}
	snprintf(why, sizeof why, "rank %u has none", without);
	return spri_trace(spri_context_fall_back(comm->context, why));
}

/* Steps 2 to 4. all has room for every rank's hello. */
static int join(struct spr_comm *comm, struct spri_meeting *meeting, uint8_t *all)
{
	uint8_t hello[HELLO_BYTES] = {0};
	int64_t without;
	int r, met;

	r = make_links(comm);
	if (r == 0)
		r = spri_op_reserve(comm);
	met = write_hello(comm, hello);
	if (r == 0)
		r = met;
	met = meet(comm, meeting, hello, all, sizeof hello);
	if (met < 0)
		return spri_trace(met);
	without = find_reason_to_fall_back(comm, all); /* the same on all ranks */
	if (without >= 0) {
		if (r == 0 && strcmp(comm->context->transport->name, "tcp") != 0)
			r = go_back(comm, (uint32_t)without);
		met = write_hello(comm, hello);
		if (r == 0)
			r = met;
		met = meet(comm, meeting, hello, all, sizeof hello);
		if (met < 0)
			return spri_trace(met);
	}
	if (r == 0)
		r = read_hellos(comm, all);
	if (r == 0)
		r = make_arena(comm);
	if (r == 0)
		r = connect_all(comm, all, meeting->deadline_ns);
	return spri_trace(agree(comm, meeting, r, all));
}

int spri_comm_join(struct spr_comm *comm, struct spri_meeting *meeting)
{
	uint8_t *all = spri_calloc(comm->n_ranks, HELLO_BYTES);
	int r;

	if (!all) {
		spri_text_set(&comm->context->text, "no memory to join");
		return -ENOMEM;
	}
	r = join(comm, meeting, all);
	spri_free(all);
	return spri_trace(r);
}
