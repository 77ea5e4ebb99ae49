// SPDX-License-Identifier: MIT
#include "rdmacommon/ring_host.hpp"

#include "ring_peers.hpp"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

namespace rdmacommon {
namespace {

using std::chrono::milliseconds;

// Takes `before` and a number off the beginning of a text.
bool take_number(std::string_view &text, std::string_view before, uint32_t &number) {
  if (!text.starts_with(before))
    return false;
  text.remove_prefix(before.size());
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return error == std::errc();
}

} // namespace

socklen_t abstract_address(sockaddr_un &address, const std::string &name, Where where) {
  if (name.empty() || name.size() >= sizeof address.sun_path)
    throw Error("the name of a ring", "it is empty or too long", where);
  address = {.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path + 1, name.data(), name.size()); // after a zero
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

File unix_socket(int flags) {
  return File(check_errno(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0), "socket"));
}

// [peers]
ucred peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  check_errno(getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length), "SO_PEERCRED");
  return peer;
}

bool is_of_group(int socket, gid_t group) {
  if (peer_of(socket).gid == group)
    return true;
  std::vector<gid_t> groups(32); // all others that it had when it connected
  auto length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  int result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length);
  if (result < 0 && errno == ERANGE) { // there are more, and now the kernel has said how many
    groups.resize(length / sizeof(gid_t));
    result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length);
  }
  check_errno(result, "SO_PEERGROUPS");
  groups.resize(length / sizeof(gid_t));
  return std::ranges::find(groups, group) != groups.end();
}
// [peers]

Link connect_to_ring(const std::string &name, std::optional<uid_t> owner, milliseconds limit,
                     Where where) {
  File socket = unix_socket(0);
  // connect() waits while the owner's queue is full, and without this forever.
  limit = std::max(limit, milliseconds(1)); // 0 would be forever, too
  const timeval timeout{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  check_errno(setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout),
              "SO_SNDTIMEO", where);
  sockaddr_un address;
  const socklen_t length = abstract_address(address, name, where);
  check_errno(connect(socket.get(), reinterpret_cast<sockaddr *>(&address), length),
              ("connect_to_ring(" + name + ")").c_str(), where);
  if (peer_of(socket.get()).uid != owner.value_or(geteuid()))
    throw Error("the owner of the ring", "it belongs to another user", where);
  return Link(std::move(socket));
}

// [goodbye]
RingWorker::Membership::~Membership() {
  try {
    if (getpid() == process)
      link.tell(ring_goodbye);
  } catch (const Error &) { // the host has gone, or the link was closed
  }
}
// [goodbye]

// [join]
RingWorker::RingWorker(Link link, milliseconds limit)
    : host_{.link = std::move(link), .process = getpid()} {
  const File myself(check_errno(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)),
                                "pidfd_open")); // glibc 2.36 has a function
  host_.link.tell(ring_hello, std::array{myself.get()});
  std::vector<File> files; // the doorbells, and each ring's memory
  const std::string said = host_.link.hear(limit, files);
  std::string_view text = said;
  uint32_t rings = 0, doorbells = 0;
  if (!take_number(text, ring_answer, number_) || !take_number(text, ring_count, rings) ||
      !take_number(text, doorbell_count, doorbells) || !text.empty() || number_ == 0 ||
      number_ > SlotRing::max_workers || rings == 0 || rings > RingHost::max_rings ||
      doorbells == 0 || doorbells > rings || files.size() != doorbells + rings)
    throw Error("the owner of the ring", "it speaks another version");
  for (uint32_t i = 0; i < doorbells; ++i)
    doorbells_.push_back(std::move(files[i]));
  for (uint32_t i = 0; i < rings; ++i) {
    rings_.push_back(
        std::make_unique<SlotRing>(files[doorbells + i].get(), doorbells_[i % doorbells].get()));
    if (rings_.back()->shape() != ring().shape())
      throw Error("the owner of the rings", "they have different shapes");
  }
}
// [join]

SlotRing::Claim RingWorker::claim(uint32_t length, milliseconds limit, uint32_t index,
                                  Where where) {
  const std::function<bool()> is_over = [this] { return is_alone(); };
  return ring(index).claim(number_, length, limit, is_over, where);
}

} // namespace rdmacommon
