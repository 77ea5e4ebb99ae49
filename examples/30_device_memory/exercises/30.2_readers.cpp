// SPDX-License-Identifier: MIT
// Exercise 30.2 (★★★): a lock that several may have to read, or one to write.
// Wanted:   two readers get the lock at the same time. A writer gets it when both readers have
//           given it back. While the writer has it, no reader gets it.
// Hints: ./lab hint 30.2
// Check: ./lab check 30.2

#include "on_chip.hpp"
#include "remote_words.hpp"

#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>

using namespace rdmacommon;

namespace {

constexpr size_t lock = 0;
[[maybe_unused]] constexpr uint64_t one_reader = uint64_t{1} << 32;

// TODO: a reader takes the lock as a writer does.
bool try_read(RemoteWords &words, uint64_t me) {
  return words.compare_swap(lock, 0, me) == 0;
}

void end_read(RemoteWords &words, uint64_t me) {
  words.compare_swap(lock, me, 0);
}

bool try_write(RemoteWords &words, uint64_t me) {
  return words.compare_swap(lock, 0, me) == 0; // nobody writes, and nobody reads
}

// Not by WRITE: at the same time a reader may add its 1, and take it back.
void end_write(RemoteWords &words, uint64_t me) {
  words.fetch_add(lock, -me);
}

void exercise(int argc, char **argv) {
  CommandLine line{"Readers and writers."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  const unique_pd pd = alloc_pd(port.context.get());
  const OnChip chip(port, pd.get(), 4096, false);
  uint64_t result = 0;
  constexpr int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &result, sizeof result, access);
  const unique_cq cq = create_cq(port.context.get(), 1);
  const unique_qp qp = create_rc_qp(pd.get(), cq.get(), {.max_send_wr = 1, .max_send_sge = 1});
  connect_to_itself(qp.get(), port, IBV_ACCESS_REMOTE_ATOMIC);
  RemoteWords words(qp.get(), cq.get(), mr.get(), result, chip.share(), std::chrono::seconds(5));

  const auto say = [](const char *who, bool has_it) {
    std::printf("%s: %s\n", who, has_it ? "has the lock" : "has to wait");
  };
  say("reader 1", try_read(words, 1));
  say("reader 2", try_read(words, 2));
  say("writer 3", try_write(words, 3));
  end_read(words, 1);
  say("writer 3", try_write(words, 3));
  end_read(words, 2);
  say("writer 3", try_write(words, 3));
  say("reader 1", try_read(words, 1));
  end_write(words, 3);
  say("reader 1", try_read(words, 1));
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, exercise);
}
