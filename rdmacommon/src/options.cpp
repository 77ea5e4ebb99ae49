// SPDX-License-Identifier: MIT
#include "rdmacommon/options.hpp"

#include "rdmacommon/check.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

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

CommandLine::CommandLine(const std::string &what) : app_(std::make_unique<CLI::App>(what)) {}

CommandLine::~CommandLine() = default;

void CommandLine::add(const std::string &name, std::string &value, const std::string &help,
                      size_t longest) {
  app_->add_option(name, value, help)->type_name("TEXT")->check([longest](const std::string &text) {
    return text.size() <= longest ? "" : "longer than " + std::to_string(longest) + " bytes";
  });
}

void CommandLine::add(const std::string &name, std::string &value, const std::string &help,
                      const std::vector<std::string> &choices) {
  app_->add_option(name, value, help)->check(CLI::IsMember(choices));
}

void CommandLine::add(const std::string &name, int &value, const std::string &help,
                      const std::vector<int> &choices) {
  app_->add_option(name, value, help)->type_name("N")->check(CLI::IsMember(choices));
}

void CommandLine::add(const std::string &name, bool &value, const std::string &help) {
  app_->add_flag(name, value, help);
}

void CommandLine::add(const std::string &name, std::chrono::seconds &value,
                      const std::string &help) {
  const std::string text = help + " [" + std::to_string(value.count()) + "]";
  add_number(name, text, 1, 3600, [&value](int64_t n) { value = std::chrono::seconds(n); });
  CLI::Option *const option = app_->get_option(name)->type_name("SECONDS");
  if (name == "--timeout")
    option->envname("RDMA_TIMEOUT");
}

void CommandLine::add_number(const std::string &name, const std::string &help, int64_t min,
                             uint64_t max, std::function<void(int64_t)> store) {
  const auto largest = static_cast<int64_t>(
      std::min(max, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
  app_->add_option_function<int64_t>(name, std::move(store), help)
      ->type_name("N")
      ->check(CLI::Range(min, largest));
}

void CommandLine::parse(int argc, char **argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ExtrasError &) {
    const std::string wrong = app_->remaining().front();
    throw CLI::ExtrasError(app_->get_name(),
                           {wrong + " (did you mean " + nearest_option(*app_, wrong) + "?)"});
  } catch (const CLI::CallForHelp &) {
    std::fputs(app_->help().c_str(), stdout);
    throw;
  }
}

void CommandLine::reject(const std::string &option, const std::string &why) const {
  throw CLI::ValidationError(option, why);
}

DeviceOptions::DeviceOptions(CommandLine &line) {
  line.add("--device", device, "RDMA device [the one with the best GID on an active port]");
  line.add("--port", port, "port of the device, from 1 [the active one with the best GID]", 1, 255);
  // ibv_global_route::sgid_index has 8 bits.
  line.add("--gid-index", gid_index, "index into the GID table [the best RoCEv2 one]", 0, 255);
  line.add("--mtu", mtu, "largest path MTU in bytes, a power of 2 from 256 to 4096 [the port's]",
           {256, 512, 1024, 2048, 4096});
  line.add("--traffic-class", traffic_class,
           "traffic class of outgoing packets, 4 times the DSCP [0]");
}

PairOptions::PairOptions(CommandLine &line) : DeviceOptions(line) {
  line.add("--host", host, "be the client of the server on this host [be the server]");
  line.add("--tcp-port", tcp_port,
           "TCP port for the exchange of addresses [18515]; a server takes 0 for a free one");
  line.add("--timeout", timeout, "how long one step of the peer's may take");
  line.add("--wait", wait, "how long a server waits for a client");
  line.add("--max-rd-atomic", max_rd_atomic,
           "READs and atomics under way at a time, as on the other side [1]");
}

CmOptions::CmOptions(CommandLine &line, const std::string &host_help) {
  line.add("--host", host, host_help);
  line.add("--cm-port", cm_port, "port of rdma_cm's [18515]; a server takes 0 for a free one");
  line.add("--timeout", timeout, "how long one step of the peer's may take");
  line.add("--wait", wait, "how long a server waits for a client");
}

// [run-main]
int run_main(int argc, char **argv, void (*body)(int argc, char **argv)) {
  // Flush each line, also into a pipe: a program that runs both sides sees the lines as they
  // happen.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    body(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp &) {
    return 0;
  } catch (const CLI::ParseError &wrong_usage) {
    std::fprintf(stderr, "usage: %s\n", wrong_usage.what());
    return 2;
  } catch (const Unsupported &lacking) {
    std::fprintf(stderr, "skipped: %s\n", lacking.what());
    return 77;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
// [run-main]

} // namespace rdmacommon
