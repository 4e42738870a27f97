/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The Sparring authors */
/*
 * rxe with dma-bufs, for the guest machine: memory regions of what another driver exports.
 * kernel.py puts this behind the end of rxe_mr.c and calls it from there.
 *
 * Path: the exporter maps the dma-buf into the kernel; each of its pages becomes one of the
 * region's, as if it had been pinned. The mapping and the reference last as long as the region.
 * Failures: what is no dma-buf, a range beyond its end, an address whose place in a page is not the
 * offset's, an exporter whose memory has no pages.
 */

static int rxe_mr_map_dmabuf(struct rxe_mr *mr, u64 offset, u64 length)
{
	unsigned long first = offset >> PAGE_SHIFT;
	unsigned long n = ((offset + length - 1) >> PAGE_SHIFT) - first + 1;
	u8 *at;
	int err;

	if (mr->dmabuf_map.is_iomem)
		return -EOPNOTSUPP;
	err = alloc_mr_page_info(mr, n);
	if (err)
		return err;
	at = (u8 *)mr->dmabuf_map.vaddr + (first << PAGE_SHIFT);
	for (unsigned long i = 0; i < n; i++, at += PAGE_SIZE) {
		mr->page_info[i].page =
			is_vmalloc_addr(at) ? vmalloc_to_page(at) : virt_to_page(at);
		mr->page_info[i].offset = 0;
	}
	mr->nbuf = n;
	return 0;
}

static int rxe_mr_init_dmabuf(struct rxe_mr *mr, u64 offset, u64 length, u64 iova, int fd,
			      int access)
{
	struct dma_buf *dmabuf;
	int err = -EINVAL;

	rxe_mr_init(access, mr);
	if (!length || offset_in_page(offset) != offset_in_page(iova))
		return -EINVAL;
	dmabuf = dma_buf_get(fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (offset > dmabuf->size || length > dmabuf->size - offset)
		goto put;
	err = dma_buf_vmap_unlocked(dmabuf, &mr->dmabuf_map);
	if (err)
		goto put;
	err = rxe_mr_map_dmabuf(mr, offset, length);
	if (err)
		goto unmap;
	mr->dmabuf = dmabuf;
	mr->ibmr.type = IB_MR_TYPE_USER;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	mr->state = RXE_MR_STATE_VALID;
	return 0;
unmap:
	dma_buf_vunmap_unlocked(dmabuf, &mr->dmabuf_map);
put:
	dma_buf_put(dmabuf);
	return err;
}

static void rxe_mr_end_dmabuf(struct rxe_mr *mr)
{
	if (!mr->dmabuf)
		return;
	dma_buf_vunmap_unlocked(mr->dmabuf, &mr->dmabuf_map);
	dma_buf_put(mr->dmabuf);
}

struct ib_mr *rxe_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset, u64 length, u64 iova, int fd,
				     int access, struct uverbs_attr_bundle *attrs)
{
	struct rxe_dev *rxe = to_rdev(ibpd->device);
	struct rxe_mr *mr;
	int err;

	if (access & ~RXE_ACCESS_SUPPORTED_MR)
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = rxe_add_to_pool(&rxe->mr_pool, mr);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	rxe_get(to_rpd(ibpd));
	mr->ibmr.pd = ibpd;
	mr->ibmr.device = ibpd->device;
	err = rxe_mr_init_dmabuf(mr, offset, length, iova, fd, access);
	if (err) {
		rxe_cleanup(mr);
		kfree(mr);
		return ERR_PTR(err);
	}
	rxe_finalize(mr);
	return &mr->ibmr;
}
