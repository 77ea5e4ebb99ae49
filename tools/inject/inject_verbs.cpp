// SPDX-License-Identifier: MIT
// The verbs that are ordinary functions of libibverbs: this library defines them too, and comes
// first.

#include "counted.hpp"
#include "channel_events.hpp"
#include "context.hpp"
#include "interpose.hpp"

namespace inject {

template <typename Real>
ibv_context *around(call::ibv_open_device kind, Real real, ibv_device *device) {
  ibv_context *context = counted(kind, kind.name, real, device);
  if (context && active())
    wrap_context(context);
  return context;
}

template <typename Real>
ibv_mr *around(call::ibv_reg_mr_iova2 kind, Real real, ibv_pd *, void *address, std::size_t,
               std::uint64_t iova, unsigned) {
  return counted(kind, name_of(kind, address, iova), real);
}

template <typename Real>
ibv_qp *around(call::ibv_create_qp kind, Real real, ibv_pd *, ibv_qp_init_attr *) {
  ibv_qp *qp = counted(kind, kind.name, real);
  if (qp && active())
    remember(qp);
  return qp;
}

template <typename Real> int around(call::ibv_destroy_qp kind, Real real, ibv_qp *qp) {
  if (active())
    forget(qp);
  return counted(kind, kind.name, real, qp);
}

template <typename Real>
int around(call::ibv_get_cq_event kind, Real real, ibv_comp_channel *channel, ibv_cq **cq,
           void **) {
  static const auto acknowledge = REAL(ibv_ack_cq_events);
  return event(kind.name, channel->fd, real, [&] { acknowledge(*cq, 1); });
}

// No rule names these.
template <typename Real> ibv_context *around(call::ibv_import_device, Real real, int) {
  return real();
}
template <typename Real>
int around(call::ibv_get_async_event, Real real, ibv_context *, ibv_async_event *) {
  return real();
}

} // namespace inject

using namespace inject;

extern "C" {
#define CALL INTERPOSE
#include "calls.def"
}
