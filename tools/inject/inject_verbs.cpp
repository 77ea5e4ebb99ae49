// SPDX-License-Identifier: MIT
// The verbs that are ordinary functions of libibverbs: this library defines them too, and comes
// first. One line for each, by the way in which it reports an error.

#include "context.hpp"
#include "channel_events.hpp"
#include "inject.hpp"

#include <infiniband/verbs.h>

// verbs.h wraps these in macros for its users.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace inject;

// FUNCTION returns a pointer, or NULL and an error number in errno: by default, ERROR.
#define MAKES(type, function, error, parameters, arguments)                                        \
  type *function parameters {                                                                      \
    static const auto real = REAL(function);                                                       \
    return null_and_errno(#function, error, [&] { return real arguments; });                       \
  }
// FUNCTION returns 0 or an error number.
#define RETURNS_ERRNO(function, error, parameters, arguments)                                      \
  int function parameters {                                                                        \
    static const auto real = REAL(function);                                                       \
    return returned_errno(#function, error, [&] { return real arguments; });                       \
  }
// FUNCTION returns 0, or -1 and an error number in errno.
#define MINUS_ONE(function, error, parameters, arguments)                                          \
  int function parameters {                                                                        \
    static const auto real = REAL(function);                                                       \
    return minus_one(#function, error, [&] { return real arguments; });                            \
  }
// FUNCTION ends OBJECT, and returns 0 or an error number.
#define ENDS(function, error, type)                                                                \
  int function(type *object) {                                                                     \
    static const auto real = REAL(function);                                                       \
    return ends(#function, error, object, false, [&] { return real(object); });                    \
  }

extern "C" {

// clang-format off
MAKES(ibv_device *, ibv_get_device_list, ENOSYS, (int *number), (number))
MAKES(ibv_pd, ibv_alloc_pd, ENOMEM, (ibv_context *context), (context))
ENDS(ibv_dealloc_pd, EBUSY, ibv_pd)
MAKES(ibv_mr, ibv_reg_mr, ENOMEM,
      (ibv_pd *pd, void *address, std::size_t length, int access), (pd, address, length, access))
MAKES(ibv_mr, ibv_reg_mr_iova, ENOMEM,
      (ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova, int access),
      (pd, address, length, iova, access))
ENDS(ibv_dereg_mr, EBUSY, ibv_mr)
MAKES(ibv_comp_channel, ibv_create_comp_channel, EMFILE, (ibv_context *context), (context))
ENDS(ibv_destroy_comp_channel, EBUSY, ibv_comp_channel)
MAKES(ibv_cq, ibv_create_cq, ENOMEM,
      (ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel, int vector),
      (context, cqe, cq_context, channel, vector))
RETURNS_ERRNO(ibv_resize_cq, ENOMEM, (ibv_cq *cq, int cqe), (cq, cqe))
ENDS(ibv_destroy_cq, EBUSY, ibv_cq)
RETURNS_ERRNO(ibv_modify_qp, EINVAL, (ibv_qp *qp, ibv_qp_attr *attr, int mask), (qp, attr, mask))
RETURNS_ERRNO(ibv_query_qp, EIO, (ibv_qp *qp, ibv_qp_attr *attr, int mask, ibv_qp_init_attr *init),
              (qp, attr, mask, init))
MAKES(ibv_srq, ibv_create_srq, ENOMEM, (ibv_pd *pd, ibv_srq_init_attr *attr), (pd, attr))
RETURNS_ERRNO(ibv_modify_srq, EINVAL, (ibv_srq *srq, ibv_srq_attr *attr, int mask),
              (srq, attr, mask))
RETURNS_ERRNO(ibv_query_srq, EIO, (ibv_srq *srq, ibv_srq_attr *attr), (srq, attr))
ENDS(ibv_destroy_srq, EBUSY, ibv_srq)
MAKES(ibv_ah, ibv_create_ah, ENOMEM, (ibv_pd *pd, ibv_ah_attr *attr), (pd, attr))
MAKES(ibv_ah, ibv_create_ah_from_wc, ENOMEM,
      (ibv_pd *pd, ibv_wc *wc, ibv_grh *grh, std::uint8_t port), (pd, wc, grh, port))
ENDS(ibv_destroy_ah, EBUSY, ibv_ah)
RETURNS_ERRNO(ibv_attach_mcast, ENOMEM, (ibv_qp *qp, const ibv_gid *group, std::uint16_t lid),
              (qp, group, lid))
RETURNS_ERRNO(ibv_query_device, EIO, (ibv_context *context, ibv_device_attr *attr),
              (context, attr))
MINUS_ONE(ibv_query_gid, EIO, (ibv_context *context, std::uint8_t port, int index, ibv_gid *gid),
          (context, port, index, gid))
MINUS_ONE(ibv_query_pkey, EIO, (ibv_context *context, std::uint8_t port, int index, __be16 *pkey),
          (context, port, index, pkey))
RETURNS_ERRNO(ibv_fork_init, ENOSYS, (), ())
// clang-format on

// What verbs.h makes of ibv_reg_mr where the access flags are no constant, or hold optional ones.
ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  static const auto real = REAL(ibv_reg_mr_iova2);
  const bool plain = iova == reinterpret_cast<std::uintptr_t>(address);
  return null_and_errno(plain ? "ibv_reg_mr" : "ibv_reg_mr_iova", ENOMEM,
                        [&] { return real(pd, address, length, iova, access); });
}

// What verbs.h makes of ibv_query_gid_ex.
int _ibv_query_gid_ex(ibv_context *context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry *entry, std::uint32_t flags, std::size_t size) {
  static const auto real = REAL(_ibv_query_gid_ex);
  return returned_errno("ibv_query_gid_ex", EIO,
                        [&] { return real(context, port, index, entry, flags, size); });
}

void ibv_free_device_list(ibv_device **list) {
  static const auto real = REAL(ibv_free_device_list);
  Call call("ibv_free_device_list");
  call.ended(list);
  real(list);
}

ibv_context *ibv_open_device(ibv_device *device) {
  static const auto real = REAL(ibv_open_device);
  ibv_context *context = null_and_errno("ibv_open_device", EACCES, [&] { return real(device); });
  if (context && active())
    wrap_context(context);
  return context;
}

int ibv_close_device(ibv_context *context) {
  static const auto real = REAL(ibv_close_device);
  return ends("ibv_close_device", EBUSY, context, true, [&] { return real(context); });
}

ibv_qp *ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attr) {
  static const auto real = REAL(ibv_create_qp);
  ibv_qp *qp = null_and_errno("ibv_create_qp", ENOMEM, [&] { return real(pd, attr); });
  if (qp && active())
    remember(qp);
  return qp;
}

int ibv_destroy_qp(ibv_qp *qp) {
  static const auto real = REAL(ibv_destroy_qp);
  if (active())
    forget(qp);
  return ends("ibv_destroy_qp", EBUSY, qp, false, [&] { return real(qp); });
}

int ibv_detach_mcast(ibv_qp *qp, const ibv_gid *group, std::uint16_t lid) {
  static const auto real = REAL(ibv_detach_mcast);
  return ends("ibv_detach_mcast", EINVAL, nullptr, false, [&] { return real(qp, group, lid); });
}

int ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **context) {
  static const auto real = REAL(ibv_get_cq_event);
  static const auto acknowledge = REAL(ibv_ack_cq_events);
  return event(
      "ibv_get_cq_event", channel->fd, [&] { return real(channel, cq, context); },
      [&] { acknowledge(*cq, 1); });
}

} // extern "C"
