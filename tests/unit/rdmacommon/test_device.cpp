// SPDX-License-Identifier: MIT
// Tests which GID is chosen, as far as that needs no device.
#include <rdmacommon/device.hpp>
#include <rdmacommon/queue_pair.hpp>

#include <gtest/gtest.h>

#include <arpa/inet.h>

using namespace rdmacommon;

namespace {

ibv_gid_entry entry(const char *address, uint32_t type, uint32_t index = 0) {
  ibv_gid_entry entry{};
  inet_pton(AF_INET6, address, entry.gid.raw);
  entry.gid_type = type;
  entry.gid_index = index;
  return entry;
}

TEST(Gid, RoutableBeatsLinkLocalBeatsRoCEv1) {
  const int ipv4 = gid_score(entry("::ffff:10.77.0.1", IBV_GID_TYPE_ROCE_V2));
  const int ipv6 = gid_score(entry("fd77::1", IBV_GID_TYPE_ROCE_V2));
  const int link_local = gid_score(entry("fe80::1", IBV_GID_TYPE_ROCE_V2));
  const int version1 = gid_score(entry("::ffff:10.77.0.1", IBV_GID_TYPE_ROCE_V1));
  EXPECT_GT(ipv4, ipv6);
  EXPECT_GT(ipv6, link_local);
  EXPECT_GT(link_local, version1);
  EXPECT_EQ(version1, 0);
}

TEST(Gid, OnInfiniBandTheFirstOne) {
  EXPECT_GT(gid_score(entry("fe80::2", IBV_GID_TYPE_IB, 0)),
            gid_score(entry("fe80::3", IBV_GID_TYPE_IB, 1)));
  EXPECT_GT(gid_score(entry("fe80::3", IBV_GID_TYPE_IB, 1)), 0);
}

TEST(Gid, AsText) {
  EXPECT_EQ(to_text(entry("::ffff:10.77.0.1", IBV_GID_TYPE_ROCE_V2).gid), "::ffff:10.77.0.1");
}

TEST(Route, CarriesTheTrafficClassOnRoCE) {
  Port port{.number = 1, .traffic_class = 104};
  port.attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  const ibv_ah_attr route = route_to(port, {.lid = 0});
  EXPECT_EQ(route.is_global, 1);
  EXPECT_EQ(route.grh.traffic_class, 104);
}

TEST(Mtu, EnumCountsPowersOfTwo) {
  EXPECT_EQ(mtu_bytes(IBV_MTU_256), 256);
  EXPECT_EQ(mtu_bytes(IBV_MTU_1024), 1024);
  EXPECT_EQ(mtu_bytes(IBV_MTU_4096), 4096);
}

} // namespace
