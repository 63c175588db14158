// SPDX-License-Identifier: Apache-2.0
#pragma once
// Results of other libraries for their losses, on three ranks and on one process with the whole batch. They are in
// tests/files/upstream; tools/oracles/run_losses writes them. On ranks, the gradients that a library delivers to its
// features are still to be averaged over the ranks by a reducer such as PyTorch's.
#include <functional>
#include <map>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct UpstreamCase {
  using Named = std::map<std::string, Tensor>;
  struct Result {
    std::vector<double> values;               // one per rank
    std::vector<Tensor> rows;                 // gradients before the reducer, for the whole batch
    std::vector<std::vector<Tensor>> shared;  // for each rank
    std::vector<Named> states;                // for each rank, after the loss
  };

  std::string library, loss, mode;
  std::string beside;  // the line of loss_table that shows it, if any
  Rows division;       // batch rows per rank
  std::vector<Tensor> inputs, shared;
  Named given;        // constants, such as a codebook
  Result one, ranks;  // on one process, and on `division`
};

class Upstream {
 public:
  explicit Upstream(const std::string& folder);
  static const Upstream& stored();  // from the source tree

  const UpstreamCase& operator()(const std::string& loss, const std::string& mode) const;

  // For a table: the library's name and how far its gradients on three ranks are from those of one process after the
  // reducer, relative to the largest. "" if no library has the loss.
  std::string difference(const std::string& loss, const std::string& variant) const;

 private:
  std::vector<UpstreamCase> cases_;
};

// Our result on ranks with the library's inputs.
struct Graded {
  double value = 0;
  std::vector<Tensor> rows, shared;  // gradients
};
using ShareOfLoss = std::function<Var(std::span<const Var> rows, std::span<const Var> shared, Communicator& comm)>;
Graded on_ranks_of(const UpstreamCase& c, const ShareOfLoss& loss);

// The largest difference of any element, relative to the largest expected element.
double apart(const Tensor& actual, const Tensor& expected, double factor = 1);

// How far the library's results are from ours: on one process, all of them; on ranks, its value, and after the reducer
// the gradients of its features and its scalars, up to a factor.
double apart_on_one_process(const UpstreamCase& c, const Graded& ours);
double value_apart(const UpstreamCase& c, const Graded& ours);
double features_apart(const UpstreamCase& c, const Graded& ours, double factor = 1);
double scalars_apart(const UpstreamCase& c, const Graded& ours, double factor = 1);
double apart_everywhere(const UpstreamCase& c, const Graded& ours);

// The factor that brings our feature gradients closest to the library's.
double features_factor(const UpstreamCase& c, const Graded& ours);

}  // namespace weft
