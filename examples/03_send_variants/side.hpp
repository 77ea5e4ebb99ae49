// SPDX-License-Identifier: MIT
// The objects that every exchange of send_variants.cpp works with, on either side.
#pragma once

#include <rdmacommon/exchange.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

constexpr uint32_t send_depth = 8, receive_depth = 32;
constexpr size_t slot_size = 64;
using Slots = std::array<std::array<char, slot_size>, 4>;

// In all parts but inline_data, the server posts its receives before the client sends:
// the client waits for "done" from the server.
struct Side {
  bool is_server;
  std::chrono::seconds timeout;
  rdmacommon::Exchange &exchange;
  Slots &slots; // registered as mr
  ibv_mr *mr;
  ibv_cq *sent, *received; // two, so that a wait for a SEND finds no receive
  ibv_qp *qp;

  ibv_sge slot(size_t number, size_t length = slot_size) const {
    return rdmacommon::piece(mr, slots[number].data(), length);
  }
  void fill(size_t number, std::string_view text) const {
    slots[number].fill(0);
    text.copy(slots[number].data(), slot_size - 1);
  }
  // [side]
  void receive_into(size_t number) const {
    fill(number, "");
    ibv_sge sge = slot(number);
    rdmacommon::post_recv(qp, {.wr_id = number, .sg_list = &sge, .num_sge = 1});
  }
  void wait_sent() const { rdmacommon::wait_for_completion(sent, "a SEND", timeout); }
  ibv_wc wait_received() const {
    return rdmacommon::wait_for_completion(received, "a receive", timeout);
  }
  // [side]
};
