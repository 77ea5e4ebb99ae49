// SPDX-License-Identifier: MIT
#include <rdmashared/metrics.hpp>

#include <gtest/gtest.h>

namespace rdmashared {
namespace {

TEST(Histogram, SaysWithinWhatTimeAPartWas) {
  Histogram times;
  EXPECT_EQ(times.within(0.5).count(), 0);
  times.buckets[3] = 98; // below 8 us
  times.buckets[10] = 2;
  EXPECT_EQ(times.count(), 100);
  EXPECT_EQ(times.within(0.5).count(), 8);
  EXPECT_EQ(times.within(0.98).count(), 8);
  EXPECT_EQ(times.within(0.99).count(), 1024);
  EXPECT_EQ(times.within(1).count(), 1024);
}

TEST(Metrics, OfOneNameStandTogether) {
  Metrics metrics;
  metrics.add("up", "Whether.", Metrics::Type::gauge, 1, Metrics::label("server", "a"));
  metrics.add("all_total", "How many.", Metrics::Type::counter, 1e15);
  metrics.add("up", "", Metrics::Type::gauge, 0, Metrics::label("server", "b\"\\\n"));
  EXPECT_EQ(metrics.prometheus(), "# HELP rdmashared_up Whether.\n"
                                  "# TYPE rdmashared_up gauge\n"
                                  "rdmashared_up{server=\"a\"} 1\n"
                                  "rdmashared_up{server=\"b\\\"\\\\\\n\"} 0\n"
                                  "# HELP rdmashared_all_total How many.\n"
                                  "# TYPE rdmashared_all_total counter\n"
                                  "rdmashared_all_total 1e+15\n");
  EXPECT_EQ(metrics.value("up", "server=\"a\""), 1);
  EXPECT_EQ(metrics.value("nothing"), 0);
}

TEST(Metrics, HistogramsAreCumulative) {
  Metrics metrics;
  Histogram times;
  times.buckets[0] = 1;
  times.buckets[1] = 2;
  times.buckets[24] = 4; // longer than all others
  times.microseconds = 1'500'000;
  metrics.add("work_seconds", "Of work.", times);
  const std::string text = metrics.prometheus();
  EXPECT_TRUE(text.starts_with("# HELP rdmashared_work_seconds Of work.\n"
                               "# TYPE rdmashared_work_seconds histogram\n"
                               "rdmashared_work_seconds_bucket{le=\"1e-06\"} 1\n"
                               "rdmashared_work_seconds_bucket{le=\"2e-06\"} 3\n"
                               "rdmashared_work_seconds_bucket{le=\"4e-06\"} 3\n"))
      << text;
  EXPECT_TRUE(text.ends_with("rdmashared_work_seconds_bucket{le=\"+Inf\"} 7\n"
                             "rdmashared_work_seconds_sum 1.5\n"
                             "rdmashared_work_seconds_count 7\n"))
      << text;
}

} // namespace
} // namespace rdmashared
