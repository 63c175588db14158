// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of the Error that f throws, or "nothing".
#include <string>

#include "weft/engine/tensor/error.h"

namespace weft {

template <class F> std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace weft
