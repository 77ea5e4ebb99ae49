// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * 31_kernel_client, the transfer: pages go out by the queues for WRITEs, and
 * come back by the queues for READs.
 *
 * Lesson:  lessons/31_kernel_client.md
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kernel.h>
#include <linux/string.h>

#include "kernel_client.h"

static void was_registered(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, registered);

	if (succeeded(c, wc, "the registration"))
		pr_info("registered %u pages by a work request\n", pages);
}

static void sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, sent);

	succeeded(c, wc, "the SEND");
}

// [received]
/*
 * The pages are registered by now: the server sends this once it has our SEND,
 * which is behind the registration. If it sends earlier, our READ fails.
 */
static void received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, received);
	const struct description *theirs = c->theirs.page;
	u64 address, length;

	if (!succeeded(c, wc, "the server's description"))
		return;
	ib_dma_sync_single_for_cpu(c->device, c->theirs.dma, LENGTH, DMA_FROM_DEVICE);
	address = be64_to_cpu(theirs->address);
	length = be64_to_cpu(theirs->length);
	if (wc->byte_len != sizeof(*theirs) || be32_to_cpu(theirs->version) != PROTOCOL_VERSION) {
		fail(c, -EPROTO, "the server's description: of another kind");
	} else if (length < (u64)pages * LENGTH || address + length < address) {
		fail(c, -EPROTO, "the server's description: the pages do not fit into its memory");
	} else {
		c->remote_address = address;
		c->remote_key = be32_to_cpu(theirs->rkey);
		c->done = true;
	}
}
// [received]

/* On queue 0, before the server knows of us. */
int post_receive(struct client *c)
{
	struct ib_sge into = {
		.addr = c->theirs.dma,
		.length = sizeof(struct description),
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_recv_wr receive = {
		.wr_cqe = &c->received,
		.sg_list = &into,
		.num_sge = 1,
	};
	int err;

	c->received.done = received;
	err = ib_post_recv(c->queue[0].id->qp, &receive, NULL);
	return err ? fail(c, err, "ib_post_recv") : 0;
}

/* Registers the pages for READs, tells the server, and waits for its answer. */
int introduce(struct client *c)
{
	struct ib_sge ours = {
		.addr = c->ours.dma,
		.length = sizeof(struct description),
		.lkey = c->pd->local_dma_lkey,
	};
	// [introduce]
	struct ib_send_wr send = {
		.wr_cqe = &c->sent, /* unsignaled: completes if it fails */
		.opcode = IB_WR_SEND,
		.sg_list = &ours,
		.num_sge = 1,
	};
	struct ib_reg_wr reg = {
		.wr.next = &send,
		.wr.wr_cqe = &c->registered,
		.wr.opcode = IB_WR_REG_MR,
		.wr.send_flags = IB_SEND_SIGNALED,
		.mr = c->mr,
		.key = c->mr->rkey,
		.access = IB_ACCESS_LOCAL_WRITE, /* for our own device alone */
	};
	struct description *message = c->ours.page;
	const struct ib_send_wr *unposted;

	c->registered.done = was_registered;
	c->sent.done = sent;
	ib_dma_sync_single_for_cpu(c->device, c->ours.dma, LENGTH, DMA_TO_DEVICE);
	message->version = cpu_to_be32(PROTOCOL_VERSION);
	message->rkey = cpu_to_be32(c->mr->rkey);
	message->address = cpu_to_be64(c->mr->iova);
	message->length = cpu_to_be64(c->mr->length);
	ib_dma_sync_single_for_device(c->device, c->ours.dma, LENGTH, DMA_TO_DEVICE);
	return post(&c->queue[0], &reg.wr, &unposted) ?:
	       poll_until(&c->queue[0], &c->done, "the server does not describe its memory");
	// [introduce]
}

// [request]
/* A WRITE or a READ of slot number i. */
static struct request *prepare(struct client *c, uint i, enum ib_wr_opcode opcode,
			       void (*done)(struct ib_cq *cq, struct ib_wc *wc))
{
	struct slot *slot = &c->slots[i];
	struct request *r = get_request(c, slot);

	if (!r)
		return NULL;
	r->cqe.done = done;
	r->sge.length = LENGTH;
	if (opcode == IB_WR_RDMA_WRITE) {
		r->sge.addr = slot->out.dma;
		r->sge.lkey = c->pd->local_dma_lkey; /* all memory, for us alone */
	} else {
		r->sge.addr = c->mr->iova + (u64)i * LENGTH;
		r->sge.lkey = c->mr->lkey; /* the registered pages, and no more */
	}
	r->wr.wr.wr_cqe = &r->cqe;
	r->wr.wr.opcode = opcode;
	r->wr.wr.send_flags = IB_SEND_SIGNALED;
	r->wr.wr.sg_list = &r->sge;
	r->wr.wr.num_sge = 1;
	r->wr.remote_addr = c->remote_address + (u64)i * LENGTH;
	r->wr.rkey = c->remote_key;
	return r;
}
// [request]

static int post_request(struct queue *q, struct request *r)
{
	const struct ib_send_wr *unposted;
	int err;

	err = post(q, &r->wr.wr, &unposted);
	if (err)
		put_unposted(q->client, unposted);
	return err;
}

// [was-written]
/* In a softirq, so it must not sleep. Also called if the request has failed. */
static void was_written(struct ib_cq *cq, struct ib_wc *wc)
{
	struct request *r = container_of(wc->wr_cqe, struct request, cqe);
	struct client *c = ((struct queue *)cq->cq_context)->client;
	struct slot *slot = r->slot;

	mempool_free(r, c->requests);
	if (!succeeded(c, wc, "the WRITE"))
		return;
	WRITE_ONCE(slot->written, true); /* the page is ours again */
	wake_up(&c->wake);
}
// [was-written]

static void fill(struct client *c, uint i, uint round)
{
	struct buffer *out = &c->slots[i].out;

	ib_dma_sync_single_for_cpu(c->device, out->dma, LENGTH, DMA_TO_DEVICE);
	memset(out->page, round + i, LENGTH); /* another page each time */
	scnprintf(out->page, LENGTH, "page %u, written by a kernel, while the server slept", i);
	ib_dma_sync_single_for_device(c->device, out->dma, LENGTH, DMA_TO_DEVICE);
}

// [write]
/* Posts the WRITEs of all pages, and waits for none of them. */
static int write_pages(struct client *c, uint round)
{
	int err = 0;
	uint i;

	for (i = 0; i < pages && !err; i++) {
		struct request *r;

		fill(c, i, round);
		c->slots[i].written = false;
		r = prepare(c, i, IB_WR_RDMA_WRITE, was_written);
		err = r ? post_request(&c->queue[queues + i % queues], r) : -ENOMEM;
	}
	return err;
}

/* A page that is on its way out is not in the server's memory yet. */
static int wait_for_write(struct client *c, uint i)
{
	struct slot *slot = &c->slots[i];

	if (!wait_event_timeout(c->wake, READ_ONCE(slot->written) || READ_ONCE(c->error),
				(timeout + 1) * HZ))
		return fail(c, -ETIMEDOUT, "the WRITE does not complete");
	return READ_ONCE(c->error);
}
// [write]
// [read]
/* Called in poll_until() or ib_drain_qp(), so always in the worker. */
static void was_read(struct ib_cq *cq, struct ib_wc *wc)
{
	struct request *r = container_of(wc->wr_cqe, struct request, cqe);
	struct client *c = ((struct queue *)cq->cq_context)->client;

	r->slot->was_read = succeeded(c, wc, "the READ");
	mempool_free(r, c->requests);
}

/* As in a page fault: the thread continues when the page is here. */
static int read_page(struct client *c, uint i)
{
	struct request *r = prepare(c, i, IB_WR_RDMA_READ, was_read);
	struct queue *q = &c->queue[i % queues];
	struct slot *slot = &c->slots[i];
	bool same;
	int err;

	slot->was_read = false;
	err = r ? post_request(q, r) : -ENOMEM;
	err = err ?: poll_until(q, &slot->was_read, "the READ does not complete");
	if (err)
		return err;
	/* The CPU may read the page until it goes back to the device. */
	ib_dma_sync_single_for_cpu(c->device, slot->in.dma, LENGTH, DMA_FROM_DEVICE);
	same = !memcmp(slot->out.page, slot->in.page, LENGTH);
	ib_dma_sync_single_for_device(c->device, slot->in.dma, LENGTH, DMA_FROM_DEVICE);
	return same ? 0 : fail(c, -EBADMSG, "what was read is not what was written");
}
// [read]

static int swap_round(struct client *c, uint round)
{
	int err = write_pages(c, round);
	uint i;

	for (i = 0; i < pages && !err; i++) {
		err = wait_for_write(c, i);
		if (!err && !round)
			pr_info("WRITE of page %u by queue %u\n", i, queues + i % queues);
		err = err ?: read_page(c, i);
		if (!err && !round)
			pr_info("READ of page %u by queue %u, and it is the same\n", i, i % queues);
	}
	return err;
}

static void was_taken_back(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, taken_back);

	c->done = succeeded(c, wc, "the invalidation");
}

// [take-back]
static int take_back(struct client *c)
{
	struct ib_send_wr invalidate = {
		.wr_cqe = &c->taken_back,
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = c->mr->rkey,
	};
	const struct ib_send_wr *unposted;

	c->taken_back.done = was_taken_back;
	c->done = false;
	return post(&c->queue[0], &invalidate, &unposted) ?:
	       poll_until(&c->queue[0], &c->done, "the invalidation does not complete");
}
// [take-back]

int transfer(struct client *c)
{
	int err = 0;
	uint i;

	for (i = 0; i < rounds && !err; i++)
		err = swap_round(c, i);
	err = err ?: take_back(c);
	if (!err)
		pr_info("took the registration back, after %u round%s and %u calls of ib_post_send\n",
			rounds, rounds == 1 ? "" : "s", c->calls);
	return err;
}
