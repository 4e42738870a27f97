/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* A machine whose driver is missing, too old, or has no device: EMU_EXPECT is in the reason. */
#include "helper.h"

#include <dlfcn.h>

Test(gpu_absent, the_reason_is_given)
{
	const char *expected = getenv("EMU_EXPECT");
	struct spri_text why = {""}, again = {""};
	struct spri_gpu_pointer pointer;
	struct spri_gpu_info info;
	struct spri_gpu *gpu = NULL;

	cr_assert_not_null(expected, "EMU_EXPECT is not set: run this by meson test");
	if (!getenv("LD_LIBRARY_PATH") && dlopen("libcuda.so.1", RTLD_LAZY))
		cr_skip("this machine has a CUDA driver");
	cr_assert_eq(spri_gpu_probe(&why), SPR_EUNSUPPORTED);
	cr_assert_not_null(strstr(why.s, expected), "got: %s", why.s);
	cr_assert_eq(spri_gpu_count(), 0);
	cr_assert_eq(spri_gpu_open(0, &gpu, &again), SPR_EUNSUPPORTED);
	cr_assert_str_eq(again.s, why.s);
	cr_assert_null(gpu);
	cr_assert_eq(spri_gpu_info(0, &info, &again), SPR_EUNSUPPORTED);
	spri_gpu_pointer(&why, &pointer);
	cr_assert(!pointer.on_gpu);
	spri_gpu_close(NULL);
	spri_gpu_stream_destroy(NULL);
}
