// SPDX-License-Identifier: MIT
// Exercise 01.2 (★★): at which index of the GID table does an IPv4 address stand?
// Wanted:   10.77.0.1 is GID index 1
//           192.0.2.1 is not in the table
// Hints: ./lab hint 01.2
// Check: ./lab check 01.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/options.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

using namespace rdmacommon;

namespace {

int find_gid(const Port &port, const in_addr &address) {
  // TODO: the index of the RoCEv2 entry that holds the address, or -1.
  (void)port;
  (void)address;
  return 0; // "it is always 0": true on the author's machine
}

void show(const Port &port, const in_addr &address) {
  char text[INET_ADDRSTRLEN];
  check_ptr(inet_ntop(AF_INET, &address, text, sizeof text), "inet_ntop");
  const int index = find_gid(port, address);
  if (index < 0)
    std::printf("%s is not in the table\n", text);
  else
    std::printf("%s is GID index %d\n", text, index);
}

void gid_by_address(int argc, char **argv) {
  CommandLine line{"Finds IPv4 addresses in a port's GID table."};
  DeviceOptions options{line};
  line.parse(argc, argv);

  const Port port = open_port(options);
  in_addr own, foreign;
  std::memcpy(&own, &port.gid.gid.raw[12], sizeof own);
  inet_pton(AF_INET, "192.0.2.1", &foreign); // reserved for examples by RFC 5737
  show(port, own);
  show(port, foreign);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, gid_by_address);
}
