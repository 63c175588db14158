// SPDX-License-Identifier: Apache-2.0
#pragma once
// Losses of several terms on a mesh of ranks, for a verifier that knows nothing of them: gradients by real collectives
// over real groups, and differences of the terms on one process.
#include "tests/verify/planted_mesh.h"

namespace weft::planted {

using Parameters = std::map<std::string, Var>;
using Terms = std::map<std::string, Var>;
using Share = std::function<Var(Groups&, const Parameters&)>;

// Of a job whose reducer adds up what ranks have.
struct Loss {
  verify::Mesh mesh;
  std::map<std::string, Tensor> parameters;
  std::function<Terms(const Parameters&)> terms;  // of the whole batch, on one process
  // What each rank differentiates, as it should be and as it is: the gradients are those of the sum over ranks.
  Share right, wrong;
  std::vector<int64_t> rows = {};  // if the ranks' losses are dumped, too
  bool objective = true;           // or its terms only
};

// What a framework with these shares writes, its gradients in this type.
verify::Dump dump_of(const Loss& loss, const Share& share, DType dtype);

}  // namespace weft::planted
