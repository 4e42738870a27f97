/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * perf/lib: readers of values, statistics, JSON text, and the oracle against definitions written
 * out by brute force.
 */
#include "check.h"

#include "json.h"
#include "options.h"
#include "oracle.h"
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(perflib, sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0},	       {"7", 7},	{"4K", 4096},	  {"4k", 4096},
		    {"16M", 16 << 20}, {"1G", 1 << 30}, {"2MB", 2 << 20}, {"2MiB", 2 << 20}};
	static const char *const bad[] = {"",
					  "K",
					  "-1",
					  "1.5M",
					  "4X",
					  "4KK",
					  "1 M",
					  "0x10",
					  "99999999999999999999",
					  "20000000000G"};

	for (size_t i = 0; i < spri_countof(good); i++) {
		uint64_t v = 1;

		cr_assert(perf_parse_size(good[i].text, &v), "size %s is one", good[i].text);
		cr_assert(v == good[i].bytes, "size %s gave %llu", good[i].text,
			  (unsigned long long)v);
	}
	for (size_t i = 0; i < spri_countof(bad); i++) {
		uint64_t v;

		cr_assert(!perf_parse_size(bad[i], &v), "size '%s' must be refused", bad[i]);
	}
}

Test(perflib, durations_and_rates)
{
	static const struct {
		const char *text;
		double bytes_per_s;
	} rates[] = {
		{"1gbit", 125e6}, {"1Gbit", 125e6}, {"100mbit", 12.5e6},   {"8", 1},
		{"8bit", 1},	  {"12mbps", 12e6}, {"1gibit", 134217728}, {"2.5gbit", 312.5e6},
		{"10kbit", 1250}, {"1g", 125e6}};
	static const char *const bad[] = {"",	    "0",      "-1gbit", "1gbyte", "fast",
					  "1 gbit", "1gbitt", "infbit", "nan"};
	uint64_t ns;

	for (size_t i = 0; i < spri_countof(rates); i++) {
		double v = 0;
		bool ok = perf_parse_rate(rates[i].text, &v);

		if (!strcmp(rates[i].text, "1g")) { /* tc wants its unit spelled out; so do we */
			cr_assert(!ok, "rate 1g must be refused");
			continue;
		}
		cr_assert(ok, "rate %s is one", rates[i].text);
		cr_assert(v == rates[i].bytes_per_s, "rate %s gave %g", rates[i].text, v);
	}
	for (size_t i = 0; i < spri_countof(bad); i++) {
		double v;

		cr_assert(!perf_parse_rate(bad[i], &v), "rate '%s' must be refused", bad[i]);
	}
	cr_assert(perf_parse_duration("50us", &ns) && ns == 50000, "50us is 50000 ns");
	cr_assert(perf_parse_duration("1.5ms", &ns) && ns == 1500000, "1.5ms is 1500000 ns");
	cr_assert(perf_parse_duration("2s", &ns) && ns == 2000000000u, "2s is 2e9 ns");
	cr_assert(perf_parse_duration("0", &ns) && ns == 0, "0 needs no unit");
	cr_assert(!perf_parse_duration("50", &ns), "50 needs a unit");
	cr_assert(!perf_parse_duration("5m", &ns), "5m is no time");
}

Test(perflib, nearest_word)
{
	static const char *const words[] = {"density", "digest", "algo"};

	cr_assert_str_eq(perf_nearest("densty", words, 3), "density");
	cr_assert_str_eq(perf_nearest("algos", words, 3), "algo");
	cr_assert_null(perf_nearest("zzzzzz", words, 3), "nothing is near zzzzzz");
}

Test(perflib, order_statistics)
{
	double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, with_nan[] = {NAN, 2, 1};

	cr_assert(perf_stats_median_of(odd, 3) == 3, "median of 1 3 5 is 3");
	cr_assert(perf_stats_median_of(even, 4) == 2.5, "median of 1 2 3 4 is 2.5");
	cr_assert(perf_stats_percentile(even, 4, 0) == 1, "the 0th percentile is the least");
	cr_assert(perf_stats_percentile(even, 4, 100) == 4, "the 100th percentile is the largest");
	perf_stats_sort(with_nan, 3);
	cr_assert(with_nan[0] == 1 && with_nan[1] == 2 && isnan(with_nan[2]), "NaN sorts last");
	cr_assert(isnan(perf_stats_median(odd, 0)), "nothing has no median");
}

/* What a file holds; the caller frees. */
static char *contents(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 4096);

	cr_assert(f != NULL && text != NULL, "%s is there", path);
	cr_assert(fread(text, 1, 4095, f) > 0, "%s is not empty", path);
	fclose(f);
	return text;
}

Test(perflib, json_text)
{
	char path[] = "/tmp/spr_json_XXXXXX";
	int fd = mkstemp(path);
	struct perf_json *json;
	char *text;

	cr_assert(fd >= 0, "a temporary file can be made");
	close(fd);
	json = perf_json_create(path);
	perf_json_begin_object(json, NULL);
	perf_json_string(json, "s", "a\"b\\c\n\x01\xff\xc3\xa9");
	perf_json_double(json, "nan", NAN);
	perf_json_double(json, "tenth", 0.1);
	perf_json_double(json, "third", 1.0 / 3);
	perf_json_begin_array(json, "list");
	perf_json_u64(json, NULL, UINT64_MAX);
	perf_json_i64(json, NULL, -3);
	perf_json_bool(json, NULL, true);
	perf_json_string(json, NULL, NULL);
	perf_json_end_array(json);
	perf_json_begin_object(json, "empty");
	perf_json_end_object(json);
	perf_json_end_object(json);
	cr_assert(perf_json_commit(json) == 0, "commit succeeds");
	text = contents(path);
	unlink(path);
	cr_assert_str_eq(text, "{\n  \"s\": \"a\\\"b\\\\c\\n\\u0001\\ufffd\xc3\xa9\",\n  \"nan\": "
			       "null,\n  \"tenth\": 0.1,\n"
			       "  \"third\": 0.3333333333333333,\n  \"list\": [\n    "
			       "18446744073709551615,\n    -3,\n"
			       "    true,\n    null\n  ],\n  \"empty\": {}\n}\n");
	free(text);
}

Test(perflib, json_is_atomic)
{
	char path[] = "/tmp/spr_json_XXXXXX";
	int fd = mkstemp(path);
	struct perf_json *json;
	char *text;

	cr_assert(fd >= 0 && write(fd, "old", 3) == 3, "a temporary file can be made");
	close(fd);
	json = perf_json_create(path);
	perf_json_begin_object(json, NULL);
	perf_json_abandon(json);
	text = contents(path);
	cr_assert_str_eq(text, "old", "an abandoned file leaves the old one");
	free(text);
	unlink(path);
	json = perf_json_create("/nonexistent-directory/x.json");
	perf_json_begin_object(json, NULL);
	perf_json_end_object(json);
	cr_assert(perf_json_commit(json) < 0, "a file that cannot be made is an error at commit");
}

/* The k largest by sorting out one maximum after the other. */
static int brute_topk(const float *v, int n, int k, bool *chosen)
{
	int taken = 0;

	memset(chosen, 0, (size_t)n * sizeof *chosen);
	for (; taken < k; taken++) {
		int best = -1;

		for (int i = 0; i < n; i++)
			if (!chosen[i] && v[i] != 0 && (best < 0 || fabsf(v[i]) > fabsf(v[best])))
				best = i; /* of equal ones the first stays */
		if (best < 0)
			break;
		chosen[best] = true;
	}
	return taken;
}

Test(perflib, oracle_topk_by_definition)
{
	enum { N = 150 };
	float v[N];
	bool chosen[N];

	for (uint64_t seed = 0; seed < 40; seed++) {
		perf_input_exact(seed, 1, 0, N, v);
		if (seed % 2) /* few values: ties everywhere */
			for (int i = 0; i < N; i++)
				v[i] = (float)((int)(v[i] * 1024) % 4);
		for (int k = 0; k <= N + 3; k += 1 + k / 4) {
			struct perf_list list = {0};
			int n = brute_topk(v, N, k, chosen), at = 0;

			cr_assert(perf_list_topk(v, N, (uint64_t)k, &list) == 0, "memory suffices");
			cr_assert(list.count == (uint64_t)n,
				  "seed %d k %d: %d entries expected, got %d", (int)seed, k, n,
				  (int)list.count);
			for (int i = 0; i < N; i++) {
				if (!chosen[i])
					continue;
				cr_assert(list.index[at] == (uint64_t)i && list.value[at] == v[i],
					  "seed %d k %d: entry %d must be index %d", (int)seed, k,
					  at, i);
				at++;
			}
			perf_list_fini(&list);
		}
	}
}

/* The tournament over dense vectors, recursion instead of lists. */
static void brute_keep(float *v, int n, int k)
{
	bool chosen[256];

	brute_topk(v, n, k, chosen);
	for (int i = 0; i < n; i++)
		if (!chosen[i])
			v[i] = 0;
}

static void brute_gtopk(uint64_t seed, int ranks, int n, int k, float *out)
{
	static float vectors[32][256];
	int players[32], n_players = 0, power = 1;

	while (power * 2 <= ranks)
		power *= 2;
	for (int r = 0; r < ranks; r++) {
		perf_input_exact(seed, r, 0, (uint64_t)n, vectors[r]);
		brute_keep(vectors[r], n, k);
	}
	for (int r = 0; r < ranks; r++) {
		bool fold = r < 2 * (ranks - power);

		if (fold && r % 2)
			continue;
		if (fold) {
			for (int i = 0; i < n; i++)
				vectors[r][i] += vectors[r + 1][i];
			brute_keep(vectors[r], n, k);
		}
		players[n_players++] = r;
	}
	cr_assert_eq(n_players, power, "the fold leaves a power of two");
	while (n_players > 1) { /* neighbours merge: distance 1, 2, 4 in first numbering */
		for (int j = 0; j < n_players / 2; j++) {
			for (int i = 0; i < n; i++)
				vectors[players[2 * j]][i] += vectors[players[2 * j + 1]][i];
			brute_keep(vectors[players[2 * j]], n, k);
			players[j] = players[2 * j];
		}
		n_players /= 2;
	}
	memcpy(out, vectors[players[0]], (size_t)n * sizeof *out);
}

Test(perflib, oracle_tournament_by_definition)
{
	enum { N = 200, K = 12 };
	float want[256];
	unsigned crossings = 0;

	for (int ranks = 1; ranks <= 17; ranks++) {
		for (uint64_t seed = 0; seed < 6; seed++) {
			struct perf_oracle oracle = {0};
			struct perf_list got = {0};
			uint64_t at = 0;

			brute_gtopk(seed, ranks, N, K, want);
			cr_assert(perf_oracle_init(&oracle, seed, ranks, N, K) == 0,
				  "memory suffices");
			cr_assert(perf_oracle_gtopk(&oracle, &got) == 0, "memory suffices");
			for (int i = 0; i < N; i++) {
				if (want[i] == 0)
					continue;
				cr_assert(at < got.count && got.index[at] == (uint64_t)i &&
						  got.value[at] == want[i],
					  "P %d seed %d: entry %d must be index %d", ranks,
					  (int)seed, (int)at, i);
				at++;
			}
			cr_assert(at == got.count, "P %d: %d entries too many", ranks,
				  (int)(got.count - at));
			crossings += got.count < K;
			perf_list_fini(&got);
			perf_oracle_fini(&oracle);
		}
	}
	cr_assert(crossings < 17 * 6, "most results are full");
}

/* The pruned ring, element by element. */
static void brute_prune_ring(uint64_t seed, int ranks, int n, int k, int step, float *out)
{
	static float vectors[17][256];
	int first = 0;

	for (int r = 0; r < ranks; r++) {
		perf_input_exact(seed, r, 0, (uint64_t)n, vectors[r]);
		brute_keep(vectors[r], n, k);
	}
	for (int b = 0; b < ranks; b++) {
		int size = n / ranks + (b < n % ranks), quota = k / ranks;

		quota += (b + step) % ranks < k % ranks;
		memset(out + first, 0, (size_t)size * sizeof *out);
		for (int i = 0; i < ranks; i++) {
			for (int j = 0; j < size; j++)
				out[first + j] += vectors[(b + i) % ranks][first + j];
			brute_keep(out + first, size, quota);
		}
		first += size;
	}
}

Test(perflib, oracle_prune_ring_by_definition)
{
	enum { N = 200, K = 12, STEP = 3 };
	float want[256];

	for (int ranks = 1; ranks <= 17; ranks++) {
		struct perf_oracle oracle = {0};
		struct perf_list got = {0};
		uint64_t at = 0;

		brute_prune_ring(5, ranks, N, K, STEP, want);
		cr_assert(perf_oracle_init(&oracle, 5, ranks, N, K) == 0 &&
				  perf_oracle_prune_ring(&oracle, STEP, &got) == 0,
			  "memory suffices");
		for (int i = 0; i < N; i++) {
			if (want[i] == 0)
				continue;
			cr_assert(at < got.count && got.index[at] == (uint64_t)i &&
					  got.value[at] == want[i],
				  "P %d: entry %d must be index %d", ranks, (int)at, i);
			at++;
		}
		cr_assert(at == got.count && at <= K, "P %d: no more entries", ranks);
		perf_list_fini(&got);
		perf_oracle_fini(&oracle);
	}
}

Test(perflib, oracle_sums_by_definition)
{
	enum { N = 300, P = 5, K = 20 };
	struct perf_oracle oracle = {0};
	struct perf_list got = {0};
	float one[N], sum[N] = {0}, tops[N] = {0};
	bool chosen[N];
	uint64_t at = 0;

	for (int r = 0; r < P; r++) {
		perf_input_exact(7, r, 0, N, one);
		brute_topk(one, N, K, chosen);
		for (int i = 0; i < N; i++) {
			sum[i] += one[i];
			tops[i] += chosen[i] ? one[i] : 0;
		}
	}
	cr_assert(perf_oracle_init(&oracle, 7, P, N, K) == 0 &&
			  perf_oracle_topk_allgather(&oracle, &got) == 0,
		  "memory suffices");
	cr_assert(perf_wrong_dense(oracle.dense, sum, N) == 0, "the dense sum is the sum");
	for (int i = 0; i < N; i++) {
		if (tops[i] == 0)
			continue;
		cr_assert(at < got.count && got.index[at] == (uint64_t)i &&
				  got.value[at] == tops[i],
			  "index %d", i);
		at++;
	}
	cr_assert(at == got.count, "no more entries than non-zero sums");
	perf_list_fini(&got);
	perf_oracle_fini(&oracle);
}

Test(perflib, inputs_are_exact_and_lively)
{
	enum { N = 100000 };
	float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
	unsigned zeros = 0, cancel = 0;

	cr_assert(a && b, "memory suffices");
	perf_input_exact(1, 0, 0, N, a);
	perf_input_exact(1, 3, 0, N, b);
	for (int i = 0; i < N; i++) {
		float whole = a[i] * 1024;

		cr_assert(whole == truncf(whole) && fabsf(whole) <= 4095, "element %d is %g/1024",
			  i, whole);
		zeros += a[i] == 0;
		cancel += a[i] != 0 && a[i] + b[i] == 0;
	}
	cr_assert(zeros > N / 32 && zeros < N / 8, "about one in 16 is zero, got %u", zeros);
	cr_assert(cancel > 20, "some sums cross zero, got %u", cancel);
	perf_input_exact(1, 0, 777, 1000, b);
	cr_assert(!memcmp(a + 777, b, 1000 * sizeof *b), "a piece is the same as within the whole");
	free(a);
	free(b);
}

Test(perflib, comparisons_find_differences)
{
	uint64_t index[] = {1, 5, 9};
	float value[] = {1, 2, 3}, zero[] = {0.0f, -0.0f}, other[] = {-0.0f, 1};
	struct perf_list want = {3, (uint64_t[]){1, 5, 9}, (float[]){1, 2, 3}};
	uint64_t digest = perf_digest_sparse(0, index, value, 3);

	cr_assert(perf_wrong_sparse(index, value, 3, &want) == 0, "equal lists have nothing wrong");
	cr_assert(perf_wrong_sparse(index, value, 2, &want) == 1, "a missing entry is one wrong");
	value[1] = 2.5f;
	cr_assert(perf_wrong_sparse(index, value, 3, &want) == 1, "another value is one wrong");
	cr_assert(perf_digest_sparse(0, index, value, 3) != digest,
		  "another value is another digest");
	value[1] = 2;
	index[1] = 6;
	cr_assert(perf_wrong_sparse(index, value, 3, &want) == 2,
		  "another index is one missing, one too many");
	cr_assert(perf_digest_sparse(0, index, value, 3) != digest,
		  "another index is another digest");
	cr_assert(perf_wrong_dense(zero, other, 2) == 1, "a zero of either sign is zero; 1 is not");
}
