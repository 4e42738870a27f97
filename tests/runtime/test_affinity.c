/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * What is done with the decision, on the machine that runs the test: the progress thread runs on
 * the CPUs that SPR_BIND names and no other thread does, pages prefer a node, those of a
 * communicator the NIC's, and a value that cannot be refuses the context by its name.
 */
#include <affinity.h>
#include <check.h>
#include <comm.h>
#include <dirent.h>
#include <errno.h>
#include <internal/env.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <sparring/sparring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void clear(void)
{
	for (int i = 0; i < SPRI_ENV_COUNT; i++)
		unsetenv(spri_env_info((enum spri_env)i)->name);
	setenv("SPR_TRANSPORT", "tcp", 1);
}

static char log_text[4096];

static void keep(void *arg, enum spr_log_level level, const char *text)
{
	(void)arg;
	(void)level;
	strncat(log_text, text, sizeof log_text - strlen(log_text) - 1);
	strncat(log_text, "\n", sizeof log_text - strlen(log_text) - 1);
}

static int open_context(struct spr_context **out)
{
	struct spr_context_options options = {.size = sizeof options,
					      .progress_thread = 1,
					      .log = keep,
					      .log_level = SPR_LOG_INFO};

	return spr_context_open(&options, out);
}

/* How many threads of this process there are whose CPUs are `cpu` alone; n_threads: all. */
static int bound_threads(unsigned cpu, int *n_threads)
{
	DIR *tasks = opendir("/proc/self/task");
	int n = 0;

	*n_threads = 0;
	for (struct dirent *e; tasks && (e = readdir(tasks)) != NULL;) {
		cpu_set_t set;

		if (e->d_name[0] == '.' ||
		    sched_getaffinity((pid_t)atoi(e->d_name), sizeof set, &set) < 0)
			continue;
		++*n_threads;
		n += CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set);
	}
	if (tasks)
		closedir(tasks);
	return n;
}

/* The last CPU that this process may use, and how many there are. */
static unsigned last_cpu(int *count)
{
	unsigned last = 0;
	cpu_set_t set;

	cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
	*count = CPU_COUNT(&set);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		last = CPU_ISSET(cpu, &set) ? cpu : last;
	return last;
}

Test(affinity, the_progress_thread_is_bound, .init = clear)
{
	struct spr_context *context;
	int count, n = 0, n_threads = 0, before;
	unsigned cpu = last_cpu(&count);
	char list[16];

	if (count < 2)
		cr_skip("one CPU: every thread is bound to it");
	before = bound_threads(cpu, &n_threads);
	cr_assert_eq(before, 0, "nobody is yet");
	snprintf(list, sizeof list, "%u", cpu);
	setenv("SPR_BIND", list, 1);
	cr_assert_eq(open_context(&context), 0, "%s", log_text);
	/* The thread binds itself when it starts. */
	for (int i = 0; i < 2000 && n == 0; i++) {
		usleep(1000);
		n = bound_threads(cpu, &n_threads);
	}
	cr_assert_eq(n, 1, "one thread is on CPU %u alone, %d are", cpu, n);
	cr_assert_gt(n_threads, 1, "this one is not");
	spr_context_close(context);
	cr_assert_not_null(strstr(log_text, "(SPR_BIND says so)"), "%s", log_text);
}

Test(affinity, nothing_is_bound_when_not_asked, .init = clear)
{
	struct spr_context *context;
	int count, n_threads;
	unsigned cpu = last_cpu(&count);

	setenv("SPR_BIND", "none", 1);
	cr_assert_eq(open_context(&context), 0, "%s", log_text);
	usleep(50000);
	cr_assert_eq(bound_threads(cpu, &n_threads), count == 1 ? n_threads : 0);
	spr_context_close(context);
}

/* What the process was given in the meantime counts, not what the machine had when it was read. */
Test(affinity, taskset_is_honoured, .init = clear)
{
	struct spri_seat_request q;
	struct spri_text text = {""};
	struct spri_seat seat;
	const char *from;
	cpu_set_t before, one;
	int count;
	unsigned cpu = last_cpu(&count);

	cr_assert_gt(spri_affinity_machine()->n + 1, 0, "it is read before");
	cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
	cr_assert_eq(spri_affinity_request(&q, &from, &text), 0);
	cr_assert(spri_cpus_has(&q.allowed, cpu), "its own CPU");
	cr_assert_eq(__builtin_popcountll(q.allowed.word[cpu / 64]), 1, "and no other");
	cr_assert_eq(spri_affinity_decide(&seat, &text), 0, "%s", text.s);
	cr_assert(spri_cpus_equal(&seat.cpus, &q.allowed), "the thread may run there");
	cr_assert_eq(sched_setaffinity(0, sizeof before, &before), 0); /* for tests without fork */
}

Test(affinity, wrong_values_are_named, .init = clear)
{
	static const char *const rows[][2] = {{"SPR_DEVICE", "no-such-device"},
					      {"SPR_BIND", "everywhere"},
					      {"SPR_LOCAL_RANK", "1"}};
	struct spr_context *context = NULL;

	for (size_t i = 0; i < spri_countof(rows); i++) {
		clear();
		log_text[0] = '\0';
		setenv(rows[i][0], rows[i][1], 1);
		cr_assert_eq(open_context(&context), SPR_EENVIRONMENT, "%s", rows[i][0]);
		cr_assert_null(context);
		cr_assert_not_null(strstr(log_text, rows[i][0]), "%s", log_text);
		cr_assert_not_null(strstr(log_text, rows[i][1]), "%s", log_text);
	}
}

Test(affinity, pages_prefer_the_node, .init = clear)
{
	struct spri_seat seat = {.node = 0};
	size_t bytes = 1 << 20;
	char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long mask[16] = {0};
	int mode = -1;

	cr_assert_neq((void *)pages, MAP_FAILED);
	if (syscall(SYS_get_mempolicy, &mode, mask, 1024ul, pages, MPOL_F_ADDR) < 0)
		cr_skip("the kernel tells no memory policy: %s", strerror(errno));
	cr_assert_eq(mode, MPOL_DEFAULT, "before");
	seat.node = -1;
	spri_affinity_pages(&seat, pages, bytes);
	cr_assert_eq(syscall(SYS_get_mempolicy, &mode, mask, 1024ul, pages, MPOL_F_ADDR), 0);
	cr_assert_eq(mode, MPOL_DEFAULT, "no node, no policy");
	seat.node = 0;
	spri_affinity_pages(&seat, pages, bytes);
	for (size_t at = 0; at < bytes; at += 4096) {
		cr_assert_eq(
			syscall(SYS_get_mempolicy, &mode, mask, 1024ul, pages + at, MPOL_F_ADDR),
			0);
		cr_assert_eq(mode, MPOL_PREFERRED, "at %zu", at);
		cr_assert_eq(mask[0], 1ul, "node 0");
	}
	seat.node = 1000; /* is not there: told, not fatal */
	spri_affinity_pages(&seat, pages, bytes);
	munmap(pages, bytes);
}

/* ---- a communicator's memory, on a machine that hwloc takes from a file ---- */

static struct {
	pthread_barrier_t barrier;
	unsigned char all[2][4096];
} meeting;

/* One of two ranks, in a thread. */
struct rank {
	int rank;
	int status;
	int mode[2];		    /* policy of the first page of landing and staging memory */
	unsigned long nodes[2][16]; /* its nodes */
};

static int allgather(void *arg, const void *mine, void *all, size_t bytes)
{
	const struct rank *rank = arg;

	if (bytes > sizeof meeting.all[0])
		return -1;
	memcpy(meeting.all[rank->rank], mine, bytes);
	pthread_barrier_wait(&meeting.barrier);
	for (size_t i = 0; i < 2; i++)
		memcpy((char *)all + i * bytes, meeting.all[i], bytes);
	pthread_barrier_wait(&meeting.barrier);
	return 0;
}

static void *rank_main(void *arg)
{
	struct rank *rank = arg;
	struct spr_comm_options options = {.size = sizeof options,
					   .rank = rank->rank,
					   .n_ranks = 2,
					   .allgather = allgather,
					   .allgather_arg = rank};
	struct spr_context *context = NULL;
	struct spr_comm *comm = NULL;

	rank->status = spr_context_open(NULL, &context);
	if (rank->status == 0)
		rank->status = spr_comm_create(context, &options, &comm);
	for (int i = 0; i < 2 && rank->status == 0; i++)
		if (syscall(SYS_get_mempolicy, &rank->mode[i], rank->nodes[i], 1024ul,
			    i ? comm->staging : comm->landing, MPOL_F_ADDR) < 0)
			rank->status = -errno;
	spr_comm_destroy(comm);
	spr_context_close(context);
	return NULL;
}

Test(affinity, landing_memory_prefers_the_node_of_the_nic, .init = clear)
{
	struct rank ranks[2] = {{.rank = 0}, {.rank = 1}};
	pthread_t threads[2];

	setenv("SPR_TCP_IF", "lo", 1);
	/* hwloc: this machine, as it stands in a file. */
	setenv("HWLOC_XMLFILE", TOPOLOGIES "/two-sockets.xml", 1);
	setenv("HWLOC_THISSYSTEM", "1", 1);
	setenv("SPR_DEVICE", "mlx5_0", 1);
	if (spri_affinity_machine()->n_nodes != 2)
		cr_skip("built without hwloc, or the process has read its machine before");
	pthread_barrier_init(&meeting.barrier, NULL, 2);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++) {
		if (ranks[i].status == -ENOSYS || ranks[i].status == -EPERM)
			cr_skip("the kernel tells no memory policy");
		cr_assert_eq(ranks[i].status, 0, "rank %d: %s", i, spr_strerror(ranks[i].status));
		for (int k = 0; k < 2; k++) {
			cr_assert_eq(ranks[i].mode[k], MPOL_PREFERRED, "%s",
				     k ? "staging" : "landing");
			cr_assert_eq(ranks[i].nodes[k][0], 1ul, "node 0, where mlx5_0 is");
		}
	}
}
