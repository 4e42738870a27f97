/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Indices in few bits (packed, gaps, bitmap): recorded bytes, a reference that writes bit by bit
 * and tries every parameter, the exact length of what fits, and everything that a peer can make of
 * a payload.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>
#include <codec/codec.h>
#include <internal/bits.h>
#include <internal/philox.h>
#include <sparring/types.h>

enum { MOST = 3000, ROOM = 65536 - SPRI_CHUNK_HEADER };

static const struct spri_codec *codec(uint8_t id)
{
	const struct spri_codec *row = spri_codec_find(id);

	cr_assert(row, "codec %u exists", id);
	return row;
}

/* ---- lists ---- */

enum kind { DENSE, SIXTY_FOURTH, THOUSANDTH, OUTLIERS, TWO_SIZES, ANY_SIZE, HUGE_GAPS, KINDS };

static double uniform(uint64_t key, uint64_t i)
{
	return ((double)(spri_philox(key, i) >> 11) + 0.5) * 0x1p-53;
}

static uint64_t geometric(double density, uint64_t key, uint64_t i)
{
	return (uint64_t)floor(log(uniform(key, i)) / log1p(-density));
}

static uint64_t draw_gap(enum kind kind, uint64_t key, uint64_t i)
{
	uint64_t r = spri_philox(key + 7, i);

	switch (kind) {
	case DENSE:
		return r % 8 == 0;
	case SIXTY_FOURTH:
		return geometric(1.0 / 64, key, i);
	case THOUSANDTH:
		return geometric(0.001, key, i);
	case OUTLIERS:
		return r % 50 ? r >> 32 & 31 : r >> 40;
	case TWO_SIZES:
		return (r & 1 ? r >> 60 : r >> 40) >> (key % 20);
	case ANY_SIZE:
		return r >> (28 + r % 36);
	default:
		return (r >> 24) % ((uint64_t)1 << 36);
	}
}

/* n ascending indices below SPR_MAX_COUNT. */
static void draw(uint64_t *index, uint32_t n, enum kind kind, uint64_t key)
{
	uint64_t at = spri_philox(key, 1u << 30) % 1000;

	for (uint32_t i = 0; i < n; i++) {
		index[i] = at;
		at += 1 + draw_gap(kind, key, i);
	}
	cr_assert_lt(index[n - 1], SPR_MAX_COUNT, "the test's own indices are in range");
}

/* ---- the reference ---- */

struct bits {
	uint8_t *bytes;
	uint64_t n;
};

static void put_bit(struct bits *b, unsigned bit)
{
	if (b->n % 8 == 0)
		b->bytes[b->n / 8] = 0;
	b->bytes[b->n / 8] |= (uint8_t)(bit << b->n % 8);
	b->n++;
}

static void put_number(struct bits *b, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		put_bit(b, v >> i & 1);
}

static uint64_t code_bits(uint64_t gap, unsigned parameter)
{
	uint64_t q = gap >> parameter;

	return q < 24 ? 1 + q + parameter : 72;
}

static void put_code(struct bits *b, uint64_t gap, unsigned parameter)
{
	uint64_t q = gap >> parameter;

	for (uint64_t i = 0; i < q && i < 24; i++)
		put_bit(b, 0);
	if (q < 24) {
		put_bit(b, 1);
		put_number(b, gap, parameter);
	} else {
		put_number(b, gap, 48);
	}
}

/* The section by the words of docs/wire.md. */
static uint32_t reference(uint8_t *out, const uint64_t *index, uint32_t n)
{
	struct bits b = {out, 0};

	for (uint32_t at = 1; at < n; at += 256) {
		uint32_t end = at + 256 < n ? at + 256 : n;
		uint64_t best = UINT64_MAX;
		unsigned parameter = 0;

		for (unsigned p = 0; p < 48; p++) {
			uint64_t sum = 0;

			for (uint32_t i = at; i < end; i++)
				sum += code_bits(index[i] - index[i - 1] - 1, p);
			if (sum < best) {
				best = sum;
				parameter = p;
			}
		}
		put_number(&b, parameter, 8);
		for (uint32_t i = at; i < end; i++)
			put_code(&b, index[i] - index[i - 1] - 1, parameter);
		while (b.n % 8)
			put_bit(&b, 0);
	}
	return (uint32_t)(b.n / 8);
}

Test(codec_gaps, payloads_have_the_recorded_bytes)
{
	/* gaps 1, 0, 2, 5, 2^32 */
	static const uint64_t index[] = {0x123456789abc, 0x123456789abe, 0x123456789abf,
					 0x123456789ac2, 0x123456789ac8, 0x123556789ac9};
	static const float value[] = {1.0f, -2.5f, 0.0009765625f, 65504.0f, 0x1p-24f, -0.0f};
	/* b = 1: 1 1, 1 0, 0 1 0, 0 0 1 1, 24 zeros and 48 bits */
	static const uint8_t gaps[] = {1, 0x27, 0x06, 0, 0, 0, 0, 0, 0, 8, 0, 0};
	static const uint8_t halves[] = {0x00, 0x3c, 0x00, 0xc1, 0x00, 0x14,
					 0xff, 0x7b, 0x01, 0x00, 0x00, 0x80};
	static const uint8_t bitmap[] = {0x4d, 0x10};
	uint8_t got[64];
	uint32_t n = codec(SPRI_CODEC_GAPS)->encode(got, index, NULL, 6, 0);

	cr_assert_eq(n, sizeof gaps, "gaps: expected %zu bytes, got %u", sizeof gaps, n);
	cr_assert_arr_eq(got, gaps, sizeof gaps, "gaps: the recorded bytes");
	n = codec(SPRI_CODEC_PACKED)->encode(got, index, value, 6, SPR_F16);
	cr_assert_eq(n, sizeof gaps + sizeof halves, "packed: got %u bytes", n);
	cr_assert_arr_eq(got, gaps, sizeof gaps, "packed: the gaps first");
	cr_assert_arr_eq(got + sizeof gaps, halves, sizeof halves, "packed: then the values");
	n = codec(SPRI_CODEC_BITMAP)->encode(got, index, NULL, 5, 0);
	cr_assert_eq(n, sizeof bitmap, "bitmap: got %u bytes", n);
	cr_assert_arr_eq(got, bitmap, sizeof bitmap, "bitmap: the recorded bytes");
}

Test(codec_gaps, the_best_parameter_of_each_block)
{
	static uint64_t index[MOST], back[MOST];
	static uint8_t want[10 * MOST], got[10 * MOST];

	for (uint64_t trial = 0; trial < 400; trial++) {
		enum kind kind = trial % KINDS;
		uint32_t n = 1 + (uint32_t)(spri_philox(3, trial) % (trial % 3 ? 600 : MOST));
		struct spri_chunk chunk = {.codec = SPRI_CODEC_GAPS, .count = n, .payload = got};
		uint32_t bytes;
		int r;

		draw(index, n, kind, trial);
		memset(got, 0xa5, sizeof got);
		bytes = reference(want, index, n);
		chunk.payload_bytes = codec(SPRI_CODEC_GAPS)->encode(got, index, NULL, n, 0);
		cr_assert_eq(chunk.payload_bytes, bytes, "trial %llu: expected %u bytes, got %u",
			     (unsigned long long)trial, bytes, chunk.payload_bytes);
		cr_assert_arr_eq(got, want, bytes, "trial %llu: the reference's bytes",
				 (unsigned long long)trial);
		for (uint32_t i = bytes; i < bytes + 64; i++)
			cr_assert_eq(got[i], 0xa5, "trial %llu: nothing behind them",
				     (unsigned long long)trial);
		cr_assert(bytes <= codec(SPRI_CODEC_GAPS)->bound(n, 0) &&
				  n <= codec(SPRI_CODEC_GAPS)->most(bytes, 0),
			  "trial %llu: within the bounds", (unsigned long long)trial);
		chunk.base = index[0];
		r = codec(SPRI_CODEC_GAPS)
			    ->decode(&chunk, back, NULL, SPRI_NO_INDEX, index[n - 1] + 1);
		cr_assert_eq(r, 0, "trial %llu: decodes, got %d", (unsigned long long)trial, r);
		cr_assert_arr_eq(back, index, n * sizeof *index, "trial %llu: comes back",
				 (unsigned long long)trial);
	}
}

/* Every distance that there can be, and one more is refused. */
Test(codec_gaps, the_widest_gaps)
{
	for (unsigned shift = 0; shift < 48; shift++)
		for (unsigned neighbours = 0; neighbours < 40; neighbours += 13) {
			uint64_t index[64], back[64], last = ((uint64_t)1 << shift) - 1;
			uint8_t payload[600];
			uint32_t n = 0;
			struct spri_chunk chunk = {.payload = payload};

			index[n++] = 0;
			for (; n < neighbours && n < last; n++)
				index[n] = n;
			if (last > index[n - 1])
				index[n++] = last;
			index[n++] = SPR_MAX_COUNT - 1;
			chunk.count = n;
			chunk.payload_bytes =
				codec(SPRI_CODEC_GAPS)->encode(payload, index, NULL, n, 0);
			cr_assert_eq(
				codec(SPRI_CODEC_GAPS)
					->decode(&chunk, back, NULL, SPRI_NO_INDEX, SPR_MAX_COUNT),
				0, "a gap up to 2^48 - 1 decodes");
			cr_assert_arr_eq(back, index, n * sizeof *index, "and comes back");
			cr_assert_eq(codec(SPRI_CODEC_GAPS)
					     ->decode(&chunk, back, NULL, SPRI_NO_INDEX,
						      SPR_MAX_COUNT - 1),
				     SPR_EPROTOCOL, "an index that is the length is refused");
			chunk.base = 1;
			cr_assert_eq(
				codec(SPRI_CODEC_GAPS)
					->decode(&chunk, back, NULL, SPRI_NO_INDEX, UINT64_MAX),
				SPR_EPROTOCOL, "nothing is above 2^48 - 1");
		}
}

/* ---- how many bits ---- */

/* Bits per index of a mask of a density, in chunks of `room` bytes. */
static double bits_per_index(double density, size_t room)
{
	enum { N = 200000 };
	uint64_t *index = malloc(N * sizeof *index), at = 0, bytes = 0;
	static uint8_t payload[ROOM];

	for (uint32_t i = 0; i < N; i++) {
		at += 1 + geometric(density, 11, i);
		index[i] = at;
	}
	for (uint32_t i = 0; i < N;) {
		uint32_t n = codec(SPRI_CODEC_GAPS)->fit(index + i, N - i, room, 0);

		bytes += codec(SPRI_CODEC_GAPS)->encode(payload, index + i, NULL, n, 0);
		i += n;
	}
	free(index);
	return 8.0 * (double)bytes / N;
}

Test(codec_gaps, indices_take_few_bits)
{
	static const double densities[] = {0.5, 0.1, 1.0 / 64, 0.001, 1e-5};

	for (unsigned i = 0; i < sizeof densities / sizeof *densities; i++) {
		double p = densities[i], q = 1 - p;
		double entropy = -(p * log2(p) + q * log2(q)) / p;
		double large = bits_per_index(p, ROOM), small = bits_per_index(p, 960);

		cr_assert_leq(large, entropy + 0.15, "density %g: %.3f bits, entropy %.3f", p,
			      large, entropy);
		cr_assert_leq(small, entropy + 0.35, "density %g, small chunks: %.3f bits", p,
			      small);
	}
	cr_assert_leq(bits_per_index(1.0 / 64, ROOM), 7.60, "7.43 would be the least at 1/64");
	cr_assert_leq(bits_per_index(0.001, ROOM), 11.57, "11.41 would be the least at 0.001");
}

/* ---- what fits ---- */

static void check_fit(const struct spri_codec *row, const uint64_t *index, uint32_t n,
		      enum spr_dtype dtype, uint64_t trial)
{
	static uint8_t payload[14 * MOST];
	static float value[MOST];
	uint32_t before = 0, last = 0;

	for (uint32_t m = 1; m <= n; m++) {
		uint32_t bytes = row->encode(payload, index, value, m, dtype);

		cr_assert_geq(bytes, before, "%s, trial %llu: an entry more, no byte less",
			      row->name, (unsigned long long)trial);
		/* all rooms from the size of the prefix before on, to below that of this one */
		for (uint32_t room = before; m > 1 && room < bytes; room++) {
			uint32_t fits = row->fit(index, n, room, dtype);

			cr_assert_eq(fits, m - 1, "%s, trial %llu: %u fit %u bytes, got %u",
				     row->name, (unsigned long long)trial, m - 1, room, fits);
		}
		before = bytes;
		last = row->fit(index, m, bytes, dtype);
		cr_assert_eq(last, m, "%s, trial %llu: %u fit %u bytes, got %u", row->name,
			     (unsigned long long)trial, m, bytes, last);
		cr_assert_leq(m, row->most(bytes, dtype), "%s: within the most", row->name);
	}
}

Test(codec_gaps, the_longest_prefix_fits)
{
	static uint64_t index[MOST];

	for (uint64_t trial = 0; trial < 14; trial++) {
		draw(index, 600, trial % KINDS, trial);
		check_fit(codec(SPRI_CODEC_GAPS), index, 600, 0, trial);
		check_fit(codec(SPRI_CODEC_PACKED), index, 300, trial % 3, trial);
		if (trial % KINDS == DENSE || trial % KINDS == SIXTY_FOURTH)
			check_fit(codec(SPRI_CODEC_BITMAP), index, 600, 0, trial);
	}
}

/* ---- what a peer can make of it ---- */

static const uint8_t rows[] = {SPRI_CODEC_GAPS, SPRI_CODEC_PACKED, SPRI_CODEC_BITMAP};

/* A chunk in memory of its own size, so that address sanitizer sees what is read behind it. */
struct sample {
	struct spri_chunk chunk;
	uint8_t *payload;
	uint64_t *index;
	float *value;
	uint64_t length;
};

static struct sample make(uint8_t id, enum kind kind, uint32_t n, uint64_t key)
{
	struct sample s = {.index = malloc(n * sizeof(uint64_t)),
			   .value = calloc(n, sizeof(float))};
	static uint8_t payload[ROOM];

	draw(s.index, n, kind, key);
	s.length = s.index[n - 1] + 1;
	s.chunk = (struct spri_chunk){.codec = id, .count = n, .base = s.index[0]};
	s.chunk.dtype = id == SPRI_CODEC_PACKED ? (uint8_t)(key % 3) : 0;
	s.chunk.payload_bytes =
		codec(id)->encode(payload, s.index, s.value, n, (enum spr_dtype)s.chunk.dtype);
	s.payload = malloc(s.chunk.payload_bytes);
	memcpy(s.payload, payload, s.chunk.payload_bytes);
	s.chunk.payload = s.payload;
	return s;
}

static void drop(struct sample *s)
{
	free(s->payload);
	free(s->index);
	free(s->value);
}

/* Decodes to arrays of exactly `count`; what is taken must be a valid list. */
static int decode(const struct spri_chunk *chunk, uint64_t length, const char *what)
{
	uint64_t *index = malloc(chunk->count * sizeof *index);
	float *value = malloc(chunk->count * sizeof *value);
	int r = codec(chunk->codec)->decode(chunk, index, value, SPRI_NO_INDEX, length);

	cr_assert(r == 0 || r == SPR_EPROTOCOL, "%s: 0 or EPROTOCOL, got %d", what, r);
	for (uint32_t i = 0; r == 0 && i < chunk->count; i++)
		cr_assert(index[i] < length &&
				  (i ? index[i] > index[i - 1] : index[i] == chunk->base),
			  "%s: a list that is taken is valid", what);
	free(index);
	free(value);
	return r;
}

Test(codec_gaps, every_other_length_is_refused)
{
	for (unsigned at = 0; at < 3; at++)
		for (uint64_t key = 0; key < 9; key++) {
			struct sample s = make(rows[at], key % 3, 300, key);
			uint32_t bytes = s.chunk.payload_bytes;

			cr_assert_eq(decode(&s.chunk, s.length, "whole"), 0, "whole");
			for (uint32_t n = 0; n < bytes; n++) {
				uint8_t *part = malloc(n);
				struct spri_chunk chunk = s.chunk;

				memcpy(part, s.payload, n);
				chunk.payload = part;
				chunk.payload_bytes = n;
				cr_assert_eq(decode(&chunk, s.length, "part"), SPR_EPROTOCOL,
					     "codec %u: %u bytes of %u are refused", rows[at], n,
					     bytes);
				free(part);
			}
			for (uint32_t n = 1; n < 20; n++) {
				uint8_t *more = calloc(1, bytes + n);
				struct spri_chunk chunk = s.chunk;

				memcpy(more, s.payload, bytes);
				chunk.payload = more;
				chunk.payload_bytes += n;
				cr_assert_eq(decode(&chunk, SPR_MAX_COUNT, "more"), SPR_EPROTOCOL,
					     "codec %u: %u bytes more are refused", rows[at], n);
				free(more);
			}
			drop(&s);
		}
}

/* Every flipped bit gives another valid list, or is refused. */
Test(codec_gaps, flipped_bits)
{
	for (unsigned at = 0; at < 3; at++)
		for (uint64_t key = 0; key < 7; key++) {
			enum kind kind = at == 2 ? key % 2 : key % KINDS;
			struct sample s = make(rows[at], kind, 280, key);

			for (uint32_t bit = 0; bit < 8 * s.chunk.payload_bytes; bit++) {
				s.payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
				(void)decode(&s.chunk, s.length, "flipped");
				s.payload[bit / 8] ^= (uint8_t)(1u << bit % 8);
			}
			for (uint32_t trial = 0; trial < 300; trial++) {
				uint64_t r = spri_philox(key, trial);
				uint32_t where = (uint32_t)(r >> 8) % s.chunk.payload_bytes;

				s.payload[where] = (uint8_t)r; /* and they add up */
				(void)decode(&s.chunk, SPR_MAX_COUNT, "changed");
			}
			drop(&s);
		}
}

Test(codec_gaps, random_bytes)
{
	unsigned taken = 0;

	for (uint64_t trial = 0; trial < 30000; trial++) {
		uint64_t r = spri_philox(21, trial);
		uint32_t bytes = (uint32_t)(r % (trial % 50 ? 40 : 3000));
		uint8_t *payload = malloc(bytes);
		struct spri_chunk chunk = {.codec = rows[trial % 3],
					   .payload = payload,
					   .payload_bytes = bytes,
					   .base = r >> 60};

		chunk.dtype = trial % 3 == 1 ? (uint8_t)(r >> 32 & 1) : 0;
		chunk.count = (uint32_t)(r >> 40) % (4 * bytes + 3);
		for (uint32_t i = 0; i < bytes; i++)
			payload[i] = (uint8_t)(spri_philox(trial, i) &
					       (trial % 2 ? spri_philox(trial + 1, i) : 0xff));
		if (bytes && trial % 4)
			payload[0] &= 7;
		taken += decode(&chunk, r % 2 ? 100000 : SPR_MAX_COUNT, "random") == 0 &&
			 chunk.count > 1;
		free(payload);
	}
	cr_assert_gt(taken, 10, "some random bytes must be lists, or this shows nothing; %u were",
		     taken);
}

/* One malformed payload. */
struct form_case {
	const char *what;
	uint8_t id;
	uint8_t payload[12];
	uint32_t bytes, count;
	uint64_t base, after, length;
	int expected;
};

Test(codec_gaps, one_form_only)
{
	enum { G = SPRI_CODEC_GAPS, B = SPRI_CODEC_BITMAP };
	static const uint64_t no = SPRI_NO_INDEX;
	const struct form_case cases[] = {
		{"no entry", G, {0}, 0, 0, 9, 9, 0, 0},
		{"one", G, {0}, 0, 1, 9, 8, 10, 0},
		{"one, not above the one before", G, {0}, 0, 1, 9, 9, 10, SPR_EPROTOCOL},
		{"one, not below the length", G, {0}, 0, 1, 9, 8, 9, SPR_EPROTOCOL},
		{"one, with a byte", G, {0}, 1, 1, 9, 8, 10, SPR_EPROTOCOL},
		{"gaps 0, 1", G, {0, 0x05}, 2, 3, 9, no, 13, 0},
		{"gaps 0, 1 beyond the length", G, {0, 0x05}, 2, 3, 9, no, 12, SPR_EPROTOCOL},
		{"a bit behind them", G, {0, 0x0d}, 2, 3, 9, no, 99, SPR_EPROTOCOL},
		{"no one in the byte", G, {0, 0x01}, 2, 3, 9, no, 99, SPR_EPROTOCOL},
		{"parameter 47", G, {47, 3, 0, 0, 0, 0, 0}, 7, 2, 0, no, 99, 0},
		{"parameter 48", G, {48, 3, 0, 0, 0, 0, 0, 0}, 8, 2, 0, no, 99, SPR_EPROTOCOL},
		{"parameter 255", G, {255, 3, 0, 0, 0, 0, 0}, 7, 2, 0, no, 99, SPR_EPROTOCOL},
		{"a long gap, and no second one",
		 G,
		 {0, 0, 0, 0, 24, 0, 0, 0, 0, 0},
		 10,
		 3,
		 0,
		 no,
		 99,
		 SPR_EPROTOCOL},
		{"bits 0, 2", B, {0x05}, 1, 2, 9, 8, 12, 0},
		{"bits 0, 2 beyond the length", B, {0x05}, 1, 2, 9, 8, 11, SPR_EPROTOCOL},
		{"first bit not set", B, {0x06}, 1, 2, 9, 8, 99, SPR_EPROTOCOL},
		{"more bits than entries", B, {0x07}, 1, 2, 9, 8, 99, SPR_EPROTOCOL},
		{"fewer bits than entries", B, {0x01}, 1, 2, 9, 8, 99, SPR_EPROTOCOL},
		{"an empty byte at the end", B, {0x05, 0}, 2, 2, 9, 8, 99, SPR_EPROTOCOL},
		{"no entry, a byte", B, {0}, 1, 0, 9, 8, 99, SPR_EPROTOCOL},
		{"an entry, no byte", B, {0}, 0, 1, 9, 8, 99, SPR_EPROTOCOL},
		{"nothing", B, {0}, 0, 0, 9, 8, 0, 0},
		{"base not above the one before", B, {0x05}, 1, 2, 9, 9, 99, SPR_EPROTOCOL},
		{"base at the length", B, {0x01}, 1, 1, 9, 8, 9, SPR_EPROTOCOL},
		{"bits up to 2^48", B, {0x81}, 1, 2, SPR_MAX_COUNT - 8, 8, UINT64_MAX, 0},
		{"bits beyond it",
		 B,
		 {0x81},
		 1,
		 2,
		 SPR_MAX_COUNT - 7,
		 8,
		 UINT64_MAX,
		 SPR_EPROTOCOL},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct form_case *c = &cases[i];
		struct spri_chunk chunk = {.codec = c->id,
					   .count = c->count,
					   .base = c->base,
					   .payload = c->payload,
					   .payload_bytes = c->bytes};
		uint64_t index[4];
		int r = codec(c->id)->decode(&chunk, index, NULL, c->after, c->length);

		cr_assert_eq(r, c->expected, "%s: expected %d, got %d", c->what, c->expected, r);
	}
}

/* In a block that is long enough for it to be allowed, an escape must be needed. */
Test(codec_gaps, escapes_only_where_they_are_needed)
{
	for (uint64_t gap = 20; gap < 30; gap++) {
		uint8_t payload[64];
		struct bits b = {payload, 0};
		uint64_t index[12];
		struct spri_chunk chunk = {.payload = payload, .count = 12};
		int r;

		put_number(&b, 0, 8);
		for (int i = 0; i < 10; i++)
			put_code(&b, 0, 0);
		put_number(&b, 0, 24);
		put_number(&b, gap, 48);
		while (b.n % 8)
			put_bit(&b, 0);
		chunk.payload_bytes = (uint32_t)(b.n / 8);
		r = codec(SPRI_CODEC_GAPS)->decode(&chunk, index, NULL, SPRI_NO_INDEX, 99);
		cr_assert_eq(r, gap < 24 ? SPR_EPROTOCOL : 0, "gap %llu: got %d",
			     (unsigned long long)gap, r);
	}
}
