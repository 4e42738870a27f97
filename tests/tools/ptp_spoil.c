/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * For LD_PRELOAD: changes a byte of every write before it is posted, so that the tools' comparison
 * of data has something to find. The next write of the same bytes changes it back, so their number
 * has to be odd. Small writes are the tools' reports, and are left alone.
 */
#include <dlfcn.h>
#include <sparring/endpoint.h>
#include <string.h>

#define LEAST 100

int spr_endpoint_post(struct spr_endpoint *endpoint, const struct spr_write *write)
{
	int (*post)(struct spr_endpoint * endpoint, const struct spr_write *write);
	void *symbol = dlsym(RTLD_NEXT, "spr_endpoint_post");

	if (write->n_gather == 1 && write->gather[0].bytes >= LEAST)
		((uint8_t *)write->gather[0].base)[write->gather[0].bytes - 1] ^= 1;
	memcpy(&post, &symbol, sizeof post);
	return post(endpoint, write);
}
