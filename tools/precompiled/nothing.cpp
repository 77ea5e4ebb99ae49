// SPDX-License-Identifier: MIT
// Meson makes a precompiled header only for a target that compiles something.
