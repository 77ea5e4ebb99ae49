// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * 16_kernel_client, its memory: who may use it, and from when to when.
 *
 * Lesson:  lessons/16_kernel_client.md
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <linux/scatterlist.h>

#include "kernel_client.h"

// [buffers]
static const enum dma_data_direction directions[BUFFERS] = {
	[OURS] = DMA_TO_DEVICE,
	[THEIRS] = DMA_FROM_DEVICE,
	[OUT] = DMA_TO_DEVICE,
	[IN] = DMA_FROM_DEVICE,
};

/* From here on the pages are the device's, until unmapped or synchronised. */
int map_buffers(struct client *c)
{
	int i;

	for (i = 0; i < BUFFERS; i++) {
		void *page = (void *)get_zeroed_page(GFP_KERNEL);

		if (!page)
			return fail(c, -ENOMEM, "get_zeroed_page");
		c->dma[i] = ib_dma_map_single(c->device, page, LENGTH, directions[i]);
		if (ib_dma_mapping_error(c->device, c->dma[i])) {
			free_page((unsigned long)page);
			return fail(c, -EIO, "ib_dma_map_single");
		}
		c->page[i] = page;
	}
	return 0;
}
// [buffers]

// [region]
/* A region of one page, over IN. No request can use it before IB_WR_REG_MR. */
int map_region(struct client *c)
{
	struct scatterlist page;
	struct ib_mr *mr;

	mr = ib_alloc_mr(c->pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(mr))
		return fail(c, PTR_ERR(mr), "ib_alloc_mr");
	c->mr = mr;
	sg_init_table(&page, 1);
	sg_dma_address(&page) = c->dma[IN]; /* mapped already */
	sg_dma_len(&page) = LENGTH;
	if (ib_map_mr_sg(mr, &page, 1, NULL, LENGTH) != 1)
		return fail(c, -EINVAL, "ib_map_mr_sg");
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey)); /* old keys are void */
	return 0;
}
// [region]

// [unmap]
/* Once there is no queue pair any more, whose requests could touch it. */
void unmap_memory(struct client *c)
{
	int i;

	if (c->mr)
		ib_dereg_mr(c->mr);
	for (i = 0; i < BUFFERS; i++) {
		if (!c->page[i])
			continue;
		ib_dma_unmap_single(c->device, c->dma[i], LENGTH, directions[i]);
		free_page((unsigned long)c->page[i]);
	}
}
// [unmap]
