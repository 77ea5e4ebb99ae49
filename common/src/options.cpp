#include "rdmacommon/options.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

namespace rdmacommon {
namespace {

/// Levenshtein's distance: how many letters to insert, delete or replace.
size_t distance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string nearest_option(const CLI::App &app, const std::string &wrong) {
  std::string nearest;
  for (const CLI::Option *option : app.get_options()) {
    const std::string name = option->get_name();
    if (nearest.empty() || distance(wrong, name) < distance(wrong, nearest))
      nearest = name;
  }
  return nearest;
}

} // namespace

DeviceOptions::DeviceOptions(CLI::App &app) {
  app.add_option("--device", device, "RDMA device [the first one with an active port]")
      ->type_name("NAME");
  app.add_option("--port", port, "port of the device, from 1 [the first active one]")
      ->type_name("N")
      ->check(CLI::Range(1, 255));
  app.add_option("--gid-index", gid_index, "index into the GID table [the best RoCEv2 one]")
      ->type_name("N")
      ->check(CLI::Range(0, 65535));
}

PairOptions::PairOptions(CLI::App &app) : DeviceOptions(app) {
  // CLI11 reads numbers, not durations.
  const auto add_seconds = [&app](const char *name, std::chrono::seconds &value, const char *what) {
    app.add_option_function<int>(
           name, [&value](int seconds) { value = std::chrono::seconds(seconds); },
           std::string(what) + " [" + std::to_string(value.count()) + "]")
        ->type_name("SECONDS")
        ->check(CLI::Range(1, 3600));
  };
  app.add_option("--host", host, "be the client of the server on this host [be the server]")
      ->type_name("NAME");
  app.add_option("--tcp-port", tcp_port,
                 "TCP port for the exchange of addresses [18515]; a server takes 0 for a free one")
      ->type_name("N");
  add_seconds("--timeout", timeout, "how long one step of the peer's may take");
  add_seconds("--wait", wait, "how long a server waits for a client");
}

void parse(CLI::App &app, int argc, char **argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError &) {
    const std::string wrong = app.remaining().front();
    throw CLI::ExtrasError(app.get_name(),
                           {wrong + " (did you mean " + nearest_option(app, wrong) + "?)"});
  } catch (const CLI::CallForHelp &) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  }
}

// [run-main]
int run_main(int argc, char **argv, void (*body)(int argc, char **argv)) {
  // A line at a time even into a pipe: whoever runs both sides sees them as they happen.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    body(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp &) {
    return 0;
  } catch (const CLI::ParseError &wrong_usage) {
    std::fprintf(stderr, "usage: %s\n", wrong_usage.what());
    return 2;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
// [run-main]

} // namespace rdmacommon
