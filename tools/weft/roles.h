// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/weft/truth.h"

namespace weft::verify {

// What a tensor of a dump is. By its name, unless a manifest says otherwise:
//   images  images.grad  scale  scale.grad          features of a loss, its scalars, and their gradients
//   local/NAME  local/NAME/K  reduced/NAME  previous/NAME   a parameter's gradient (of micro-batch K)
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
    layer_input,
    layer_input_gradient,
    layer_output_gradient,
    layer_weight,
    layer_epsilon
  };
  Kind kind = Kind::none;
  std::string of;
  size_t micro_batch = 0;
};

const std::map<std::string, Role::Kind>& kinds_by_name();  // as manifests name them
Role role_by_name(const std::string& tensor, const Loss* loss);
bool is_one_of(const std::vector<std::string>& names, const std::string& name);

}  // namespace weft::verify
