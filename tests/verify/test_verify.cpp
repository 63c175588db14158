// SPDX-License-Identifier: Apache-2.0
// The verifier against dumps that Weft's engine made: what is right is called right, and every mistake by its name.
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tests/verify/planted.h"
#include "tools/weft/verdict/print.h"
#include "weft/data/files/safetensors.h"
#include "weft/engine/ops/elementwise.h"

using namespace weft;
using namespace weft::planted;
using verify::Outcome;
using verify::Reducer;
using verify::Verdict;

namespace test_verify {

verify::Dump dump_of(int ranks) {
  verify::Dump dump;
  dump.ranks = ranks;
  return dump;
}

Verdict verdict_of(const verify::SeamEvidence& seam) { return verify::verdict(seam, dump_of(seam.batch.ranks())); }

std::string found(const Verdict& verdict) { return verdict.best ? verdict.best->signature->id : "unknown"; }

// The gradient that reaches the features of rank r, from what its own loss says of them and what all losses say of all
// slots: `adjoint` is what a framework makes of the latter.
struct Mistake {
  const char* id;
  std::function<Var(const std::vector<Slots>&, size_t tower, int r)> gradient;
  double scalars = 1;
  bool needs_equal_rows = false;
};

Var slot(const std::vector<Slots>& all, size_t tower, int q, int r) {
  return all[static_cast<size_t>(q)].gathered[tower][static_cast<size_t>(r)];
}
Var direct(const std::vector<Slots>& all, size_t tower, int r) { return all[static_cast<size_t>(r)].direct[tower]; }
Var from_all(const std::vector<Slots>& all, size_t tower, int r) {
  Var sum = slot(all, tower, 0, r);
  for (int q = 1; q < static_cast<int>(all.size()); ++q) sum = sum + slot(all, tower, q, r);
  return sum;
}
Var own_slices(const std::vector<Slots>& all, size_t tower) {
  Var sum = slot(all, tower, 0, 0);
  for (int q = 1; q < static_cast<int>(all.size()); ++q) sum = sum + slot(all, tower, q, q);
  return sum;
}
double count(const std::vector<Slots>& all) { return static_cast<double>(all.size()); }

const Mistake mistakes[] = {
    {"S0", [](auto& all, size_t t, int r) { return direct(all, t, r) + from_all(all, t, r); }},
    {"S1", [](auto& all, size_t t, int r) { return direct(all, t, r); }},
    {"S2", [](auto& all, size_t t, int r) { return direct(all, t, r) + slot(all, t, r, r); }},
    {"S3", [](auto& all, size_t t, int r) { return (direct(all, t, r) + from_all(all, t, r)) / count(all); }},
    {"S4", [](auto& all, size_t t, int r) { return direct(all, t, r) + slot(all, t, r, r) * count(all); }},
    {"S5", [](auto& all, size_t t, int r) { return direct(all, t, r) + own_slices(all, t); }, 1, true},
    {"S5",
     [](auto& all, size_t t, int) {
       Var sum = (direct(all, t, 0) + from_all(all, t, 0)) / count(all);
       for (int q = 1; q < static_cast<int>(all.size()); ++q)
         sum = sum + (direct(all, t, q) + from_all(all, t, q)) / count(all);
       return sum;
     },
     1, true},
    {"S6", [](auto& all, size_t t, int r) { return direct(all, t, r) + from_all(all, t, r) / count(all); }},
    {"S7", [](auto& all, size_t t, int r) { return direct(all, t, r) + from_all(all, t, r) * count(all); }},
    {"S8", [](auto& all, size_t t, int r) { return (direct(all, t, r) + from_all(all, t, r)) * count(all); }, -1},
    {"S9", [](auto& all, size_t t, int r) { return (direct(all, t, r) + from_all(all, t, r)) / count(all); }, -2},
    {"S20", [](auto& all, size_t t,
               int r) { return direct(all, t, r) + (t == 0 ? from_all(all, t, r) : slot(all, t, r, r)); }},
};

std::vector<int64_t> uneven(int ranks) {
  std::vector<int64_t> rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(4 + (r * 3) % 5);
  return rows;
}

// A framework whose reducer averages: the loss of rank q is W / B times the sum over its rows, times `weights`.
verify::SeamEvidence planted_clip(const Features& features, const Mistake& mistake,
                                  const std::vector<double>& weights = {}, bool offset = true) {
  verify::SeamEvidence seam = evidence("clip", features);
  const int ranks = features.ranks();
  const double all_rows = static_cast<double>(seam.batch.all_rows()), w = ranks;
  std::vector<Slots> slots;
  for (int q = 0; q < ranks; ++q)
    slots.push_back(slots_of_clip(features, q, w / all_rows * (weights.empty() ? 1 : weights[static_cast<size_t>(q)]),
                                  offset ? seam.batch.first_row(q) : 0));
  const double factor = mistake.scalars == -1 ? w : mistake.scalars == -2 ? 1 / w : mistake.scalars;
  for (int r = 0; r < ranks; ++r) {
    for (size_t tower = 0; tower < 2; ++tower) add(seam, tower, r, mistake.gradient(slots, tower, r).value());
    seam.scalars["scale"].push_back(factor * slots[static_cast<size_t>(r)].scale);
  }
  return seam;
}

TEST_CASE("correct gradients of contrastive losses are called correct, in f64 and f32, with uneven and empty ranks") {
  for (const char* loss : {"clip", "siglip", "nt_xent", "info_nce", "dcl"})
    for (const DType dtype : {DType::f64, DType::f32})
      for (const auto& rows : {std::vector<int64_t>{5, 7, 4}, {6, 0, 3, 8, 2}}) {
        const Verdict verdict = verdict_of(correct(loss, Features(rows, 6, dtype, 3)));
        INFO(loss << " " << text(dtype) << " on " << rows.size() << " ranks: " << verdict.best->error);
        CHECK(verdict.outcome == Outcome::correct);
        CHECK(verdict.blind_to.empty());
      }
}

TEST_CASE("every mistake at the seam of CLIP is named, and nothing else explains it") {
  for (const int ranks : {3, 5})
    for (const DType dtype : {DType::f64, DType::f32})
      for (const Mistake& mistake : mistakes) {
        const std::vector<int64_t> rows =
            mistake.needs_equal_rows ? std::vector<int64_t>(static_cast<size_t>(ranks), 5) : uneven(ranks);
        const Verdict verdict = verdict_of(planted_clip(Features(rows, 6, dtype, 4), mistake));
        INFO(mistake.id << " " << text(dtype) << " on " << ranks << " ranks, found " << found(verdict));
        CHECK(found(verdict) == mistake.id);
        CHECK((verdict.outcome == Outcome::wrong) == (std::string(mistake.id) != "S0"));
        CHECK(verdict.same_as_best.empty());
        if (verdict.outcome == Outcome::wrong) CHECK((verdict.runner_up && verdict.runner_up->error > verify::limit));
      }
}

verify::SeamEvidence in_bf16(verify::SeamEvidence seam) {
  const auto rounded = [](double x) { return Tensor::full({}, x, DType::f32).to(DType::bf16).to(DType::f64).item(); };
  for (auto& tower : seam.gradients)
    for (verify::Matrix& gradient : tower) gradient = gradient.unaryExpr(rounded);
  for (double& g : seam.scalars.at("scale")) g = rounded(g);
  seam.precision = {"bf16", 0x1p-8};
  return seam;
}

TEST_CASE("gradients in bf16 still name every mistake at the seam of CLIP, and right ones are called correct") {
  for (const int ranks : {3, 5})
    for (const Mistake& mistake : mistakes) {
      const std::vector<int64_t> rows =
          mistake.needs_equal_rows ? std::vector<int64_t>(static_cast<size_t>(ranks), 5) : uneven(ranks);
      const Verdict verdict = verdict_of(in_bf16(planted_clip(Features(rows, 6, DType::f32, 4), mistake)));
      INFO(mistake.id << " on " << ranks << " ranks, found " << found(verdict));
      CHECK(found(verdict) == mistake.id);
      CHECK(verdict.same_as_best.empty());
    }
}

TEST_CASE("means of uneven shards, counted padding and labels without an offset are named") {
  for (const int ranks : {3, 5}) {
    const std::vector<int64_t> rows = uneven(ranks);
    const Features features(rows, 6, DType::f64, 5);
    double all = 0, largest = 0;
    for (const int64_t b : rows) all += static_cast<double>(b), largest = std::max(largest, static_cast<double>(b));
    std::vector<double> of_means, padded;
    for (const int64_t b : rows) {
      of_means.push_back(all / (ranks * static_cast<double>(b)));
      padded.push_back(all / (ranks * largest));
    }
    CHECK(found(verdict_of(planted_clip(features, mistakes[0], of_means))) == "S12");
    CHECK(found(verdict_of(planted_clip(features, mistakes[0], padded))) == "S13");
    CHECK(found(verdict_of(planted_clip(features, mistakes[0], {}, false))) == "S25");
  }
}

TEST_CASE("labels of other ranks, features that are not gathered and slots in another order are named") {
  using Labels = std::function<int64_t(const verify::Batch&, int rank)>;
  const std::pair<const char*, Labels> first_labels[] = {
      {"labels of the next rank",
       [](const verify::Batch& batch, int r) { return batch.first_row((r + 1) % batch.ranks()); }},
      {"offsets of equal shards", [](const verify::Batch& batch, int r) { return r * batch.rows(r); }},
  };
  for (const int ranks : {3, 5})
    for (const DType dtype : {DType::f64, DType::f32}) {
      // The shorter shards come last, so that no label is beyond the batch.
      std::vector<int64_t> rows;
      for (int r = 0; r < ranks; ++r) rows.push_back(r == 0 ? 7 : 4);
      const Features features(rows, 6, dtype, 8),
          even(std::vector<int64_t>(static_cast<size_t>(ranks), 4), 6, dtype, 8);
      const auto planted = [&](const Features& of, auto first_label) {
        verify::SeamEvidence seam = evidence("clip", of);
        std::vector<Slots> slots;
        for (int q = 0; q < ranks; ++q)
          slots.push_back(
              slots_of_clip(of, q, ranks / static_cast<double>(seam.batch.all_rows()), first_label(seam.batch, q)));
        return std::pair{seam, slots};
      };
      const auto judged = [&](verify::SeamEvidence seam, const std::vector<Slots>& slots, auto whose) {
        for (int r = 0; r < ranks; ++r) {
          for (size_t tower = 0; tower < 2; ++tower) {
            verify::Matrix g = matrix_of(slots[static_cast<size_t>(r)].direct[tower]);
            for (const Slots& each : slots) g += matrix_of(each.gathered[tower][static_cast<size_t>(whose(r))]);
            seam.gradients[tower][static_cast<size_t>(r)] = g;
          }
          seam.scalars["scale"].push_back(slots[static_cast<size_t>(r)].scale);
        }
        const Verdict verdict = verdict_of(seam);
        return verdict.best ? verify::title(*verdict.best->signature, verdict.best->variant) : "unknown";
      };
      const auto own = [](int r) { return r; };
      for (const auto& [name, first_label] : first_labels) {
        if (std::string(name) == "labels of the next rank" && ranks == 3)
          continue;  // rank 2's rows are fewer than rank 0's
        const auto [seam, slots] = planted(features, first_label);
        CHECK(judged(seam, slots, own) == "S25 (" + std::string(name) + ")");
      }
      const auto right = [](const verify::Batch& batch, int r) { return batch.first_row(r); };
      const auto [seam, slots] = planted(even, right);
      CHECK(judged(seam, slots, own) == "S0");
      CHECK(judged(seam, slots, [=](int r) { return ranks - 1 - r; }) == "S36 (reversed)");
      CHECK(judged(seam, slots, [=](int r) { return (r + 1) % ranks; }) == "S36 (of the next rank)");
      // Each rank alone, whose reducer averages.
      verify::SeamEvidence alone = evidence("clip", features);
      for (int r = 0; r < ranks; ++r) {
        Features one = features;
        for (auto& tower : one.towers) tower = {tower[static_cast<size_t>(r)]};
        const Slots of_one = slots_of_clip(one, 0, 1.0 / static_cast<double>(rows[static_cast<size_t>(r)]), 0);
        for (size_t tower = 0; tower < 2; ++tower)
          alone.gradients[tower][static_cast<size_t>(r)] =
              matrix_of(of_one.direct[tower]) + matrix_of(of_one.gathered[tower][0]);
        alone.scalars["scale"].push_back(of_one.scale);
      }
      CHECK(found(verdict_of(alone)) == "S35");
    }
}

TEST_CASE("scalars that accumulate in every pass over cached features are named, if the number of passes is known") {
  for (const int ranks : {3, 5})
    for (const int passes : {2, 4}) {
      verify::SeamEvidence seam = correct("siglip", Features(uneven(ranks), 6, DType::f32, 9));
      for (auto& [name, of_ranks] : seam.scalars)
        for (double& gradient : of_ranks) gradient *= passes;
      verify::Dump dump = dump_of(ranks);
      CHECK(found(verify::verdict(seam, dump)) == "unknown");
      dump.micro_batches = passes;
      const Verdict verdict = verify::verdict(seam, dump);
      CHECK(found(verdict) == "S19");
      CHECK(verdict.same_as_best.empty());
    }
}

TEST_CASE("a mistake without a name is called wrong, of unknown cause") {
  verify::SeamEvidence seam = correct("clip", Features({5, 7, 4}, 6, DType::f64, 6));
  seam.gradients[0][1](2, 3) *= -1;
  const Verdict verdict = verdict_of(seam);
  CHECK(verdict.outcome == Outcome::wrong);
  CHECK_FALSE(verdict.best.has_value());
  CHECK(verdict.table[1].worst_element == 2 * 6 + 3);
}

TEST_CASE("one per cent is found in a tensor of a thousand f32 elements, and 1,000 correct cases are called correct") {
  const char* names[] = {"clip", "siglip", "nt_xent", "info_nce", "dcl"};
  int wrong = 0, missed = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool large = i % 100 == 0;
    const int ranks = 1 + i % 5;
    std::vector<int64_t> rows;
    for (int r = 0; r < ranks; ++r) rows.push_back(large ? 64 : 2 + (i + r * 7) % 6);
    verify::SeamEvidence seam = correct(
        names[i % 5], Features(rows, large ? 16 : 4, i % 2 ? DType::f32 : DType::f64, static_cast<uint64_t>(i)));
    wrong += verdict_of(seam).outcome != Outcome::correct;
    if (!large) continue;
    seam.gradients[1][0] *= 1.01;
    missed += verdict_of(seam).outcome != Outcome::wrong;
  }
  CHECK(wrong == 0);
  CHECK(missed == 0);
}

TEST_CASE("with equal data on all ranks the verifier says what it cannot tell") {
  Features features({4, 4, 4}, 6, DType::f64, 7);
  for (auto& tower : features.towers) tower = {tower[0], tower[0], tower[0]};
  const Verdict verdict = verdict_of(correct("clip", features));
  CHECK(verdict.outcome == Outcome::correct);
  CHECK(std::any_of(verdict.blind_to.begin(), verdict.blind_to.end(),
                    [](const std::string& each) { return each.starts_with("S5"); }));
}

// A parameter's gradients in W ranks and A micro-batches, and what a reducer that averages makes of them.
verify::ParameterEvidence reduced_parameter(
    int ranks, size_t passes, const std::function<verify::Matrix(const verify::ParameterEvidence&, int r)>& reduce) {
  verify::ParameterEvidence p;
  p.name = "weight";
  for (int r = 0; r < ranks; ++r) {
    p.local.emplace_back();
    for (size_t k = 0; k < passes; ++k) {
      const Tensor g = data_of(r, {40}, static_cast<int>(k) + 1);
      const std::vector<double> values = g.values();
      p.local.back().push_back(Eigen::Map<const verify::Matrix>(values.data(), 1, 40));
    }
    const std::vector<double> before = data_of(r, {40}, 50).values();
    p.previous.push_back(Eigen::Map<const verify::Matrix>(data_of(0, {40}, 50).values().data(), 1, 40));
  }
  for (int r = 0; r < ranks; ++r) p.reduced.push_back(reduce(p, r));
  return p;
}

verify::Matrix sum_of(const verify::ParameterEvidence& p, int from, int to, size_t first = 0, size_t last = 99) {
  verify::Matrix sum = verify::Matrix::Zero(1, 40);
  for (int r = from; r < to; ++r)
    for (size_t k = first; k < std::min(last, p.local[0].size()); ++k) sum += p.local[static_cast<size_t>(r)][k];
  return sum;
}

TEST_CASE("every mistake of a reducer is named") {
  for (const int w : {3, 5}) {
    const auto name = [&](auto reduce) {
      verify::Dump dump = dump_of(w);
      dump.rows = {11, 5, 9, 4, 8};
      dump.rows.resize(static_cast<size_t>(w));
      dump.parameters = {reduced_parameter(w, 2, reduce)};
      return found(verify::verdict(dump.parameters[0], dump));
    };
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 0, w) / w); }) == "S0");
    CHECK(name([&](auto& p, int) { return sum_of(p, 0, w); }) == "S8");
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 0, w) / (w * w)); }) == "S9");
    CHECK(name([&](auto& p, int) { return verify::Matrix((sum_of(p, 0, w, 0, 1) * w + sum_of(p, 0, w, 1)) / w); }) ==
          "S14");
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 0, w, 1) / w); }) == "S15");
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 0, w) * 2 / w); }) == "S16");
    CHECK(name([&](auto& p, int r) { return verify::Matrix(sum_of(p, 0, w, 0, 1) / w + sum_of(p, r, r + 1, 1)); }) ==
          "S17");
    CHECK(name([&](auto&, int) { return verify::Matrix(verify::Matrix::Zero(1, 40)); }) == "S18");
    CHECK(name([&](auto& p, int r) { return sum_of(p, r, r + 1); }) == "S22");
    CHECK(name([&](auto& p, int) { return p.previous[0]; }) == "S23");
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 1, w) / w); }) == "S24");
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 0, w) / (w * 40.0)); }) == "S33");  // elements
    const double samples = w == 3 ? 25 : 37;
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 0, w) / (w * samples)); }) == "S33");
    CHECK(name([&](auto& p, int) { return verify::Matrix(sum_of(p, 0, w) / w * samples); }) == "S33");
  }
}

TEST_CASE("gradients have a factor if they are a multiple of the truth up to its own rounding") {
  const auto verdict_of = [](double factor, double off) {
    verify::Dump dump = dump_of(5);
    dump.parameters = {reduced_parameter(5, 2, [=](auto& p, int) {
      verify::Matrix truth = sum_of(p, 0, 5) / 5;
      truth(0, 7) += off;
      return verify::Matrix(factor * truth);
    })};
    return verify::verdict(dump.parameters[0], dump);
  };
  constexpr double off = 1e-13;
  const double rounding = off / verdict_of(1, off).table[0].error;
  CHECK(verdict_of(3, 0.5 * verify::limit * rounding).factor.value() == Approx(3));
  CHECK_FALSE(verdict_of(3, 2 * verify::limit * rounding).factor);
}

TEST_CASE("zeros are alike, and like nothing else") {
  const verify::Matrix zeros = verify::Matrix::Zero(2, 3), ones = verify::Matrix::Ones(2, 3);
  const auto cosine_and_ratio = [](const verify::Matrix& dumped, const verify::Matrix& truth) {
    const verify::Comparison found = verify::compared("x", dumped, truth, 1);
    return std::pair(found.cosine, found.ratio);
  };
  CHECK(cosine_and_ratio(zeros, zeros) == std::pair(1.0, 1.0));
  CHECK(cosine_and_ratio(zeros, ones) == std::pair(0.0, 0.0));
  CHECK(cosine_and_ratio(ones, zeros) == std::pair(0.0, std::numeric_limits<double>::infinity()));
}

TEST_CASE("a table says by how many times rounding a tensor is off, and where it is worst") {
  const verify::Matrix ones = verify::Matrix::Ones(2, 3);
  verify::Matrix off = ones;
  off(1, 1) = 2;
  const auto row = [&](const verify::Matrix& dumped, double rounding) {
    return verify::table_of({verify::compared("x", dumped, ones, rounding)});
  };
  CHECK_THAT(row(ones, 1), Catch::Matchers::Contains(" exact ") && !Catch::Matchers::Contains("not"));
  CHECK_THAT(row(off, 0.4), Catch::Matchers::Contains(" 2.5x ") && Catch::Matchers::Contains("   [4] 2, not 1\n"));
  CHECK_THAT(row(off, 1e-3), Catch::Matchers::Contains(" 1.0e+03x "));
}

TEST_CASE("a folder with a manifest, and files without one, get the same verdict; what is missing is said") {
  const ScratchFolder scratch;
  const Features features({5, 7, 4}, 6, DType::f32, 8);
  const verify::SeamEvidence seam = planted_clip(features, mistakes[1]);
  std::vector<std::filesystem::path> files;
  for (int r = 0; r < 3; ++r) {
    const auto tensor = [](const verify::Matrix& m) {
      Tensor x({m.rows(), m.cols()}, DType::f64);
      std::copy(m.data(), m.data() + m.size(), x.mutate<double>());
      return x.to(DType::f32);
    };
    const auto at = static_cast<size_t>(r);
    const std::vector<NamedTensor> tensors = {
        {"images", features.towers[0][at]},
        {"texts", features.towers[1][at]},
        {"images.grad", tensor(seam.gradients[0][at])},
        {"texts.grad", tensor(seam.gradients[1][at])},
        {"scale", Tensor::full({}, features.scale, DType::f32)},
        {"scale.grad", Tensor::full({}, seam.scalars.at("scale")[at], DType::f32)}};
    files.push_back(scratch.path / ("rank" + std::to_string(r) + ".safetensors"));
    write_safetensors(files.back(), tensors, {});
  }
  std::ofstream(scratch.path / "manifest.json") << R"({"weft_manifest": 1, "loss": {"name": "clip"}})";
  for (const verify::Dump& dump :
       {verify::read_dump(scratch.path), verify::read_dump({"clip", files, Reducer::mean, {}})}) {
    const std::vector<Verdict> all = verify::verdicts(dump);
    REQUIRE(all.size() == 1);
    CHECK(found(all[0]) == "S1");
    CHECK(verify::text_of(all, dump).find("signature S1: no gradient through the gather") != std::string::npos);
  }
  files.pop_back();
  CHECK(verify::overall(verify::verdicts(verify::read_dump({"clip", files, Reducer::mean, {}}))) == Outcome::wrong);
  CHECK_THROWS_WITH(verify::read_dump({"clop", files, Reducer::mean, {}}),
                    Catch::Matchers::Contains("no loss is called 'clop'"));
  CHECK_THROWS_WITH(verify::read_dump({"siglip", files, Reducer::mean, {}}),
                    Catch::Matchers::Contains("siglip needs its scalar 'bias'"));
}

}  // namespace test_verify
