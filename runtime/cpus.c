/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Lists of CPUs as text; see cpus.h. */
#include <cpus.h>
#include <stdio.h>
#include <string.h>

const char *spri_cpus_text(const struct spri_cpus *set, char out[SPRI_CPUS_TEXT])
{
	size_t used = 0;

	snprintf(out, SPRI_CPUS_TEXT, "none");
	for (unsigned first = 0; first < SPRI_CPUS; first++) {
		unsigned last = first;
		char range[16];

		if (!spri_cpus_has(set, first))
			continue;
		while (spri_cpus_has(set, last + 1))
			last++;
		snprintf(range, sizeof range, last > first ? "%s%u-%u" : "%s%u", used ? "," : "",
			 first, last);
		if (used + strlen(range) + sizeof ",..." > SPRI_CPUS_TEXT) {
			snprintf(out + used, SPRI_CPUS_TEXT - used, ",...");
			break;
		}
		used += (size_t)snprintf(out + used, SPRI_CPUS_TEXT - used, "%s", range);
		first = last;
	}
	return out;
}

/* A number below SPRI_CPUS; moves *s behind it. */
static bool parse_cpu(const char **s, unsigned *out)
{
	const char *begin = *s;

	for (*out = 0; **s >= '0' && **s <= '9' && *out < SPRI_CPUS; ++*s)
		*out = *out * 10 + (unsigned)(**s - '0');
	return *s > begin && *out < SPRI_CPUS;
}

bool spri_cpus_parse(const char *text, struct spri_cpus *out)
{
	const char *s = text;

	memset(out, 0, sizeof *out);
	for (;;) {
		unsigned first, last;

		if (!parse_cpu(&s, &first))
			return false;
		last = first;
		if (*s == '-' && (s++, !parse_cpu(&s, &last) || last < first))
			return false;
		for (unsigned cpu = first; cpu <= last; cpu++)
			spri_cpus_add(out, cpu);
		if (*s == '\0')
			return true;
		if (*s++ != ',')
			return false;
	}
}
