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
#include <set>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lint {
namespace {

std::mutex mutex;
Severity worst = Severity::note;
[[maybe_unused]] const int at_fork = [] {
  at_child([] { worst = Severity::note; }); // the findings were its parent's
  return 0;
}();

// A descriptor that the program cannot close or replace unnoticed.
struct Output {
  int file = -1;
  struct stat identity = {};

  // A copy of `low`, out of the way of programs that close the low ones.
  explicit Output(int low) : file(low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 900)) {
    if (file < 0)
      file = low; // a low limit on descriptors (ulimit -n)
    if (file >= 0)
      fstat(file, &identity);
  }

  // Not by write(), which the tracer records. Not if the program has put something else there.
  void put(const std::string &text) const {
    struct stat now = {};
    if (file >= 0 && !fstat(file, &now) && now.st_dev == identity.st_dev &&
        now.st_ino == identity.st_ino)
      syscall(SYS_write, file, text.data(), text.size());
  }
};

const Output &output() {
  static const Output out = [] {
    const char *path = std::getenv("RDMALINT_JSON");
    if (!path || !*path || std::string(path) == "stderr")
      return Output(STDERR_FILENO);
    const int low = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (low < 0)
      std::fprintf(stderr, "rdmalint: %s: %m\n", path);
    return Output(low);
  }();
  return out;
}

[[maybe_unused]] const Output &opened_at_load = output(); // before a program changes its folder

bool writes_json() {
  static const bool it = [] {
    const char *where = std::getenv("RDMALINT_JSON");
    return where && *where;
  }();
  return it;
}

void put_json(const std::string &line) {
  static const bool on_stderr = std::string(std::getenv("RDMALINT_JSON")) == "stderr";
  output().put(on_stderr ? "rdmalint-json " + line : line);
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

// The key of a rule at a place. libibverbs may make another call for the program's, and leave no
// frame of its own.
std::string key_of(const Rule &rule, const Site &at, const std::string &object) {
  std::string key = rule.name;
  for (int i = first_outside(at); i < at.depth; ++i)
    key += print(" %p", at.frames[static_cast<std::size_t>(i)]);
  return &rule == &rules::leak ? key + object : key;
}

// Returns true if this rule was reported at this place before.
bool known(const std::string &key) {
  static auto &seen = *new std::set<std::string>;
  return !seen.insert(key).second;
}

void write(const Rule &rule, const std::string &what, const std::string &object,
           const History &history, const Site &here) {
  const LibraryScope library_scope;
  const std::string key = key_of(rule, here, object);
  const std::lock_guard lock(mutex);
  if (known(key))
    return;
  worst = std::max(worst, rule.severity);
  if (writes_json()) {
    std::string past;
    for (const auto &[event, site] : history)
      past += (past.empty() ? "[" : ",[") + quoted(event) + "," + json_of(site) + "]";
    put_json("{\"rule\":" + quoted(rule.name) + ",\"severity\":" + quoted(word(rule.severity)) +
             print(",\"pid\":%d", getpid()) + ",\"what\":" + quoted(what) + ",\"object\":" +
             quoted(object) + ",\"at\":" + json_of(here) + ",\"history\":[" + past + "]}\n");
    return;
  }
  std::string text = print("rdmalint: %s: %s: ", word(rule.severity), rule.name) + what + "\n";
  text += "  object    " + object + "\n" + text_of("at", here);
  for (const auto &[event, site] : history)
    text += text_of(event.c_str(), site);
  text += std::string("  why       ") + rule.why + "\n  read      lessons/" + rule.read + "\n";
  output().put(text);
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
  without_lock([&rule, what, object, history, here = at ? *at : Site::here()] {
    write(rule, what, object, history, here);
  });
}

void fact(const std::string &kind, const std::string &members) {
  if (writes_json())
    put_json("{\"fact\":" + quoted(kind) + print(",\"pid\":%d,", getpid()) + members + "}\n");
}

void end_by_severity() {
  const char *status = std::getenv("RDMALINT_EXIT");
  if (!status || !*status || worst <= Severity::note)
    return;
  std::fflush(nullptr); // this runs before exit() does it
  _exit(std::atoi(status));
}

} // namespace lint
