// SPDX-License-Identifier: MIT
// Findings: what they say, and where they go.
//
// Environment:
//   RDMALINT_JSON   "stderr", or a file that is appended to: one line of JSON for each finding and
//                   fact, in place of the text on stderr. A line on stderr begins with
//                   "rdmalint-json ". ./lab lint reads them.
//   RDMALINT_EXIT   exit status of a program that has findings above a note (as a number)
#pragma once

#include "site.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lint {

enum class Severity { note, warning, error };

struct Rule {
  const char *name;
  Severity severity;
  const char *why;
  const char *read; // a file of lessons/, with a heading
};

namespace rules {
#define RULE(identifier, name, severity, why, read)                                                \
  inline constexpr Rule identifier{name, Severity::severity, why, read};
#include "rules.def"
#undef RULE
} // namespace rules

// Something that happened before: "posted", "made", "destroyed", and where.
using History = std::vector<std::pair<std::string, Site>>;

// Reports a finding of the current thread's call. The same rule at the same place is reported once.
//
// @param what    what is wrong here, with names and numbers
// @param object  the object that it is about, in words
// @param history what happened to the object, oldest first
// @param at      where; without it, the call that this thread is in
void report(const Rule &rule, const std::string &what, const std::string &object,
            const History &history = {}, const Site *at = nullptr);

// A line for ./lab lint, which compares the two sides: {"fact": kind, ...members}.
void fact(const std::string &kind, const std::string &members);

// The program's calls at `site`, as the JSON array that ./lab lint adds source lines to.
std::string json_of(const Site &site);

[[gnu::format(printf, 1, 2)]] std::string print(const char *format, ...);

// Ends the process with RDMALINT_EXIT if there were findings; else returns.
void end_by_severity();

} // namespace lint
