// SPDX-License-Identifier: MIT
// Headers that the tests include beside precompiled.hpp.
#include "precompiled.hpp"

#include <gtest/gtest.h>
