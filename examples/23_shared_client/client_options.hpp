// SPDX-License-Identifier: MIT
// The command line of shared_client.
#pragma once

#include "load.hpp"

#include <rdmashared/basics.hpp>
#include <rdmashared/sender.hpp>

#include <chrono>
#include <cstdint>
#include <string>

struct ClientOptions {
  rdmashared::SenderOptions sender;
  Load load;
  uint32_t processes = 4;
  rdmashared::Waiting waiting = rdmashared::Waiting::events; // the way workers wait
  std::string attach;
  bool is_to_serve = false, print_stats = false;
  bool in_slots = true, by_connection = true; // rounds in this order, by the way responses come
  uint32_t largest = 65536;                   // bytes of a response by a connection of their own
  uint32_t report = 0;                        // seconds
  std::chrono::seconds timeout{5};
};

// @throws Error if the words make no sense together
ClientOptions client_options(int argc, char **argv);
