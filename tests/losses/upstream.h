// SPDX-License-Identifier: Apache-2.0
#pragma once
// What other libraries give for their losses: on three ranks, and on one process with the whole batch. Their figures
// are in tests/files/upstream; tools/oracles/run_losses makes them. On ranks, what a library delivers to its features
// has still to be averaged over the ranks by a reducer, as PyTorch's does.
#include <functional>
#include <map>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct UpstreamCase {
  using Named = std::map<std::string, Tensor>;
  struct Result {
    std::vector<double> values;               // of each rank
    std::vector<Tensor> rows;                 // gradients before the reducer, of the whole batch
    std::vector<std::vector<Tensor>> shared;  // of each rank
    std::vector<Named> states;                // of each rank, after the loss
  };

  std::string library, loss, mode;
  std::string beside;  // the line of loss_table where it is shown, if any
  Rows division;       // of the batch among the ranks
  std::vector<Tensor> inputs, shared;
  Named given;        // constants, such as a codebook
  Result one, ranks;  // of one process, and of `division`
};

class Upstream {
 public:
  explicit Upstream(const std::string& folder);
  static const Upstream& stored();  // in the source tree

  const UpstreamCase& operator()(const std::string& loss, const std::string& mode) const;

  // For a table: the library and how far its gradients on three ranks are from those of one process, relative to the
  // largest, after the reducer. "" if none has such a loss.
  std::string difference(const std::string& loss, const std::string& variant) const;

 private:
  std::vector<UpstreamCase> cases_;
};

// Ours, on ranks that have what the library's had.
struct Graded {
  double value = 0;
  std::vector<Tensor> rows, shared;  // gradients
};
using ShareOfLoss = std::function<Var(std::span<const Var> rows, std::span<const Var> shared, Communicator& comm)>;
Graded on_ranks_of(const UpstreamCase& c, const ShareOfLoss& loss);

// The largest difference of any element, relative to the largest that is expected.
double apart(const Tensor& actual, const Tensor& expected, double factor = 1);

// How far the library is from ours: its one process, in everything; and, on ranks, its value, and after the reducer its
// features and its scalars, from a multiple of ours.
double apart_on_one_process(const UpstreamCase& c, const Graded& ours);
double value_apart(const UpstreamCase& c, const Graded& ours);
double features_apart(const UpstreamCase& c, const Graded& ours, double factor = 1);
double scalars_apart(const UpstreamCase& c, const Graded& ours, double factor = 1);
double apart_everywhere(const UpstreamCase& c, const Graded& ours);

// The multiple of ours that is nearest to the library's features.
double features_factor(const UpstreamCase& c, const Graded& ours);

}  // namespace weft
