// SPDX-License-Identifier: MIT
// The line that the two sides exchange: what is written, and what is refused.
#include <rdmacommon/check.hpp>
#include <rdmacommon/exchange.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <set>

using namespace rdmacommon;

namespace {

const char *const valid = "0012:00abcd:123456:00000000000000000000ffff0a4d0001:1024";

TEST(Exchange, WritesTheLine) {
  Endpoint endpoint{.lid = 0x12, .qpn = 0xabcd, .psn = 0x123456, .gid = {}, .mtu = IBV_MTU_1024};
  const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
  std::memcpy(endpoint.gid.raw, gid, sizeof gid);
  EXPECT_EQ(to_line(endpoint), valid);
}

TEST(Exchange, ReadsBackWhatItWrote) {
  const Endpoint endpoint = parse_endpoint(valid);
  EXPECT_EQ(endpoint.lid, 0x12);
  EXPECT_EQ(endpoint.qpn, 0xabcdU);
  EXPECT_EQ(endpoint.psn, 0x123456U);
  EXPECT_EQ(endpoint.mtu, IBV_MTU_1024);
  EXPECT_EQ(to_line(endpoint), valid);
}

TEST(Exchange, AStockToolSaysNoMtu) {
  EXPECT_EQ(parse_endpoint("0000:000011:123456:00000000000000000000ffff0a4d0001").mtu,
            IBV_MTU_1024);
  EXPECT_EQ(parse_endpoint("0000:000011:123456:00000000000000000000ffff0a4d0001:0256").mtu,
            IBV_MTU_256);
}

struct Refused {
  const char *line;
  const char *field; // words that the message must contain
};

class ExchangeRefuses : public testing::TestWithParam<Refused> {};

TEST_P(ExchangeRefuses, AndSaysWhatIsWrong) {
  try {
    parse_endpoint(GetParam().line);
    FAIL() << "accepted " << GetParam().line;
  } catch (const Error &error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().field), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("test_exchange.cpp"), std::string::npos)
        << "the caller's line, not the library's: " << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Lines, ExchangeRefuses,
    testing::Values(Refused{"", "LID:QPN:PSN:GID"}, Refused{"hello", "LID:QPN:PSN:GID"},
                    Refused{"0012:00abcd:123456", "LID:QPN:PSN:GID"},
                    Refused{"0012:00abcd:123456:00000000000000000000ffff0a4d0001:", "MTU"},
                    Refused{"0012:00abcd:123456:00000000000000000000ffff0a4d0001:1000", "MTU"},
                    Refused{"0012:00abcd:123456:00000000000000000000ffff0a4d0001:0128", "MTU"},
                    Refused{"0012:00abcd:123456:00000000000000000000ffff0a4d0001: 256", "MTU"},
                    Refused{"012:00abcd:123456:00000000000000000000ffff0a4d0001", "LID"},
                    Refused{"0x12:00abcd:123456:00000000000000000000ffff0a4d0001", "LID"},
                    Refused{"-012:00abcd:123456:00000000000000000000ffff0a4d0001", "LID"},
                    Refused{"0012:00abcg:123456:00000000000000000000ffff0a4d0001", "QPN"},
                    Refused{"0012:100abcd:123456:00000000000000000000ffff0a4d0001", "QPN"},
                    Refused{"0012:00abcd:12345 :00000000000000000000ffff0a4d0001", "PSN"},
                    Refused{"0012:00abcd:123456:00000000000000000000ffff0a4d00", "GID"},
                    Refused{"0012:00abcd:123456:00000000000000000000ffff0a4d000100", "GID"},
                    Refused{"0012:00abcd:123456:00000000000000000000ffff0a4d000g", "GID"}));

TEST(Exchange, PsnHas24BitsAndVaries) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 64; ++i) {
    const uint32_t psn = random_psn();
    EXPECT_LT(psn, 1U << 24);
    seen.insert(psn);
  }
  EXPECT_GT(seen.size(), 60U);
}

TEST(RemoteMemory, ReadsBackWhatItWrote) {
  const RemoteMemory memory{.address = 0x7fff12345678, .rkey = 0xabc, .length = 4096};
  EXPECT_EQ(to_line(memory), "00007fff12345678:00000abc:0000000000001000");
  const RemoteMemory again = parse_remote_memory(to_line(memory));
  EXPECT_EQ(again.address, memory.address);
  EXPECT_EQ(again.rkey, memory.rkey);
  EXPECT_EQ(again.length, memory.length);
}

TEST(RemoteMemory, RefusesWhatCannotBe) {
  for (const char *text :
       {"", "00007fff12345678:00000abc", "00007fff12345678:00000abc:0000000000001000:",
        "7fff12345678:00000abc:0000000000001000", "00007fff12345678:0x000abc:0000000000001000",
        "00007fff12345678:00000abc:-000000000001000", "fffffffffffff001:00000abc:0000000000001000"})
    EXPECT_THROW(parse_remote_memory(text), Error) << text;
  EXPECT_NO_THROW(parse_remote_memory("ffffffffffffefff:00000abc:0000000000001000"));
}

} // namespace
