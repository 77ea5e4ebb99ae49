// SPDX-License-Identifier: MIT
// A preloaded library by which 16_sharing's program seems to import: for test_sharing.py, since
// SoftRoCE cannot.
//
// The importer gets a device, a PD and an MR of its own, and the MR has the address that the
// exporter's has, as an imported one would. What it does with them is then the same as on a device
// that can.
#include "next.hpp"

#include <infiniband/verbs.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

// The macro of that name would stand in the way of the definition.
#undef ibv_reg_mr

namespace {

std::string note_about(uint32_t handle) {
  return "/tmp/import_double." + std::to_string(handle);
}

ibv_mr *noted(ibv_mr *mr) {
  if (mr)
    if (FILE *note = std::fopen(note_about(mr->handle).c_str(), "w")) {
      std::fprintf(note, "%" PRIuPTR " %zu", reinterpret_cast<uintptr_t>(mr->addr), mr->length);
      std::fclose(note);
    }
  return mr;
}

} // namespace

// The exporter's side leaves a note that says where the region lies. verbs.h calls the second
// function where the access flags are no constant.
extern "C" ibv_mr *ibv_reg_mr(ibv_pd *pd, void *address, size_t length, int access) {
  static const auto real = REAL(ibv_reg_mr);
  return noted(real(pd, address, length, access));
}

extern "C" ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                    unsigned access) {
  static const auto real = REAL(ibv_reg_mr_iova2);
  return noted(real(pd, address, length, iova, access));
}

extern "C" ibv_context *ibv_import_device(int cmd_fd) {
  struct stat about = {};
  if (fstat(cmd_fd, &about) != 0 || !S_ISCHR(about.st_mode)) {
    errno = EBADF;
    return nullptr;
  }
  close(cmd_fd); // it is the library's from here on
  int count = 0;
  ibv_device **devices = ibv_get_device_list(&count);
  ibv_context *context = count > 0 ? ibv_open_device(devices[0]) : nullptr;
  ibv_free_device_list(devices);
  std::fprintf(stderr, "import_device\n");
  return context;
}

extern "C" ibv_pd *ibv_import_pd(ibv_context *context, uint32_t) {
  std::fprintf(stderr, "import_pd\n");
  return ibv_alloc_pd(context);
}

extern "C" ibv_mr *ibv_import_mr(ibv_pd *pd, uint32_t handle) {
  uintptr_t there = 0;
  size_t length = 0;
  FILE *note = std::fopen(note_about(handle).c_str(), "r");
  if (!note || std::fscanf(note, "%" SCNuPTR " %zu", &there, &length) != 2)
    return nullptr;
  std::fclose(note);
  std::remove(note_about(handle).c_str());
  FILE *maps = std::fopen("/proc/self/maps", "r"); // tells where the importer has the memory
  char line[512];
  uintptr_t here = 0;
  while (std::fgets(line, sizeof line, maps))
    if (std::strstr(line, "/memfd:slots"))
      here = std::strtoull(line, nullptr, 16);
  std::fclose(maps);
  std::fprintf(stderr, "import_mr at %s address\n", here == there ? "the same" : "another");
  const int access = IBV_ACCESS_LOCAL_WRITE;
  return ibv_reg_mr_iova(pd, reinterpret_cast<void *>(here), length, there, access);
}

extern "C" void ibv_unimport_mr(ibv_mr *mr) {
  std::fprintf(stderr, "unimport_mr\n");
  ibv_dereg_mr(mr);
}

extern "C" void ibv_unimport_pd(ibv_pd *pd) {
  std::fprintf(stderr, "unimport_pd\n");
  ibv_dealloc_pd(pd);
}
