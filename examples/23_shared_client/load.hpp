// SPDX-License-Identifier: MIT
// A worker's load: requests of the service in all the ways in which a Caller takes them, and each
// response checked.
#pragma once

#include "latencies.hpp"
#include "service.hpp"

#include <rdmashared/caller.hpp>

#include <chrono>
#include <cstdint>

struct Load {
  uint32_t threads = 2;
  uint32_t requests = 200; // for each thread
  uint32_t in_flight = 1;  // for each thread; 1: it waits for each response before it goes on
  uint32_t size = 32, response_size = 32; // bytes; with `is_mixed` at most
  // Responses come by the connection of their own; with `is_mixed` half of them.
  bool is_long = false;
  bool is_mixed = false;     // random lengths, all ways of asking, and some requests dropped
  uint32_t microseconds = 0; // the service's time for each request
  uint32_t seconds = 0;      // 0: `requests`; else as many as there is time for
  uint32_t every_us = 0;     // between two requests of a thread; 0: as soon as there is room
  uint32_t processes = 1;    // with such a timetable: their threads take turns
  bool is_timed = false;     // measures the time of each request
  bool is_patient = false;   // goes on after a request that failed
  std::chrono::milliseconds limit{5000};
  int server = -1; // an index into the sender's servers; -1: they take turns
};

struct Score {
  // Requests: answered, and failed with that Outcome.
  uint64_t right = 0, lost = 0, not_sent = 0, other = 0;
  Latencies latencies;

  void add(const Score &more);
};

// Runs it to its end, in as many threads as it wants. @throws Error if a response is wrong, or does
// not come
// @param process another number for each: its requests, and its place in the timetable
Score run_load(rdmashared::Caller &caller, const Load &load, uint32_t process);
