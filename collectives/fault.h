#pragma once
#include "weft/engine/tensor/error.h"

namespace weft {

// An error that ends the job on every rank, with a fixed exit code: docs/faults.md.
struct Fault : Error {
  int exit_code;
  Fault(int exit_code, const std::string& message) : Error(message), exit_code(exit_code) {}
};

namespace exit_codes {
constexpr int usage = 64, malformed_input = 65, missing_input = 66, exception = 70, premature_exit = 71, unwinding = 72,
              io = 74, configuration_differs = 78, deadline = 86, mismatch = 87, non_finite = 88, out_of_memory = 89,
              wrong_launcher = 90, peer_died = 91, collapsed = 92;
}

}  // namespace weft
