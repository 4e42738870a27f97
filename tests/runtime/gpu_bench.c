/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
#include "gpu_bench.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a machine ---- */

char root[64];

/* Makes a file below the root, and its directories. */
void put_file(const char *path, const char *content)
{
	char whole[256];
	FILE *file;

	snprintf(whole, sizeof whole, "%s/%s", root, path);
	for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		cr_assert(mkdir(whole, 0700) == 0 || errno == EEXIST, "%s", whole);
		*slash = '/';
	}
	file = fopen(whole, "w");
	cr_assert_not_null(file, "%s", whole);
	fputs(content, file);
	fclose(file);
}

static void make_machine(void)
{
	strcpy(root, "/tmp/sparring-ladder-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
	put_file("proc/sys/kernel/osrelease", "6.1.0-57-amd64\n");
	put_file("proc/cmdline", "quiet\n");
}

static void end_machine(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -r %s", root);
	cr_assert_eq(system(command), 0);
}

/* ---- a NIC ---- */

struct nic nic;

int take(void *arg, const struct spri_memory *wanted, struct spri_text *text)
{
	int r = nic.refuses[wanted->dma_buf < 0];

	(void)arg;
	nic.n++;
	nic.last = *wanted;
	nic.fd_was_open = wanted->dma_buf >= 0 && fcntl(wanted->dma_buf, F_GETFD) >= 0;
	if (r < 0 && nic.text)
		spri_text_set(text, "%s", nic.text);
	return r;
}

struct spri_gpu *gpu;
char *memory;

void begin(void)
{
	struct spri_text why = {""};

	if (spri_gpu_probe(&why) < 0)
		cr_skip("%s", why.s);
	cr_assert_eq(spri_gpu_open(1, &gpu, &why), 0, "%s", why.s);
	cr_assert_eq(spri_gpu_alloc(gpu, BYTES, (void **)&memory), 0);
	memset(&nic, 0, sizeof nic);
	setenv("EMU_CUDA_ANY_FD", "1", 1);
	make_machine();
}

void finish(void)
{
	spri_gpu_free(gpu, memory);
	spri_gpu_close(gpu);
	unsetenv("EMU_CUDA_ANY_FD");
	unsetenv("EMU_CUDA_ATTRIBUTES");
	unsetenv("EMU_CUDA_FAIL");
	end_machine();
}
