// SPDX-License-Identifier: MIT
// Builds an event's line and writes it: one write to a file opened for appending, so that several
// processes share the file, and a process that dies loses nothing.

#include "event.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trace {
namespace {

constexpr int out_of_the_way = 900; // programs that close descriptors close the low ones
thread_local const Event *innermost = nullptr;

int open_file() {
  const char *path = std::getenv("VERBS_TRACE");
  if (!path || !*path)
    return -1;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    std::fprintf(stderr, "verbs-trace: %s: %s\n", path, std::strerror(errno));
    return -1;
  }
  const int high = fcntl(file, F_DUPFD_CLOEXEC, out_of_the_way);
  if (high < 0) // a low limit on descriptors (ulimit -n)
    return file;
  close(file);
  return high;
}

int file() {
  static const int descriptor = open_file();
  return descriptor;
}

// Before the program can change its folder or its user.
[[maybe_unused]] const int opened_at_load = file();

std::uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

std::string quoted(const std::string &text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      json += '\\';
    if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte > 0x7e)
      json += print("\\u%04x", byte);
    else
      json += c;
  }
  return json + '"';
}

} // namespace

bool on() {
  return file() >= 0;
}

std::string print(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

Json &Json::raw(const char *key, const std::string &json) {
  members_ += (members_.empty() ? "\"" : ",\"") + std::string(key) + "\":" + json;
  return *this;
}

Json &Json::number(const char *key, std::uint64_t value) {
  return raw(key, std::to_string(value));
}
Json &Json::flag(const char *key, bool value) {
  return raw(key, value ? "true" : "false");
}
Json &Json::string(const char *key, const std::string &value) {
  return raw(key, quoted(value));
}

// libibverbs does some of its verbs by calling others of the same name, which is nobody's business.
Event::Event(const char *call)
    : call_(call), outer_(innermost),
      forgotten_(!on() || (outer_ && !std::strcmp(call, outer_->call_))) {
  innermost = this;
  start();
}

// Without an end the call did not return: its thread was cancelled in it, as rping does.
Event::~Event() {
  innermost = outer_;
  if (!forgotten_) {
    if (!ended_) {
      ended();
      failed_ = true;
      result_ = "did not return";
    }
    quietly([this] { write_line(); });
  }
  if (ended_)
    errno = errno_;
}

void Event::write_line() const {
  std::uint64_t depth = 0;
  for (const Event *around = outer_; around; around = around->outer_)
    ++depth;
  Json line;
  line.number("pid", static_cast<std::uint64_t>(getpid()))
      .number("tid", static_cast<std::uint64_t>(syscall(SYS_gettid)))
      .number("begin", begin_)
      .number("end", end_)
      .number("depth", depth)
      .string("call", call_)
      .string("text", text_)
      .string("result", result_)
      .flag("failed", failed_);
  const std::string more = json_.object();
  std::string text = line.object();
  if (more.size() > 2)
    text.replace(text.size() - 1, 1, "," + more.substr(1));
  text += '\n';
  // Not by write(), which tcp.cpp records. On a full disk there is no trace.
  syscall(SYS_write, file(), text.data(), text.size());
}

std::uint64_t Event::outermost() {
  const Event *event = innermost;
  while (event && event->outer_)
    event = event->outer_;
  return event ? event->begin_ : 0;
}

void Event::start() {
  if (!forgotten_)
    begin_ = now();
}

void Event::ended() {
  errno_ = errno;
  ended_ = true;
  if (!forgotten_)
    end_ = now();
}

void Event::fail(int error) {
  failed_ = true;
  // Not strerror(), which speaks the language that the program chose.
  const char *name = strerrorname_np(error), *description = strerrordesc_np(error);
  result([&] { return name ? print("%s %s", name, description) : print("error %d", error); });
}

void Event::failed_with_errno() {
  ended();
  fail(errno_);
}

int Event::errno_returned(int error) {
  ended();
  if (error) // some providers return it negated, or -1 and set errno
    fail(error == -1 && errno_ ? errno_ : std::abs(error));
  return error;
}

int Event::minus_one(int status) {
  status < 0 ? failed_with_errno() : ended();
  return status;
}

int Event::negative(int count) {
  ended();
  if (count < 0) {
    failed_ = true;
    result([&] { return print("%d", count); });
  }
  return count;
}

} // namespace trace
