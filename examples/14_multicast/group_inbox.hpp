// SPDX-License-Identifier: MIT
// 14_multicast: memory for one datagram, which every member has, however it joins.
#pragma once

#include "group_message.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/requests.hpp>
#include <rdmacommon/ud_queue_pair.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string_view>

struct Inbox {
  static constexpr size_t room = 256;

  alignas(8) std::array<char, rdmacommon::grh_size + room> memory{};
  rdmacommon::unique_pd pd;
  rdmacommon::unique_mr mr;
  rdmacommon::unique_cq cq;

  explicit Inbox(ibv_context *context)
      : pd(rdmacommon::alloc_pd(context)),
        mr(rdmacommon::reg_mr(pd.get(), memory.data(), memory.size(), int{IBV_ACCESS_LOCAL_WRITE})),
        cq(rdmacommon::create_cq(context, 2)) {}

  void post(ibv_qp *qp) {
    ibv_sge sge = rdmacommon::piece(mr.get(), memory.data(), memory.size());
    rdmacommon::post_recv(qp, {.sg_list = &sge, .num_sge = 1});
  }

  // [print]
  // Anybody can send to a group: a datagram that is no message of ours is not the end.
  void print(ibv_qp *qp, const char *who, std::chrono::seconds timeout) {
    for (int refused = 0; refused < 10; ++refused) {
      const ibv_wc completion = rdmacommon::wait_for_completion(cq.get(), who, timeout);
      std::string_view text;
      const char *problem = decode(
          {memory.data() + rdmacommon::grh_size, completion.byte_len - rdmacommon::grh_size}, text);
      if (!problem) {
        std::printf("%s: \"%.*s\", to %s\n", who, static_cast<int>(text.size()), text.data(),
                    rdmacommon::to_text(addresses_of(memory.data()).destination).c_str());
        return;
      }
      std::printf("%s: refused a datagram: %s\n", who, problem);
      post(qp);
    }
    throw rdmacommon::Error(who, "no datagram of this example came");
  }
  // [print]
};
