/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The declarations that the sources share. */
#ifndef KERNEL_CLIENT_H
#define KERNEL_CLIENT_H

#include <linux/dma-mapping.h>
#include <linux/mempool.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#define LENGTH SZ_4K /* bytes of a page, in our memory and in the server's */
#define MAX_QUEUES 8 /* for READs, and as many for WRITEs */

/*
 * The messages of client and server; rdmacommon/description.hpp and
 * page_server.cpp have it for C++. The compiler takes __be32 for an ordinary
 * number; sparse does not, and finds a forgotten byte order (make C=1).
 */
#define PROTOCOL_MAGIC 0x52424558 /* "RBEX" */
#define PROTOCOL_VERSION 1

/* Private data of the connection's answer, and of a rejection. */
struct greeting {
	__be32 magic;
	__be16 version;
	__be16 refusal;
};

/* Private data of the request for each connection. */
struct queue_request {
	struct greeting greeting;
	__be64 length; /* bytes of the server's memory, for all queues together */
	__be16 queue; /* number of this queue, from 0 */
	__be16 queues; /* number of all queues */
	__be32 reserved;
};

/* Memory of this side that the other side may use: a message by SEND. */
struct description {
	__be32 version;
	__be32 rkey;
	__be64 address;
	__be64 length;
};

/* A page, as the CPU sees it and as the device does. */
struct buffer {
	void *page;
	u64 dma;
	enum dma_data_direction direction;
};

/* A page that is swapped out and in. Its number says where the server has it. */
struct slot {
	struct buffer out, in;
	bool written, was_read; /* set by callbacks */
};

/* One WRITE or READ, from the cache, until its completion. */
struct request {
	struct ib_cqe cqe;
	struct slot *slot;
	struct ib_sge sge;
	struct ib_rdma_wr wr;
};

enum state { NEW, ADDR_RESOLVED, ROUTE_RESOLVED, ESTABLISHED, DISCONNECTED };

/* A connection: an id, its queue pair, and a completion queue of its own. */
struct queue {
	struct client *client;
	uint number;
	struct rdma_cm_id *id;
	struct ib_cq *cq;
	enum state state; /* set by cm_event() */
};

struct client {
	struct ib_device *device;
	struct work_struct work; /* the worker, which makes and destroys the rest */
	wait_queue_head_t wake; /* the worker sleeps here; callbacks wake it */
	struct queue queue[2 * MAX_QUEUES]; /* first those for READs */
	struct ib_pd *pd; /* one for all queues: their keys are the same */
	struct ib_mr *mr;
	mempool_t *requests;
	struct slot *slots;
	struct buffer ours, theirs; /* descriptions */
	bool done; /* the step that queue 0 is at; set by its callback */
	bool leaving;
	uint calls; /* calls of ib_post_send() */

	rwlock_t lock; /* readers post; the writer sets error */
	int error; /* once set, nothing is posted any more */

	u64 remote_address;
	u32 remote_key;
	struct ib_cqe registered, sent, received, taken_back;
};

/* kernel_main.c: the parameters, and what ends a wait */
extern char *server, *port;
extern uint timeout, rounds, queues, pages;
bool stop(struct client *c, int err);
__printf(3, 4) int fail(struct client *c, int err, const char *fmt, ...);

/* The first half of the queues carries READs, the other half WRITEs. */
static inline bool is_for_reads(const struct queue *q)
{
	return q->number < queues;
}

/* kernel_connect.c */
int resolve(struct queue *q);
int connect_to_server(struct queue *q);
int leave(struct client *c);

/* kernel_queue.c */
int make_queue(struct queue *q);
void destroy_queue(struct queue *q);
int post(struct queue *q, const struct ib_send_wr *wr, const struct ib_send_wr **unposted);
int poll_until(struct queue *q, const bool *done, const char *what);
bool succeeded(struct client *c, struct ib_wc *wc, const char *what);

/* kernel_memory.c */
extern struct kmem_cache *request_cache;
int make_memory(struct client *c);
void destroy_memory(struct client *c);
struct request *get_request(struct client *c, struct slot *slot);
void put_unposted(struct client *c, const struct ib_send_wr *wr);

/* kernel_transfer.c */
int post_receive(struct client *c);
int introduce(struct client *c);
int transfer(struct client *c);

#endif
