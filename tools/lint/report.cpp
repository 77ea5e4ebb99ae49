// SPDX-License-Identifier: MIT
// Writes findings, as text or as JSON: each by one write(), so that several processes share a file.

#include "report.hpp"

#include "tracked.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <set>
#include <sys/syscall.h>
#include <unistd.h>

namespace lint {
namespace {

std::mutex mutex;
[[maybe_unused]] const int at_fork =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
Severity worst = Severity::note;

bool json_on_stderr() {
  static const bool it = [] {
    const char *where = std::getenv("RDMALINT_JSON");
    return where && std::string(where) == "stderr";
  }();
  return it;
}

int json_file() {
  static const int file = [] {
    const char *path = std::getenv("RDMALINT_JSON");
    if (!path || !*path || json_on_stderr())
      return -1;
    const int low = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (low < 0)
      std::fprintf(stderr, "rdmalint: %s: %m\n", path);
    const int high = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 900); // programs close low ones
    if (high < 0)
      return low;
    close(low);
    return high;
  }();
  return file;
}

[[maybe_unused]] const int opened_at_load = json_file(); // before a program changes its folder

// Not by write(), which the tracer records.
void put(int file, const std::string &text) {
  syscall(SYS_write, file, text.data(), text.size());
}

std::string quoted(const std::string &text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      json += '\\';
    json += byte < 0x20 || byte > 0x7e ? print("\\u%04x", byte) : std::string(1, c);
  }
  return json + '"';
}

const char *word(Severity severity) {
  return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "note";
}

std::string text_of(const char *heading, const Site &site) {
  std::string text;
  for (const Frame &frame : frames_of(site)) {
    text += print("  %-10s", text.empty() ? heading : "") +
            (frame.symbol.empty() ? "" : frame.symbol + " ") + "(" + frame.module +
            print("+0x%llx)\n", static_cast<unsigned long long>(frame.offset));
  }
  return text;
}

// Whether this rule was reported at this place before.
bool known(const Rule &rule, const Site &at, const std::string &object) {
  static auto &seen = *new std::set<std::string>;
  std::string key = rule.name;
  const auto frames = frames_of(at);
  for (std::size_t i = 0; i < std::min<std::size_t>(frames.size(), 3); ++i)
    key += print(" %llx", static_cast<unsigned long long>(frames[i].offset));
  if (frames.empty() || &rule == &rules::leak)
    key += object;
  return !seen.insert(key).second;
}

} // namespace

std::string json_of(const Site &site) {
  std::string json;
  for (const Frame &frame : frames_of(site))
    json += (json.empty() ? "[" : ",[") + quoted(frame.module) + "," +
            std::to_string(frame.offset) + "," + quoted(frame.symbol) + "]";
  return "[" + json + "]";
}

std::string print(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

void report(const Rule &rule, const std::string &what, const std::string &object,
            const History &history, const Site *at) {
  const Own own;
  const Site here = at ? *at : Site::here();
  const std::lock_guard lock(mutex);
  if (known(rule, here, object))
    return;
  worst = std::max(worst, rule.severity);
  if (json_on_stderr() || json_file() >= 0) {
    std::string past;
    for (const auto &[event, site] : history)
      past += (past.empty() ? "[" : ",[") + quoted(event) + "," + json_of(site) + "]";
    const std::string line = "{\"rule\":" + quoted(rule.name) +
                             ",\"severity\":" + quoted(word(rule.severity)) +
                             print(",\"pid\":%d", getpid()) + ",\"what\":" + quoted(what) +
                             ",\"object\":" + quoted(object) + ",\"at\":" + json_of(here) +
                             ",\"history\":[" + past + "]}\n";
    json_on_stderr() ? put(STDERR_FILENO, "rdmalint-json " + line) : put(json_file(), line);
    return;
  }
  std::string text = print("rdmalint: %s: %s: ", word(rule.severity), rule.name) + what + "\n";
  text += "  object    " + object + "\n" + text_of("at", here);
  for (const auto &[event, site] : history)
    text += text_of(event.c_str(), site);
  text += std::string("  why       ") + rule.why + "\n  read      lessons/" + rule.read + "\n";
  put(STDERR_FILENO, text);
}

void fact(const std::string &kind, const std::string &members) {
  if (!json_on_stderr() && json_file() < 0)
    return;
  const std::string line =
      "{\"fact\":" + quoted(kind) + print(",\"pid\":%d,", getpid()) + members + "}\n";
  json_on_stderr() ? put(STDERR_FILENO, "rdmalint-json " + line) : put(json_file(), line);
}

void end_by_severity() {
  const char *status = std::getenv("RDMALINT_EXIT");
  if (status && *status && worst > Severity::note)
    _exit(std::atoi(status));
}

} // namespace lint
