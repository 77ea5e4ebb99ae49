// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * 31_kernel_client, one queue: its queue pair, its completion queue, and how
 * its completions are found.
 *
 * Lesson:  lessons/31_kernel_client.md
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "kernel_client.h"

// [event-handler]
/*
 * Events of the queue pair that belong to no request: our device has refused a
 * request of the server's, or is broken. Some drivers call it in an interrupt.
 */
static void qp_event(struct ib_event *event, void *context)
{
	struct queue *q = context;

	switch (event->event) {
	case IB_EVENT_QP_FATAL:
	case IB_EVENT_QP_REQ_ERR:
	case IB_EVENT_QP_ACCESS_ERR:
		fail(q->client, -EIO, "queue %u: %s", q->number, ib_event_msg(event->event));
		break;
	default: /* COMM_EST, SQ_DRAINED and others are no errors */
		break;
	}
}
// [event-handler]

// [make]
int make_queue(struct queue *q)
{
	struct client *c = q->client;
	struct ib_qp_init_attr wanted = {
		.event_handler = qp_event,
		.qp_context = q,
		/* all pages, or REG_MR and SEND; and one for ib_drain_qp() */
		.cap.max_send_wr = max(pages, 2u) + 1,
		.cap.max_recv_wr = 1 + 1,
		.cap.max_send_sge = 1,
		.cap.max_recv_sge = 1,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	/* A page fault waits for a READ, so it polls. Nobody waits for a WRITE. */
	enum ib_poll_context context = is_for_reads(q) ? IB_POLL_DIRECT : IB_POLL_SOFTIRQ;
	int vector = q->number % c->device->num_comp_vectors; /* interrupts on several CPUs */
	struct ib_cq *cq;
	int err;

	cq = ib_alloc_cq(c->device, q, wanted.cap.max_send_wr + wanted.cap.max_recv_wr, vector,
			 context);
	if (IS_ERR(cq))
		return fail(c, PTR_ERR(cq), "ib_alloc_cq");
	q->cq = cq;
	wanted.send_cq = cq;
	wanted.recv_cq = cq;
	err = rdma_create_qp(q->id, c->pd, &wanted);
	return err ? fail(c, err, "rdma_create_qp") : 0;
}
// [make]

// [destroy]
void destroy_queue(struct queue *q)
{
	if (q->id && q->id->qp) {
		rdma_disconnect(q->id); /* moves the QP to the error state, in step with rdma_cm */
		ib_drain_qp(q->id->qp); /* completes what is posted */
		rdma_destroy_qp(q->id);
	}
	/* After the last callback its softirq arms the CQ. ib_free_cq() does not wait for that. */
	if (q->cq && !is_for_reads(q))
		synchronize_rcu();
	if (q->cq)
		ib_free_cq(q->cq);
	if (q->id)
		rdma_destroy_id(q->id); /* likewise, for cm_event() */
}
// [destroy]

// [post]
/*
 * The lock is for ib_drain_qp(): after stop() no post is under way or follows.
 * Posts to several queues do not wait for each other: all are readers. If a
 * post fails, the requests from *unposted on still belong to the caller.
 */
int post(struct queue *q, const struct ib_send_wr *wr, const struct ib_send_wr **unposted)
{
	struct client *c = q->client;
	unsigned long flags;
	int err;

	*unposted = wr;
	read_lock_irqsave(&c->lock, flags);
	err = c->error ?: ib_post_send(q->id->qp, wr, unposted);
	read_unlock_irqrestore(&c->lock, flags);
	c->calls++; /* only the worker posts */
	return err ? fail(c, err, "ib_post_send") : 0; /* silent after stop() */
}

bool succeeded(struct client *c, struct ib_wc *wc, const char *what)
{
	if (wc->status == IB_WC_SUCCESS)
		return true;
	/* A flush has another cause, which is reported by itself, perhaps later. */
	if (wc->status != IB_WC_WR_FLUSH_ERR)
		fail(c, -EIO, "%s: %s", what, ib_wc_status_msg(wc->status));
	return false;
}
// [post]

// [poll]
/* The callbacks of this queue run in here, in the thread that waits. */
int poll_until(struct queue *q, const bool *done, const char *what)
{
	struct client *c = q->client;
	unsigned long limit = jiffies + timeout * HZ;

	while (!*done && !READ_ONCE(c->error)) {
		if (ib_process_cq_direct(q->cq, 1))
			continue;
		if (time_after(jiffies, limit))
			return fail(c, -ETIMEDOUT, "%s", what);
		cond_resched(); /* others may need this CPU, the server perhaps */
	}
	return READ_ONCE(c->error);
}
// [poll]
