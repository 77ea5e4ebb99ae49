// SPDX-License-Identifier: MIT
#include "rdmacommon/objects.hpp"

namespace rdmacommon {

unique_pd alloc_pd(ibv_context *device, Where where) {
  return unique_pd(check_ptr(ibv_alloc_pd(device), "ibv_alloc_pd", where));
}

unique_mr reg_mr(ibv_pd *pd, void *address, size_t length, int access, Where where) {
  return unique_mr(check_ptr(ibv_reg_mr(pd, address, length, access), "ibv_reg_mr", where));
}

// [access-for-reads]
int access_for_reads(const ibv_context *device) {
  const bool is_iwarp = device->device->transport_type == IBV_TRANSPORT_IWARP;
  return IBV_ACCESS_LOCAL_WRITE | (is_iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
}
// [access-for-reads]

unique_cq create_cq(ibv_context *device, int cqe, ibv_comp_channel *channel, Where where) {
  return unique_cq(
      check_ptr(ibv_create_cq(device, cqe, nullptr, channel, 0), "ibv_create_cq", where));
}

} // namespace rdmacommon
