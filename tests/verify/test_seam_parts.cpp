// SPDX-License-Identifier: Apache-2.0
// Losses of which a part is lost: one of two directions, one tower on its way home, one hop of a ring. Planted on one
// process, where every pair of ranks is at hand.
#include "tests/support/catch.h"
#include "tests/verify/planted.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;
using namespace weft::planted;
using verify::SeamEvidence;

namespace test_seam_parts {

// The features of all ranks and the scalars, watched.
struct Leaves {
  std::vector<std::vector<Var>> towers;
  Var scale, bias;
};
Var in_shape(const Var& scalar, const Var& x) {
  return reshape(repeat(scalar, 0, x.value().size()), x.value().shape());
}

// What a framework whose reducer averages dumps of a loss of the whole batch.
SeamEvidence dumped(const std::string& loss, const Features& features, const std::function<Var(const Leaves&)>& whole) {
  SeamEvidence seam = evidence(loss, features);
  const DType dtype = features.towers[0][0].dtype();
  Tape tape;
  Leaves leaves;
  std::vector<Var> all;
  for (const auto& tower : features.towers) {
    leaves.towers.emplace_back();
    for (const Tensor& x : tower) all.push_back(leaves.towers.back().emplace_back(tape.watch(x)));
  }
  all.push_back(leaves.scale = tape.watch(Tensor::full({}, features.scale, dtype)));
  all.push_back(leaves.bias = tape.watch(Tensor::full({}, features.bias, dtype)));
  const std::vector<Var> found = tape.gradient(whole(leaves), all);
  const int ranks = features.ranks();
  for (size_t i = 0; i + 2 < all.size(); ++i)
    add(seam, i / static_cast<size_t>(ranks), static_cast<int>(i) % ranks, (found[i] * ranks).value());
  for (size_t i = 0; i < seam.loss->scalars.size(); ++i)
    seam.scalars[seam.loss->scalars[i]].assign(static_cast<size_t>(ranks), found[all.size() - 2 + i].value().item());
  return seam;
}

// Of rows of one tower that each pick one of all rows of the other: the sum. Row i picks row i times the stride.
Var picked(const Leaves& leaves, size_t queries, int64_t stride = 1) {
  const Var of = concat(leaves.towers[queries], 0), keys = concat(leaves.towers[1 - queries], 0);
  const Var products = matmul(of, keys, Transpose::no, Transpose::yes);
  Tensor labels = Tensor::zeros({of.shape()[0]}, DType::i64);
  for (int64_t i = 0; i < of.shape()[0]; ++i) labels.mutate<int64_t>()[i] = i * stride % of.shape()[0];
  return sum(cross_entropy(products * in_shape(leaves.scale, products), labels));
}

// What becomes of the pairs of one rank's images with another one's texts.
enum class Pairs { kept, one_way, lost };
Var of_pairs(const Leaves& leaves, const std::function<Pairs(int images, int texts)>& becomes) {
  const int ranks = static_cast<int>(leaves.towers[0].size());
  std::vector<Var> terms;
  for (int q = 0; q < ranks; ++q)
    for (int s = 0; s < ranks; ++s) {
      const Pairs these = becomes(q, s);
      if (these == Pairs::lost) continue;
      const Var x = leaves.towers[0][static_cast<size_t>(q)], home = leaves.towers[1][static_cast<size_t>(s)];
      const Var y = these == Pairs::one_way ? detach(home) : home;
      const Var products = matmul(x, y, Transpose::no, Transpose::yes);
      std::vector<double> values(static_cast<size_t>(products.shape().size()), 1);
      for (int64_t i = 0; q == s && i < products.shape()[0]; ++i)
        values[static_cast<size_t>(i * products.shape()[1] + i)] = -1;
      const Tensor signs = Tensor::from(products.shape(), values, products.dtype());
      const Var logits = products * in_shape(leaves.scale, products) + in_shape(leaves.bias, products);
      terms.push_back(sum(softplus(logits * signs)));
    }
  return sum(stack(terms, 0));
}

SeamEvidence in_bf16(SeamEvidence seam) {
  const auto rounded = [](double x) { return Tensor::full({}, x, DType::f32).to(DType::bf16).to(DType::f64).item(); };
  for (auto& tower : seam.gradients)
    for (verify::Matrix& gradient : tower) gradient = gradient.unaryExpr(rounded).eval();
  for (auto& [name, of_ranks] : seam.scalars) std::ranges::transform(of_ranks, of_ranks.begin(), rounded);
  seam.precision = {"bf16", 0x1p-8};
  return seam;
}

std::string said(const SeamEvidence& seam) {
  verify::Dump dump;
  dump.ranks = seam.batch.ranks();
  const verify::Verdict verdict = verify::verdict(seam, dump);
  std::string all = verdict.best ? verify::title(*verdict.best->signature, verdict.best->variant) : "unknown";
  for (const std::string& same : verdict.same_as_best) all += " or " + same;
  return all;
}

// On uneven shards, drawn three times; in f32 and bf16.
void check(const std::string& loss, const std::string& expected,
           const std::function<Var(const Leaves&, int ranks)>& whole) {
  for (const int ranks : {3, 5})
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      std::vector<int64_t> rows;
      for (int r = 0; r < ranks; ++r) rows.push_back(4 + (r * 3) % 5);
      const Features features(rows, 6, DType::f32, seed);
      const SeamEvidence seam = dumped(loss, features, [&](const Leaves& leaves) {
        return whole(leaves, ranks) / static_cast<double>(concat(leaves.towers[0], 0).shape()[0]);
      });
      INFO(loss << " on " << ranks << " ranks, seed " << seed);
      CHECK(said(seam) == expected);
      CHECK(said(in_bf16(seam)) == expected);
    }
}

TEST_CASE("a direction of CLIP that is left out is named", "[test_seam_parts]") {
  check("clip", "S0", [](const Leaves& x, int) { return (picked(x, 0) + picked(x, 1)) * 0.5; });
  check("clip", "S39 (texts pick nothing)", [](const Leaves& x, int) { return picked(x, 0) * 0.5; });
  check("clip", "S39 (texts pick nothing, the others count twice)", [](const Leaves& x, int) { return picked(x, 0); });
  check("clip", "S39 (images pick nothing)", [](const Leaves& x, int) { return picked(x, 1) * 0.5; });
}

TEST_CASE("labels that count other columns are wrong, of unknown cause: sentence-transformers 3453 (50)",
          "[test_seam_parts]") {
  check("clip", "unknown", [](const Leaves& x, int) { return (picked(x, 0, 3) + picked(x, 1, 3)) * 0.5; });
}

TEST_CASE("a hop of SigLIP's ring that is left out, or from which no gradient comes home, is named",
          "[test_seam_parts]") {
  const auto in_hop = [](int hop, Pairs becomes) {
    return [=](const Leaves& x, int ranks) {
      return of_pairs(x, [=](int q, int s) { return s == (q + hop) % ranks ? becomes : Pairs::kept; });
    };
  };
  check("siglip", "S0", in_hop(1, Pairs::kept));
  check("siglip", "S35 (in hop 1 of a ring)", in_hop(1, Pairs::lost));
  check("siglip", "S35 (in hop 2 of a ring)", in_hop(2, Pairs::lost));
  check("siglip", "S20 (hop 1 of a ring is lost)", in_hop(1, Pairs::one_way));
  check("siglip", "S20 (hop 2 of a ring is lost)", in_hop(2, Pairs::one_way));
}

TEST_CASE("a mistake on the way home of one tower alone is named", "[test_seam_parts]") {
  struct OfTower {
    const char* said;
    size_t tower;
    double direct, keys;  // what counts of it
  };
  for (const OfTower& each : {OfTower{"S1 (of images only)", 0, 1, 0},
                              {"S1 (of texts only)", 1, 1, 0},
                              {"S3 (of texts only)", 1, -1, -1},
                              {"S6 (of images only)", 0, 1, -1}})
    for (const int ranks : {3, 5})
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        std::vector<int64_t> rows;
        for (int r = 0; r < ranks; ++r) rows.push_back(4 + (r * 3) % 5);
        const Features features(rows, 6, DType::f32, seed);
        SeamEvidence seam = evidence("clip", features);
        std::vector<Slots> slots;
        const double w = ranks, all = static_cast<double>(seam.batch.all_rows());
        for (int q = 0; q < ranks; ++q) slots.push_back(slots_of_clip(features, q, w / all, seam.batch.first_row(q)));
        const auto share = [&](double x) { return x < 0 ? 1 / w : x; };
        for (size_t r = 0; r < slots.size(); ++r) {
          for (size_t tower = 0; tower < 2; ++tower) {
            const bool here = tower == each.tower;
            verify::Matrix keys = 0 * matrix_of(slots[0].gathered[tower][r]);
            for (const Slots& q : slots) keys += matrix_of(q.gathered[tower][r]);
            seam.gradients[tower][r] = (here ? share(each.direct) : 1) * matrix_of(slots[r].direct[tower]) +
                                       (here ? share(each.keys) : 1) * keys;
          }
          seam.scalars["scale"].push_back(slots[r].scale);
        }
        INFO(ranks << " ranks, seed " << seed);
        CHECK(said(seam) == each.said);
        CHECK(said(in_bf16(seam)) == each.said);
      }
}

TEST_CASE("several ways to count labels at once say what each says alone", "[test_seam_parts]") {
  const verify::Labels next_row = [](const verify::Batch& batch, int rank) {
    std::vector<Eigen::Index> labels = verify::right_labels(batch, rank);
    for (Eigen::Index& each : labels) each = (each + 1) % batch.all_rows();
    return labels;
  };
  for (const char* loss : {"nt_xent", "dcl", "info_nce", "clip", "siglip"})
    for (const auto& [rows, temperature] : std::vector<std::pair<std::vector<int64_t>, double>>{
             {{5}, 0.5}, {{1}, 0.5}, {{4, 1, 0, 3}, 0.5}, {{4, 1, 0, 3}, 0.002}}) {
      SeamEvidence seam = evidence(loss, Features(rows, 6, DType::f64, 11));
      if (seam.batch.options.contains("temperature")) seam.batch.options["temperature"] = temperature;
      const auto together = seam.loss->parts(seam.batch, {}, {verify::right_labels, next_row})[1];
      const auto alone = seam.loss->parts(seam.batch, {}, {next_row})[0];
      for (size_t r = 0; r < rows.size(); ++r) {
        CAPTURE(loss, temperature, r);
        CHECK(together[r].value == Approx(alone[r].value).epsilon(1e-12));
        for (size_t tower = 0; tower < 2; ++tower) {
          CHECK(together[r].own[tower].isApprox(alone[r].own[tower], 1e-12));
          CHECK(together[r].keys[tower].isApprox(alone[r].keys[tower], 1e-12));
        }
        for (const auto& name : seam.loss->scalars)
          CHECK(together[r].scalars.at(name) == Approx(alone[r].scalars.at(name)).epsilon(1e-12));
      }
    }
}

}  // namespace test_seam_parts
