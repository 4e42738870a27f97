/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Environment variables; see env.h. */
#include <internal/bits.h>
#include <internal/clock.h>
#include <internal/env.h>

#include <errno.h>
#include <locale.h>
#include <sparring/types.h>
#include <stdlib.h>
#include <string.h>

#define ENV_ROW(id, name, value, meaning) {name, value, meaning},
static const struct spri_env_info rows[] = {SPRI_ENV_VARIABLES(ENV_ROW)};
#undef ENV_ROW

extern char **environ;

const struct spri_env_info *spri_env_info(enum spri_env variable)
{
	assert((size_t)variable < spri_countof(rows));
	return &rows[variable];
}

const char *spri_env_get(enum spri_env variable)
{
	const char *value = getenv(spri_env_info(variable)->name);

	return value && *value ? value : NULL;
}

/* Digits only, no sign or space; *end is what follows. Returns false on overflow or no digit. */
static bool digits(const char *s, uint64_t *out, const char **end)
{
	uint64_t v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return false;
	*out = v;
	*end = p;
	return p != s;
}

int spri_env_u64(enum spri_env variable, uint64_t min, uint64_t max, uint64_t fallback,
		 uint64_t *out, struct spri_text *text)
{
	const char *s = spri_env_get(variable), *end;
	uint64_t v;

	if (!s) {
		*out = fallback;
		return 0;
	}
	if (!digits(s, &v, &end) || *end || v < min || v > max) {
		spri_text_set(text, "%s is '%s', must be a whole number from %llu to %llu",
			      spri_env_info(variable)->name, s, (unsigned long long)min,
			      (unsigned long long)max);
		return SPR_EENVIRONMENT;
	}
	*out = v;
	return 0;
}

int spri_env_bytes(enum spri_env variable, uint64_t min, uint64_t max, uint64_t fallback,
		   uint64_t *out, struct spri_text *text)
{
	static const char units[] = "KMG";
	const char *s = spri_env_get(variable), *end, *unit;
	uint64_t v, factor = 1;

	if (!s) {
		*out = fallback;
		return 0;
	}
	if (digits(s, &v, &end)) {
		unit = *end ? strchr(units, *end) : NULL;
		if (unit) {
			factor = 1ull << 10 * (unit - units + 1);
			end++;
		}
		if (!*end && !__builtin_mul_overflow(v, factor, &v) && v >= min && v <= max) {
			*out = v;
			return 0;
		}
	}
	spri_text_set(
		text, "%s is '%s', must be a size from %llu to %llu bytes (K, M or G may follow)",
		spri_env_info(variable)->name, s, (unsigned long long)min, (unsigned long long)max);
	return SPR_EENVIRONMENT;
}

int spri_env_seconds(enum spri_env variable, uint64_t fallback_ns, uint64_t *out_ns,
		     struct spri_text *text)
{
	const char *s = spri_env_get(variable);
	locale_t plain; /* a decimal point is a point, whatever the program's locale */
	char *end = NULL;
	double v = -1;

	if (!s) {
		*out_ns = fallback_ns;
		return 0;
	}
	plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (plain == (locale_t)0)
		return -errno;
	if (*s >= '0' && *s <= '9')
		v = strtod_l(s, &end, plain);
	freelocale(plain);
	if (!(v >= 1e-3 && v <= 1e6) || *end) {
		spri_text_set(text, "%s is '%s', must be seconds from 0.001 to 1000000",
			      spri_env_info(variable)->name, s);
		return SPR_EENVIRONMENT;
	}
	*out_ns = (uint64_t)(v * 1e9);
	return 0;
}

int spri_env_word(enum spri_env variable, const char *const *words, int fallback, int *out,
		  struct spri_text *text)
{
	const char *s = spri_env_get(variable);
	char list[160] = "";

	if (!s) {
		*out = fallback;
		return 0;
	}
	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], s)) {
			*out = i;
			return 0;
		}
		if (strlen(list) + strlen(words[i]) + 3 < sizeof list) {
			strcat(list, i ? ", " : "");
			strcat(list, words[i]);
		}
	}
	spri_text_set(text, "%s is '%s', must be one of %s", spri_env_info(variable)->name, s,
		      list);
	return SPR_EENVIRONMENT;
}

/* Launchers that tell a process its place on the machine. Slurm's count is like "4(x2),3". */
static const struct {
	const char *rank, *size;
} launchers[] = {
	{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	{"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	{"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

int spri_env_local(uint32_t *rank, uint32_t *size, const char **from, struct spri_text *text)
{
	uint64_t r = 0, n = 1;
	int status;

	*from = NULL;
	if (spri_env_get(SPRI_ENV_LOCAL_RANK) || spri_env_get(SPRI_ENV_LOCAL_SIZE)) {
		*from = spri_env_info(SPRI_ENV_LOCAL_RANK)->name;
		status = spri_env_u64(SPRI_ENV_LOCAL_SIZE, 1, SPR_MAX_RANKS, 1, &n, text);
		if (status == 0)
			status = spri_env_u64(SPRI_ENV_LOCAL_RANK, 0, n - 1, 0, &r, text);
		if (status < 0)
			return status;
	}
	for (size_t i = 0; i < spri_countof(launchers) && !*from; i++) {
		const char *a = getenv(launchers[i].rank), *b = getenv(launchers[i].size), *end;

		if (!a || !b || !digits(a, &r, &end) || *end || !digits(b, &n, &end))
			continue;
		if (*end) /* not the same everywhere, and perhaps another node's */
			n = spri_max_u64(n, r + 1);
		if (r < n && n <= SPR_MAX_RANKS)
			*from = launchers[i].rank;
	}
	*rank = *from ? (uint32_t)r : 0;
	*size = *from ? (uint32_t)n : 1;
	return 0;
}

/* Levenshtein distance of two short names; longer ones are cut. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64];
	size_t nb = strlen(b);

	if (nb > 62)
		nb = 62;
	for (size_t j = 0; j <= nb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = (unsigned)spri_min_u64(spri_min_u64(row[j], row[j - 1]) + 1,
							change);
		}
	}
	return row[nb];
}

const char *spri_env_nearest(const char *name)
{
	size_t best = 0;
	unsigned least = ~0u;

	for (size_t i = 0; i < spri_countof(rows); i++) {
		unsigned d = distance(name, rows[i].name);

		if (d < least) {
			least = d;
			best = i;
		}
	}
	return rows[best].name;
}

void spri_env_unknown(void (*fn)(void *arg, const char *name, const char *nearest), void *arg)
{
	for (char **e = environ; e && *e; e++) {
		char name[64];
		size_t n = strcspn(*e, "=");
		bool known = false;

		if (strncmp(*e, "SPR_", 4) != 0 || n >= sizeof name)
			continue;
		memcpy(name, *e, n);
		name[n] = '\0';
		for (size_t i = 0; i < spri_countof(rows); i++)
			known = known || !strcmp(rows[i].name, name);
		if (!known)
			fn(arg, name, spri_env_nearest(name));
	}
}
