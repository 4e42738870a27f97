/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * Saved exchanges: the bytes of docs/wire.md, steps that go on bit for bit, files that are cut,
 * damaged or another's, and disks that are full. One rank; several are in test_step.c.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <internal/alloc.h>
#include <internal/philox.h>
#include <signal.h>
#include <sparring/sparring.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL 10u
#define TABLE 128u		/* of one part */
#define VALUES (TABLE + 48 + 4) /* of the residual */
#define SMALL_BYTES (VALUES + 4 * SMALL + 4)
#define ROOM 400000u

static char directory[64], path[96];
static struct spr_context *context;
static struct spr_comm *comm;

static void set_up(void)
{
	struct spr_context_options options = {.size = sizeof options};

	unsetenv("SPR_RANK");
	unsetenv("SPR_SIZE");
	unsetenv("SPR_ROOT");
	unsetenv("SPR_ROOT_FD");
	setenv("SPR_TCP_IF", "lo", 1);
	strcpy(directory, "/tmp/spr-savefile-XXXXXX");
	if (!mkdtemp(directory) || spr_context_open(&options, &context) ||
	    spr_comm_create(context, NULL, &comm))
		abort();
	snprintf(path, sizeof path, "%s/state", directory);
}

/* Entries of the directory; those that are not "state" are removed. */
static int count_files(void)
{
	DIR *d = opendir(directory);
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			n++;
	closedir(d);
	return n;
}

static void tear_down(void)
{
	DIR *d = opendir(directory);
	struct dirent *e;

	while (d && (e = readdir(d)) != NULL)
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(directory);
	spr_comm_destroy(comm);
	spr_context_close(context);
}

static struct spr_exchange *make(uint64_t n, const char *algo, double density)
{
	struct spr_exchange_options options = {
		.size = sizeof options, .count = n, .algo = algo, .density = density};
	struct spr_exchange *exchange = NULL;
	int r = spr_exchange_create(comm, &options, &exchange);

	cr_assert(r == 0, "an exchange: %s", spr_context_error(context));
	return exchange;
}

static int step(struct spr_exchange *exchange, uint64_t n, uint64_t seed, float *update)
{
	float *g = malloc(n * sizeof *g);
	struct spr_request *request;
	int r;

	for (uint64_t i = 0; i < n; i++)
		g[i] = (float)(int32_t)spri_philox(seed, i) * 0x1p-31f;
	r = spr_exchange_start(exchange, g, update, &request);
	if (r == 0) {
		r = spr_request_wait(request);
		spr_request_destroy(request);
	}
	free(g);
	return r;
}

static size_t read_file(const char *name, uint8_t *data)
{
	int fd = open(name, O_RDONLY);
	ssize_t n;

	cr_assert(fd >= 0, "%s is there", name);
	n = read(fd, data, ROOM);
	close(fd);
	return (size_t)n;
}

static void write_file(const char *name, const uint8_t *data, size_t n)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);

	cr_assert(fd >= 0 && write(fd, data, n) == (ssize_t)n && close(fd) == 0, "%s written",
		  name);
}

/* CRC-32C bit by bit, of our own. */
static uint32_t crc(const uint8_t *p, size_t n)
{
	uint32_t c = ~0u;

	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
	}
	return ~c;
}

static void put(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *p)
{
	return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

/* The checksum behind a block: of the vector's bit, the block's number, and its bytes. */
static uint32_t block_crc(uint32_t vector, uint32_t number, const uint8_t *p, size_t n)
{
	uint8_t *all = malloc(8 + n);
	uint32_t c;

	put(all, vector, 4);
	put(all + 4, number, 4);
	memcpy(all + 8, p, n);
	c = crc(all, 8 + n);
	free(all);
	return c;
}

/* A file by the table in docs/wire.md, written without the library. */
static void small_file(uint8_t *f, const float *residual, uint64_t steps, uint32_t threshold)
{
	memset(f, 0, VALUES);
	memcpy(f, "SPRXCHG\n", 8);
	put(f + 8, 2, 4);
	put(f + 12, 128, 4);
	put(f + 16, SMALL, 8);
	put(f + 24, steps, 8);
	put(f + 32, 0x3fd0000000000000u, 8); /* 0.25 */
	put(f + 40, 1, 4);		     /* a residual, no velocity */
	put(f + 44, 0, 4);
	put(f + 48, 1, 4);
	put(f + 52, 65536, 4);
	put(f + 56, 1, 8);
	memcpy(f + 64, "gtopk", 5);
	put(f + 124, crc(f, 124), 4);
	put(f + TABLE + 8, SMALL, 8);
	put(f + TABLE + 16, threshold, 4);
	put(f + TABLE + 48, crc(f + TABLE, 48), 4);
	memcpy(f + VALUES, residual, 4 * SMALL);
	put(f + VALUES + 4 * SMALL, block_crc(1, 0, f + VALUES, 4 * SMALL), 4);
}

/* Everything that can be seen of an exchange is as it was. */
static void expect_unchanged(struct spr_exchange *exchange, const float *residual, uint64_t steps)
{
	struct spr_exchange_stats stats;

	cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
	cr_assert_eq(stats.step, steps);
	cr_assert_arr_eq(spr_exchange_residual(exchange), residual, SMALL * sizeof *residual);
}

static void expect_refused(struct spr_exchange *exchange, int status, const char *part)
{
	int r = spr_exchange_restore(exchange, path);

	cr_assert(r == status, "expected %s, got %s: %s", spr_error_name(status), spr_error_name(r),
		  spr_context_error(context));
	cr_assert(strstr(spr_context_error(context), path) != NULL, "the text names the path: %s",
		  spr_context_error(context));
	cr_assert(strstr(spr_context_error(context), part) != NULL, "expected '%s', got '%s'", part,
		  spr_context_error(context));
}

Test(savefile, bytes_are_those_of_the_table, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *exchange = make(SMALL, "gtopk", 0.25);
	uint8_t expected[SMALL_BYTES], found[ROOM];
	size_t bytes;

	cr_assert_eq(step(exchange, SMALL, 1, NULL), 0);
	cr_assert_eq(step(exchange, SMALL, 2, NULL), 0);
	cr_assert(spr_exchange_save(exchange, path) == 0, "%s", spr_context_error(context));
	bytes = read_file(path, found);
	cr_assert_eq(bytes, SMALL_BYTES, "expected %u bytes, got %zu", SMALL_BYTES, bytes);
	/* The threshold is the kernel's own affair: any key will do. */
	small_file(expected, spr_exchange_residual(exchange), 2, (uint32_t)get(found + TABLE + 16));
	for (size_t i = 0; i < sizeof expected; i++)
		cr_assert(expected[i] == found[i], "byte %zu: expected %02x, got %02x", i,
			  expected[i], found[i]);
	cr_assert_eq(count_files(), 1, "nothing but the file is left");
	spr_exchange_destroy(exchange);
}

Test(savefile, a_file_made_by_the_table_is_restored, .init = set_up, .fini = tear_down)
{
	static const float residual[SMALL] = {1, -2, 0, 4, 1e-40f, 6, 7e30f, 8, 9, -10};
	struct spr_exchange *exchange = make(SMALL, "gtopk", 0.25);
	struct spr_exchange_stats stats;
	uint8_t file[SMALL_BYTES];

	small_file(file, residual, 77, 0x3f800000);
	write_file(path, file, sizeof file);
	cr_assert(spr_exchange_restore(exchange, path) == 0, "%s", spr_context_error(context));
	expect_unchanged(exchange, residual, 77);
	cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
	cr_assert(stats.density == 0.25, "the density of the last step");
	spr_exchange_destroy(exchange);
}

/*
 * A threshold that nothing reaches costs a second pass; what that pass finds is carried on,
 * and saved.
 */
Test(savefile, the_threshold_goes_along, .init = set_up, .fini = tear_down)
{
	static const float residual[SMALL] = {1, -2, 0, 4, 5, 6, 7, 8, 9, -10};
	struct spr_exchange *exchange = make(SMALL, "gtopk", 0.25);
	struct spr_exchange_stats stats;
	uint8_t file[ROOM];

	for (int high = 0; high <= 1; high++) {
		small_file(file, residual, 1, high ? 0x7f000000u : 1);
		write_file(path, file, SMALL_BYTES);
		cr_assert_eq(spr_exchange_restore(exchange, path), 0);
		cr_assert_eq(step(exchange, SMALL, 1, NULL), 0);
		cr_assert_eq(spr_exchange_stats(exchange, &stats), 0);
		cr_assert(stats.repairs == (uint64_t)high, "expected %d second passes, got %llu",
			  high, (unsigned long long)stats.repairs);
		cr_assert_eq(spr_exchange_save(exchange, path), 0);
		cr_assert_eq(read_file(path, file), SMALL_BYTES);
		cr_assert(get(file + TABLE + 16) > 0 && get(file + TABLE + 16) < 0x43000000,
			  "expected a key not above a value near 10, and one, got %08llx",
			  (unsigned long long)get(file + TABLE + 16));
	}
	spr_exchange_destroy(exchange);
}

Test(savefile, steps_go_on_bit_for_bit, .init = set_up, .fini = tear_down)
{
	const uint64_t n = 40000; /* three blocks */
	struct spr_exchange *straight = make(n, "gtopk", 0.01), *stopped = make(n, "gtopk", 0.01);
	float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);

	for (uint64_t s = 0; s < 3; s++)
		cr_assert_eq(step(straight, n, s, a), 0);
	cr_assert(spr_exchange_save(straight, path) == 0, "%s", spr_context_error(context));
	/* Into one that has gone elsewhere meanwhile. */
	cr_assert_eq(step(stopped, n, 99, b), 0);
	cr_assert(spr_exchange_restore(stopped, path) == 0, "%s", spr_context_error(context));
	for (uint64_t s = 3; s < 6; s++) {
		cr_assert_eq(step(straight, n, s, a), 0);
		cr_assert_eq(step(stopped, n, s, b), 0);
		cr_assert_arr_eq(a, b, n * sizeof *a);
		cr_assert_arr_eq(spr_exchange_residual(straight), spr_exchange_residual(stopped),
				 n * sizeof *a);
	}
	free(a);
	free(b);
	spr_exchange_destroy(straight);
	spr_exchange_destroy(stopped);
}

Test(savefile, dense_exchanges_save_their_step, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *one = make(SMALL, "dense_ring", 0),
			    *other = make(SMALL, "dense_ring", 0);
	struct spr_exchange_stats stats;
	float update[SMALL];
	struct stat st;

	cr_assert_eq(step(one, SMALL, 1, update), 0);
	cr_assert_eq(spr_exchange_save(one, path), 0);
	cr_assert(stat(path, &st) == 0 && st.st_size == VALUES, "a header and a table");
	cr_assert_eq(spr_exchange_restore(other, path), 0);
	cr_assert_eq(spr_exchange_stats(other, &stats), 0);
	cr_assert_eq(stats.step, 1);
	spr_exchange_destroy(one);
	spr_exchange_destroy(other);
}

/* An exchange with a residual, its file in `file`, and a copy of its residual. */
static struct spr_exchange *saved(uint8_t *file, float *residual)
{
	struct spr_exchange *exchange = make(SMALL, "gtopk", 0.25);

	cr_assert_eq(step(exchange, SMALL, 1, NULL), 0);
	cr_assert_eq(spr_exchange_save(exchange, path), 0);
	cr_assert_eq(read_file(path, file), SMALL_BYTES);
	cr_assert_eq(step(exchange, SMALL, 2, NULL), 0);
	memcpy(residual, spr_exchange_residual(exchange), SMALL * sizeof *residual);
	return exchange;
}

Test(savefile, cut_anywhere_or_too_long, .init = set_up, .fini = tear_down)
{
	uint8_t file[ROOM] = {0};
	float residual[SMALL];
	struct spr_exchange *exchange = saved(file, residual);

	for (size_t n = 0; n < SMALL_BYTES; n++) {
		write_file(path, file, n);
		expect_refused(exchange, SPR_EFORMAT, "it is cut");
		expect_unchanged(exchange, residual, 2);
	}
	write_file(path, file, SMALL_BYTES + 1);
	expect_refused(exchange, SPR_EFORMAT, "has 225 bytes, expected 224");
	expect_unchanged(exchange, residual, 2);
	spr_exchange_destroy(exchange);
}

Test(savefile, damaged_anywhere, .init = set_up, .fini = tear_down)
{
	uint8_t file[ROOM] = {0};
	float residual[SMALL];
	struct spr_exchange *exchange = saved(file, residual);

	for (size_t bit = 0; bit < 8 * SMALL_BYTES; bit++) {
		file[bit / 8] ^= (uint8_t)(1u << bit % 8);
		write_file(path, file, SMALL_BYTES);
		expect_refused(exchange, SPR_EFORMAT,
			       bit < 64		  ? "is no saved exchange"
			       : bit < 96	  ? "has version"
			       : bit < 8 * TABLE  ? "its header is damaged"
			       : bit < 8 * VALUES ? "its table of parts is damaged"
						  : "block 0 of the residual is damaged");
		expect_unchanged(exchange, residual, 2);
		file[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	write_file(path, file, SMALL_BYTES);
	cr_assert_eq(spr_exchange_restore(exchange, path), 0, "the file itself is sound");
	spr_exchange_destroy(exchange);
}

Test(savefile, damage_is_found_in_every_block, .init = set_up, .fini = tear_down)
{
	const uint64_t n = 40000;
	static const size_t at[] = {VALUES, VALUES + 65539, VALUES + 65540, VALUES + 2 * 65540 + 5};
	static const char *const parts[] = {"block 0 of", "block 0 of", "block 1 of", "block 2 of"};
	static uint8_t first[65540];
	struct spr_exchange *exchange = make(n, "gtopk", 0.01);
	static uint8_t file[ROOM];
	size_t bytes;

	cr_assert_eq(step(exchange, n, 1, NULL), 0);
	cr_assert_eq(spr_exchange_save(exchange, path), 0);
	bytes = read_file(path, file);
	cr_assert_eq(bytes, VALUES + 4 * n + 12);
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		file[at[i]] ^= 1;
		write_file(path, file, bytes);
		expect_refused(exchange, SPR_EFORMAT, parts[i]);
		file[at[i]] ^= 1;
	}
	/* two sound blocks that have changed places */
	memcpy(first, file + VALUES, sizeof first);
	memcpy(file + VALUES, file + VALUES + sizeof first, sizeof first);
	memcpy(file + VALUES + sizeof first, first, sizeof first);
	write_file(path, file, bytes);
	expect_refused(exchange, SPR_EFORMAT, "block 0 of the residual is damaged");
	spr_exchange_destroy(exchange);
}

Test(savefile, of_another_exchange, .init = set_up, .fini = tear_down)
{
	static const struct {
		size_t at;
		uint64_t value;
		int bytes, status;
		const char *part;
	} cases[] = {
		{8, 1, 4, SPR_EFORMAT, "has version 1 of the format, expected 2"},
		{12, 256, 4, SPR_EFORMAT, "its header makes no sense"},
		{52, 4096, 4, SPR_EFORMAT, "its header makes no sense"},
		{40, 0x80000000u, 4, SPR_EFORMAT, "its header makes no sense"},
		{40, 3, 4, SPR_EMISMATCH, "is of an exchange with momentum, expected one without"},
		{56, 2, 8, SPR_EMISMATCH, "has 2 parts, expected 1"},
		{44, 3, 4, SPR_EMISMATCH, "is of rank 3, expected rank 0"},
		{48, 4, 4, SPR_EMISMATCH, "is of 4 ranks, expected 1"},
		{64, 'g' | 't' << 8, 5, SPR_EMISMATCH, "has algorithm 'gt', expected 'gtopk'"},
	};
	uint8_t file[ROOM] = {0};
	float residual[SMALL];
	struct spr_exchange *exchange = saved(file, residual), *longer = make(11, "gtopk", 0.25);

	expect_refused(longer, SPR_EMISMATCH, "has count 10, expected 11");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t n = SMALL_BYTES;

		cr_assert_eq(spr_exchange_save(exchange, path), 0);
		n = read_file(path, file);
		put(file + cases[i].at, cases[i].value, cases[i].bytes);
		put(file + 124, crc(file, 124), 4);
		write_file(path, file, n);
		expect_refused(exchange, cases[i].status, cases[i].part);
		expect_unchanged(exchange, residual, 2);
	}
	spr_exchange_destroy(longer);
	spr_exchange_destroy(exchange);
}

Test(savefile, paths_that_do_not_work, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *exchange = make(SMALL, "gtopk", 0.25);
	char below[128], gone[128];

	snprintf(gone, sizeof gone, "%s/no/state", directory);
	snprintf(below, sizeof below, "%s/state/x", directory);
	cr_assert_eq(spr_exchange_save(exchange, gone), -ENOENT);
	cr_assert(strstr(spr_context_error(context), gone) != NULL, "the text names the path: %s",
		  spr_context_error(context));
	cr_assert_eq(spr_exchange_restore(exchange, gone), -ENOENT);
	cr_assert_eq(spr_exchange_save(exchange, path), 0);
	cr_assert_eq(spr_exchange_save(exchange, below), -ENOTDIR);
	cr_assert_eq(spr_exchange_save(exchange, directory), -EISDIR, "over a directory");
	snprintf(below, sizeof below, "%s/", directory);
	cr_assert_eq(spr_exchange_save(exchange, below), -EISDIR);
	cr_assert_eq(spr_exchange_restore(exchange, directory), -EISDIR);
	cr_assert_eq(spr_exchange_save(exchange, ""), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_save(exchange, NULL), SPR_EARGUMENT);
	cr_assert_eq(spr_exchange_restore(exchange, NULL), SPR_EARGUMENT);
	cr_assert_eq(count_files(), 1);
	cr_assert(unlink(path) == 0 && mkfifo(path, 0666) == 0, "a pipe");
	expect_refused(exchange, SPR_EFORMAT, "has 0 bytes");
	cr_assert(chdir(directory) == 0 && spr_exchange_save(exchange, "beside") == 0 &&
			  count_files() == 2,
		  "a path without a directory");
	spr_exchange_destroy(exchange);
}

Test(savefile, a_directory_that_may_not_be_written, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *exchange = make(SMALL, "gtopk", 0.25);
	uid_t before = geteuid();
	int r;

	cr_assert_eq(spr_exchange_save(exchange, path), 0);
	cr_assert(chmod(directory, 0555) == 0, "chmod");
	cr_assert(before != 0 || seteuid(65534) == 0, "another user");
	r = spr_exchange_save(exchange, path);
	cr_assert(before != 0 || seteuid(before) == 0, "back");
	chmod(directory, 0755);
	cr_assert(r == -EACCES, "expected EACCES, got %s", spr_error_name(r));
	cr_assert_eq(spr_exchange_restore(exchange, path), 0, "the old file is as before");
	spr_exchange_destroy(exchange);
}

/* The disk is full after so many bytes: the old file stays, nothing else does. */
Test(savefile, full_disk, .init = set_up, .fini = tear_down)
{
	const uint64_t n = 40000;
	struct spr_exchange *exchange = make(n, "gtopk", 0.01);
	static const rlim_t limits[] = {0, 1, 127, 128, 129, 65668, 65669, 160139};
	struct rlimit old, less;
	static uint8_t first[ROOM], now[ROOM];
	size_t bytes;

	signal(SIGXFSZ, SIG_IGN);
	cr_assert(getrlimit(RLIMIT_FSIZE, &old) == 0, "getrlimit");
	cr_assert_eq(spr_exchange_save(exchange, path), 0);
	bytes = read_file(path, first);
	cr_assert_eq(step(exchange, n, 5, NULL), 0);
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		int r;

		less = old;
		less.rlim_cur = limits[i];
		cr_assert(setrlimit(RLIMIT_FSIZE, &less) == 0, "setrlimit");
		r = spr_exchange_save(exchange, path);
		setrlimit(RLIMIT_FSIZE, &old);
		cr_assert(r == -EFBIG, "limit %llu: expected EFBIG, got %s",
			  (unsigned long long)limits[i], spr_error_name(r));
		cr_assert(strstr(spr_context_error(context), "File too large") != NULL, "got '%s'",
			  spr_context_error(context));
		cr_assert_eq(count_files(), 1, "no other file is left");
		cr_assert(read_file(path, now) == bytes && !memcmp(first, now, bytes),
			  "the old file is as before");
	}
	spr_exchange_destroy(exchange);
}

Test(savefile, no_memory, .init = set_up, .fini = tear_down)
{
	struct spr_exchange *exchange = make(SMALL, "gtopk", 0.25);
	long live = spri_heap_live();
	int r = -ENOMEM;

	for (long n = 0; r < 0; n++) {
		spri_heap_fail_after(n);
		r = spr_exchange_save(exchange, path);
		spri_heap_fail_after(-1);
		cr_assert(r == 0 || r == -ENOMEM, "allocation %ld: %s", n, spr_error_name(r));
		cr_assert(n > 0 || r < 0, "some allocation was failed");
		cr_assert_eq(spri_heap_live(), live);
		cr_assert_eq(count_files(), r == 0);
	}
	spri_heap_fail_after(0);
	r = spr_exchange_restore(exchange, path);
	spri_heap_fail_after(-1);
	cr_assert_eq(r, -ENOMEM);
	cr_assert_eq(spri_heap_live(), live);
	spr_exchange_destroy(exchange);
}
