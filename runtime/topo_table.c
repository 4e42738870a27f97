/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The table of topo.h: adding to it, and questions. */
#include <topo.h>

#include <stdio.h>
#include <string.h>

struct spri_topo_object *spri_topo_add(struct spri_topo *topo, enum spri_topo_kind kind, int parent)
{
	struct spri_topo_object *o;

	if (topo->n == SPRI_TOPO_OBJECTS) {
		topo->left_out++;
		return NULL;
	}
	o = &topo->objects[topo->n++];
	memset(o, 0, sizeof *o);
	o->kind = kind;
	o->parent = parent;
	o->depth = parent < 0 ? 0 : topo->objects[parent].depth + 1;
	o->number = -1;
	o->node = -1;
	return o;
}

int spri_topo_next(const struct spri_topo *topo, enum spri_topo_kind kind, int from)
{
	for (unsigned i = (unsigned)from; i < topo->n; i++)
		if (topo->objects[i].kind == kind)
			return (int)i;
	return -1;
}

int spri_topo_bridge(const struct spri_topo *topo, int a, int b)
{
	const struct spri_topo_object *o = topo->objects;

	while (a >= 0 && b >= 0 && a != b) {
		if (o[a].depth >= o[b].depth)
			a = o[a].parent;
		else
			b = o[b].parent;
	}
	return a == b && a >= 0 && o[a].kind == SPRI_TOPO_BRIDGE ? a : -1;
}

void spri_topo_name(const struct spri_topo_object *object, char *out, size_t bytes)
{
	if (object->kind == SPRI_TOPO_GPU && object->number >= 0)
		snprintf(out, bytes, "GPU %d", object->number);
	else if (object->kind == SPRI_TOPO_GPU)
		snprintf(out, bytes, "GPU at %s", object->pci);
	else
		snprintf(out, bytes, "%s", object->name);
}
