// SPDX-License-Identifier: Apache-2.0
// Why gradients of a step are not those of one process: the distance from the truth, its causes, and the verdict on
// what files have of it.
#include <Eigen/Core>
#include <fstream>
#include <functional>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tools/weft/verdict/certificate.h"
#include "tools/weft/verdict/step_verdict.h"
#include "weft/data/files/safetensors.h"

using namespace weft;
using verify::Matrix;

namespace test_step_causes {

Matrix drawn(uint64_t seed, uint64_t number, int64_t size) {
  const Tensor x = Tensor::uniform({size}, Random{seed, number}, -1, 1, DType::f64);
  return Eigen::Map<const Matrix>(x.data<double>(), 1, size);
}
Matrix rounded(const Matrix& x) { return x.cast<float>().cast<double>(); }

// Two parameters of a step whose ranks have 2, 1, 3, 2, 1 samples. The gradient of a rank is that of its samples' share
// of the mean over all, times the number of ranks, and the reducer should take the mean.
struct Trained {
  int ranks;
  uint64_t seed;

  using Local = std::function<Matrix(const Matrix& right, int rank)>;
  using Reduced = std::function<Matrix(const std::vector<Matrix>& local, int rank)>;

  verify::Step step(const Local& local, const Reduced& reduced) const {
    verify::Step step;
    step.ranks = ranks;
    for (int r = 0; r < ranks; ++r) step.rows.push_back(std::array{2, 1, 3}[static_cast<size_t>(r % 3)]);
    for (const int64_t rows : {12, 1}) {
      verify::StepParameter& each = step.parameters.emplace_back();
      const int64_t size = rows * 20;
      each.name = rows == 1 ? "bias" : "weight";
      each.rows = rows;
      each.precision = {"f32", 0x1p-23};
      each.truth = Matrix::Zero(1, size);
      std::vector<Matrix> all;
      for (int r = 0; r < ranks; ++r) {
        const Matrix right = rounded((1 + r) * drawn(seed, static_cast<uint64_t>(r + ranks * rows), size));
        each.truth += right / ranks;
        all.push_back(rounded(local(right, r)));
        each.local.push_back({all.back()});
      }
      each.inexact = {each.truth + 0x1p-23 * each.truth.cwiseProduct(drawn(seed, 99, size))};
      for (int r = 0; r < ranks; ++r) each.reduced.push_back(rounded(reduced(all, r)));
    }
    return step;
  }
};

Matrix sum(const std::vector<Matrix>& local) {
  Matrix all = Matrix::Zero(1, local[0].size());
  for (const Matrix& each : local) all += each;
  return all;
}
Matrix mean(const std::vector<Matrix>& local, int = 0) { return sum(local) / static_cast<double>(local.size()); }
Matrix as_it_should(const Matrix& right, int = 0) { return right; }

std::string said(const verify::Step& step) {
  const auto found = verify::cause_of(step);
  if (!found) return "unknown";
  return found->signature ? found->signature->id : found->text;
}

template <class T>
verify::Distance distance_of(const std::vector<T>& found, const std::vector<T>& truth, int64_t rows) {
  const std::vector<const T*> inexact{truth.data()};
  return verify::distance<T>(found.data(), {truth.data(), inexact, nullptr, 0, std::ssize(truth), rows,
                                            static_cast<double>(std::numeric_limits<T>::epsilon())});
}

TEST_CASE("mistakes of a step are named, given the truth", "[test_step_causes]") {
  for (const Trained trained : {Trained{3, 1}, Trained{3, 2}, Trained{5, 3}, Trained{5, 4}}) {
    const int ranks = trained.ranks;
    CAPTURE(ranks, trained.seed);
    CHECK(said(trained.step(as_it_should, [](const auto& local, int) { return sum(local); })) == "S8");
    CHECK(said(trained.step(as_it_should, [](const auto& local, int r) { return local[size_t(r)]; })) == "S22");
    CHECK(said(trained.step(as_it_should, [=](const auto& local, int) { return Matrix(mean(local) / ranks); })) ==
          "S9");
    CHECK(said(trained.step(
              as_it_should,
              [=](const auto& local, int r) {
                return Matrix(r < 2 ? Matrix((local[0] + local[1]) / 2) : mean({local.begin() + 2, local.end()}));
              })) == (ranks == 3 ? "reduced in groups of their own: ranks 0, 1; 2"
                                 : "reduced in groups of their own: ranks 0, 1; 2, 3, 4"));
    // A mean over its own samples, on every rank.
    const std::vector<int64_t> rows = trained.step(as_it_should, mean).rows;
    const double mean_rows =
        sum({Eigen::Map<const Eigen::Matrix<int64_t, 1, -1>>(rows.data(), ranks).cast<double>()}).mean();
    CHECK(said(trained.step(
              [&](const Matrix& right, int r) { return Matrix(right * mean_rows / double(rows[size_t(r)])); }, mean)) ==
          "S12");
    CHECK(said(trained.step([](const Matrix& right, int r) { return Matrix(right * (r == 1 ? 0.5 : 1)); }, mean))
              .starts_with("the gradients of ranks 0 to "));
    CHECK(said(trained.step([](const Matrix& right, int r) { return drawn(7, uint64_t(r), right.size()); }, mean)) ==
          "wrong before the reduction");
  }
}

TEST_CASE("gradients of a step that were clipped before the reduction are told", "[test_step_causes]") {
  for (const Trained trained : {Trained{3, 1}, Trained{5, 2}}) {
    // Of both parameters together, on each rank.
    std::vector<double> squares(size_t(trained.ranks));
    trained.step([&](const Matrix& right, int r) { return squares[size_t(r)] += right.squaredNorm(), right; }, mean);
    const double most = std::sqrt(squares[0]) * 1.5;
    CHECK(said(trained.step(as_it_should, [&](const auto& local, int) {
            std::vector<Matrix> clipped = local;
            for (size_t r = 0; r < local.size(); ++r) clipped[r] *= std::min(1.0, most / std::sqrt(squares[r]));
            return mean(clipped);
          })).starts_with("clipped to 1"));
  }
}

TEST_CASE("what no weights explain has no cause", "[test_step_causes]") {
  const auto broken = [](const auto& local, int) {
    Matrix all = mean(local);
    all(3) += 1;
    return all;
  };
  CHECK(said(Trained{3, 5}.step(as_it_should, broken)) == "unknown");
}

TEST_CASE("a rank whose gradient is no part of the truth has no weight", "[test_step_causes]") {
  verify::Step step = Trained{3, 1}.step(as_it_should, mean);
  for (verify::StepParameter& each : step.parameters) {
    each.local[0][0] = rounded(3 * each.truth);
    for (uint64_t r : {1, 2}) each.local[r][0] = rounded(drawn(8, r, each.truth.size()));
    each.reduced.assign(3, rounded(mean({each.local[0][0], each.local[1][0], each.local[2][0]})));
  }
  CHECK(said(step) == "wrong before the reduction");
}

TEST_CASE("the distance from the truth is that of the worst element, row or all", "[test_step_causes]") {
  const int64_t rows = 3, columns = 5000;  // more than one portion of a row
  std::vector<float> truth(size_t(rows * columns));
  for (size_t i = 0; i < truth.size(); ++i) truth[i] = float(1 + i % 7);
  CHECK(distance_of(truth, truth, rows).error == 0);

  auto found = truth;
  found[12345] *= 1 + 200 * std::numeric_limits<float>::epsilon();
  verify::Distance distance = distance_of(found, truth, rows);
  CHECK(distance.error > verify::limit);
  CHECK(distance.worst_element == 12345);
  CHECK(distance.found == found[12345]);

  // What no element shows: a row, in portions or not, and all of it.
  const auto scaled = [&](size_t begin, size_t end, int neighbours, int64_t of_rows) {
    auto x = truth;
    for (size_t i = begin; i < end; ++i) x[i] *= 1 + float(neighbours) * std::numeric_limits<float>::epsilon();
    return distance_of(x, truth, of_rows).error;
  };
  CHECK(scaled(1500, 1501, 16, 100) < verify::limit);
  CHECK(scaled(1500, 1650, 16, 100) > verify::limit);
  CHECK(scaled(5000, 7000, 10, 3) > verify::limit);
  CHECK(scaled(5000, 7000, 10, 1) < verify::limit);
  CHECK(scaled(0, truth.size(), 8, 1) > verify::limit);

  for (const size_t i : {size_t(0), size_t(4999), truth.size() - 1}) {
    found = truth;
    found[i] = std::numeric_limits<float>::quiet_NaN();
    distance = distance_of(found, truth, rows);
    CHECK(std::isinf(distance.error));
    CHECK(distance.worst_element == int64_t(i));
  }
  const std::vector<Eigen::bfloat16> few{Eigen::bfloat16(1), Eigen::bfloat16(-2)};
  CHECK(distance_of(few, few, 1).cosine == Approx(1));
  CHECK(distance_of(std::vector<double>{}, {}, 1).error == 0);
}

verify::StepRow row(const std::string& parameter, int rank, int64_t elements, double error) {
  verify::StepRow row{parameter, rank, elements, {}};
  row.distance.error = error;
  row.distance.length = 1;
  return row;
}

TEST_CASE("a cause is sought in the smallest wrong parameters", "[test_step_causes]") {
  const std::vector<verify::StepRow> rows = {row("large", 0, 100, 9), row("small", 0, 4, 1), row("small", 1, 4, 9),
                                             row("right", 0, 2, 8), row("middle", 1, 8, 20)};
  CHECK(verify::sought_in(rows, 12) == std::vector<std::string>{"small", "middle"});
  CHECK(verify::sought_in(rows, 1) == std::vector<std::string>{"small"});
  CHECK(verify::others_right(rows));
  CHECK_FALSE(verify::others_right({rows[0], rows[1], rows[2]}));
  CHECK(verify::sought_in({rows[3]}).empty());
  const verify::Verdict verdict = verify::verdict(verify::FoundInStep{rows, std::nullopt, {}, {}});
  CHECK(verdict.subject == "3 of 4 parameters");
  CHECK(verdict.outcome == verify::Outcome::wrong);
  CHECK(verdict.table[1].tensor == "small of rank 1");
}

TEST_CASE("what data could not show is known from the smallest parameters that show the rest", "[test_step_causes]") {
  std::vector<std::string> asked;
  bool alike = true;
  const auto local_of = [&](const std::string& name) {
    asked.push_back(name);
    verify::ParameterEvidence p;
    p.name = name;
    p.precision = {"f32", 0x1p-23};
    for (uint64_t r = 0; r < 3; ++r) p.local.push_back({rounded(drawn(3, alike ? 0 : r, 40))});
    return p;
  };
  const std::map<std::string, int64_t> sizes = {{"a", 40}, {"b", 4}, {"empty", 0}};
  CHECK(!verify::blindness(sizes, local_of, 3, {2, 1, 3}).empty());
  CHECK(asked == std::vector<std::string>{"b", "a"});
  alike = false;
  asked.clear();
  CHECK(verify::blindness(sizes, local_of, 3, {2, 1, 3}).empty());
  CHECK(asked == std::vector<std::string>{"b"});
  CHECK(verify::blindness(sizes, local_of, 3, {2, 2, 2}) == std::vector<std::string>{"S12"});
  CHECK(verify::blindness(sizes, local_of, 3, {6}).empty());  // which all ranks share
}

// What the ranks and one process have of a step, in files.
struct Kept {
  ScratchFolder folder;

  static Tensor tensor(const Matrix& x, int64_t rows) {
    return Tensor::from({rows, x.size() / rows}, std::vector<double>(x.data(), x.data() + x.size()), DType::f32);
  }
  Kept(const verify::Step& step, const std::string& lost, int without_bias = -1, const verify::Step* mended = nullptr) {
    std::vector<NamedTensor> truth;
    for (const verify::StepParameter& each : step.parameters) {
      truth.push_back({"truth/" + each.name, tensor(each.truth, each.rows)});
      truth.push_back({"inexact/" + each.name + "/0", tensor(each.inexact[0], each.rows)});
    }
    write_safetensors(folder / "truth.safetensors", truth, {});
    std::string files, rows;
    for (size_t r = 0; r < size_t(step.ranks); ++r) {
      std::vector<NamedTensor> own, again;
      for (size_t p = 0; p < step.parameters.size(); ++p) {
        const verify::StepParameter& each = step.parameters[p];
        if (int(r) == without_bias && each.name == "bias") continue;
        own.push_back({"local/" + each.name, tensor(each.local[r][0], each.rows)});
        own.push_back({"reduced/" + each.name, tensor(each.reduced[r], each.rows)});
        if (mended) again.push_back({"mended/" + each.name, tensor(mended->parameters[p].reduced[r], each.rows)});
      }
      const std::string comma = r ? "," : "", rank = std::to_string(r) + ".safetensors";
      write_safetensors(folder / ("rank" + rank), own, {});
      write_safetensors(folder / ("mended" + rank), again, {});
      rows += comma + std::to_string(step.rows[r]);
      files += comma + "\"mended" + rank + "\"";
    }
    std::ofstream(folder / "manifest.json")
        << R"({"weft_manifest":1,"rows":[)" << rows
        << R"(],"truth":{"files":["truth.safetensors"],"without_gradient":[)" << lost << "]"
        << (mended ? R"(,"mended":{"collectives":["all_gather at a.py:3"],"files":[)" + files + "]}" : "") << "}}";
  }
  verify::Verdict verdict() const { return verify::verdicts(verify::read_dump(folder.path)).at(0); }
};

TEST_CASE("a step that is kept in files has the verdict that it had", "[test_step_causes]") {
  const auto sum_for_mean = [](const auto& local, int) { return sum(local); };
  for (const int ranks : {1, 2, 3, 5}) {
    CAPTURE(ranks);
    const Trained trained{ranks, 11};
    const verify::Step right = trained.step(as_it_should, mean);
    CHECK(Kept(right, "").verdict().outcome == verify::Outcome::correct);
    CHECK(Kept(right, R"("all_gather at a.py:3")").verdict().outcome == verify::Outcome::cannot_tell);
    CHECK(Kept(right, "", ranks == 1 ? -1 : 0).verdict().outcome == verify::Outcome::correct);
    if (ranks == 1) continue;
    const verify::Step wrong = trained.step(as_it_should, sum_for_mean);
    const verify::Verdict found = Kept(wrong, R"("all_gather at a.py:3")").verdict();
    CHECK(found.outcome == verify::Outcome::wrong);
    CHECK((found.best && found.best->signature->id == said(wrong)));
    CHECK(found.table.size() == 2);
  }
}

TEST_CASE("what is right where collectives pass gradients on has lost them", "[test_step_causes]") {
  CHECK(verify::lost_gradients({"all_gather at a.py:3"}, 1).signature->id == "S1");
  CHECK(verify::lost_gradients({"all_gather at a.py:3", "all_reduce at a.py:4"}, 1).text ==
        "no gradient passes through all_gather at a.py:3 and all_reduce at a.py:4");
  const Trained trained{3, 13};
  const auto lost = [](const Matrix& right, int r) { return drawn(7, uint64_t(r), right.size()); };
  const verify::Step wrong = trained.step(lost, mean), right = trained.step(as_it_should, mean);
  const auto said_of = [](const Kept& kept) {
    const verify::Verdict found = kept.verdict();
    return found.best ? verify::title(*found.best->signature, found.best->variant) : found.described->text;
  };
  CHECK(said_of(Kept(wrong, "")) == "wrong before the reduction");
  CHECK(said_of(Kept(wrong, "", -1, &wrong)) == "wrong before the reduction");
  CHECK(said_of(Kept(wrong, "", -1, &right)) == "S1 (all_gather at a.py:3)");
  // A cause with a name is not sought again.
  CHECK(said_of(Kept(trained.step(as_it_should, [](const auto& local, int) { return sum(local); }), "", -1, &right))
            .starts_with("S8"));
}

TEST_CASE("a step whose gradients are zero is no multiple of the truth", "[test_step_causes]") {
  const auto none = [](const Matrix& right, int) { return Matrix(Matrix::Zero(1, right.size())); };
  CHECK(said(Trained{3, 14}.step(none, mean)) == "wrong before the reduction");
}

TEST_CASE("a certificate has the files of the truth", "[test_step_causes]") {
  const Kept kept(Trained{3, 12}.step(as_it_should, mean), "");
  CHECK(verify::certificate_of(kept.folder.path).json.find("truth.safetensors") != std::string::npos);
}

}  // namespace test_step_causes
