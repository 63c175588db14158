// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/weft/truth/truth.h"

namespace weft::verify {

inline constexpr size_t max_micro_batches = 1 << 16;

// What a tensor of a dump is. By its name, unless a manifest says otherwise:
//   images  images.grad  scale  scale.grad          features of a loss, its scalars, and their gradients
//   local/NAME  local/NAME/K  local/NAME@USE  reduced/NAME  previous/NAME  again/NAME
//                                                   a parameter's gradient (of micro-batch K, of one of its uses)
//   update/NAME  weight/NAME                         what the optimizer adds to a parameter, and that before
//   truth/NAME  inexact/NAME/K  mended/NAME         of one process, by how much rounding moves it, and of ranks whose
//                                                   collectives pass on what gradients they have lost
//   gradient_norm                                   of all parameters
//   direction/NAME  objective/NAME  rank_loss/NAME  objective  rank_loss   of a parameter that was moved, or of none
//   objective/NAME@TERM  objective@TERM             the same of one term of the objective
//   batch_norm/NAME/x  .../x.grad  .../y.grad  .../weight  .../epsilon   of a layer
struct Role {
  enum class Kind {
    none,
    feature,
    seam_gradient,
    scalar,
    scalar_gradient,
    local_gradient,
    reduced_gradient,
    previous_gradient,
    repeated_gradient,
    update,
    weight,
    true_gradient,
    inexact_gradient,
    mended_gradient,
    gradient_norm,
    direction,
    objective,
    rank_loss,
    layer_input,
    layer_input_gradient,
    layer_output_gradient,
    layer_weight,
    layer_epsilon
  };
  Kind kind = Kind::none;
  std::string of;
  size_t micro_batch = 0;
  std::string use = {};  // of a parameter; or a term of the objective
};

bool is_of_parameter(Role::Kind kind);
bool is_of_truth(Role::Kind kind);
const std::map<std::string, Role::Kind>& kinds_by_name();  // as manifests name them
Role role_by_name(const std::string& tensor, const Loss* loss);
bool is_one_of(const std::vector<std::string>& names, const std::string& name);

}  // namespace weft::verify
