#include "losses/quantizers/cases.h"

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

namespace weft {
namespace {

bool counts(int64_t sample) { return sample % 3 != 1; }

}  // namespace

Var with_decoder(const Quantized& quantized, const Var& weights, const LossCase::Inputs& x, Communicator& comm) {
  return quantized.loss + share(sum(quantized.values * weights), x.total, comm);
}

Var with_decoder(const Var& loss, const Var& values, const Var& weights) {
  return loss + sum(values * weights) / static_cast<double>(weights.shape()[0]);
}

Var mask_of(const LossCase::Inputs& x) {
  const Shape front = x.rows[0].shape().without(-1);
  Tensor mask(front, DType::u8);
  const int64_t tokens = front.product(1, front.rank());
  for (int64_t i = 0; i < mask.size(); ++i) mask.mutate<uint8_t>()[i] = counts(x.first + i / tokens);
  return derived(mask.to(x.rows[0].device()), x.rows[0]);
}

Tensor unmasked(const Var& tokens) {
  std::vector<double> numbers;
  const Shape front = tokens.shape().without(-1);
  const int64_t each = front.product(1, front.rank());
  for (int64_t i = 0; i < front.size(); ++i)
    if (counts(i / each)) numbers.push_back(static_cast<double>(i));
  return Tensor::from({static_cast<int64_t>(numbers.size())}, numbers, DType::i64);
}

}  // namespace weft
