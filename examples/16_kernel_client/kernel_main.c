// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * 16_kernel_client: WRITEs a page into the memory of lesson 12's server, READs
 * it back and compares, all of it in the kernel.
 *
 * Lesson:  lessons/16_kernel_client.md
 * Needs:   the emulated machine, since a mistake here crashes the kernel
 * Run:     ./lab run 16_kernel_client
 * By hand: insmod kernel_client.ko server=10.77.0.1 port=18515
 *
 * Each RDMA device has a worker, which makes everything, waits, and destroys
 * everything. Callbacks, for CM events (kernel_connect.c) and for completions
 * (kernel_transfer.c), only post the next request, or wake the worker.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/slab.h>

#include "kernel_client.h"

char *server = "10.77.0.1";
module_param(server, charp, 0444);
MODULE_PARM_DESC(server, "IPv4 or IPv6 address of the server");
char *port = "18515";
module_param(port, charp, 0444);
MODULE_PARM_DESC(port, "rdma_cm port of the server");
uint timeout = 5;
module_param(timeout, uint, 0444);
MODULE_PARM_DESC(timeout, "how long each step may take, 1 to 60 seconds");
uint rounds = 1;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "how often to WRITE and READ");

// [stop]
/* Callable by workers and in softirq. Returns whether it is the first. */
bool stop(struct client *c, int err)
{
	bool first;

	spin_lock_bh(&c->lock);
	first = !c->error;
	if (first)
		c->error = err;
	spin_unlock_bh(&c->lock);
	complete(&c->step);
	return first;
}

/* The same, and says so: only the first, which is why the others fail. */
int fail(struct client *c, int err, const char *fmt, ...)
{
	struct va_format what = { .fmt = fmt };
	va_list args;

	va_start(args, fmt);
	what.va = &args;
	if (stop(c, err))
		pr_err("error: %pV (%pe)\n", &what, ERR_PTR(err));
	va_end(args);
	return err;
}

/* A second more than rdma_cm has, which says better why. */
int wait_for_step(struct client *c, const char *what)
{
	uint before;

	do {
		before = READ_ONCE(c->round);
		if (wait_for_completion_timeout(&c->step, (timeout + 1) * HZ))
			return READ_ONCE(c->error);
	} while (READ_ONCE(c->round) != before); /* slow, but not stuck */
	return fail(c, -ETIMEDOUT, "%s", what);
}
// [stop]

// [make]
static int make(struct client *c)
{
	struct ib_qp_init_attr wanted = {
		/* REG_MR, SEND, WRITE, READ; and one for ib_drain_qp() */
		.cap.max_send_wr = 4 + 1,
		.cap.max_recv_wr = 1 + 1,
		.cap.max_send_sge = 1,
		.cap.max_recv_sge = 1,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	struct ib_pd *pd;
	struct ib_cq *cq;
	int err;

	if (!(c->device->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS))
		return fail(c, -EOPNOTSUPP, "no fast registration by this device");
	pd = ib_alloc_pd(c->device, 0);
	if (IS_ERR(pd))
		return fail(c, PTR_ERR(pd), "ib_alloc_pd");
	c->pd = pd;
	cq = ib_alloc_cq(c->device, c, 5 + 2, 0, IB_POLL_SOFTIRQ);
	if (IS_ERR(cq))
		return fail(c, PTR_ERR(cq), "ib_alloc_cq");
	c->cq = cq;
	err = map_buffers(c) ?: map_region(c);
	if (err)
		return err;
	wanted.send_cq = cq;
	wanted.recv_cq = cq;
	err = rdma_create_qp(c->id, pd, &wanted);
	if (err)
		return fail(c, err, "rdma_create_qp");
	err = post_receive(c);
	return err ? fail(c, err, "ib_post_recv") : 0;
}
// [make]

// [run]
static int run_transfer(struct client *c)
{
	start_transfer(c);
	return wait_for_step(c, "the transfer does not go on");
}

/* What was made, however far that came; the server hears of it if need be. */
static void destroy(struct client *c)
{
	if (c->id && c->id->qp) {
		rdma_disconnect(c->id); /* to the error state, in step with rdma_cm */
		ib_drain_qp(c->id->qp); /* completes what is posted */
		rdma_destroy_qp(c->id);
	}
	if (c->cq)
		ib_free_cq(c->cq); /* returns when no callback runs any more */
	unmap_memory(c);
	if (c->pd)
		ib_dealloc_pd(c->pd);
	if (c->id)
		rdma_destroy_id(c->id); /* likewise, for cm_event() */
}

static void run_client(struct work_struct *work)
{
	struct client *c = container_of(work, struct client, work);
	int err;

	err = resolve(c) ?: make(c) ?: connect_to_server(c) ?: run_transfer(c) ?: leave(c);
	stop(c, -ESHUTDOWN); /* if nothing else has */
	destroy(c);
	if (!err)
		pr_info("done\n");
}
// [run]

// [device]
static struct ib_client kernel_client;

/* There is a device: one that was there before, or a new one. */
static int add_device(struct ib_device *device)
{
	struct client *c = kzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return -ENOMEM;
	c->device = device;
	spin_lock_init(&c->lock);
	init_completion(&c->step);
	INIT_WORK(&c->work, run_client);
	prepare_callbacks(c);
	ib_set_client_data(device, &kernel_client, c);
	queue_work(system_long_wq, &c->work);
	return 0;
}

/* It goes, or the module does. The device is there until this returns. */
static void remove_device(struct ib_device *device, void *data)
{
	struct client *c = data;

	if (stop(c, -ENODEV)) /* so it has not ended by itself */
		pr_info("ended before the end: %s or the module goes\n", dev_name(&device->dev));
	cancel_work_sync(&c->work); /* waits for destroy() */
	kfree(c);
}

static struct ib_client kernel_client = {
	.name = KBUILD_MODNAME,
	.add = add_device,
	.remove = remove_device,
};

static int __init start(void)
{
	if (!timeout || timeout > 60 || !rounds)
		return -EINVAL;
	return ib_register_client(&kernel_client); /* calls add_device() */
}
module_init(start);

static void __exit end(void)
{
	ib_unregister_client(&kernel_client); /* calls remove_device() */
}
module_exit(end);
// [device]

MODULE_AUTHOR("RDMA by Example");
MODULE_DESCRIPTION("WRITEs and READs a page of lesson 12's server");
MODULE_LICENSE("Dual MIT/GPL");
