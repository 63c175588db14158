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

Dumped dumped(const std::string& loss, const Features& features, const LossOfRank& of_rank,
              const verify::Options& options) {
  const int ranks = features.ranks();
  Dumped result{evidence(loss, features, options), std::vector<double>(static_cast<size_t>(ranks))};
  verify::SeamEvidence& seam = result.seam;
  for (const std::string& name : seam.loss->scalars) seam.scalars[name].resize(static_cast<size_t>(ranks));
  const DType dtype = features.towers[0][0].dtype();
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& comm) {
    const auto r = static_cast<size_t>(comm.rank().value);
    Tape tape;
    Vars towers, scalars;
    for (const auto& tower : features.towers) towers.push_back(tape.watch(tower[r]));
    for (const double value : {features.scale, features.bias})
      scalars.push_back(with_placement(tape.watch(Tensor::full({}, value, dtype)), comm, Placement::replicated));
    const Var own = of_rank(towers, scalars, comm);
    const std::vector<Var> gradients = tape.gradient(own, {towers[0], towers[1], scalars[0], scalars[1]});
    const std::lock_guard lock(mutex);
    result.losses[r] = own.value().item();
    for (size_t tower = 0; tower < 2; ++tower) add(seam, tower, static_cast<int>(r), gradients[tower].value());
    for (size_t i = 0; i < seam.loss->scalars.size(); ++i)
      seam.scalars[seam.loss->scalars[i]][r] = gradients[2 + i].value().item();
  });
  return result;
}

verify::SeamEvidence correct(const std::string& loss, const Features& features) {
  const verify::Options options = evidence(loss, features).batch.options;
  const auto share = [&](const Var& x, const Var& y, const Vars& scalars, Communicator& comm) {
    return loss == "nt_xent"    ? nt_xent(x, y, {.temperature = options.at("temperature")}, comm)
           : loss == "dcl"      ? dcl(x, y, {.temperature = options.at("temperature")}, comm)
           : loss == "info_nce" ? info_nce(x, y, {.temperature = options.at("temperature")}, comm)
           : loss == "clip"     ? clip_loss(x, y, scalars[0], {}, comm)
                                : siglip_loss(x, y, scalars[0], scalars[1], {}, comm);
  };
  const auto of_rank = [&](const Vars& towers, const Vars& scalars, Communicator& comm) {
    return share(towers[0], towers[1], scalars, comm) * static_cast<double>(comm.size());
  };
  return dumped(loss, features, of_rank).seam;
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
