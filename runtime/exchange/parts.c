/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The layer table of an exchange, and how it is cut into parts, each of which is one operation per
 * step:
 *
 *   no table                     one part
 *   table, whole model (sparse)  one part over everything, then one for each dense layer; what the
 *                                dense layers hold is kept out of the first
 *   table, per layer             one part per layer (dense_ring and iwp_ring: always)
 *
 * Failures: a table with gaps, overlaps, empty layers, or of another length than the vector is
 * SPR_EARGUMENT; the text names the layer.
 */
#include <errno.h>
#include <internal/alloc.h>
#include <string.h>

#include "exchange.h"

static int check_layers(const struct spr_exchange_options *o, struct spri_text *text)
{
	uint64_t at = 0;

	for (size_t i = 0; i < o->n_layers; i++) {
		const struct spr_layer *layer = &o->layers[i];

		if (layer->offset != at || layer->count < 1 || layer->count > o->count - at) {
			spri_text_set(text,
				      "layer %zu is elements %llu + %llu, must begin at %llu, have "
				      "at least one element, and end by %llu",
				      i, (unsigned long long)layer->offset,
				      (unsigned long long)layer->count, (unsigned long long)at,
				      (unsigned long long)o->count);
			return SPR_EARGUMENT;
		}
		if (layer->flags & ~(unsigned)SPR_LAYER_DENSE) {
			spri_text_set(text,
				      "layer %zu has flags %#x, SPR_LAYER_DENSE is the only "
				      "one there is",
				      i, layer->flags);
			return SPR_EARGUMENT;
		}
		at += layer->count;
	}
	if (at != o->count) {
		spri_text_set(text, "the layers end at element %llu, must cover all %llu",
			      (unsigned long long)at, (unsigned long long)o->count);
		return SPR_EARGUMENT;
	}
	return 0;
}

static void add_part(struct spr_exchange *exchange, const struct spr_layer *layer)
{
	struct exchange_part *part = &exchange->parts[exchange->n_parts++];

	part->offset = layer->offset;
	part->count = layer->count;
	part->algo = layer->flags & SPR_LAYER_DENSE ? &spri_algo_dense_ring : exchange->algo;
}

int spri_parts_init(struct spr_exchange *exchange, const struct spr_exchange_options *o,
		    struct spri_text *text)
{
	struct spr_layer whole = {.count = o->count};
	const struct spr_layer *layers = o->layers ? o->layers : &whole;
	size_t n = o->layers ? o->n_layers : 1;
	int r = o->layers ? check_layers(o, text) : 0;

	if (r < 0)
		return r;
	exchange->whole_model = exchange->algo->kind == SPRI_ALGO_SPARSE && !o->per_layer;
	exchange->layers = spri_calloc(n, sizeof *exchange->layers);
	exchange->handed = spri_calloc(n, sizeof *exchange->handed);
	exchange->parts = spri_calloc(n + 1, sizeof *exchange->parts);
	exchange->order = spri_calloc(n + 1, sizeof *exchange->order);
	if (!exchange->layers || !exchange->handed || !exchange->parts || !exchange->order)
		return -ENOMEM;
	memcpy(exchange->layers, layers, n * sizeof *layers);
	exchange->n_layers = n;
	if (exchange->whole_model)
		add_part(exchange, &whole);
	for (size_t i = 0; i < n; i++)
		if (!exchange->whole_model || layers[i].flags & SPR_LAYER_DENSE)
			add_part(exchange, &layers[i]);
	if (exchange->algo->kind == SPRI_ALGO_MASKED) {
		exchange->drawn = spri_calloc(exchange->n_broadcasters, sizeof *exchange->drawn);
		if (!exchange->drawn)
			return -ENOMEM;
	}
	for (size_t i = 0; i < exchange->n_parts; i++) {
		struct exchange_part *part = &exchange->parts[i];

		part->op = spri_zalloc(sizeof *part->op);
		part->notes = part->algo->kind == SPRI_ALGO_MASKED
				      ? spri_calloc(exchange->n_broadcasters, EXCHANGE_NOTE_BYTES)
				      : NULL;
		if (!part->op || (part->algo->kind == SPRI_ALGO_MASKED && !part->notes))
			return -ENOMEM;
	}
	return 0;
}

void spri_parts_fini(struct spr_exchange *exchange)
{
	for (size_t i = 0; i < exchange->n_parts; i++) {
		spri_free(exchange->parts[i].op);
		spri_free(exchange->parts[i].notes);
	}
	spri_free(exchange->drawn);
	spri_free(exchange->order);
	spri_free(exchange->parts);
	spri_free(exchange->handed);
	spri_free(exchange->layers);
}

size_t spri_part_of_layer(const struct spr_exchange *exchange, size_t layer)
{
	size_t low = 1, high = exchange->n_parts;

	if (!exchange->whole_model)
		return layer;
	if (!(exchange->layers[layer].flags & SPR_LAYER_DENSE))
		return exchange->n_parts;
	while (low < high) { /* the dense ones ascend */
		size_t middle = low + (high - low) / 2;

		if (exchange->parts[middle].offset < exchange->layers[layer].offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

size_t spri_parts_of_layer(const struct spr_exchange *exchange, size_t layer, size_t *parts)
{
	size_t own = spri_part_of_layer(exchange, layer), n = 0;

	if (own < exchange->n_parts)
		parts[n++] = own;
	if (exchange->whole_model && exchange->n_ready == exchange->n_layers)
		parts[n++] = 0;
	return n;
}
