/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * spr_info_list and spr_version: every table's rows are there, what is chosen is marked,
 * what is wrong is said.
 */
#include <check.h>
#include <cpu.h>
#include <errno.h>
#include <internal/alloc.h>
#include <internal/env.h>
#include <kernel.h>
#include <sparring/sparring.h>
#include <stdlib.h>
#include <string.h>
#include <transport.h>

#define MAX_ROWS 300

/* Copies of the rows of one listing. */
static struct {
	char name[64], value[160], source[32], detail[400];
	int chosen;
} rows[MAX_ROWS];
static int n_rows, n_chosen;

static void keep(void *arg, const struct spr_info_row *row)
{
	(void)arg;
	if (n_rows == MAX_ROWS)
		return;
	snprintf(rows[n_rows].name, sizeof rows->name, "%s", row->name);
	snprintf(rows[n_rows].value, sizeof rows->value, "%s", row->value);
	snprintf(rows[n_rows].source, sizeof rows->source, "%s", row->source);
	snprintf(rows[n_rows].detail, sizeof rows->detail, "%s", row->detail);
	rows[n_rows].chosen = row->chosen;
	n_chosen += row->chosen;
	n_rows++;
}

static int list(enum spr_info_kind kind)
{
	n_rows = n_chosen = 0;
	return spr_info_list(kind, keep, NULL);
}

/* The row of a name, −1: none. */
static int find(const char *name)
{
	for (int i = 0; i < n_rows; i++)
		if (!strcmp(rows[i].name, name))
			return i;
	return -1;
}

static void clear(void)
{
	for (int i = 0; i < SPRI_ENV_COUNT; i++)
		unsetenv(spri_env_info((enum spri_env)i)->name);
}

Test(info, version, .init = clear)
{
	char expected[32];

	snprintf(expected, sizeof expected, "%d.%d.%d", SPR_VERSION_MAJOR, SPR_VERSION_MINOR,
		 SPR_VERSION_PATCH);
	cr_assert_str_eq(spr_version(), expected);
	cr_assert_eq(list(SPR_INFO_VERSION), 0);
	cr_assert(find("library") >= 0 && !strcmp(rows[find("library")].value, expected),
		  "the library's version");
	cr_assert(find("compiler") >= 0 && rows[find("compiler")].value[0], "the compiler");
}

Test(info, arguments, .init = clear)
{
	cr_assert_eq(list((enum spr_info_kind)9), SPR_EARGUMENT);
	cr_assert_eq(list((enum spr_info_kind) - 1), SPR_EARGUMENT);
	cr_assert_eq(spr_info_list(SPR_INFO_CPU, NULL, NULL), SPR_EARGUMENT);
}

Test(info, cpu_and_kernels, .init = clear)
{
	for (int most = (int)spri_cpu_isa(); most >= 0; most--) {
		const char *name = spri_isa_name((enum spri_isa)most);
		int at;

		setenv("SPR_ISA", name, 1);
		cr_assert_eq(list(SPR_INFO_CPU), 0);
		cr_assert_eq(n_rows, SPRI_ISA_COUNT);
		cr_assert_eq(n_chosen, 1);
		at = find(name);
		cr_assert(at >= 0 && rows[at].chosen, "SPR_ISA=%s chooses it", name);
		if (most < (int)spri_cpu_isa()) {
			at = find(spri_isa_name(spri_cpu_isa()));
			cr_assert_str_eq(rows[at].value, "yes");
			cr_assert_str_eq(rows[at].detail, "not allowed by SPR_ISA");
		}
		cr_assert_eq(list(SPR_INFO_KERNELS), 0);
		for (int i = 0; i < n_rows; i++)
			if (strcmp(rows[i].name, "gpu"))
				cr_assert(!strcmp(rows[i].value, name) ||
						  !strcmp(rows[i].value, "c") ||
						  !strcmp(rows[i].value, "avx2"),
					  "with SPR_ISA=%s, %s is %s", name, rows[i].name,
					  rows[i].value);
		cr_assert(find("scan") >= 0 && !strcmp(rows[find("scan")].value, name),
			  "scan exists for %s, got %s", name, rows[find("scan")].value);
		cr_assert(find("gpu") >= 0 && rows[find("gpu")].detail[0], "the gpu, or why not");
	}
	setenv("SPR_ISA", "sse9", 1);
	cr_assert_eq(list(SPR_INFO_CPU), SPR_EENVIRONMENT);
	cr_assert(find("SPR_ISA") >= 0 &&
			  strstr(rows[find("SPR_ISA")].detail, "must be one of c, avx2, avx512"),
		  "the row says what would be right");
}

Test(info, transports, .init = clear)
{
	cr_assert_eq(list(SPR_INFO_TRANSPORTS), 0);
	for (unsigned i = 0; spri_transport_row(i); i++) {
		int at = find(spri_transport_row(i)->name);

		cr_assert(at >= 0, "%s is listed", spri_transport_row(i)->name);
		cr_assert(rows[at].detail[0], "%s: a sentence or a reason", rows[at].name);
	}
	cr_assert(rows[find("tcp")].chosen && n_chosen == 1, "tcp is the default");
	setenv("SPR_TRANSPORT", "carrier-pigeon", 1);
	cr_assert_eq(list(SPR_INFO_TRANSPORTS), SPR_EENVIRONMENT);
	cr_assert_eq(n_chosen, 0);
	cr_assert(find("SPR_TRANSPORT") >= 0, "a row says that there is none");
}

Test(info, interfaces, .init = clear)
{
	int at;

	cr_assert_eq(list(SPR_INFO_INTERFACES), 0);
	cr_assert_geq(n_chosen, 1, "some interface is used");
	cr_assert(find("lo") >= 0, "the loopback interface is listed");
	setenv("SPR_TCP_IF", "127.0.0.0/8", 1);
	cr_assert_eq(list(SPR_INFO_INTERFACES), 0);
	at = find("lo");
	cr_assert(rows[at].chosen && !strcmp(rows[at].value, "127.0.0.1/8"),
		  "expected 127.0.0.1/8 in use, got %s", rows[at].value);
	for (int i = 0; i < n_rows; i++)
		cr_assert(rows[i].chosen || rows[i].detail[0], "%s: why it is not used",
			  rows[i].name);
	setenv("SPR_TCP_IF", "nosuchif9", 1);
	cr_assert_eq(list(SPR_INFO_INTERFACES), SPR_EENVIRONMENT);
	at = find("SPR_TCP_IF");
	cr_assert(at >= 0 && strstr(rows[at].detail, "nosuchif9") && n_chosen == 0,
		  "the filter that fits nothing is shown");
	cr_assert_gt(n_rows, 1, "and what there is");
}

Test(info, rdma_devices, .init = clear)
{
	cr_assert_eq(list(SPR_INFO_RDMA), 0);
	cr_assert_geq(n_rows, 1, "a device, or a row that says why there is none");
	for (int i = 0; i < n_rows; i++)
		cr_assert(rows[i].detail[0], "%s: what it is, or a reason", rows[i].name);
	if (find("none") >= 0)
		cr_assert(n_rows == 1 && n_chosen == 0, "none is none");
	setenv("SPR_RDMA_DEVICE", "nosuchdevice9", 1);
	cr_assert_eq(list(SPR_INFO_RDMA), 0);
	cr_assert_eq(n_chosen, 0, "no device of another name is used");
}

/* More of it in test_gpu_memory.c. */
Test(info, gpus, .init = clear)
{
	cr_assert_eq(list(SPR_INFO_GPUDIRECT), 0);
	cr_assert_geq(n_rows, 1, "a GPU, or a row that says why there is none");
	if (find("none") >= 0)
		cr_assert(n_rows == 1 && n_chosen == 0 && rows[0].detail[0], "none, and why");
}

Test(info, peer, .init = clear)
{
	int at;

	n_rows = n_chosen = 0;
	cr_assert_eq(spr_info_peer("127.0.0.1", keep, NULL), 0);
	at = find("tcp");
	cr_assert(at >= 0 && !strcmp(rows[at].value, "lo"), "tcp reaches it by lo");
	cr_assert(strstr(rows[at].detail, "from 127.0.0.1"), "expected the source address in '%s'",
		  rows[at].detail);
	cr_assert(find("verbs") >= 0 && rows[find("verbs")].detail[0],
		  "verbs is listed, with a reason");
	cr_assert_eq(n_chosen, 1);
	setenv("SPR_RDMA", "forbid", 1);
	n_rows = n_chosen = 0;
	cr_assert_eq(spr_info_peer("127.0.0.1", keep, NULL), 0);
	cr_assert(rows[find("tcp")].chosen && n_chosen == 1, "tcp is what is left");
	setenv("SPR_RDMA", "require", 1);
	n_rows = n_chosen = 0;
	cr_assert_eq(spr_info_peer("127.0.0.1", keep, NULL), 0);
	cr_assert(!rows[find("tcp")].chosen, "tcp must not be used");
	unsetenv("SPR_RDMA");
	setenv("SPR_TCP_IF", "nosuchif9", 1);
	n_rows = n_chosen = 0;
	cr_assert_eq(spr_info_peer("127.0.0.1", keep, NULL), SPR_EENVIRONMENT);
	cr_assert(strstr(rows[find("tcp")].detail, "nosuchif9"), "the filter is quoted");
}

Test(info, peer_refuses_what_is_no_address, .init = clear)
{
	static const char *const bad[] = {"",	    "localhost", "127.0.0", "127.0.0.1:80",
					  "::1%lo", "10.0.0.0/8"};

	for (size_t i = 0; i < spri_countof(bad); i++)
		cr_assert_eq(spr_info_peer(bad[i], keep, NULL), SPR_EARGUMENT);
	cr_assert_eq(spr_info_peer(NULL, keep, NULL), SPR_EARGUMENT);
	cr_assert_eq(spr_info_peer("127.0.0.1", NULL, NULL), SPR_EARGUMENT);
}

Test(info, algorithms, .init = clear)
{
	struct spr_algo_info info;
	unsigned n = 0;

	cr_assert_eq(list(SPR_INFO_ALGORITHMS), 0);
	for (; spr_algo_info(n, &info) == 0; n++) {
		int at = find(info.name);

		cr_assert(at >= 0, "%s is listed", info.name);
		cr_assert_str_eq(rows[at].value, info.sparse == 2   ? "masked"
						 : info.sparse == 1 ? "sparse"
								    : "dense");
		cr_assert(strstr(rows[at].detail, info.about) != NULL, "%s: what it is", info.name);
		cr_assert(strstr(rows[at].detail, "bytes per") != NULL, "%s: what it costs",
			  info.name);
	}
	cr_assert_eq(n_rows, (int)n);
	cr_assert(rows[find("gtopk")].chosen && n_chosen == 1, "gtopk is the default");
}

Test(info, variables, .init = clear)
{
	int at;

	setenv("SPR_TIMEOUT", "12.5", 1);
	setenv("SPR_TRANSPROT", "tcp", 1);
	cr_assert_eq(list(SPR_INFO_VARIABLES), 0);
	for (int i = 0; i < SPRI_ENV_COUNT; i++) {
		const struct spri_env_info *info = spri_env_info((enum spri_env)i);

		at = find(info->name);
		cr_assert(at >= 0, "%s is listed", info->name);
		cr_assert_str_eq(rows[at].detail, info->meaning);
		if (strcmp(info->name, "SPR_TIMEOUT")) {
			cr_assert_str_eq(rows[at].source, "default");
			cr_assert_str_eq(rows[at].value, info->value);
		}
	}
	at = find("SPR_TIMEOUT");
	cr_assert_str_eq(rows[at].source, "environment");
	cr_assert_str_eq(rows[at].value, "12.5");
	at = find("SPR_TRANSPROT");
	cr_assert(at >= 0 && !strcmp(rows[at].source, "unknown") &&
			  !strcmp(rows[at].detail, "SPR_TRANSPORT"),
		  "the unknown one, with the nearest known name");
}

Test(info, no_memory, .init = clear)
{
	spri_heap_fail_after(0);
	cr_assert_eq(list(SPR_INFO_INTERFACES), -ENOMEM);
	spri_heap_fail_after(-1);
	cr_assert_eq(spri_heap_live(), 0);
}
