// SPDX-License-Identifier: MIT
// The line that a runner waits for before it starts a client.
#pragma once

namespace trace {

// With VERBS_TRACE_ANNOUNCE set, prints "verbs-trace: listening" on stderr, once.
void announce_listening();

} // namespace trace
