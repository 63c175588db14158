// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fuzz target is a file that defines `read`: it hands bytes to one reader and checks what comes of them. A reader may
// refuse them by an Error. Whatever else leaves it, and whatever the sanitizers find, is a defect.
//
// Two programs run a target: libfuzzer.cpp, which makes up bytes, and malformed.cpp, an ordinary test, which takes
// those of the corpus.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "weft/engine/tensor/error.h"

namespace weft::fuzz {

void read(std::string_view bytes);

// Of what was read.
inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

template <class F> auto must_be_accepted(F&& reading) try { return reading(); } catch (const Error& error) {
  must(false, error.what());
  throw;
}

}  // namespace weft::fuzz
