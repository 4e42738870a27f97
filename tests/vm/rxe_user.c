/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * The user's half of rxe_dmabuf.c, preloaded in the guest: libibverbs' provider for rxe does not
 * know dma-bufs, and refuses before the kernel is asked. This asks the kernel, by the function that
 * libibverbs has for its providers.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

/* As providers have it, and room for what they may add. */
struct region {
	struct ibv_mr mr;
	int type, access;
	void *spare[4];
};

typedef int (*ask_fn)(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
		      int access, struct region *region);

__attribute__((visibility("default"))) struct ibv_mr *
ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
		  int access)
{
	struct region *region = calloc(1, sizeof *region); /* the provider frees it */
	void *verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	ask_fn ask = NULL;
	int error = ENOSYS;

	if (verbs)
		*(void **)&ask = dlsym(verbs, "ibv_cmd_reg_dmabuf_mr");
	if (ask && region)
		error = ask(pd, offset, length, iova, fd, access, region);
	if (verbs)
		dlclose(verbs);
	if (error) {
		free(region);
		errno = error;
		return NULL;
	}
	return &region->mr;
}
