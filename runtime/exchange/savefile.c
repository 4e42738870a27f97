/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Saving and restoring an exchange; the format is in docs/wire.md, "Saved exchange":
 *
 *   offset size name
 *        0    8 magic    "SPRXCHG\n"
 *        8    4 version  1
 *       12    4 header   bytes of the header: 128
 *       16    8 count    parameters
 *       24    8 step     steps committed
 *       32    8 density  of the last step, IEEE double; 0: none yet
 *       40    4 threshold carried to the next selection, a key; 0: none
 *       44    4 rank
 *       48    4 n_ranks
 *       52    4 block    bytes of a data block: 65536
 *       56    8 values   floats that follow: count, or 0 for algorithms without a residual
 *       64   24 algo     name, padded with zeros
 *       88   36 zeros    reserved
 *      124    4 crc      CRC-32C of bytes 0-123
 *
 * then the residual in blocks (the last one shorter), each with its CRC-32C (4 bytes) behind it.
 *
 * Saving: a file of another name in the same directory, written, fsync'ed, renamed over the
 * old one, the directory fsync'ed. Whatever fails before the rename leaves the old file,
 * and removes the new one. Restoring: everything is read and checked, the values into the
 * shadow, before residual and shadow are exchanged. Failures name the path, what was found
 * and what was expected.
 */
#include <context.h>
#include <errno.h>
#include <fcntl.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exchange.h"

#define HEADER_BYTES 128u
#define CRC_AT 124u
#define FORMAT_VERSION 1u
#define BLOCK_BYTES 65536u
#define BLOCK_FLOATS (BLOCK_BYTES / 4)
#define ALGO_BYTES 24u

static const char magic[8] = {'S', 'P', 'R', 'X', 'C', 'H', 'G', '\n'};

/* The header, unpacked. */
struct header {
	uint64_t count, step, values;
	double density;
	uint32_t threshold, rank, n_ranks;
	char algo[ALGO_BYTES];
};

static void explain(struct spr_exchange *exchange, const char *doing, const char *path,
		    const struct spri_text *why, int r)
{
	struct spr_context *context = exchange->comm->context;
	const struct spri_log *before = spri_context_enter(context);

	spri_text_set(&context->text, "exchange: %s %.200s: %.160s", doing, path,
		      why->s[0] ? why->s : spr_strerror(r));
	spri_logf(SPR_LOG_ERROR, "%s", context->text.s);
	spri_context_leave(context, before);
}

/* ---- writing ---- */

static int write_all(int fd, const void *data, size_t n)
{
	const uint8_t *at = data;

	while (n > 0) {
		ssize_t done = write(fd, at, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

static void pack_header(const struct spr_exchange *exchange, uint8_t *p)
{
	uint64_t density;

	memset(p, 0, HEADER_BYTES);
	memcpy(&density, &exchange->stats.density, sizeof density);
	memcpy(p, magic, sizeof magic);
	spri_put_u32(p + 8, FORMAT_VERSION);
	spri_put_u32(p + 12, HEADER_BYTES);
	spri_put_u64(p + 16, exchange->n);
	spri_put_u64(p + 24, exchange->step);
	spri_put_u64(p + 32, density);
	spri_put_u32(p + 40, exchange->threshold);
	spri_put_u32(p + 44, exchange->comm->rank);
	spri_put_u32(p + 48, exchange->comm->n_ranks);
	spri_put_u32(p + 52, BLOCK_BYTES);
	spri_put_u64(p + 56, exchange->residual ? exchange->n : 0);
	memcpy(p + 64, exchange->algo->name, strnlen(exchange->algo->name, ALGO_BYTES - 1));
	spri_put_u32(p + CRC_AT, spri_crc32c(0, p, CRC_AT));
}

/* block: BLOCK_BYTES + 4 of scratch. */
static int write_file(const struct spr_exchange *exchange, int fd, uint8_t *block)
{
	uint64_t n = exchange->residual ? exchange->n : 0;
	int r;

	pack_header(exchange, block);
	r = write_all(fd, block, HEADER_BYTES);
	for (uint64_t first = 0; first < n && r == 0; first += BLOCK_FLOATS) {
		size_t floats = (size_t)spri_min_u64(n - first, BLOCK_FLOATS);

		for (size_t i = 0; i < floats; i++)
			spri_put_u32(block + 4 * i, spri_f32_bits(exchange->residual[first + i]));
		spri_put_u32(block + 4 * floats, spri_crc32c(0, block, 4 * floats));
		r = write_all(fd, block, 4 * floats + 4);
	}
	if (r == 0 && fsync(fd) != 0)
		r = -errno;
	return r;
}

/* The directory of a path, opened, and the last part of the path. */
static int open_directory(const char *path, const char **base)
{
	const char *slash = strrchr(path, '/');
	char *directory;
	int fd, r = 0;

	*base = slash ? slash + 1 : path;
	if (!**base)
		return -EISDIR;
	directory = spri_strdup(slash ? path : ".");
	if (!directory)
		return -ENOMEM;
	if (slash)
		directory[slash == path ? 1 : slash - path] = '\0';
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : fd;
	spri_free(directory);
	return r;
}

/* Writes beside base in the directory, then renames. */
static int replace_file(const struct spr_exchange *exchange, int directory, const char *base,
			uint8_t *block)
{
	struct stat there;
	uint64_t random;
	char name[40];
	int fd, r = spri_random_bytes(&random, sizeof random);

	if (r < 0)
		return r;
	if (fstatat(directory, base, &there, 0) == 0 && !S_ISREG(there.st_mode))
		return S_ISDIR(there.st_mode) ? -EISDIR : -EINVAL; /* a device is not replaced */
	snprintf(name, sizeof name, ".sprxchg-%016llx", (unsigned long long)random);
	fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	r = write_file(exchange, fd, block);
	if (close(fd) != 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(directory, name, directory, base) != 0)
		r = -errno;
	if (r < 0) {
		unlinkat(directory, name, 0);
		return r;
	}
	/* Some file systems cannot sync a directory and say EINVAL. */
	return fsync(directory) != 0 && errno != EINVAL ? -errno : 0;
}

static int save(const struct spr_exchange *exchange, const char *path)
{
	uint8_t *block = spri_alloc(BLOCK_BYTES + 4);
	const char *base;
	int directory, r;

	if (!block)
		return -ENOMEM;
	directory = open_directory(path, &base);
	r = directory;
	if (directory >= 0) {
		r = replace_file(exchange, directory, base, block);
		close(directory);
	}
	spri_free(block);
	return r;
}

int spr_exchange_save(const struct spr_exchange *exchange, const char *path)
{
	/* Only the state changes meanwhile, so that no step starts. */
	struct spr_exchange *own = (struct spr_exchange *)(uintptr_t)exchange;
	struct spri_text why = {""};
	int r;

	if (!exchange || !path || !*path)
		return SPR_EARGUMENT;
	r = spri_exchange_claim(own);
	if (r < 0)
		return r;
	r = save(exchange, path);
	spri_exchange_release(own);
	if (r < 0)
		explain(own, "saving", path, &why, r);
	return spri_trace(r);
}

/* ---- reading ---- */

/* Reads up to n bytes, fewer at the end of the file. Returns their number, or negative. */
static ssize_t read_some(int fd, void *data, size_t n)
{
	uint8_t *at = data;
	size_t got = 0;

	while (got < n) {
		ssize_t done = read(fd, at + got, n - got);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		if (done == 0)
			break;
		got += (size_t)done;
	}
	return (ssize_t)got;
}

static int unpack_header(const uint8_t *p, struct header *h, struct spri_text *why)
{
	uint64_t density;

	if (memcmp(p, magic, sizeof magic) != 0) {
		spri_text_set(why, "is no saved exchange: it does not begin with SPRXCHG");
		return SPR_EFORMAT;
	}
	if (spri_get_u32(p + 8) != FORMAT_VERSION) {
		spri_text_set(why, "has version %u of the format, expected %u", spri_get_u32(p + 8),
			      FORMAT_VERSION);
		return SPR_EFORMAT;
	}
	if (spri_get_u32(p + CRC_AT) != spri_crc32c(0, p, CRC_AT)) {
		spri_text_set(why, "its header is damaged: the checksum is %08x, expected %08x",
			      spri_crc32c(0, p, CRC_AT), spri_get_u32(p + CRC_AT));
		return SPR_EFORMAT;
	}
	h->count = spri_get_u64(p + 16);
	h->step = spri_get_u64(p + 24);
	density = spri_get_u64(p + 32);
	memcpy(&h->density, &density, sizeof density);
	h->threshold = spri_get_u32(p + 40);
	h->rank = spri_get_u32(p + 44);
	h->n_ranks = spri_get_u32(p + 48);
	h->values = spri_get_u64(p + 56);
	memcpy(h->algo, p + 64, ALGO_BYTES);
	h->algo[ALGO_BYTES - 1] = '\0';
	/* Sound by its checksum, and yet not what version 1 writes. */
	if (spri_get_u32(p + 12) != HEADER_BYTES || spri_get_u32(p + 52) != BLOCK_BYTES ||
	    h->threshold > 0x7fffffffu || (h->values != 0 && h->values != h->count)) {
		spri_text_set(why,
			      "its header makes no sense: header %u, block %u, values %llu of %llu",
			      spri_get_u32(p + 12), spri_get_u32(p + 52),
			      (unsigned long long)h->values, (unsigned long long)h->count);
		return SPR_EFORMAT;
	}
	return 0;
}

/* It is this exchange's. */
static int match(const struct spr_exchange *exchange, const struct header *h, struct spri_text *why)
{
	uint64_t values = exchange->residual ? exchange->n : 0;

	if (h->count != exchange->n)
		spri_text_set(why, "has count %llu, expected %llu", (unsigned long long)h->count,
			      (unsigned long long)exchange->n);
	else if (strcmp(h->algo, exchange->algo->name) != 0 || h->values != values)
		spri_text_set(why, "has algorithm '%s', expected '%s'", h->algo,
			      exchange->algo->name);
	else if (h->n_ranks != exchange->comm->n_ranks)
		spri_text_set(why, "is of %u ranks, expected %u", h->n_ranks,
			      exchange->comm->n_ranks);
	else if (h->rank != exchange->comm->rank)
		spri_text_set(why, "is of rank %u, expected rank %u", h->rank,
			      exchange->comm->rank);
	else
		return 0;
	return SPR_EMISMATCH;
}

static int check_length(int fd, uint64_t values, struct spri_text *why)
{
	uint64_t blocks = (values + BLOCK_FLOATS - 1) / BLOCK_FLOATS;
	uint64_t expected = HEADER_BYTES + 4 * values + 4 * blocks;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -errno;
	if ((uint64_t)st.st_size == expected)
		return 0;
	spri_text_set(why, "has %llu bytes, expected %llu%s", (unsigned long long)st.st_size,
		      (unsigned long long)expected,
		      (uint64_t)st.st_size < expected ? ": it is cut" : "");
	return SPR_EFORMAT;
}

/* The values into the shadow, each block checked. */
static int read_values(struct spr_exchange *exchange, int fd, uint8_t *block, struct spri_text *why)
{
	uint64_t n = exchange->residual ? exchange->n : 0;

	for (uint64_t first = 0; first < n; first += BLOCK_FLOATS) {
		size_t floats = (size_t)spri_min_u64(n - first, BLOCK_FLOATS);
		ssize_t got = read_some(fd, block, 4 * floats + 4);
		uint32_t crc;

		if (got < 0)
			return (int)got;
		if ((size_t)got != 4 * floats + 4) {
			spri_text_set(why, "ends in block %llu: it is cut",
				      (unsigned long long)(first / BLOCK_FLOATS));
			return SPR_EFORMAT;
		}
		crc = spri_crc32c(0, block, 4 * floats);
		if (crc != spri_get_u32(block + 4 * floats)) {
			spri_text_set(why,
				      "block %llu is damaged: the checksum is %08x, expected %08x",
				      (unsigned long long)(first / BLOCK_FLOATS), crc,
				      spri_get_u32(block + 4 * floats));
			return SPR_EFORMAT;
		}
		for (size_t i = 0; i < floats; i++)
			exchange->shadow[first + i] =
				spri_f32_from_bits(spri_get_u32(block + 4 * i));
	}
	return 0;
}

static int read_file(struct spr_exchange *exchange, int fd, uint8_t *block, struct spri_text *why)
{
	struct header h;
	ssize_t got = read_some(fd, block, HEADER_BYTES);
	float *before = exchange->residual;
	int r;

	if (got < 0)
		return (int)got;
	if ((size_t)got < HEADER_BYTES) {
		spri_text_set(why, "has %zd bytes, expected a header of %u: it is cut", got,
			      HEADER_BYTES);
		return SPR_EFORMAT;
	}
	r = unpack_header(block, &h, why);
	if (r == 0)
		r = match(exchange, &h, why);
	if (r == 0)
		r = check_length(fd, h.values, why);
	if (r == 0)
		r = read_values(exchange, fd, block, why);
	if (r < 0)
		return r;
	exchange->residual = exchange->shadow;
	exchange->shadow = before;
	exchange->threshold = h.threshold;
	exchange->step = h.step;
	exchange->has_sum = false;
	exchange->stats = (struct spr_exchange_stats){.step = h.step, .density = h.density};
	return 0;
}

static int restore(struct spr_exchange *exchange, const char *path, struct spri_text *why)
{
	uint8_t *block = spri_alloc(BLOCK_BYTES + 4);
	int fd, r;

	if (!block)
		return -ENOMEM;
	/* Not blocked by a pipe that somebody put there. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	r = fd < 0 ? -errno : 0;
	if (fd >= 0) {
		r = read_file(exchange, fd, block, why);
		close(fd);
	}
	spri_free(block);
	return r;
}

int spr_exchange_restore(struct spr_exchange *exchange, const char *path)
{
	struct spri_text why = {""};
	int r;

	if (!exchange || !path || !*path)
		return SPR_EARGUMENT;
	r = spri_exchange_claim(exchange);
	if (r < 0)
		return r;
	r = restore(exchange, path, &why);
	spri_exchange_release(exchange);
	if (r < 0)
		explain(exchange, "restoring", path, &why, r);
	return spri_trace(r);
}
