// SPDX-License-Identifier: MIT
// Preloaded, it gives whatever device a program opens 128 KiB of memory of its own, by replacing
// the operations of the context that ibv_query_device_ex, ibv_alloc_dm, ibv_reg_dm_mr and the
// others call. The memory is the host's, and the regions over it are real, so all of RDMA works on
// it.
//
// Its rules are those of rdma-core's mlx5 provider, and of ibv_alloc_dm(3), or stricter: what it
// lets through, a NIC does. With FAKE_CALLS=1 it says on stderr what is called.

#include "next.hpp"

#include <infiniband/verbs.h>

#include <sys/mman.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

// verbs.h wraps it in a macro for its users.
#undef ibv_reg_mr_iova

namespace {

constexpr size_t most = 128 * 1024, page = 4096;

struct Memory : ibv_dm {
  char *bytes;
  size_t length, mapped;
  uint32_t log_align;
  unsigned regions;
};

size_t taken = 0;
std::map<const ibv_mr *, Memory *> regions;
decltype(verbs_context::query_device_ex) real_query = nullptr;

[[gnu::format(printf, 1, 2)]] void say(const char *format, ...) {
  if (!std::getenv("FAKE_CALLS"))
    return;
  va_list values;
  va_start(values, format);
  std::fputs("fake: ", stderr);
  std::vfprintf(stderr, format, values);
  va_end(values);
}

template <typename Pointer> Pointer fails(Pointer nothing, int error) {
  errno = error;
  return nothing;
}

int query_device_ex(ibv_context *context, const ibv_query_device_ex_input *input,
                    ibv_device_attr_ex *attr, size_t size) {
  const int rc = real_query(context, input, attr, size);
  if (rc == 0 && size >= offsetof(ibv_device_attr_ex, max_dm_size) + sizeof attr->max_dm_size)
    attr->max_dm_size = most;
  return rc;
}

int access_memory(ibv_dm *dm, uint64_t offset, size_t length, char *&bytes) {
  const Memory &memory = *static_cast<Memory *>(dm);
  if (offset > memory.length || length > memory.length - offset)
    return EFAULT;
  if (offset % 4 != 0 || length % 4 != 0)
    return EINVAL;
  bytes = memory.bytes + offset;
  return 0;
}

int copy_to(ibv_dm *dm, uint64_t offset, const void *from, size_t length) {
  char *bytes = nullptr;
  const int rc = access_memory(dm, offset, length, bytes);
  if (rc == 0)
    std::memcpy(bytes, from, length);
  return rc;
}

int copy_from(void *to, ibv_dm *dm, uint64_t offset, size_t length) {
  char *bytes = nullptr;
  const int rc = access_memory(dm, offset, length, bytes);
  if (rc == 0)
    std::memcpy(to, bytes, length);
  return rc;
}

ibv_dm *alloc_dm(ibv_context *context, ibv_alloc_dm_attr *attr) {
  if (attr->length == 0 || attr->length > most || attr->comp_mask != 0 || attr->log_align_req > 12)
    return fails<ibv_dm *>(nullptr, EINVAL);
  if (attr->length > most - taken)
    return fails<ibv_dm *>(nullptr, ENOMEM);
  const size_t mapped = (attr->length + page - 1) / page * page;
  void *bytes = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED)
    return nullptr;
  std::memset(bytes, 0xdb, mapped); // as somebody else has left it
  auto *memory = new Memory{};
  memory->context = context;
  memory->memcpy_to_dm = copy_to;
  memory->memcpy_from_dm = copy_from;
  memory->bytes = static_cast<char *>(bytes);
  memory->length = attr->length;
  memory->mapped = mapped;
  memory->log_align = attr->log_align_req;
  taken += attr->length;
  say("ibv_alloc_dm %zu bytes, aligned to 2^%u\n", attr->length, attr->log_align_req);
  return memory;
}

int free_dm(ibv_dm *dm) {
  auto *memory = static_cast<Memory *>(dm);
  say("ibv_free_dm with %u regions\n", memory->regions);
  if (memory->regions != 0)
    return EBUSY;
  munmap(memory->bytes, memory->mapped);
  taken -= memory->length;
  delete memory;
  return 0;
}

ibv_mr *reg_dm_mr(ibv_pd *pd, ibv_dm *dm, uint64_t offset, size_t length, unsigned access) {
  static const auto reg_mr_iova = REAL(ibv_reg_mr_iova);
  constexpr unsigned allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_ZERO_BASED;
  auto *memory = static_cast<Memory *>(dm);
  if ((access & ~allowed) != 0 || (access & IBV_ACCESS_ZERO_BASED) == 0)
    return fails<ibv_mr *>(nullptr, EINVAL);
  if (offset > memory->length || length > memory->length - offset)
    return fails<ibv_mr *>(nullptr, EINVAL);
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0 && memory->log_align < 3)
    return fails<ibv_mr *>(nullptr, EINVAL); // a NIC would take it, and may refuse the atomics
  // The kernel wants address and memory to lie alike within their page, so this offset is one of
  // whole pages.
  ibv_mr *mr = reg_mr_iova(pd, memory->bytes + offset, length, 0,
                           static_cast<int>(access & ~IBV_ACCESS_ZERO_BASED));
  if (mr) {
    mr->addr = nullptr; // as rdma-core has it for these
    regions[mr] = memory;
    ++memory->regions;
    say("ibv_reg_dm_mr %zu bytes at %ju\n", length, uintmax_t{offset});
  }
  return mr;
}

} // namespace

extern "C" {

ibv_context *ibv_open_device(ibv_device *device) {
  static const auto real = REAL(ibv_open_device);
  ibv_context *context = real(device);
  if (!context)
    return nullptr;
  verbs_context *verbs = verbs_get_ctx(context);
  if (verbs->query_device_ex != query_device_ex)
    real_query = verbs->query_device_ex; // the same function in all contexts of a provider
  verbs->query_device_ex = query_device_ex;
  verbs->alloc_dm = alloc_dm;
  verbs->free_dm = free_dm;
  verbs->reg_dm_mr = reg_dm_mr;
  return context;
}

int ibv_dereg_mr(ibv_mr *mr) {
  static const auto real = REAL(ibv_dereg_mr);
  const auto found = regions.find(mr);
  Memory *memory = found == regions.end() ? nullptr : found->second;
  const int rc = real(mr);
  if (rc == 0 && memory) {
    say("ibv_dereg_mr\n");
    regions.erase(found);
    --memory->regions;
  }
  return rc;
}

} // extern "C"
