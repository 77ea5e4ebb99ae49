/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* What the four sources share. */
#ifndef KERNEL_CLIENT_H
#define KERNEL_CLIENT_H

#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#define LENGTH SZ_4K /* what is transferred, and the server's memory */

// [protocol]
/*
 * What client and server tell each other; rdmacommon/description.hpp has it
 * for C++. The compiler takes __be32 for an ordinary number; sparse does not,
 * and finds who forgets the byte order (make C=1).
 */
#define PROTOCOL_MAGIC 0x52424558 /* "RBEX" */
#define PROTOCOL_VERSION 1

/* Private data of the connection request, its answer, and a rejection. */
struct greeting {
	__be32 magic;
	__be16 version;
	__be16 refusal;
};

/* What the client adds to it: how much of the server's memory it needs. */
struct announcement {
	struct greeting greeting;
	__be64 length;
};

/* What the other side may use of this side's memory: a message by SEND. */
struct description {
	__be32 version;
	__be32 rkey;
	__be64 address;
	__be64 length;
};
// [protocol]

// [client]
/* The buffers: our description, the server's, what is written, and read. */
enum { OURS, THEIRS, OUT, IN, BUFFERS };

struct client {
	struct ib_device *device;
	struct work_struct work; /* the worker, which makes and destroys the rest */
	struct completion step; /* what it waits for; callbacks complete it */
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_mr *mr;
	void *page[BUFFERS]; /* as the CPU sees them */
	u64 dma[BUFFERS]; /* as the device does */
	bool leaving;

	spinlock_t lock; /* guards error, and posting */
	int error; /* once set, nothing is posted any more */

	/* Belongs to the callbacks of the CQ, of which one runs at a time. */
	uint round;
	u64 remote_address;
	u32 remote_key;
	struct ib_cqe registered, sent, received, written, was_read, invalidated;
};
// [client]

/* kernel_main.c: the parameters, and what ends a step */
extern char *server, *port;
extern uint timeout, rounds;
bool stop(struct client *c, int err);
__printf(3, 4) int fail(struct client *c, int err, const char *fmt, ...);
int wait_for_step(struct client *c, const char *what);

/* kernel_connect.c */
int resolve(struct client *c);
int connect_to_server(struct client *c);
int leave(struct client *c);

/* kernel_memory.c */
int map_buffers(struct client *c);
int map_region(struct client *c);
void unmap_memory(struct client *c);

/* kernel_transfer.c */
void prepare_callbacks(struct client *c);
int post_receive(struct client *c);
void start_transfer(struct client *c);

#endif
