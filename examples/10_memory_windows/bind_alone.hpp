// SPDX-License-Identifier: MIT
// 10_memory_windows: what the server tries and measures by itself, before there is a client.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

inline void require_windows(ibv_context *context) {
  ibv_device_attr device{};
  rdmacommon::check_rc(ibv_query_device(context, &device), "ibv_query_device");
  if ((device.device_cap_flags & IBV_DEVICE_MEM_WINDOW) == 0 || device.max_mw == 0)
    throw rdmacommon::Unsupported("this device has no memory windows of type 1");
  if ((device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) == 0)
    throw rdmacommon::Unsupported("this device has no memory windows of type 2B");
}

inline const char *state_now(ibv_qp *qp) {
  constexpr std::array names{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  rdmacommon::check_rc(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
  return attr.qp_state < names.size() ? names[attr.qp_state] : "?";
}

inline void check_status(ibv_wc_status status, const char *what,
                         rdmacommon::Where where = rdmacommon::Where::here()) {
  rdmacommon::check_wc({.wr_id = 0, .status = status}, what, where);
}

// A queue pair that is its own peer: enough to bind on.
struct Loopback {
  Loopback(const rdmacommon::Port &port, ibv_pd *pd, unsigned access = 0)
      : cq(rdmacommon::create_cq(port.context.get(), 5)),
        qp(rdmacommon::create_rc_qp(pd, cq.get(),
                                    {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1})) {
    rdmacommon::connect_to_itself(qp.get(), port, access);
  }
  ibv_wc next(const char *what) const { // whatever its status
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    ibv_wc done{};
    while (rdmacommon::check_count(ibv_poll_cq(cq.get(), 1, &done), "ibv_poll_cq") == 0)
      if (std::chrono::steady_clock::now() > deadline)
        throw rdmacommon::Error(what, "no completion within 5 s");
    return done;
  }
  rdmacommon::unique_cq cq;
  rdmacommon::unique_qp qp;
};

// Posts each bind to a queue pair of its own, since a refused bind breaks the queue pair that it is
// posted to.
inline void refused_binds(const rdmacommon::Port &port, ibv_pd *pd) {
  using namespace rdmacommon;
  struct Bind {
    const char *what;
    unsigned region, window;
    uint64_t length;
  };
  constexpr unsigned local = IBV_ACCESS_LOCAL_WRITE, bindable = IBV_ACCESS_MW_BIND;
  constexpr unsigned write = IBV_ACCESS_REMOTE_WRITE, read = IBV_ACCESS_REMOTE_READ;
  static std::array<char, 4096> memory{};
  std::printf("%-38s  %-33s  %s\n", "a bind of", "comes to", "QP");
  for (const Bind &bind : {Bind{"half of a region", local | bindable, read | write, 2048},
                           Bind{"a region without MW_BIND", local, read, 2048},
                           Bind{"WRITE, to a region without LOCAL_WRITE", bindable, write, 2048},
                           Bind{"more than the region", local | bindable, read, 4097},
                           Bind{"0 bytes", local | bindable, read, 0}}) {
    const Loopback on(port, pd);
    post_recv(on.qp.get(), {}); // only to be flushed: then the QP is in ERR
    const unique_mr mr = reg_mr(pd, memory.data(), memory.size(), bind.region);
    const unique_mw mw(check_ptr(ibv_alloc_mw(pd, IBV_MW_TYPE_2), "ibv_alloc_mw"));
    const ibv_mw_bind_info info{.mr = mr.get(),
                                .addr = reinterpret_cast<uintptr_t>(memory.data()),
                                .length = bind.length,
                                .mw_access_flags = bind.window};
    post_send(on.qp.get(),
              {.opcode = IBV_WR_BIND_MW,
               .send_flags = IBV_SEND_SIGNALED,
               .bind_mw = {.mw = mw.get(), .rkey = ibv_inc_rkey(mw->rkey), .bind_info = info}});
    const ibv_wc done = on.next("the bind");
    if (done.status != IBV_WC_SUCCESS)
      on.next("the flush");
    std::printf("%-38s  %-33s  %s\n", bind.what, ibv_wc_status_str(done.status),
                state_now(on.qp.get()));
  }
}

// @return the median time of `what`, in microseconds
template <typename What> double median_us(int times, const What &what) {
  std::vector<double> took(static_cast<size_t>(times));
  for (double &each : took) {
    const auto began = std::chrono::steady_clock::now();
    what();
    each =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count();
  }
  return rdmacommon::median(std::move(took));
}

inline void measure_binding(const rdmacommon::Port &port, ibv_pd *pd, int times) {
  using namespace rdmacommon;
  for (const size_t size : {size_t{4096}, size_t{16} << 20}) {
    std::vector<char> memory(size);
    const Loopback on(port, pd);
    constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    const unique_mr mr = reg_mr(pd, memory.data(), size, access);
    const unique_mw mw(check_ptr(ibv_alloc_mw(pd, IBV_MW_TYPE_2), "ibv_alloc_mw"));
    const double by_window = median_us(times, [&] {
      const uint32_t rkey = ibv_inc_rkey(mw->rkey);
      ibv_send_wr invalidate{
          .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey};
      post_send(on.qp.get(),
                {.next = &invalidate,
                 .opcode = IBV_WR_BIND_MW,
                 .bind_mw = {.mw = mw.get(),
                             .rkey = rkey,
                             .bind_info = {.mr = mr.get(),
                                           .addr = reinterpret_cast<uintptr_t>(memory.data()),
                                           .length = size,
                                           .mw_access_flags = IBV_ACCESS_REMOTE_READ}}});
      mw->rkey = rkey;
      check_wc(on.next("bind and invalidate"), "bind and invalidate");
    });
    constexpr int remote = IBV_ACCESS_REMOTE_READ;
    const double by_region = median_us(times, [&] { reg_mr(pd, memory.data(), size, remote); });
    std::printf("%8zu bytes: bind and invalidate %8.3f us, register and deregister %8.3f us\n",
                size, by_window, by_region);
  }
}
