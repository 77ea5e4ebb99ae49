// SPDX-License-Identifier: MIT
/// @file
/// The processes of a SlotRing: the one that owns it lets others join, and notices when one of them
/// has gone.
///
/// Written out in lesson 20_ring_workers.
#pragma once

#include "rdmacommon/check.hpp"
#include "rdmacommon/processes.hpp"
#include "rdmacommon/slot_ring.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rdmacommon {

/// The owner and consumer of one ring or several. Not thread-safe. Nothing of it has a name in the
/// file system: it is all gone with the last process that has it, however that ends.
///
/// Several threads can share the consumer's work: each takes the rings of one doorbell. The rings
/// of doorbell 0 are this object's: arm(), wait() and handle_events() arm, disarm and reclaim
/// these, and no others. A thread with another doorbell calls SlotRing::arm() and disarm() of its
/// rings itself, and SlotRing::reclaim() for each worker that on_leave() tells of.
class RingHost {
public:
  static constexpr uint32_t max_rings = 14;  ///< With a doorbell each, they fit into one message.
  static constexpr uint32_t max_silent = 64; ///< Guests that may not have said hello yet.

  /// Makes rings.
  /// @param shape        of each
  /// @param rings        1 to max_rings
  /// @param max_workers processes that may have joined at a time, at most SlotRing::max_workers; a
  ///                     worker's number is 1 to this
  /// @param doorbells    1 to `rings`; ring i has doorbell i % doorbells
  /// @throws Error if the shape is not one, or there are too many
  explicit RingHost(const RingShape &shape, uint32_t rings = 1, uint32_t max_workers = 1024,
                    uint32_t doorbells = 1);

  /// To take from, and to give back to.
  /// @param index less than rings()
  SlotRing &ring(uint32_t index = 0) { return *rings_.at(index); }
  uint32_t rings() const { return static_cast<uint32_t>(rings_.size()); } ///< How many there are.
  /// For poll(2) or epoll(7), between SlotRing::arm() and disarm(): readable when a worker has
  /// rung.
  /// @param index less than `doorbells`
  int doorbell(uint32_t index = 0) const { return doorbells_.at(index).get(); }

  /// Lets the process on the other end of `link` join: a child, by Child::link()'s other end. Does
  /// not wait for it.
  /// @throws Error if there are too many
  void invite(Link link, Where where = Where::here());

  /// Lets processes join that were started on their own, if they belong to the same user. The
  /// kernel says whose they are (unix(7), SO_PEERCRED). A process that joins can write to all of
  /// the rings' memory.
  /// @param name  of an abstract socket (unix(7)), which is gone with this process
  /// @param group admits any user's process, too, that has this group as its effective one or among
  ///              its others
  /// @throws Error if the name is in use, empty or too long
  void listen(const std::string &name, std::optional<gid_t> group = {},
              Where where = Where::here());

  /// How long a guest, invited or not, may say nothing: then it is forgotten. For those to come.
  /// @param limit 5 s if this is not called
  void set_hello_limit(std::chrono::milliseconds limit) { hello_limit_ = limit; }

  /// What is called for each worker that has left, with its number, after its claims were given up.
  /// Nobody joins before it returns.
  /// @param f may invite others; called by handle_events() and wait(), and what it throws comes out
  ///          of these
  void on_leave(std::function<void(uint32_t worker)> f) { on_leave_ = std::move(f); }

  /// Sleeps until something is ready, a worker has joined or left, or `limit` has passed. What a
  /// worker had claimed that is gone is given up here.
  /// @return false if `limit` has passed
  bool wait(std::chrono::milliseconds limit);

  /// For an event loop of its own, in place of wait(): readable if handle_events() has something to
  /// do, and, after arm(), if something is ready. It is an epoll instance, which poll(2) and
  /// another epoll can watch.
  int fd() const { return epoll_.get(); }
  /// SlotRing::arm() of the rings of doorbell 0: to be called before the sleep, and handle_events()
  /// after it.
  /// @return false if something is ready: do not sleep
  bool arm();
  /// To be called after the sleep, and after an arm() that returned false: disarms these rings, and
  /// lets processes join and leave. Never blocks.
  void handle_events() { handle_events(std::chrono::milliseconds(0)); }

  uint32_t workers() const { return joined_ - left_; } ///< That have joined and not left.
  uint32_t joined() const { return joined_; }          ///< How many have joined, ever.
  /// Guests that have not said hello yet.
  uint32_t silent() const { return static_cast<uint32_t>(silent_.size()); }
  /// Slots that were taken back from workers that have gone.
  uint64_t reclaimed() const { return reclaimed_; }
  uint64_t sleeps() const { return sleeps_; } ///< How often arm() has said that there is nothing.

private:
  using Time = std::chrono::steady_clock::time_point;
  struct Guest {
    Link link;
    uint64_t tag = 0; // what epoll says of it; never that of another, as the number may be
    File process;     // a pidfd, once it has joined
  };
  void watch(int fd, uint64_t what);
  void unwatch(int fd);
  bool handle_events(std::chrono::milliseconds limit);
  void handle(uint64_t what);
  void accept();
  void pause_listening(std::optional<Time> until);
  void resume_listening();
  void set_timer();
  void handle_timer();
  void welcome(uint32_t number);
  bool has_left(const Guest &guest);
  void farewell(uint32_t number);
  void forget(uint32_t number);

  uint32_t max_workers_;
  std::vector<File> memories_, doorbells_;
  File epoll_, timer_, listener_;
  std::vector<std::unique_ptr<SlotRing>> rings_;
  std::vector<SlotRing *> own_;      // of these, those of doorbell 0
  std::map<uint32_t, Guest> guests_; // by worker number
  std::map<uint32_t, Time>
      silent_; // of these, those that have not said hello, and until when they have to
  std::optional<gid_t> group_;
  std::chrono::milliseconds hello_limit_{5000};
  std::function<void(uint32_t)> on_leave_;
  bool can_sleep_ = true, is_paused_ = false;
  std::optional<Time> paused_until_;
  uint32_t latest_ = 0, joined_ = 0, left_ = 0;
  uint64_t tags_ = 0, reclaimed_ = 0, sleeps_ = 0, looks_ = 0;
};

/// Connects to a RingHost that listens.
/// @param owner the user that it has to belong to; the caller's own if not given
/// @param limit how long to wait while too many others do; it also holds for what is told over the
///              link
/// @throws Error if nobody listens, if it belongs to another user, or if the limit has passed
Link connect_to_ring(const std::string &name, std::optional<uid_t> owner = {},
                     std::chrono::milliseconds limit = std::chrono::seconds(5),
                     Where where = Where::here());

/// A process's part in a host's rings; for all its threads. When it goes, or the process ends, the
/// host takes its slots back.
class RingWorker {
public:
  /// Joins. In a child, by the link to its parent, which must be invited.
  /// @throws Error if the host does not answer within `limit`, or not as it should
  explicit RingWorker(Link link, std::chrono::milliseconds limit = std::chrono::seconds(5));

  /// Attached.
  /// @param index less than rings()
  SlotRing &ring(uint32_t index = 0) { return *rings_.at(index); }
  uint32_t rings() const { return static_cast<uint32_t>(rings_.size()); } ///< How many there are.
  uint32_t number() const { return number_; } ///< Of this worker, from 1.
  /// Whether the host is gone. A system call.
  bool is_alone() const { return host_.link.has_spoken(); }

  /// SlotRing::claim() for this worker; the host's death ends it.
  /// @param index of the ring
  SlotRing::Claim claim(uint32_t length, std::chrono::milliseconds limit, uint32_t index = 0,
                        Where where = Where::here());

private:
  // It says goodbye when it goes: last, when nothing is mapped any more.
  struct Membership {
    Link link;
    const pid_t process; // not a child of it
    ~Membership();
  };

  const Membership host_;
  std::vector<File> doorbells_;
  std::vector<std::unique_ptr<SlotRing>> rings_;
  uint32_t number_ = 0;
};

/// Forks a worker: a child that joins the ring of `host` by a link that was made before the fork.
/// Call this function while the process has one thread, as for Child. It does not wait until the
/// child has joined: RingHost::joined() counts the workers that have.
/// @param limit how long the child waits for the host's answer, as for RingWorker
/// @param body  what the child does; the child ends when `body` returns. Child::link() is the other
///              end of `parent`
/// @return the child, which the caller owns: its destructor kills it
/// @throws Error as Child and RingHost::invite()
std::unique_ptr<Child>
start_worker(RingHost &host, std::chrono::milliseconds limit,
             const std::function<void(RingWorker &, const Link &parent)> &body,
             Where where = Where::here());

} // namespace rdmacommon
