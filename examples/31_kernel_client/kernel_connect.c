// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * 31_kernel_client, a queue's connection, by the rdma_cm that user space has,
 * too.
 *
 * Lesson:  lessons/31_kernel_client.md
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/inet.h>
#include <linux/kernel.h>

#include "kernel_client.h"

/* By callbacks. */
static void enter(struct queue *q, enum state state)
{
	WRITE_ONCE(q->state, state);
	wake_up(&q->client->wake);
}

/* By the worker. One second more than rdma_cm has: its error says more. */
static int wait_for_state(struct queue *q, enum state wanted, const char *what)
{
	struct client *c = q->client;

	if (!wait_event_timeout(c->wake, READ_ONCE(q->state) == wanted || READ_ONCE(c->error),
				(timeout + 1) * HZ))
		return fail(c, -ETIMEDOUT, "%s", what);
	return READ_ONCE(c->error);
}

static void greeted(struct queue *q, const struct rdma_conn_param *told)
{
	const struct greeting *hello = told->private_data;

	if (!hello || told->private_data_len < sizeof(*hello) ||
	    be32_to_cpu(hello->magic) != PROTOCOL_MAGIC ||
	    be16_to_cpu(hello->version) != PROTOCOL_VERSION) {
		fail(q->client, -EPROTO, "the server speaks another protocol");
		return;
	}
	pr_info("ESTABLISHED      queue %u of %u, for %s\n", q->number, 2 * queues,
		is_for_reads(q) ? "READs" : "WRITEs");
	enter(q, ESTABLISHED);
}

/* With a greeting of the server's, which says why, or by the CM itself. */
static void rejected(struct client *c, struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	static const char *const words[] = {
		[1] = "it speaks another version of the protocol",
		[2] = "it has no room for this client",
		[3] = "it is about to end",
	};
	const struct greeting *told;
	unsigned int reason = 0;
	u8 length;

	told = rdma_consumer_reject_data(id, event, &length);
	if (told && length >= sizeof(*told) && be32_to_cpu(told->magic) == PROTOCOL_MAGIC)
		reason = be16_to_cpu(told->refusal);
	if (reason && reason < ARRAY_SIZE(words))
		fail(c, -ECONNREFUSED, "the server rejects: %s", words[reason]);
	else
		fail(c, -ECONNREFUSED, "the server rejects: %s",
		     rdma_reject_msg(id, event->status));
}

/* In a thread of the kernel's, not our worker; one event of an id at a time. */
static int cm_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct queue *q = id->context;
	struct client *c = q->client;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (!q->number)
			pr_info("ADDR_RESOLVED    by %s, port %u\n", dev_name(&id->device->dev),
				id->port_num);
		enter(q, ADDR_RESOLVED);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (!q->number)
			pr_info("ROUTE_RESOLVED\n");
		enter(q, ROUTE_RESOLVED);
		break;
	// [event]
	case RDMA_CM_EVENT_ESTABLISHED:
		greeted(q, &event->param.conn);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rejected(c, id, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (!READ_ONCE(c->leaving))
			fail(c, -ECONNRESET, "the server has ended the connection");
		else if (event->status)
			fail(c, event->status, "the server does not answer our goodbye");
		else
			enter(q, DISCONNECTED);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default: /* errors, and DEVICE_REMOVAL */
		fail(c, event->status < 0 ? event->status : -ENODEV, "%s",
		     rdma_event_msg(event->event));
	}
	return 0; /* else rdma_cm would destroy the id, which is the worker's */
	// [event]
}

int resolve(struct queue *q)
{
	struct client *c = q->client;
	struct sockaddr_storage address = {};
	struct rdma_cm_id *id;
	int err;

	err = inet_pton_with_scope(&init_net, AF_UNSPEC, server, port, &address);
	if (err)
		return fail(c, err, "server=%s port=%s", server, port);
	id = rdma_create_id(&init_net, cm_event, q, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return fail(c, PTR_ERR(id), "rdma_create_id");
	q->id = id;
	err = rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, timeout * MSEC_PER_SEC);
	if (err)
		return fail(c, err, "rdma_resolve_addr");
	err = wait_for_state(q, ADDR_RESOLVED, "no address resolved");
	if (err)
		return err;
	if (id->device != c->device) { /* it has a worker of its own */
		pr_info("no way to the server by %s\n", dev_name(&c->device->dev));
		stop(c, -ENODEV);
		return -ENODEV;
	}
	err = rdma_resolve_route(id, timeout * MSEC_PER_SEC);
	if (err)
		return fail(c, err, "rdma_resolve_route");
	return wait_for_state(q, ROUTE_RESOLVED, "no route resolved");
}

int connect_to_server(struct queue *q)
{
	// [connect]
	const struct queue_request hello = {
		.greeting.magic = cpu_to_be32(PROTOCOL_MAGIC),
		.greeting.version = cpu_to_be16(PROTOCOL_VERSION),
		.length = cpu_to_be64((u64)pages * LENGTH),
		.queue = cpu_to_be16(q->number),
		.queues = cpu_to_be16(2 * queues),
	};
	struct rdma_conn_param ask = {
		.private_data = &hello,
		.private_data_len = sizeof(hello),
		.responder_resources = 0, /* the server READs nothing of ours */
		.initiator_depth = is_for_reads(q), /* one READ at a time, or none */
		.retry_count = 6,
		.rnr_retry_count = 6,
	};
	// [connect]
	int err;

	err = rdma_connect(q->id, &ask);
	if (err)
		return fail(q->client, err, "rdma_connect");
	return wait_for_state(q, ESTABLISHED, "no answer to the connection request");
}

int leave(struct client *c)
{
	uint i;

	WRITE_ONCE(c->leaving, true);
	for (i = 0; i < 2 * queues; i++) {
		struct queue *q = &c->queue[i];
		int err = rdma_disconnect(q->id);

		if (err)
			return fail(c, err, "rdma_disconnect");
		err = wait_for_state(q, DISCONNECTED, "the server does not let go");
		if (err)
			return err;
	}
	pr_info("DISCONNECTED\n");
	return 0;
}
