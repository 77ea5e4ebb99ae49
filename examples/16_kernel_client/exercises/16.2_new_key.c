// Exercise 16.2 (★★): register again, in place of kernel_transfer.c
//
// This is kernel_transfer.c as the lesson has it: once the registration is taken back, the transfer is at its end.
// Wanted: the page is registered once more, by a new key, and written and read once more, before that is the end.
// Hint:   invalidated() is called twice then; ib_update_fast_reg_key() as in kernel_memory.c, while no request uses the key.
// Check: ./lab check 16.2

// SPDX-License-Identifier: MIT OR GPL-2.0
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kernel.h>
#include <linux/string.h>

#include "kernel_client.h"

/*
 * The lock is for ib_drain_qp(): after stop() nobody posts, nor is about to.
 * It is taken in softirqs, too, so they are off while it is held.
 */
static void post(struct client *c, const struct ib_send_wr *wr)
{
	int err = 0;

	spin_lock_bh(&c->lock);
	if (!c->error)
		err = ib_post_send(c->id->qp, wr, NULL);
	spin_unlock_bh(&c->lock);
	if (err)
		fail(c, err, "ib_post_send");
}

static bool succeeded(struct client *c, struct ib_wc *wc, const char *what)
{
	if (wc->status == IB_WC_SUCCESS)
		return true;
	/* A flush has a cause, which says so itself, and perhaps later. */
	if (wc->status != IB_WC_WR_FLUSH_ERR)
		fail(c, -EIO, "%s: %s", what, ib_wc_status_msg(wc->status));
	return false;
}

/* By the worker, before the server knows of us. */
int post_receive(struct client *c)
{
	struct ib_sge into = {
		.addr = c->dma[THEIRS],
		.length = sizeof(struct description),
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_recv_wr receive = {
		.wr_cqe = &c->received,
		.sg_list = &into,
		.num_sge = 1,
	};

	return ib_post_recv(c->id->qp, &receive, NULL);
}

/* By the worker, once connected: registers the page IN, and tells the server. */
void start_transfer(struct client *c)
{
	struct ib_sge ours = {
		.addr = c->dma[OURS],
		.length = sizeof(struct description),
		.lkey = c->pd->local_dma_lkey,
	};
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
	struct description *message = c->page[OURS];

	ib_dma_sync_single_for_cpu(c->device, c->dma[OURS], LENGTH, DMA_TO_DEVICE);
	message->version = cpu_to_be32(PROTOCOL_VERSION);
	message->rkey = cpu_to_be32(c->mr->rkey);
	message->address = cpu_to_be64(c->mr->iova);
	message->length = cpu_to_be64(c->mr->length);
	ib_dma_sync_single_for_device(c->device, c->dma[OURS], LENGTH, DMA_TO_DEVICE);
	post(c, &reg.wr);
}

/* Completions from here on: in softirq, where nothing may sleep. */

static void was_registered(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, registered);

	if (succeeded(c, wc, "the registration"))
		pr_info("registered a page by a work request\n");
}

static void sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, sent);

	succeeded(c, wc, "the SEND");
}

static void post_write(struct client *c)
{
	struct ib_sge from = {
		.addr = c->dma[OUT],
		.length = LENGTH,
		.lkey = c->pd->local_dma_lkey, /* all memory, for us alone */
	};
	struct ib_rdma_wr write = {
		.wr.wr_cqe = &c->written,
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.send_flags = IB_SEND_SIGNALED,
		.wr.sg_list = &from,
		.wr.num_sge = 1,
		.remote_addr = c->remote_address,
		.rkey = c->remote_key,
	};

	ib_dma_sync_single_for_cpu(c->device, c->dma[OUT], LENGTH, DMA_TO_DEVICE);
	memset(c->page[OUT], c->round, LENGTH); /* another page each time */
	strscpy(c->page[OUT], "written by a kernel, while the server slept", LENGTH);
	ib_dma_sync_single_for_device(c->device, c->dma[OUT], LENGTH, DMA_TO_DEVICE);
	post(c, &write.wr);
}

/*
 * The page is registered by now: the server sends this once it has our SEND,
 * which is behind the registration. From one who sends unasked our READ fails.
 */
static void received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, received);
	const struct description *theirs = c->page[THEIRS];
	u64 address, length;

	if (!succeeded(c, wc, "the server's description"))
		return;
	ib_dma_sync_single_for_cpu(c->device, c->dma[THEIRS], LENGTH, DMA_FROM_DEVICE);
	address = be64_to_cpu(theirs->address);
	length = be64_to_cpu(theirs->length);
	if (wc->byte_len != sizeof(*theirs) || be32_to_cpu(theirs->version) != PROTOCOL_VERSION) {
		fail(c, -EPROTO, "the server's description: of another kind");
	} else if (length < LENGTH || address + length < address) {
		fail(c, -EPROTO, "the server's description: no page fits into its memory");
	} else {
		c->remote_address = address;
		c->remote_key = be32_to_cpu(theirs->rkey);
		post_write(c);
	}
}

static void written(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, written);
	struct ib_sge into = {
		.addr = c->mr->iova,
		.length = LENGTH,
		.lkey = c->mr->lkey, /* the registered page, and no more */
	};
	struct ib_rdma_wr read = {
		.wr.wr_cqe = &c->was_read,
		.wr.opcode = IB_WR_RDMA_READ,
		.wr.send_flags = IB_SEND_SIGNALED,
		.wr.sg_list = &into,
		.wr.num_sge = 1,
		.remote_addr = c->remote_address,
		.rkey = c->remote_key,
	};

	if (!succeeded(c, wc, "the WRITE"))
		return;
	if (!c->round)
		pr_info("WRITE of %u bytes completed\n", LENGTH);
	post(c, &read.wr);
}

static void was_read(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, was_read);
	struct ib_send_wr invalidate = {
		.wr_cqe = &c->invalidated,
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = c->mr->rkey,
	};
	bool same;

	if (!succeeded(c, wc, "the READ"))
		return;
	/* Ours to look at, until it goes back to the device. */
	ib_dma_sync_single_for_cpu(c->device, c->dma[IN], LENGTH, DMA_FROM_DEVICE);
	same = !memcmp(c->page[OUT], c->page[IN], LENGTH);
	ib_dma_sync_single_for_device(c->device, c->dma[IN], LENGTH, DMA_FROM_DEVICE);
	if (!same) {
		fail(c, -EBADMSG, "what was read is not what was written");
		return;
	}
	if (!c->round)
		pr_info("READ of %u bytes completed, and they are the same\n", LENGTH);
	WRITE_ONCE(c->round, c->round + 1);
	if (c->round < rounds)
		post_write(c);
	else
		post(c, &invalidate);
}

static void invalidated(struct ib_cq *cq, struct ib_wc *wc)
{
	struct client *c = container_of(wc->wr_cqe, struct client, invalidated);

	if (!succeeded(c, wc, "the invalidation"))
		return;
	pr_info("took the registration back, after %u round%s\n", c->round,
		c->round == 1 ? "" : "s");
	complete(&c->step);
}

void prepare_callbacks(struct client *c)
{
	c->registered.done = was_registered;
	c->sent.done = sent;
	c->received.done = received;
	c->written.done = written;
	c->was_read.done = was_read;
	c->invalidated.done = invalidated;
}
