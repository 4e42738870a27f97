/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Chunk headers and codecs: recorded bytes, round trips, and everything malformed that can be made
 * of them.
 */
#include <stdlib.h>
#include <string.h>

#include <check.h>
#include <codec/codec.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <internal/philox.h>

enum { ROOM = 4096, N = 500, GUARD = 16 };

static const struct spri_chunk example = {
	.codec = SPRI_CODEC_RAW32,
	.dtype = SPR_F32,
	.flags = SPRI_CHUNK_LAST_OF_BLOCK | SPRI_CHUNK_LAST_OF_ROUND,
	.algo = 4,
	.seq = 0x01020304,
	.round = 5,
	.block = 6,
	.count = 2,
	.base = 0x0000123456789abc,
	.signature = 0x1122334455667788,
	.outcome = {SPR_ENONFINITE, 3, 0x0000000100000007},
	.payload_bytes = 16,
};

/* clang-format off */
static const uint8_t recorded_header[SPRI_CHUNK_HEADER] = {
	0x53, 0x50, 0x01, 0x01, 0x00, 0x03, 0x04, 0x00, 0x04, 0x03, 0x02, 0x01, 0x05,
	0x00, 0x00, 0x00, 0x06, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0xbc, 0x9a,
	0x78, 0x56, 0x34, 0x12, 0x00, 0x00, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22,
	0x11, 0x76, 0xec, 0xff, 0xff, 0x03, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00,
	0x01, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x5c, 0xc2, 0x82, 0xb6,
};
/* clang-format on */

/* Makes the checksum right again after a field was changed. */
static void reseal(uint8_t *buffer)
{
	spri_put_u32(buffer + 60, spri_crc32c(0, buffer, 60));
}

Test(codec, header_has_the_recorded_bytes)
{
	uint8_t buffer[SPRI_CHUNK_HEADER];

	memset(buffer, 0xff, sizeof buffer);
	spri_chunk_pack(buffer, &example);
	for (size_t i = 0; i < sizeof buffer; i++)
		cr_assert_eq(buffer[i], recorded_header[i], "byte %zu: expected 0x%02x, got 0x%02x",
			     i, recorded_header[i], buffer[i]);
}

Test(codec, header_round_trip)
{
	uint8_t buffer[ROOM] = {0};
	struct spri_chunk got;
	struct spri_text text = {{0}};
	int r;

	spri_chunk_pack(buffer, &example);
	r = spri_chunk_unpack(buffer, sizeof buffer, &got, &text);
	cr_assert_eq(r, 0, "a good header is read, got %d (%s)", r, text.s);
	cr_assert(got.codec == example.codec && got.dtype == example.dtype &&
			  got.flags == example.flags && got.algo == example.algo &&
			  got.seq == example.seq && got.round == example.round &&
			  got.block == example.block && got.count == example.count &&
			  got.base == example.base && got.signature == example.signature &&
			  got.payload_bytes == example.payload_bytes,
		  "every field comes back as it was written");
	cr_assert(got.outcome.status == SPR_ENONFINITE && got.outcome.rank == 3 &&
			  got.outcome.index == 0x100000007,
		  "the outcome comes back as it was written");
	cr_assert_eq(got.payload, buffer + SPRI_CHUNK_HEADER,
		     "the payload stands behind the header");
}

Test(codec, every_flipped_bit_of_a_header_is_refused)
{
	for (size_t bit = 0; bit < 8 * SPRI_CHUNK_HEADER; bit++) {
		uint8_t buffer[ROOM] = {0};
		struct spri_chunk got = {.seq = 77};
		struct spri_text text = {{0}};
		int r;

		spri_chunk_pack(buffer, &example);
		buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
		r = spri_chunk_unpack(buffer, sizeof buffer, &got, &text);
		cr_assert_eq(r, bit / 8 == 2 ? SPR_EVERSION : SPR_EPROTOCOL,
			     "bit %zu flipped: got %d", bit, r);
		cr_assert(text.s[0] != '\0' && got.seq == 77,
			  "bit %zu flipped: a text, and nothing written", bit);
	}
}

/* One malformed field under a right checksum. */
struct field_case {
	const char *what;
	size_t offset, bytes;
	uint64_t value;
	int expected;
};

Test(codec, malformed_fields_are_refused)
{
	static const struct field_case cases[] = {
		{"magic", 0, 2, 0x5052, SPR_EPROTOCOL},
		{"version 0", 2, 1, 0, SPR_EVERSION},
		{"version 2", 2, 1, 2, SPR_EVERSION},
		{"codec 0", 3, 1, 0, SPR_EPROTOCOL},
		{"codec 200", 3, 1, 200, SPR_EPROTOCOL},
		{"dtype 1, which has other payload bytes", 4, 1, 1, SPR_EPROTOCOL},
		{"dtype 3", 4, 1, 3, SPR_EPROTOCOL},
		{"flag 4", 5, 1, 4, SPR_EPROTOCOL},
		{"a count of 2^32 - 1", 20, 4, UINT32_MAX, SPR_EPROTOCOL},
		{"a count one too small", 20, 4, 1, SPR_EPROTOCOL},
		{"a count of 0 with a payload", 20, 4, 0, SPR_EPROTOCOL},
		{"a positive status", 40, 4, 1, SPR_EPROTOCOL},
		{"payload bytes that no entry has", 56, 4, 15, SPR_EPROTOCOL},
		{"payload bytes beyond the buffer", 56, 4, ROOM, SPR_EPROTOCOL},
		{"payload bytes of 2^32 - 1", 56, 4, UINT32_MAX, SPR_EPROTOCOL},
		{"no payload bytes", 56, 4, 0, SPR_EPROTOCOL},
		{"the reserved byte (to be ignored)", 7, 1, 0xff, 0},
		{"an unknown algorithm (not the header's to judge)", 6, 1, 0xff, 0},
		{"status 0", 40, 4, 0, 0},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct field_case *c = &cases[i];
		uint8_t buffer[ROOM] = {0};
		struct spri_chunk got;
		struct spri_text text = {{0}};
		int r;

		spri_chunk_pack(buffer, &example);
		for (size_t b = 0; b < c->bytes; b++)
			buffer[c->offset + b] = (uint8_t)(c->value >> 8 * b);
		reseal(buffer);
		r = spri_chunk_unpack(buffer, sizeof buffer, &got, &text);
		cr_assert_eq(r, c->expected, "%s: expected %d, got %d", c->what, c->expected, r);
		cr_assert_eq(text.s[0] != '\0', r < 0, "%s: a text when refused, got \"%s\"",
			     c->what, text.s);
	}
}

/* Codecs with values take each type; the others none. */
Test(codec, dtype_must_be_right_for_the_codec)
{
	for (unsigned at = 0; spri_codec_row(at); at++)
		for (unsigned dtype = 0; dtype < 256; dtype++) {
			const struct spri_codec *row = spri_codec_row(at);
			bool right = dtype == 0 || (row->valued && dtype <= SPR_BF16);
			struct spri_chunk chunk = example, got;
			uint8_t buffer[ROOM] = {0};
			int r;

			chunk.codec = row->id;
			chunk.dtype = (uint8_t)dtype;
			chunk.count = 0;
			chunk.payload_bytes = 0;
			spri_chunk_pack(buffer, &chunk);
			r = spri_chunk_unpack(buffer, sizeof buffer, &got, NULL);
			cr_assert_eq(r, right ? 0 : SPR_EPROTOCOL, "%s, dtype %u: got %d",
				     row->name, dtype, r);
		}
}

Test(codec, payload_must_fit_the_buffer_exactly)
{
	struct spri_chunk chunk = example, got;
	uint8_t buffer[ROOM] = {0};

	chunk.count = (ROOM - SPRI_CHUNK_HEADER) / 8;
	chunk.payload_bytes = chunk.count * 8;
	spri_chunk_pack(buffer, &chunk);
	cr_assert_eq(spri_chunk_unpack(buffer, ROOM, &got, NULL), 0, "a full buffer is allowed");
	cr_assert_eq(spri_chunk_unpack(buffer, ROOM - 1, &got, NULL), SPR_EPROTOCOL,
		     "one byte less is not");
	for (size_t room = 0; room < SPRI_CHUNK_HEADER; room++)
		cr_assert_eq(spri_chunk_unpack(buffer, room, &got, NULL), SPR_EPROTOCOL,
			     "a buffer of %zu bytes holds no header", room);
}

Test(codec, table_is_sound)
{
	unsigned n = 0;

	for (; spri_codec_row(n); n++) {
		const struct spri_codec *row = spri_codec_row(n);

		cr_assert(row->name && row->about && row->most && row->bound && row->fit &&
				  row->encode && row->decode,
			  "row %u is complete", n);
		cr_assert_eq(spri_codec_find(row->id), row, "%s is found by its id (ids differ)",
			     row->name);
	}
	cr_assert_eq(n, 6, "raw32, dense, bytes, packed, gaps, bitmap: expected 6 rows, got %u", n);
	for (unsigned id = 7; id < 256; id++)
		cr_assert_null(spri_codec_find((uint8_t)id), "id %u belongs to nobody", id);
	cr_assert_null(spri_codec_find(0), "id 0 belongs to nobody");
}

/* ---- payloads ---- */

struct sample {
	uint64_t index[N];
	float value[N];
};

static void fill(struct sample *s, uint64_t base, uint64_t stride, uint64_t seed)
{
	uint64_t at = base;

	for (uint32_t i = 0; i < N; i++) {
		s->index[i] = at;
		s->value[i] = (float)(int32_t)(spri_philox(seed, i) & 0xffff) - 32768.5f;
		at += 1 + spri_philox(seed + 1, i) % stride;
	}
}

Test(codec, payloads_have_the_recorded_bytes)
{
	static const uint64_t index[] = {0x123456789abc, 0x123456789abd, 0x123556789abb};
	static const float value[] = {1.0f, -2.5f, 0.0009765625f};
	/* clang-format off */
	static const uint8_t raw32[] = {
		0, 0, 0, 0,       1, 0, 0, 0,       0xff, 0xff, 0xff, 0xff,
		0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0, 0, 0, 0x80, 0x3a,
	};
	static const uint8_t halves[] = {0, 0x3c, 0, 0xc1, 0, 0x14};
	static const uint8_t bf16[] = {0x80, 0x3f, 0x20, 0xc0, 0x80, 0x3a};
	/* clang-format on */
	uint8_t got[64];
	uint32_t bytes;

	bytes = spri_codec_find(SPRI_CODEC_RAW32)->encode(got, index, value, 3, SPR_F32);
	cr_assert_eq(bytes, sizeof raw32, "raw32: expected 24 bytes, got %u", bytes);
	cr_assert_arr_eq(got, raw32, sizeof raw32, "raw32: offsets from the base, then values");
	bytes = spri_codec_find(SPRI_CODEC_RAW32)->encode(got, index, value, 3, SPR_F16);
	cr_assert_eq(bytes, 18, "raw32: expected 18 bytes, got %u", bytes);
	cr_assert_arr_eq(got, raw32, 12, "raw32: offsets from the base, then halves");
	cr_assert_arr_eq(got + 12, halves, 6, "raw32: offsets from the base, then halves");
	bytes = spri_codec_find(SPRI_CODEC_DENSE)->encode(got, NULL, value, 3, SPR_BF16);
	cr_assert_eq(bytes, 6, "dense: expected 6 bytes, got %u", bytes);
	cr_assert_arr_eq(got, bf16, 6, "dense: the upper halves of singles");
	bytes = spri_codec_find(SPRI_CODEC_DENSE)->encode(got, NULL, value, 3, SPR_F32);
	cr_assert_eq(bytes, 12, "dense: expected 12 bytes, got %u", bytes);
	cr_assert_arr_eq(got, raw32 + 12, 12, "dense: the values");
	bytes = spri_codec_find(SPRI_CODEC_BYTES)
			->encode(got, NULL, (const float *)(const void *)"abc", 3, SPR_F32);
	cr_assert_eq(bytes, 3, "bytes: expected 3 bytes, got %u", bytes);
	cr_assert_arr_eq(got, "abc", 3, "bytes: as they are");
}

static void check_values(const struct spri_codec *row, const struct sample *in,
			 const struct sample *out, uint32_t n, enum spr_dtype dtype)
{
	if (row->id == SPRI_CODEC_BYTES)
		cr_assert_arr_eq(out->value, in->value, n, "bytes: as they were");
	for (uint32_t i = 0; row->valued && i < n; i++) {
		float want = in->value[i];

		if (dtype != SPR_F32)
			want = spri_widen_one(spri_narrow_one(want, dtype), dtype);
		cr_assert_eq(spri_f32_bits(out->value[i]), spri_f32_bits(want),
			     "%s, dtype %d: value %u is %g, expected %g", row->name, dtype, i,
			     (double)out->value[i], (double)want);
	}
}

static void check_round_trip(const struct spri_codec *row, uint32_t n, enum spr_dtype dtype)
{
	size_t unit = row->id == SPRI_CODEC_BYTES ? 1 : row->valued ? 4 : 0;
	struct sample in, out;
	uint8_t payload[8 * N + GUARD];
	struct spri_chunk chunk = {
		.codec = row->id, .dtype = (uint8_t)dtype, .count = n, .payload = payload};
	int r;

	/* a bitmap holds what is near */
	fill(&in, 0x100000000 + n, row->id == SPRI_CODEC_BITMAP ? 50 : 1000, n);
	memset(payload, 0xa5, sizeof payload);
	memset(&out, 0x5a, sizeof out);
	chunk.base = row->indexed ? in.index[0] : 7;
	cr_assert_eq(row->fit(in.index, n, 8 * N, dtype), n, "%s: %u entries fit", row->name, n);
	chunk.payload_bytes = row->encode(payload, in.index, in.value, n, dtype);
	cr_assert_leq(chunk.payload_bytes, row->bound(n, dtype), "%s: within its bound", row->name);
	for (size_t g = chunk.payload_bytes; g < sizeof payload; g++)
		cr_assert_eq(payload[g], 0xa5, "%s: nothing written behind %u bytes", row->name,
			     chunk.payload_bytes);
	r = row->decode(&chunk, out.index, out.value, SPRI_NO_INDEX,
			row->indexed && n ? in.index[n - 1] + 1 : 7 + (uint64_t)n);
	cr_assert_eq(r, 0, "%s: %u entries decode, got %d", row->name, n, r);
	check_values(row, &in, &out, n, dtype);
	if (row->indexed)
		cr_assert_arr_eq(out.index, in.index, 8 * (size_t)n, "%s: indices", row->name);
	for (size_t b = unit * n; b < sizeof out.value; b++)
		cr_assert_eq(((uint8_t *)out.value)[b], 0x5a,
			     "%s: nothing written behind %u entries", row->name, n);
}

Test(codec, every_row_round_trips)
{
	for (unsigned at = 0; spri_codec_row(at); at++)
		for (uint32_t n = 0; n <= N; n += n < 20 ? 1 : 37)
			for (unsigned t = 0; t < (spri_codec_row(at)->valued ? 3 : 1); t++)
				check_round_trip(spri_codec_row(at), n, (enum spr_dtype)t);
}

Test(codec, raw32_fit_ends_a_chunk_before_an_offset_overflows)
{
	const struct spri_codec *raw32 = spri_codec_find(SPRI_CODEC_RAW32);
	uint64_t index[N];

	for (uint32_t cut = 1; cut < N; cut++) {
		for (uint32_t i = 0; i < N; i++)
			index[i] = 5 + (uint64_t)i + (i >= cut ? UINT32_MAX : 0);
		/* index[cut] is 2^32 − 1 + cut from the first: too far, from cut = 1 on */
		cr_assert_eq(raw32->fit(index, N, 8 * N, SPR_F32), cut, "expected %u, got %u", cut,
			     raw32->fit(index, N, 8 * N, SPR_F32));
	}
	index[0] = 10;
	index[1] = 10 + (uint64_t)UINT32_MAX;
	index[2] = 11 + (uint64_t)UINT32_MAX;
	cr_assert_eq(raw32->fit(index, 2, 16, SPR_F32), 2, "an offset of 2^32 - 1 fits");
	cr_assert_eq(raw32->fit(index, 3, 24, SPR_F32), 2, "an offset of 2^32 does not");
	cr_assert_eq(raw32->fit(index, 3, 15, SPR_F32), 1, "the room bounds it, too");
	cr_assert_eq(raw32->fit(index, 0, 15, SPR_F32), 0, "nothing of nothing");
}

Test(codec, raw32_refuses_malformed_payloads)
{
	const struct spri_codec *raw32 = spri_codec_find(SPRI_CODEC_RAW32);
	static const struct {
		const char *what;
		uint32_t offsets[3];
		uint32_t count, payload_bytes;
		uint64_t base, after, length;
		int expected;
	} cases[] = {
		{"a good one", {0, 1, 9}, 3, 24, 100, 99, 110, 0},
		{"nothing before", {0, 1, 9}, 3, 24, 0, SPRI_NO_INDEX, 10, 0},
		{"no entries", {0}, 0, 0, UINT64_MAX, 5, 0, 0},
		{"first offset not 0", {1, 2, 9}, 3, 24, 100, 99, 110, SPR_EPROTOCOL},
		{"base 0, any first offset", {4, 5, 9}, 3, 24, 0, SPRI_NO_INDEX, 10, 0},
		{"base 0, behind those before", {4, 5, 9}, 3, 24, 0, 3, 10, 0},
		{"base 0, not behind those before", {4, 5, 9}, 3, 24, 0, 4, 10, SPR_EPROTOCOL},
		{"base 0, beyond the length", {10, 11, 12}, 3, 24, 0, 3, 10, SPR_EPROTOCOL},
		{"equal offsets", {0, 5, 5}, 3, 24, 100, 99, 110, SPR_EPROTOCOL},
		{"a second offset of 0", {0, 0, 5}, 3, 24, 100, 99, 110, SPR_EPROTOCOL},
		{"descending offsets", {0, 9, 5}, 3, 24, 100, 99, 110, SPR_EPROTOCOL},
		{"last index = length", {0, 1, 9}, 3, 24, 100, 99, 109, SPR_EPROTOCOL},
		{"base = length", {0, 1, 9}, 3, 24, 100, 99, 100, SPR_EPROTOCOL},
		{"base above length", {0, 1, 9}, 3, 24, UINT64_MAX, 99, 100, SPR_EPROTOCOL},
		{"base = the last index before", {0, 1, 9}, 3, 24, 100, 100, 200, SPR_EPROTOCOL},
		{"base below the last index before",
		 {0, 1, 9},
		 3,
		 24,
		 100,
		 101,
		 200,
		 SPR_EPROTOCOL},
		{"base + offset wraps",
		 {0, 1, UINT32_MAX},
		 3,
		 24,
		 UINT64_MAX - 9,
		 99,
		 UINT64_MAX,
		 SPR_EPROTOCOL},
		{"base just below 2^64", {0, 1, 7}, 3, 24, UINT64_MAX - 8, 99, UINT64_MAX, 0},
		{"too few payload bytes", {0, 1, 9}, 3, 20, 100, 99, 110, SPR_EPROTOCOL},
		{"too many payload bytes", {0, 1, 9}, 2, 24, 100, 99, 110, SPR_EPROTOCOL},
		{"8 · count wraps 32 bits",
		 {0, 1, 9},
		 0x20000003,
		 24,
		 100,
		 99,
		 UINT64_MAX,
		 SPR_EPROTOCOL},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uint8_t payload[24] = {0};
		uint64_t index[3];
		float value[3];
		struct spri_chunk chunk = {.codec = SPRI_CODEC_RAW32,
					   .count = cases[i].count,
					   .base = cases[i].base,
					   .payload = payload,
					   .payload_bytes = cases[i].payload_bytes};
		int r;

		for (uint32_t j = 0; j < 3; j++)
			spri_put_u32(payload + 4 * j, cases[i].offsets[j]);
		r = raw32->decode(&chunk, index, value, cases[i].after, cases[i].length);
		cr_assert_eq(r, cases[i].expected, "%s: expected %d, got %d", cases[i].what,
			     cases[i].expected, r);
	}
}

Test(codec, unindexed_rows_check_their_place)
{
	static const uint8_t ids[] = {SPRI_CODEC_DENSE, SPRI_CODEC_BYTES};

	for (size_t i = 0; i < 2; i++) {
		const struct spri_codec *row = spri_codec_find(ids[i]);
		uint8_t payload[64] = {0};
		float value[16];
		struct spri_chunk chunk = {
			.codec = ids[i], .count = 4, .base = 6, .payload = payload};

		chunk.payload_bytes = (uint32_t)row->bound(4, SPR_F32);
		cr_assert_eq(row->decode(&chunk, NULL, value, 0, 10), 0, "%s: 6 … 9 of 10",
			     row->name);
		cr_assert_eq(row->decode(&chunk, NULL, value, 0, 9), SPR_EPROTOCOL,
			     "%s: 6 … 9 of 9", row->name);
		chunk.base = UINT64_MAX - 1;
		cr_assert_eq(row->decode(&chunk, NULL, value, 0, 10), SPR_EPROTOCOL,
			     "%s: a base near 2^64", row->name);
		chunk.base = 0;
		chunk.count = 5;
		cr_assert_eq(row->decode(&chunk, NULL, value, 0, 10), SPR_EPROTOCOL,
			     "%s: a count that is not the payload's", row->name);
	}
}

/*
 * What a random chunk decodes to is a valid list, or it is refused; nothing is written behind count
 * entries.
 */
Test(codec, random_chunks_decode_to_valid_lists_or_not_at_all)
{
	uint64_t taken = 0;

	for (uint64_t trial = 0; trial < 20000; trial++) {
		const struct spri_codec *row =
			spri_codec_row((unsigned)(spri_philox(1, trial) % 3));
		uint32_t count = (uint32_t)(spri_philox(2, trial) % 6);
		uint64_t length = 1 + spri_philox(3, trial) % 40;
		uint8_t buffer[SPRI_CHUNK_HEADER + 64] = {0};
		struct spri_chunk chunk = {.codec = row->id,
					   .count = count,
					   .base = spri_philox(4, trial) % 40,
					   .payload_bytes = (uint32_t)row->bound(count, SPR_F32)};
		uint64_t index[8], after = trial % 3 ? SPRI_NO_INDEX : spri_philox(5, trial) % 20;
		float value[8];
		int r;

		memset(index, 0x77, sizeof index);
		memset(value, 0x77, sizeof value);
		spri_chunk_pack(buffer, &chunk);
		for (uint32_t j = 0; j < 2 * count; j++)
			spri_put_u32(
				buffer + SPRI_CHUNK_HEADER + 4 * j,
				j == 0 ? 0
				       : (uint32_t)(spri_philox(6, 16 * trial + j) % (4 * j + 1)));
		if (trial % 5 == 0) {
			buffer[spri_philox(7, trial) % 60] ^= (uint8_t)spri_philox(8, trial);
			reseal(buffer);
		}
		if (spri_chunk_unpack(buffer, sizeof buffer, &chunk, NULL) < 0)
			continue;
		if (chunk.count > 8)
			continue; /* bytes, which fit; the arrays here do not */
		row = spri_codec_find(chunk.codec);
		r = row->decode(&chunk, index, value, after, length);
		cr_assert(r == 0 || r == SPR_EPROTOCOL, "0 or EPROTOCOL, got %d", r);
		for (uint32_t j = chunk.count; j < 8; j++)
			cr_assert(index[j] == 0x7777777777777777 &&
					  spri_f32_bits(value[j]) == 0x77777777,
				  "trial %llu: entry %u of %u is untouched",
				  (unsigned long long)trial, j, chunk.count);
		if (r < 0 || !row->indexed)
			continue;
		taken += chunk.count > 1;
		for (uint32_t j = 0; j < chunk.count; j++)
			cr_assert(index[j] < length &&
					  (j ? index[j] > index[j - 1]
					     : after == SPRI_NO_INDEX || index[j] > after),
				  "trial %llu: a list that was taken is valid",
				  (unsigned long long)trial);
	}
	cr_assert_gt(taken, 100, "some random lists must be good ones, or this shows nothing");
}
