// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dumps for the verifier, made by Weft's engine: correct ones by the real losses on real ranks, wrong ones by plain
// operations in one process, where the gradient of every slot of a gather is at hand and each mistake can be made.
#include <functional>

#include "tests/support/on_ranks.h"
#include "tools/weft/verdict/verdict.h"
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft::planted {

// Features of W ranks: random, different on each, with these numbers of rows.
struct Features {
  std::vector<std::vector<Tensor>> towers;  // by tower and rank
  double scale = 3, bias = -1;

  Features(const std::vector<int64_t>& rows, int64_t width, DType dtype, uint64_t seed);
  int ranks() const { return static_cast<int>(towers[0].size()); }
};

verify::Matrix matrix_of(const Tensor& x);
verify::Precision dumped_precision(DType dtype);

verify::SeamEvidence evidence(const std::string& loss, const Features& features, const verify::Options& options = {});
void add(verify::SeamEvidence& seam, size_t tower, int rank, const Tensor& gradient);

// What a framework whose reducer averages dumps, from the loss of each rank, and the values of these losses.
struct Dumped {
  verify::SeamEvidence seam;
  std::vector<double> losses;  // by rank
};
using LossOfRank = std::function<Var(const Vars& towers, const Vars& scalars, Communicator& comm)>;
Dumped dumped(const std::string& loss, const Features& features, const LossOfRank& of_rank,
              const verify::Options& options = {});

// The same of Weft's own loss. Weft's objective is the sum over ranks, so each rank's loss is W times its share.
verify::SeamEvidence correct(const std::string& loss, const Features& features);

// CLIP with local rows, taken apart: what the loss of rank q says of its own features as queries, and of each slot of
// the gathered ones, by tower.
struct Slots {
  std::vector<Tensor> direct;                 // by tower
  std::vector<std::vector<Tensor>> gathered;  // by tower and slot
  double scale;
};
// `weight` of each row of rank q; `first_label`: the number that rank q takes for its first row's.
Slots slots_of_clip(const Features& features, int q, double weight, int64_t first_label);

}  // namespace weft::planted
