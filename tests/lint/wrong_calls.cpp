// SPDX-License-Identifier: MIT
// Cases about calls that fail, arguments that would crash the library, and the events of rdma_cm.

#include "cases.hpp"

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cstring>

namespace cases {
namespace {

const Add call_failed("call-failed", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  const unsigned access = IBV_ACCESS_REMOTE_WRITE | (wrong ? 0u : unsigned{IBV_ACCESS_LOCAL_WRITE});
  const unique_mr mr(ibv_reg_mr(pair.pd.get(), pair.buffer.get(), page, static_cast<int>(access)));
});

const Add bad_argument("bad-argument", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  ibv_sge where = pair.at(page, 64);
  ibv_recv_wr request{.sg_list = &where, .num_sge = 1}, *bad = nullptr;
  if (wrong) // bytes that the stack may hold
    std::memset(&request.next, 0xa5, sizeof request.next);
  (void)ibv_post_recv(pair.b.get(), &request, &bad);
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
