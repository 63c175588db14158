// SPDX-License-Identifier: Apache-2.0
#include "weft/models/residual_block.h"

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"

namespace weft {
namespace {

constexpr YX small = {3, 3};
Sliding around(int64_t stride) { return {.stride = {stride, stride}, .padding = {1, 1}}; }

}  // namespace

ResidualBlock::ResidualBlock(const std::string& name, int64_t in, int64_t out, int64_t stride, const Init& init)
    : first_(name + ".first", in, out, small, init, around(stride), {}, Bias::no),
      second_(name + ".second", out, out, small, init, around(1), {}, Bias::no),
      first_norm_(name + ".first_norm", out, init, {.op = Unary::Relu}),
      second_norm_(name + ".second_norm", out, init) {
  register_module(first_);
  register_module(first_norm_);
  register_module(second_);
  register_module(second_norm_);
  if (in == out && stride == 1) return;
  shortcut_ = std::make_unique<Conv2d>(name + ".shortcut", in, out, YX{1, 1}, init, Sliding{.stride = {stride, stride}},
                                       Activation{}, Bias::no);
  shortcut_norm_ = std::make_unique<LayerNorm>(name + ".shortcut_norm", out, init);
  register_module(*shortcut_);
  register_module(*shortcut_norm_);
}

Var ResidualBlock::apply(const Var& x, const Pass&) {
  const Var changed = second_norm_(second_(first_norm_(first_(x))));
  return relu(changed + (shortcut_ ? (*shortcut_norm_)((*shortcut_)(x)) : x));
}

}  // namespace weft
