// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tensor/error.h"

#include <cstdio>

namespace weft {

void fail(std::initializer_list<std::string> parts) {
  std::string message;
  for (const std::string& part : parts) message += part;
  throw Error(message);
}

std::string text(double x) {
  char buffer[32];
  const int length = std::snprintf(buffer, sizeof buffer, "%.6g", x);
  return {buffer, static_cast<size_t>(length)};
}

}  // namespace weft
