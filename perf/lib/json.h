/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Writes JSON (RFC 8259), and the file appears whole or not at all: it is written beside its
 * place, synced, then renamed over it.
 *
 *     struct perf_json *json = perf_json_create("out.json");
 *     perf_json_begin_object(json, NULL);
 *     perf_json_string(json, "schema", "sparring.example");
 *     perf_json_begin_array(json, "records");
 *     ...
 *     perf_json_end_array(json);
 *     perf_json_end_object(json);
 *     r = perf_json_commit(json);
 *
 * Errors stick: after the first one the calls do nothing, and commit returns it. `key` is NULL
 * inside arrays and for the outermost value. Text is UTF-8; bytes that are not become U+FFFD.
 * Doubles keep their value exactly; NaN and infinity, which JSON lacks, become null.
 */
#ifndef PERF_JSON_H
#define PERF_JSON_H

#include <internal/compiler.h>

struct perf_json;

/*
 * "-" means standard output. Given: commit or abandon. Never NULL but when memory is out (then
 * every call accepts it).
 */
struct perf_json *perf_json_create(const char *path);

/* The first failure so far, or 0: a path that cannot be written is known at once. */
int perf_json_error(const struct perf_json *json);

void perf_json_begin_object(struct perf_json *json, const char *key);
void perf_json_end_object(struct perf_json *json);
void perf_json_begin_array(struct perf_json *json, const char *key);
void perf_json_end_array(struct perf_json *json);

void perf_json_string(struct perf_json *json, const char *key, const char *value); /* NULL: null */
void perf_json_u64(struct perf_json *json, const char *key, uint64_t value);
void perf_json_i64(struct perf_json *json, const char *key, int64_t value);
void perf_json_double(struct perf_json *json, const char *key, double value);
void perf_json_bool(struct perf_json *json, const char *key, bool value);
void perf_json_null(struct perf_json *json, const char *key);

/* "machine": {cpu, cores, system} of this machine; no names, addresses or environment. */
void perf_json_machine(struct perf_json *json, const char *key);

/*
 * Puts the file in place and frees. Returns: 0, or the first negative errno; then no file was
 * touched.
 */
int perf_json_commit(struct perf_json *json) SPRI_MUST;

/* Frees and leaves no file. Accepts NULL. */
void perf_json_abandon(struct perf_json *json);

#endif
