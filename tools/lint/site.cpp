// SPDX-License-Identifier: MIT
// Records return addresses, and finds the modules and symbols that they belong to.

#include "site.hpp"

#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <memory>
#include <string_view>

namespace lint {
namespace {

constexpr std::size_t shown = 6;

// The first call of backtrace() loads a library: better now than inside a program's post.
[[maybe_unused]] const int loaded = [] {
  void *frame = nullptr;
  return backtrace(&frame, 1);
}();

std::string_view base_name(const char *path) {
  const std::string_view whole = path ? path : "";
  return whole.substr(whole.rfind('/') + 1); // npos + 1 is 0
}

bool is_verbs_library(std::string_view name) {
  return name.starts_with("libibverbs") || name.starts_with("librdmacm") ||
         name.find("-rdmav") != name.npos || name.starts_with("libmlx") ||
         name.starts_with("libefa") || name.starts_with("libhns") || name.starts_with("libmana");
}

const void *own_base() {
  static const void *base = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void *>(&own_base), &info);
    return info.dli_fbase;
  }();
  return base;
}

bool is_interposer(const Dl_info &info) {
  return info.dli_fbase == own_base() || base_name(info.dli_fname).starts_with("libverbs_");
}

// An address of the call, which lies before the address that it returns to.
char *call_at(const Site &site, int frame) {
  return static_cast<char *>(site.frames[static_cast<std::size_t>(frame)]) - 1;
}

std::string demangled(const char *name) {
  if (!name)
    return "";
  int status = 0;
  const std::unique_ptr<char, void (*)(void *)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return text ? text.get() : name;
}

} // namespace

Site Site::here() {
  Site site;
  site.depth = backtrace(site.frames.data(), static_cast<int>(site.frames.size()));
  return site;
}

std::vector<Frame> frames_of(const Site &site) {
  std::vector<Frame> result;
  for (int i = 0; i < site.depth && result.size() < shown; ++i) {
    char *const call = call_at(site, i);
    Dl_info info{};
    link_map *map = nullptr;
    if (!dladdr1(call, &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) || !map)
      continue;
    const std::string_view module = base_name(info.dli_fname);
    if (is_interposer(info) || is_verbs_library(module) || module.starts_with("libc.so") ||
        module.starts_with("ld-linux"))
      continue;
    result.push_back(
        {info.dli_fname,
         reinterpret_cast<std::uintptr_t>(call) - static_cast<std::uintptr_t>(map->l_addr),
         demangled(info.dli_sname)});
  }
  return result;
}

int first_outside(const Site &site) {
  Dl_info info{};
  int frame = 0;
  while (frame < site.depth && dladdr(call_at(site, frame), &info) && is_interposer(info))
    ++frame;
  return frame;
}

bool made_by_library(const Site &site) {
  const int caller = first_outside(site);
  Dl_info info{};
  return caller < site.depth && dladdr(call_at(site, caller), &info) &&
         is_verbs_library(base_name(info.dli_fname));
}

} // namespace lint
