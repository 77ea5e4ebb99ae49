/// @file
/// Command lines: the options that every example has, under the same names, and `main` in one line.
///
/// Built on CLI11 (https://github.com/CLIUtils/CLI11). An example makes a CLI::App, lets one of the
/// structs below add its options to it, adds its own, and calls parse().
///
/// Introduced in lesson 01_hello_device.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace rdmacommon {

/// Which device, port and GID: `--device`, `--port`, `--gid-index`.
/// Refers to itself from the CLI::App, so it can be neither copied nor moved.
struct DeviceOptions {
  explicit DeviceOptions(CLI::App &app); ///< Adds the options to `app`, which must not outlive it.
  DeviceOptions(const DeviceOptions &) = delete;
  DeviceOptions &operator=(const DeviceOptions &) = delete;

  std::string device; ///< The device's name ("rxe0"); empty: the first one with an active port.
  int port = 0;       ///< The port, counted from 1 as verbs do; 0: the first active one.
  int gid_index = -1; ///< Index into the port's GID table; -1: choose by type and address.
};

/// What a program with two roles needs besides: `--host`, `--tcp-port`, `--timeout`, `--wait`.
struct PairOptions : DeviceOptions {
  explicit PairOptions(CLI::App &app); ///< Adds the options to `app`, which must not outlive it.

  bool is_server() const { return host.empty(); } ///< No `--host` means: this is the server.

  std::string host;          ///< Name or address of the host where the server runs.
  uint16_t tcp_port = 18515; ///< Where the two sides exchange addresses; the stock tools' default.
  std::chrono::seconds timeout{5}; ///< How long one step of the peer's may take.
  std::chrono::seconds wait{60};   ///< How long a server waits for a client.
};

/// Parses the command line into what was added to `app`.
/// @throws CLI::ParseError, which run_main() turns into exit status 2 (or 0 for `--help`)
void parse(CLI::App &app, int argc, char **argv);

/// Runs an example's `body` and turns how it ended into main's exit status.
/// @return 0 if `body` returned, 1 if it threw (after printing "error: ..." to stderr),
///         2 if the command line was wrong
int run_main(int argc, char **argv, void (*body)(int argc, char **argv));

} // namespace rdmacommon
