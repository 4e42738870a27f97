/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* The command line of spr_train. */
#include "train_job.h"

#include <options.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of the table, at most. */
#define MAX_OPTIONS 48

/* Words of the command line that become something else in the config. */
struct words {
	const char *model, *warmup, *wire, *codec, *pipeline, *trimmed, *memory;
	uint64_t hidden1, hidden2;
};

const char *const train_wire_names[] = {
	[SPR_F32] = "f32", [SPR_F16] = "f16", [SPR_BF16] = "bf16", NULL};
const char *const train_codec_names[] = {
	[SPR_CODEC_AUTO] = "auto", [SPR_CODEC_RAW] = "raw", [SPR_CODEC_PACKED] = "packed", NULL};
const char *const train_pipeline_names[] = {
	[SPR_PIPELINE_AUTO] = "auto", [SPR_PIPELINE_ON] = "on", [SPR_PIPELINE_OFF] = "off", NULL};
const char *const train_trimmed_names[] = {
	[SPR_TRIMMED_ADOPT] = "adopt", [SPR_TRIMMED_PUBLISHED] = "published", NULL};

const char *const train_memory_names[] = {
	[SPR_MEMORY_HOST] = "host", [SPR_MEMORY_CUDA] = "cuda", NULL};

/* A published schedule of densities for the first epochs. */
struct warmup {
	const char *name;
	double density[TRAIN_MAX_WARMUP];
};

static const struct warmup warmups[] = {
	{"dgc", {0.25, 0.0625, 0.015625, 0.004, 0.001}}, /* Lin et al. 2018 */
	{"gtopk", {0.25, 0.0725, 0.015, 0.004, 0.001}},	 /* Shi et al. 2019 */
};

/* The densities of a schedule, down to the first that is no higher than --density. */
static int choose_warmup(const struct perf_options *options, const char *name,
			 struct train_config *c)
{
	for (size_t i = 0; i < spri_countof(warmups); i++)
		if (strcmp(warmups[i].name, name) == 0) {
			c->warmup = warmups[i].density;
			c->warmup_name = name;
			return 0;
		}
	return perf_options_refuse(options, "--warmup is '%s', must be dgc or gtopk", name);
}

/* The place of a word in a list of names, or -1 after a message. */
static int choose_word(const struct perf_options *options, const char *option, const char *word,
		       const char *const *names)
{
	char list[64] = "";

	for (int i = 0; names[i]; i++) {
		size_t used = strlen(list);

		if (strcmp(names[i], word) == 0)
			return i;
		snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", names[i]);
	}
	return perf_options_refuse(options, "%s is '%s', must be one of %s", option, word, list);
}

static int choose_exchange(const struct perf_options *options, const struct words *words,
			   struct train_config *c)
{
	int wire = choose_word(options, "--wire", words->wire, train_wire_names), codec, pipeline,
	    trimmed, memory;

	if (wire < 0)
		return -1;
	codec = choose_word(options, "--codec", words->codec, train_codec_names);
	if (codec < 0)
		return -1;
	pipeline = choose_word(options, "--pipeline", words->pipeline, train_pipeline_names);
	if (pipeline < 0)
		return -1;
	trimmed = choose_word(options, "--trimmed", words->trimmed, train_trimmed_names);
	if (trimmed < 0)
		return -1;
	memory = choose_word(options, "--mem", words->memory, train_memory_names);
	if (memory < 0)
		return -1;
	c->memory = (enum spr_memory_kind)memory;
	c->wire = (enum spr_dtype)wire;
	c->codec = (enum spr_codec)codec;
	c->pipeline = (enum spr_pipeline)pipeline;
	c->trimmed = (enum spr_trimmed)trimmed;
	return 0;
}

static int choose_model(const struct perf_options *options, const char *name,
			struct train_config *c)
{
	c->model = train_model_find(name);
	return c->model ? 0
			: perf_options_refuse(options, "--model is '%s', must be mlp, conv or lm",
					      name);
}

static int check_algo(const struct perf_options *options, const char *name)
{
	struct spr_algo_info info;

	for (unsigned i = 0; spr_algo_info(i, &info) == 0; i++)
		if (strcmp(info.name, name) == 0)
			return 0;
	return perf_options_refuse(options, "--algo is '%s', must be one that spr_info lists",
				   name);
}

/* What the table of options cannot check by itself. */
static int check_words(const struct perf_options *options, const struct words *words,
		       struct train_config *c)
{
	int loop = c->transport && strcmp(c->transport, "loop") == 0;

	if (strcmp(c->decay, "linear") && strcmp(c->decay, "cosine") && strcmp(c->decay, "none"))
		return perf_options_refuse(
			options, "--lr-decay is '%s', must be linear, cosine or none", c->decay);
	if (c->n_sim_ranks && c->transport && !loop)
		return perf_options_refuse(
			options, "--ranks simulates over loop; for %s use spr_run -n %llu",
			c->transport, (unsigned long long)c->n_sim_ranks);
	if (loop && !c->n_sim_ranks)
		return perf_options_refuse(options, "--transport loop needs --ranks P");
	if (c->n_sim_ranks)
		c->transport = "loop";
	c->hidden[0] = words->hidden1;
	c->hidden[1] = words->hidden2;
	if (choose_model(options, words->model, c) < 0 ||
	    choose_warmup(options, words->warmup, c) < 0 || choose_exchange(options, words, c) < 0)
		return -1;
	return check_algo(options, c->algo);
}

/* What is trained, and how. Returns the number of rows. */
static size_t training_rows(struct perf_option *out, struct train_config *c, struct words *words)
{
	const struct perf_option rows[] = {
		{0, "model", PERF_OPT_STRING, "NAME",
		 "mlp (a perceptron), conv (a convolutional network),\n"
		 "lm (a language model on text); default mlp",
		 &words->model, 0, 0},
		{'e', "epochs", PERF_OPT_U64, "N", "passes over the samples (default 5)",
		 &c->epochs, 1, 100000},
		{'b', "batch", PERF_OPT_U64, "N", "samples per rank and step (default 64)",
		 &c->batch, 1, 65536},
		{'l', "lr", PERF_OPT_DOUBLE, "X", "learning rate (default 0.2)", &c->lr, 1e-12,
		 1e6},
		{'m', "momentum", PERF_OPT_DOUBLE, "X",
		 "momentum of the averaged update (default 0.5)", &c->momentum, 0, 0.9999},
		{0, "lr-decay", PERF_OPT_STRING, "HOW",
		 "how the learning rate falls: linear, cosine or none\n(default linear)", &c->decay,
		 0, 0},
		{0, "lr-warmup", PERF_OPT_U64, "N",
		 "steps over which it rises first (default: a quarter\nof an epoch)",
		 &c->warmup_steps, 0, 1e9},
		{0, "hidden1", PERF_OPT_U64, "N",
		 "mlp: units of the first hidden layer (default 1024);\n"
		 "conv: channels of the first convolution (8); lm: units (96)",
		 &words->hidden1, 1, 65536},
		{0, "hidden2", PERF_OPT_U64, "N",
		 "mlp: units of the second (256); conv: of the dense one (64)", &words->hidden2, 1,
		 65536},
		{'s', "seed", PERF_OPT_U64, "N", "of weights and shuffling (default 1)", &c->seed,
		 0, 0},
		{0, "data", PERF_OPT_STRING, "PATH",
		 "directory of IDX files (default " TRAIN_DATA_DIR ")\n"
		 "or, for lm, a text (default: what 'bible' prints);\nplain or gzipped",
		 &c->data, 0, 0},
		{0, "samples", PERF_OPT_U64, "N", "train on the first N samples (default all)",
		 &c->samples, 1, 1e15},
		{0, "test-samples", PERF_OPT_U64, "N", "test with the first N (default all)",
		 &c->test_samples, 1, 1e15},
		{0, "length", PERF_OPT_U64, "N", "lm: characters of a sample (default 48)",
		 &c->length, 1, 4096},
	};

	memcpy(out, rows, sizeof(rows));
	return spri_countof(rows);
}

/* The exchange. */
static size_t exchange_rows(struct perf_option *out, struct train_config *c, struct words *words)
{
	const struct perf_option rows[] = {
		{'a', "algo", PERF_OPT_STRING, "NAME",
		 "an algorithm that spr_info lists (default gtopk)", &c->algo, 0, 0},
		{'d', "density", PERF_OPT_DOUBLE, "D",
		 "share of the gradient that a rank sends (default 0.01)", &c->density, 1e-9, 1},
		{0, "warmup-epochs", PERF_OPT_U64, "N",
		 "epochs with a higher density first (default 0)", &c->warmup_epochs, 0,
		 TRAIN_MAX_WARMUP},
		{0, "warmup", PERF_OPT_STRING, "NAME",
		 "their densities: dgc (0.25, 0.0625, 0.015625, 0.004)\n"
		 "or gtopk (0.25, 0.0725, 0.015, 0.004); default dgc",
		 &words->warmup, 0, 0},
		{0, "momentum-correction", PERF_OPT_FLAG, NULL,
		 "momentum before selection, in the exchange", &c->momentum_correction, 0, 0},
		{0, "clip", PERF_OPT_DOUBLE, "X",
		 "scale each rank's gradient down to norm X / sqrt(P)\n(default: none)", &c->clip,
		 0, 1e9},
		{0, "weight-decay", PERF_OPT_DOUBLE, "X", "of all parameters (default 0)",
		 &c->weight_decay, 0, 1},
		{0, "per-layer", PERF_OPT_FLAG, NULL, "select from each layer by itself",
		 &c->per_layer, 0, 0},
		{0, "dense-small", PERF_OPT_FLAG, NULL,
		 "send layers of fewer than 1,024 elements whole", &c->dense_small, 0, 0},
		{0, "layerwise", PERF_OPT_FLAG, NULL,
		 "exchange a layer while backpropagation goes on", &c->layerwise, 0, 0},
		{0, "trimmed", PERF_OPT_STRING, "HOW",
		 "gtopk: adopt what is trimmed, or, as published, lose some\n(adopt, published; "
		 "default adopt)",
		 &words->trimmed, 0, 0},
		{0, "mem", PERF_OPT_STRING, "KIND",
		 "where gradient, update and weights are for the exchange:\nhost or cuda (default "
		 "host)",
		 &words->memory, 0, 0},
		{0, "wire", PERF_OPT_STRING, "TYPE", "f32, f16 or bf16 (default f32)", &words->wire,
		 0, 0},
		{0, "codec", PERF_OPT_STRING, "NAME",
		 "of indices: auto, raw or packed (default auto)", &words->codec, 0, 0},
		{0, "pipeline", PERF_OPT_STRING, "on|off",
		 "send entries while the next are selected (default auto: on)", &words->pipeline, 0,
		 0},
		{0, "broadcasters", PERF_OPT_U64, "R",
		 "iwp_ring: ranks that choose in a step (default 1)", &c->broadcasters, 1, 4096},
		{0, "importance-floor", PERF_OPT_DOUBLE, "C",
		 "iwp_ring: weights count as C times their rms at least\n(default 0.1)",
		 &c->importance_floor, 1e-9, 1e9},
	};

	memcpy(out, rows, sizeof(rows));
	return spri_countof(rows);
}

/* Where, and what is left behind. */
static size_t run_rows(struct perf_option *out, struct train_config *c)
{
	const struct perf_option rows[] = {
		{0, "transport", PERF_OPT_STRING, "T",
		 "auto, verbs, tcp, loop (SPR_TRANSPORT, else auto)", &c->transport, 0, 0},
		{0, "ranks", PERF_OPT_U64, "P", "loop: P ranks in this process", &c->n_sim_ranks, 1,
		 4096},
		{0, "json", PERF_OPT_STRING, "FILE", "write what was measured", &c->json, 0, 0},
		{0, "save", PERF_OPT_STRING, "PREFIX", "write a checkpoint after each epoch",
		 &c->save, 0, 0},
		{0, "restore", PERF_OPT_STRING, "PREFIX", "go on from a checkpoint", &c->restore, 0,
		 0},
	};

	memcpy(out, rows, sizeof(rows));
	return spri_countof(rows);
}

int train_options_parse(struct train_config *c, int argc, char **argv)
{
	struct words words = {.model = "mlp",
			      .warmup = "dgc",
			      .wire = "f32",
			      .codec = "auto",
			      .pipeline = "auto",
			      .trimmed = "adopt",
			      .memory = "host"};
	struct perf_option table[MAX_OPTIONS];
	static const char epilog[] =
		"Four ranks on this machine:  spr_run -n 4 -- spr_train --algo gtopk\n"
		"Sixteen simulated ones:      spr_train --ranks 16 --algo gtopk\n"
		"Without either it trains on one rank.\n";
	size_t n = training_rows(table, c, &words);

	n += exchange_rows(table + n, c, &words);
	n += run_rows(table + n, c);
	const struct perf_options options = {"spr_train",
					     "Trains on real data, data-parallel, and "
					     "shows what the exchange of gradients costs.",
					     "[OPTIONS]",
					     epilog,
					     table,
					     n,
					     false};
	int first, r = perf_options_parse(&options, argc, argv, &first);

	return r ? r : check_words(&options, &words, c);
}
