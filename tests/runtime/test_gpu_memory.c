/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* GPU memory and the list of GPUs and NICs through the public API, over the stand-in driver. */
#include <check.h>
#include <errno.h>
#include <sparring/sparring.h>
#include <stdlib.h>
#include <string.h>

static struct spr_context *context;

static void begin(void)
{
	struct spr_context_options options = {.size = sizeof options, .transport = "tcp"};

	cr_assert_eq(spr_context_open(&options, &context), 0);
}

Test(gpu_memory, is_copied_and_freed)
{
	uint64_t from[1000], to[1000];
	void *first = NULL, *second = NULL;

	begin();
	for (unsigned i = 0; i < 1000; i++)
		from[i] = i * 77;
	cr_assert_eq(spr_memory_alloc(context, SPR_MEMORY_CUDA, SPR_GPU(0), sizeof from, &first), 0,
		     "%s", spr_context_error(context));
	cr_assert_eq(spr_memory_alloc(context, SPR_MEMORY_CUDA, SPR_GPU(1), sizeof from, &second),
		     0);
	cr_assert_eq(spr_memory_copy(context, first, from, sizeof from), 0);
	cr_assert_eq(spr_memory_copy(context, second, first, sizeof from), 0);
	cr_assert_eq(spr_memory_copy(context, to, second, sizeof from), 0);
	cr_assert_arr_eq(to, from, sizeof from);
	spr_memory_free(context, first, sizeof from);
	spr_memory_free(context, second, sizeof from);
	spr_memory_free(context, NULL, 0);
	spr_context_close(context);
}

Test(gpu_memory, failures_say_why)
{
	void *p = NULL;
	int local = 0;

	begin();
	cr_assert_eq(spr_memory_alloc(context, SPR_MEMORY_CUDA, SPR_GPU(9), 10, &p),
		     SPR_EUNSUPPORTED);
	cr_assert_str_eq(spr_context_error(context), "there is no GPU 9: this process may use 2");
	cr_assert_eq(spr_memory_alloc(context, SPR_MEMORY_CUDA, -1, 10, &p), SPR_EARGUMENT);
	cr_assert_eq(spr_memory_alloc(context, SPR_MEMORY_CUDA, SPR_GPU(0), 0, &p), SPR_EARGUMENT);
	cr_assert_eq(spr_memory_alloc(context, SPR_MEMORY_CUDA, SPR_GPU(0), (size_t)1 << 50, &p),
		     -ENOMEM);
	cr_assert_not_null(strstr(spr_context_error(context), "GPU 0: 1125899906842624 bytes"));
	cr_assert_null(p);
	cr_assert_eq(spr_memory_copy(context, &local, &local, 4), 0, "the host copies itself");
	cr_assert_eq(spr_memory_alloc(context, SPR_MEMORY_CUDA, SPR_GPU(0), 100, &p), 0);
	setenv("EMU_CUDA_FAIL", "cuMemcpyAsync:1:1", 1);
	cr_assert_eq(spr_memory_copy(context, p, &local, 4), SPR_EDEVICE);
	cr_assert_str_eq(spr_context_error(context),
			 "copying: cuMemcpyAsync: CUDA_ERROR_INVALID_VALUE: invalid argument");
	setenv("EMU_CUDA_FAIL", "cuStreamCreate:1:2", 1);
	cr_assert_eq(spr_memory_copy(context, p, &local, 4), -ENOMEM);
	setenv("EMU_CUDA_FAIL", "cuStreamCreate:1:999", 1);
	cr_assert_eq(spr_memory_copy(context, p, &local, 4), SPR_EDEVICE);
	unsetenv("EMU_CUDA_FAIL");
	spr_memory_free(context, p, 100);
	spr_context_close(context);
}

/* ---- spr_info_list ---- */

static char listed[4096];

static void keep(void *arg, const struct spr_info_row *row)
{
	size_t n = strlen(listed);

	(void)arg;
	snprintf(listed + n, sizeof listed - n, "%s|%s|%s|%d\n", row->name, row->value, row->detail,
		 row->chosen);
}

static void list(int expected)
{
	listed[0] = '\0';
	cr_assert_eq(spr_info_list(SPR_INFO_GPUDIRECT, keep, NULL), expected);
}

static void has(const char *line)
{
	cr_assert_not_null(strstr(listed, line), "\"%s\" is missing in:\n%s", line, listed);
}

Test(gpu_memory, gpus_and_ways_are_listed)
{
	list(0);
	has("GPU 0|0000:3b:00.0|stand-in GPU 0, compute capability 8.0, 4 GiB, driver of CUDA ");
	has("GPU 0, tcp|staging|tcp moves host memory only|0\n");
	has("GPU 1, tcp|staging|tcp moves host memory only|0\n");
	setenv("SPR_GPUDIRECT", "forbid", 1);
	list(0);
	has("GPU 0, tcp|staging|SPR_GPUDIRECT is 'forbid'|0\n");
	setenv("SPR_GPUDIRECT", "perhaps", 1);
	list(SPR_EENVIRONMENT);
	has("SPR_GPUDIRECT|perhaps|");
	has("GPU 1, tcp|staging|");
	unsetenv("SPR_GPUDIRECT");
	setenv("EMU_CUDA_FAIL", "cuDevicePrimaryCtxRetain:1:101", 1);
	list(0);
	has("GPU 0|not usable|GPU 0: cuDevicePrimaryCtxRetain: CUDA_ERROR_INVALID_DEVICE");
	has("GPU 1, tcp|staging|");
	unsetenv("EMU_CUDA_FAIL");
}
