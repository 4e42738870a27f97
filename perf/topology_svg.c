/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The picture of spr_info --topology: what is in or below something is a box in its box; GPUs,
 * NICs and NUMA nodes carry a disc for each local rank that uses them, in the rank's colour; below,
 * each rank's decisions in words.
 *
 *   1. measure: from the leaves up; packages put what is in them below each other, all else side by
 *      side, in as many lines as it takes.
 *   2. place: from the root down.
 *   3. draw: boxes, discs, then the ranks.
 *
 * Failures: those of writing the file, which then is not complete.
 */
#include "info_topology.h"

#include <errno.h>
#include <string.h>

#define PAD 10.0
#define TITLE 22.0
#define LEAF_W 118.0
#define LEAF_H 58.0
#define LINE_W 1200.0 /* of what stands side by side */
#define DISC 9.0
#define CHAR_W 6.6 /* of a letter of 11 pixels, about */
#define RANK_H 46.0
#define WORDS 800 /* bytes of a line about a rank */

static const char *const colours[] = {"#1b6ca8", "#b8451f", "#2c7a3f", "#7b3f98",
				      "#8a6d00", "#a62f5b", "#1f7f7f", "#5b5b5b"};

struct picture {
	struct info_topology *t;
	FILE *out;
};

/* ---- where boxes stand ---- */

static bool in_tree(const struct info_object *o)
{
	return o->kind <= SPR_TOPOLOGY_NIC;
}

static bool is_leaf(const struct info_object *o)
{
	return o->kind == SPR_TOPOLOGY_NODE || o->kind == SPR_TOPOLOGY_GPU ||
	       o->kind == SPR_TOPOLOGY_NIC;
}

static double max(double a, double b)
{
	return a > b ? a : b;
}

/* Gives the children of `at` their places, relative to its corner, and it its size. */
static void measure(struct info_topology *t, size_t at)
{
	struct info_object *o = &t->objects[at];
	double x = PAD, y = TITLE, line = 0, right = 0;

	if (is_leaf(o)) {
		o->w = max(strlen(o->name), strlen(o->value)) * CHAR_W + 2 * PAD;
		o->w = max(o->w, LEAF_W);
		o->h = LEAF_H;
		return;
	}
	for (size_t i = at + 1; i < t->n && t->objects[i].depth > o->depth; i++) {
		struct info_object *child = &t->objects[i];

		if (child->parent != (int)at || !in_tree(child))
			continue;
		if (x > PAD && (o->kind == SPR_TOPOLOGY_PACKAGE || x + child->w > LINE_W)) {
			x = PAD;
			y += line + PAD;
			line = 0;
		}
		child->x = x;
		child->y = y;
		x += child->w + PAD;
		line = max(line, child->h);
		right = max(right, x);
	}
	o->w = max(right, CHAR_W * (double)(strlen(o->name) + strlen(o->value) + 2) + 2 * PAD);
	o->h = y + line + PAD;
}

static void lay_out(struct info_topology *t)
{
	for (size_t i = t->n; i-- > 0;)
		if (in_tree(&t->objects[i]))
			measure(t, i);
	for (size_t i = 0; i < t->n; i++) {
		struct info_object *o = &t->objects[i];

		if (in_tree(o) && o->parent >= 0) {
			o->x += t->objects[o->parent].x;
			o->y += t->objects[o->parent].y;
		}
	}
}

/* ---- drawing ---- */

static void put_text(struct picture *p, double x, double y, const char *style, const char *text)
{
	fprintf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, style);
	for (const char *s = text; *s; s++) {
		if (*s == '&' || *s == '<' || *s == '>')
			fprintf(p->out, "&#%d;", *s);
		else
			fputc(*s, p->out);
	}
	fprintf(p->out, "</text>\n");
}

static void draw_box(struct picture *p, const struct info_object *o)
{
	static const char *const styles[] = {
		[SPR_TOPOLOGY_MACHINE] = "machine", [SPR_TOPOLOGY_PACKAGE] = "package",
		[SPR_TOPOLOGY_NODE] = "node",	    [SPR_TOPOLOGY_BRIDGE] = "bridge",
		[SPR_TOPOLOGY_GPU] = "gpu",	    [SPR_TOPOLOGY_NIC] = "nic",
	};

	fprintf(p->out,
		"<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
		"rx=\"4\"/>\n",
		styles[o->kind], o->x, o->y, o->w, o->h);
	put_text(p, o->x + PAD, o->y + 15, "name", o->name);
	if (is_leaf(o))
		put_text(p, o->x + PAD, o->y + 30, "more", o->value);
	else
		put_text(p, o->x + PAD + CHAR_W * (double)(strlen(o->name) + 2), o->y + 15, "more",
			 o->value);
}

/* The choices of a rank stand behind it. */
static const struct info_object *choice(const struct info_topology *t, size_t rank,
					const char *name)
{
	for (size_t i = rank + 1; i < t->n && t->objects[i].kind == SPR_TOPOLOGY_CHOICE; i++)
		if (!strcmp(t->objects[i].name, name))
			return &t->objects[i];
	return NULL;
}

static bool uses(const struct info_topology *t, size_t rank, const struct info_object *o)
{
	const struct info_object *c = choice(t, rank,
					     o->kind == SPR_TOPOLOGY_GPU   ? "GPU"
					     : o->kind == SPR_TOPOLOGY_NIC ? "NIC"
									   : "landing slots");

	return c && !strcmp(c->value, o->name);
}

static void draw_disc(struct picture *p, double x, double y, unsigned rank)
{
	char number[12];

	snprintf(number, sizeof number, "%u", rank);
	fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x, y, DISC,
		colours[rank % spri_countof(colours)]);
	put_text(p, x, y + 3.5, "disc", number);
}

/* A disc for each rank that uses it; as many as fit, then dots. */
static void draw_users(struct picture *p, const struct info_object *o)
{
	double x = o->x + PAD + DISC, y = o->y + o->h - DISC - 5;
	unsigned rank = 0;

	for (size_t i = 0; i < p->t->n; i++) {
		if (p->t->objects[i].kind != SPR_TOPOLOGY_RANK)
			continue;
		if (uses(p->t, i, o)) {
			if (x + 3 * DISC > o->x + o->w) {
				put_text(p, x - DISC, y + 3, "more", "...");
				return;
			}
			draw_disc(p, x, y, rank);
			x += 2 * DISC + 2;
		}
		rank++;
	}
}

/* The two lines of words for a rank. */
static void say(const struct info_topology *t, size_t rank, int line, char *out, size_t bytes)
{
	static const char *const names[2][2] = {{"GPU", "NIC"},
						{"landing slots", "progress thread"}};

	out[0] = '\0';
	for (int k = 0; k < 2; k++) {
		const struct info_object *c = choice(t, rank, names[line][k]);
		size_t used = strlen(out);

		if (!c)
			continue;
		if (!strncmp(c->value, c->name, strlen(c->name))) /* "GPU 3" */
			snprintf(out + used, bytes - used, "%s (%s)", c->value, c->detail);
		else
			snprintf(out + used, bytes - used, "%s%s: %s (%s)", k ? "; " : "", c->name,
				 c->value[0] ? c->value : "none", c->detail);
	}
}

static void draw_rank(struct picture *p, size_t at, unsigned rank, double y)
{
	char text[WORDS];

	draw_disc(p, 2 * PAD + DISC, y + 14, rank);
	for (int line = 0; line < 2; line++) {
		say(p->t, at, line, text, sizeof text);
		put_text(p, 5 * PAD, y + 12 + 16 * line, line ? "more" : "name", text);
	}
}

static void draw(struct picture *p, double width, double height)
{
	const struct info_topology *t = p->t;
	double y = t->objects[0].y + t->objects[0].h + 2 * PAD;
	unsigned rank = 0;

	fprintf(p->out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\">\n",
		width, height, width, height);
	fprintf(p->out,
		"<style>text{font-family:sans-serif;fill:#1c1c1c}.name{font-size:12px}"
		".more{font-size:11px;fill:#4a4a4a}.disc{font-size:10px;fill:#fff;"
		"text-anchor:middle}rect{stroke:#8a8a8a}.machine{fill:#fff}.package{fill:#f3f3f0}"
		".node{fill:#e6e6e0}.bridge{fill:#fbfbf8;stroke-dasharray:4 3}.gpu{fill:#dcebd3}"
		".nic{fill:#d6e4f2}</style>\n");
	fprintf(p->out, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\" stroke=\"none\"/>\n",
		width, height);
	for (size_t i = 0; i < t->n; i++)
		if (in_tree(&t->objects[i]))
			draw_box(p, &t->objects[i]);
	for (size_t i = 0; i < t->n; i++)
		if (is_leaf(&t->objects[i]))
			draw_users(p, &t->objects[i]);
	for (size_t i = 0; i < t->n; i++)
		if (t->objects[i].kind == SPR_TOPOLOGY_RANK) {
			draw_rank(p, i, rank++, y);
			y += RANK_H;
		}
	fprintf(p->out, "</svg>\n");
}

int info_topology_svg(struct info_topology *t, const char *path)
{
	struct picture p = {.t = t, .out = fopen(path, "w")};
	double n_ranks = 0, words = 0;
	char text[WORDS];

	if (!p.out)
		return -1;
	for (size_t i = 0; i < t->n; i++) {
		n_ranks += t->objects[i].kind == SPR_TOPOLOGY_RANK;
		for (int line = 0; line < 2 && t->objects[i].kind == SPR_TOPOLOGY_RANK; line++) {
			say(t, i, line, text, sizeof text);
			words = max(words, CHAR_W * (double)strlen(text) + 7 * PAD);
		}
	}
	t->objects[0].x = t->objects[0].y = PAD;
	lay_out(t);
	draw(&p, max(t->objects[0].w + 2 * PAD, words),
	     t->objects[0].h + 4 * PAD + RANK_H * n_ranks);
	if (ferror(p.out)) {
		fclose(p.out);
		errno = EIO;
		return -1;
	}
	return fclose(p.out) == 0 ? 0 : -1;
}
