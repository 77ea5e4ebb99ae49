// SPDX-License-Identifier: MIT
/// @file
/// The figures of a Sender or a Server, as text for a person, or for Prometheus.
///
///     const rdmashared::Metrics metrics = sender.metrics(); // or those of a Server
///     const std::string for_a_person = metrics.text();
///     const std::string for_prometheus = metrics.prometheus();
///
/// Written out in lesson 27_in_production.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rdmashared {

/// Counts of how long something took.
struct Histogram {
  /// Bucket i counts the times from 2^(i-1) to below 2^i microseconds; bucket 0 counts shorter
  /// ones, and the last bucket all longer ones, too.
  std::array<uint64_t, 25> buckets{};
  uint64_t microseconds = 0; ///< The sum of all times.

  uint64_t count() const; ///< The sum of all buckets.
  /// A percentile.
  /// @param part 0 to 1: 0.5 for the median, which half of the times do not exceed
  /// @return a power of two, so up to twice as long; 0 if there are none
  std::chrono::microseconds within(double part) const;
};

/// The figures of a Sender or a Server at one moment. Each has a name, and labels that tell it from
/// others of this name.
class Metrics {
public:
  /// The kind of a figure, as Prometheus has it.
  enum class Type {
    gauge,   ///< A value that goes up and down.
    counter, ///< A count that only grows.
  };

  /// Adds a figure: those of the library, and yours if you want them in the same text.
  /// @param name   as Prometheus has them: "requests_total"
  /// @param help   what it is, in one line; that of the first figure of this name is used
  /// @param labels as `server="10.77.0.1",lane="0"`; label() makes one
  void add(std::string_view name, std::string_view help, Type type, double value,
           std::string labels = "");
  /// Adds a histogram.
  /// @param name ends in "_seconds"
  void add(std::string_view name, std::string_view help, const Histogram &histogram);
  /// A label, with what Prometheus wants before quotes and backslashes.
  static std::string label(std::string_view name, std::string_view value);

  /// A figure.
  /// @return 0 if there is none
  double value(std::string_view name, std::string_view labels = "") const;

  /// All figures, one in a line; of a histogram, times that half, 99 %, and all do not exceed.
  std::string text() const;
  /// All figures in Prometheus' text format, version 0.0.4. Names begin with "rdmashared_".
  std::string prometheus() const;

private:
  struct Figure {
    std::string labels;
    double value;
  };
  struct Family {
    std::string name, help;
    Type type;
    std::vector<Figure> figures;
    std::vector<Histogram> histograms; // one, or none
  };
  Family &family(std::string_view name, std::string_view help, Type type);

  std::vector<Family> families_;
};

} // namespace rdmashared
