// SPDX-License-Identifier: MIT
// The five error conventions, and what an Error says.
#include <rdmacommon/check.hpp>
#include <rdmacommon/processes.hpp>
#include <rdmacommon/work_queues.hpp>

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <string>

using namespace rdmacommon;

namespace {

std::string message_of(const std::function<void()> &call) {
  try {
    call();
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != text.npos;
}

TEST(Check, NullPointerTellsErrno) {
  const std::string text = message_of([] {
    errno = EFAULT;
    check_ptr(static_cast<ibv_mr *>(nullptr), "ibv_reg_mr");
  });
  EXPECT_TRUE(contains(text, "ibv_reg_mr: Bad address, EFAULT")) << text;
  EXPECT_TRUE(contains(text, "hint: ")) << text;
  EXPECT_TRUE(contains(text, "#registration-refused")) << text;
}

// In a process of its own, whose pages get other rights in turn until 97.5 % of the mappings are in
// use. The rest is for the allocator: that of the sanitizers maps memory for most sizes. For a user
// that may lock too little memory, see tests/faults/test_wrong_choices.py.
TEST(Check, NoMemoryMayMeanNoMappings) {
  std::ptrdiff_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  if (most > 300'000)
    GTEST_SKIP() << "vm.max_map_count is " << most;
  const auto reason = [] { return message_of([] { throw_errno(ENOMEM, "ibv_create_cq"); }); };
  EXPECT_FALSE(contains(reason(), "max_map_count")) << reason();
  const pid_t child = fork();
  if (child == 0) {
    constexpr std::size_t page = 4096;
    const auto length = static_cast<std::size_t>(most - most / 40) * page;
    auto *const area = static_cast<char *>(
        mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t at = page; at < length; at += 2 * page)
      mprotect(area + at, page, PROT_READ);
    const std::string text = reason();
    munmap(area, length);
    _exit(contains(text, "max_map_count") ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Check, ValidPointerIsHandedOn) {
  int object = 0;
  EXPECT_EQ(check_ptr(&object, "call"), &object);
}

TEST(Check, FunctionOfTheLibraryNamesTheLineOfItsCaller) {
  const int line = __LINE__ + 1;
  const std::string text = message_of([] { Link().send(""); });
  EXPECT_TRUE(contains(text, "(test_check.cpp:" + std::to_string(line) + ")")) << text;
}

TEST(Check, WorkQueuesNameTheLineOfTheirCaller) {
  SendQueue queue(nullptr, 1);
  queue.add({});
  const int line = __LINE__ + 1;
  const std::string text = message_of([&] { queue.add({}); });
  EXPECT_TRUE(contains(text, "(test_check.cpp:" + std::to_string(line) + ")")) << text;
}

TEST(Check, ReturnedErrnoInEachOfItsForms) {
  EXPECT_EQ(message_of([] { check_rc(0, "call"); }), "no error");
  EXPECT_TRUE(contains(message_of([] { check_rc(EBUSY, "call"); }), "EBUSY"));
  EXPECT_TRUE(contains(message_of([] { check_rc(-EBUSY, "call"); }), "EBUSY"));
  EXPECT_TRUE(contains(message_of([] {
                         errno = EACCES;
                         check_rc(-1, "call");
                       }),
                       "EACCES"));
}

TEST(Check, MinusOneAndErrno) {
  EXPECT_EQ(check_errno(7, "call"), 7);
  EXPECT_TRUE(contains(message_of([] {
                         errno = ECONNREFUSED;
                         check_errno(-1, "connect to server");
                       }),
                       "#connection-refused"));
}

TEST(Check, NegativeCountOnly) {
  EXPECT_EQ(check_count(0, "ibv_poll_cq"), 0);
  EXPECT_EQ(check_count(3, "ibv_poll_cq"), 3);
  EXPECT_TRUE(contains(message_of([] { check_count(-1, "ibv_poll_cq"); }), "ibv_poll_cq"));
}

TEST(Check, CompletionStatus) {
  ibv_wc completion{};
  completion.status = IBV_WC_SUCCESS;
  EXPECT_EQ(message_of([&] { check_wc(completion, "the SEND"); }), "no error");
  completion.status = IBV_WC_RNR_RETRY_EXC_ERR;
  const std::string text = message_of([&] { check_wc(completion, "the SEND"); });
  EXPECT_TRUE(contains(text, "the SEND: completed with status 13, RNR retry counter exceeded"))
      << text;
  EXPECT_TRUE(contains(text, "#rnr-retry")) << text;
}

TEST(Check, NamesTheCallersLine) {
  const int line = __LINE__ + 1;
  const std::string text = message_of([] { check_rc(EBUSY, "call"); });
  EXPECT_TRUE(contains(text, "(test_check.cpp:" + std::to_string(line) + ")")) << text;
}

TEST(Check, HintBelongsToTheTransition) {
  const auto hint_of = [](const char *call) {
    return message_of([call] { check_rc(EINVAL, call); });
  };
  EXPECT_TRUE(contains(hint_of("ibv_modify_qp(RTR)"), "#rtr-einval"));
  EXPECT_TRUE(contains(hint_of("ibv_modify_qp(INIT)"), "#modify-qp-einval"));
  EXPECT_TRUE(contains(hint_of("ibv_fork_init"), "#after-fork"));
  EXPECT_TRUE(contains(hint_of("ibv_post_recv"), "#post-einval"));
}

} // namespace
