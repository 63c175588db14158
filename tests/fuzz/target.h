// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fuzz target is a file that defines `read`: it passes bytes to one reader and checks the result. A reader may refuse
// them with an Error. Any other exception, and any finding of a sanitizer, is a defect.
//
// Two programs run a target: libfuzzer.cpp, which generates bytes, and malformed.cpp, an ordinary test, which uses
// those of the corpus.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "weft/engine/tensor/error.h"

namespace weft::fuzz {

void read(std::string_view bytes);

// Aborts unless this holds of what was read.
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
