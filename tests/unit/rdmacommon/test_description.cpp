// SPDX-License-Identifier: MIT
#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/description.hpp>

#include <gtest/gtest.h>

#include <endian.h>

#include <array>
#include <cstring>

using namespace rdmacommon;

namespace {

Description description(uint64_t address, uint64_t length) {
  return {.version = htobe32(protocol_version),
          .rkey = htobe32(0x1234),
          .address = htobe64(address),
          .length = htobe64(length)};
}

rdma_conn_param with(const void *data, uint8_t length) {
  rdma_conn_param param{};
  param.private_data = data;
  param.private_data_len = length;
  return param;
}

} // namespace

TEST(Description, AnErrorNamesTheCallersLine) {
  try {
    parse_description({}, sizeof(Description));
    FAIL() << "accepted a description of zeros";
  } catch (const Error &error) {
    EXPECT_NE(std::strstr(error.what(), "test_description.cpp"), nullptr) << error.what();
  }
}

TEST(Description, ComesBackInHostByteOrder) {
  const RemoteMemory memory =
      parse_description(description(0x7f0000001000, 4096), sizeof(Description));
  EXPECT_EQ(memory.address, 0x7f0000001000U);
  EXPECT_EQ(memory.rkey, 0x1234U);
  EXPECT_EQ(memory.length, 4096U);
}

TEST(Description, MayEndAtTheLastAddress) {
  EXPECT_NO_THROW(parse_description(description(~uint64_t{0}, 1), sizeof(Description)));
  EXPECT_THROW(parse_description(description(~uint64_t{0}, 2), sizeof(Description)), Error);
  EXPECT_THROW(parse_description(description(1, ~uint64_t{0} - 1 + 2), sizeof(Description)), Error);
}

TEST(Description, IsCheckedInLengthAndVersion) {
  Description other = description(0, 1);
  EXPECT_THROW(parse_description(other, sizeof other - 1), Error);
  EXPECT_THROW(parse_description(other, sizeof other + 1), Error);
  EXPECT_THROW(parse_description(description(0, 0), sizeof other), Error);
  other.version = htobe32(protocol_version + 1);
  EXPECT_THROW(parse_description(other, sizeof other), Error);
}

TEST(Greeting, IsFoundInAPaddedFieldAtAnyAddress) {
  std::array<char, 57> field{};
  const Greeting sent = greeting(Refusal::full, 3);
  std::memcpy(field.data() + 1, &sent, sizeof sent);
  const auto told = greeting_in(with(field.data() + 1, 56));
  ASSERT_TRUE(told);
  EXPECT_EQ(told->version, 3);
  EXPECT_EQ(told->refusal, static_cast<uint16_t>(Refusal::full));
}

TEST(Greeting, IsNotMadeUp) {
  std::array<char, 56> zeros{};
  const Greeting sent = greeting();
  EXPECT_FALSE(greeting_in(with(zeros.data(), 56)));
  EXPECT_FALSE(greeting_in(with(nullptr, 0)));
  EXPECT_FALSE(greeting_in(with(&sent, sizeof sent - 1)));
}

TEST(CmEvent, SaysWhatCameInsteadAndWhy) {
  rdma_cm_event event{};
  event.event = RDMA_CM_EVENT_REJECTED;
  event.status = 8;
  try {
    check_cm_event(event, RDMA_CM_EVENT_ESTABLISHED);
    FAIL();
  } catch (const Error &error) {
    EXPECT_NE(std::strstr(error.what(), "REJECTED: it came instead of ESTABLISHED, with reason 8"),
              nullptr);
    EXPECT_NE(std::strstr(error.what(), "#cm-nobody-listens"), nullptr);
  }
  event.event = RDMA_CM_EVENT_CONNECT_ERROR;
  event.status = -1; // librdmacm's own status: no error number
  try {
    check_cm_event(event, RDMA_CM_EVENT_ESTABLISHED);
    FAIL();
  } catch (const Error &error) {
    EXPECT_NE(
        std::strstr(error.what(), "CONNECT_ERROR: it came instead of ESTABLISHED, with status -1"),
        nullptr);
    EXPECT_EQ(std::strstr(error.what(), "not permitted"), nullptr);
  }
  event.event = RDMA_CM_EVENT_ESTABLISHED;
  EXPECT_NO_THROW(check_cm_event(event, RDMA_CM_EVENT_ESTABLISHED));
}
