// SPDX-License-Identifier: MIT
// The client's child processes: each puts messages into the ring, as in lesson 18. They know
// nothing of RDMA.
#pragma once

#include "group_protocol.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/checksum.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/ring_host.hpp>

#include <arpa/inet.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

// [produce]
inline void produce(rdmacommon::RingWorker &worker, const Settings &settings) {
  std::minstd_rand random(worker.number());
  for (uint32_t number = 0; number < settings.messages; ++number) {
    const uint32_t bytes = static_cast<uint32_t>(random()) % (settings.longest + 1);
    const uint32_t length = sizeof(Checksum) + bytes;
    if (rdmacommon::slots_of(length, worker.ring().shape().slot_size) >
        rdmacommon::SlotRing::longest_run)
      throw rdmacommon::Error("a message", "it does not fit into a run");
    auto claim = worker.claim(sizeof(rdmacommon::SlotHeader) + length, settings.timeout);
    const auto body = claim.data().subspan(sizeof(rdmacommon::SlotHeader) + sizeof(Checksum));
    for (std::byte &byte : body)
      byte = static_cast<std::byte>(random() >> 8);
    write_message(claim.data(),
                  {.length = length,
                   .kind = Kind::data,
                   .flags = 0,
                   .id = uint64_t{worker.number()} << 32 | number},
                  Checksum{htonl(rdmacommon::checksum(body))});
    if (!claim.publish())
      throw rdmacommon::Error("a message", "its slots were taken away");
  }
}
// [produce]

class Producers {
public:
  // Before the device is opened: what a child inherits of verbs objects it must not touch (lesson
  // 15).
  Producers(rdmacommon::RingHost &host, const Settings &settings) : timeout_(settings.timeout) {
    for (uint32_t i = 0; i < settings.processes; ++i) {
      auto [host_end, worker_end] = rdmacommon::make_link();
      children_.push_back(std::make_unique<rdmacommon::Child>([&settings, end = &worker_end](
                                                                  const rdmacommon::Link &parent) {
        rdmacommon::RingWorker worker(std::move(*end), settings.timeout);
        parent.hear(std::chrono::hours(1)); // until there is a connection, or the parent has gone
        produce(worker, settings);
      }));
      host.invite(std::move(host_end));
    }
    while (host.joined() < settings.processes)
      if (!host.wait(timeout_))
        throw rdmacommon::Error("the producers", "they do not join");
  }

  void start() const {
    for (const auto &child : children_)
      child->link().tell("begin");
  }

  void wait() {
    for (const auto &child : children_)
      if (child->wait(timeout_) != 0)
        throw rdmacommon::Error("a producer", "it has failed");
  }

private:
  std::chrono::seconds timeout_;
  std::vector<std::unique_ptr<rdmacommon::Child>> children_;
};
