// SPDX-License-Identifier: MIT
// Preloaded into a program, it counts the bytes that the program has allocated and not freed. A
// test reads the number, 8 bytes, as the file /proc/PID/fd/900. It is what the program holds, and
// nothing that the kernel or the C library adds by itself: huge pages, arenas, caches.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);
}

namespace {

constexpr int known_descriptor = 900;

// The bytes that are allocated before the file exists.
std::atomic<int64_t> early = 0;
std::atomic<std::atomic<int64_t> *> live = &early;

void *count(void *memory) {
  if (memory)
    *live.load() += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}

void discount(void *memory) {
  if (memory)
    *live.load() -= static_cast<int64_t>(malloc_usable_size(memory));
}

// Ends the program if a call fails: the test has no number then, and says so.
[[gnu::constructor]] void publish() {
  const int fd = memfd_create("live bytes", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof(int64_t)) != 0 ||
      fcntl(fd, F_DUPFD_CLOEXEC, known_descriptor) != known_descriptor)
    std::abort();
  void *const page = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    std::abort();
  close(fd);
  auto *const published = static_cast<std::atomic<int64_t> *>(page);
  published->store(early); // no other thread is there yet
  live = published;
}

} // namespace

extern "C" {

void *malloc(size_t size) {
  return count(__libc_malloc(size));
}

void *calloc(size_t number, size_t size) {
  return count(__libc_calloc(number, size));
}

void *realloc(void *old, size_t size) {
  const auto before = old ? static_cast<int64_t>(malloc_usable_size(old)) : 0;
  void *const memory = __libc_realloc(old, size);
  if (memory || size == 0)
    *live.load() -= before;
  return count(memory);
}

void *memalign(size_t alignment, size_t size) {
  return count(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size) {
  return count(__libc_memalign(alignment, size));
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
  void *const found = count(__libc_memalign(alignment, size));
  if (!found)
    return ENOMEM;
  *memory = found;
  return 0;
}

void free(void *memory) {
  discount(memory);
  __libc_free(memory);
}
}
