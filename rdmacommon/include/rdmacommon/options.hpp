// SPDX-License-Identifier: MIT
/// @file
/// Command lines: the options that every example has, under the same names, and `main` in one line.
///
/// An example makes a CommandLine, lets one of the structs below add its options to it, adds its
/// own, and calls parse().
///
/// Introduced in lesson 01_hello_device, except where another one is named.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace rdmacommon {

/// The command line of a program: what it takes, with a line of help for each, `--help` included.
///
/// A front to CLI11 (https://github.com/CLIUtils/CLI11), whose headers take longer to compile than
/// an example does. For more of CLI11, include <CLI/App.hpp> and call cli11(). The names are
/// options ("--size") or, without dashes, arguments ("size"). The values that are added keep their
/// contents where the command line does not say otherwise, and must live until parse() has
/// returned.
///
///     rdmacommon::CommandLine line{"Sends one message."};
///     rdmacommon::PairOptions options(line);
///     uint32_t size = 64;
///     line.add("--size", size, "bytes of the message [64]", 1, 4096);
///     line.parse(argc, argv);
class CommandLine {
public:
  explicit CommandLine(const std::string &what); ///< @param what what the program does, for --help
  ~CommandLine();
  CommandLine(const CommandLine &) = delete;
  CommandLine &operator=(const CommandLine &) = delete;

  /// A text of at most `longest` bytes.
  void add(const std::string &name, std::string &value, const std::string &help,
           size_t longest = std::numeric_limits<size_t>::max());
  /// One text of a list; no default is added to `help`.
  void add(const std::string &name, std::string &value, const std::string &help,
           const std::vector<std::string> &choices);
  /// One number of a list; no default is added to `help`.
  void add(const std::string &name, int &value, const std::string &help,
           const std::vector<int> &choices);
  /// True if it is given; it takes no value.
  void add(const std::string &name, bool &value, const std::string &help);
  /// Seconds, 1 to 3600. The variable RDMA_TIMEOUT says what `--timeout` is if the command line
  /// does not: on a busy machine, all programs can get more time at once.
  void add(const std::string &name, std::chrono::seconds &value, const std::string &help);
  /// A number from `min` to `max`, by default whatever its type can hold.
  template <std::integral Number>
  void add(const std::string &name, Number &value, const std::string &help,
           std::type_identity_t<Number> min = std::numeric_limits<Number>::min(),
           std::type_identity_t<Number> max = std::numeric_limits<Number>::max()) {
    add_number(name, help, static_cast<int64_t>(min), static_cast<uint64_t>(max),
               [&value](int64_t number) { value = static_cast<Number>(number); });
  }

  /// Reads the command line into what was added.
  /// @throws an exception that run_main() turns into exit status 2 (or 0 for `--help`)
  void parse(int argc, char **argv);

  /// Rejects options that do not go together. Call it after parse().
  /// @param option which one: "--limit"
  /// @param why    what it must be
  /// @throws always: an exception that run_main() turns into exit status 2
  [[noreturn]] void reject(const std::string &option, const std::string &why) const;

  CLI::App &cli11() { return *app_; } ///< The CLI11 object behind it. Belongs to this object.

private:
  void add_number(const std::string &name, const std::string &help, int64_t min, uint64_t max,
                  std::function<void(int64_t)> store);

  std::unique_ptr<CLI::App> app_;
};

/// The options that choose a device, port and GID, and say how packets leave: `--device`, `--port`,
/// `--gid-index`, `--mtu`, `--traffic-class`. Its CommandLine refers to it, so it can be neither
/// copied nor moved.
struct DeviceOptions {
  explicit DeviceOptions(CommandLine &line); ///< Adds the options to `line`.
  DeviceOptions(const DeviceOptions &) = delete;
  DeviceOptions &operator=(const DeviceOptions &) = delete;

  std::string device; ///< The device's name ("rxe0"); empty: the one with the best GID.
  int port = 0; ///< The port, counted from 1 as verbs do; 0: the active one with the best GID.
  int gid_index = -1; ///< Index into the port's GID table; -1: choose by type and address.
  int mtu = 4096;     ///< The path MTU is at most this, in bytes: 256, 512, 1024, 2048 or 4096.
  /// The traffic class of outgoing packets' GRH. On RoCEv2 it becomes the IP header's: DSCP in the
  /// upper 6 bits, ECN in the lower 2.
  uint8_t traffic_class = 0;
};

/// The further options of a program with two roles: `--host`, `--tcp-port`, `--timeout`, `--wait`,
/// `--max-rd-atomic`. Introduced in lesson 02_send_recv.
struct PairOptions : DeviceOptions {
  explicit PairOptions(CommandLine &line); ///< Adds the options to `line`.

  bool is_server() const { return host.empty(); } ///< No `--host` means: this is the server.

  std::string host;                ///< Name or address of the host where the server runs.
  uint16_t tcp_port = 18515;       ///< Port of the exchange; the default is the stock tools'.
  std::chrono::seconds timeout{5}; ///< Limit for one step of the peer's.
  std::chrono::seconds wait{60};   ///< Limit for a server's wait for a client.
  /// READs and atomics under way at a time, of this side's and of the peer's: the same on both
  /// sides. Introduced in lesson 04_read_write.
  uint8_t max_rd_atomic = 1;
};

/// The options of a program that connects by rdma_cm: `--host`, `--cm-port`, `--timeout`, `--wait`.
/// There is no option for the device, since rdma_cm finds it by the address. Its CommandLine refers
/// to it, so it can be neither copied nor moved. Introduced in lesson 12_cm_connect.
struct CmOptions {
  /// Adds the options to `line`.
  /// @param host_help what `--host` is to this program
  CmOptions(CommandLine &line, const std::string &host_help);
  CmOptions(const CmOptions &) = delete;
  CmOptions &operator=(const CmOptions &) = delete;

  /// Returns true without `--host`: in a program that has both roles, this is the server.
  bool is_server() const { return host.empty(); }

  std::string host;         ///< Name or address: whom to connect to, or where to listen.
  uint16_t cm_port = 18515; ///< A port of rdma_cm's. It is none of TCP's, and can be in use there.
  std::chrono::seconds timeout{5}; ///< Limit for one step of the peer's.
  std::chrono::seconds wait{60};   ///< Limit for a server's wait for a client.
};

/// Runs an example's `body` and turns how it ended into main's exit status.
/// @return 0 if `body` returned, 1 if it threw (after printing "error: ..." to stderr),
///         2 if the command line was wrong, 77 if the device cannot do it (Unsupported)
int run_main(int argc, char **argv, void (*body)(int argc, char **argv));

} // namespace rdmacommon
