// SPDX-License-Identifier: MIT
// Memory on the NIC's chip, or host memory in its place: bytes that have an offset and no address.
#pragma once

#include <rdmacommon/check.hpp>
#include <rdmacommon/device.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/handles.hpp>

#include <infiniband/verbs.h>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

// The size of the device's own memory, in bytes; 0: it has none.
inline size_t max_on_chip(ibv_context *context) {
  ibv_device_attr_ex device{};
  rdmacommon::check_rc(ibv_query_device_ex(context, nullptr, &device), "ibv_query_device_ex");
  return device.max_dm_size;
}

class OnChip {
public:
  static constexpr size_t enough = 64 * 1024; // bytes that are taken if nobody says how many

  /// @param size how many bytes; 0: what the device has, up to `enough`
  /// @param required whether host memory will not do
  OnChip(const rdmacommon::Port &port, ibv_pd *pd, size_t size, bool required) {
    const size_t on_chip = max_on_chip(port.context.get());
    const std::string name = port.device_name();
    if (on_chip == 0 && required)
      throw rdmacommon::Unsupported(name + " has no memory of its own (max_dm_size is 0)");
    if (on_chip != 0 && size > on_chip)
      throw rdmacommon::Error("--size " + std::to_string(size),
                              name + " has " + std::to_string(on_chip) + " bytes");
    size_ = size != 0 ? size : std::min(enough, on_chip != 0 ? on_chip : enough);
    size_ -= size_ % sizeof(uint64_t); // whole words
    if (on_chip != 0) {
      allocate(port.context.get(), pd);
      std::printf("%s has memory of its own: %zu bytes of it are ours\n", name.c_str(), size_);
    } else {
      allocate_on_host(pd);
      std::printf("%s has no memory of its own: %zu bytes of host memory stand in for it\n",
                  name.c_str(), size_);
    }
  }

  size_t size() const { return size_; }

  // [copy]
  // memcpy() must not write to the NIC's memory: the provider knows how.
  void copy_in(size_t offset, const void *from, size_t length) {
    check_range(offset, length);
    if (dm_)
      rdmacommon::check_rc(ibv_memcpy_to_dm(dm_.get(), offset, from, length), "ibv_memcpy_to_dm");
    else
      std::memcpy(host_.get() + offset, from, length);
  }
  // [copy]

  void copy_out(void *to, size_t offset, size_t length) {
    check_range(offset, length);
    if (dm_)
      rdmacommon::check_rc(ibv_memcpy_from_dm(to, dm_.get(), offset, length), "ibv_memcpy_from_dm");
    else
      std::memcpy(to, host_.get() + offset, length);
  }

  // For our own requests, and for the peer: in both the address is an offset.
  ibv_sge piece(size_t offset, size_t length) const {
    return {.addr = offset, .length = static_cast<uint32_t>(length), .lkey = mr_->lkey};
  }

  rdmacommon::RemoteMemory share() const {
    return {.address = 0, .rkey = mr_->rkey, .length = size_};
  }

  void dump(size_t offset, size_t length) {
    for (size_t end = offset + length; offset < end; offset += 16) {
      uint8_t bytes[16];
      copy_out(bytes, offset, sizeof bytes);
      std::printf("  %04zx ", offset);
      for (const uint8_t byte : bytes)
        std::printf(" %02x", byte);
      std::printf("  ");
      for (const uint8_t byte : bytes)
        std::printf("%c", byte >= ' ' && byte <= '~' ? byte : '.');
      std::printf("\n");
    }
  }

private:
  static constexpr unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

  void allocate(ibv_context *context, ibv_pd *pd) {
    // [allocate]
    ibv_alloc_dm_attr attr{
        .length = size_,
        .log_align_req = 3, // 2^3 bytes: an atomic's word must be aligned
        .comp_mask = 0,
    };
    dm_.reset(rdmacommon::check_ptr(ibv_alloc_dm(context, &attr), "ibv_alloc_dm"));
    mr_.reset(rdmacommon::check_ptr(
        ibv_reg_dm_mr(pd, dm_.get(), 0, size_, access | IBV_ACCESS_ZERO_BASED), "ibv_reg_dm_mr"));
    // [allocate]
    const std::vector<uint8_t> zeros(size_); // the memory need not begin as zeros
    copy_in(0, zeros.data(), zeros.size());
  }

  // A region whose addresses begin at 0, and so are offsets. IBV_ACCESS_ZERO_BASED would say the
  // same, but SoftRoCE does not look at it. Within their page, address and memory have to lie
  // alike, so the memory begins a page.
  void allocate_on_host(ibv_pd *pd) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t whole_pages = (size_ + page - 1) / page * page;
    host_.reset(rdmacommon::check_ptr(static_cast<char *>(std::aligned_alloc(page, whole_pages)),
                                      "aligned_alloc"));
    std::memset(host_.get(), 0, size_);
    // [stand-in]
    mr_.reset(rdmacommon::check_ptr(ibv_reg_mr_iova(pd, host_.get(), size_, 0, access),
                                    "ibv_reg_mr_iova"));
    // [stand-in]
  }

  // mlx5 copies only whole words of four bytes to and from a NIC's memory; so do we everywhere.
  void check_range(size_t offset, size_t length) const {
    if (offset > size_ || length > size_ - offset)
      throw rdmacommon::Error("a copy of " + std::to_string(length) + " bytes at offset " +
                                  std::to_string(offset),
                              "there are " + std::to_string(size_));
    if (offset % 4 != 0 || length % 4 != 0)
      throw rdmacommon::Error("a copy", "offset and length must be multiples of four");
  }

  size_t size_;
  rdmacommon::unique_dm dm_; // null where host memory stands in
  std::unique_ptr<char, decltype(&std::free)> host_{nullptr, std::free}; // the stand-in, or null
  rdmacommon::unique_mr
      mr_; // last, so that it goes first: ibv_free_dm fails while a region is left
};
