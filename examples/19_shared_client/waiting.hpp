// How one waits, for a response or for a completion.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace shared_client {

// By looking again and again, asleep, or for a moment the one and then the other.
enum class Waiting { poll, events, spin };
constexpr std::chrono::microseconds spin_time(50);

// For the command line.
inline const std::vector<std::string> waiting_names = {"poll", "events", "spin"};
inline Waiting waiting_of(const std::string &name) {
  return name == "poll" ? Waiting::poll : name == "spin" ? Waiting::spin : Waiting::events;
}

// Whether a thread with nothing to do shall sleep. Of that thread alone.
class Patience {
public:
  explicit Patience(Waiting how) : how_(how) {}

  // @param was_busy whether there was something to do since the last call
  bool is_at_its_end(bool was_busy) {
    if (how_ != Waiting::spin)
      return how_ == Waiting::events && !was_busy;
    const auto now = std::chrono::steady_clock::now();
    if (was_busy)
      last_busy_ = now;
    return now - last_busy_ >= spin_time;
  }

private:
  const Waiting how_;
  std::chrono::steady_clock::time_point last_busy_ = std::chrono::steady_clock::now();
};

} // namespace shared_client
