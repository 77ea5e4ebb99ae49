// SPDX-License-Identifier: MIT
// Preloaded, it makes two devices of the one that is there. The first one in the list has only its
// link-local GIDs.

#include "next.hpp"

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace {

ibv_device *both[3];
ibv_device **real_list = nullptr;
int opened = 0;
const ibv_context *first = nullptr;

bool is_link_local(const ibv_gid_entry &entry) {
  in6_addr address;
  std::memcpy(&address, entry.gid.raw, sizeof address);
  return IN6_IS_ADDR_LINKLOCAL(&address);
}

} // namespace

extern "C" {

ibv_device **ibv_get_device_list(int *count) {
  static const auto real = REAL(ibv_get_device_list);
  real_list = real(count);
  if (!real_list || !real_list[0])
    return real_list;
  both[0] = both[1] = real_list[0];
  if (count)
    *count = 2;
  return both;
}

void ibv_free_device_list(ibv_device **) {
  static const auto real = REAL(ibv_free_device_list);
  real(real_list);
}

ibv_context *ibv_open_device(ibv_device *device) {
  static const auto real = REAL(ibv_open_device);
  ibv_context *context = real(device);
  if (opened++ == 0)
    first = context;
  return context;
}

ssize_t _ibv_query_gid_table(ibv_context *context, ibv_gid_entry *entries, size_t room,
                             uint32_t flags, size_t entry_size) {
  static const auto real = REAL(_ibv_query_gid_table);
  const ssize_t count = real(context, entries, room, flags, entry_size);
  if (context != first || count < 0)
    return count;
  return std::remove_if(entries, entries + count,
                        [](const ibv_gid_entry &entry) { return !is_link_local(entry); }) -
         entries;
}

} // extern "C"
