// SPDX-License-Identifier: MIT
#include "members.hpp"

#include <rdmacommon/check.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

namespace rdmashared {
namespace {

using rdmacommon::check_errno, rdmacommon::Error, rdmacommon::File, rdmacommon::Link,
    rdmacommon::Where;
using std::chrono::milliseconds;

// Said by the process, with a pidfd; and by the sender, with its number behind it.
constexpr std::string_view hello = "rdmashared 1", answer = "rdmashared 1 worker ";
constexpr milliseconds breather(1000); // after there were no file descriptors left

// A name that is in no file system: it is there as long as the socket is.
socklen_t abstract_address(sockaddr_un &address, const std::string &name, Where where) {
  if (name.empty() || name.size() >= sizeof address.sun_path)
    throw Error("the name of a sender", "it is empty or too long", where);
  address = {.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path + 1, name.data(), name.size()); // after a zero
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

File unix_socket(int flags) {
  return File(check_errno(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0), "socket"));
}

// Returns the kernel's word about the process at the other end: nothing protects an abstract name.
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
  if (result < 0 && errno == ERANGE) { // there are more, and the kernel has said how many
    groups.resize(length / sizeof(gid_t));
    result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length);
  }
  check_errno(result, "SO_PEERGROUPS");
  groups.resize(length / sizeof(gid_t));
  return std::ranges::find(groups, group) != groups.end();
}

// Or, where there is none (under Valgrind 3.19), a descriptor that never becomes readable: then the
// end of the link alone says that the process has ended.
File pidfd_of_this_process() { // glibc 2.36 has a function
  File made(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (made.get() < 0 && errno == ENOSYS)
    made = File(eventfd(0, EFD_CLOEXEC));
  check_errno(made.get(), "pidfd_open");
  return made;
}

// See pidfd_open(2).
// @return nothing if it is no pidfd; 0 or less: of a process that this one does not see, or that
//         has ended
std::optional<pid_t> pid_of(const File &pidfd) {
  std::ifstream about("/proc/self/fdinfo/" + std::to_string(pidfd.get()));
  std::string name;
  pid_t pid = 0;
  while (about >> name)
    if (name == "Pid:" && about >> pid)
      return pid;
  return std::nullopt;
}

} // namespace

WorkerEvent::WorkerEvent(File &workers_end) {
  std::array<int, 2> ends{};
  check_errno(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
              "socketpair");
  socket_ = File(ends[0]);
  workers_end = File(ends[1]);
}

void WorkerEvent::ring() const noexcept {
  [[maybe_unused]] const ssize_t sent = send(socket_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Members::Members(const AreaShape &shape, std::vector<SenderThread> threads, const std::string &name,
                 std::optional<gid_t> group)
    : shape_(shape), threads_(std::move(threads)), group_(group),
      own_pidfd_(pidfd_of_this_process()),
      is_taken_(threads_.size(), std::vector<bool>(max_workers)), joined_(threads_.size()) {
  if (!name.empty()) {
    listener_ = unix_socket(SOCK_NONBLOCK);
    sockaddr_un address;
    const socklen_t length = abstract_address(address, name, Where::here());
    check_errno(bind(listener_.get(), reinterpret_cast<sockaddr *>(&address), length), "bind");
    check_errno(listen(listener_.get(), 128), "listen");
    watch_listener();
  }
  const NoSignals no_signals;
  thread_ = std::thread([this] { run(); });
}

Members::~Members() {
  loop_.send([this] { is_over_ = true; });
  thread_.join();
}

void Members::invite(Link link) {
  loop_.send(
      [this, its = std::make_shared<Link>(std::move(link))] { add_process(std::move(*its)); });
}

void Members::is_free(uint32_t thread, uint32_t number) {
  loop_.send([this, thread, number] {
    is_taken_[thread][number] = false;
    --joined_[thread];
  });
}

void Members::drop(uint32_t thread, uint32_t number) {
  loop_.send([this, thread, number] {
    const auto is_it = [&](const Process &each) {
      return each.has_joined() && each.thread == thread && each.number == number;
    };
    if (const auto process = std::ranges::find_if(processes_, is_it); process != processes_.end())
      forget(process);
  });
}

void Members::run() {
  while (!is_over_) {
    Clock::time_point until = paused_until_.value_or(Clock::time_point::max());
    for (const Process &process : processes_)
      if (!process.has_joined())
        until = std::min(until, process.hello_until);
    loop_.wait(until, true);
    const auto now = Clock::now();
    for (auto next = processes_.begin(); next != processes_.end();)
      if (const auto process = next++; !process->has_joined() && process->hello_until <= now)
        process->link.can_receive() ? welcome(process)
                                    : forget(process); // it may have been in time
    if (paused_until_ && *paused_until_ <= now)
      watch_listener();
  }
}

void Members::accept() {
  if (half_open() >= max_half_open) // until one of them has spoken, or its time is over
    return pause_listener(Clock::time_point::max());
  File socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.get() < 0) {
    // The process stays in the queue, so the socket stays readable. Do not look at it all the time.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      pause_listener(Clock::now() + breather);
    return;
  }
  try {
    if (peer_of(socket.get()).uid == geteuid() || (group_ && is_of_group(socket.get(), *group_)))
      add_process(Link(std::move(socket)));
  } catch (const Error &) { // the others do not suffer
  }
}

void Members::watch_listener() {
  try {
    if (listener_.get() >= 0)
      loop_.watch(listener_.get(), [this] { accept(); });
    paused_until_.reset();
  } catch (const Error &) { // the host has no memory for it now
    paused_until_ = Clock::now() + breather;
  }
}

void Members::pause_listener(Clock::time_point until) {
  loop_.forget(listener_.get());
  paused_until_ = until;
}

uint32_t Members::half_open() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(processes_, [](const Process &each) { return !each.has_joined(); }));
}

void Members::add_process(Link link) {
  const ProcessIterator process = processes_.insert(
      processes_.end(),
      Process{.link = std::move(link), .pidfd = File(), .hello_until = Clock::now() + hello_limit});
  try {
    loop_.watch(process->link.fd(),
                [this, process] { process->has_joined() ? forget(process) : welcome(process); });
  } catch (const Error &) { // it is no link, or there is no memory; the others do not suffer
    forget(process);
  }
}

// The process sends a pidfd of its own: the kernel's word for "this process", which never comes
// to mean another one, as a process id does.
void Members::welcome(ProcessIterator process) {
  const auto thread = static_cast<uint32_t>(std::ranges::min_element(joined_) - joined_.begin());
  const auto free = std::ranges::find(is_taken_[thread], false);
  try {
    std::vector<File> files;
    if (process->link.receive(milliseconds(0), files, 1) != hello)
      throw Error("a process that wants to join", "it has another version of the library");
    const auto pid = pid_of(files[0]);
    if (!pid && pid_of(own_pidfd_)) // without a pidfd here (Valgrind), processes need none
      throw Error("a process that wants to join", "nothing would tell its end");
    if (free == is_taken_[thread].end())
      throw Error("a process that wants to join", "there are as many as can be");
    const auto number = static_cast<uint32_t>(free - is_taken_[thread].begin());
    const File area = Area::make(shape_);
    File workers_event;
    Member member{.number = number,
                  .area = std::make_shared<Area>(area.get()),
                  .doorbell = std::make_shared<Event>(),
                  .event = std::make_shared<WorkerEvent>(workers_event),
                  .pid = pid.value_or(0)};
    process->link.send(std::string(answer) + std::to_string(number),
                       std::array{own_pidfd_.get(), threads_[thread].board, area.get(),
                                  member.doorbell->fd(), workers_event.get()});
    loop_.watch(files[0].get(), [this, process] { forget(process); });
    process->pidfd = std::move(files[0]);
    process->thread = thread;
    process->number = number;
    *free = true;
    ++joined_[thread];
    threads_[thread].joined(std::move(member));
  } catch (const Error &) { // a mistake of the joining process, or the host has no room for it
    return forget(process);
  }
  if (paused_until_)
    watch_listener();
}

// Its process has ended, or its link is closed. The process may still have its area: nobody else
// has, so what it writes there does not matter.
void Members::forget(ProcessIterator process) {
  loop_.forget(process->link.fd());
  loop_.forget(process->pidfd.get());
  if (process->has_joined())
    threads_[process->thread].left(process->number);
  processes_.erase(process);
  if (paused_until_) // there is room for another one, and a file descriptor
    watch_listener();
}

// ---- the worker's side

Link connect_to(const std::string &name, milliseconds limit, Where where) {
  File socket = unix_socket(0);
  // connect() waits while the sender's queue is full, and without this forever.
  limit = std::max(limit, milliseconds(1)); // 0 would be forever, too
  const timeval timeout{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  check_errno(setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout),
              "SO_SNDTIMEO", where);
  sockaddr_un address;
  const socklen_t length = abstract_address(address, name, where);
  check_errno(connect(socket.get(), reinterpret_cast<sockaddr *>(&address), length),
              ("Caller::join(" + name + ")").c_str(), where);
  const uid_t owner = peer_of(socket.get()).uid;
  if (owner != geteuid() && owner != 0)
    throw Error("the sender", "it belongs to another user", where);
  return Link(std::move(socket));
}

Joined join(Link link, milliseconds limit) {
  link.send(hello, std::array{pidfd_of_this_process().get()});
  std::vector<File> files;
  const std::string said = link.receive(limit, files, 5);
  uint32_t number = max_workers;
  const char *const end = said.data() + said.size();
  if (!said.starts_with(answer) ||
      std::from_chars(said.data() + answer.size(), end, number).ptr != end || number >= max_workers)
    throw Error("the sender", "it has another version of the library");
  return {.link = std::move(link),
          .sender = std::move(files[0]),
          .board = std::make_unique<SharedBoard>(files[1].get()),
          .area = std::make_unique<Area>(files[2].get()),
          .doorbell = std::move(files[3]),
          .event = std::move(files[4]),
          .number = number};
}

// Returns true if the sender's process has ended, or has let this worker go.
bool Joined::sender_has_gone() const {
  std::array<pollfd, 2> fds{{{.fd = sender.get(), .events = POLLIN, .revents = 0},
                             {.fd = link.fd(), .events = POLLIN, .revents = 0}}};
  return poll(fds.data(), fds.size(), 0) > 0;
}

} // namespace rdmashared
