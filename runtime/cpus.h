/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Sets of CPUs, as the system numbers them. CPUs from SPRI_CPUS on are not known here. */
#ifndef SPRI_CPUS_H
#define SPRI_CPUS_H

#include <internal/compiler.h>

#define SPRI_CPUS 1024

struct spri_cpus {
	uint64_t word[SPRI_CPUS / 64];
};

static inline void spri_cpus_add(struct spri_cpus *set, unsigned cpu)
{
	if (cpu < SPRI_CPUS)
		set->word[cpu / 64] |= 1ull << cpu % 64;
}

static inline bool spri_cpus_has(const struct spri_cpus *set, unsigned cpu)
{
	return cpu < SPRI_CPUS && (set->word[cpu / 64] >> cpu % 64 & 1);
}

static inline bool spri_cpus_empty(const struct spri_cpus *set)
{
	for (unsigned i = 0; i < spri_countof(set->word); i++)
		if (set->word[i])
			return false;
	return true;
}

static inline bool spri_cpus_equal(const struct spri_cpus *a, const struct spri_cpus *b)
{
	for (unsigned i = 0; i < spri_countof(a->word); i++)
		if (a->word[i] != b->word[i])
			return false;
	return true;
}

/* What is in both. */
static inline struct spri_cpus spri_cpus_both(const struct spri_cpus *a, const struct spri_cpus *b)
{
	struct spri_cpus out;

	for (unsigned i = 0; i < spri_countof(out.word); i++)
		out.word[i] = a->word[i] & b->word[i];
	return out;
}

static inline bool spri_cpus_meet(const struct spri_cpus *a, const struct spri_cpus *b)
{
	struct spri_cpus both = spri_cpus_both(a, b);

	return !spri_cpus_empty(&both);
}

#define SPRI_CPUS_TEXT 64

/*
 * Writes "0-7,16-23", "none", or as much as fits and "..." behind it; always terminated. Returns
 * out.
 */
const char *spri_cpus_text(const struct spri_cpus *set, char out[SPRI_CPUS_TEXT]);
/*
 * Reads such a list. False, and an unknown set, when it is none or names a CPU from SPRI_CPUS on.
 */
bool spri_cpus_parse(const char *text, struct spri_cpus *out) SPRI_MUST;

#endif
