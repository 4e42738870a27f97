/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Where the rows of spr_info_list go, and the lists that are not in info.c. */
#ifndef SPRI_SINK_H
#define SPRI_SINK_H

#include <internal/compiler.h>
#include <sparring/info.h>

struct spri_sink {
	spr_info_fn fn;
	void *arg;
};

static inline void spri_emit(const struct spri_sink *sink, const char *name, const char *value,
			     const char *source, const char *detail, bool chosen)
{
	struct spr_info_row row = {
		.name = name, .value = value, .source = source, .detail = detail, .chosen = chosen};

	sink->fn(sink->arg, &row);
}

/* SPR_INFO_GPUDIRECT. Returns 0; SPR_EENVIRONMENT, negative errno. */
int spri_info_gpudirect(const struct spri_sink *sink) SPRI_MUST;

#endif
