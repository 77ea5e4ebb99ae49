// SPDX-License-Identifier: MIT
// The server's view of a run: checks and reads the slots that it names. The client can lie in
// every bit of it, and it can change it at any moment: so each message is copied, then checked,
// then used.
#pragma once

#include "group_protocol.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/checksum.hpp>
#include <rdmacommon/immediate.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <arpa/inet.h>
#include <endian.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

class Inbox {
public:
  Inbox(std::span<const std::byte> slots, const Settings &settings)
      : slots_(slots), settings_(settings), next_(size_t{settings.processes} + 1) {}

  bool has_begun() const { return has_begun_; }
  bool has_ended() const { return has_ended_; }

  // [inbox-take]
  // @param length how many bytes were written; this comes from our own NIC, and is true
  void take(rdmacommon::Run run, uint32_t length) {
    const uint32_t size = settings_.shape.slot_size;
    const uint64_t room = uint64_t{run.count} * size;
    if (length > room || length + uint64_t{size} <= room)
      refuse(std::to_string(length) + " bytes are not " + std::to_string(run.count) + " slots");
    const auto written = slots_.subspan(size_t{run.first} * size, length);
    for (size_t at = 0; at < written.size();) {
      const size_t left = written.size() - at;
      rdmacommon::SlotHeader header;
      if (left < sizeof header)
        refuse("the run ends within a header");
      std::memcpy(&header, written.data() + at, sizeof header);
      header = rdmacommon::from_wire(header);
      if (header.length > left - sizeof header)
        refuse(std::to_string(header.length) + " bytes go beyond the run");
      take(header, written.subspan(at + sizeof header, header.length));
      at += size_t{rdmacommon::slots_of(header.length, size)} * size;
    }
  }
  // [inbox-take]

private:
  [[noreturn]] static void refuse(const std::string &what) {
    throw rdmacommon::Error("the client's message", what);
  }

  // A copy of a body, which must be exactly of this type.
  template <typename Body> static Body copy_of(std::span<const std::byte> body) {
    Body copy;
    if (body.size() != sizeof copy)
      refuse("its length is wrong for its kind");
    std::memcpy(&copy, body.data(), sizeof copy);
    return copy;
  }

  // [inbox-kinds]
  void take(const rdmacommon::SlotHeader &header, std::span<const std::byte> body) {
    if (header.flags != 0)
      refuse("it has flags, and there are none");
    if (has_ended_ || has_begun_ == (header.kind == Kind::begin))
      refuse("it is out of order");
    switch (header.kind) {
    case Kind::begin:
      return take(copy_of<Begin>(body));
    case Kind::data:
      return take_data(header.id, body);
    case Kind::filler: // for the measurement
      return;
    case Kind::end:
      return take(copy_of<EndMessage>(body));
    default:
      refuse("there is no kind " + std::to_string(header.kind));
    }
  }
  // [inbox-kinds]

  void take(const Begin &begin) {
    if (ntohl(begin.version) != protocol_version)
      refuse("it is of another version");
    if (ntohl(begin.slots) != settings_.shape.slots ||
        ntohl(begin.slot_size) != settings_.shape.slot_size ||
        ntohl(begin.processes) != settings_.processes)
      refuse("its --slots, --slot-size or --processes are not ours");
    has_begun_ = true;
  }

  // [inbox-data]
  void take_data(uint64_t id, std::span<const std::byte> body) {
    const uint64_t from = id >> 32;
    if (from == 0 || from >= next_.size())
      refuse("there is no process " + std::to_string(from));
    copy_.assign(body.begin(), body.end());
    Checksum sum;
    if (copy_.size() < sizeof sum)
      refuse("it is too short");
    std::memcpy(&sum, copy_.data(), sizeof sum);
    if (ntohl(sum.value) != rdmacommon::checksum(std::span(copy_).subspan(sizeof sum)))
      refuse("its checksum is wrong");
    if (static_cast<uint32_t>(id) != next_[from]++)
      refuse("one before it is lost, or it is doubled");
    ++messages_;
    bytes_ += copy_.size();
  }
  // [inbox-data]

  void take(const EndMessage &end) {
    if (be64toh(end.messages) != messages_ || be64toh(end.bytes) != bytes_)
      refuse("what has come is not what it says was sent");
    std::printf("%" PRIu64 " messages of %u processes, %" PRIu64
                " bytes: nothing is lost, doubled or torn\n",
                messages_, settings_.processes, bytes_);
    has_ended_ = true;
  }

  std::span<const std::byte> slots_;
  const Settings &settings_;
  std::vector<uint32_t> next_; // by process, which count from 1
  std::vector<std::byte> copy_;
  uint64_t messages_ = 0, bytes_ = 0;
  bool has_begun_ = false, has_ended_ = false;
};
