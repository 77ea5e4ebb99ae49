// SPDX-License-Identifier: MIT
// One sender, and the workers that ask by it.
#pragma once

#include "client_options.hpp"
#include "worker_process.hpp"

#include <rdmashared/sender.hpp>

#include <cstdint>
#include <vector>

namespace shared_client {

class Round {
public:
  // Forks the workers.
  // @param wanted  outlives it
  // @param largest 0: responses come in the slots
  Round(const ClientOptions &wanted, uint32_t largest);

  // Connects, lets the workers ask, and prints what came of it; with --serve until SIGTERM.
  void run();

private:
  void say_that_it_is_up(const rdmashared::Sender &sender) const;
  void serve(const rdmashared::Sender &sender);
  void measure(rdmashared::Sender &sender);
  Score run_workers(rdmashared::Sender &sender);

  const ClientOptions &wanted_;
  rdmashared::SenderOptions options_;
  Load load_;
  std::vector<WorkerProcess> workers_;
};

void print(const Score &score);

} // namespace shared_client
