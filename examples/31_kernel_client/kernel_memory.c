// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * 31_kernel_client, its memory: the pages and who may use them, from when to
 * when; and the requests.
 *
 * Lesson:  lessons/31_kernel_client.md
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "kernel_client.h"

// [requests]
/* For all devices: objects of one size, which the allocator keeps ready. */
struct kmem_cache *request_cache;

/*
 * It must not wait for memory: the kernel swaps pages out because it has none.
 * If the cache has no object, the pool has: as many as are ever posted.
 */
struct request *get_request(struct client *c, struct slot *slot)
{
	struct request *r = mempool_alloc(c->requests, GFP_NOWAIT);

	if (!r) {
		fail(c, -ENOMEM, "more requests than the pool has");
		return NULL;
	}
	memset(r, 0, sizeof(*r));
	r->slot = slot;
	return r;
}

/* A chain of requests that were not posted, so they never complete. */
void put_unposted(struct client *c, const struct ib_send_wr *wr)
{
	while (wr) {
		struct request *r = container_of(rdma_wr(wr), struct request, wr);

		wr = wr->next;
		mempool_free(r, c->requests);
	}
}
// [requests]

// [buffers]
/* From here on the page belongs to the device, until unmapped or synchronised. */
static int map_buffer(struct client *c, struct buffer *b, enum dma_data_direction direction)
{
	void *page = (void *)get_zeroed_page(GFP_KERNEL);

	if (!page)
		return fail(c, -ENOMEM, "get_zeroed_page");
	b->dma = ib_dma_map_single(c->device, page, LENGTH, direction);
	if (ib_dma_mapping_error(c->device, b->dma)) {
		free_page((unsigned long)page);
		return fail(c, -EIO, "ib_dma_map_single");
	}
	b->page = page;
	b->direction = direction;
	return 0;
}

static void unmap_buffer(struct client *c, struct buffer *b)
{
	if (!b->page)
		return;
	ib_dma_unmap_single(c->device, b->dma, LENGTH, b->direction);
	free_page((unsigned long)b->page);
}
// [buffers]

// [region]
/* A region of all pages for READs. No request can use it before IB_WR_REG_MR. */
static int map_region(struct client *c)
{
	struct scatterlist *list;
	struct ib_mr *mr;
	int mapped;
	uint i;

	mr = ib_alloc_mr(c->pd, IB_MR_TYPE_MEM_REG, pages);
	if (IS_ERR(mr))
		return fail(c, PTR_ERR(mr), "ib_alloc_mr");
	c->mr = mr;
	list = kmalloc_array(pages, sizeof(*list), GFP_KERNEL);
	if (!list)
		return fail(c, -ENOMEM, "kmalloc_array");
	sg_init_table(list, pages);
	for (i = 0; i < pages; i++) {
		sg_dma_address(&list[i]) = c->slots[i].in.dma; /* mapped already */
		sg_dma_len(&list[i]) = LENGTH;
	}
	mapped = ib_map_mr_sg(mr, list, pages, NULL, LENGTH);
	kfree(list);
	if (mapped != pages)
		return fail(c, mapped < 0 ? mapped : -EINVAL, "ib_map_mr_sg");
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey)); /* old keys are void */
	return 0;
}
// [region]

int make_memory(struct client *c)
{
	struct ib_pd *pd;
	int err = 0;
	uint i;

	if (!(c->device->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS))
		return fail(c, -EOPNOTSUPP, "no fast registration by this device");
	pd = ib_alloc_pd(c->device, 0);
	if (IS_ERR(pd))
		return fail(c, PTR_ERR(pd), "ib_alloc_pd");
	c->pd = pd;
	c->requests = mempool_create_slab_pool(pages, request_cache);
	c->slots = kcalloc(pages, sizeof(*c->slots), GFP_KERNEL);
	if (!c->requests || !c->slots)
		return fail(c, -ENOMEM, "the pool of requests");
	for (i = 0; i < pages && !err; i++)
		err = map_buffer(c, &c->slots[i].out, DMA_TO_DEVICE) ?:
		      map_buffer(c, &c->slots[i].in, DMA_FROM_DEVICE);
	return err ?: map_buffer(c, &c->ours, DMA_TO_DEVICE) ?:
	       map_buffer(c, &c->theirs, DMA_FROM_DEVICE) ?: map_region(c);
}

/* Once there is no queue pair any more, whose requests could touch it. */
void destroy_memory(struct client *c)
{
	uint i;

	if (c->mr)
		ib_dereg_mr(c->mr);
	for (i = 0; c->slots && i < pages; i++) {
		unmap_buffer(c, &c->slots[i].out);
		unmap_buffer(c, &c->slots[i].in);
	}
	unmap_buffer(c, &c->ours);
	unmap_buffer(c, &c->theirs);
	kfree(c->slots);
	mempool_destroy(c->requests);
	if (c->pd)
		ib_dealloc_pd(c->pd);
}
