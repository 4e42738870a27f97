/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Stands in for topo.c in builds without hwloc: a machine of which nothing is known but its CPUs.
 */
#include <topo.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int spri_topo_read(const char *xml, struct spri_topo *out, struct spri_text *text)
{
	long n = sysconf(_SC_NPROCESSORS_CONF);

	if (xml) {
		spri_text_set(text, "%s: it takes hwloc to read it; built without", xml);
		return spri_trace(SPR_EUNSUPPORTED);
	}
	memset(out, 0, sizeof *out);
	for (long cpu = 0; cpu < n; cpu++)
		spri_cpus_add(&out->cpus, (unsigned)cpu);
	out->usable = out->cpus;
	snprintf(out->source, sizeof out->source, "built without hwloc: devices are not known");
	return 0;
}
