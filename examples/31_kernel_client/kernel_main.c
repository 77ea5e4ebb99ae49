// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * 31_kernel_client: swaps pages out into the memory of page_server.cpp and in
 * again, and compares, all of it in the kernel.
 *
 * Lesson:  lessons/31_kernel_client.md
 * Needs:   the emulated machine, since a mistake here crashes the kernel
 * Run:     ./lab run 31_kernel_client
 * By hand: insmod kernel_client.ko server=10.77.0.1 port=18515
 *
 * Each RDMA device has a worker, which makes everything, waits, and destroys
 * everything. Callbacks, for CM events (kernel_connect.c), for events of a
 * queue pair (kernel_queue.c) and for completions (kernel_transfer.c), note
 * what has happened, and wake the worker.
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
MODULE_PARM_DESC(rounds, "how often to WRITE and READ all pages");
uint queues = 2;
module_param(queues, uint, 0444);
MODULE_PARM_DESC(queues, "how many queues for READs, and as many for WRITEs, 1 to 8");
uint pages = 4;
module_param(pages, uint, 0444);
MODULE_PARM_DESC(pages, "how many pages to swap, 1 to 256");

/* Callable in any context. Returns whether it is the first. */
bool stop(struct client *c, int err)
{
	unsigned long flags;
	bool first;

	write_lock_irqsave(&c->lock, flags);
	first = !c->error;
	if (first)
		WRITE_ONCE(c->error, err);
	write_unlock_irqrestore(&c->lock, flags);
	wake_up(&c->wake);
	return first;
}

/* The same, and prints the error if it is the first: the cause of the others. */
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

// [first]
/* Alone at first: a problem with the server appears here. */
static int open_first_queue(struct client *c)
{
	struct queue *q = &c->queue[0];

	return resolve(q) ?: make_memory(c) ?: make_queue(q) ?: post_receive(c) ?:
	       connect_to_server(q) ?: introduce(c);
}
// [first]

static int open_other_queues(struct client *c)
{
	int err = 0;
	uint i;

	for (i = 1; i < 2 * queues && !err; i++) {
		struct queue *q = &c->queue[i];

		err = resolve(q) ?: make_queue(q) ?: connect_to_server(q);
	}
	return err;
}

/* Everything that was made so far; ends the connections that are still open. */
static void destroy(struct client *c)
{
	uint i;

	for (i = 0; i < 2 * queues; i++)
		destroy_queue(&c->queue[i]);
	destroy_memory(c);
}

// [run]
static void run_client(struct work_struct *work)
{
	struct client *c = container_of(work, struct client, work);
	int err;

	err = open_first_queue(c) ?: open_other_queues(c) ?: transfer(c) ?: leave(c);
	stop(c, -ESHUTDOWN); /* if nothing else has */
	destroy(c);
	if (!err)
		pr_info("done\n");
}
// [run]

static struct ib_client kernel_client;

/* There is a device: one that was there before, or a new one. */
static int add_device(struct ib_device *device)
{
	struct client *c = kzalloc(sizeof(*c), GFP_KERNEL);
	uint i;

	if (!c)
		return -ENOMEM;
	// [add]
	c->device = device;
	rwlock_init(&c->lock);
	init_waitqueue_head(&c->wake);
	INIT_WORK(&c->work, run_client);
	for (i = 0; i < ARRAY_SIZE(c->queue); i++) {
		c->queue[i].client = c;
		c->queue[i].number = i;
	}
	ib_set_client_data(device, &kernel_client, c);
	queue_work(system_unbound_wq, &c->work); /* since it polls */
	return 0;
	// [add]
}

// [device]
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
// [device]

static int __init start(void)
{
	int err;

	if (!timeout || timeout > 60 || !rounds || !queues || queues > MAX_QUEUES || !pages ||
	    pages > 256)
		return -EINVAL;
	request_cache = kmem_cache_create("kernel_client_request", sizeof(struct request), 0,
					  SLAB_HWCACHE_ALIGN, NULL);
	if (!request_cache)
		return -ENOMEM;
	err = ib_register_client(&kernel_client); /* calls add_device() */
	if (err)
		kmem_cache_destroy(request_cache);
	return err;
}
module_init(start);

static void __exit end(void)
{
	ib_unregister_client(&kernel_client); /* calls remove_device() */
	kmem_cache_destroy(request_cache); /* complains if a request is left */
}
module_exit(end);

MODULE_AUTHOR("RDMA by Example");
MODULE_DESCRIPTION("Swaps pages into the memory of another host");
MODULE_LICENSE("Dual MIT/GPL");
