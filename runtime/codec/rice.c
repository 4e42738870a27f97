/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Gaps in few bits; see rice.h. Blocks of up to 256 gaps; a block is a byte with its parameter b,
 * then the codes, from the lowest bit of each byte up, filled up with zeros to a whole byte. The
 * code of a gap g = index[i] − index[i − 1] − 1, with q = g >> b:
 *
 *   q < 24: q zeros, a one, the b low bits of g               1 + q + b bits
 *   else:   24 zeros, the 48 bits of g                        72 bits
 *
 * Encoding: of all b the one that makes the block shortest is taken (the smallest of equals), by
 * trying them: so the size of a prefix never falls when an entry is added, and fit() can halve.
 *
 * Decoding trusts nothing, and reads each byte of the landing buffer once: into a window of its
 * own, filled with zeros behind the section's end. In there a block of 256 codes cannot leave the
 * window whatever its bits are, so the codes are read without a test each; what they came to is
 * checked behind the block. A code that could have been shorter, a bit set in the filling and a
 * byte too many are refused, so a list has no second form with the same parameters.
 */
#include <codec/rice.h>
#include <internal/bits.h>
#include <internal/bytes.h>
#include <sparring/types.h>
#include <string.h>

enum {
	BLOCK = 256,	 /* gaps */
	LONGEST = 24,	 /* zeros that say: not in Rice's code */
	PLAIN_BITS = 48, /* a gap then */
	PARAMETERS = 48, /* b is below it */
	ESCAPED = LONGEST + PLAIN_BITS,
	MOST_BITS = 1 + 1 + (PARAMETERS - 1), /* per gap, of the best b: that of 47 has q ≤ 1 */
	BLOCK_BYTES = 1 + BLOCK * ESCAPED / 8,
	WORD = 8,	/* bytes that are read or written at once, from any bit on */
	WORD_BITS = 57, /* of them that count, whatever that bit */
};
static_assert(SPR_MAX_COUNT == (uint64_t)1 << PLAIN_BITS, "a gap is below every count");
static_assert(ESCAPED >= LONGEST + PARAMETERS, "an escape is never the shorter code");

static inline uint64_t load(const uint8_t *p)
{
	uint64_t word;

	if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
		return spri_get_u64(p);
	memcpy(&word, p, sizeof word);
	return word;
}

static inline void store(uint8_t *p, uint64_t word)
{
	if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
		memcpy(p, &word, sizeof word);
	else
		spri_put_u64(p, word);
}

/* ---- sizes ---- */

/* Bytes of the blocks of `count` entries when every gap takes `bits`. */
static uint64_t section_bytes(uint64_t count, unsigned bits)
{
	uint64_t gaps = count > 0 ? count - 1 : 0, rest = gaps % BLOCK;

	return gaps / BLOCK * (1 + BLOCK / 8 * bits) + (rest > 0 ? 1 + (rest * bits + 7) / 8 : 0);
}

uint64_t spri_rice_bound(uint64_t count)
{
	return section_bytes(count, MOST_BITS);
}

uint64_t spri_rice_least(uint64_t count)
{
	return section_bytes(count, 1);
}

uint32_t spri_rice_most(size_t room, uint32_t value_bytes)
{
	return (uint32_t)((8 * spri_min_u64(room, UINT32_MAX / 8) + 1) / (8 * value_bytes + 1));
}

/* ---- the parameter of a block ---- */

/* Four gaps at once: of less than 2^31, so that comparing them needs no care for signs. */
typedef int32_t lanes __attribute__((vector_size(16)));
enum { LANES = 4 };

struct block {
	uint32_t n;
	uint64_t all;	       /* of the gaps, or-ed */
	uint64_t sum;	       /* of the gaps */
	uint64_t gap[BLOCK];   /* n of them */
	int32_t narrow[BLOCK]; /* the same when they are narrow, then zeros to a whole lane */
};

static bool is_narrow(const struct block *block)
{
	return block->all >> 31 == 0;
}

/* The gaps behind index[0], n ≤ BLOCK of them. */
static void read_gaps(struct block *block, const uint64_t *index, uint32_t n)
{
	uint64_t all = 0, sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t gap = index[i + 1] - index[i] - 1;

		all |= gap;
		sum += gap;
		block->gap[i] = gap;
		block->narrow[i] = (int32_t)(uint32_t)gap;
	}
	for (uint32_t i = n; i % LANES != 0; i++)
		block->narrow[i] = 0;
	block->n = n;
	block->all = all;
	block->sum = sum;
}

static inline lanes load_lanes(const int32_t *p)
{
	lanes v;

	memcpy(&v, p, sizeof v);
	return v;
}

static uint64_t add_lanes(lanes sum)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < LANES; i++)
		total += (uint32_t)sum[i];
	return total;
}

/* Bits of the codes above the 1 + b that each has. */
static uint64_t quotients_narrow(const struct block *block, unsigned b)
{
	int shift = (int)b, escape = ESCAPED - 1 - shift;
	lanes sum = {0}, limit = {LONGEST, LONGEST, LONGEST, LONGEST};
	lanes instead = {escape, escape, escape, escape};

	if (block->all >> b < LONGEST) {
		for (uint32_t i = 0; i < block->n; i += LANES)
			sum += load_lanes(block->narrow + i) >> shift;
		return add_lanes(sum);
	}
	for (uint32_t i = 0; i < block->n; i += LANES) {
		lanes q = load_lanes(block->narrow + i) >> shift, short_enough = q < limit;

		sum += (q & short_enough) | (instead & ~short_enough);
	}
	return add_lanes(sum);
}

static uint64_t quotients_wide(const struct block *block, unsigned b)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < block->n; i++) {
		uint64_t q = block->gap[i] >> b;

		sum += q < LONGEST ? q : ESCAPED - 1 - b;
	}
	return sum;
}

/*
 * True when no parameter below b − 1 is better than b − 1: when at least as many gaps have a
 * quotient of 1 to 3 at b as have 0. Below b − 1, t steps down take at most t bits off the code of
 * one of 0, and put at least t bits to that of one of 1 to 3 (its quotient doubles each time, and
 * an escape is longer yet while b ≤ 33); no other code gets shorter.
 */
static bool is_valley(const struct block *block, unsigned b)
{
	int shift = (int)b;
	lanes zeros = {0}, all = {0}, limit = {4, 4, 4, 4};

	for (uint32_t i = 0; i < block->n; i += LANES) {
		lanes q = load_lanes(block->narrow + i) >> shift;

		zeros -= q == 0; /* a comparison that holds is −1 */
		all -= q < limit;
	}
	return add_lanes(all) >= 2 * add_lanes(zeros); /* filling counts in both, against it */
}

/* The parameter from which on to try: no smaller one is the best. */
static unsigned first_try(const struct block *block)
{
	unsigned b;

	if (!is_narrow(block))
		return 0;
	b = spri_floor_log2(block->sum / block->n + 1); /* about the best when gaps are random */
	return b > 3 && is_valley(block, b - 1) ? b - 2 : 0;
}

/* The best parameter; returns the block's bytes. */
static uint32_t choose(const struct block *block, unsigned *parameter)
{
	uint64_t best = UINT64_MAX;

	/* no code has less than 1 + b bits */
	for (unsigned b = first_try(block); b < PARAMETERS && block->n * (1ull + b) < best; b++) {
		uint64_t bits =
			block->n * (1ull + b) +
			(is_narrow(block) ? quotients_narrow(block, b) : quotients_wide(block, b));

		if (bits < best) {
			best = bits;
			*parameter = b;
		}
	}
	return (uint32_t)(1 + (best + 7) / 8);
}

/* ---- encoding ---- */

static uint64_t prefix_bytes(const uint64_t *index, uint32_t n, uint32_t value_bytes)
{
	struct block block;
	unsigned b;

	if (n == 0)
		return 0;
	read_gaps(&block, index, n);
	return choose(&block, &b) + (uint64_t)n * value_bytes;
}

uint32_t spri_rice_fit(const uint64_t *index, uint64_t n, size_t room, uint32_t value_bytes)
{
	uint64_t left = room, taken = 1;
	uint32_t low = 0, high;

	n = spri_min_u64(n, spri_rice_most(room, value_bytes));
	if (n == 0)
		return 0;
	left -= value_bytes;
	while (taken < n) {
		uint32_t gaps = (uint32_t)spri_min_u64(n - taken, BLOCK);
		uint64_t bytes = prefix_bytes(index + taken - 1, gaps, value_bytes);

		if (bytes > left)
			break;
		left -= bytes;
		taken += gaps;
	}
	if (taken == n)
		return (uint32_t)n;
	high = (uint32_t)spri_min_u64(n - taken, BLOCK); /* is too long */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (prefix_bytes(index + taken - 1, middle, value_bytes) <= left)
			low = middle;
		else
			high = middle;
	}
	return (uint32_t)taken + low;
}

/* Bits that are being written. */
struct writer {
	uint8_t *at;
	uint64_t bits; /* not yet at `at`: n of them */
	unsigned n;    /* less than 8 */
};

static inline void put(struct writer *w, uint64_t code, unsigned n)
{
	assert(n < WORD_BITS);
	w->bits |= code << w->n;
	store(w->at, w->bits);
	w->n += n;
	w->at += w->n / 8;
	w->bits >>= w->n & ~7u;
	w->n %= 8;
}

static void put_wide(struct writer *w, uint64_t gap, unsigned b)
{
	uint64_t q = gap >> b;

	if (q < LONGEST) {
		put(w, 1ull << q, (unsigned)q + 1);
		put(w, gap & ((1ull << b) - 1), b);
	} else {
		put(w, 0, LONGEST);
		put(w, gap, PLAIN_BITS);
	}
}

/* The codes of a block, to room for one of any parameter and a word. Returns their end. */
static uint8_t *put_block(uint8_t *out, const struct block *block, unsigned b)
{
	struct writer w = {.at = out};
	uint64_t mask = (1ull << b) - 1;
	bool plain = block->all >> b < LONGEST && LONGEST + b < WORD_BITS;

	for (uint32_t i = 0; plain && i < block->n; i++) {
		uint64_t gap = block->gap[i];
		unsigned q = (unsigned)(gap >> b);

		put(&w, (1 | (gap & mask) << 1) << q, 1 + q + b);
	}
	for (uint32_t i = 0; !plain && i < block->n; i++)
		put_wide(&w, block->gap[i], b);
	return w.at + (w.n > 0);
}

uint32_t spri_rice_encode(uint8_t *out, const uint64_t *index, uint32_t n)
{
	uint8_t codes[BLOCK_BYTES + WORD];
	const uint8_t *start = out;
	struct block block;

	for (uint32_t at = 1; at < n; at += block.n) {
		unsigned b = 0;
		size_t bytes;

		read_gaps(&block, index + at - 1, (uint32_t)spri_min_u64(n - at, BLOCK));
		choose(&block, &b);
		*out++ = (uint8_t)b;
		bytes = (size_t)(put_block(codes, &block, b) - codes);
		memcpy(out, codes, bytes); /* a word at once writes behind its end */
		out += bytes;
	}
	return (uint32_t)(out - start);
}

/* ---- decoding ---- */

/* What was read of the section, and not yet decoded: [at, end) of bytes. */
struct window {
	const uint8_t *next;
	uint64_t left; /* bytes at next */
	uint32_t at, end;
	uint8_t bytes[4 * BLOCK_BYTES + WORD]; /* end is at 3 · BLOCK_BYTES at most */
};

/* Makes a whole block stand in the window, or all that there is and zeros. */
static void fill(struct window *w)
{
	uint32_t kept = w->end - w->at, more;

	if (kept >= BLOCK_BYTES || w->left == 0)
		return;
	memmove(w->bytes, w->bytes + w->at, kept);
	more = (uint32_t)spri_min_u64(w->left, 2 * BLOCK_BYTES);
	memcpy(w->bytes + kept, w->next, more);
	w->next += more;
	w->left -= more;
	w->at = 0;
	w->end = kept + more;
	if (w->left == 0)
		memset(w->bytes + w->end, 0, BLOCK_BYTES + WORD);
}

/* 57 bits or more, from bit `at` on. */
static inline uint64_t peek(const struct window *w, uint32_t at)
{
	return load(w->bytes + at / 8) >> at % 8;
}

/*
 * The codes of n gaps behind index[-1], from bit `at` on. in_one: a code fits into a word. Returns
 * the bit behind them, 0 for one that is not as short as it could be.
 */
static inline uint32_t take_codes(const struct window *w, uint32_t at, unsigned b, uint64_t *index,
				  uint32_t n, bool in_one)
{
	uint64_t mask = (1ull << b) - 1, last = index[-1];
	bool right = true;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t word = peek(w, at), gap;
		unsigned q = (unsigned)__builtin_ctzll(word | 1ull << LONGEST);

		if (spri_likely(q < LONGEST)) {
			gap = (in_one ? word >> (q + 1) : peek(w, at + q + 1)) & mask;
			gap |= (uint64_t)q << b;
			at += 1 + q + b;
		} else {
			gap = peek(w, at + LONGEST) & ((1ull << PLAIN_BITS) - 1);
			right &= gap >> b >= LONGEST;
			at += ESCAPED;
		}
		last += gap + 1;
		index[i] = last;
	}
	return right ? at : 0;
}

/* A block of n gaps. Returns whether it was right. */
static bool take_block(struct window *w, uint64_t *index, uint32_t n)
{
	unsigned b;
	uint32_t at, end;

	fill(w);
	b = w->bytes[w->at];
	if (w->at == w->end || b >= PARAMETERS)
		return false;
	at = 8 * (w->at + 1);
	if (LONGEST + b <= WORD_BITS)
		at = take_codes(w, at, b, index, n, true);
	else
		at = take_codes(w, at, b, index, n, false);
	end = (at + 7) / 8;
	if (at == 0 || end > w->end || (at % 8 && w->bytes[end - 1] >> at % 8))
		return false;
	w->at = end;
	return true;
}

int spri_rice_decode(const struct spri_chunk *chunk, uint64_t bytes, uint64_t *index,
		     uint64_t after, uint64_t length)
{
	uint64_t count = chunk->count;
	struct window w;

	length = spri_min_u64(length, SPR_MAX_COUNT); /* no sum of a block's gaps can wrap */
	if (bytes < spri_rice_least(count) || bytes > spri_rice_bound(count))
		return spri_trace(SPR_EPROTOCOL);
	if (count == 0)
		return 0;
	if (chunk->base >= length || (after != SPRI_NO_INDEX && chunk->base <= after))
		return spri_trace(SPR_EPROTOCOL);
	index[0] = chunk->base;
	w.next = chunk->payload;
	w.left = bytes;
	w.at = w.end = 0;
	for (uint64_t i = 1; i < count; i += BLOCK) {
		uint32_t n = (uint32_t)spri_min_u64(count - i, BLOCK);

		if (!take_block(&w, index + i, n) || index[i + n - 1] >= length)
			return spri_trace(SPR_EPROTOCOL);
	}
	return w.left || w.at != w.end ? spri_trace(SPR_EPROTOCOL) : 0;
}
