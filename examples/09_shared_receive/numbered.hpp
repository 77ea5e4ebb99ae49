// SPDX-License-Identifier: MIT
// The messages that the clients of 09_shared_receive send: they have a number, and no sender.
#pragma once

#include <rdmacommon/check.hpp>

#include <infiniband/verbs.h>

#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <string>

// In network byte order, one packet long.
struct Message {
  uint32_t version; // 1
  uint32_t number;  // counted from 0 on each connection
  uint32_t left;    // messages that the client sends after this one
  std::array<uint8_t, 1012> data;
};

inline uint8_t data_byte(uint32_t number, size_t at) {
  return static_cast<uint8_t>(number + 7 * at);
}

inline void fill(Message &message, uint32_t number, uint32_t left) {
  message.version = htonl(1);
  message.number = htonl(number);
  message.left = htonl(left);
  for (size_t i = 0; i < message.data.size(); ++i)
    message.data[i] = data_byte(number, i);
}

// Throws unless this is the message that comes next on its connection. Returns how many are to come
// after it.
inline uint32_t checked(const ibv_wc &wc, const Message &message, uint32_t next) {
  const auto refuse = [](const std::string &why) { throw rdmacommon::Error("its message", why); };
  if (wc.opcode != IBV_WC_RECV || wc.byte_len != sizeof(Message))
    refuse("it has " + std::to_string(wc.byte_len) + " bytes");
  if (ntohl(message.version) != 1)
    refuse("it is of another version");
  const uint32_t number = ntohl(message.number);
  if (number != next)
    refuse("it is number " + std::to_string(number) + ", not " + std::to_string(next));
  for (size_t i = 0; i < message.data.size(); ++i)
    if (message.data[i] != data_byte(number, i))
      refuse("its data are wrong");
  return ntohl(message.left);
}
