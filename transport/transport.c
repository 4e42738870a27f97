/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The table of transports, best first. A newcomer adds one file, one line in rows.h and one line
 * here; the conformance suite, the tools and the listings read this table.
 */
#include "transport.h"

#include "rows.h"

#include <string.h>

static const struct spri_transport *const rows[] = {
	&spri_verbs,
	&spri_tcp,
	&spri_loop,
};

const struct spri_transport *spri_transport_row(unsigned i)
{
	return i < spri_countof(rows) ? rows[i] : NULL;
}

const struct spri_transport *spri_transport_find(const char *name)
{
	for (unsigned i = 0; i < spri_countof(rows); i++)
		if (strcmp(rows[i]->name, name) == 0)
			return rows[i];
	return NULL;
}

int spri_transport_no_device(const struct spri_port *port, struct spri_text *text)
{
	spri_text_set(text, "%s moves host memory only", port->ops->name);
	return spri_trace(SPR_EUNSUPPORTED);
}
