/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Saving and restoring an exchange; the format is in docs/wire.md, "Saved exchange":
 *
 *   offset size name
 *        0    8 magic    "SPRXCHG\n"
 *        8    4 version  2
 *       12    4 header   bytes of the header: 128
 *       16    8 count    parameters
 *       24    8 step     steps committed
 *       32    8 density  of the last step, IEEE double; 0: none yet
 *       40    4 vectors  that follow: 1 residual, 2 velocity, added
 *       44    4 rank
 *       48    4 n_ranks
 *       52    4 block    bytes of a data block: 65536
 *       56    8 parts    in the table that follows
 *       64   24 algo     name, padded with zeros
 *       88   36 zeros    reserved
 *      124    4 crc      CRC-32C of bytes 0-123
 *
 * then the table, 48 bytes for each part and a CRC-32C of all of it behind it:
 *
 *        0    8 offset   of the part
 *        8    8 count    its elements
 *       16    4 threshold carried to the next selection, a key; 0: none
 *       20    4 zeros
 *       24    8 ratio    \
 *       32    8 factor    of iwp_ring, IEEE doubles; 0: none yet
 *       40    8 rms      /
 *
 * then the vectors, residual first, each in blocks of 65536 bytes (the last one shorter) with a
 * CRC-32C (4 bytes) behind each, which covers the vector's bit (4 bytes) and the block's number (4
 * bytes), too, so that no block can stand in for another.
 *
 * Saving replaces the file as a whole (internal/file.h). Restoring: everything is read and checked,
 * the values into the shadows, before vectors and shadows are exchanged. Failures name the path,
 * what was found and what was expected.
 */
#include <context.h>
#include <errno.h>
#include <fcntl.h>
#include <internal/alloc.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <internal/file.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exchange.h"

#define HEADER_BYTES 128u
#define CRC_AT 124u
#define FORMAT_VERSION 2u
#define BLOCK_BYTES 65536u
#define BLOCK_FLOATS (BLOCK_BYTES / 4)
#define ALGO_BYTES 24u
#define PART_BYTES 48u

enum { RESIDUAL = 1, VELOCITY = 2 }; /* vectors */

static const char magic[8] = {'S', 'P', 'R', 'X', 'C', 'H', 'G', '\n'};

/* The header, unpacked. */
struct header {
	uint64_t count, step, n_parts;
	double density;
	uint32_t vectors, rank, n_ranks;
	char algo[ALGO_BYTES];
};

/* What the table says of a part. */
struct part_restored {
	uint32_t threshold;
	struct exchange_steering steering;
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

static uint64_t double_bits(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof bits);
	return bits;
}

static double double_of(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof v);
	return v;
}

static uint32_t vectors_of(const struct spr_exchange *exchange)
{
	return (exchange->residual ? RESIDUAL : 0u) | (exchange->velocity ? VELOCITY : 0u);
}

static void pack_header(const struct spr_exchange *exchange, uint8_t *p)
{
	memset(p, 0, HEADER_BYTES);
	memcpy(p, magic, sizeof magic);
	spri_put_u32(p + 8, FORMAT_VERSION);
	spri_put_u32(p + 12, HEADER_BYTES);
	spri_put_u64(p + 16, exchange->n);
	spri_put_u64(p + 24, exchange->step);
	spri_put_u64(p + 32, double_bits(exchange->stats.density));
	spri_put_u32(p + 40, vectors_of(exchange));
	spri_put_u32(p + 44, exchange->comm->rank);
	spri_put_u32(p + 48, exchange->comm->n_ranks);
	spri_put_u32(p + 52, BLOCK_BYTES);
	spri_put_u64(p + 56, exchange->n_parts);
	memcpy(p + 64, exchange->algo->name, strnlen(exchange->algo->name, ALGO_BYTES - 1));
	spri_put_u32(p + CRC_AT, spri_crc32c(0, p, CRC_AT));
}

static void pack_part(const struct exchange_part *part, uint8_t *p)
{
	memset(p, 0, PART_BYTES);
	spri_put_u64(p, part->offset);
	spri_put_u64(p + 8, part->count);
	spri_put_u32(p + 16, part->threshold);
	spri_put_u64(p + 24, double_bits(part->steering.ratio));
	spri_put_u64(p + 32, double_bits(part->steering.factor));
	spri_put_u64(p + 40, double_bits(part->steering.rms));
}

static int write_parts(const struct spr_exchange *exchange, int fd)
{
	uint8_t p[PART_BYTES];
	uint32_t crc = 0;
	int r = 0;

	for (size_t i = 0; i < exchange->n_parts && r == 0; i++) {
		pack_part(&exchange->parts[i], p);
		crc = spri_crc32c(crc, p, PART_BYTES);
		r = spri_file_write(fd, p, PART_BYTES);
	}
	spri_put_u32(p, crc);
	return r == 0 ? spri_file_write(fd, p, 4) : r;
}

/* What is saved, and scratch of a block: its values, and BLOCK_BYTES + 4. */
struct saving {
	const struct spr_exchange *exchange;
	float *values;
	uint8_t *block;
};

/* What a block's checksum begins with. */
static uint32_t block_crc(uint32_t vector, uint64_t number, const uint8_t *block, size_t bytes)
{
	uint8_t place[8];

	spri_put_u32(place, vector);
	spri_put_u32(place + 4, (uint32_t)number);
	return spri_crc32c(spri_crc32c(0, place, sizeof place), block, bytes);
}

static int write_vector(const struct saving *saving, const float *v, uint32_t vector, int fd)
{
	uint64_t n = saving->exchange->n;
	uint8_t *block = saving->block;
	int r = 0;

	for (uint64_t first = 0; first < n && r == 0; first += BLOCK_FLOATS) {
		size_t floats = (size_t)spri_min_u64(n - first, BLOCK_FLOATS);

		r = saving->exchange->place->copy(saving->exchange, saving->values, v + first,
						  floats);
		if (r < 0)
			break;
		for (size_t i = 0; i < floats; i++)
			spri_put_u32(block + 4 * i, spri_f32_bits(saving->values[i]));
		spri_put_u32(block + 4 * floats,
			     block_crc(vector, first / BLOCK_FLOATS, block, 4 * floats));
		r = spri_file_write(fd, block, 4 * floats + 4);
	}
	return spri_trace(r);
}

static int write_file(int fd, void *arg)
{
	const struct saving *saving = arg;
	const struct spr_exchange *exchange = saving->exchange;
	uint8_t *block = saving->block;
	int r;

	pack_header(exchange, block);
	r = spri_file_write(fd, block, HEADER_BYTES);
	if (r == 0)
		r = write_parts(exchange, fd);
	if (r == 0 && exchange->residual)
		r = write_vector(saving, exchange->residual, RESIDUAL, fd);
	if (r == 0 && exchange->velocity)
		r = write_vector(saving, exchange->velocity, VELOCITY, fd);
	return r;
}

static int save(const struct spr_exchange *exchange, const char *path)
{
	struct saving saving = {exchange, spri_alloc(2 * BLOCK_BYTES + 4), NULL};
	const char *base;
	int directory, r;

	if (!saving.values)
		return -ENOMEM;
	saving.block = (uint8_t *)saving.values + BLOCK_BYTES;
	directory = spri_file_directory(path, &base);
	r = directory;
	if (directory >= 0) {
		r = spri_file_replace(directory, base, write_file, &saving);
		close(directory);
	}
	spri_free(saving.values);
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
	h->density = double_of(spri_get_u64(p + 32));
	h->vectors = spri_get_u32(p + 40);
	h->rank = spri_get_u32(p + 44);
	h->n_ranks = spri_get_u32(p + 48);
	h->n_parts = spri_get_u64(p + 56);
	memcpy(h->algo, p + 64, ALGO_BYTES);
	h->algo[ALGO_BYTES - 1] = '\0';
	/* Sound by its checksum, and yet not what version 2 writes. */
	if (spri_get_u32(p + 12) != HEADER_BYTES || spri_get_u32(p + 52) != BLOCK_BYTES ||
	    h->vectors > (RESIDUAL | VELOCITY)) {
		spri_text_set(why, "its header makes no sense: header %u, block %u, vectors %u",
			      spri_get_u32(p + 12), spri_get_u32(p + 52), h->vectors);
		return SPR_EFORMAT;
	}
	return 0;
}

/* It is this exchange's. */
static int match(const struct spr_exchange *exchange, const struct header *h, struct spri_text *why)
{
	if (h->count != exchange->n)
		spri_text_set(why, "has count %llu, expected %llu", (unsigned long long)h->count,
			      (unsigned long long)exchange->n);
	else if (strcmp(h->algo, exchange->algo->name) != 0)
		spri_text_set(why, "has algorithm '%s', expected '%s'", h->algo,
			      exchange->algo->name);
	else if (h->vectors != vectors_of(exchange))
		spri_text_set(why, "is of an exchange %s momentum, expected one %s",
			      h->vectors & VELOCITY ? "with" : "without",
			      exchange->velocity ? "with" : "without");
	else if (h->n_parts != exchange->n_parts)
		spri_text_set(why, "has %llu parts, expected %zu: the layers differ",
			      (unsigned long long)h->n_parts, exchange->n_parts);
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

static int check_length(const struct spr_exchange *exchange, int fd, struct spri_text *why)
{
	uint64_t n = exchange->n, blocks = (n + BLOCK_FLOATS - 1) / BLOCK_FLOATS;
	uint64_t vectors = (exchange->residual ? 1 : 0) + (exchange->velocity ? 1 : 0);
	uint64_t expected =
		HEADER_BYTES + PART_BYTES * exchange->n_parts + 4 + vectors * (4 * n + 4 * blocks);
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

/* Reads exactly n bytes. */
static int read_all(int fd, void *data, size_t n, const char *what, struct spri_text *why)
{
	ssize_t got = read_some(fd, data, n);

	if (got < 0)
		return (int)got;
	if ((size_t)got == n)
		return 0;
	spri_text_set(why, "ends in %s: it is cut", what);
	return SPR_EFORMAT;
}

static bool sound(const struct exchange_steering *s)
{
	return s->ratio >= 0 && s->factor >= 0 && s->rms >= 0 && isfinite(s->ratio) &&
	       isfinite(s->factor) && isfinite(s->rms);
}

/* One part of the table. */
static int unpack_part(const struct exchange_part *part, const uint8_t *p,
		       struct part_restored *out, struct spri_text *why)
{
	uint64_t offset = spri_get_u64(p), count = spri_get_u64(p + 8);

	out->threshold = spri_get_u32(p + 16);
	out->steering.ratio = double_of(spri_get_u64(p + 24));
	out->steering.factor = double_of(spri_get_u64(p + 32));
	out->steering.rms = double_of(spri_get_u64(p + 40));
	if (offset != part->offset || count != part->count) {
		spri_text_set(why, "has a part at element %llu of %llu, expected %llu of %llu",
			      (unsigned long long)offset, (unsigned long long)count,
			      (unsigned long long)part->offset, (unsigned long long)part->count);
		return SPR_EMISMATCH;
	}
	if (out->threshold > 0x7fffffffu || !sound(&out->steering)) {
		spri_text_set(why, "its part at element %llu makes no sense: threshold %#x",
			      (unsigned long long)offset, out->threshold);
		return SPR_EFORMAT;
	}
	return 0;
}

/* The table into parts, which has room for all; its checksum is looked at first. */
static int read_parts(const struct spr_exchange *exchange, int fd, struct part_restored *parts,
		      struct spri_text *why)
{
	size_t bytes = PART_BYTES * exchange->n_parts;
	uint8_t *table = spri_alloc(bytes + 4);
	uint32_t crc;
	int r = table ? read_all(fd, table, bytes + 4, "the table of parts", why) : -ENOMEM;

	if (r == 0) {
		crc = spri_crc32c(0, table, bytes);
		if (crc != spri_get_u32(table + bytes)) {
			spri_text_set(why,
				      "its table of parts is damaged: the checksum is %08x, "
				      "expected %08x",
				      crc, spri_get_u32(table + bytes));
			r = SPR_EFORMAT;
		}
	}
	for (size_t i = 0; i < exchange->n_parts && r == 0; i++)
		r = unpack_part(&exchange->parts[i], table + PART_BYTES * i, &parts[i], why);
	spri_free(table);
	return r;
}

/* The values of a vector, each block checked; block: 2 BLOCK_BYTES + 4 of scratch. */
static int read_vector(struct spr_exchange *exchange, float *v, int fd, uint8_t *block,
		       struct spri_text *why)
{
	uint32_t vector = v == exchange->shadow ? RESIDUAL : VELOCITY;
	const char *name = vector == RESIDUAL ? "the residual" : "the velocity";
	float *values = (float *)(void *)(block + BLOCK_BYTES + 4);
	uint64_t n = exchange->n;

	for (uint64_t first = 0; first < n; first += BLOCK_FLOATS) {
		size_t floats = (size_t)spri_min_u64(n - first, BLOCK_FLOATS);
		uint64_t number = first / BLOCK_FLOATS;
		uint32_t crc;
		int r = read_all(fd, block, 4 * floats + 4, name, why);

		if (r < 0)
			return r;
		crc = block_crc(vector, number, block, 4 * floats);
		if (crc != spri_get_u32(block + 4 * floats)) {
			spri_text_set(why,
				      "block %llu of %s is damaged: the checksum is %08x, expected "
				      "%08x",
				      (unsigned long long)number, name, crc,
				      spri_get_u32(block + 4 * floats));
			return SPR_EFORMAT;
		}
		for (size_t i = 0; i < floats; i++)
			values[i] = spri_f32_from_bits(spri_get_u32(block + 4 * i));
		r = exchange->place->copy(exchange, v + first, values, floats);
		if (r < 0)
			return spri_trace(r);
	}
	return 0;
}

/* Everything was read and checked. */
static void take_over(struct spr_exchange *exchange, const struct header *h,
		      const struct part_restored *parts)
{
	float *residual = exchange->residual, *velocity = exchange->velocity;

	exchange->residual = exchange->shadow;
	exchange->shadow = residual;
	exchange->velocity = exchange->velocity_shadow;
	exchange->velocity_shadow = velocity;
	for (size_t i = 0; i < exchange->n_parts; i++) {
		exchange->parts[i].threshold = parts[i].threshold;
		exchange->parts[i].last_cut = 0;
		exchange->parts[i].rise = 0;
		exchange->parts[i].steering = parts[i].steering;
	}
	exchange->step = h->step;
	exchange->has_sum = false;
	exchange->has_committed = false;
	exchange->sent_squares = 0;
	exchange->stats = (struct spr_exchange_stats){.step = h->step, .density = h->density};
}

static int read_file(struct spr_exchange *exchange, int fd, uint8_t *block,
		     struct part_restored *parts, struct spri_text *why)
{
	struct header h;
	ssize_t got = read_some(fd, block, HEADER_BYTES);
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
		r = check_length(exchange, fd, why);
	if (r == 0)
		r = read_parts(exchange, fd, parts, why);
	if (r == 0 && exchange->residual)
		r = read_vector(exchange, exchange->shadow, fd, block, why);
	if (r == 0 && exchange->velocity)
		r = read_vector(exchange, exchange->velocity_shadow, fd, block, why);
	if (r == 0)
		take_over(exchange, &h, parts);
	return r;
}

static int restore(struct spr_exchange *exchange, const char *path, struct spri_text *why)
{
	struct part_restored *parts = spri_calloc(exchange->n_parts, sizeof *parts);
	uint8_t *block = spri_alloc(2 * BLOCK_BYTES + 4);
	int fd, r = -ENOMEM;

	if (!block || !parts)
		goto free_scratch;
	/* Not blocked by a pipe that somebody put there. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	r = fd < 0 ? -errno : 0;
	if (fd >= 0) {
		r = read_file(exchange, fd, block, parts, why);
		close(fd);
	}
free_scratch:
	spri_free(parts);
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
