/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_allreduce_perf: times and checks every all-reduce, one line per size and algorithm, in the
 * manner of nccl-tests.
 *
 * Path: read the command line; then either be one rank of a job (spr_run, or any launcher that
 * sets SPR_RANK, SPR_SIZE, SPR_ROOT), or simulate --ranks of them in this process over the loop
 * transport. Rank 0 prints.
 * Failures: a wrong command line is refused with status 2 before anything starts; an error of the
 * library ends with status 3; wrong results are counted in the table and end with status 1.
 */
#include "allreduce.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

#define EXIT_WRONG 1
#define EXIT_FAILED 3
#define TIMEOUT_S 120 /* rank 0 computes the oracle while the others wait */
#define UNSET UINT64_MAX
#define MAX_SIZES 100000

/* Words of the command line that become something else in the config. */
struct words {
	uint64_t begin, end, step;
	double factor;
	const char *counts, *algo, *type, *data, *wire, *codec, *memory;
	uint64_t gpu;
};

const char *const ar_wire_names[] = {"f32", "f16", "bf16", NULL};
static const char *const memory_names[] = {"host", "cuda", NULL};
const char *const ar_codec_names[] = {"auto", "raw", "packed", NULL};

static const char epilog[] =
	"Sizes are bytes of the dense vector; K, M and G may follow. Columns: time is the median, "
	"over the iterations, of the\n"
	"slowest rank, of the whole operation: for sparse algorithms one exchange with selection, "
	"for masked ones\n"
	"the tool's own choice of the k largest on each broadcaster, and their sum. "
	"comm is the all-reduce of\n"
	"entries already selected; floor its lower bound by the cost formula, with alpha and beta "
	"measured in this run.\n"
	"busbw is algbw x 2(P-1)/P. wireB is what the busiest rank sent, everything included.\n"
	"Exit status: 0, 1 when a result is wrong, 2 for a refused command line, 3 when the "
	"library failed.\n\n"
	"    spr_run -n 4 -- spr_allreduce_perf -b 4 -e 16M -f 4 --density 0.01\n"
	"    spr_run -n 4 -- spr_allreduce_perf --algo iwp_ring --broadcasters 2 --wire f16\n"
	"    spr_allreduce_perf --transport loop --ranks 17 -e 64K -c 1\n";

/* The sizes from -b to -e. Returns 0, or -1 with a message. */
static int range_sizes(const struct perf_options *options, const struct words *words,
		       struct ar_config *config)
{
	uint64_t begin = words->begin, end = words->end;

	if (begin == UNSET)
		begin = end == UNSET || end > 1024 ? 1024 : end;
	if (end == UNSET)
		end = words->begin == UNSET ? 16u << 20 : begin;
	if (end < begin)
		return perf_options_refuse(options, "-e is below -b");
	if (words->step != UNSET && words->factor > 0)
		return perf_options_refuse(options, "-f and -i exclude each other");
	config->counts = malloc(MAX_SIZES * sizeof *config->counts);
	if (!config->counts)
		return perf_options_refuse(options, "out of memory");
	for (uint64_t size = begin; size <= end;) {
		double next = (double)size * (words->factor > 0 ? words->factor : 4);

		if (config->n_counts == MAX_SIZES)
			return perf_options_refuse(options, "more than %d sizes; use a larger step",
						   MAX_SIZES);
		config->counts[config->n_counts++] = size / sizeof(float);
		if (words->step != UNSET)
			next = (double)size + (double)words->step;
		if (next < (double)size + sizeof(float)) /* from 0 on, and for factors near 1 */
			next = (double)size + sizeof(float);
		if (next > (double)end)
			break;
		size = (uint64_t)next;
	}
	return 0;
}

/* The sizes of --counts. */
static int list_sizes(const struct perf_options *options, const struct words *words,
		      struct ar_config *config)
{
	char *copy, *save = NULL;
	int r = 0;

	if (words->begin != UNSET || words->end != UNSET || words->step != UNSET ||
	    words->factor > 0)
		return perf_options_refuse(options, "--counts excludes -b, -e, -f and -i");
	copy = strdup(words->counts);
	config->counts = malloc((strlen(words->counts) + 1) * sizeof *config->counts);
	if (!copy || !config->counts)
		r = perf_options_refuse(options, "out of memory");
	for (char *w = r ? NULL : strtok_r(copy, ",", &save); w && !r;
	     w = strtok_r(NULL, ",", &save)) {
		if (!perf_parse_size(w, &config->counts[config->n_counts++]))
			r = perf_options_refuse(
				options, "--counts has '%s', must be whole numbers with commas", w);
	}
	if (!r && config->n_counts == 0)
		r = perf_options_refuse(options, "--counts is empty");
	free(copy);
	return r;
}

/* Adds the algorithm, or all of them for NULL. */
static int add_algo(const struct perf_options *options, const char *name, struct ar_config *config)
{
	const char *known[AR_MAX_ALGOS];
	struct spr_algo_info info;
	const char *nearest;
	unsigned i = 0;
	bool found = false;

	for (; i < AR_MAX_ALGOS && spr_algo_info(i, &info) == 0; i++) {
		known[i] = info.name;
		if (name && strcmp(name, info.name))
			continue;
		found = true;
		if (config->n_algos == AR_MAX_ALGOS)
			return perf_options_refuse(options, "--algo names more than %d",
						   AR_MAX_ALGOS);
		config->algos[config->n_algos++] = info;
	}
	if (found)
		return 0;
	nearest = name ? perf_nearest(name, known, i) : NULL;
	return perf_options_refuse(options, "--algo has '%s', which is no algorithm%s%s",
				   name ? name : "",
				   nearest ? "; the nearest one is " : ", spr_info lists them",
				   nearest ? nearest : "");
}

static int choose_algos(const struct perf_options *options, const char *list,
			struct ar_config *config)
{
	char *copy, *save = NULL;
	int r = 0;

	if (!list || !strcmp(list, "all"))
		return add_algo(options, NULL, config);
	copy = strdup(list);
	for (char *w = copy ? strtok_r(copy, ",", &save) : NULL; w && !r;
	     w = strtok_r(NULL, ",", &save))
		r = add_algo(options, w, config);
	if (!r && !config->n_algos)
		r = perf_options_refuse(options, "--algo is empty");
	free(copy);
	return r;
}

/* The number of a word, or -1 with a message. */
static int find_word(const struct perf_options *options, const char *option, const char *word,
		     const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(word, names[i]))
			return i;
	return perf_options_refuse(options, "%s is '%s', must be %s, %s or %s", option, word,
				   names[0], names[1], names[2]);
}

/* What goes on the wire. */
static int choose_wire(const struct perf_options *options, const struct words *words,
		       struct ar_config *config)
{
	int wire = find_word(options, "--wire", words->wire, ar_wire_names), codec;

	if (wire < 0)
		return -1;
	codec = find_word(options, "--codec", words->codec, ar_codec_names);
	if (codec < 0)
		return -1;
	config->wire = (enum spr_dtype)wire;
	config->codec = (enum spr_codec)codec;
	if (config->n_sim_ranks && config->broadcasters > config->n_sim_ranks)
		return perf_options_refuse(options, "--broadcasters is above --ranks");
	return 0;
}

/* Where the vectors are. */
static int choose_memory(const struct perf_options *options, const struct words *words,
			 struct ar_config *config)
{
	int memory = !strcmp(words->memory, memory_names[1]);

	if (!memory && strcmp(words->memory, memory_names[0]))
		return perf_options_refuse(options, "--mem is '%s', must be host or cuda",
					   words->memory);
	if (words->gpu != UNSET && !memory)
		return perf_options_refuse(options, "--gpu goes with --mem cuda");
	config->memory = (enum spr_memory_kind)memory;
	config->device = words->gpu != UNSET ? SPR_GPU((int)words->gpu) : 0;
	return 0;
}

/* What the table of options cannot check by itself. */
static int check_words(const struct perf_options *options, const struct words *words,
		       struct ar_config *config)
{
	bool loop = config->transport && !strcmp(config->transport, "loop");

	if (strcmp(words->type, "float") && strcmp(words->type, "f32") &&
	    strcmp(words->type, "fp32"))
		return perf_options_refuse(options, "-d is '%s', must be float", words->type);
	if (strcmp(words->data, "exact") && strcmp(words->data, "random"))
		return perf_options_refuse(options, "--data is '%s', must be exact or random",
					   words->data);
	config->random = !strcmp(words->data, "random");
	if (choose_memory(options, words, config))
		return -1;
	if (choose_wire(options, words, config))
		return -1;
	if (config->k && config->density > 0)
		return perf_options_refuse(options, "--k and --density exclude each other");
	if (!config->k && config->density == 0)
		config->density = 0.001;
	if (config->n_sim_ranks && config->transport && !loop)
		return perf_options_refuse(
			options, "--ranks simulates over loop; for %s use spr_run -n %llu",
			config->transport, (unsigned long long)config->n_sim_ranks);
	if (loop && !config->n_sim_ranks)
		return perf_options_refuse(options, "--transport loop needs --ranks P");
	if (!config->n_sim_ranks && (config->alpha_ns != UNSET || config->bytes_per_s > 0))
		return perf_options_refuse(
			options,
			"--alpha and --rate are of the simulated network; they need --ranks P");
	if (config->n_sim_ranks) {
		config->transport = "loop";
		config->alpha_ns = config->alpha_ns == UNSET ? 50000 : config->alpha_ns;
		config->bytes_per_s = config->bytes_per_s > 0 ? config->bytes_per_s : 125e6;
	}
	if (config->iterations == UNSET)
		config->iterations = config->n_sim_ranks ? 1 : 20;
	if (config->warmups == UNSET)
		config->warmups = config->n_sim_ranks ? 0 : 5;
	if (config->timeout_s == 0 && !getenv("SPR_TIMEOUT"))
		config->timeout_s = TIMEOUT_S;
	if (words->counts ? list_sizes(options, words, config)
			  : range_sizes(options, words, config))
		return -1;
	return choose_algos(options, words->algo, config);
}

/* Reads the command line. Returns as perf_options_parse. */
static int read_options(int argc, char **argv, struct ar_config *config)
{
	struct words words = {.begin = UNSET,
			      .end = UNSET,
			      .step = UNSET,
			      .type = "float",
			      .data = "exact",
			      .wire = "f32",
			      .codec = "auto",
			      .memory = "host",
			      .gpu = UNSET};
	const struct perf_option table[] = {
		{'b', "minbytes", PERF_OPT_SIZE, "SIZE", "smallest size (1K)", &words.begin, 0,
		 1e15},
		{'e', "maxbytes", PERF_OPT_SIZE, "SIZE", "largest size (16M, or -b)", &words.end, 0,
		 1e15},
		{'f', "stepfactor", PERF_OPT_DOUBLE, "F", "from size to size by this factor (4)",
		 &words.factor, 1.01, 1e9},
		{'i', "stepbytes", PERF_OPT_SIZE, "SIZE", "or by so many bytes", &words.step, 1,
		 1e15},
		{0, "counts", PERF_OPT_STRING, "N,N,...", "instead: these numbers of elements",
		 &words.counts, 0, 0},
		{'n', "iters", PERF_OPT_U64, "N", "timed iterations (20; loop: 1)",
		 &config->iterations, 1, 1e6},
		{'w', "warmup_iters", PERF_OPT_U64, "N", "iterations before (5; loop: 0)",
		 &config->warmups, 0, 1e6},
		{'c', "check", PERF_OPT_U64, "0|1", "compare every result with the oracle (1)",
		 &config->check, 0, 1},
		{'d', "datatype", PERF_OPT_STRING, "TYPE", "float", &words.type, 0, 0},
		{0, "algo", PERF_OPT_STRING, "A,A,...", "algorithms (all; spr_info lists them)",
		 &words.algo, 0, 0},
		{0, "density", PERF_OPT_DOUBLE, "D",
		 "share of elements that sparse algorithms keep (0.001)", &config->density, 1e-12,
		 1},
		{0, "k", PERF_OPT_U64, "K", "instead: how many", &config->k, 1, 281474976710656.0},
		{0, "broadcasters", PERF_OPT_U64, "R", "masked: ranks that propose (1)",
		 &config->broadcasters, 1, SPR_MAX_RANKS},
		{0, "wire", PERF_OPT_STRING, "TYPE", "of values: f32, f16, bf16 (f32)", &words.wire,
		 0, 0},
		{0, "codec", PERF_OPT_STRING, "C", "of indices: auto, raw, packed (auto)",
		 &words.codec, 0, 0},
		{0, "mem", PERF_OPT_STRING, "KIND", "of vectors and lists: host, cuda (host)",
		 &words.memory, 0, 0},
		{0, "gpu", PERF_OPT_U64, "N", "cuda: of every rank (each its own: SPR_DEVICE)",
		 &words.gpu, 0, 63},
		{0, "transport", PERF_OPT_STRING, "T",
		 "auto, verbs, tcp, loop (SPR_TRANSPORT, else auto)", &config->transport, 0, 0},
		{0, "ranks", PERF_OPT_U64, "P", "loop: simulate P ranks in this process",
		 &config->n_sim_ranks, 1, 4096},
		{0, "alpha", PERF_OPT_DURATION, "TIME", "loop: latency of a message (50us)",
		 &config->alpha_ns, 0, 1e12},
		{0, "rate", PERF_OPT_RATE, "RATE", "loop: bandwidth of a rank each way (1gbit)",
		 &config->bytes_per_s, 1, 1e15},
		{0, "data", PERF_OPT_STRING, "KIND", "exact, or random (digests only)", &words.data,
		 0, 0},
		{0, "seed", PERF_OPT_U64, "N", "of the data (1)", &config->seed, 0, 0},
		{0, "timeout", PERF_OPT_DOUBLE, "S",
		 "deadline of an operation (SPR_TIMEOUT, else 120)", &config->timeout_s, 0.001,
		 1e6},
		{0, "digest", PERF_OPT_FLAG, NULL, "print 64 bits that stand for the result",
		 &config->digest, 0, 0},
		{0, "json", PERF_OPT_STRING, "FILE",
		 "write everything there too; - is standard output", &config->json_path, 0, 0},
	};
	const struct perf_options options = {
		AR_TOOL,     "Times and checks sparring's all-reduces.",
		"[OPTIONS]", epilog,
		table,	     spri_countof(table),
		false};
	int first;
	int r = perf_options_parse(&options, argc, argv, &first);

	return r ? r : check_words(&options, &words, config);
}

/* What the simulated ranks share. */
struct simulation {
	const struct ar_config *config;
	struct ar_bench *benches;
	struct ar_report *report;
};

static int simulated_rank(struct spr_sim *sim, int rank, void *arg)
{
	const struct simulation *s = arg;
	struct ar_bench *bench = &s->benches[rank];

	*bench = (struct ar_bench){
		.config = s->config, .sim = sim, .rank = rank, .report = s->report};
	return ar_bench_run(bench);
}

/* Returns the exit status; *first is rank 0. */
static int simulate(const struct ar_config *config, struct ar_report *report,
		    struct ar_bench *first)
{
	int n = (int)config->n_sim_ranks;
	struct spr_sim_options options = {.size = sizeof options,
					  .n_ranks = n,
					  .latency_ns = config->alpha_ns,
					  .bytes_per_s = config->bytes_per_s,
					  .seed = config->seed};
	struct simulation s = {config, calloc((size_t)n, sizeof *s.benches), report};
	int *statuses = calloc((size_t)n, sizeof *statuses);
	struct spr_sim *sim = NULL;
	int r = s.benches && statuses ? spr_sim_create(&options, &sim) : -1, status = 0;

	if (r == 0)
		r = spr_sim_run(sim, simulated_rank, &s, statuses);
	for (int i = 0; i < n && r == 0; i++)
		if (statuses[i] < 0)
			status = EXIT_FAILED;
	if (r < 0) {
		fprintf(stderr, "%s: cannot simulate %d ranks: %s\n", AR_TOOL, n, spr_strerror(r));
		status = EXIT_FAILED;
	} else {
		*first = s.benches[0];
	}
	spr_sim_destroy(sim);
	free(statuses);
	free(s.benches);
	return status;
}

int main(int argc, char **argv)
{
	struct ar_config config = {.iterations = UNSET,
				   .warmups = UNSET,
				   .check = 1,
				   .seed = 1,
				   .broadcasters = 1,
				   .alpha_ns = UNSET,
				   .argc = argc,
				   .argv = argv};
	const char *rank = getenv("SPR_RANK");
	struct ar_bench bench = {.config = &config, .rank = rank ? atoi(rank) : 0};
	struct ar_report *report = NULL;
	int r = read_options(argc, argv, &config), status = 0;

	if (r) {
		free(config.counts);
		return r > 0 ? 0 : PERF_EXIT_USAGE;
	}
	if (config.n_sim_ranks || bench.rank == 0) {
		report = ar_report_create(&config);
		if (!report) {
			free(config.counts);
			return PERF_EXIT_USAGE;
		}
	}
	bench.report = report;
	if (config.n_sim_ranks)
		status = simulate(&config, report, &bench);
	else if (ar_bench_run(&bench) < 0)
		status = EXIT_FAILED;
	if (status == 0 && report) {
		if (ar_report_end(report, &bench) < 0)
			status = EXIT_FAILED;
		else if (bench.wrong)
			status = EXIT_WRONG;
	}
	ar_report_destroy(report);
	free(config.counts);
	return status;
}
