/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * JSON writer; the contract is in json.h.
 *
 * Path: values are printed into memory, with commas and indentation kept by a stack of levels;
 * commit writes a temporary file in the target's directory, syncs, renames, syncs the directory.
 * So a program that is killed before leaves nothing behind.
 * Failures: create tries whether such a file can be made; the first errno is kept in `error`,
 * later calls do nothing, and commit returns it.
 */
#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MAX_DEPTH 32

struct perf_json {
	FILE *file; /* owned; grows `text`; NULL after a failed create */
	char *text; /* owned; valid after a flush */
	size_t n_text;
	char *path;	       /* owned; where the file is to be; NULL: it goes to fd */
	int fd;		       /* standard output, or owned: a device or a pipe */
	int error;	       /* first failure, negative errno */
	unsigned depth;	       /* open objects and arrays */
	bool some[MAX_DEPTH];  /* per level: it holds a value already */
	bool array[MAX_DEPTH]; /* per level: it is an array */
};

static void fail(struct perf_json *json, int error)
{
	if (!json->error)
		json->error = error;
}

/*
 * Makes the temporary file beside `path`. Returns its descriptor or negative errno; *temp is
 * given.
 */
static int temp_create(const char *path, char **temp)
{
	mode_t mask;
	int fd, error;

	if (asprintf(temp, "%s.XXXXXX", path) < 0) {
		*temp = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(*temp, O_CLOEXEC);
	if (fd < 0) {
		error = -errno;
		free(*temp);
		*temp = NULL;
		return error;
	}
	mask = umask(0);
	umask(mask);
	if (fchmod(fd, 0666 & ~mask) == 0)
		return fd;
	error = -errno;
	close(fd);
	unlink(*temp);
	free(*temp);
	*temp = NULL;
	return error;
}

struct perf_json *perf_json_create(const char *path)
{
	struct perf_json *json = calloc(1, sizeof *json);
	struct stat at;
	char *temp;
	int fd;

	if (!json)
		return NULL;
	json->fd = STDOUT_FILENO;
	json->file = open_memstream(&json->text, &json->n_text);
	if (!json->file)
		fail(json, -ENOMEM);
	if (!strcmp(path, "-"))
		return json;
	if (stat(path, &at) == 0 && !S_ISREG(at.st_mode)) { /* a device or a pipe is written to */
		json->fd = open(path, O_WRONLY | O_CLOEXEC);
		if (json->fd < 0)
			fail(json, -errno);
		return json;
	}
	json->path = realpath(path, NULL); /* what a link leads to is replaced, not the link */
	if (!json->path)
		json->path = strdup(path);
	if (!json->path) {
		fail(json, -ENOMEM);
		return json;
	}
	fd = temp_create(json->path,
			 &temp); /* whether it can be: known before the work, not after it */
	if (fd < 0) {
		fail(json, fd);
		return json;
	}
	close(fd);
	unlink(temp);
	free(temp);
	return json;
}

int perf_json_error(const struct perf_json *json)
{
	return json ? json->error : -ENOMEM;
}

/* True when a value may be printed. */
static bool usable(const struct perf_json *json)
{
	return json && json->file && !json->error;
}

/* A string with its quotes; ill-formed UTF-8 becomes U+FFFD byte by byte. */
static void quoted(FILE *f, const char *text)
{
	const uint8_t *s = (const uint8_t *)text;

	fputc('"', f);
	while (*s) {
		unsigned n = *s < 0x80	 ? 1
			     : *s < 0xc2 ? 0
			     : *s < 0xe0 ? 2
			     : *s < 0xf0 ? 3
			     : *s < 0xf5 ? 4
					 : 0;
		bool ok = n > 0;

		for (unsigned i = 1; ok && i < n; i++)
			ok = (s[i] & 0xc0) == 0x80;
		if (ok && n >= 3) /* overlong forms, surrogates, beyond U+10FFFF */
			ok = !((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
			       (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f));
		if (!ok) {
			fputs("\\ufffd", f);
			s++;
			continue;
		}
		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if (*s == '\n')
			fputs("\\n", f);
		else if (*s == '\t')
			fputs("\\t", f);
		else if (*s < 0x20 || *s == 0x7f)
			fprintf(f, "\\u%04x", *s);
		else
			fwrite(s, 1, n, f);
		s += n;
	}
	fputc('"', f);
}

/* What stands before a value: comma, line, key. Returns false when nothing may be printed. */
static bool before(struct perf_json *json, const char *key)
{
	if (!usable(json))
		return false;
	assert(json->depth == 0 || (key == NULL) == json->array[json->depth]);
	if (json->some[json->depth])
		fputc(',', json->file);
	if (json->depth) {
		fputc('\n', json->file);
		for (unsigned i = 0; i < json->depth; i++)
			fputs("  ", json->file);
	}
	json->some[json->depth] = true;
	if (key) {
		quoted(json->file, key);
		fputs(": ", json->file);
	}
	return true;
}

static void begin(struct perf_json *json, const char *key, bool array)
{
	if (!before(json, key))
		return;
	assert(json->depth + 1 < MAX_DEPTH);
	fputc(array ? '[' : '{', json->file);
	json->depth++;
	json->array[json->depth] = array;
	json->some[json->depth] = false;
}

static void end(struct perf_json *json, bool array)
{
	bool some;

	if (!usable(json))
		return;
	assert(json->depth > 0 && json->array[json->depth] == array);
	some = json->some[json->depth--];
	if (some) {
		fputc('\n', json->file);
		for (unsigned i = 0; i < json->depth; i++)
			fputs("  ", json->file);
	}
	fputc(array ? ']' : '}', json->file);
}

void perf_json_begin_object(struct perf_json *json, const char *key)
{
	begin(json, key, false);
}
void perf_json_end_object(struct perf_json *json)
{
	end(json, false);
}
void perf_json_begin_array(struct perf_json *json, const char *key)
{
	begin(json, key, true);
}
void perf_json_end_array(struct perf_json *json)
{
	end(json, true);
}

void perf_json_string(struct perf_json *json, const char *key, const char *value)
{
	if (!before(json, key))
		return;
	if (value)
		quoted(json->file, value);
	else
		fputs("null", json->file);
}

void perf_json_u64(struct perf_json *json, const char *key, uint64_t value)
{
	if (before(json, key))
		fprintf(json->file, "%llu", (unsigned long long)value);
}

void perf_json_i64(struct perf_json *json, const char *key, int64_t value)
{
	if (before(json, key))
		fprintf(json->file, "%lld", (long long)value);
}

void perf_json_double(struct perf_json *json, const char *key, double value)
{
	char text[40];

	if (!before(json, key))
		return;
	if (!isfinite(value)) {
		fputs("null", json->file);
		return;
	}
	for (int digits = 15; digits <= 17; digits++) { /* the shortest that reads back the same */
		snprintf(text, sizeof text, "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fputs(text, json->file);
}

void perf_json_bool(struct perf_json *json, const char *key, bool value)
{
	if (before(json, key))
		fputs(value ? "true" : "false", json->file);
}

void perf_json_null(struct perf_json *json, const char *key)
{
	if (before(json, key))
		fputs("null", json->file);
}

/* The processor's name from /proc/cpuinfo, or "unknown". */
static void cpu_name(char *out, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(out, size, "unknown");
	while (f && fgets(line, sizeof line, f)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) || !colon)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(out, size, "%s", colon + 1 + strspn(colon + 1, " \t"));
		break;
	}
	if (f)
		fclose(f);
}

void perf_json_machine(struct perf_json *json, const char *key)
{
	char cpu[200], system[160];
	struct utsname uts;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	cpu_name(cpu, sizeof cpu);
	if (uname(&uts) < 0)
		snprintf(system, sizeof system, "unknown");
	else
		snprintf(system, sizeof system, "%.50s %.60s %.40s", uts.sysname, uts.release,
			 uts.machine);
	perf_json_begin_object(json, key);
	perf_json_string(json, "cpu", cpu);
	perf_json_i64(json, "cores", cores);
	perf_json_string(json, "system", system);
	perf_json_end_object(json);
}

/* Makes the rename itself durable; a file system that cannot is left alone. */
static void sync_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *directory =
		slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	int fd = directory ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd >= 0) {
		(void)!fsync(fd);
		close(fd);
	}
	free(directory);
}

static void destroy(struct perf_json *json)
{
	if (json->file)
		fclose(json->file);
	if (json->fd != STDOUT_FILENO && json->fd >= 0)
		close(json->fd);
	free(json->text);
	free(json->path);
	free(json);
}

/* The whole text to a descriptor. */
static int write_all(int fd, const char *text, size_t n)
{
	while (n) {
		ssize_t r = write(fd, text, n);

		if (r < 0 && errno != EINTR)
			return -errno;
		if (r > 0) {
			text += r;
			n -= (size_t)r;
		}
	}
	return 0;
}

/* Beside its place, synced, then over it. */
static int put_in_place(const struct perf_json *json)
{
	char *temp;
	int fd = temp_create(json->path, &temp), r;

	if (fd < 0)
		return fd;
	r = write_all(fd, json->text, json->n_text);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(temp, json->path) < 0)
		r = -errno;
	if (r == 0)
		sync_directory(json->path);
	else
		unlink(temp);
	free(temp);
	return r;
}

int perf_json_commit(struct perf_json *json)
{
	int error;

	if (!json)
		return -ENOMEM;
	assert(json->error || json->depth == 0);
	if (json->file) {
		fputc('\n', json->file);
		if (fflush(json->file) || ferror(json->file))
			fail(json, -ENOMEM);
	}
	if (!json->error) {
		fflush(stdout);
		fail(json, json->path ? put_in_place(json)
				      : write_all(json->fd, json->text, json->n_text));
	}
	error = json->error;
	destroy(json);
	return error;
}

void perf_json_abandon(struct perf_json *json)
{
	if (json)
		destroy(json);
}
