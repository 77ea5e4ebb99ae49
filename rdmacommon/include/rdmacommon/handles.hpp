// SPDX-License-Identifier: MIT
/// @file
/// Owning handles: a std::unique_ptr for each verbs object, whose deleter is the verb that ends it.
///
/// `qp.get()` is the plain `ibv_qp *`, so every verb can be called on it and nothing is hidden.
/// Objects must go in the reverse order of their creation, since each holds on to those it was made
/// from (a PD with a QP in it cannot be deallocated: EBUSY). C++ destroys local variables and
/// members in just that order, so declaring the handles in the order of creation is enough.
///
/// A deleter cannot throw; when the verb fails it prints the verb and the reason to stderr.
/// A handle belongs to one thread and to one process: a child after fork() must not destroy it.
///
/// Written out in lesson 02_send_recv, except where another one is named.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace rdmacommon {

/// The deleters, one for each verb that ends an object.
namespace deleters {

/// Prints that `verb` failed with `rc` (an error number, or -1 with errno set), if it did.
void report(int rc, const char *verb) noexcept;

/// @cond each is the one call that its name says
struct CloseDevice {
  void operator()(ibv_context *context) const noexcept {
    report(ibv_close_device(context), "ibv_close_device");
  }
};
struct DeallocPd {
  void operator()(ibv_pd *pd) const noexcept { report(ibv_dealloc_pd(pd), "ibv_dealloc_pd"); }
};
struct DestroyCompChannel {
  void operator()(ibv_comp_channel *channel) const noexcept {
    report(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  }
};
struct DestroyCq {
  void operator()(ibv_cq *cq) const noexcept { report(ibv_destroy_cq(cq), "ibv_destroy_cq"); }
};
struct DeregMr {
  void operator()(ibv_mr *mr) const noexcept { report(ibv_dereg_mr(mr), "ibv_dereg_mr"); }
};
struct DestroyQp {
  void operator()(ibv_qp *qp) const noexcept { report(ibv_destroy_qp(qp), "ibv_destroy_qp"); }
};
struct DestroySrq {
  void operator()(ibv_srq *srq) const noexcept { report(ibv_destroy_srq(srq), "ibv_destroy_srq"); }
};
struct DestroyAh {
  void operator()(ibv_ah *ah) const noexcept { report(ibv_destroy_ah(ah), "ibv_destroy_ah"); }
};
struct DeallocMw {
  void operator()(ibv_mw *mw) const noexcept { report(ibv_dealloc_mw(mw), "ibv_dealloc_mw"); }
};
struct FreeDm {
  void operator()(ibv_dm *dm) const noexcept { report(ibv_free_dm(dm), "ibv_free_dm"); }
};
/// @endcond

} // namespace deleters

/// An open device, from ibv_open_device(). Outlives everything created on it. Lesson
/// 01_hello_device.
using unique_context = std::unique_ptr<ibv_context, deleters::CloseDevice>;
/// A protection domain, from ibv_alloc_pd(). Outlives the MRs and QPs in it.
using unique_pd = std::unique_ptr<ibv_pd, deleters::DeallocPd>;
/// A completion channel, from ibv_create_comp_channel(). Outlives the CQs that report to it.
/// Lesson 06_completions.
using unique_comp_channel = std::unique_ptr<ibv_comp_channel, deleters::DestroyCompChannel>;
/// A completion queue, from ibv_create_cq(). Outlives the QPs that report to it.
using unique_cq = std::unique_ptr<ibv_cq, deleters::DestroyCq>;
/// A memory region, from ibv_reg_mr(). Goes before the memory that it registers.
using unique_mr = std::unique_ptr<ibv_mr, deleters::DeregMr>;
/// A shared receive queue, from ibv_create_srq(). Outlives the QPs that take their receives from
/// it. Lesson 09_shared_receive.
using unique_srq = std::unique_ptr<ibv_srq, deleters::DestroySrq>;
/// A queue pair, from ibv_create_qp(). Destroying it drops what is still posted.
using unique_qp = std::unique_ptr<ibv_qp, deleters::DestroyQp>;

/// An address handle, from ibv_create_ah(). Goes after the last SEND that names it has completed.
/// Lesson 08_datagrams.
using unique_ah = std::unique_ptr<ibv_ah, deleters::DestroyAh>;

/// A memory window, from ibv_alloc_mw(). Destroying it revokes what it grants. Goes before the
/// region that it is bound to, which cannot be deregistered until then, and, if of type 2, before
/// the QP that it is bound on. Lesson 10_memory_windows.
using unique_mw = std::unique_ptr<ibv_mw, deleters::DeallocMw>;

/// Memory of the device's own, from ibv_alloc_dm(). Outlives the regions over it, and goes before
/// the device. Lesson 30_device_memory.
using unique_dm = std::unique_ptr<ibv_dm, deleters::FreeDm>;

} // namespace rdmacommon
