// SPDX-License-Identifier: MIT
// Layer: API. The figures of both ends as text.
#include "rdmashared/metrics.hpp"

#include "ring_connection.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

namespace rdmashared {
namespace {

std::string digits(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

std::string in_braces(const std::string &labels) {
  return labels.empty() ? "" : "{" + labels + "}";
}

} // namespace

uint64_t Histogram::count() const {
  return std::accumulate(buckets.begin(), buckets.end(), uint64_t{0});
}

std::chrono::microseconds Histogram::within(double part) const {
  const auto all = static_cast<double>(count());
  double so_far = 0;
  for (size_t i = 0; i < buckets.size() && all > 0; ++i)
    if ((so_far += static_cast<double>(buckets.at(i))) >= part * all && so_far > 0)
      return std::chrono::microseconds(uint64_t{1} << i);
  return std::chrono::microseconds(0);
}

Metrics::Family &Metrics::family(std::string_view name, std::string_view help, Type type) {
  const auto it = std::ranges::find(families_, name, &Family::name);
  if (it != families_.end())
    return *it;
  return families_.emplace_back(Family{std::string(name), std::string(help), type, {}, {}});
}

void Metrics::add(std::string_view name, std::string_view help, Type type, double value,
                  std::string labels) {
  family(name, help, type).figures.push_back({std::move(labels), value});
}

void Metrics::add(std::string_view name, std::string_view help, const Histogram &histogram) {
  family(name, help, Type::counter).histograms.push_back(histogram);
}

std::string Metrics::label(std::string_view name, std::string_view value) {
  std::string text = std::string(name) + "=\"";
  for (const char c : value)
    text += c == '\n' ? "\\n" : c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return text + '"';
}

double Metrics::value(std::string_view name, std::string_view labels) const {
  for (const Family &each : families_)
    for (const Figure &figure : each.figures)
      if (each.name == name && figure.labels == labels)
        return figure.value;
  return 0;
}

std::string Metrics::text() const {
  std::string text;
  for (const Family &each : families_) {
    for (const Figure &figure : each.figures)
      text += each.name + in_braces(figure.labels) + ' ' + digits(figure.value) + '\n';
    for (const Histogram &histogram : each.histograms)
      text += each.name + ": half within " + std::to_string(histogram.within(0.5).count()) +
              " us, 99 % within " + std::to_string(histogram.within(0.99).count()) +
              " us, all within " + std::to_string(histogram.within(1).count()) + " us, of " +
              std::to_string(histogram.count()) + " that were timed\n";
  }
  return text;
}

void add_to(Metrics &metrics, std::span<const Stats *const> stats, std::string_view waited,
            std::string_view took) {
  using enum Metrics::Type;
  Histogram all_waited, all_took;
  Counts all;
  std::array<uint64_t, std::tuple_size_v<decltype(Stats::outcomes)>> outcomes{};
  for (const Stats *each : stats) {
    each->waited.add_to(all_waited);
    each->took.add_to(all_took);
    add(all, *each);
    for (size_t i = 0; i < outcomes.size(); ++i)
      outcomes.at(i) += each->outcomes.at(i);
  }
  const std::array<const char *, outcomes.size()> names{"response",  "refused", "lost",
                                                        "not_sent",  "expired", "answer_too_long",
                                                        "timed_out", "no_room"};
  for (size_t i = 0; i < outcomes.size(); ++i)
    metrics.add("requests_total", "Requests by their outcome.", counter,
                static_cast<double>(outcomes.at(i)), Metrics::label("outcome", names.at(i)));
  const auto add_counter = [&](const char *name, const char *help, uint64_t value) {
    metrics.add(name, help, counter, static_cast<double>(value));
  };
  add_counter("messages_total", "Requests, or answers, and pings, that were sent.", all.messages);
  add_counter("groups_total", "Groups that these went in.", all.groups);
  add_counter("completions_total", "Work completions that were polled.", all.completions);
  add_counter("wakes_total", "System calls that woke somebody.", all.wakes);
  add_counter("sleeps_total", "Sleeps of the threads that have the connections.", all.sleeps);
  add_counter("rnr_total", "Completions with receiver not ready; always 0.", all.rnr);
  metrics.add("wait_seconds", waited, all_waited);
  metrics.add("service_seconds", took, all_took);
}

std::string Metrics::prometheus() const {
  std::string text;
  for (const Family &each : families_) {
    const std::string name = "rdmashared_" + each.name;
    text += "# HELP " + name + ' ' + each.help + '\n';
    const char *type = !each.histograms.empty()     ? "histogram"
                       : each.type == Type::counter ? "counter"
                                                    : "gauge";
    text += "# TYPE " + name + ' ' + type + '\n';
    for (const Figure &figure : each.figures)
      text += name + in_braces(figure.labels) + ' ' + digits(figure.value) + '\n';
    for (const Histogram &histogram : each.histograms) {
      uint64_t so_far = 0;
      for (size_t i = 0; i + 1 < histogram.buckets.size(); ++i) {
        so_far += histogram.buckets.at(i);
        text += name + "_bucket{le=\"" + digits(std::ldexp(1e-6, static_cast<int>(i))) + "\"} " +
                std::to_string(so_far) + '\n';
      }
      text += name + "_bucket{le=\"+Inf\"} " + std::to_string(histogram.count()) + '\n';
      text += name + "_sum " + digits(static_cast<double>(histogram.microseconds) / 1e6) + '\n';
      text += name + "_count " + std::to_string(histogram.count()) + '\n';
    }
  }
  return text;
}

} // namespace rdmashared
