// SPDX-License-Identifier: MIT
// Preloaded, it makes an InfiniBand port of a RoCE one, to programs on one host: the link layer
// says so, the port has a LID, and a queue pair is connected by that LID, without a GRH, or not at
// all. A datagram arrives without a GRH: its completion has the LID of its source, and other bytes
// each time where the GRH would be. With FAKE_CALLS=1 it says on stderr to which LID.

#include "next.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

namespace {

constexpr uint16_t our_lid = 7;
decltype(verbs_context::query_port) real_query = nullptr;

int query_port(ibv_context *context, uint8_t port, ibv_port_attr *attr, size_t size) {
  const int rc = real_query(context, port, attr, size);
  if (rc == 0) {
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr->lid = our_lid;
  }
  return rc;
}

decltype(ibv_context_ops::post_recv) real_post_recv = nullptr;
decltype(ibv_context_ops::poll_cq) real_poll_cq = nullptr;
std::map<std::pair<uint32_t, uint64_t>, void *> buffers; // UD receive buffers, by QP and wr_id

int post_recv(ibv_qp *qp, ibv_recv_wr *wr, ibv_recv_wr **bad) {
  for (const ibv_recv_wr *each = wr; qp->qp_type == IBV_QPT_UD && each; each = each->next)
    if (each->num_sge > 0)
      buffers[{qp->qp_num, each->wr_id}] = reinterpret_cast<void *>(each->sg_list->addr);
  return real_post_recv(qp, wr, bad);
}

int poll_cq(ibv_cq *cq, int count, ibv_wc *wc) {
  static unsigned char rubbish = 0x45;
  const int polled = real_poll_cq(cq, count, wc);
  for (ibv_wc *each = wc; each < wc + polled; ++each)
    if (each->wc_flags & IBV_WC_GRH) {
      each->wc_flags &= ~static_cast<unsigned>(IBV_WC_GRH);
      each->slid = our_lid;
      const auto buffer = buffers.find({each->qp_num, each->wr_id});
      if (buffer != buffers.end())
        std::memset(buffer->second, rubbish++, sizeof(ibv_grh));
    }
  return polled;
}

// The GRH that RoCE needs behind the back of a program that gives none: to ourselves, by the IPv4
// address.
int own_grh(ibv_context *context, ibv_ah_attr &attr) {
  for (uint32_t index = 0; index < 16; ++index) {
    ibv_gid_entry entry{};
    const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (ibv_query_gid_ex(context, attr.port_num, index, &entry, 0) == 0 &&
        entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        std::memcmp(entry.gid.raw, mapped, sizeof mapped) == 0) {
      attr.is_global = 1;
      attr.grh = {.dgid = entry.gid, .sgid_index = static_cast<uint8_t>(index), .hop_limit = 64};
      return 0;
    }
  }
  return ENETUNREACH;
}

} // namespace

extern "C" {

ibv_context *ibv_open_device(ibv_device *device) {
  static const auto real = REAL(ibv_open_device);
  ibv_context *context = real(device);
  if (!context)
    return nullptr;
  verbs_context *verbs = verbs_get_ctx(context);
  if (verbs->query_port != query_port)
    real_query = verbs->query_port;
  verbs->query_port = query_port;
  if (context->ops.poll_cq != poll_cq) {
    real_post_recv = std::exchange(context->ops.post_recv, post_recv);
    real_poll_cq = std::exchange(context->ops.poll_cq, poll_cq);
  }
  return context;
}

int ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  static const auto real = REAL(ibv_modify_qp);
  ibv_qp_attr changed = *attr;
  if (mask & IBV_QP_AV) {
    if (attr->ah_attr.is_global || attr->ah_attr.dlid != our_lid)
      return EINVAL;
    if (std::getenv("FAKE_CALLS"))
      std::fprintf(stderr, "fake: connected to LID %u\n", attr->ah_attr.dlid);
    if (const int error = own_grh(qp->context, changed.ah_attr))
      return error;
  }
  return real(qp, &changed, mask);
}

ibv_ah *ibv_create_ah(ibv_pd *pd, ibv_ah_attr *attr) {
  static const auto real = REAL(ibv_create_ah);
  if (attr->is_global || attr->dlid != our_lid) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_ah_attr changed = *attr;
  if ((errno = own_grh(pd->context, changed)) != 0)
    return nullptr;
  return real(pd, &changed);
}

ibv_ah *ibv_create_ah_from_wc(ibv_pd *pd, ibv_wc *wc, ibv_grh *, uint8_t port) {
  ibv_ah_attr back{.dlid = wc->slid, .port_num = port};
  return ibv_create_ah(pd, &back);
}

} // extern "C"
