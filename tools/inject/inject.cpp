// SPDX-License-Identifier: MIT
// The rules, the counters, the list of calls, and the objects that a program has not ended.
//
// A forked child counts from 1 again and has a number of its own: the second child of the first
// process is process 1.2.

#include "inject.hpp"

#include "object_registry.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <map>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

namespace inject {
namespace {

constexpr int out_of_the_way = 890; // programs that close descriptors close the low ones
constexpr std::size_t most_frames = 32;

struct Rule {
  std::string process = "1", function;
  unsigned long number = 0; // counted from 1; 0 if there is a path
  std::uint64_t path = 0;
  Verdict verdict{.fails = true};
  bool is_done = false; // under lock_of_all()
};

struct Object {
  const char *made_by;
  pid_t process;
};

// All of it is made when the library is loaded, and never destroyed: programs destroy verbs objects
// while they exit.
struct State {
  bool active = false;
  int list = -1; // a file descriptor
  std::vector<Rule> rules;
  std::string process = "1";
  std::atomic<unsigned> forks{0};
  // Under lock_of_all().
  std::map<std::string, unsigned long> counted;
  std::unordered_map<const void *, Object> objects;
  std::unordered_map<const void *, std::uint64_t> frames; // return address -> its hash
};

State &state() {
  static auto &state = *new State;
  return state;
}

thread_local int depth = 0;

void say(const std::string &text) {
  const std::string line = "verbs-inject: " + text + "\n";
  // One write, so that lines of several processes do not mix.
  syscall(SYS_write, STDERR_FILENO, line.data(), line.size());
}

constexpr std::array statuses = {
    "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
    "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
    "RESP_TIMEOUT_ERR", "GENERAL_ERR",
};

[[noreturn]] void refuse(const std::string &rule, const char *why) {
  say("VERBS_INJECT=" + rule + ": " + why);
  _exit(2);
}

void choose(const std::string &how, Rule &rule, const std::string &text) {
  Verdict &verdict = rule.verdict;
  const bool events = rule.function == "ibv_get_cq_event" || rule.function == "rdma_get_cm_event";
  const bool completions = rule.function == "ibv_poll_cq" || rule.function == "ibv_start_poll" ||
                           rule.function == "ibv_next_poll";
  if (how == "lost" || how == "delayed") {
    if (!events)
      refuse(text, "only an event can be lost or delayed");
    verdict.how = how == "lost" ? How::lost : How::delayed;
    return;
  }
  if (completions && how == "negative") {
    verdict.how = How::negative;
    return;
  }
  for (std::size_t i = 1; completions && i < statuses.size(); ++i)
    if (how == statuses[i]) {
      verdict.how = How::completion;
      verdict.status = static_cast<ibv_wc_status>(i);
      return;
    }
  for (int error = 1; !completions && error < 200; ++error)
    if (const char *name = strerrorname_np(error); name && how == name) {
      verdict.error = error;
      return;
    }
  refuse(text, completions ? "not \"negative\", nor a completion's status such as RETRY_EXC_ERR"
                           : "no error number has this name");
}

// [PROCESS/]FUNCTION:N[:HOW], or @PATH for :N
Rule parse(const std::string &text) {
  Rule rule;
  std::string rest = text;
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    rule.process = rest.substr(0, slash);
    rest.erase(0, slash + 1);
  }
  const auto mark = rest.find_first_of(":@");
  rule.function = rest.substr(0, mark);
  if (mark == std::string::npos)
    refuse(text, "a rule is FUNCTION:N or FUNCTION:N:HOW");
  char *end = nullptr;
  const char *which = rest.c_str() + mark + 1;
  if (rest[mark] == '@')
    rule.path = std::strtoull(which, &end, 16);
  else
    rule.number = std::strtoul(which, &end, 10);
  if (end == which || (!rule.number && !rule.path) || (*end && *end != ':'))
    refuse(text, "N is a number, counted from 1, and a path is one that VERBS_INJECT_LIST names");
  if (*end)
    choose(end + 1, rule, text);
  return rule;
}

int open_list(const char *path) {
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    say(std::string(path) + ": " + std::strerror(errno));
    return -1;
  }
  const int high = fcntl(file, F_DUPFD_CLOEXEC, out_of_the_way);
  if (high < 0) // a low limit on descriptors (ulimit -n)
    return file;
  close(file);
  return high;
}

// In the child there is one thread, and the lock is none of this handler's business.
void renumber() {
  State &its = state();
  its.process += "." + std::to_string(its.forks.load());
  its.forks = 0;
  its.counted.clear();
}

void read_environment() {
  const char *rules = std::getenv("VERBS_INJECT"), *list = std::getenv("VERBS_INJECT_LIST");
  if (!rules && !list)
    return;
  // A program that this one starts by exec() inherits the environment and is another program.
  const std::string self = std::to_string(getpid());
  if (const char *first = std::getenv("VERBS_INJECT_PROCESS"); first && self != first)
    return;
  setenv("VERBS_INJECT_PROCESS", self.c_str(), 1);
  State &its = state();
  its.active = true;
  if (list && *list)
    its.list = open_list(list);
  const std::string text = rules ? rules : "";
  for (std::size_t begin = 0; begin < text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    its.rules.push_back(parse(text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  pthread_atfork([] { ++state().forks; }, nullptr, renumber);
}

[[gnu::constructor]] void load() {
  const int before = errno;
  read_environment();
  errno = before;
}

[[gnu::destructor]] void unload() {
  State &its = state();
  if (!its.active)
    return;
  std::map<std::string, int> left;
  {
    const std::lock_guard lock(preload::lock_of_all());
    for (const auto &[object, its_own] : its.objects)
      if (its_own.process == getpid())
        ++left[its_own.made_by];
  }
  for (const auto &[made_by, number] : left)
    say("left open: " + std::to_string(number) + " made by " + made_by);
}

std::uint64_t mix(std::uint64_t hash, const void *data, std::size_t size) { // FNV-1a
  for (std::size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<const unsigned char *>(data)[i]) * 0x100000001b3;
  return hash;
}

const void *own_base() {
  Dl_info own{};
  dladdr(reinterpret_cast<const void *>(&own_base), &own);
  return own.dli_fbase;
}

// Hashes a frame's place in its library or program. The address differs from run to run.
std::uint64_t hash_of(const void *frame) {
  static const void *const ours = own_base();
  Dl_info found{};
  // One byte back: the return address may be in the next function.
  if (!dladdr(static_cast<const char *>(frame) - 1, &found) || found.dli_fbase == ours)
    return 0;
  const char *file = std::strrchr(found.dli_fname, '/');
  file = file ? file + 1 : found.dli_fname;
  const auto offset = static_cast<const char *>(frame) - static_cast<const char *>(found.dli_fbase);
  return mix(mix(0xcbf29ce484222325, file, std::strlen(file)), &offset, sizeof offset);
}

// One number for the place of a call: all return addresses up to main().
std::uint64_t path_of_call() {
  void *frames[most_frames];
  const int count = backtrace(frames, most_frames);
  std::uint64_t path = 0xcbf29ce484222325;
  const std::lock_guard lock(preload::lock_of_all());
  for (int i = 0; i < count; ++i) {
    const auto [known, is_new] = state().frames.try_emplace(frames[i], 0);
    if (is_new)
      known->second = hash_of(frames[i]);
    if (known->second)
      path = mix(path, &known->second, sizeof known->second);
  }
  return path;
}

// The first call on a path is meant, and no other.
bool is_meant(Rule &rule, unsigned long number, std::uint64_t path) {
  if (!rule.path)
    return rule.number == number;
  const std::lock_guard lock(preload::lock_of_all());
  return rule.path == path && !std::exchange(rule.is_done, true);
}

} // namespace

bool active() {
  return state().active;
}

const char *name_of(int error) {
  const char *name = strerrorname_np(error);
  return name ? name : "an unknown error";
}

const char *name_of(ibv_wc_status status) {
  return status < statuses.size() ? statuses[status] : "an unknown status";
}

Call::Call(const char *function) : function_(function), outermost_(depth++ == 0) {}

Call::~Call() {
  --depth;
}

Verdict Call::count(int default_error) {
  State &its = state();
  if (!its.active || !outermost_)
    return {};
  const int before = errno;
  bool want_path = its.list >= 0;
  {
    const std::lock_guard lock(preload::lock_of_all());
    number_ = ++its.counted[function_];
    for (const Rule &rule : its.rules)
      want_path |= rule.path && !rule.is_done && rule.function == function_;
  }
  const std::uint64_t path = want_path ? path_of_call() : 0;
  if (its.list >= 0) {
    char line[256];
    const int length = std::snprintf(line, sizeof line, "%s %s %lu %016llx\n", its.process.c_str(),
                                     function_, number_, static_cast<unsigned long long>(path));
    syscall(SYS_write, its.list, line, static_cast<std::size_t>(length));
  }
  errno = before;
  for (Rule &rule : its.rules)
    if (rule.function == function_ && rule.process == its.process &&
        is_meant(rule, number_, path)) {
      Verdict verdict = rule.verdict;
      if (!verdict.error)
        verdict.error = default_error;
      return verdict;
    }
  return {};
}

void Call::report(const char *what) const {
  const int before = errno;
  const std::string &process = state().process;
  say((process == "1" ? "" : "process " + process + ", ") + function_ + ", call " +
      std::to_string(number_) + ": " + what);
  errno = before;
}

void Call::made(const void *object) const {
  if (!active() || !outermost_)
    return;
  const int before = errno;
  const std::lock_guard lock(preload::lock_of_all());
  state().objects[object] = {function_, getpid()};
  errno = before;
}

void Call::ended(const void *object) const {
  if (!active() || !outermost_)
    return;
  const int before = errno;
  const std::lock_guard lock(preload::lock_of_all());
  state().objects.erase(object);
  errno = before;
}

} // namespace inject
