// SPDX-License-Identifier: MIT
// The verbs that are inline functions in verbs.h, and so in the program itself: they call through
// pointers in the context, the extended QP and the extended CQ, which are replaced here.
#pragma once

#include "event.hpp"
#include "work_requests.hpp"

#include <infiniband/verbs.h>
#include <optional>
#include <string>

namespace trace {

void watch_context(ibv_context *context);

// The attributes of a QP that is to be made, in words.
template <typename InitAttr> // ibv_qp_init_attr or ibv_qp_init_attr_ex
std::string describe(const InitAttr &attr);

// Adds a new QP to its event, and remembers whether all its work requests complete, and how long
// their lists may be. @return its label
std::string made_qp(Event &event, ibv_qp *qp, bool all_signaled, const ibv_qp_cap &cap);
std::string made_srq(ibv_srq *srq, std::uint32_t max_sge);

// Notes which CQs a QP completes to, or that it does not any more.
void qp_uses_cqs(const ibv_qp *qp, bool uses);
// The number of the only QP that completes to this CQ; nothing if there are others.
std::optional<std::uint32_t> only_qp(const void *cq);

// Empty polls are counted, not written: the next poll that returns something says how many there
// were.
void count_empty_poll(const void *cq);
std::uint64_t take_empty_polls(const void *cq);

// The extended interfaces (extended.cpp).
int completed_list(ibv_qp_ex *qp, const preload::Builder &built);
void watch_cq(ibv_cq_ex *cq, std::uint64_t wc_flags); // the flags that it was made with

// One completion, from either interface; behind qp_num it is valid only if status is
// IBV_WC_SUCCESS.
struct Completion {
  std::uint64_t wr_id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::optional<std::uint32_t> qp_num; // unless the CQ cannot tell
  ibv_wc_opcode opcode = IBV_WC_SEND;
  std::optional<std::uint32_t> length;
  std::optional<std::uint32_t> imm; // in the byte order of the host
};

// Gathers the lines of a "wrs" or "wcs" array, as text and as JSON.
class List {
public:
  void add(const preload::Request &request, const ibv_qp *qp);
  void add(const Completion &completion);
  // Receives that follow one another and are equal have one text: "wr_id 0, 0 B (x328)".
  void add_receive(std::uint64_t wr_id, std::uint64_t length);
  std::string text() const {
    return equal_ > 1 ? text_ + " (x" + std::to_string(equal_) + ")" : text_;
  }
  std::string json() const { return "[" + json_ + "]"; }

private:
  void add(const std::string &text, const Json &json);
  std::string text_, json_, receive_; // receive_: the text of the last one
  unsigned equal_ = 0;                // receives with that text, at the end
};

} // namespace trace
