// SPDX-License-Identifier: MIT
// The verbs that are ordinary functions of libibverbs: this library defines them too, and comes
// first. Each calls the real one, and tells the rules what has happened.

#include "../trace/next.hpp"
#include "tracked.hpp"

#include <cerrno>

// verbs.h wraps these in macros for its users.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace lint;

namespace {

// A call on `object` that returns an error number.
template <typename Call> int use(const char *name, const void *object, Call call) {
  const Use use(name, object);
  return use.refused() ? EINVAL : call();
}

// A call with `object` that makes something.
template <typename Call> auto make(const char *name, const void *object, Call call) {
  const Use use(name, object);
  if (!use.refused())
    return call();
  errno = EINVAL;
  return decltype(call())(nullptr);
}

template <typename Call> int destroy(const char *name, const void *object, Call call) {
  Destruction end(name, object);
  if (end.refused())
    return EINVAL;
  const int error = call();
  const int before = errno;
  end.ended(error);
  errno = before;
  return error;
}

template <typename T> T *made(T *object, const char *kind, const ibv_context *context) {
  const Locked lock;
  add<std::conditional_t<std::is_same_v<T, ibv_pd>, Pd, Channel>>(object, kind, context);
  return object;
}

ibv_mr *registered(ibv_pd *pd, ibv_mr *mr, std::uint64_t base, void *memory, unsigned access) {
  if (mr)
    made_mr(pd, mr, access & IBV_ACCESS_ZERO_BASED ? 0 : base, memory, access);
  return mr;
}

} // namespace

extern "C" {

ibv_context *ibv_open_device(ibv_device *device) {
  static const auto real = REAL(ibv_open_device);
  ibv_context *context = real(device);
  if (context)
    watch_context(context);
  return context;
}

ibv_context *ibv_import_device(int fd) {
  static const auto real = REAL(ibv_import_device);
  ibv_context *context = real(fd);
  if (context)
    watch_context(context);
  return context;
}

int ibv_close_device(ibv_context *context) {
  static const auto real = REAL(ibv_close_device);
  return destroy("ibv_close_device", context, [&] { return real(context); });
}

ibv_pd *ibv_alloc_pd(ibv_context *context) {
  static const auto real = REAL(ibv_alloc_pd);
  ibv_pd *pd = make("ibv_alloc_pd", context, [&] { return real(context); });
  return pd ? made(pd, "pd", context) : pd;
}

int ibv_dealloc_pd(ibv_pd *pd) {
  static const auto real = REAL(ibv_dealloc_pd);
  return destroy("ibv_dealloc_pd", pd, [&] { return real(pd); });
}

ibv_mr *ibv_reg_mr(ibv_pd *pd, void *address, std::size_t length, int access) {
  static const auto real = REAL(ibv_reg_mr);
  return registered(pd, make("ibv_reg_mr", pd, [&] { return real(pd, address, length, access); }),
                    reinterpret_cast<std::uintptr_t>(address), address,
                    static_cast<unsigned>(access));
}

ibv_mr *ibv_reg_mr_iova(ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova,
                        int access) {
  static const auto real = REAL(ibv_reg_mr_iova);
  return registered(
      pd, make("ibv_reg_mr_iova", pd, [&] { return real(pd, address, length, iova, access); }),
      iova, address, static_cast<unsigned>(access));
}

// What verbs.h makes of ibv_reg_mr where the access flags are no constant.
ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  static const auto real = REAL(ibv_reg_mr_iova2);
  return registered(pd,
                    make("ibv_reg_mr", pd, [&] { return real(pd, address, length, iova, access); }),
                    iova, address, access);
}

int ibv_dereg_mr(ibv_mr *mr) {
  static const auto real = REAL(ibv_dereg_mr);
  return destroy("ibv_dereg_mr", mr, [&] { return real(mr); });
}

ibv_comp_channel *ibv_create_comp_channel(ibv_context *context) {
  static const auto real = REAL(ibv_create_comp_channel);
  ibv_comp_channel *channel =
      make("ibv_create_comp_channel", context, [&] { return real(context); });
  return channel ? made(channel, "channel", context) : channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel *channel) {
  static const auto real = REAL(ibv_destroy_comp_channel);
  return destroy("ibv_destroy_comp_channel", channel, [&] { return real(channel); });
}

ibv_cq *ibv_create_cq(ibv_context *context, int cqe, void *cq_context, ibv_comp_channel *channel,
                      int comp_vector) {
  static const auto real = REAL(ibv_create_cq);
  ibv_cq *cq = make("ibv_create_cq", context,
                    [&] { return real(context, cqe, cq_context, channel, comp_vector); });
  if (cq)
    made_cq(cq, channel);
  return cq;
}

int ibv_resize_cq(ibv_cq *cq, int cqe) {
  static const auto real = REAL(ibv_resize_cq);
  return use("ibv_resize_cq", cq, [&] {
    const int error = real(cq, cqe);
    const Locked lock;
    if (const auto its = find<Cq>(cq))
      its->room = cq->cqe;
    return error;
  });
}

int ibv_destroy_cq(ibv_cq *cq) {
  static const auto real = REAL(ibv_destroy_cq);
  look_for_missed(cq);
  return destroy("ibv_destroy_cq", cq, [&] { return real(cq); });
}

int ibv_get_cq_event(ibv_comp_channel *channel, ibv_cq **cq, void **cq_context) {
  static const auto real = REAL(ibv_get_cq_event);
  const Use use("ibv_get_cq_event", channel);
  if (use.refused())
    return errno = EINVAL, -1;
  will_wait(channel);
  const int status = real(channel, cq, cq_context);
  const int before = errno;
  if (!status)
    got_event(*cq);
  errno = before;
  return status;
}

void ibv_ack_cq_events(ibv_cq *cq, unsigned count) {
  static const auto real = REAL(ibv_ack_cq_events);
  const Use use("ibv_ack_cq_events", cq);
  if (use.refused())
    return;
  {
    const Locked lock;
    if (const auto its = find<Cq>(cq))
      its->events.acknowledge(count);
  }
  real(cq, count);
}

ibv_qp *ibv_create_qp(ibv_pd *pd, ibv_qp_init_attr *attr) {
  static const auto real = REAL(ibv_create_qp);
  ibv_qp *qp = make("ibv_create_qp", pd, [&] { return real(pd, attr); });
  if (qp)
    made_qp(qp, attr->cap, attr->sq_sig_all);
  return qp;
}

int ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask) {
  static const auto real = REAL(ibv_modify_qp);
  const Use use("ibv_modify_qp", qp);
  if (use.refused())
    return EINVAL;
  will_modify(qp, *attr, mask);
  const int error = real(qp, attr, mask);
  const int before = errno;
  did_modify(qp, *attr, mask, error);
  errno = before;
  return error;
}

int ibv_attach_mcast(ibv_qp *qp, const ibv_gid *group, std::uint16_t lid) {
  static const auto real = REAL(ibv_attach_mcast);
  return use("ibv_attach_mcast", qp, [&] {
    const int error = real(qp, group, lid);
    if (!error)
      attached(qp, *group);
    return error;
  });
}

int ibv_destroy_qp(ibv_qp *qp) {
  static const auto real = REAL(ibv_destroy_qp);
  return destroy("ibv_destroy_qp", qp, [&] { return real(qp); });
}

ibv_srq *ibv_create_srq(ibv_pd *pd, ibv_srq_init_attr *attr) {
  static const auto real = REAL(ibv_create_srq);
  ibv_srq *srq = make("ibv_create_srq", pd, [&] { return real(pd, attr); });
  if (srq)
    made_srq(srq, pd, attr->attr.max_sge);
  return srq;
}

int ibv_modify_srq(ibv_srq *srq, ibv_srq_attr *attr, int mask) {
  static const auto real = REAL(ibv_modify_srq);
  return use("ibv_modify_srq", srq, [&] { return real(srq, attr, mask); });
}

int ibv_destroy_srq(ibv_srq *srq) {
  static const auto real = REAL(ibv_destroy_srq);
  return destroy("ibv_destroy_srq", srq, [&] { return real(srq); });
}

ibv_ah *ibv_create_ah(ibv_pd *pd, ibv_ah_attr *attr) {
  static const auto real = REAL(ibv_create_ah);
  ibv_ah *ah = make("ibv_create_ah", pd, [&] {
    look_at_address(pd->context, *attr, "an address handle", {});
    return real(pd, attr);
  });
  if (ah) {
    const Locked lock;
    add<Ah>(ah, "ah", pd->context).pd = pd;
  }
  return ah;
}

ibv_ah *ibv_create_ah_from_wc(ibv_pd *pd, ibv_wc *wc, ibv_grh *grh, std::uint8_t port) {
  static const auto real = REAL(ibv_create_ah_from_wc);
  ibv_ah *ah = make("ibv_create_ah_from_wc", pd, [&] { return real(pd, wc, grh, port); });
  if (ah) {
    const Locked lock;
    if (!find<Ah>(ah) || !find<Ah>(ah)->live) // libibverbs may have called ibv_create_ah for it
      add<Ah>(ah, "ah", pd->context).pd = pd;
  }
  return ah;
}

int ibv_destroy_ah(ibv_ah *ah) {
  static const auto real = REAL(ibv_destroy_ah);
  return destroy("ibv_destroy_ah", ah, [&] { return real(ah); });
}

} // extern "C"
