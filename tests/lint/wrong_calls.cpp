// SPDX-License-Identifier: MIT
// Cases about calls that fail, arguments that would crash the library, and the events of rdma_cm.

#include "cases.hpp"

#include <rdmacommon/ud_queue_pair.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace cases {
namespace {

const Add call_failed("call-failed", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const unsigned access = IBV_ACCESS_REMOTE_WRITE | (wrong ? 0u : unsigned{IBV_ACCESS_LOCAL_WRITE});
  const unique_mr mr(ibv_reg_mr(pair.pd.get(), pair.buffer.get(), page, static_cast<int>(access)));
});

// Each of these calls is refused for another reason, at a place of its own, since a place is
// reported once: test_lint.py's test_reasons.
const Add refused("call-failed, reasons", [](const DeviceOptions &options, bool) {
  Pair pair(options, {.connected = false});
  const auto reg = [&](void *address, int access) {
    unique_mr(ibv_reg_mr(pair.pd.get(), address, page, access));
  };
  reg(reinterpret_cast<void *>(page), IBV_ACCESS_LOCAL_WRITE); // below vm.mmap_min_addr
  reg(pair.buffer.get(), IBV_ACCESS_REMOTE_WRITE);
  const int file = check_errno(memfd_create("lint_cases", 0), "memfd_create");
  check_errno(ftruncate(file, page), "ftruncate");
  const auto map = [&](int kind) {
    void *pages = mmap(nullptr, page, PROT_READ, kind, file, 0);
    check_errno(pages == MAP_FAILED ? -1 : 0, "mmap");
    return pages;
  };
  reg(map(MAP_PRIVATE), IBV_ACCESS_LOCAL_WRITE);
  reg(map(MAP_SHARED), 0);
  close(file);
  ibv_qp_init_attr attr{.send_cq = pair.sent.get(), .recv_cq = pair.sent.get()};
  unique_qp(ibv_create_qp(pair.pd.get(), &attr));
  attr = {.send_cq = pair.sent.get(),
          .recv_cq = pair.sent.get(),
          .cap = {.max_send_wr = 1u << 30},
          .qp_type = IBV_QPT_RC};
  unique_qp(ibv_create_qp(pair.pd.get(), &attr));
});

// The right twin finds no event, which is no failure.
const Add no_event("call-failed, ibv_get_async_event",
                   [](const DeviceOptions &options, bool wrong) {
                     const Port port = open_port(options);
                     const int fd = port.context->async_fd;
                     check_errno(fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl");
                     if (wrong)
                       port.context->async_fd = -1;
                     ibv_async_event event{};
                     while (!ibv_get_async_event(port.context.get(), &event))
                       ibv_ack_async_event(&event);
                     port.context->async_fd = fd;
                   });

// The requests of a queue pair that is not ready.
const Add no_list("call-failed, ibv_wr_complete", [](const DeviceOptions &options, bool wrong) {
  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const unique_cq cq = create_cq(port.context.get(), 4);
  const unique_qp qp = create_extended_qp(pd.get(), cq.get());
  ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp.get());
  ibv_wr_start(extended);
  if (wrong)
    (void)ibv_wr_complete(extended);
  else
    ibv_wr_abort(extended);
});

const Add bad_argument("bad-argument", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  ibv_sge where = pair.at(page, 64);
  ibv_recv_wr request{.sg_list = &where, .num_sge = 1}, *bad = nullptr;
  if (wrong) // bytes that the stack may hold
    std::memset(&request.next, 0xa5, sizeof request.next);
  (void)ibv_post_recv(pair.b.get(), &request, &bad);
});

// A registration that fails returns null.
const Add null_argument("bad-argument, null", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const int access = wrong ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE;
  (void)ibv_dereg_mr(ibv_reg_mr(pair.pd.get(), pair.buffer.get(), page, access));
});

const Add null_attributes("bad-argument, attributes", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  ibv_qp_attr attr{.qp_state = IBV_QPS_ERR};
  (void)ibv_modify_qp(pair.a.get(), wrong ? nullptr : &attr, IBV_QP_STATE);
});

const Add other_context("other-context", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const Port other = open_port(options); // the same device once more
  const unique_cq cq = create_cq((wrong ? other : pair.port).context.get(), 4);
  ibv_qp_init_attr attr{
      .send_cq = cq.get(),
      .recv_cq = cq.get(),
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC};
  const unique_qp qp(ibv_create_qp(pair.pd.get(), &attr));
});

// A region of the same device, opened once more.
const Add other_region("other-context, region", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  const Port other = open_port(options);
  const unique_pd pd = alloc_pd(other.context.get());
  const unique_mr mr =
      reg_mr(wrong ? pd.get() : pair.pd.get(), pair.buffer.get(), page, IBV_ACCESS_LOCAL_WRITE);
  pair.receive();
  ibv_sge what = piece(mr.get(), pair.buffer.get(), 8);
  post_send(
      pair.a.get(),
      {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  next(pair.sent.get());
});

const Add other_handle("other-context, handle", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const Port other = open_port(options);
  const unique_pd pd = alloc_pd(other.context.get());
  const unique_qp qp = open_ud_qp(pair, pair.sent.get());
  const unique_ah ah = create_ah(wrong ? pd.get() : pair.pd.get(), wrong ? other : pair.port,
                                 endpoint_of(qp.get(), pair.port, 0));
  ibv_sge what = pair.at(0, 8);
  post_send(qp.get(),
            {.sg_list = &what,
             .num_sge = 1,
             .opcode = IBV_WR_SEND,
             .send_flags = IBV_SEND_SIGNALED,
             .wr = {.ud = {.ah = ah.get(), .remote_qpn = qp->qp_num, .remote_qkey = our_qkey}}});
  next(pair.sent.get());
});

const Add event_acked("event-acked", [](const DeviceOptions &options, bool wrong) {
  const Port port = open_port(options);
  sockaddr_in where{.sin_family = AF_INET};
  std::memcpy(&where.sin_addr, port.gid.gid.raw + 12, sizeof where.sin_addr);
  rdma_event_channel *channel = check_ptr(rdma_create_event_channel(), "rdma_create_event_channel");
  rdma_cm_id *id = nullptr;
  check_errno(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "rdma_create_id");
  check_errno(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&where), 2000),
              "rdma_resolve_addr");
  rdma_cm_event *event = nullptr;
  check_errno(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  int status = event->status;
  check_errno(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  if (wrong)
    status = static_cast<const volatile rdma_cm_event *>(event)->status;
  check_errno(rdma_destroy_id(id), "rdma_destroy_id");
  rdma_destroy_event_channel(channel);
  if (status)
    throw Error("the address", "it is on no device");
});

} // namespace
} // namespace cases
