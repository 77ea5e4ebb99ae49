// SPDX-License-Identifier: MIT
// The board of a sender: all read it, one writes it, and the bells wake those who are meant.
#include "memory.hpp"

#include <rdmacommon/check.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

using namespace rdmashared; // for tests alone
using rdmacommon::Child, rdmacommon::Error, rdmacommon::File, rdmacommon::SharedMemory;
using std::chrono::seconds, std::chrono::milliseconds, std::chrono::steady_clock;

namespace {

// Counts the sleepers of a word: moves them to another one, which says how many slept, and back.
// Both words belong to this process alone at that time.
long sleepers(std::atomic<uint32_t> &word) {
  static std::atomic<uint32_t> other;
  const auto move = [](std::atomic<uint32_t> &from, std::atomic<uint32_t> &to) {
    return syscall(SYS_futex, &from, FUTEX_CMP_REQUEUE, 0, long{INT_MAX}, &to, from.load());
  };
  const long count = move(word, other);
  EXPECT_GE(count, 0) << errno;
  // Maybe not all: the kernel may let one look at `word` again, and it sleeps there.
  EXPECT_GE(move(other, word), 0) << errno;
  return count;
}

[[nodiscard]] bool wait_for_sleepers(std::atomic<uint32_t> &word, long count) {
  const auto deadline = steady_clock::now() + seconds(60);
  while (sleepers(word) != count) {
    if (steady_clock::now() >= deadline)
      return false;
    std::this_thread::yield(); // nothing tells that a thread has fallen asleep
  }
  return true;
}

TEST(Board, EverybodySeesWhatTheSenderWrites) {
  const OwnBoard own(3);
  const SharedBoard shared(own.fd());
  EXPECT_EQ(shared->servers, 3U);
  EXPECT_EQ(shared->is_over.load(), 0U);
  own->is_asleep = 1;
  own->connections[2] = 4;
  own->bells.back() = 5;
  EXPECT_EQ(shared->is_asleep.load(), 1U);
  EXPECT_EQ(shared->connections[2].load(), 4);
  EXPECT_EQ((*shared).bells.back().load(), 5U);
}

TEST(Board, OnlyTheSenderWrites) {
  const OwnBoard own(1);
  Child child([&](const rdmacommon::Link &parent) {
    std::string can;
    const auto may_not = [&can](bool could, int expected, const char *what) {
      if (could || errno != expected)
        can += std::string(what) + " (" + std::to_string(errno) + ") ";
    };
    const std::string path = "/proc/self/fd/" + std::to_string(own.fd());
    const File again(open(path.c_str(), O_RDWR | O_CLOEXEC));
    for (const int fd : {own.fd(), again.get()}) {
      void *page = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      may_not(page != MAP_FAILED, EPERM, "map");
      may_not(pwrite(fd, "x", 1, 0) >= 0, EPERM, "write");
      may_not(ftruncate(fd, 0) == 0, EPERM, "shorten");
      may_not(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0, EPERM,
              "punch");
      may_not(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0, EPERM, "seal");
    }
    const SharedBoard shared(own.fd());
    const auto page = reinterpret_cast<uintptr_t>(&*shared) / 4096 * 4096;
    may_not(mprotect(reinterpret_cast<void *>(page), 4096, PROT_READ | PROT_WRITE) == 0, EACCES,
            "unprotect");
    parent.send(can.empty() ? "nothing" : can);
  });
  EXPECT_EQ(child.link().receive(seconds(60)), "nothing");
  own->is_over = 1; // the sender still can
  EXPECT_EQ(SharedBoard(own.fd())->is_over.load(), 1U);
}

TEST(Board, AnotherVersionIsRefused) {
  const auto can_be_attached = [](auto change) {
    const OwnBoard own(2);
    change(*own);
    try {
      const SharedBoard shared(own.fd());
      return true;
    } catch (const Error &) {
      return false;
    }
  };
  EXPECT_TRUE(can_be_attached([](Board &) {}));
  EXPECT_TRUE(can_be_attached([](Board &its) { its.servers = max_servers; }));
  EXPECT_FALSE(can_be_attached([](Board &its) { its.servers = max_servers + 1; }));
  EXPECT_FALSE(can_be_attached([](Board &its) { its.magic[7] = 'D'; }));
  EXPECT_FALSE(can_be_attached([](Board &its) { ++its.version; }));
  EXPECT_FALSE(can_be_attached([](Board &its) { --its.size; }));
}

// The mappings of boards in this process.
int mapped_boards() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);)
    found += line.find("rdma_board") != line.npos;
  return found;
}

TEST(Board, ARefusedBoardIsNotMapped) {
  const OwnBoard own(2);
  EXPECT_EQ(mapped_boards(), 1);
  ++own->version;
  EXPECT_THROW(SharedBoard(own.fd()), Error);
  EXPECT_EQ(mapped_boards(), 1);
}

TEST(Board, OtherFilesAreNoBoard) {
  EXPECT_THROW(SharedBoard(-1), Error);
  EXPECT_THROW(SharedBoard(STDIN_FILENO), Error);
  EXPECT_THROW(SharedBoard(rdmacommon::make_shared_memory("test", sizeof(Board)).get()), Error);
  const OwnBoard own(2);
  const auto *begin = reinterpret_cast<const char *>(&*own);
  for (const size_t length : {sizeof(Board) - 64, sizeof(Board), sizeof(Board) + 4096}) {
    std::string bytes(begin, sizeof(Board));
    bytes.resize(length);
    const File file = rdmacommon::make_shared_memory("test", length);
    std::ranges::copy(bytes, static_cast<char *>(SharedMemory(file.get(), length).data()));
    if (length == sizeof(Board))
      EXPECT_EQ(SharedBoard(file.get())->servers, 2U);
    else
      EXPECT_THROW(SharedBoard(file.get()), Error) << length;
  }
  const File unsealed(memfd_create("test", MFD_CLOEXEC)); // it could be made shorter
  ASSERT_EQ(write(unsealed.get(), begin, sizeof(Board)), static_cast<ssize_t>(sizeof(Board)));
  EXPECT_THROW(SharedBoard(unsealed.get()), Error);
}

// ---- bells

TEST(Bell, WakesThoseWhoseBitsAreNamed) {
  const OwnBoard board(1);
  std::atomic<uint32_t> &bell = board->bells[3];
  std::atomic<uint32_t> awake = 0; // a bit of each
  std::vector<std::thread> threads;
  const auto until = steady_clock::now() + seconds(120);
  for (const uint32_t bit : {0U, 1U, 5U, 31U})
    threads.emplace_back([&, bit, seen = bell.load()] {
      sleep_on(bell, seen, 1U << bit, until);
      awake.fetch_or(1U << bit);
    });
  ASSERT_TRUE(wait_for_sleepers(bell, 4));
  EXPECT_EQ(ring(bell, 1U << 2), 0U);
  EXPECT_EQ(ring(board->bells[2], ~uint32_t{0}), 0U); // a bell of others
  EXPECT_EQ(sleepers(bell), 4);
  EXPECT_EQ(awake.load(), 0U);
  EXPECT_EQ(ring(bell, 1U << 5 | 1U << 7), 1U);
  threads[2].join();
  EXPECT_EQ(awake.load(), 1U << 5);
  EXPECT_EQ(ring(bell, 1U | 1U << 31), 2U);
  threads[0].join();
  threads[3].join();
  EXPECT_EQ(awake.load(), 1U | 1U << 5 | 1U << 31);
  EXPECT_EQ(sleepers(bell), 1);
  EXPECT_EQ(ring(bell, ~uint32_t{0}), 1U);
  threads[1].join();
  EXPECT_LT(steady_clock::now(), until); // none of them woke by its time
}

TEST(Bell, ARingBetweenTheLoadAndTheSleepEndsIt) {
  const OwnBoard board(1);
  const uint32_t seen = board->bells[0].load();
  EXPECT_EQ(ring(board->bells[0], 1U << 4), 0U); // also one for somebody else
  const auto until = steady_clock::now() + seconds(60);
  sleep_on(board->bells[0], seen, 1, until);
  EXPECT_LT(steady_clock::now(), until);
}

TEST(Bell, ASleepEndsAtItsTime) {
  const OwnBoard board(1);
  const SharedBoard shared(board.fd());
  for (const auto pause : {milliseconds(0), milliseconds(1), milliseconds(30)}) {
    const auto until = steady_clock::now() + pause;
    while (steady_clock::now() < until) // it may end early for no reason, as after a signal
      sleep_on(shared->changes, shared->changes.load(), ~uint32_t{0}, until);
    const auto before = steady_clock::now();
    sleep_on(shared->changes, shared->changes.load(), ~uint32_t{0}, until);
    EXPECT_LT(steady_clock::now() - before, seconds(60)); // its time is over already
  }
}

TEST(Bell, AnyTimeIsATime) {
  const OwnBoard board(1);
  EXPECT_NO_THROW(sleep_on(board->changes, 0, 1, steady_clock::time_point::min()));
  EXPECT_NO_THROW(sleep_on(board->changes, 0, 1, steady_clock::time_point() - milliseconds(1)));
  EXPECT_NO_THROW(sleep_on(board->changes, 1, 1, steady_clock::time_point::max())); // it is 0
}

TEST(Bell, WakesAnotherProcessThatCanOnlyRead) {
  const OwnBoard own(1);
  Child child([&](const rdmacommon::Link &) {
    const SharedBoard board(own.fd());
    const auto until = steady_clock::now() + seconds(120);
    while (board->is_over.load() == 0) {
      const uint32_t seen = board->bells[1].load();
      if (board->is_over.load() == 0)
        sleep_on(board->bells[1], seen, 1U << 9, until);
      if (steady_clock::now() >= until)
        throw Error("the child", "nobody has woken it");
    }
  });
  ASSERT_TRUE(wait_for_sleepers(own->bells[1], 1));
  EXPECT_EQ(ring(own->bells[1], ~(1U << 9)), 0U);
  own->is_over = 1;
  ring(own->bells[1], 1U << 9); // wakes none if the kernel lets the child look again at this time
  EXPECT_EQ(child.wait(seconds(60)), 0);
}

} // namespace
