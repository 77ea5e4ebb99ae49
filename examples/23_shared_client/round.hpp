// SPDX-License-Identifier: MIT
// One sender, and the workers that send requests through it.
#pragma once

#include "client_options.hpp"
#include "worker_process.hpp"

#include <rdmashared/sender.hpp>

#include <cstdint>
#include <vector>

class Round {
public:
  // Forks the workers.
  // @param settings  outlives it
  // @param largest 0: responses come in the slots
  Round(const ClientOptions &settings, uint32_t largest);

  // Connects, lets the workers send requests, and prints what came of it; with --serve until
  // SIGTERM.
  void run();

private:
  void say_that_it_is_up(const rdmashared::Sender &sender) const;
  void serve(const rdmashared::Sender &sender);
  void measure(rdmashared::Sender &sender);
  Score run_workers(rdmashared::Sender &sender);

  const ClientOptions &settings_;
  rdmashared::SenderOptions options_;
  Load load_;
  std::vector<WorkerProcess> workers_;
};

void print(const Score &score);
