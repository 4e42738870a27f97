/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_info --topology: the machine and its local ranks, kept as a tree, as text, JSON or picture.
 */
#ifndef PERF_INFO_TOPOLOGY_H
#define PERF_INFO_TOPOLOGY_H

#include <internal/compiler.h>

#include <sparring/topology.h>
#include <stdio.h>

/* A row of spr_topology_list, kept. */
struct info_object {
	enum spr_topology_kind kind;
	int depth;
	int parent;		     /* -1: none */
	char *name, *value, *detail; /* owned */
	double x, y, w, h;	     /* of its box; topology_svg.c's own */
};

struct info_topology {
	struct info_object *objects; /* owned */
	size_t n, capacity;
	bool out_of_memory;
};

/* What the command line asks for. */
struct info_topology_options {
	const char *xml;  /* NULL: this machine */
	const char *svg;  /* picture to write; NULL: none */
	const char *json; /* NULL: text */
	uint64_t ranks;	  /* 0: as the library counts them */
};

/* Lists, writes and prints. Returns an exit status; failures were told. */
int info_topology(const struct info_topology_options *options);

/* Writes the picture. Returns 0 or -1 with errno. */
int info_topology_svg(struct info_topology *topology, const char *path) SPRI_MUST;

#endif
