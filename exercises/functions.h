// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions to write, one in each exercise.
#include <functional>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft::exercises {

// What a function is until it is written.
class NotWritten : public Error {
 public:
  explicit NotWritten(const std::string& file = __builtin_FILE())
      : Error(file.substr(file.rfind("exercises/")) + ": not written yet") {}
};

struct Cotangents {
  Var product, square, w;
};
Cotangents cotangents(const Var& w, const Var& x);                                      // 1
Var geometric_mean(const Var& a, const Var& b);                                         // 2
Var mean_share(const Var& losses, Communicator& comm);                                  // 3
Var gather(const Var& rows, Communicator& comm);                                        // 4
Var attraction(const Var& features, Communicator& comm);                                // 5
Var two_layers(const Var& x, const Var& a, const Var& b, Communicator& comm);           // 6
Tensor whole_gradient(const Tensor& of_own_mean, int64_t samples, Communicator& comm);  // 7
Var whole_variance(const Var& samples, Communicator& comm);                             // 8
using Loss = std::function<Var(Tape&, const Parameter&)>;                               // this rank's share of it
Tensor gradient_of_both(const Parameter& w, const Loss& first, const Loss& second, Communicator& comm);     // 9
Tensor updated_codes(const Tensor& codes, const Tensor& tokens, const Tensor& chosen, Communicator& comm);  // 10

}  // namespace weft::exercises
