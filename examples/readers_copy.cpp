// SPDX-License-Identifier: MIT
// An exercise that changes a lesson's program: the reader's copy of it, which ./lab check makes.
// The compiler's messages name the copy.
#include READERS_COPY
