// SPDX-License-Identifier: MIT
#include "rdmacommon/description.hpp"

#include "hints.hpp"
#include "rdmacommon/check.hpp"

#include <endian.h>

#include <cstring>
#include <string>

namespace rdmacommon {
namespace {

constexpr uint32_t magic = 0x52424558; // "RBEX"

[[noreturn]] void refuse(const std::string &why, Where where) {
  throw Error("the peer's description", why, hint_for_other_program(), where);
}

} // namespace

Greeting greeting(Refusal refusal, uint16_t version) {
  return {.magic = htobe32(magic),
          .version = htobe16(version),
          .refusal = htobe16(static_cast<uint16_t>(refusal))};
}

std::optional<Greeting> greeting_in(const rdma_conn_param &came) {
  Greeting told{};
  if (came.private_data == nullptr || came.private_data_len < sizeof told)
    return {};
  std::memcpy(&told, came.private_data, sizeof told); // it may lie at any address
  if (be32toh(told.magic) != magic)
    return {};
  return Greeting{
      .magic = magic, .version = be16toh(told.version), .refusal = be16toh(told.refusal)};
}

const char *words_for(Refusal refusal) {
  switch (refusal) {
  case Refusal::none:
    return "for no reason that it gives";
  case Refusal::version:
    return "it speaks another version of the protocol";
  case Refusal::full:
    return "it has as many clients as it takes";
  case Refusal::closing:
    return "it is about to end";
  }
  return "for a reason that this program does not know";
}

Description describe(const ibv_mr *mr) {
  return {.version = htobe32(protocol_version),
          .rkey = htobe32(mr->rkey),
          .address = htobe64(reinterpret_cast<uintptr_t>(mr->addr)),
          .length = htobe64(mr->length)};
}

RemoteMemory parse_description(const Description &message, size_t received, Where where) {
  if (received != sizeof message)
    refuse("it has " + std::to_string(received) + " bytes, not " + std::to_string(sizeof message),
           where);
  if (be32toh(message.version) != protocol_version)
    refuse("it is of version " + std::to_string(be32toh(message.version)) + ", not " +
               std::to_string(protocol_version),
           where);
  const RemoteMemory memory{.address = be64toh(message.address),
                            .rkey = be32toh(message.rkey),
                            .length = be64toh(message.length)};
  if (memory.length == 0)
    refuse("its memory has no bytes", where);
  if (memory.address + memory.length - 1 < memory.address)
    refuse("its memory ends past the last address that there is", where);
  return memory;
}

} // namespace rdmacommon
