// SPDX-License-Identifier: MIT
// What the tests include beside precompiled.hpp.
#include "precompiled.hpp"

#include <gtest/gtest.h>
