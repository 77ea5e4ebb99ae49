// SPDX-License-Identifier: MIT
// 15_fork: what breaks when a process forks after it has set up RDMA, and what to do instead.
//
// Lesson:  lessons/15_fork.md
// Needs:   an RDMA device (./lab doctor says where yours comes from)
// Run:     ./lab run 15_fork                                 all of it, wrong and cured
//          ./lab run 15_fork -- --case stolen                wrong: it fails
//          ./lab run 15_fork -- --case stolen --cure         right
// By hand: fork [--case NAME [--cure]]

#include "child.hpp"
#include "deadlock.hpp"
#include "orphaned.hpp"
#include "resources.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>

#include <sys/mman.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

using Memory = Mapped<Buffers>;

// ---- the child reads its own copy

// [stale]
Outcome stale(const DeviceOptions &options, bool cure, Limit limit) {
  const Memory memory(cure ? AtFork::shared : AtFork::copied);
  put(memory->incoming, "what was there before the fork");
  const Resources rdma(options, *memory);
  rdma.receive();
  Child child([&](const Link &parent) {
    parent.receive(limit);
    parent.send(get(memory->incoming));
  });
  rdma.send("what the NIC has written");
  rdma.wait_for_message(limit);
  child.link().send("look");
  const std::string childs = child.link().receive(limit);
  return {childs == get(memory->incoming),
          "the parent reads \"" + get(memory->incoming) + "\", the child \"" + childs + '"'};
}
// [stale]

// ---- the child takes the parent's completion

Outcome stolen(const DeviceOptions &options, bool cure, Limit limit) {
  const Memory memory(AtFork::shared);
  const Resources rdma(options, *memory);
  rdma.receive();
  // [stolen]
  Child child([&](const Link &parent) {
    if (cure)
      parent.receive(limit); // the owner polls, and tells
    else if (!rdma.next(limit))
      throw Error("the child's ibv_poll_cq", "there is nothing to steal");
    parent.send(get(memory->incoming));
  });
  rdma.send("hello");
  if (!cure) {
    const std::string taken = child.link().receive(limit);
    const bool there = rdma.next(Limit(200)).has_value();
    return {there, "the child has \"" + taken + "\", the parent's queue is " +
                       (there ? "not empty" : "empty: it would wait forever")};
  }
  // [stolen]
  rdma.wait_for_message(limit);
  child.link().send("there is a message");
  return {true, "the parent took the completion, and told the child: \"" +
                    child.link().receive(limit) + '"'};
}

// ---- the child may not post

Outcome refused(const DeviceOptions &options, bool cure, Limit limit) {
  const Memory memory(AtFork::shared);
  const Resources rdma(options, *memory);
  rdma.receive();
  rdma.receive();
  // [refused]
  Child child([&](const Link &parent) {
    if (cure)
      parent.send("the child's message"); // the owner posts for us
    else
      parent.send(std::to_string(rdma.try_send("the child's message")));
  });
  if (cure) {
    rdma.send(child.link().receive(limit));
    rdma.wait_for_message(limit);
    return {true, "the parent posted for the child: \"" + get(memory->incoming) + "\" arrived"};
  }
  const int error = std::stoi(child.link().receive(limit));
  // Refused is not undone: the request stands in the queue, which is shared, and goes with the
  // next.
  rdma.send("the parent's message");
  size_t arrived = 0;
  while (rdma.next(arrived < 2 ? limit : Limit(0)))
    ++arrived;
  // [refused]
  return {error == 0, "the child's ibv_post_send returned " + std::to_string(error) + ", " +
                          strerrorname_np(error) + "; then the parent posted 1 request, and " +
                          std::to_string(arrived) + " messages arrived"};
}

// ---- a destructor in the child

Outcome destructor(const DeviceOptions &options, bool cure, Limit limit) {
  // [destructor]
  static const Memory memory(AtFork::shared);
  static const Resources rdma(options, *memory); // as a program has it that opens its device once
  rdma.receive();
  Child child([&](const Link &) {
    if (!cure)
      std::exit(0); // runs the destructor of `rdma`. With --cure, class Child ends by _exit().
  });
  if (child.wait(limit) != 0)
    throw Error("the child", "it failed");
  const int error = rdma.try_send("hello");
  // [destructor]
  if (error != 0)
    return {false, "the child has ended; the parent's ibv_post_send returns " +
                       std::to_string(error) + ", " + strerrorname_np(error)};
  rdma.wait_for_message(limit);
  return {true, "the child has ended; the parent's message arrived"};
}

// ---- ibv_fork_init takes pages away from the child

Outcome dontfork(const DeviceOptions &options, bool cure, Limit limit) {
  struct alignas(4096) Page {
    Buffers registered;
    Text beside; // on the same page; the second one is on a page of its own
  };
  const Mapped<std::array<Page, 2>> memory(AtFork::copied);
  Text &beside = (*memory)[cure ? 1 : 0].beside;
  put(beside, "an ordinary variable");
  // Makes the library take the pages of each region away from children. Before the first
  // ibv_reg_mr.
  check_rc(ibv_fork_init(), "ibv_fork_init");
  const Resources rdma(options, (*memory)[0].registered);
  // Since rdma-core 51 it leaves them alone where the kernel copies them. So we do what it did
  // before.
  check_errno(madvise(&(*memory)[0], sizeof(Page), MADV_DONTFORK), "madvise(MADV_DONTFORK)");
  Child child([&](const Link &parent) {
    std::signal(SIGSEGV, SIG_DFL); // no report of a sanitizer's
    parent.send(get(beside));
  });
  const int status = child.wait(limit);
  if (status == 128 + SIGSEGV)
    return {false, "the child reads a variable that is on a page with a region: SIGSEGV"};
  return {status == 0,
          "the child reads a variable on another page: \"" + child.link().receive(limit) + '"'};
}

// ---- all of them

const char *fork_status() {
  switch (ibv_is_fork_initialized()) {
  case IBV_FORK_DISABLED:
    return "disabled";
  case IBV_FORK_ENABLED:
    return "enabled";
  case IBV_FORK_UNNEEDED:
    return "unneeded: the kernel copies pinned pages at the fork";
  }
  return "unknown";
}

struct Case {
  const char *name;
  Outcome (*run)(const DeviceOptions &options, bool cure, Limit limit);
};
constexpr std::array cases{Case{"stale", stale},       Case{"stolen", stolen},
                           Case{"refused", refused},   Case{"destructor", destructor},
                           Case{"dontfork", dontfork}, Case{"orphaned", orphaned},
                           Case{"deadlock", deadlock}};

// Each in a process of its own: this one has no RDMA resources, and so has nothing to lose by a
// fork.
Outcome run_apart(const Case &which, const DeviceOptions &options, bool cure, Limit limit) {
  Child child([&](const Link &parent) {
    try {
      const Outcome outcome = which.run(options, cure, limit);
      parent.send((outcome.works ? "+" : "-") + outcome.seen);
    } catch (const Unsupported &lacking) {
      parent.send(std::string("?") + lacking.what());
    }
  });
  const std::string said = child.link().receive(8 * limit);
  child.wait(limit);
  if (said[0] == '?')
    throw Unsupported(said.substr(1));
  return {said[0] == '+', said.substr(1)};
}

void fork_cases(int argc, char **argv) {
  CommandLine line{
      "Forks after RDMA has been set up, in every way that goes wrong, and does it right."};
  DeviceOptions options{line};
  std::string wanted = "all";
  bool cure = false;
  std::chrono::seconds limit{5};
  std::vector<std::string> names{wanted};
  for (const Case &one : cases)
    names.emplace_back(one.name);
  line.add("--case", wanted, "which one [all, wrong and cured]", names);
  line.add("--cure", cure, "only what is right");
  line.add("--timeout", limit, "how long a step may take");
  line.parse(argc, argv);

  if (wanted == "all")
    std::printf("ibv_is_fork_initialized: %s\n", fork_status());
  for (const Case &one : cases) {
    if (wanted != "all" && wanted != one.name)
      continue;
    for (const bool right : {false, true}) {
      if (right != cure && (cure || wanted != "all"))
        continue;
      const Outcome outcome = run_apart(one, options, right, limit);
      const std::string name = std::string(one.name) + (right ? ", cured" : "");
      if (outcome.works != right && wanted == "all")
        throw Error(name, "another outcome than the lesson's: " + outcome.seen);
      if (!outcome.works && wanted != "all")
        throw Error(name, outcome.seen);
      std::printf("%-18s %s\n", (name + ':').c_str(), outcome.seen.c_str());
    }
  }
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, fork_cases);
}
