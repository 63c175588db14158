// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/planted.h"

#include <mutex>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/dcl.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"

namespace weft::planted {

using verify::Matrix;

Features::Features(const std::vector<int64_t>& rows, int64_t width, DType dtype, uint64_t seed) : towers(2) {
  for (uint64_t tower = 0; tower < 2; ++tower)
    for (size_t r = 0; r < rows.size(); ++r)
      towers[tower].push_back(Tensor::uniform({rows[r], width}, {seed, 100 * r + tower}, -0.5, 0.5, dtype));
}

Matrix matrix_of(const Tensor& x) {
  const std::vector<double> values = x.to(DType::f64).values();
  Matrix result(x.shape()[0], x.shape()[1]);
  std::copy(values.begin(), values.end(), result.data());
  return result;
}

verify::Precision dumped_precision(DType dtype) {
  return dtype == DType::f32 ? verify::Precision{"f32", 0x1p-23} : verify::Precision();
}

verify::SeamEvidence evidence(const std::string& loss, const Features& features, const verify::Options& options) {
  verify::SeamEvidence seam;
  seam.loss = verify::find_loss(loss);
  seam.batch.options = seam.loss->options;
  for (const auto& [name, value] : options) seam.batch.options[name] = value;
  seam.batch.scalars = {{"scale", features.scale}, {"bias", features.bias}};
  for (const auto& tower : features.towers) {
    seam.batch.features.emplace_back();
    for (const Tensor& x : tower) seam.batch.features.back().push_back(matrix_of(x));
  }
  seam.gradients.assign(2, std::vector<Matrix>(static_cast<size_t>(features.ranks())));
  seam.precision = dumped_precision(features.towers[0][0].dtype());
  return seam;
}

void add(verify::SeamEvidence& seam, size_t tower, int rank, const Tensor& gradient) {
  seam.gradients[tower][static_cast<size_t>(rank)] = matrix_of(gradient);
}

verify::SeamEvidence correct(const std::string& loss, const Features& features) {
  verify::SeamEvidence seam = evidence(loss, features);
  const int ranks = features.ranks();
  for (const std::string& name : seam.loss->scalars) seam.scalars[name].resize(static_cast<size_t>(ranks));
  const DType dtype = features.towers[0][0].dtype();
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const int r = comm.rank().value;
    Tape tape;
    const Var x = tape.watch(features.towers[0][static_cast<size_t>(r)]),
              y = tape.watch(features.towers[1][static_cast<size_t>(r)]);
    const auto shared = [&](double value) {
      return with_placement(tape.watch(Tensor::full({}, value, dtype)), comm, Placement::replicated);
    };
    const Var scale = shared(features.scale), bias = shared(features.bias);
    const Var share = loss == "nt_xent"    ? nt_xent(x, y, {.temperature = seam.batch.options.at("temperature")}, comm)
                      : loss == "dcl"      ? dcl(x, y, {.temperature = seam.batch.options.at("temperature")}, comm)
                      : loss == "info_nce" ? info_nce(x, y, {.temperature = seam.batch.options.at("temperature")}, comm)
                      : loss == "clip"     ? clip_loss(x, y, scale, {}, comm)
                                           : siglip_loss(x, y, scale, bias, {}, comm);
    const std::vector<Var> gradients = tape.gradient(share, {x, y, scale, bias});
    const std::lock_guard lock(mutex);
    // Our objective is the sum over ranks, theirs the mean: each of their losses is W times ours.
    for (size_t tower = 0; tower < 2; ++tower)
      add(seam, tower, r, (gradients[tower] * static_cast<double>(ranks)).value());
    for (size_t i = 0; i < seam.loss->scalars.size(); ++i)
      seam.scalars[seam.loss->scalars[i]][static_cast<size_t>(r)] = ranks * gradients[2 + i].value().item();
  });
  return seam;
}

Slots slots_of_clip(const Features& features, int q, double weight, int64_t first_label) {
  Tape tape;
  const auto own = static_cast<size_t>(q);
  const Var images = tape.watch(features.towers[0][own]), texts = tape.watch(features.towers[1][own]);
  std::vector<Var> leaves = {images, texts};
  std::vector<std::vector<Var>> slots(2);
  for (size_t tower = 0; tower < 2; ++tower)
    for (const Tensor& x : features.towers[tower]) leaves.push_back(slots[tower].emplace_back(tape.watch(x)));
  const Var scale = tape.watch(Tensor::full({}, features.scale, images.dtype()));
  leaves.push_back(scale);
  const int64_t rows = images.shape()[0];
  Tensor labels = Tensor::zeros({rows}, DType::i64);
  for (int64_t i = 0; i < rows; ++i) labels.mutate<int64_t>()[i] = first_label + i;
  const auto picked = [&](const Var& queries, const std::vector<Var>& keys) {
    const Var products = matmul(queries, concat(keys, 0), Transpose::no, Transpose::yes);
    const Var scales = reshape(repeat(scale, 0, products.size()), products.shape());
    return sum(cross_entropy(products * scales, labels));
  };
  const Var loss = (picked(images, slots[1]) + picked(texts, slots[0])) * (weight / 2);
  const std::vector<Var> gradients = tape.gradient(loss, leaves);
  Slots result{{gradients[0].value(), gradients[1].value()}, {{}, {}}, gradients.back().value().item()};
  for (size_t tower = 0, i = 2; tower < 2; ++tower)
    for (size_t r = 0; r < slots[tower].size(); ++r) result.gathered[tower].push_back(gradients[i++].value());
  return result;
}

}  // namespace weft::planted
