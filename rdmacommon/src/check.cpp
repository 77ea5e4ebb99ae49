// SPDX-License-Identifier: MIT
#include "rdmacommon/check.hpp"

#include "hints.hpp"

#include <cerrno>
#include <cstring>
#include <string_view>

namespace rdmacommon {
namespace {

std::string describe(const std::string &call, const std::string &reason, Where where,
                     const std::string &hint) {
  // The file name alone: basenames are unique in this tree, and the path is the build's business.
  const std::string_view path = where.file;
  const std::string file{path.substr(path.rfind('/') + 1)};
  std::string text = call + ": " + reason + " (" + file + ":" + std::to_string(where.line) + ")";
  if (!hint.empty())
    text += "\nhint: " + hint;
  return text;
}

std::string errno_text(int error) {
  const char *name = strerrorname_np(error);
  return std::string(std::strerror(error)) + (name ? std::string(", ") + name : "");
}

} // namespace

Error::Error(const std::string &call, const std::string &reason, const std::string &hint,
             Where where)
    : std::runtime_error(describe(call, reason, where, hint)) {}

void throw_errno(int error, const char *call, Where where) {
  throw Error(call, errno_text(error), hint_for_errno(call, error), where);
}

void check_rc(int rc, const char *call, Where where) {
  if (rc == 0)
    return;
  if (rc == -1 && errno != 0)
    rc = errno;
  throw_errno(rc < 0 ? -rc : rc, call, where);
}

int check_errno(int rc, const char *call, Where where) {
  if (rc < 0)
    throw_errno(errno, call, where);
  return rc;
}

int check_count(int count, const char *call, Where where) {
  if (count < 0)
    throw Error(call, "the completion queue cannot be read", hint_for_errno(call, EIO), where);
  return count;
}

void check_wc(const ibv_wc &wc, const char *what, Where where) {
  if (wc.status == IBV_WC_SUCCESS)
    return;
  throw Error(what,
              "completed with status " + std::to_string(wc.status) + ", " +
                  ibv_wc_status_str(wc.status),
              hint_for_status(wc.status), where);
}

} // namespace rdmacommon
