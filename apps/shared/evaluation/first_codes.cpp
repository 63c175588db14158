// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/first_codes.h"

#include "weft/engine/ops/shape_ops.h"

namespace weft {

InitialTensors initial_tensors(VqVae& network, const std::vector<Parameter*>& others) {
  std::vector<Parameter*> all = tensors_of(network);
  all.insert(all.end(), others.begin(), others.end());
  return {"vq-vae", all, tensors_of(network.quantizer())};
}

void find_first_codes(VqVae& network, const LabelledImages& data, const LocalBatch& batch, const Init& init,
                      Communicator& comm) {
  Tape tape;
  const Tape::Pause without_gradients(&tape);
  Vars tokens;
  for (const MicroBatch& micro : batch.micro_batches) {
    const Tensor images = take(data, micro.samples, init.dtype).images;
    tokens.push_back((*network.encoder)(tape.constant(images.to(init.device))));
  }
  network.quantizer()(concat(tokens, 0), {.training = true, .key = init.key}, comm);
  network.quantizer().update(comm, init.key);
}

}  // namespace weft
