/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/* Stands in for the GPU kernels in builds without them. */
#include <gpu.h>

int spri_gpu_probe(struct spri_text *why)
{
	spri_text_set(why, "built without GPU kernels");
	return SPR_EUNSUPPORTED;
}
