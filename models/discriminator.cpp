// SPDX-License-Identifier: Apache-2.0
#include "weft/models/discriminator.h"

#include "weft/collectives/share.h"
#include "weft/engine/nn/convolution.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/precision.h"

namespace weft {

std::unique_ptr<Sequential> patch_discriminator(const std::string& name, int64_t channels, int64_t width,
                                                const Init& init) {
  const Sliding halving{.stride = {2, 2}, .padding = {1, 1}}, same{.padding = {1, 1}};
  const auto leaky = [](const Var& x) { return leaky_relu(x, 0.2); };
  auto net = std::make_unique<Sequential>(name);
  net->add<Conv2d>(channels, width, YX{4, 4}, init, halving);
  net->then(leaky);
  net->add<Conv2d>(width, 2 * width, YX{4, 4}, init, halving);
  net->add<LayerNorm>(2 * width, init);
  net->then(leaky);
  net->add<Conv2d>(2 * width, 1, YX{3, 3}, init, same);
  return net;
}

static Var above_zero(const Var& x) {
  const Tensor zeros = Tensor::zeros(x.shape(), x.dtype(), x.device());
  return sum(greater(x.value(), zeros).to(DType::f64));
}

// The generated images are a leaf. Tape::gradient() leaves the tape intact for the discriminator's own backward.
Trial::Trial(Layer& discriminator, const Tensor& images, const Tensor& made, int64_t patches, Communicator& comm) {
  const Var leaf = tape.watch(made);
  const Var of_made = precise(discriminator(leaf)), of_real = precise(discriminator(tape.constant(images)));
  hinge = share(sum(relu(1.0 - of_real)) + sum(relu(1.0 + of_made)), 2 * patches, comm);
  pull = tape.gradient(share(-sum(of_made), patches, comm), {leaf})[0].value();
  right = (above_zero(of_real) + above_zero(-of_made)).value();
}

}  // namespace weft
